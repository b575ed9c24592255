// leave.c: a layer that is left at one of its inputs and gone on with later: what is kept in between, and how a run
// gets back there. It goes through the layer's parts as ever, with ops that do nothing; where the input is met again,
// what was kept is put where the parts have it by then, and the device's ops take over. Owns nothing.
#include "runtime/model/part.h"

#define IDLE(slot) static void idle_##slot(lq_dev *d, const lq_##slot##_args *a) { (void)d, (void)a; }
IDLE(embed) IDLE(norm) IDLE(quant) IDLE(matmul) IDLE(rope) IDLE(kv_write) IDLE(attn) IDLE(glu) IDLE(scale) IDLE(add)
IDLE(route) IDLE(moe) IDLE(mix) IDLE(conv) IDLE(scan) IDLE(reduce)

static const lq_ops idle = {
    .embed = idle_embed, .norm = idle_norm, .quant = idle_quant, .matmul = idle_matmul, .rope = idle_rope,
    .kv_write = idle_kv_write, .attn = idle_attn, .glu = idle_glu, .scale = idle_scale, .add = idle_add,
    .route = idle_route, .moe = idle_moe, .mix = idle_mix, .conv = idle_conv, .scan = idle_scan,
    .reduce = idle_reduce,
};

void lq_run_idle(lq_run *c) { c->ops = &idle; }

void lq_hold(lq_run *c, lq_mat m) { c->held[c->holds++] = m; }

// What is read from the place on where a run stands: all of it is of the buffers' and lies there in every run.
enum { LIVE = 4 + LQ_HOLDS };
static int live(const lq_run *c, lq_mat *out /* [LIVE] */) {
    const lq_buffers *b = c->b;
    const int rows = c->batch.rows.n, dim = c->m->desc.dim;
    int n = 0;
    bool inside = c->x.p == b->h.p; // what is read is part of something that is kept
    for (int i = 0; i < c->holds; i++) inside |= c->x.p == c->held[i].p;
    const lq_mat own[] = {b->h, b->delta, b->x};
    const bool wanted[] = {true, c->said, c->again && c->x.p != b->x.p};
    for (int i = 0; i < 3; i++) {
        if (!wanted[i]) continue;
        out[n] = own[i];
        out[n].rows = rows, out[n].cols = dim, out[n++].stride = (size_t)dim;
    }
    if (!inside) out[n++] = c->x;
    for (int i = 0; i < c->holds; i++) out[n++] = c->held[i];
    return n;
}

static size_t bytes_of(const lq_mat *m) { return (size_t)m->rows * (size_t)m->cols * lq_dtype_size(m->type); }

void lq_forward_keep(const lq_run *c, void *to, bool there) {
    lq_dev *d = c->m->dev;
    lq_mat m[LIVE];
    char *at = to;
    for (int i = 0, n = live(c, m); i < n; i++) {
        (there ? d->ops.copy : d->ops.get)(d, at, m[i].p, bytes_of(&m[i]));
        at += bytes_of(&m[i]);
    }
}

void lq_run_wake(lq_run *c) {
    lq_dev *d = c->m->dev;
    lq_mat m[LIVE];
    const char *at = c->left;
    for (int i = 0, n = live(c, m); i < n; i++) {
        (c->there ? d->ops.copy : d->ops.put)(d, m[i].p, at, bytes_of(&m[i]));
        at += bytes_of(&m[i]);
    }
    c->ops = &d->ops;
    c->left = NULL;
    c->k = c->v = NULL; // are in the cache by now
}

size_t lq_forward_kept(const lq_desc *d, int layer, int rows) {
    const lq_layer *l = &d->layer[layer];
    const size_t residual = (size_t)rows * (size_t)d->dim * sizeof(float);
    size_t most = 0;
    for (int i = 0; i < l->parts; i++) {
        const lq_part *p = &l->part[i];
        const size_t held = lq_parts[p->kind].held(p, rows), own = held > residual ? held : residual;
        const bool again = i + 1 < l->parts && l->part[i + 1].beside;
        const size_t all = own + residual * (1 + (size_t)p->beside + (size_t)again);
        most = all > most ? all : most;
    }
    return most;
}
