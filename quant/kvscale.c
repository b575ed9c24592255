// kvscale.c: what a KV cache in fp8 divides K and V of a head by, so that what the text gives fits: the largest
// magnitude of it, and as much room above it. Owns nothing.
#include "quant/here.h"
#include "quant/pass.h"
#include <math.h>
#include <stdlib.h>

enum { MOST = 448, ROOM = 2 }; // the largest number of e4m3; other texts give larger ones

typedef struct largest {
    lq_dev *on;
    float *of; // [heads][K, V]
    int heads;
} largest;

static bool take(const largest *l, const lq_mat *x, int part, lq_err *err) {
    const int dim = x->cols / l->heads;
    lq_here here;
    if (!lq_here_open(l->on, x, &here, err)) return false;
    for (int r = 0; r < x->rows; r++)
        for (int i = 0; i < x->cols; i++) {
            const float a = fabsf(here.x[(size_t)r * (size_t)x->cols + (size_t)i]);
            float *most = &l->of[2 * (i / dim) + part];
            *most = *most >= a ? *most : a; // keeps what is no number
        }
    lq_here_close(&here);
    return true;
}

static bool look(void *arg, const lq_sight *s, lq_err *err) {
    const largest *l = arg;
    return (!s->k || take(l, s->k, 0, err)) && (!s->v || take(l, s->v, 1, err));
}

bool lq_kv_scales(lq_stream *s, lq_block *b, lq_err *err) {
    lq_module *m = lq_block_find(b, LQ_R_KV_SCALE, false);
    const lq_module *o = lq_block_find(b, LQ_R_O, false);
    if (!m || b->plan->in_desc.kv_scaled) return true;
    const size_t n = (size_t)m->it->slot.n;
    const largest l = {lq_stream_on(s), calloc(n, sizeof *l.of), (int)(n / 2)};
    m->vector = l.of;
    if (!l.of) return lq_fail(err, LQ_E_MEMORY, "no memory for the scales of %zu heads", n / 2);
    lq_stream_anew(s);
    if (!lq_stream_see(s, o->it->slot.input, false, look, (void *)(uintptr_t)&l, err)) return false;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(l.of[i]))
            return lq_fail(err, LQ_E_FORMAT, "%s: %s of layer %d, head %zu, is no number on the calibration text",
                           lq_ckpt_path(b->plan->in), i % 2 ? "V" : "K", b->layer, i / 2);
        l.of[i] = l.of[i] > 0 ? l.of[i] * ROOM / MOST : 1;
    }
    return true;
}
