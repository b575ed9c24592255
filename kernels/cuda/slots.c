// slots.c: the slots of a forward on a CUDA device: each gives its arguments to a kernel. What they point to on the
// host goes along by value, and those pointers become NULL. Owns the arrays of experts that it puts on the device.
#include "kernels/cuda/fast.h"
#include "kernels/cuda/plain/plain.h"
#include <stdlib.h>
#include <string.h>

static lq_gpu *gpu_of(const lq_dev *d) { return lq_cuda_of(d)->gpu; }
static size_t tasks(int rows, int64_t each) { return (size_t)rows * (size_t)each; }

static void embed(lq_dev *d, const lq_embed_args *a) {
    if (d->act != LQ_F32) {
        lq_fast_embed(d, a);
        return;
    }
    lq_plain_embed p = {*a, *a->w};
    p.a.w = NULL;
    lq_plain_embed_run(gpu_of(d), &p, tasks(a->y.rows, 1));
}

static void norm(lq_dev *d, const lq_norm_args *a) {
    if (d->act != LQ_F32 && lq_fast_norm(d, a)) return;
    lq_plain_norm p = {.a = *a, .more = a->delta != NULL, .acts = a->act != NULL};
    if (a->delta) p.delta = *a->delta;
    if (a->act) p.act = *a->act;
    p.a.delta = NULL;
    p.a.act = NULL;
    lq_plain_norm_run(gpu_of(d), &p, tasks(a->x.rows, 1));
}

static void quant(lq_dev *d, const lq_quant_args *a) {
    lq_plain_quant p = {*a, *a->act};
    p.a.act = NULL;
    if (a->act->type.elem == LQ_F32 && (!a->act->x.p || a->act->x.p == a->x.p)) return;
    if (d->act != LQ_F32 && lq_fast_quant(d, a)) return;
    lq_plain_quant_run(gpu_of(d), &p, tasks(a->x.rows, 1));
}

static void matmul(lq_dev *d, const lq_matmul_args *a) {
    for (int i = 0, taken = 0; i < a->count; i += taken > 0 ? taken : 1, taken = 0) {
        if (d->act != LQ_F32 && lq_fast_library(d, a->x, a->w[i], a->bias[i], &a->y[i])) continue;
        if (d->act != LQ_F32 && (taken = lq_fast_matmul(d, a, i)) > 0) continue;
        lq_plain_matmul p = {*a->x, *a->w[i], a->bias[i], a->y[i]};
        p.y.rows = a->x->x.rows;
        lq_plain_matmul_run(gpu_of(d), &p, tasks(p.y.rows, p.w.n));
    }
}

static void rope(lq_dev *d, const lq_rope_args *a) {
    if (d->act != LQ_F32 && lq_fast_rope(d, a)) return;
    lq_plain_rope p = {*a, *a->rows};
    p.a.rows = NULL;
    lq_plain_rope_run(gpu_of(d), &p, tasks(a->rows->n, a->dim / 2));
}

static void kv_write(lq_dev *d, const lq_kv_write_args *a) {
    if (d->act != LQ_F32 && lq_fast_kv_write(d, a)) return;
    lq_plain_kv p = {*a, *a->rows};
    if (a->rope) rope(d, a->rope);
    p.a.rows = NULL;
    p.a.rope = NULL;
    lq_plain_kv_write_run(gpu_of(d), &p, tasks(a->rows->n, a->cache.kv_heads));
}

// In order, one after another: a block may be copied to and then from.
static void kv_copy(lq_dev *d, const lq_kv_copy_args *a) {
    const lq_cache *c = &a->cache;
    const size_t scales = (size_t)c->kv_heads * 2 * (size_t)c->page;
    for (int i = 0; i < a->n; i++) {
        const size_t src = (size_t)a->src[i], dst = (size_t)a->dst[i];
        lq_gpu_copy(gpu_of(d), (char *)c->data + dst * c->block_stride, (char *)c->data + src * c->block_stride,
                    c->block_stride);
        if (c->type == LQ_I8) lq_gpu_copy(gpu_of(d), c->scale + dst * scales, c->scale + src * scales,
                                          scales * sizeof *c->scale);
    }
}

static void attn(lq_dev *d, const lq_attn_args *a) {
    if (d->act != LQ_F32 && lq_fast_attn(d, a)) return;
    lq_plain_attn p = {*a, *a->rows, a->y.type == LQ_F32 ? NULL : lq_cuda_of(d)->sums};
    p.a.rows = NULL;
    lq_plain_attn_run(gpu_of(d), &p, tasks(a->rows->n, a->heads));
}

static void glu(lq_dev *d, const lq_glu_args *a) {
    if (d->act != LQ_F32 && lq_fast_glu(d, a)) return;
    lq_plain_glu p = {.a = *a, .acts = a->act != NULL};
    if (a->act) p.act = *a->act;
    p.a.act = NULL;
    lq_plain_glu_run(gpu_of(d), &p, tasks(a->y.rows, 1));
}

static void scale(lq_dev *d, const lq_scale_args *a) {
    if (d->act != LQ_F32 && lq_fast_scale(d, a)) return;
    lq_plain_scale_run(gpu_of(d), a, tasks(a->x.rows, a->x.cols));
}

static void add(lq_dev *d, const lq_add_args *a) {
    if (d->act != LQ_F32 && lq_fast_add(d, a)) return;
    lq_plain_add_run(gpu_of(d), a, tasks(a->x.rows, a->x.cols));
}

static void route(lq_dev *d, const lq_route_args *a) {
    if (d->act != LQ_F32 && lq_fast_route(d, a)) return;
    lq_plain_route_run(gpu_of(d), a, tasks(a->logits.rows, 1));
    lq_plain_sort_run(gpu_of(d), a, 1);
}

// --- experts ---

static lq_cuda_stack *stack_find(lq_cuda *c, const lq_weight *w, const float *const *bias, int experts) {
    for (lq_cuda_stack *s = c->stacks; s; s = s->next)
        if (s->w == w && s->bias == bias && s->experts == experts) return s;
    return NULL;
}

static lq_cuda_stack *stack_open(lq_cuda *c, const lq_moe_args *a, int i, lq_err *err) {
    const size_t n = (size_t)a->experts, bytes = n * (sizeof(lq_weight) + sizeof(float *) + sizeof(lq_w4s_matrix));
    lq_cuda_stack *s = calloc(1, sizeof *s);
    if (s) *s = (lq_cuda_stack){.w = a->w[i], .bias = a->bias[i], .experts = a->experts,
                                .copy = calloc(1, bytes)};
    if (!s || !s->copy || !lq_gpu_alloc(c->gpu, bytes, &s->dev, err)) {
        if (!s || !s->copy) lq_fail(err, LQ_E_MEMORY, "device cuda: no memory for %zu experts", n);
        if (s) free(s->copy);
        free(s);
        return NULL;
    }
    s->next = c->stacks;
    c->stacks = s;
    return s;
}

// Arrays of a layer's matrices as they are now, on the device; while a graph is recorded they must be there already.
static lq_cuda_stack *stack_of(lq_dev *d, const lq_moe_args *a, int i) {
    lq_cuda *c = lq_cuda_of(d);
    const size_t n = (size_t)a->experts;
    lq_cuda_stack *s = stack_find(c, a->w[i], a->bias[i], a->experts);
    lq_err err;
    const size_t biases = a->bias[i] ? n * sizeof *a->bias[i] : 0;
    if (s && !memcmp(s->copy, a->w[i], n * sizeof *s->copy) &&
        (!biases || !memcmp(s->copy + n, a->bias[i], biases))) return s;
    if (c->recording) {
        lq_fail(&err, LQ_E_DEVICE, "device cuda: a graph is recorded of experts that were never used before");
        lq_cuda_break(d, &err);
        return NULL;
    }
    if (!s && !(s = stack_open(c, a, i, &err))) {
        lq_cuda_break(d, &err);
        return NULL;
    }
    memcpy(s->copy, a->w[i], n * sizeof *s->copy);
    if (biases) memcpy(s->copy + n, a->bias[i], biases);
    s->fast = lq_fast_stack(a->w[i], a->bias[i], a->experts, lq_stack_fast(s, s->copy));
    lq_gpu_put(c->gpu, s->dev, s->copy, n * (sizeof *s->copy + sizeof(float *) + sizeof(lq_w4s_matrix)));
    return s;
}

void lq_cuda_stacks_free(lq_dev *d) {
    lq_cuda *c = lq_cuda_of(d);
    for (lq_cuda_stack *s = c->stacks, *next; s; s = next) {
        next = s->next;
        lq_gpu_free(c->gpu, s->dev);
        free(s->copy);
        free(s);
    }
}

static void moe(lq_dev *d, const lq_moe_args *a) {
    const lq_cuda_stack *stacks[2] = {NULL, NULL};
    for (int i = 0; i < a->count && a->experts > 1; i++)
        if (!(stacks[i] = stack_of(d, a, i))) return;
    for (int i = 0, taken = 0; i < a->count; i += taken > 0 ? taken : 1, taken = 0) {
        const lq_cuda_stack *s = stacks[i];
        lq_plain_moe p = {.x = *a->x, .y = a->y[i], .order = a->order, .start = a->start, .slots = a->slots,
                          .top_k = a->top_k, .experts = a->experts, .x_by_slot = a->x_by_slot};
        if (d->act != LQ_F32 && (taken = lq_fast_moe(d, a, i, stacks)) > 0) continue;
        if (!s) {
            p.one = *a->w[i];
            p.one_bias = a->bias[i] ? *a->bias[i] : NULL;
        } else {
            p.w = s->dev;
            p.bias = a->bias[i] ? (const float *const *)(const void *)(p.w + a->experts) : NULL;
        }
        lq_plain_moe_run(gpu_of(d), &p, tasks(a->slots, a->w[i]->n));
    }
}

// ---

static void mix(lq_dev *d, const lq_mix_args *a) {
    if (d->act != LQ_F32 && lq_fast_mix(d, a)) return;
    lq_plain_mix_run(gpu_of(d), a, tasks(a->y.rows, a->y.cols));
}

static void conv(lq_dev *d, const lq_conv_args *a) {
    if (d->act != LQ_F32 && lq_fast_conv(d, a)) return;
    lq_plain_conv p = {*a, *a->rows};
    p.a.rows = NULL;
    lq_plain_conv_run(gpu_of(d), &p, tasks(a->rows->seqs + 1, a->x.cols));
}

static void scan(lq_dev *d, const lq_scan_args *a) {
    if (d->act != LQ_F32 && lq_fast_scan(d, a)) return;
    lq_plain_scan p = {*a, *a->rows};
    p.a.rows = NULL;
    lq_plain_scan_run(gpu_of(d), &p, tasks(a->rows->seqs + 1, (int64_t)a->heads * a->dv));
}

// One rank: a sum over ranks is what is there already, and the parts side by side are the one part.
static void reduce(lq_dev *d, const lq_reduce_args *a) { (void)d, (void)a; }
static void gather(lq_dev *d, const lq_gather_args *a) {
    if (a->part.p != a->whole.p) lq_plain_gather_run(gpu_of(d), a, tasks(a->part.rows, a->part.cols));
}

void lq_cuda_slots(lq_ops *o) {
    o->embed = embed;
    o->norm = norm;
    o->quant = quant;
    o->matmul = matmul;
    o->rope = rope;
    o->kv_write = kv_write;
    o->kv_copy = kv_copy;
    o->attn = attn;
    o->glu = glu;
    o->scale = scale;
    o->add = add;
    o->route = route;
    o->moe = moe;
    o->mix = mix;
    o->conv = conv;
    o->scan = scan;
    o->reduce = reduce;
    o->gather = gather;
}
