// test_tok_exact.c: corners of tokenizer.json against ids, pieces and texts that the `tokenizers` library gave
// (tests/golden/tok_exact.json, made by tok_exact.py).
#include "tests/unit/test.h"
#include "formats/json.h"
#include "runtime/lq.h"
#include "runtime/text/tokenizer.h"

static cJSON *file_parse(const char *path) {
    static char text[1 << 20];
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    const size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    return cJSON_Parse(text);
}

static bool ids_are(const int32_t *ids, size_t n, const cJSON *want) {
    const cJSON *k = want->child;
    for (size_t i = 0; i < n; i++, k = k->next)
        if (!k || ids[i] != k->valueint) return false;
    return !k;
}

static void text_check(const lq_tokenizer *t, int row, const cJSON *case_) {
    const char *text = case_->child->valuestring;
    for (int plain = 0; plain < 2; plain++) {
        const cJSON *want = plain ? case_->child->next->next : case_->child->next;
        int32_t *ids;
        size_t n;
        lq_err err;
        const int flags = plain ? 0 : LQ_TOK_SPECIAL | LQ_TOK_PARSE;
        const bool ok = lq_tokenizer_ids(t, text, strlen(text), flags, &ids, &n, &err);
        CHECK(ok, "row %d, \"%s\": %s", row, text, err.text);
        if (!ok) continue;
        CHECK(ids_are(ids, n, want), "row %d: ids of \"%s\"%s", row, text, plain ? " without special tokens" : "");
        lq_free(ids);
    }
}

static void ids_check(const lq_tokenizer *t, int row, int at, const cJSON *case_) {
    int32_t ids[256];
    size_t n = 0, len;
    const cJSON *k, *piece = case_->child->next->child;
    lq_err err;
    cJSON_ArrayForEach(k, case_->child) ids[n++] = k->valueint;
    for (size_t i = 0; i < n; i++, piece = piece->next) {
        const char *p = lq_tokenizer_piece(t, ids[i], &len);
        CHECK(p && len == strlen(piece->valuestring) && !memcmp(p, piece->valuestring, len), "row %d: piece of %d is \"%s\"",
              row, (int)ids[i], p ? p : "");
    }
    for (int special = 0; special < 2; special++) {
        const cJSON *shown = case_->child->next->next;
        const char *want = special ? shown->valuestring : shown->next->valuestring;
        char *text = NULL;
        CHECK(lq_tokenizer_text(t, ids, n, special, &text, &len, &err), "%s", err.text);
        CHECK(text && !strcmp(text, want), "row %d, ids %d: \"%s\", not \"%s\"", row, at, text, want);
        lq_free(text);
    }
}

static void ends_check(const char *added, const char *config, int32_t a, int32_t b) {
    char json[512];
    int32_t ids[4] = {-1, -1, -1, -1};
    lq_tokenizer *t = NULL;
    lq_err err = {0};
    const int n = snprintf(json, sizeof json, "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"<EOT>\":1},\"merges\":[]},"
                           "\"added_tokens\":[%s]}", added);
    const lq_bytes file = {json, (size_t)n};
    CHECK(lq_tokenizer_parse(file, (lq_bytes){config, strlen(config)}, &t, &err), "%s", err.text);
    if (!t) return;
    CHECK(lq_tokenizer_ends(t, ids, 4) == (size_t)(a >= 0) + (b >= 0) && ids[0] == a && ids[1] == b,
          "%s, %s: ends %d, %d", added, config, (int)ids[0], (int)ids[1]);
    lq_tokenizer_close(t);
}

static void test_ends(void) {
    static const char end[] = "{\"id\":2,\"content\":\"<|end|>\",\"special\":true}",
        both[] = "{\"id\":2,\"content\":\"<|end|>\"},{\"id\":3,\"content\":\"<|return|>\"}";
    ends_check("", "", -1, -1); // "<EOT>" is a piece of text here
    ends_check("{\"id\":1,\"content\":\"<EOT>\"}", "", 1, -1);
    ends_check(end, "", 2, -1);
    ends_check(end, "{\"eos_token\":\"<|end|>\"}", 2, -1);
    ends_check(end, "{\"eos_token\":{\"content\":\"a\"}}", 0, 2);
    ends_check(end, "{\"eos_token\":\"nowhere\"}", 2, -1);
    ends_check(both, "", 3, -1);
    ends_check(both, "{\"eos_token\":\"<|end|>\"}", 2, 3);
}

int main(void) {
    test_ends();
    cJSON *rows = file_parse("tests/golden/tok_exact.json"), *row, *k;
    int at = 0;
    CHECK(cJSON_IsArray(rows), "tests/golden/tok_exact.json");
    cJSON_ArrayForEach(row, rows) {
        char *json = cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(row, "tokenizer"));
        lq_tokenizer *t = NULL;
        lq_err err = {0};
        int i = 0;
        CHECK(lq_tokenizer_parse((lq_bytes){json, strlen(json)}, (lq_bytes){"", 0}, &t, &err), "row %d: %s", at,
              err.text);
        if (t) cJSON_ArrayForEach(k, cJSON_GetObjectItemCaseSensitive(row, "texts")) text_check(t, at, k);
        if (t) cJSON_ArrayForEach(k, cJSON_GetObjectItemCaseSensitive(row, "ids")) ids_check(t, at, i++, k);
        lq_tokenizer_close(t);
        cJSON_free(json);
        at++;
    }
    cJSON_Delete(rows);
    return test_end();
}
