// tok_steps.c: reads the steps of a normalizer, pre-tokenizer, decoder or post-processor by the rows its file hands
// over, and holds what they make of a text to a limit.
// Refuses types without a row, by name, and Sequences nested deeper than any that were seen.
#include "runtime/text/tok.h"
#include <stdlib.h>
#include <string.h>

enum { NESTED = 8 };

static bool step_read(const cJSON *json, const char *type, const lq_tok_steps *s, lq_tokenizer *t, lq_err *err) {
    for (size_t i = 0; i < s->rows; i++) {
        if (!strcmp(type, s->row[i].type)) return s->row[i].read(json, s->row[i].how, t, err);
    }
    return lq_fail(err, LQ_E_UNSUPPORTED, "tokenizer.json: %s of type %s is not known", s->what, type);
}

bool lq_tok_steps_read(const cJSON *json, const lq_tok_steps *s, lq_tokenizer *t, lq_err *err) {
    const cJSON *next[NESTED];
    int depth = 0, have = 0;
    if (!json || cJSON_IsNull(json)) return true;
    for (const cJSON *k = json;;) {
        const char *type = lq_json_str(k, "type");
        if (!type) return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: %s without a type", s->what);
        bool sequence = !strcmp(type, "Sequence");
        if (!sequence && (!lq_tok_step_fits(have++, s->list, err) || !step_read(k, type, s, t, err))) return false;
        if (sequence) {
            const cJSON *items = cJSON_GetObjectItemCaseSensitive(k, s->list);
            if (!cJSON_IsArray(items))
                return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: %s Sequence without %s", s->what, s->list);
            if (depth == NESTED)
                return lq_fail(err, LQ_E_LIMIT, "tokenizer.json: %s: more than %d nested Sequences", s->what, NESTED);
            next[depth++] = k == json ? NULL : k->next;
            k = items->child;
        } else k = k == json ? NULL : k->next;
        while (!k && depth) k = next[--depth];
        if (!k) return true;
    }
}

bool lq_tok_step_fits(int have, const char *what, lq_err *err) {
    return have < LQ_TOK_MAX_OPS || lq_fail(err, LQ_E_LIMIT, "tokenizer.json: more than %d %s", LQ_TOK_MAX_OPS, what);
}

// --- running them ---

bool lq_tok_step_end(lq_tok_work *w, size_t left, size_t *most, lq_err *err) {
    const size_t n = w->b.n;
    lq_tok_buf swap = w->a;
    w->a = w->b;
    w->b = swap;
    w->a.max = w->b.max = 0;
    if (n > *most) *most = n;
    return n <= left || lq_fail(err, LQ_E_LIMIT,
                                "tokenizer: the steps of tokenizer.json make more than %zu bytes of a text", left);
}

void lq_tok_work_free(lq_tok_work *w) {
    void *const parts[] = {w->clean.p, w->section.p, w->a.p, w->b.p, w->spans.p, w->words.p, w->next.p, w->outer.p,
                           w->inner.p, w->sym.p, w->link, w->heap, w->best, w->apart, w->cells};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
    lq_tok_matcher_free(&w->matcher);
}
