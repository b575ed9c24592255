// lt_emu.c: lt.h on a machine without a GPU: plain loops, launched on the emulated driver as kernels of one task, so
// that they reach its memory and keep its order. A product that is not as lt.h says ends the program. With an odd
// number of rows sums go backwards, so that who counts on their order sees that it has none. LQ_EMU_COUNT makes it say
// at its end how many products there were.
#include "formats/elem.h"
#include "kernels/cuda/lt.h"
#include <stdio.h>
#include <stdlib.h>

enum { SHAPES = 4096 };
typedef struct shape { int most, n, k; bool scaled; } shape;
struct lq_lt {
    lq_gpu *gpu;
    shape seen[SHAPES];
    int shapes, products, scaled; // scaled: of e4m3
};

bool lq_lt_open(lq_gpu *g, lq_lt **out, lq_err *err) {
    *out = getenv("LQ_EMU_NO_LT") ? NULL : calloc(1, sizeof **out);
    if (!*out) return lq_fail(err, LQ_E_UNSUPPORTED, "device cuda: cuBLASLt cannot be loaded, which fast numerics stand on");
    (*out)->gpu = g;
    return true;
}

void lq_lt_close(lq_lt *l) {
    if (l && getenv("LQ_EMU_COUNT"))
        fprintf(stderr, "lt_emu: %d products, %d of e4m3, %d shapes\n", l->products, l->scaled, l->shapes);
    free(l);
}

const char *lq_lt_name(const lq_lt *l) { return (void)l, "plain loops"; }

static void expect(bool is, const char *what) {
    if (is) return;
    fprintf(stderr, "lt_emu: expected %s\n", what);
    abort();
}

static float number(const lq_lt_product *p, const void *of, size_t at) {
    return p->x_scale ? lq_e4m3_widen(((const uint8_t *)of)[at]) : lq_bf16_widen(((const uint16_t *)of)[at]);
}

static void multiply(const void *args) {
    const lq_lt_product *p = args;
    for (int i = 0; i < p->m; i++)
        for (int j = 0; j < p->n; j++) {
            const size_t at = (size_t)i * p->y_stride + (size_t)j;
            float sum = 0;
            for (int s = 0; s < p->k; s++) {
                const size_t c = (size_t)(p->m % 2 ? p->k - 1 - s : s);
                sum += number(p, p->x, (size_t)i * p->x_stride + c) * number(p, p->w, (size_t)j * p->w_stride + c);
            }
            if (p->x_scale) sum *= p->x_scale[i] * p->w_scale[j];
            if (p->f32) ((float *)p->y)[at] = sum;
            else ((uint16_t *)p->y)[at] = (uint16_t)lq_bf16_narrow(sum);
        }
}

bool lq_lt_multiply(lq_lt *l, const lq_lt_product *p, bool known) {
    const size_t x = (size_t)p->x, w = (size_t)p->w, y = (size_t)p->y, each = p->x_scale ? 16 : 8;
    int most = 16;
    expect(p->m > 0 && p->n > 0 && p->k > 0, "a product of something");
    expect(p->n % 8 == 0 && (size_t)p->k % each == 0 && (x | w | y) % 16 == 0, "rows from 16 bytes on, 8 at a time");
    expect(p->x_stride % each == 0 && p->w_stride % each == 0 && p->y_stride % (p->f32 ? 4 : 8) == 0,
           "strides of 16 bytes");
    expect(p->x_stride >= (size_t)p->k && p->w_stride >= (size_t)p->k && p->y_stride >= (size_t)p->n, "whole rows");
    expect(!p->x_scale == !p->w_scale, "scales of both or of none");
    while (most < p->m) most *= 2;
    int i = 0;
    while (i < l->shapes && (l->seen[i].most != most || l->seen[i].n != p->n || l->seen[i].k != p->k ||
                             l->seen[i].scaled != (each == 16))) i++;
    if (i == l->shapes && (known || i == SHAPES)) return false;
    if (i == l->shapes) l->seen[l->shapes++] = (shape){most, p->n, p->k, each == 16};
    l->products++;
    l->scaled += each == 16;
    lq_gpu_launch(l->gpu, (const void *)(uintptr_t)multiply, p, sizeof *p, (lq_gpu_grid){.blocks = 1, .threads = 1});
    return true;
}
