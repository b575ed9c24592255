// text.c: the public API's view of a model's tokenizer and chat template.
#include "runtime/model/model.h"
#include "runtime/text/template.h"
#include <stdlib.h>
#include <string.h>

void lq_free(void *p) { free(p); }
const char *lq_version(void) { return LQ_VERSION; }
int32_t lq_token_id(const lq_model *m, const char *token, size_t n) { return lq_tokenizer_id(m->tok, token, n); }
int32_t lq_token_bos(const lq_model *m) { return lq_tokenizer_bos(m->tok); }

bool lq_tokenize(const lq_model *m, const char *text, size_t n, int flags, int32_t **ids, size_t *count, lq_err *err) {
    lq_ids out = {0};
    *ids = NULL;
    *count = 0;
    if (!lq_tokenizer_encode(m->tok, text, n, flags, &out, err)) {
        free(out.p);
        return false;
    }
    *ids = out.p ? out.p : calloc(1, sizeof **ids);
    *count = out.n;
    return *ids || lq_fail(err, LQ_E_MEMORY, "no memory for tokens");
}

bool lq_detokenize(const lq_model *m, const int32_t *ids, size_t count, bool special, char **text, size_t *n,
                   lq_err *err) {
    const size_t step = LQ_DETOK_ROOM(lq_tokenizer_longest(m->tok));
    lq_detok d = {.special = special};
    size_t room, len = 0;
    *text = NULL;
    *n = 0;
    for (size_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= m->desc.vocab)
            return lq_fail(err, LQ_E_USAGE, "token %zu is %d, the vocabulary has %d", i, ids[i], m->desc.vocab);
    room = step + 1;
    for (size_t i = 0; i < count; i++) room += LQ_DETOK_ROOM(lq_tokenizer_bytes(m->tok, ids[i]).n);
    char *p = malloc(room);
    if (!p) return lq_fail(err, LQ_E_MEMORY, "no memory for the text of %zu tokens", count);
    for (size_t i = 0; i < count; i++) len += lq_detok_next(m->tok, &d, ids[i], p + len);
    len += lq_detok_end(&d, p + len);
    p[len] = 0;
    *text = p;
    *n = len;
    return true;
}

size_t lq_token_bytes(const lq_model *m, int32_t id, char *buf, size_t cap) {
    if (id < 0 || id >= m->desc.vocab) return 0;
    const lq_bytes b = lq_tokenizer_bytes(m->tok, id);
    if (b.n) memcpy(buf, b.p, b.n < cap ? b.n : cap);
    return b.n;
}

bool lq_token_is_end(const lq_model *m, int32_t id) {
    for (int i = 0; i < m->desc.eoses; i++)
        if (m->desc.eos[i] == id) return true;
    return false;
}

bool lq_template_of(const lq_model *m, const char *name, lq_template **out, lq_err *err) {
    return lq_template_from(m->ckpt, name, out, err);
}
