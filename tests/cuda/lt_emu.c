// lt_emu.c: lt.h on a machine without a GPU: plain loops, launched on the emulated driver as kernels of one task, so
// that they reach its memory and keep its order. A product that is not as lt.h says ends the program. With an odd
// number of rows sums go backwards, so that who counts on their order sees that it has none. LQ_EMU_COUNT makes it say
// at its end how many products there were.
#include "formats/elem.h"
#include "kernels/cuda/lt.h"
#include <stdio.h>
#include <stdlib.h>

enum { SHAPES = 4096 };
typedef struct shape { int most, n, k; } shape;
struct lq_lt {
    lq_gpu *gpu;
    shape seen[SHAPES];
    int shapes, products;
};

bool lq_lt_open(lq_gpu *g, lq_lt **out, lq_err *err) {
    *out = getenv("LQ_EMU_NO_LT") ? NULL : calloc(1, sizeof **out);
    if (!*out) return lq_fail(err, LQ_E_UNSUPPORTED, "device cuda: cuBLASLt cannot be loaded, which fast numerics stand on");
    (*out)->gpu = g;
    return true;
}

void lq_lt_close(lq_lt *l) {
    if (l && getenv("LQ_EMU_COUNT")) fprintf(stderr, "lt_emu: %d products, %d shapes\n", l->products, l->shapes);
    free(l);
}

const char *lq_lt_name(const lq_lt *l) { return (void)l, "plain loops"; }

static void expect(bool is, const char *what) {
    if (is) return;
    fprintf(stderr, "lt_emu: expected %s\n", what);
    abort();
}

static void multiply(const void *args) {
    const lq_lt_product *p = args;
    const uint16_t *x = p->x, *w = p->w;
    for (int i = 0; i < p->m; i++)
        for (int j = 0; j < p->n; j++) {
            const size_t at = (size_t)i * p->y_stride + (size_t)j;
            float sum = 0;
            for (int s = 0; s < p->k; s++) {
                const size_t c = (size_t)(p->m % 2 ? p->k - 1 - s : s);
                sum += lq_bf16_widen(x[(size_t)i * p->x_stride + c]) * lq_bf16_widen(w[(size_t)j * p->w_stride + c]);
            }
            if (p->f32) ((float *)p->y)[at] = sum;
            else ((uint16_t *)p->y)[at] = (uint16_t)lq_bf16_narrow(sum);
        }
}

bool lq_lt_multiply(lq_lt *l, const lq_lt_product *p, bool known) {
    const size_t x = (size_t)p->x, w = (size_t)p->w, y = (size_t)p->y;
    int most = 16;
    expect(p->m > 0 && p->n > 0 && p->k > 0, "a product of something");
    expect(p->n % 8 == 0 && p->k % 8 == 0 && (x | w | y) % 16 == 0, "rows from 16 bytes on, 8 at a time");
    expect(p->x_stride % 8 == 0 && p->w_stride % 8 == 0 && p->y_stride % (p->f32 ? 4 : 8) == 0, "strides of 16 bytes");
    expect(p->x_stride >= (size_t)p->k && p->w_stride >= (size_t)p->k && p->y_stride >= (size_t)p->n, "whole rows");
    while (most < p->m) most *= 2;
    int i = 0;
    while (i < l->shapes && (l->seen[i].most != most || l->seen[i].n != p->n || l->seen[i].k != p->k)) i++;
    if (i == l->shapes && (known || i == SHAPES)) return false;
    if (i == l->shapes) l->seen[l->shapes++] = (shape){most, p->n, p->k};
    l->products++;
    lq_gpu_launch(l->gpu, (const void *)(uintptr_t)multiply, p, sizeof *p, (lq_gpu_grid){.blocks = 1, .threads = 1});
    return true;
}
