// bind.c: the weights of a layer, bound once, strictly, by the list of slots: found where this checkpoint has them,
// left mapped where the device can read them as they lie, else repacked or copied once. Refuses a weight that is
// missing or has another shape, and experts of one stack that want different activations.
#include "runtime/model/part.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *own(const lq_model *m, lq_bound *b, size_t bytes, lq_err *err) {
    void *p = NULL;
    if (!lq_grow((void **)&b->memory, b->memories, &b->memory_cap, sizeof *b->memory))
        lq_fail(err, LQ_E_MEMORY, "no memory for a list");
    else p = lq_model_alloc(m, bytes, err);
    if (p) b->memory[b->memories++] = p;
    return p;
}

void lq_unbind(const lq_model *m, lq_bound *b) {
    for (size_t i = 0; i < b->memories; i++) m->dev->ops.free(m->dev, b->memory[i]);
    free(b->memory);
    free(b->stack);
    free(b->biases);
    *b = (lq_bound){0};
}

// Matrix `at` of a slot: under lq's own name, or where other people's files have it.
static bool find(const lq_model *m, const lq_slot *s, int at, lq_weight *w, lq_err *err) {
    lq_pick pick = {.stack = s->count, .at = at};
    if (lq_ckpt_has_weight(m->ckpt, s->name)) memcpy(pick.name, s->name, sizeof pick.name);
    else if (!lq_slot_pick(s, at, &pick)) return lq_fail(err, LQ_E_LIMIT, "%s: its source's name is too long", s->name);
    if (!lq_ckpt_pick(m->ckpt, &pick, s->n, s->k, w, NULL, err)) return false;
    if (w->type.dq) w->scale_code = NULL, w->scale2 = w->scale_map = w->scale_offset = NULL; // `scale` has them in f32
    return true;
}

// Vector `at` of a slot to where it belongs.
static bool put_vector(lq_model *m, const lq_slot *s, int at, float *to, lq_err *err) {
    lq_weight w;
    const size_t n = (size_t)(s->k ? s->n * s->k : s->n), bytes = n * sizeof(float);
    if (!find(m, s, at, &w, err)) return false;
    if (w.type.kind != LQ_W_PLAIN) {
        lq_ckpt_done(m->ckpt, &w);
        return lq_fail(err, LQ_E_FORMAT, "%s: is coded, expected plain numbers", s->name);
    }
    float *host = malloc(bytes);
    if (host) {
        lq_dtypes[w.type.elem].to_f32(w.q, host, n);
        m->dev->ops.put(m->dev, to, host, bytes);
    }
    lq_ckpt_done(m->ckpt, &w);
    free(host);
    return host || lq_fail(err, LQ_E_MEMORY, "no memory for %s", s->name);
}

static bool bind_vector(lq_model *m, const lq_slot *s, lq_bound *b, lq_err *err) {
    const size_t n = (size_t)(s->k ? s->n * s->k : s->n), count = s->count ? (size_t)s->count : 1;
    float **vector = s->bias ? &b->bias : &b->v;
    if (!s->at) *vector = own(m, b, count * (s->of ? (size_t)s->of : n) * sizeof(float), err);
    if (!*vector) return false;
    if (s->count && !(b->biases = calloc(count, sizeof *b->biases)))
        return lq_fail(err, LQ_E_MEMORY, "no memory for %s", s->name);
    for (size_t i = 0; i < count; i++) {
        if (!put_vector(m, s, (int)i, *vector + s->at + i * n, err)) return false;
        if (s->count) b->biases[i] = *vector + i * n;
    }
    return true;
}

// What was moved to a device of its own memory while a layer is bound, and until it is let go: equal parts are there
// once, so that weights that read x in the same form have the same pointers.
struct lq_moved { void *copy, *there; size_t bytes; };

static void forget_moved(lq_model *m) {
    for (size_t i = 0; i < m->moves; i++) free(m->moved[i].copy);
    free(m->moved);
    m->moved = NULL;
    m->moves = m->moved_cap = 0;
}

static bool remember_moved(lq_model *m, const void *part, size_t bytes, void *there, lq_err *err) {
    if (m->dev->host) return true;
    void *copy = malloc(bytes);
    if (!copy || !lq_grow((void **)&m->moved, m->moves, &m->moved_cap, sizeof *m->moved)) {
        free(copy);
        return lq_fail(err, LQ_E_MEMORY, "no memory for a list");
    }
    m->moved[m->moves++] = (struct lq_moved){memcpy(copy, part, bytes), there, bytes};
    return true;
}

// A part that is read as it is, in memory of a device that cannot read the mapping, or ours where the mapping goes.
static bool move_part(lq_model *m, const void **part, size_t bytes, bool shared, lq_bound *b, lq_err *err) {
    if (!*part || !bytes) return true;
    for (size_t i = 0; shared && i < m->moves; i++)
        if (m->moved[i].bytes == bytes && !memcmp(m->moved[i].copy, *part, bytes)) {
            *part = m->moved[i].there;
            return true;
        }
    void *p = own(m, b, bytes, err);
    if (!p || (shared && !remember_moved(m, *part, bytes, p, err))) return false;
    m->dev->ops.put(m->dev, p, *part, bytes);
    *part = p;
    return true;
}

static bool move_parts(lq_model *m, lq_weight *w, lq_bound *b, lq_err *err) {
    const void *p[] = {w->perm, w->smooth, w->table, w->outlier, w->outlier_w, w->act_scale, w->act_zero, w->scale2};
    const size_t k = (size_t)w->k, o = (size_t)w->outliers;
    const size_t bytes[] = {k * 4, k * 4, ((size_t)1 << w->type.bits) * 4, o * 4, (size_t)w->n * o * 2, 4, 4, 4};
    for (size_t i = 0; i < sizeof p / sizeof *p; i++)
        if (!move_part(m, &p[i], bytes[i], p[i] != w->outlier_w, b, err)) return false;
    w->perm = p[0], w->smooth = p[1], w->table = p[2], w->outlier = p[3], w->outlier_w = p[4], w->act_scale = p[5],
        w->act_zero = p[6], w->scale2 = p[7];
    return true;
}

// Copies or repacks a weight's codes, scales and zeros into memory of the device.
static bool move_weight(lq_model *m, lq_layout to, lq_weight *w, lq_bound *b, lq_err *err) {
    lq_weight_size size;
    size_t scale_at, zero_at, total;
    if (!lq_pack_sizes(to, &w->type, w->n, w->k, &size) || !lq_align_size(size.q, 4096, &scale_at) ||
        !lq_add_size(scale_at, size.scale, &zero_at) || !lq_align_size(zero_at, 64, &zero_at) ||
        !lq_add_size(zero_at, size.zero, &total))
        return lq_fail(err, LQ_E_LIMIT, "weight of %lld x %lld is too large", (long long)w->n, (long long)w->k);
    char *p = own(m, b, total, err);
    if (!p) return false;
    const lq_weight_out out = {p, size.scale ? p + scale_at : NULL, size.zero ? p + zero_at : NULL};
    if (m->dev->host) lq_pack(w, to, out, m->dev->pool);
    else if (w->layout == to) { // as the file has it
        m->dev->ops.put(m->dev, out.q, w->q, size.q);
        m->dev->ops.put(m->dev, out.scale, w->scale, size.scale);
        m->dev->ops.put(m->dev, out.zero, w->zero, size.zero);
    } else {
        char *host = malloc(total);
        if (!host) return lq_fail(err, LQ_E_MEMORY, "no memory for %zu bytes", total);
        lq_pack(w, to, (lq_weight_out){host, host + scale_at, host + zero_at}, m->dev->pool);
        m->dev->ops.put(m->dev, p, host, total);
        free(host);
    }
    w->layout = to;
    w->q = out.q;
    w->scale = out.scale;
    w->zero = out.zero;
    return true;
}

// What an activation's zero point adds to a row of results is a multiple of the row's sum of codes.
static bool sum_codes(lq_model *m, lq_weight *w, lq_bound *b, lq_err *err) {
    const size_t bytes = (size_t)w->n * sizeof(int32_t);
    int32_t *host = malloc(bytes), *dev = own(m, b, bytes, err);
    if (host && dev) {
        lq_code_sums(w, host);
        m->dev->ops.put(m->dev, dev, host, bytes);
    }
    free(host);
    w->code_sum = dev;
    if (!dev) return false;
    return host || lq_fail(err, LQ_E_MEMORY, "no memory for %zu bytes", bytes);
}

static bool bind_in(lq_model *m, lq_layout to, lq_bound *b, lq_weight *w, lq_err *err) {
    return (!w->type.act.asym || sum_codes(m, w, b, err)) && move_weight(m, to, w, b, err) && move_parts(m, w, b, err);
}

bool lq_bind_weight(lq_model *m, lq_bound *b, lq_weight *w, lq_err *err) {
    return bind_in(m, lq_dev_layout(m->dev, &w->type, w->n, w->k), b, w, err);
}

// A weight of the checkpoint as the device reads it.
static bool settle(lq_model *m, const lq_slot *s, lq_weight *w, lq_bound *b, lq_err *err) {
    const lq_weight mapped = *w;
    const bool looked_up = s->role == LQ_R_POSITION || s->role == LQ_R_TOKENS ||
                           (s->role == LQ_R_EMBED && !m->desc.tied);
    const bool numbers = m->dev->host && (w->type.kind == LQ_W_PLAIN || w->type.kind == LQ_W_FLOAT);
    const bool stays = numbers && (looked_up || m->tight); // rows that are read where they lie
    const lq_layout want = stays ? LQ_ANY : lq_dev_layout(m->dev, &w->type, w->n, w->k);
    lq_weight_size size;
    if (!lq_pack_sizes(want, &w->type, s->n, s->k, &size)) return lq_fail(err, LQ_E_LIMIT, "%s is too large", s->name);
    if (w->layout != want || !m->dev->host) {
        if (!bind_in(m, want, b, w, err)) return false;
        lq_ckpt_done(m->ckpt, &mapped);
    } else if (w->type.act.asym && !sum_codes(m, w, b, err)) return false;
    if (!looked_up) m->weight_bytes += size.q + size.scale + size.zero;
    return m->dev->ops.can(m->dev, &w->type, w->layout, err) || lq_fail_in(err, "%s", s->name);
}

// Weights of one input that bring equal side parts share them from here on: then x takes its form once for all of them.
static void share(const void **b, const void *a, size_t bytes) {
    if (*b && a && *b != a && !memcmp(*b, a, bytes)) *b = a;
}

static void share_parts(const lq_model *m, const lq_weight *a, lq_weight *b) {
    if (!m->dev->host || a->k != b->k) return;
    const size_t k = (size_t)a->k * sizeof(int32_t);
    const void *p[] = {b->perm, b->smooth, b->outlier, b->act_scale, b->act_zero};
    share(&p[0], a->perm, k);
    share(&p[1], a->smooth, k);
    if (a->outliers == b->outliers) share(&p[2], a->outlier, (size_t)a->outliers * sizeof(int32_t));
    share(&p[3], a->act_scale, sizeof(float));
    share(&p[4], a->act_zero, sizeof(int32_t));
    b->perm = p[0], b->smooth = p[1], b->outlier = p[2], b->act_scale = p[3], b->act_zero = p[4];
}

static void share_inputs(const lq_model *m, lq_bound *layer) {
    for (int r = 0; r < LQ_ROLES; r++)
        for (int first = 0; first < r; first++) {
            if (!layer[r].w.q || !layer[first].w.q || layer[first].input != layer[r].input) continue;
            share_parts(m, &layer[first].w, &layer[r].w);
            for (int i = 0; i < layer[r].count; i++) share_parts(m, &layer[first].w, &layer[r].stack[i]);
        }
}

static bool bind_stack(lq_model *m, const lq_slot *s, lq_bound *b, lq_err *err) {
    b->count = s->count;
    b->stack = calloc((size_t)s->count, sizeof *b->stack);
    if (!b->stack) return lq_fail(err, LQ_E_MEMORY, "no memory for %d experts", s->count);
    for (int i = 0; i < s->count; i++) {
        if (!find(m, s, i, &b->stack[i], err) || !settle(m, s, &b->stack[i], b, err)) return false;
        share_parts(m, &b->stack[0], &b->stack[i]);
        lq_weight like = b->stack[i];
        b->each |= like.perm != b->stack[0].perm;
        if (like.perm && b->stack[0].perm) like.perm = b->stack[0].perm;
        const lq_wtype *t = &b->stack[0].type, *u = &like.type; // a product has one kernel for all
        if (t->kind != u->kind || t->elem != u->elem || t->bits != u->bits || t->book != u->book ||
            b->stack[0].layout != like.layout)
            return lq_fail(err, LQ_E_UNSUPPORTED, "%s: expert %d is of another type than the first", s->name, i);
        if (!lq_act_same(m->dev, &b->stack[0], &like))
            return lq_fail(err, LQ_E_UNSUPPORTED, "%s: expert %d wants other activations than the first", s->name, i);
    }
    b->w = b->stack[0];
    return true;
}

// One over the length of each row of the head, as f64 has it.
static bool bind_lengths(lq_model *m, const lq_weight *w, lq_err *err) {
    const size_t bytes = (size_t)w->n * sizeof(float);
    float *by = malloc(bytes), *row = malloc((size_t)w->k * sizeof *row);
    m->head_by = by && row ? lq_model_alloc(m, bytes, err) : NULL;
    for (int64_t i = 0; m->head_by && i < w->n; i++) {
        double sum = 0;
        lq_weight_row(w, i, row);
        for (int64_t j = 0; j < w->k; j++) {
            const double v = w->smooth ? (double)row[j] * (double)w->smooth[j] : (double)row[j];
            sum += v * v;
        }
        by[i] = (float)(1 / fmax(sqrt(sum), 1e-12));
    }
    if (m->head_by) m->dev->ops.put(m->dev, m->head_by, by, bytes);
    const bool had = by && row;
    free(by);
    free(row);
    if (!had) return lq_fail(err, LQ_E_MEMORY, "no memory for the lengths of %lld rows", (long long)w->n);
    return m->head_by;
}

static bool bind_matrix(lq_model *m, const lq_slot *s, lq_bound *b, lq_err *err) {
    b->input = s->input;
    if (s->count) return bind_stack(m, s, b, err);
    if (!find(m, s, 0, &b->w, err)) return false;
    if (m->desc.head_unit && s->role == LQ_R_HEAD && !bind_lengths(m, &b->w, err)) return false;
    return settle(m, s, &b->w, b, err);
}

static float soft_plus(float x) { return x > 20 ? x : (float)log1p(exp((double)x)); }

void lq_bind_numbers(lq_model *m, int layer) {
    static const lq_role roles[4] = {LQ_R_XIELU_ABOVE, LQ_R_XIELU_BELOW, LQ_R_XIELU_BETA, LQ_R_XIELU_LEAST};
    const lq_bound *b = m->layer[layer];
    float v[4];
    if (m->scale) m->dev->ops.get(m->dev, &m->scale[layer], b[LQ_R_LAYER_SCALE].v, sizeof *m->scale);
    if (!m->xielu || !b[roles[0]].v) return;
    for (int i = 0; i < 4; i++) m->dev->ops.get(m->dev, &v[i], b[roles[i]].v, sizeof v[i]);
    m->dev->ops.sync(m->dev, NULL);
    m->xielu[layer] = (lq_xielu){soft_plus(v[0]), v[2] + soft_plus(v[1]), v[2], v[3]};
}

// What others divide K (V) of a layer by in a cache of 8 bits: "self_attn.k_scale", or what stands beside its matrix.
// NULL: it is not there.
static const lq_tensor *others_scale(const lq_model *m, const lq_slot *of, char which) {
    static const char *const tails[] = {"_scale", "_proj.k_scale", "_proj.output_scale"}, matrix[] = "k_proj.weight";
    const lq_tensor *t = NULL;
    char name[LQ_NAME];
    const size_t n = strlen(of->from.name), k = sizeof matrix - 1;
    if (n < k || strcmp(of->from.name + n - k, matrix) != 0) return NULL;
    for (int i = 0; !t && i < 3; i++) {
        snprintf(name, sizeof name, "%.*s%c%s", (int)(n - k), of->from.name, which, tails[i]);
        if (i == 1) name[strlen(name) - strlen("k_scale")] = which;
        t = lq_ckpt_find(m->ckpt, name);
    }
    return t;
}

// One number, or one for each head.
static bool put_scales(const lq_tensor *t, int heads, float *to, lq_err *err) {
    const size_t size = lq_dtype_size(t->type), n = lq_dtypes[t->type].number ? t->bytes / size : 0;
    if (n != 1 && n != (size_t)heads)
        return lq_fail(err, LQ_E_FORMAT, "tensor %s: expected one number, or one for each of %d heads", t->name, heads);
    for (int i = 0; i < heads; i++) {
        lq_dtypes[t->type].to_f32((const char *)t->data + (n > 1 ? (size_t)i * size : 0), &to[2 * i], 1);
        if (!(to[2 * i] > 0 && isfinite(to[2 * i])))
            return lq_fail(err, LQ_E_FORMAT, "tensor %s: %g, expected a positive number", t->name, (double)to[2 * i]);
    }
    return true;
}

static bool bind_others_scales(lq_model *m, int layer, const lq_slot *k, lq_err *err) {
    const int heads = lq_layer_attn(&m->desc.layer[layer])->kv_heads;
    const size_t bytes = 2 * (size_t)heads * sizeof(float);
    lq_bound *b = &m->layer[layer][LQ_R_KV_SCALE];
    const lq_tensor *const t[] = {others_scale(m, k, 'k'), others_scale(m, k, 'v')};
    if (b->v || !t[0] || !t[1]) return true;
    float *host = malloc(bytes);
    bool done = host || lq_fail(err, LQ_E_MEMORY, "no memory for the scales of %d heads", heads);
    for (int i = 0; done && i < 2; i++) done = put_scales(t[i], heads, host + i, err);
    if (done) b->v = own(m, b, bytes, err);
    if (done && b->v) m->dev->ops.put(m->dev, b->v, host, bytes);
    free(host);
    return done && b->v;
}

bool lq_bind_layer(lq_model *m, int layer, lq_err *err) {
    int n;
    lq_slot *slots = lq_desc_slots(&m->desc, layer, &n);
    forget_moved(m);
    bool done = slots || lq_fail(err, LQ_E_MEMORY, "no memory for the weights of a layer");
    for (int i = 0; done && i < n; i++) {
        const lq_slot *s = &slots[i];
        lq_bound *b = layer < 0 ? &m->top[s->role] : &m->layer[layer][s->role];
        done = s->k && !s->flat ? bind_matrix(m, s, b, err) : bind_vector(m, s, b, err);
        m->params += s->n * (s->k ? s->k : 1) * (s->count ? s->count : 1);
    }
    for (int i = 0; done && i < n; i++)
        if (slots[i].role == LQ_R_K && slots[i].k) done = bind_others_scales(m, layer, &slots[i], err);
    free(slots);
    if (!done || layer < 0) return done;
    share_inputs(m, m->layer[layer]);
    lq_bind_numbers(m, layer);
    return m->dev->ops.sync(m->dev, err);
}

void lq_unbind_from(lq_model *m, lq_bound *b, size_t memories) {
    forget_moved(m);
    while (b->memories > memories) m->dev->ops.free(m->dev, b->memory[--b->memories]);
}

void lq_unbind_layer(lq_model *m, int layer) {
    forget_moved(m);
    for (int r = 0; r < LQ_ROLES; r++) lq_unbind(m, &m->layer[layer][r]);
}
