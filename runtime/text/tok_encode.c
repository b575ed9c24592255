// tok_encode.c: a text through all steps to ids: sections around added tokens, normalizers, words, and each word by the
// model's kind. Words that were seen before in a long text are not encoded again.
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "runtime/lq.h"
#include "runtime/text/tok.h"

enum { CELLS_FROM = 8192, CELLS = 4096 };

// --- ids ---

bool lq_tok_ids_room(lq_ids *ids, size_t more, lq_err *err) {
    void *p = ids->p;
    if (!lq_tok_array_room(&p, &ids->cap, ids->n + more, sizeof *ids->p, err)) return false;
    ids->p = p;
    return true;
}

bool lq_tok_ids_add(lq_ids *ids, const int32_t *p, size_t n, lq_err *err) {
    if (ids->n + n > ids->cap && !lq_tok_ids_room(ids, n, err)) return false;
    if (n) memcpy(ids->p + ids->n, p, n * sizeof *p);
    ids->n += n;
    return true;
}

bool lq_tok_unk_add(lq_tok_work *w, lq_err *err) {
    const lq_tok_vocab *v = &w->t->vocab;
    if (v->unk >= 0) return lq_tok_ids_add(w->out, &v->unk, 1, err);
    if (v->unk_name)
        return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: model.unk_token %.60s is not in the vocabulary", v->unk_name);
    return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: the text has what is no token, and the model no unknown token");
}

bool lq_tok_fallback_add(lq_tok_work *w, const char *p, size_t n, bool *done, lq_err *err) {
    const lq_tok_vocab *v = &w->t->vocab;
    *done = v->byte_fallback;
    for (size_t i = 0; *done && i < n; i++) *done = v->byte_id[(uint8_t)p[i]] >= 0;
    for (size_t i = 0; *done && i < n; i++)
        if (!lq_tok_ids_add(w->out, &v->byte_id[(uint8_t)p[i]], 1, err)) return false;
    return true;
}

// --- words ---

static bool model_run(lq_tok_work *w, const char *p, size_t n, lq_err *err) {
    switch (w->t->vocab.model) {
    case LQ_TOK_BPE: return lq_tok_bpe_word(w, p, n, err);
    case LQ_TOK_UNIGRAM: return lq_tok_unigram_word(w, p, n, err);
    case LQ_TOK_WORDPIECE: return lq_tok_wordpiece_word(w, p, n, err);
    case LQ_TOK_WORDLEVEL: return lq_tok_wordlevel_word(w, p, n, err);
    }
    return true;
}

static bool word_encode(lq_tok_work *w, const char *p, size_t n, lq_err *err) {
    lq_tok_cell *c = NULL;
    if (w->cells && n <= sizeof c->key) {
        c = &w->cells[XXH3_64bits(p, n) % CELLS];
        if (c->n == n && !memcmp(c->key, p, n)) return lq_tok_ids_add(w->out, c->id, c->ids, err);
    }
    const size_t had = w->out->n;
    if (!model_run(w, p, n, err)) return false;
    const size_t ids = w->out->n - had;
    if (c && ids <= sizeof c->id / sizeof *c->id) {
        c->n = (uint8_t)n;
        c->ids = (uint8_t)ids;
        memcpy(c->key, p, n);
        if (ids) memcpy(c->id, w->out->p + had, ids * sizeof *c->id);
    }
    return true;
}

static bool words_encode(lq_tok_work *w, lq_err *err) {
    if (!lq_tok_pre_run(w->t, w, err)) return false;
    for (size_t i = 0; i < w->words.n; i++) {
        const lq_tok_word *k = &w->words.p[i];
        if (!word_encode(w, w->a.p + k->at, k->end - k->at, err)) return false;
    }
    return true;
}

// A stretch of text with no token that is looked for before normalizing.
static bool section_encode(lq_tok_work *w, const char *p, size_t n, bool first, bool parse, lq_err *err) {
    const lq_tokenizer *t = w->t;
    lq_tok_lead lead = {first, 0};
    w->a.n = 0;
    if (first && n) lq_tok_char_get(p, &lead.n);
    if (!lq_tok_buf_add(&w->a, p, n, err) || !lq_tok_norm_run(t, w, &lead, err)) return false;
    lq_tok_buf swap = w->section;
    w->section = w->a;
    w->a = swap;
    if (!lq_tok_added_find(t, &t->normal, w->section.p, w->section.n, parse, &w->inner, err)) return false;
    for (size_t i = 0; i < w->inner.n; i++) {
        const lq_tok_piece *k = &w->inner.p[i];
        if (k->id >= 0) {
            if (!lq_tok_ids_add(w->out, &k->id, 1, err)) return false;
            continue;
        }
        w->a.n = w->words.n = 0;
        if (!lq_tok_buf_add(&w->a, w->section.p + k->at, k->end - k->at, err) ||
            !lq_tok_words_add(&w->words, 0, w->a.n, lead.n > k->at ? lead.n - k->at : 0, err) ||
            !words_encode(w, err)) {
            return false;
        }
    }
    return true;
}

static bool text_encode(lq_tok_work *w, const char *text, size_t n, int flags, lq_err *err) {
    const lq_tokenizer *t = w->t;
    bool changed, parse = flags & LQ_TOK_PARSE;
    if (n > LQ_TOK_MAX_TEXT / 4)
        return lq_fail(err, LQ_E_LIMIT, "tokenizer: a text of %zu bytes, more than %d", n, LQ_TOK_MAX_TEXT / 4);
    if (!lq_tok_utf8_clean(text, n, &w->clean, &changed, err)) return false;
    if (changed) {
        text = w->clean.p;
        n = w->clean.n;
    }
    w->norm_left = w->pre_left = lq_tok_growth(n);
    if (n >= CELLS_FROM) w->cells = calloc(CELLS, sizeof *w->cells); // without it, it is only slower
    if ((flags & LQ_TOK_SPECIAL) && !lq_tok_ids_add(w->out, t->before.p, t->before.n, err)) return false;
    if (!lq_tok_added_find(t, &t->exact, text, n, parse, &w->outer, err)) return false;
    for (size_t i = 0; i < w->outer.n; i++) {
        const lq_tok_piece *k = &w->outer.p[i];
        bool ok = k->id >= 0 ? lq_tok_ids_add(w->out, &k->id, 1, err)
                             : section_encode(w, text + k->at, k->end - k->at, k->at == 0, parse, err);
        if (!ok) return false;
    }
    return !(flags & LQ_TOK_SPECIAL) || lq_tok_ids_add(w->out, t->after.p, t->after.n, err);
}

bool lq_tokenizer_encode(const lq_tokenizer *t, const char *text, size_t n, int flags, lq_ids *out, lq_err *err) {
    lq_tok_work w = {.t = t, .out = out};
    size_t had = out->n;
    bool ok = text_encode(&w, text, n, flags, err);
    if (!ok) out->n = had;
    lq_tok_work_free(&w);
    return ok;
}
