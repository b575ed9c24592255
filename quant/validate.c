// validate.c: lq_validate: opens a quantized file as a stranger would and checks what it claims against what it holds,
// its architecture, and, where it is at hand, the checkpoint it was made from. Owns nothing but a few rows of scratch.
#include "kernels/pack.h"
#include "quant/pass.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct checker {
    lq_ckpt *file, *in;  // in: may be NULL
    lq_desc desc, in_desc; // the same weights; where the input has them may be said by its tensors
    bool nearest;        // every coded row stands within a step of the input
    bool transformed;
    float *row, *want;   // [cap]
    int64_t cap;
    size_t weights;
    lq_tick *tick;       // may be NULL
    void *arg;
} checker;

static bool fail_at(const checker *c, lq_err *err) {
    return err ? lq_fail_in(err, "%s", lq_ckpt_path(c->file)) : false;
}

static bool check_scales(const lq_slot *s, const lq_weight *w, lq_err *err) {
    lq_weight_size size;
    float v[256];
    if (!w->scale || !lq_layout_sizes(w->layout, &w->type, w->n, w->k, &size))
        return lq_fail(err, LQ_E_FORMAT, "tensor %s: has no scales", s->name);
    const lq_dtype_row *t = &lq_dtypes[w->type.scale];
    const size_t count = size.scale / t->bytes;
    for (size_t i = 0; i < count; i += 256) {
        const size_t n = count - i < 256 ? count - i : 256;
        t->to_f32((const uint8_t *)w->scale + i * t->bytes, v, n);
        for (size_t j = 0; j < n; j++)
            if (!isfinite(v[j]))
                return lq_fail(err, LQ_E_FORMAT, "tensor %s: scale %zu is %g, expected a finite number", s->name, i + j,
                               (double)v[j]);
    }
    return true;
}

static double scale_of(const lq_weight *w, int64_t row, int64_t g) {
    const lq_laid l = lq_laid_of(w->layout, &w->type, w->n, w->k);
    return (double)lq_scale_get(w, lq_laid_scale(&l, row, g));
}

static double largest(const lq_weight *w) {
    double top = 0;
    for (int i = 0; i < 1 << w->type.bits; i++) top = fmax(top, fabs((double)w->table[i]));
    return top;
}

// The widest step of a table, its ends and their mirrors taken in: no number that is scaled to it is further from its
// nearest value.
static double widest_gap(const lq_weight *w) {
    const double top = largest(w);
    double gap = 0;
    for (int i = -1; i < 1 << w->type.bits; i++) {
        const double from = i < 0 ? -top : (double)w->table[i];
        double next = top;
        for (int j = 0; j < 1 << w->type.bits; j++)
            if ((double)w->table[j] > from) next = fmin(next, (double)w->table[j]);
        gap = fmax(gap, next - from);
    }
    return gap;
}

// How far rounding to the nearest may move an element w of a group: a step, and what rounding the scale adds at the
// group's ends. A denormal scale is off by half of the least number of its type, times the largest code.
typedef struct reach { double step, share; } reach; // step + share * |w|
static reach group_reach(const lq_weight *q, int64_t row, int64_t g, const float *w, int64_t n) {
    const lq_wtype *t = &q->type;
    const double least = t->scale == LQ_BF16 ? 0x1p-133 : 0x1p-149, codes = t->kind == LQ_W_INT ? 1 << t->bits : 0x1p16;
    double lo = 0, hi = 0;
    for (int64_t i = 0; i < n; i++) {
        if (w[i] < lo) lo = (double)w[i];
        if (w[i] > hi) hi = (double)w[i];
    }
    const double top = hi > -lo ? hi : -lo;
    if (t->kind == LQ_W_PLAIN) return (reach){top / 4, 0};
    // A scale of few bits may be too small for the largest elements: they lose what is above.
    const bool few = t->dq || (t->kind != LQ_W_INT && (t->scale == LQ_E8M0 || t->scale == LQ_E4M3));
    const double own = few || t->rows > 1 ? scale_of(q, row, g) : 0, given = fabs(own);
    if (t->kind == LQ_W_FLOAT) {
        const bool e5m2 = t->elem == LQ_E5M2;
        const double most = e5m2 ? 57344 : 448, s = few || t->rows > 1 ? given : top / most;
        return (reach){1.25 * s * (e5m2 ? 0x1p-17 : 0x1p-10) + codes * least + (few ? fmax(0, top - most * s) : 0),
                       1.25 * (e5m2 ? 0x1p-3 : 0x1p-4)};
    }
    if (t->kind == LQ_W_TABLE) {
        const double most = largest(q), s = few || t->rows > 1 ? given : top / most;
        return (reach){1.25 * widest_gap(q) * s + codes * least + (few ? fmax(0, top - most * s) : 0), 0};
    }
    double step = t->asym ? (hi - lo) / ((1 << t->bits) - 1) : top / (1 << (t->bits - 1));
    if (t->rows > 1) step = given;
    if (t->dq) { // what no code reaches with a scale that is too small, or has the other sign
        step = t->asym && own < 0 ? 0 : given;
        step += fmax(0, t->asym ? hi - lo - ((1 << t->bits) - 1) * step : top - ((1 << (t->bits - 1)) - 1) * step);
    }
    return (reach){1.25 * step + codes * least, 0};
}

static bool check_row(const checker *c, const lq_slot *s, const lq_weight *w, const lq_weight *src, int64_t r,
                      lq_err *err) {
    const int64_t group = w->type.kind != LQ_W_PLAIN && w->type.group ? w->type.group : w->k;
    lq_weight_row(w, r, c->row);
    lq_weight_row(src, r, c->want);
    for (int64_t at = 0; at < w->k; at += group) {
        const int64_t n = w->k - at < group ? w->k - at : group;
        const reach far = group_reach(w, r, at / group, c->want + at, n);
        for (int64_t i = at; i < at + n; i++) {
            const double step = far.step + far.share * fabs((double)c->want[i]);
            if (!(fabs((double)c->row[i] - (double)c->want[i]) <= step))
                return lq_fail(err, LQ_E_FORMAT,
                               "tensor %s: row %lld, column %lld is %g, the checkpoint has %g: further than a step of %g",
                               s->name, (long long)r, (long long)i, (double)c->row[i], (double)c->want[i], step);
        }
    }
    return true;
}

// Sampled rows against the input: the first, the last and some between, which a shifted or swapped layout does not
// survive. What was carried over is equal bit for bit.
static bool check_input(checker *c, const lq_slot *s, int at, const lq_weight *w, lq_err *err) {
    lq_pick from;
    lq_weight src;
    if (!lq_source_pick(c->in, s, at, &from, err)) return false;
    if (!lq_ckpt_has_weight(c->in, from.name))
        return lq_fail(err, LQ_E_FORMAT, "tensor %s: is not in %s", from.name, lq_ckpt_path(c->in));
    if (!lq_ckpt_pick(c->in, &from, s->n, s->k, &src, NULL, err)) return false;
    bool done = true;
    if (w->type.kind == LQ_W_PLAIN && src.type.kind == LQ_W_PLAIN && w->type.elem == src.type.elem) {
        done = !memcmp(w->q, src.q, (size_t)w->n * (size_t)w->k * lq_dtype_size(w->type.elem)) ||
               lq_fail(err, LQ_E_FORMAT, "tensor %s: differs from the one of %s", s->name, lq_ckpt_path(c->in));
    } else if (c->nearest && s->k) {
        if (w->k > c->cap) {
            free(c->row);
            c->cap = w->k;
            c->row = malloc(2 * (size_t)w->k * sizeof *c->row);
        }
        done = c->row || lq_fail(err, LQ_E_MEMORY, "no memory for a row of %lld", (long long)w->k);
        if (done) c->want = c->row + w->k;
        const int64_t last = w->n - 1, step = last / 7 ? last / 7 : 1;
        for (int64_t r = 0; r < last && done; r += step) done = check_row(c, s, w, &src, r, err);
        done = done && check_row(c, s, w, &src, last, err);
    }
    lq_ckpt_done(c->in, &src);
    return done;
}

// What K and V are divided by.
static bool check_kv_scales(const lq_slot *s, const lq_weight *w, lq_err *err) {
    for (int64_t i = 0; i < w->n; i++) {
        float v;
        lq_dtypes[w->type.elem].to_f32((const char *)w->q + (size_t)i * lq_dtype_size(w->type.elem), &v, 1);
        if (!(v > 0 && isfinite(v)))
            return lq_fail(err, LQ_E_FORMAT, "tensor %s: scale %lld is %g, expected a positive number", s->name,
                           (long long)i, (double)v);
    }
    return true;
}

static bool check_slot(checker *c, const lq_slot *s, const lq_slot *from, lq_err *err) {
    for (int i = 0; i < (s->count ? s->count : 1); i++) {
        lq_pick own;
        lq_weight w;
        if (!lq_source_pick(c->file, s, i, &own, err)) return false;
        if (!lq_ckpt_pick(c->file, &own, s->n, s->k, &w, NULL, err)) return false;
        const bool made = s->role == LQ_R_KV_SCALE, done = made ? check_kv_scales(s, &w, err)
            : (w.type.kind == LQ_W_PLAIN || check_scales(s, &w, err)) && (!c->in || check_input(c, from, i, &w, err));
        lq_ckpt_done(c->file, &w);
        if (!done) return fail_at(c, err);
    }
    c->weights += s->k > 0;
    return true;
}

static bool check_layer(checker *c, int layer, lq_err *err) {
    int n, sources;
    lq_slot *slots = lq_desc_slots(&c->desc, layer, &n),
            *from = lq_desc_slots(c->in ? &c->in_desc : &c->desc, layer, &sources);
    bool ok = (slots && from) || lq_fail(err, LQ_E_MEMORY, "no memory for %d weights", n);
    if (ok && n != sources)
        ok = lq_fail(err, LQ_E_FORMAT, "%s: has %d weights in a layer, the checkpoint %d", lq_ckpt_path(c->file), n,
                     sources);
    for (int i = 0; ok && i < n; i++) ok = check_slot(c, &slots[i], &from[i], err);
    free(slots);
    free(from);
    return ok;
}

bool lq_side_check(const char *name, const lq_bytes *file, lq_err *err) {
    const lq_json_limits limits = {256u << 20, 128};
    const char *dot = strrchr(name, '.');
    return !file->p || !dot || strcmp(dot, ".json") != 0 || lq_json_check(file->p, file->n, limits, name, err);
}

static bool check_files(const checker *c, lq_err *err) {
    for (size_t i = 0; lq_side_files[i]; i++) {
        lq_bytes file;
        if (!lq_ckpt_file(c->file, lq_side_files[i], &file, err)) return false;
        if (!lq_side_check(lq_side_files[i], &file, err)) return fail_at(c, err);
    }
    return true;
}

// As when a model is opened.
static bool check_strangers(const checker *c, lq_err *err) {
    lq_names *names = NULL;
    bool done = lq_names_open(&c->desc, c->file, &names, err);
    for (size_t i = 0; i < lq_ckpt_count(c->file) && done; i++) {
        const char *name = lq_ckpt_at(c->file, i)->name;
        if (lq_names_find(names, name) == LQ_STRANGE)
            done = lq_fail(err, LQ_E_FORMAT, "tensor %s: is no part of a %s and not among those in lq.kept", name,
                           c->desc.arch->name);
    }
    lq_names_close(names);
    return done || fail_at(c, err);
}

// The recipe is kept with the file; whether its rows can be held against the input depends on it.
static bool read_recipe(checker *c, lq_err *err) {
    const char *text = lq_ckpt_meta(c->file, "lq.recipe");
    const lq_json_limits limits = {1u << 20, 16};
    cJSON *recipe = NULL;
    if (!text) return true;
    if (!lq_json_parse(text, strlen(text), limits, "lq.recipe", &recipe, err)) return fail_at(c, err);
    const char *rounding = lq_json_str(recipe, "rounding"), *transform = lq_json_str(recipe, "transform"),
        *salient = lq_json_str(recipe, "salient"), *range = lq_json_str(recipe, "range");
    c->transformed = transform && strcmp(transform, "none") != 0 && strcmp(transform, "clip") != 0;
    c->nearest = rounding && salient && transform && !strcmp(transform, "none") && !strcmp(rounding, "nearest") &&
                 (!range || !strcmp(range, "full"));
    cJSON_Delete(recipe);
    return true;
}

static bool check_all(checker *c, const char *path, bool read, lq_check *out, lq_err *err) {
    bool done = lq_ckpt_open(path, &c->file, err) && (!read || lq_ckpt_verify(c->file, c->tick, c->arg, err)) &&
                lq_desc_read(c->file, &c->desc, err) && read_recipe(c, err) && check_files(c, err) &&
                check_strangers(c, err);
    if (c->transformed) c->in = NULL; // nothing is what it was there
    done = done && (!c->in || lq_desc_read(c->in, &c->in_desc, err));
    if (done && c->in) c->in_desc.kv_scaled = c->desc.kv_scaled;
    if (done && c->in && c->in_desc.layers != c->desc.layers)
        done = lq_fail(err, LQ_E_FORMAT, "%s: has %d layers, %s %d", path, c->desc.layers, lq_ckpt_path(c->in),
                       c->in_desc.layers);
    for (int layer = -1; done && layer < c->desc.layers; layer++) {
        done = check_layer(c, layer, err);
        if (done && c->tick && !c->tick(c->arg, (size_t)(layer + 1), (size_t)c->desc.layers))
            done = lq_fail(err, LQ_E_CANCELLED, "%s: stopped", path);
    }
    if (done && out) *out = (lq_check){lq_ckpt_count(c->file), c->weights};
    free(c->row);
    lq_desc_free(&c->desc);
    lq_desc_free(&c->in_desc);
    if (c->file) lq_ckpt_close(c->file);
    return done;
}

bool lq_validate_data(const char *path, lq_ckpt *in, lq_tick *tick, void *arg, lq_check *out, lq_err *err) {
    checker c = {.in = in, .tick = tick, .arg = arg};
    return check_all(&c, path, false, out, err);
}

bool lq_validate(const char *path, const char *in, lq_check *out, lq_err *err) {
    checker c = {0};
    lq_ckpt *source = NULL;
    if (in && !lq_ckpt_open(in, &source, err)) return false;
    c.in = source;
    const bool done = check_all(&c, path, true, out, err);
    if (source) lq_ckpt_close(source);
    return done;
}
