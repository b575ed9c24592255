// rank.c: columns, groups and heads by how large they are. Owns nothing.
#include "quant/pass.h"
#include <stdlib.h>

static int larger_first(const void *a, const void *b) {
    const lq_ranked *x = a, *y = b;
    if (x->size != y->size) return x->size < y->size ? 1 : -1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static int by_place(const void *a, const void *b) {
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return x < y ? -1 : x > y;
}

void lq_rank(lq_ranked *by, size_t n) { qsort(by, n, sizeof *by, larger_first); }

void lq_rank_places(const lq_ranked *by, size_t n, int32_t *out) {
    for (size_t i = 0; i < n; i++) out[i] = (int32_t)by[i].at;
    qsort(out, n, sizeof *out, by_place);
}
