// opts.c: reads a command line by a verb's table. Owns the lists it grows until lq_opts_free. It refuses
// what the table does not know, a value out of its range, and a word too many or too few, each with one
// line and the nearest known name.
#include "tools/verb.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const lq_opt common[] = {
    {"json", 0, LQ_OPT_FLAG, offsetof(lq_common, json), NULL, "print the result as JSON", NULL, 0, 0},
    {"quiet", 'q', LQ_OPT_FLAG, offsetof(lq_common, quiet), NULL, "no progress and no summary", NULL, 0, 0},
    {"help", 'h', LQ_OPT_FLAG, 0, NULL, "print this help", NULL, 0, 0},
};
enum { COMMON = sizeof common / sizeof *common, HELP = COMMON - 1 };

const lq_opt *lq_verb_opt(const lq_verb *v, size_t i) {
    if (i < v->opt_count) return &v->opts[i];
    i -= v->opt_count;
    if (v->plain) i += HELP;
    return i < COMMON ? &common[i] : NULL;
}

lq_model_opts lq_model_args_opts(const lq_model_args *a) {
    return (lq_model_opts){.device = a->device, .isa = a->isa, .threads = (int)a->threads, .ctx = (int)a->ctx,
                           .kv = a->kv, .exact = a->exact || (a->numerics && !strcmp(a->numerics, "exact")),
                           .fast = a->numerics && !strcmp(a->numerics, "fast")};
}

int lq_model_args_check(const char *verb, const lq_model_args *a) {
    if (!a->exact || !a->numerics || !strcmp(a->numerics, "exact")) return 0;
    return lq_say_usage(verb, "--exact and --numerics %s exclude each other", a->numerics);
}

// --- suggestions ---

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

// Edits (insert, delete, replace, swap of neighbours) from a to b; words longer than a name are never near.
static size_t edit_distance(const char *a, const char *b) {
    enum { MAX = 40 };
    size_t n = strlen(a), m = strlen(b), d[3][MAX + 1];
    if (n > MAX || m > MAX) return MAX;
    for (size_t j = 0; j <= m; j++) d[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *row = d[i % 3], *up = d[(i + 2) % 3], *upper = d[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            row[j] = least(least(up[j] + 1, row[j - 1] + 1), up[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], upper[j - 2] + 1);
        }
    }
    return d[n % 3][m];
}

const char *lq_opts_nearest(const char *word, const char *(*next)(const void *of, size_t i), const void *of) {
    const char *best = NULL, *name;
    size_t limit = strlen(word) < 4 ? 1 : strlen(word) < 7 ? 2 : 3, score = limit + 1;
    for (size_t i = 0; (name = next(of, i)); i++) {
        size_t d = edit_distance(word, name);
        // A beginning that was cut off is as near as it gets: "quant" means "quantize".
        if (strlen(word) > 1 && !strncmp(word, name, strlen(word))) d = 1;
        if (d < score) score = d, best = name;
    }
    return best;
}

static const char *option_name(const void *of, size_t i) {
    const lq_opt *o = lq_verb_opt(of, i);
    return o ? o->name : NULL;
}

static int unknown_option(const lq_verb *v, const char *name, size_t n) {
    char word[48];
    snprintf(word, sizeof word, "%.*s", (int)n, name);
    const char *near = lq_opts_nearest(word, option_name, v);
    if (near) return lq_say_usage(v->name, "unknown option --%s; did you mean --%s?", word, near);
    return lq_say_usage(v->name, "unknown option --%s", word);
}

// --- values ---

static int set_choice(const lq_verb *v, const lq_opt *o, const char **field, const char *word) {
    const char *name;
    lq_text all = {0};
    for (size_t i = 0; (name = o->choice(i)); i++) {
        if (!strcmp(name, word)) {
            lq_text_free(&all);
            return *field = name, 0;
        }
        lq_text_fmt(&all, "%s%s", i ? "|" : "", name);
    }
    lq_say_usage(v->name, "--%s: %s is none of %s", o->name, word, all.p ? all.p : "nothing");
    lq_text_free(&all);
    return 2;
}

static bool parse_size(const char *text, size_t *out) {
    char *end;
    errno = 0;
    double x = strtod(text, &end);
    if (end == text || errno || strpbrk(text, "xXnN")) return false;
    const char *units = "kmgt", *u = *end ? strchr(units, *end | 0x20) : NULL;
    if (u) {
        bool binary = end[1] == 'i';
        x *= pow(binary ? 1024 : 1000, (double)(u - units + 1));
        end += binary ? 2 : 1;
    }
    if ((*end | 0x20) == 'b') end++;
    if (*end || x < 1 || x > 9e18) return false; // none at all is no limit that anybody means
    *out = (size_t)x;
    return true;
}

static bool is_whole(const lq_opt *o) { return o->kind == LQ_OPT_INT || o->kind == LQ_OPT_INT32; }

static bool parse_number(const lq_opt *o, const char *text, void *field) {
    char *end;
    errno = 0;
    const long long i = is_whole(o) ? strtoll(text, &end, 10) : 0;
    const double x = is_whole(o) ? (double)i : strtod(text, &end);
    const bool limits = o->min != 0 || o->max != 0;
    if (end == text || *end || errno || !isfinite(x) || (limits && !(x >= o->min && x <= o->max))) return false;
    if (o->kind == LQ_OPT_INT32 && i != (int32_t)i) return false;
    switch (o->kind) {
    case LQ_OPT_INT: *(int64_t *)field = i; break;
    case LQ_OPT_INT32: *(int32_t *)field = (int32_t)i; break;
    case LQ_OPT_FLOAT: *(float *)field = (float)x; break;
    default: *(double *)field = x;
    }
    return true;
}

static bool list_add(lq_list *l, const char *text) {
    const char **p = realloc(l->p, (l->n + 1) * sizeof *p);
    if (!p) return false;
    l->p = p;
    p[l->n++] = text;
    return true;
}

static int set_value(const lq_verb *v, const lq_opt *o, void *args, const char *text) {
    void *field = (char *)args + o->offset;
    switch (o->kind) {
    case LQ_OPT_FLAG: *(bool *)field = true; return 0;
    case LQ_OPT_TEXT:
    case LQ_OPT_FILE: *(const char **)field = text; return 0;
    case LQ_OPT_LIST: return list_add(field, text) ? 0 : lq_say_usage(v->name, "out of memory");
    case LQ_OPT_CHOICE: return set_choice(v, o, field, text);
    case LQ_OPT_SIZE:
        if (!parse_size(text, field))
            return lq_say_usage(v->name, "--%s: %s is no size like 512M or 4GiB", o->name, text);
        return 0;
    case LQ_OPT_INT:
    case LQ_OPT_INT32:
    case LQ_OPT_NUM:
    case LQ_OPT_FLOAT:
        if (parse_number(o, text, field)) return 0;
        if (o->min != 0 || o->max != 0)
            return lq_say_usage(v->name, "--%s: %s is no %s from %.15g to %.15g", o->name, text,
                                is_whole(o) ? "whole number" : "number", o->min, o->max);
        return lq_say_usage(v->name, "--%s: %s is no %s", o->name, text, is_whole(o) ? "whole number" : "number");
    }
    return 2;
}

// --- the command line ---

typedef struct walk {
    const lq_verb *v;
    void *args;
    char **argv;
    int argc, i;
    bool *help;
} walk;

// The option o was found; `inline_value` is what stood after '=' or directly after its letter, or NULL.
static int take(walk *w, const lq_opt *o, const char *inline_value) {
    if (o == &common[HELP]) return *w->help = true, 0;
    if (o->kind == LQ_OPT_FLAG)
        return inline_value ? lq_say_usage(w->v->name, "--%s takes no value", o->name)
            : set_value(w->v, o, w->args, NULL);
    if (!inline_value) {
        if (w->i + 1 >= w->argc)
            return lq_say_usage(w->v->name, "--%s needs a value: %s", o->name, o->value ? o->value : "VALUE");
        inline_value = w->argv[++w->i];
    }
    return set_value(w->v, o, w->args, inline_value);
}

static int take_long(walk *w, const char *text) {
    const char *eq = strchr(text, '=');
    size_t n = eq ? (size_t)(eq - text) : strlen(text);
    const lq_opt *o;
    for (size_t i = 0; (o = lq_verb_opt(w->v, i)); i++)
        if (strlen(o->name) == n && !strncmp(o->name, text, n)) return take(w, o, eq ? eq + 1 : NULL);
    return unknown_option(w->v, text, n);
}

// "-t4", "-qn4": flags may stand together, the first letter with a value takes the rest.
static int take_letters(walk *w, const char *text) {
    for (; *text; text++) {
        const lq_opt *o;
        size_t i = 0;
        while ((o = lq_verb_opt(w->v, i)) && o->letter != *text) i++;
        if (!o) return lq_say_usage(w->v->name, "unknown option -%c", *text);
        bool flag = o->kind == LQ_OPT_FLAG;
        const char *rest = text[1] == '=' ? text + 2 : text + 1;
        int status = take(w, o, flag || !text[1] ? NULL : rest);
        if (status || !flag) return status;
    }
    return 0;
}

static bool is_negative_number(const char *word) {
    char *end;
    strtod(word, &end);
    return word[0] == '-' && end != word && !*end;
}

int lq_opts_parse(const lq_verb *v, int argc, char **argv, void *args, char **words, int *count, bool *help) {
    walk w = {v, args, argv, argc, 0, help};
    bool only_words = false;
    *count = 0;
    *help = false;
    for (; w.i < argc; w.i++) {
        char *word = argv[w.i];
        int status = 0;
        if (only_words || word[0] != '-' || !word[1] || is_negative_number(word)) words[(*count)++] = word;
        else if (!strcmp(word, "--")) only_words = true;
        else status = word[1] == '-' ? take_long(&w, word + 2) : take_letters(&w, word + 1);
        if (status) return status;
    }
    if (*help) return 0;
    if (*count < v->min_args)
        return lq_say_usage(v->name, "%s is missing: lq %s %s", *count ? "a word" : "an argument", v->name,
                            v->synopsis);
    if (v->max_args >= 0 && *count > v->max_args)
        return lq_say_usage(v->name, "%s is one word too many", words[v->max_args]);
    return 0;
}

void lq_opts_free(const lq_verb *v, void *args) {
    for (size_t i = 0; i < v->opt_count; i++) {
        if (v->opts[i].kind != LQ_OPT_LIST) continue;
        lq_list *l = (lq_list *)(void *)((char *)args + v->opts[i].offset);
        free(l->p);
        *l = (lq_list){0};
    }
}

int lq_opts_var(const char *verb, const char *text, lq_template_var *out) {
    static const lq_err memory = {LQ_E_MEMORY, "no memory for --var"};
    const char *mark = strchr(text, '=');
    if (!mark || mark == text) return lq_say_usage(verb, "--var: %s is no NAME=JSON", text);
    *out = (lq_template_var){strndup(text, (size_t)(mark - text)), mark + 1, strlen(mark + 1)};
    return out->name ? 0 : lq_say_error(&memory);
}

int lq_opts_seed(const char *verb, const char *text, uint64_t most, uint64_t *out) {
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    if (*text >= '0' && *text <= '9' && !*end && !errno && *out <= most) return 0;
    return lq_say_usage(verb, "--seed: %s is no whole number from 0 to %llu", text, (unsigned long long)most);
}
