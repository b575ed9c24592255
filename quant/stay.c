// stay.c: which rows and columns of a weight stay, by its role, and the weight that is left of it.
#include "quant/prune.h"
#include <stdlib.h>
#include <string.h>

void lq_stay_free(lq_stay *s) {
    free(s->row);
    free(s->column);
    *s = (lq_stay){0};
}

// Blocks of `wide`, of the layers that stay.
static int32_t *of_layers(const lq_cut *cut, int wide) {
    int32_t *all = malloc((size_t)cut->layers * (size_t)wide * sizeof *all), n = 0;
    for (int i = 0; all && i < cut->layers; i++)
        for (int k = 0; k < wide; k++) all[n++] = cut->layer[i] * wide + k;
    return all;
}

bool lq_stay_of(const lq_desc *was, const lq_cut *cut, const lq_slot *s, lq_stay *out, lq_err *err) {
    *out = (lq_stay){0};
    const bool told = cut->layers < was->layers && (s->role == LQ_R_TOKENS || s->role == LQ_R_TOKENS_IN);
    if (!told) return true;
    int32_t **to = s->role == LQ_R_TOKENS ? &out->column : &out->row;
    *to = of_layers(cut, was->token_dim);
    return *to || lq_fail(err, LQ_E_MEMORY, "no memory for the numbers of %d layers", cut->layers);
}

bool lq_stay_take(const lq_stay *s, const lq_weight *from, int64_t n, int64_t k, void **held, lq_weight *out,
                  lq_err *err) {
    *held = NULL;
    *out = *from;
    if (!s->row && !s->column) return true;
    if (from->type.kind != LQ_W_PLAIN)
        return lq_fail(err, LQ_E_UNSUPPORTED, "it is quantized already: expected a checkpoint in bf16, f16 or f32");
    const size_t size = lq_dtype_size(from->type.elem), wide = k ? (size_t)k : 1, old = k ? (size_t)from->k : 1;
    char *to = *held = malloc((size_t)n * wide * size);
    if (!to) return lq_fail(err, LQ_E_MEMORY, "no memory for a matrix of %lld x %zu", (long long)n, wide);
    for (int64_t i = 0; i < n; i++) {
        const char *row = (const char *)from->q + (size_t)(s->row ? s->row[i] : i) * old * size;
        if (!s->column) memcpy(to, row, wide * size), to += wide * size;
        else for (size_t j = 0; j < wide; j++, to += size) memcpy(to, row + (size_t)s->column[j] * size, size);
    }
    out->q = *held, out->n = n, out->k = k ? k : 1;
    return true;
}
