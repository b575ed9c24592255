// swap.c: blocks of the KV cache to the host and back, so that an engine may put a sequence aside and go on with it
// later, in other blocks. Owns nothing: the caller has the memory and knows which blocks are whose. What stands there
// is bound to the model, the type and the page of its cache.
#include "runtime/model/part.h"

// Layers that have K and V of their own in this group.
static bool has_blocks(const lq_model *m, int layer, int group) {
    const lq_layer *l = &m->desc.layer[layer];
    return l->group == group && l->kv_from == layer && lq_layer_attn(l);
}

// Scales that are written with the codes; those of E4M3 belong to the model.
static size_t scale_bytes(const lq_cache *c) {
    return c->type == LQ_I8 ? (size_t)c->kv_heads * 2 * (size_t)c->page * sizeof *c->scale : 0;
}

size_t lq_kv_block_bytes(const lq_model *m, const lq_kvpool *kv, int group) {
    size_t bytes = 0;
    for (int l = 0; l < m->desc.layers; l++)
        if (has_blocks(m, l, group)) bytes += kv->layer[l].block_stride + scale_bytes(&kv->layer[l]);
    return bytes;
}

// Both ways: block after block, in each layer after layer, its pages and then its scales.
static void move(const lq_model *m, const lq_kvpool *kv, int group, int n, const int32_t *block, char *here, bool out) {
    lq_dev *d = m->dev;
    for (int i = 0; i < n; i++)
        for (int l = 0; l < m->desc.layers; l++) {
            const lq_cache *c = &kv->layer[l];
            if (!has_blocks(m, l, group)) continue;
            char *const part[] = {c->data, (char *)c->scale};
            const size_t bytes[] = {c->block_stride, scale_bytes(c)};
            for (int p = 0; p < 2 && bytes[p]; here += bytes[p++]) {
                char *there = part[p] + (size_t)block[i] * bytes[p];
                if (out) d->ops.get(d, here, there, bytes[p]);
                else d->ops.put(d, there, here, bytes[p]);
            }
        }
}

void lq_kv_out(const lq_model *m, const lq_kvpool *kv, int group, int n, const int32_t *block, void *to) {
    move(m, kv, group, n, block, to, true);
}

void lq_kv_in(const lq_model *m, const lq_kvpool *kv, int group, int n, const int32_t *block, const void *from) {
    move(m, kv, group, n, block, (char *)(uintptr_t)from, false);
}
