// fuzz_json.c: any bytes as JSON. What the check takes the parse and the walk must take too, to the last byte; what is
// written as a JSON string must be one, and come back, and so must a tree.
#include "formats/json.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const lq_json_limits lim = {1 << 20, 200};

static void walk_all(const char *text, size_t n) {
    char *str = malloc(n + 1);
    lq_json_walk w = {text, text + n}, skip = w;
    lq_json_skip(&skip);
    if (lq_json_next(&skip) != 0) abort();
    for (char c; str && (c = lq_json_next(&w));) {
        uint64_t v;
        const char *before = w.p;
        if (c == '"') lq_json_take_str(&w, str);
        else if (strchr("{}[]", c)) lq_json_take(&w);
        else lq_json_take_u64(&w, &v);
        if (w.p <= before) abort();
    }
    free(str);
}

// A tree that is written is JSON, and the same once more.
static void tree_back(const char *text, size_t n) {
    cJSON *tree = NULL, *again = NULL;
    lq_text t[2] = {{0}, {0}};
    if (!lq_json_parse_exact(text, n, lim, "input", &tree, NULL, NULL)) return;
    lq_text_tree(&t[0], tree);
    if (!lq_json_parse_exact(t[0].p, t[0].n, (lq_json_limits){SIZE_MAX, 200}, "written", &again, NULL, NULL)) abort();
    lq_text_tree(&t[1], again);
    if (t[0].n != t[1].n || memcmp(t[0].p, t[1].p, t[0].n) != 0) abort();
    for (int i = 0; i < 2; i++) lq_text_free(&t[i]);
    cJSON_Delete(tree);
    cJSON_Delete(again);
}

static void write_back(const char *text, size_t n) {
    lq_text t = {0};
    lq_text_json(&t, text, n);
    if (t.failed || !lq_json_check(t.p, t.n, (lq_json_limits){SIZE_MAX, 1}, "written", NULL)) abort();
    char *back = malloc(t.n);
    lq_json_walk w = {t.p, t.p + t.n};
    size_t m = back ? lq_json_take_str(&w, back) : 0;
    if (back && !memmem(t.p, t.n, "\xef\xbf\xbd", 3) && (m != n || memcmp(back, text, n) != 0)) abort();
    free(back);
    lq_text_free(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    lq_err err = {0};
    char *text = malloc(n ? n : 1); // exactly as long, without a NUL behind it
    if (!text) return 0;
    if (n) memcpy(text, data, n);
    bool ok = lq_json_check(text, n, lim, "input", &err);
    if (!ok && (err.code == LQ_E_NONE || strncmp(err.text, "input", 5) != 0 || strchr(err.text, '\n'))) abort();
    cJSON *tree;
    bool parsed = lq_json_parse(text, n, lim, "input", &tree, &err);
    if (parsed && !ok) abort();
    if (!parsed && ok && !strstr(err.text, "which lq does not take")) abort();
    int64_t v;
    double d;
    bool b;
    for (const cJSON *m = parsed ? tree->child : NULL; m; m = m->next) {
        if (!m->string) continue;
        lq_json_int(tree, m->string, INT64_MIN, INT64_MAX, &v, "input", &err);
        lq_json_num(tree, m->string, &d, "input", &err);
        lq_json_bool(tree, m->string, &b, "input", &err);
        lq_json_str(tree, m->string);
    }
    cJSON_Delete(tree);
    if (ok) walk_all(text, n);
    write_back(text, n);
    tree_back(text, n);
    free(text);
    return 0;
}
