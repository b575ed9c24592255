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
    return lq_tokenizer_ids(m->tok, text, n, flags, ids, count, err);
}

// The embedding may have rows that no token has: their text is empty.
bool lq_detokenize(const lq_model *m, const int32_t *ids, size_t count, bool special, char **text, size_t *n,
                   lq_err *err) {
    *text = NULL;
    *n = 0;
    for (size_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= m->desc.vocab)
            return lq_fail(err, LQ_E_USAGE, "token %zu is %d, the vocabulary has %d", i, ids[i], m->desc.vocab);
    return lq_tokenizer_text(m->tok, ids, count, special, text, n, err);
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
    return lq_template_from(m->ckpt, name, "chat template", out, err);
}

bool lq_model_file(const lq_model *m, const char *name, char **text, size_t *n, lq_err *err) {
    lq_bytes b;
    *text = NULL;
    *n = 0;
    if (!lq_ckpt_file(m->ckpt, name, &b, err)) return false;
    if (!b.p) return true;
    if (!(*text = malloc(b.n + 1))) return lq_fail(err, LQ_E_MEMORY, "%s: no memory for it", name);
    memcpy(*text, b.p, b.n);
    (*text)[*n = b.n] = '\0';
    return true;
}
