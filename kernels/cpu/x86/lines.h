// lines.h: lines of weights that a block of rows asks for while it computes: those of the rows behind it, one row
// behind the other, as memory likes it. Owns nothing.
#ifndef LQ_LINES_H
#define LQ_LINES_H
#include "kernels/cpu/x86/unroll.h"
#include <immintrin.h>
#include <stddef.h>

typedef struct lines { // left: steps of the row at p, of `all`; skip: from its end to the next one
    const char *p;
    ptrdiff_t skip;
    size_t left, all;
} lines;

// Of R rows a cut of `steps` times `step` bytes, which begins at p in the first; row: bytes from one to the next.
INLINE lines lines_of(const char *p, size_t row, int steps, const size_t step, const int R) {
    const size_t all = (size_t)(steps + R - 1) / (size_t)R;
    return (lines){p, (ptrdiff_t)(row - all * (size_t)R * step), all, all};
}

// n lines, what a step of the block has of its own.
INLINE void lines_ask(lines *l, const int n) {
    EACH (int i = 0; i < n; i++) _mm_prefetch(l->p + i * 64, _MM_HINT_T1);
    l->p += n * 64;
    if (--l->left) return;
    l->p += l->skip;
    l->left = l->all;
}
#endif
