// model.c: opening a model: description, device, weights (bind.c), tokenizer; the bytes of its KV cache. Refuses a
// checkpoint that holds tensors that the forward would not use.
#include "runtime/model/part.h"
#include <math.h>
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

static bool no_strangers(const lq_model *m, lq_err *err) {
    lq_names *names;
    bool done = lq_names_open(&m->desc, m->ckpt, &names, err);
    if (!done) return false;
    for (size_t i = 0; done && i < lq_ckpt_count(m->ckpt); i++) {
        const char *name = lq_ckpt_at(m->ckpt, i)->name;
        if (lq_names_find(names, name) == LQ_STRANGE)
            done = lq_fail(err, LQ_E_FORMAT, "tensor %s is no part of a %s with this config.json", name,
                           m->desc.arch->name);
    }
    lq_names_close(names);
    return done;
}

// Which type most of the decoder's weights have.
static lq_wtype main_type(const lq_model *m) {
    enum { TYPES = 16 };
    lq_wtype type[TYPES] = {{0}};
    int64_t n[TYPES] = {0};
    int types = 0, best = 0;
    for (int l = 0; l < m->desc.layers; l++)
        for (int r = 0; r < LQ_ROLES; r++) {
            const lq_bound *b = &m->layer[l][r];
            int i = 0;
            if (!b->w.q) continue;
            while (i < types && !lq_wtype_equal(&type[i], &b->w.type)) i++;
            if (i == TYPES) continue;
            if (i == types) type[types++] = b->w.type;
            n[i] += b->w.n * b->w.k * (b->count ? b->count : 1);
        }
    for (int i = 1; i < types; i++)
        if (n[i] > n[best]) best = i;
    return type[best];
}

// --- opening ---

// Elements of the KV cache, by the names that people know.
static const struct { const char *name; lq_dtype type; } kv_types[] = {
    {"f32", LQ_F32}, {"f16", LQ_F16}, {"bf16", LQ_BF16}, {"int8", LQ_I8}, {"fp8", LQ_E4M3},
};
enum { KV_TYPES = sizeof kv_types / sizeof *kv_types };

static const char *const numerics[] = {[LQ_NUM_DEFAULT] = "default", [LQ_NUM_EXACT] = "exact", [LQ_NUM_FAST] = "fast"};

const char *lq_numerics_name(size_t i) { return i < sizeof numerics / sizeof *numerics ? numerics[i] : NULL; }
const char *lq_isa_name(size_t i) { return lq_cpu_isa(i); }
const char *lq_kv_name(size_t i) { return !i ? "auto" : i <= KV_TYPES ? kv_types[i - 1].name : NULL; }

// What the device computes with where that is bf16: a finer type would be rounded to it each time it is read.
static lq_dtype kv_default(const lq_model *m) {
    bool halves = m->dev->bf16;
    if (m->dev->numerics == LQ_NUM_EXACT) return LQ_F32;
    if (m->dev->act == LQ_BF16) return LQ_BF16;
    for (int l = 0; l < m->desc.layers; l++) {
        const lq_part *a = lq_layer_attn(&m->desc.layer[l]);
        halves &= !a || lq_attn_type(m->dev, LQ_BF16, a->head_dim) == LQ_BF16;
    }
    return halves ? LQ_BF16 : LQ_F16;
}

static bool choose_kv(lq_model *m, const char *name, lq_err *err) {
    m->kv_type = kv_default(m);
    if (!name || !strcmp(name, "auto")) return true;
    for (int i = 0; i < KV_TYPES; i++)
        if (!strcmp(name, kv_types[i].name)) {
            m->kv_type = kv_types[i].type;
            return true;
        }
    return lq_fail(err, LQ_E_USAGE, "KV cache type \"%s\" is not one of auto, f32, f16, bf16, int8, fp8", name);
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

static bool resolve_slopes(lq_model *m, lq_err *err) {
    const lq_part *p = NULL;
    for (int l = 0; l < m->desc.layers && !(p && p->alibi); l++) p = lq_layer_attn(&m->desc.layer[l]);
    if (!p || !p->alibi) return true;
    const size_t bytes = (size_t)p->heads * sizeof(float);
    float *slopes = malloc(bytes);
    if (!slopes) return lq_fail(err, LQ_E_MEMORY, "no memory for the slopes of %d heads", p->heads);
    lq_alibi_slopes(p->heads, p->alibi_coarse, slopes);
    m->slopes = lq_model_alloc(m, bytes, err);
    if (m->slopes) m->dev->ops.put(m->dev, m->slopes, slopes, bytes);
    free(slopes);
    return m->slopes;
}

// On the host, where a factor of a whole matrix is asked for: filled as layers are bound.
static bool numbers_open(lq_model *m, lq_err *err) {
    const size_t layers = (size_t)m->desc.layers;
    bool xielu = false;
    for (size_t l = 0; l < layers; l++)
        for (int i = 0; i < m->desc.layer[l].parts; i++) xielu |= m->desc.layer[l].part[i].act == LQ_XIELU;
    if (m->desc.layer_scaled) m->scale = calloc(layers, sizeof *m->scale);
    if (xielu) m->xielu = calloc(layers, sizeof *m->xielu);
    return ((!m->desc.layer_scaled || m->scale) && (!xielu || m->xielu)) ||
           lq_fail(err, LQ_E_MEMORY, "no memory for the factors of %d layers", m->desc.layers);
}

static bool open_device(lq_model *m, const lq_model_opts *o, lq_dev *on, lq_err *err) {
    const lq_dev_opts dev = {.threads = o->threads, .isa = o->isa, .rough = o->rough,
                             .numerics = o->exact ? LQ_NUM_EXACT : o->fast ? LQ_NUM_FAST : LQ_NUM_DEFAULT};
    if (o->exact && o->fast) return lq_fail(err, LQ_E_USAGE, "numerics that are exact and fast at once");
    if (on) {
        m->dev = lq_dev_use(on);
        return true;
    }
    if (!o->beside) return lq_dev_open(o->device ? o->device : "cpu", &dev, &m->dev, err);
    if (dev.numerics != o->beside->dev->numerics)
        return lq_fail(err, LQ_E_USAGE, "numerics %s beside a model with numerics %s: they share a device",
                       numerics[dev.numerics], numerics[o->beside->dev->numerics]);
    m->dev = lq_dev_use(o->beside->dev);
    return true;
}

// What the tokenizer calls the end of a text, beside what the configs do: that of a base model knows nothing of turns.
static void add_ends(lq_model *m) {
    enum { MOST = sizeof m->desc.eos / sizeof *m->desc.eos };
    int32_t ids[MOST];
    const size_t n = lq_tokenizer_ends(m->tok, ids, MOST);
    for (size_t i = 0; i < n && m->desc.eoses < MOST; i++)
        if (!lq_token_is_end(m, ids[i])) m->desc.eos[m->desc.eoses++] = ids[i];
}

static void help(void *pool, lq_share *fn, void *arg, int tasks) { lq_pool_run(pool, fn, arg, tasks); }

static bool bind_all(lq_model *m, int layers, lq_err *err) {
    bool done = true;
    lq_ckpt_runner(m->ckpt, help, m->dev->pool, lq_pool_threads(m->dev->pool));
    for (int l = -1; done && l < layers; l++) done = lq_bind_layer(m, l, err);
    lq_ckpt_runner(m->ckpt, NULL, NULL, 0);
    return done;
}

// lean: no layer is bound, and nobody asks what else the checkpoint holds.
static bool open_parts(lq_model *m, const char *path, const lq_model_opts *o, bool lean, lq_dev *on, lq_err *err) {
    if (!lq_ckpt_open(path, &m->ckpt, err)) return false;
    path = lq_ckpt_path(m->ckpt);
    if (!lq_desc_read(m->ckpt, &m->desc, err)) return false;
    if (!open_device(m, o, on, err) || !choose_kv(m, o->kv, err)) return false;
    if (o->ctx < 0 || o->ctx > LQ_CTX_MAX)
        return lq_fail(err, LQ_E_USAGE, "a context of %d, expected up to %d", o->ctx, LQ_CTX_MAX);
    m->ctx = o->ctx ? o->ctx : m->desc.ctx;
    if (m->desc.positions && m->ctx > m->desc.positions)
        return lq_fail(err, LQ_E_USAGE, "a context of %d, but %s has learned %d positions", m->ctx, path,
                       m->desc.positions);
    if (m->desc.ctx_most && m->ctx > m->desc.ctx_most)
        return lq_fail(err, LQ_E_USAGE, "a context of %d, but %s is computed up to %d alone", m->ctx, path,
                       m->desc.ctx_most);
    m->layer = calloc((size_t)m->desc.layers, sizeof *m->layer);
    if (!m->layer) return lq_fail(err, LQ_E_MEMORY, "no memory for %d layers", m->desc.layers);
    if (!lean && !no_strangers(m, err)) return lq_fail_in(err, "%s", path);
    if (!numbers_open(m, err)) return false;
    m->tight = m->dev->host && (o->mapped || lq_ckpt_file_bytes(m->ckpt) > m->dev->ops.room(m->dev) / 4 * 3);
    if (!bind_all(m, lean ? 0 : m->desc.layers, err)) return lq_fail_in(err, "%s", path);
    m->main_type = main_type(m);
    if (!resolve_ropes(m, err) || !resolve_slopes(m, err) || !m->dev->ops.sync(m->dev, err)) return false;
    if (!lq_tokenizer_open(m->ckpt, &m->tok, err)) return lq_fail_in(err, "%s", path);
    if (lq_tokenizer_vocab(m->tok) > m->desc.vocab)
        return lq_fail(err, LQ_E_FORMAT, "%s: the tokenizer has ids up to %d, the embedding only %d rows", path,
                       lq_tokenizer_vocab(m->tok) - 1, m->desc.vocab);
    add_ends(m);
    return true;
}

static bool open_model(const char *path, const lq_model_opts *o, bool lean, lq_dev *on, lq_model **out, lq_err *err) {
    static const lq_model_opts none;
    *out = NULL;
    lq_model *m = calloc(1, sizeof *m);
    if (!m) return lq_fail(err, LQ_E_MEMORY, "no memory for a model");
    if (!open_parts(m, path, o ? o : &none, lean, on, err)) {
        lq_model_close(m);
        return false;
    }
    *out = m;
    return true;
}

bool lq_model_open(const char *path, const lq_model_opts *o, lq_model **out, lq_err *err) {
    return open_model(path, o, false, NULL, out, err);
}

bool lq_model_open_lean(const char *path, const lq_model_opts *o, lq_dev *on, lq_model **out, lq_err *err) {
    return open_model(path, o, true, on, out, err);
}

bool lq_model_open_on(const char *path, const lq_model_opts *o, lq_dev *on, lq_model **out, lq_err *err) {
    return open_model(path, o, false, on, out, err);
}

void lq_model_close(lq_model *m) {
    if (!m) return;
    for (int r = 0; r < LQ_ROLES; r++) lq_unbind(m, &m->top[r]);
    for (int l = 0; m->layer && l < m->desc.layers; l++) lq_unbind_layer(m, l);
    for (int i = 0; i < LQ_ROPES; i++) dev_free(m, m->inv_freq[i]);
    dev_free(m, m->slopes);
    dev_free(m, m->head_by);
    free(m->scale);
    free(m->xielu);
    free(m->layer);
    lq_tokenizer_close(m->tok);
    lq_desc_free(&m->desc);
    if (m->dev) lq_dev_close(m->dev);
    if (m->ckpt) lq_ckpt_close(m->ckpt);
    free(m);
}

// --- the KV cache's bytes ---

static size_t layer_token_bytes(const lq_model *m, int l) {
    const lq_part *p = lq_layer_attn(&m->desc.layer[l]);
    if (!p || m->desc.layer[l].kv_from != l) return 0;
    const size_t width = (size_t)p->head_dim + (p->kind == LQ_P_MLA ? 0 : (size_t)p->v_dim);
    return (size_t)p->kv_heads * width * lq_dtype_size(m->kv_type);
}

// Of scales that are written with the codes.
static size_t layer_token_scales(const lq_model *m, int l) {
    const lq_part *p = lq_layer_attn(&m->desc.layer[l]);
    const bool own = p && m->desc.layer[l].kv_from == l && m->kv_type == LQ_I8;
    return own ? (size_t)p->kv_heads * 2 * sizeof(float) : 0;
}

size_t lq_kv_token_bytes(const lq_model *m, int group) {
    size_t n = 0;
    for (int l = 0; l < m->desc.layers; l++)
        if (group < 0 || m->desc.layer[l].group == group) n += layer_token_bytes(m, l) + layer_token_scales(m, l);
    return n;
}

bool lq_kvpool_open(const lq_model *m, int page, const int *blocks, lq_kvpool *p, lq_err *err) {
    *p = (lq_kvpool){0};
    p->layer = calloc((size_t)m->desc.layers, sizeof *p->layer);
    p->data = calloc((size_t)m->desc.layers, sizeof *p->data);
    p->scale = calloc((size_t)m->desc.layers, sizeof *p->scale);
    if (!p->layer || !p->data || !p->scale) {
        lq_kvpool_close(m, p);
        return lq_fail(err, LQ_E_MEMORY, "no memory for the KV cache");
    }
    for (int l = 0; l < m->desc.layers; l++) {
        const lq_layer *d = &m->desc.layer[l];
        const lq_part *a = lq_layer_attn(d);
        const size_t block = layer_token_bytes(m, l) * (size_t)page, scale = layer_token_scales(m, l) * (size_t)page;
        size_t bytes, scales;
        if (!a) continue;
        if (d->kv_from != l) {
            p->layer[l] = p->layer[d->kv_from];
            continue;
        }
        if (!lq_mul_size(block, (size_t)blocks[d->group], &bytes) || !(p->data[l] = lq_model_alloc(m, bytes, err)) ||
            !lq_mul_size(scale, (size_t)blocks[d->group], &scales) ||
            (scales && !(p->scale[l] = lq_model_alloc(m, scales, err)))) {
            lq_kvpool_close(m, p);
            return lq_fail(err, LQ_E_MEMORY, "no memory for a KV cache of %d blocks of %d tokens", blocks[d->group],
                           page);
        }
        float *const own = m->kv_type == LQ_E4M3 ? m->layer[l][LQ_R_KV_SCALE].v : p->scale[l];
        p->layer[l] = (lq_cache){.type = m->kv_type, .data = p->data[l], .scale = own, .page = page,
                                 .kv_heads = a->kv_heads, .dk = a->head_dim, .dv = a->v_dim, .block_stride = block,
                                 .v_in_k = a->kind == LQ_P_MLA};
    }
    return true;
}

void lq_kvpool_close(const lq_model *m, lq_kvpool *p) {
    for (int l = 0; p->data && l < m->desc.layers; l++) dev_free(m, p->data[l]);
    for (int l = 0; p->scale && l < m->desc.layers; l++) dev_free(m, p->scale[l]);
    free(p->data);
    free(p->scale);
    free(p->layer);
    *p = (lq_kvpool){0};
}

void lq_model_describe(const lq_model *m, lq_model_info *out) {
    const lq_part *a = NULL;
    for (int l = 0; !a && l < m->desc.layers; l++) a = lq_layer_attn(&m->desc.layer[l]);
    *out = (lq_model_info){.params = m->params, .weight_bytes = m->weight_bytes,
                           .file_bytes = lq_ckpt_file_bytes(m->ckpt),
                           .kv_token_bytes = lq_kv_token_bytes(m, -1), .vocab = m->desc.vocab, .dim = m->desc.dim,
                           .layers = m->desc.layers, .heads = a ? a->heads : 0, .kv_heads = a ? a->kv_heads : 0,
                           .ctx = m->ctx, .trained = m->desc.ctx, .embedding = lq_desc_wide(&m->desc),
                           .exact = m->dev->numerics == LQ_NUM_EXACT,
                           .fast = m->dev->numerics == LQ_NUM_FAST};
    snprintf(out->arch, sizeof out->arch, "%s", m->desc.arch->name);
    lq_wtype_name(&m->main_type, out->quant, sizeof out->quant);
    const int threads = out->threads = m->dev->host ? lq_pool_threads(m->dev->pool) : 0;
    if (!threads) snprintf(out->device, sizeof out->device, "%s %.60s", m->dev->name, m->dev->isa);
    else snprintf(out->device, sizeof out->device, "%s %.60s, %d thread%s", m->dev->name, m->dev->isa, threads,
                  threads == 1 ? "" : "s");
}
