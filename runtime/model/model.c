// model.c: opening a model: description, device, tokenizer, and every weight bound once, strictly, by the list of slots.
// Weights stay mapped where the device can read them as they lie; else they are repacked once. Refuses a checkpoint that lacks
// a weight, has one of another shape, or holds tensors that the forward would not use.
#include "runtime/model/model.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *lq_model_alloc(const lq_model *m, size_t bytes, lq_err *err) {
    void *p = NULL;
    return m->dev->ops.alloc(m->dev, bytes ? bytes : 1, &p, err) ? p : NULL;
}
static void dev_free(const lq_model *m, void *p) {
    if (p) m->dev->ops.free(m->dev, p);
}

// --- binding ---
static lq_bound *bound_of(lq_model *m, const lq_slot *s) { return s->layer < 0 ? &m->top[s->role] : &m->layer[s->layer][s->role]; }

static bool bind_vector(lq_model *m, const lq_slot *s, lq_bound *b, lq_err *err) {
    lq_weight w;
    if (!lq_ckpt_weight(m->ckpt, s->name, s->n, 0, &w, err)) return false;
    float *host = malloc((size_t)s->n * sizeof *host), *dev = lq_model_alloc(m, (size_t)s->n * sizeof *host, err);
    if (host && dev) {
        lq_dtypes[w.type.elem].to_f32(w.q, host, (size_t)s->n);
        m->dev->ops.put(m->dev, dev, host, (size_t)s->n * sizeof *host);
    }
    free(host);
    *(s->bias ? &b->bias : &b->v) = dev;
    if (!dev) return false;
    return host || lq_fail(err, LQ_E_MEMORY, "no memory for %s", s->name);
}

// Which type most of the decoder's weights have.
enum { TYPES = 16 };
typedef struct type_count { lq_wtype type[TYPES]; int64_t n[TYPES]; int types; } type_count;
static void count_type(type_count *c, const lq_wtype *t, int64_t n) {
    int i = 0;
    while (i < c->types && !lq_wtype_equal(&c->type[i], t)) i++;
    if (i == TYPES) return;
    if (i == c->types) c->type[c->types++] = *t;
    c->n[i] += n;
}
static lq_wtype main_type(const type_count *c) {
    int best = 0;
    for (int i = 1; i < c->types; i++)
        if (c->n[i] > c->n[best]) best = i;
    return c->type[best];
}

// A part that stays as it is, in memory of a device that cannot read the mapping.
static bool move_part(lq_model *m, const void **part, size_t bytes, lq_bound *b, lq_err *err) {
    if (!*part) return true;
    void *p = lq_model_alloc(m, bytes, err);
    if (!p) return false;
    m->dev->ops.put(m->dev, p, *part, bytes);
    *part = b->more[b->mores++] = p;
    return true;
}
static bool move_parts(lq_model *m, lq_bound *b, lq_err *err) {
    lq_weight *w = &b->w;
    const void *perm = w->perm, *smooth = w->smooth, *table = w->table, *outlier = w->outlier, *outlier_w = w->outlier_w;
    const size_t k = (size_t)w->k, o = (size_t)w->outliers;
    const bool done = move_part(m, &perm, k * 4, b, err) && move_part(m, &smooth, k * 4, b, err) && move_part(m, &table, ((size_t)1 << w->type.bits) * 4, b, err) &&
                      move_part(m, &outlier, o * 4, b, err) && move_part(m, &outlier_w, (size_t)w->n * o * 2, b, err);
    w->perm = perm, w->smooth = smooth, w->table = table, w->outlier = outlier, w->outlier_w = outlier_w;
    return done;
}
// Copies or repacks a weight's parts into memory of the device.
static bool move_weight(lq_model *m, lq_layout to, lq_bound *b, lq_err *err) {
    lq_weight_size size;
    size_t scale_at, zero_at, total;
    if (!lq_pack_sizes(to, &b->w.type, b->w.n, b->w.k, &size) || !lq_align_size(size.q, 4096, &scale_at) ||
        !lq_add_size(scale_at, size.scale, &zero_at) || !lq_align_size(zero_at, 64, &zero_at) || !lq_add_size(zero_at, size.zero, &total))
        return lq_fail(err, LQ_E_LIMIT, "weight of %lld x %lld is too large", (long long)b->w.n, (long long)b->w.k);
    char *p = lq_model_alloc(m, total, err);
    if (!p) return false;
    b->owned = p;
    const lq_weight_out out = {p, size.scale ? p + scale_at : NULL, size.zero ? p + zero_at : NULL};
    if (m->dev->host) lq_pack(&b->w, to, out, m->dev->pool);
    else {
        char *host = malloc(total);
        if (!host) return lq_fail(err, LQ_E_MEMORY, "no memory for %zu bytes", total);
        lq_pack(&b->w, to, (lq_weight_out){host, host + scale_at, host + zero_at}, NULL);
        m->dev->ops.put(m->dev, p, host, total);
        free(host);
    }
    b->w.layout = to;
    b->w.q = out.q;
    b->w.scale = out.scale;
    b->w.zero = out.zero;
    return true;
}
static bool bind_matrix(lq_model *m, const lq_slot *s, lq_bound *b, type_count *types, lq_err *err) {
    if (!lq_ckpt_weight(m->ckpt, s->name, s->n, s->k, &b->w, err)) return false;
    lq_layout want = m->dev->layout;
    if (!lq_pack_has(want, &b->w.type, s->n, s->k)) want = LQ_ANY;
    if (b->w.layout != want || !m->dev->host) {
        if (!move_weight(m, want, b, err) || (!m->dev->host && !move_parts(m, b, err))) return false;
    }
    if (!m->dev->ops.can(m->dev, &b->w.type, b->w.layout, err)) return lq_fail_in(err, "%s", s->name);
    lq_weight_size size;
    if (!lq_pack_sizes(b->w.layout, &b->w.type, s->n, s->k, &size)) return lq_fail(err, LQ_E_LIMIT, "%s is too large", s->name);
    if (s->role != LQ_R_EMBED || m->desc.tied) m->weight_bytes += size.q + size.scale + size.zero;
    if (s->layer >= 0) count_type(types, &b->w.type, s->n * s->k);
    return true;
}
static bool bind_slots(lq_model *m, int layer, type_count *types, lq_err *err) {
    int n;
    lq_slot *slots = lq_desc_slots(&m->desc, layer, &n);
    bool done = slots || lq_fail(err, LQ_E_MEMORY, "no memory for %d weights", n);
    for (int i = 0; done && i < n; i++) {
        const lq_slot *s = &slots[i];
        lq_bound *b = bound_of(m, s);
        done = s->k ? bind_matrix(m, s, b, types, err) : bind_vector(m, s, b, err);
        m->params += s->n * (s->k ? s->k : 1);
    }
    free(slots);
    return done;
}

static bool no_strangers(const lq_model *m, lq_err *err) {
    for (size_t i = 0; i < lq_ckpt_count(m->ckpt); i++) {
        const char *name = lq_ckpt_at(m->ckpt, i)->name;
        if (!lq_desc_knows(&m->desc, name)) return lq_fail(err, LQ_E_FORMAT, "tensor %s is no part of a %s with this config.json", name, m->desc.arch->name);
    }
    return true;
}

// --- opening ---
static const lq_dtype kv_types[] = {LQ_F32, LQ_F16, LQ_BF16};
enum { KV_TYPES = sizeof kv_types / sizeof *kv_types };

const char *lq_kv_name(size_t i) { return !i ? "auto" : i <= KV_TYPES ? lq_dtypes[kv_types[i - 1]].name : NULL; }

static bool choose_kv(lq_model *m, const char *name, bool exact, lq_err *err) {
    m->kv_type = exact ? LQ_F32 : LQ_F16;
    if (!name || !strcmp(name, "auto")) return true;
    m->kv_type = lq_dtype_of(name);
    if (exact && m->kv_type != LQ_F32) return lq_fail(err, LQ_E_USAGE, "exact arithmetic keeps the KV cache in f32, not in \"%s\"", name);
    for (int i = 0; i < KV_TYPES; i++)
        if (m->kv_type == kv_types[i]) return true;
    return lq_fail(err, LQ_E_USAGE, "KV cache type \"%s\" is not one of auto, f32, f16, bf16", name);
}
static bool resolve_ropes(lq_model *m, lq_err *err) {
    for (int i = 0; i < m->desc.ropes; i++) {
        float freq[LQ_ROPE_DIM / 2];
        const size_t bytes = (size_t)m->desc.rope[i].dim / 2 * sizeof *freq;
        lq_rope_resolve(&m->desc.rope[i], m->ctx, freq, &m->mscale[i]);
        m->inv_freq[i] = lq_model_alloc(m, bytes, err);
        if (!m->inv_freq[i]) return false;
        m->dev->ops.put(m->dev, m->inv_freq[i], freq, bytes);
    }
    return true;
}
static bool open_parts(lq_model *m, const char *path, const lq_model_opts *o, lq_err *err) {
    const lq_dev_opts dev = {.threads = o->threads, .isa = o->isa, .numerics = o->exact ? LQ_NUM_EXACT : LQ_NUM_DEFAULT};
    if (!lq_ckpt_open(path, &m->ckpt, err)) return false;
    path = lq_ckpt_path(m->ckpt);
    if (!lq_desc_read(m->ckpt, &m->desc, err)) return false;
    if (!lq_dev_open(o->device ? o->device : "cpu", &dev, &m->dev, err) || !choose_kv(m, o->kv, o->exact, err)) return false;
    if (o->ctx < 0 || o->ctx > LQ_CTX_MAX) return lq_fail(err, LQ_E_USAGE, "a context of %d, expected up to %d", o->ctx, LQ_CTX_MAX);
    m->ctx = o->ctx ? o->ctx : m->desc.ctx;
    m->layer = calloc((size_t)m->desc.layers, sizeof *m->layer);
    if (!m->layer) return lq_fail(err, LQ_E_MEMORY, "no memory for %d layers", m->desc.layers);
    type_count types = {.types = 0};
    if (!no_strangers(m, err)) return lq_fail_in(err, "%s", path);
    for (int l = -1; l < m->desc.layers; l++)
        if (!bind_slots(m, l, &types, err)) return lq_fail_in(err, "%s", path);
    m->main_type = main_type(&types);
    if (!resolve_ropes(m, err) || !m->dev->ops.sync(m->dev, err)) return false;
    if (!lq_tokenizer_open(m->ckpt, &m->tok, err)) return lq_fail_in(err, "%s", path);
    if (lq_tokenizer_vocab(m->tok) > m->desc.vocab)
        return lq_fail(err, LQ_E_FORMAT, "%s: the tokenizer has ids up to %d, the embedding only %d rows", path, lq_tokenizer_vocab(m->tok) - 1, m->desc.vocab);
    return true;
}
bool lq_model_open(const char *path, const lq_model_opts *o, lq_model **out, lq_err *err) {
    static const lq_model_opts none;
    *out = NULL;
    lq_model *m = calloc(1, sizeof *m);
    if (!m) return lq_fail(err, LQ_E_MEMORY, "no memory for a model");
    if (!open_parts(m, path, o ? o : &none, err)) {
        lq_model_close(m);
        return false;
    }
    *out = m;
    return true;
}

// --- a plain read of the weights ---
enum { READ_PART = 1 << 19 };
typedef struct read_job { const uint8_t *p; size_t n; _Atomic uint64_t sum; } read_job;

static void read_part(void *arg, int task, int worker) {
    read_job *j = arg;
    const size_t at = (size_t)task * READ_PART, n = j->n - at < READ_PART ? j->n - at : READ_PART;
    typedef uint64_t words __attribute__((vector_size(16), aligned(1), may_alias));
    const words *v = (const words *)(const void *)(j->p + at);
    words s0 = {0}, s1 = s0, s2 = s0, s3 = s0;
    (void)worker;
    for (size_t i = 0; i + 8 <= n / 16; i += 8) {
        __builtin_prefetch(&v[i + 256]);
        __builtin_prefetch(&v[i + 260]);
        s0 ^= v[i] ^ v[i + 4], s1 ^= v[i + 1] ^ v[i + 5], s2 ^= v[i + 2] ^ v[i + 6], s3 ^= v[i + 3] ^ v[i + 7];
    }
    s0 ^= s1 ^ s2 ^ s3;
    j->sum ^= s0[0] ^ s0[1]; // or the compiler would read nothing
}
static size_t read_bound(lq_model *m, const lq_bound *b) {
    lq_weight_size size;
    if (!b->w.q || !lq_pack_sizes(b->w.layout, &b->w.type, b->w.n, b->w.k, &size)) return 0;
    const struct { const void *p; size_t n; } parts[] = {{b->w.q, size.q}, {b->w.scale, size.scale}, {b->w.zero, size.zero}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        read_job j = {.p = parts[i].p, .n = parts[i].n};
        if (j.n) lq_pool_run(m->dev->pool, read_part, &j, (int)((j.n + READ_PART - 1) / READ_PART));
    }
    return size.q + size.scale + size.zero;
}
size_t lq_model_read(lq_model *m) {
    size_t n = 0;
    if (!m->dev->host || !m->dev->pool) return 0;
    for (int l = 0; l < m->desc.layers; l++)
        for (int r = 0; r < LQ_ROLES; r++) n += read_bound(m, &m->layer[l][r]);
    return n + read_bound(m, &m->top[m->desc.tied ? LQ_R_EMBED : LQ_R_HEAD]);
}

static void free_bound(const lq_model *m, lq_bound *b) {
    dev_free(m, b->v);
    dev_free(m, b->bias);
    dev_free(m, b->owned);
    for (int i = 0; i < b->mores; i++) dev_free(m, b->more[i]);
}
void lq_model_close(lq_model *m) {
    if (!m) return;
    for (int r = 0; r < LQ_ROLES; r++) free_bound(m, &m->top[r]);
    for (int l = 0; m->layer && l < m->desc.layers; l++)
        for (int r = 0; r < LQ_ROLES; r++) free_bound(m, &m->layer[l][r]);
    for (int i = 0; i < LQ_ROPES; i++) dev_free(m, m->inv_freq[i]);
    free(m->layer);
    lq_tokenizer_close(m->tok);
    lq_desc_free(&m->desc);
    if (m->dev) lq_dev_close(m->dev);
    if (m->ckpt) lq_ckpt_close(m->ckpt);
    free(m);
}

// --- the KV cache's bytes ---
static size_t layer_token_bytes(const lq_model *m, int l) {
    const lq_layer *d = &m->desc.layer[l];
    return d->kv_from == l ? (size_t)d->kv_heads * (size_t)(d->head_dim + d->v_dim) * lq_dtype_size(m->kv_type) : 0;
}
size_t lq_kv_token_bytes(const lq_model *m) {
    size_t n = 0;
    for (int l = 0; l < m->desc.layers; l++) n += layer_token_bytes(m, l);
    return n;
}
bool lq_kvpool_open(const lq_model *m, int page, const int *blocks, lq_kvpool *p, lq_err *err) {
    *p = (lq_kvpool){.page = page};
    p->layer = calloc((size_t)m->desc.layers, sizeof *p->layer);
    p->data = calloc((size_t)m->desc.layers, sizeof *p->data);
    if (!p->layer || !p->data) {
        lq_kvpool_close(m, p);
        return lq_fail(err, LQ_E_MEMORY, "no memory for the KV cache");
    }
    for (int l = 0; l < m->desc.layers; l++) {
        const lq_layer *d = &m->desc.layer[l];
        const size_t block = layer_token_bytes(m, l) * (size_t)page;
        size_t bytes;
        if (d->kv_from != l) {
            p->layer[l] = p->layer[d->kv_from];
            continue;
        }
        if (!lq_mul_size(block, (size_t)blocks[d->group], &bytes) || !(p->data[l] = lq_model_alloc(m, bytes, err))) {
            lq_kvpool_close(m, p);
            return lq_fail(err, LQ_E_MEMORY, "no memory for a KV cache of %d blocks of %d tokens", blocks[d->group], page);
        }
        p->layer[l] = (lq_cache){.type = m->kv_type, .data = p->data[l], .page = page, .kv_heads = d->kv_heads, .dk = d->head_dim, .dv = d->v_dim, .block_stride = block};
    }
    return true;
}
void lq_kvpool_close(const lq_model *m, lq_kvpool *p) {
    for (int l = 0; p->data && l < m->desc.layers; l++) dev_free(m, p->data[l]);
    free(p->data);
    free(p->layer);
    *p = (lq_kvpool){0};
}

void lq_model_describe(const lq_model *m, lq_model_info *out) {
    const lq_layer *l = &m->desc.layer[0];
    *out = (lq_model_info){.params = m->params, .weight_bytes = m->weight_bytes, .kv_token_bytes = lq_kv_token_bytes(m), .vocab = m->desc.vocab, .dim = m->desc.dim,
                           .layers = m->desc.layers, .heads = l->heads, .kv_heads = l->kv_heads, .ctx = m->ctx, .exact = m->dev->numerics == LQ_NUM_EXACT};
    snprintf(out->arch, sizeof out->arch, "%s", m->desc.arch->name);
    lq_wtype_name(&m->main_type, out->quant, sizeof out->quant);
    const int threads = m->dev->pool ? lq_pool_threads(m->dev->pool) : 0;
    if (threads) snprintf(out->device, sizeof out->device, "%s %.60s, %d thread%s", m->dev->name, m->dev->isa, threads, threads == 1 ? "" : "s");
    else snprintf(out->device, sizeof out->device, "%s %.60s", m->dev->name, m->dev->isa);
}
