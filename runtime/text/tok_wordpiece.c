// tok_wordpiece.c: models without merges or scores. WordPiece takes the longest token from the left, again and again,
// and a word that ends in something else is unknown as a whole. WordLevel knows words or does not.
#include <string.h>
#include "runtime/text/tok.h"

static bool longer_than(const char *p, size_t n, size_t chars) {
    size_t seen = 0;
    if (n <= chars) return false;
    for (size_t i = 0; i < n; i++) seen += ((uint8_t)p[i] & 0xc0) != 0x80;
    return seen > chars;
}

bool lq_tok_wordpiece_word(lq_tok_work *w, const char *p, size_t n, lq_err *err) {
    const lq_tok_vocab *v = &w->t->vocab;
    const size_t had = w->out->n;
    int32_t id;
    if (longer_than(p, n, v->max_chars)) return lq_tok_unk_add(w, err);
    for (size_t at = 0, len; at < n; at += len) {
        len = lq_tok_tree_longest(&v->tree, at ? v->within : 0, p + at, n - at, &id);
        if (!len) {
            w->out->n = had;
            return lq_tok_unk_add(w, err);
        }
        if (!lq_tok_ids_add(w->out, &id, 1, err)) return false;
    }
    return true;
}

bool lq_tok_wordlevel_word(lq_tok_work *w, const char *p, size_t n, lq_err *err) {
    const int32_t id = lq_tok_vocab_find(&w->t->vocab, p, n);
    return id < 0 ? lq_tok_unk_add(w, err) : lq_tok_ids_add(w->out, &id, 1, err);
}
