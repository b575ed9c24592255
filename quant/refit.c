// refit.c: what pruning leaves of a layer's matrices takes over what it can of what went: on the calibration text each
// matrix is to make of what it reads in the pruned model, whose layers before are refitted already, what it made of its
// input in the whole one, by least squares. Owns the moments of an input, and the matrices of the layer at hand.
//
// With x what is read now and y what was, H the mean of x x^T, G of x y^T and S the columns of y that x still has, a
// row w becomes T w with T = S + (H + damping)^-1 (G - H S): damping pulls towards the weights that were there.
//
// Where experts read what they made themselves the rows of both models need not be the same ones: both x and y are
// then those of the whole model. Left as they are: matrices that are coded, those of single heads, and an input, or an
// expert's, of fewer rows than it has columns.
//
// Moments are summed where the text goes by; the host has them when it did.
#include "kernels/pack.h"
#include "quant/prune.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BAND = 64, DAMPINGS = 6 }; // rows that are refitted at once; how often the damping grows tenfold
static const double damp = 0.01;  // of the mean diagonal

// An input, or an expert's.
typedef struct moments {
    double *by_h, *by_g; // [m][m], upper half; [m][k]: where the rows are, and
    double *h, *g;       // with the host; else NULL
    int64_t rows;
    const int32_t *column; // [m] S; NULL: all
} moments;

typedef struct watching {
    lq_dev *on;         // which has the rows
    moments *of;        // [max(1, count)]
    bool paired;        // else x is made of y
    int first, count, experts; // experts first .. first + count of all; count 0: all rows
    int64_t m, k;       // columns now, columns then
    float *work;        // [m][k]
    void *x;            // [cap][m] columns of y
    size_t cap;
} watching;

// Matrices of a slot as they have become.
typedef struct refitted {
    lq_weight *w;       // [max(1, count)]; NULL: as they were cut
    void **held;
} refitted;

struct lq_refit {
    lq_refit_opts o;
    lq_rooms rooms;
    lq_stream *s;
    lq_dev *cpu;        // beside another device that the models run on; NULL: they run on a CPU
    int layer, slots;   // at hand
    lq_slot *to, *from; // [slots] of what is left, of the whole model
    refitted *made;     // [slots]
};

static int matrices(const lq_slot *s) { return s->count ? s->count : 1; }

static bool is_expert(lq_role r) { return r >= LQ_R_EXPERT_GATE && r <= LQ_R_EXPERT_DOWN; }

// --- what is read ---

static lq_mat mat_of(float *p, int rows, int64_t cols) {
    return (lq_mat){.p = p, .type = LQ_F32, .rows = rows, .cols = (int)cols, .stride = (size_t)cols};
}

// The columns of y that are left, where y is.
static bool left_of(watching *t, const lq_mat *y, const int32_t *column, lq_mat *x, lq_err *err) {
    const size_t rows = (size_t)y->rows, m = (size_t)t->m, k = (size_t)t->k;
    lq_here all = {0}, left = {0};
    if (rows > t->cap) {
        if (t->x) t->on->ops.free(t->on, t->x);
        t->x = NULL, t->cap = 0;
        if (!t->on->ops.alloc(t->on, rows * m * lq_dtype_size(y->type), &t->x, err)) return false;
        t->cap = rows;
    }
    *x = (lq_mat){.p = t->x, .type = y->type, .rows = y->rows, .cols = (int)m, .stride = m};
    if (!lq_here_open(t->on, y, &all, err)) return false;
    left.x = left.own = malloc((rows * m + 1) * sizeof *left.own);
    bool done = left.own || lq_fail(err, LQ_E_MEMORY, "no memory for %zu rows of an input", rows);
    for (size_t r = 0; done && r < rows; r++)
        for (size_t j = 0; j < m; j++) left.own[r * m + j] = all.x[r * k + (column ? (size_t)column[j] : j)];
    done = done && lq_here_put(t->on, &left, x, err) && t->on->ops.sync(t->on, err);
    lq_here_close(&all);
    lq_here_close(&left);
    return done;
}

static void add(const watching *t, moments *to, const lq_mat *x, const lq_mat *y) {
    if (!x->rows) return;
    t->on->ops.gram(t->on, &(lq_gram_args){.x = *x, .h = to->by_h, .work = t->work});
    t->on->ops.gram(t->on, &(lq_gram_args){.x = *x, .with = y, .h = to->by_g, .work = t->work});
    to->rows += x->rows;
}

static bool look(void *arg, const lq_sight *s, lq_err *err) {
    watching *t = arg;
    lq_picked p;
    if (!t->count) add(t, t->of, &s->x, s->was);
    if (!t->count) return t->on->ops.sync(t->on, err);
    bool done = lq_picked_open(&p, t->on, s, t->experts, err);
    for (int e = 0; done && e < t->count; e++) {
        lq_mat x, y;
        done = lq_picked_take(&p, t->first + e, 0, t->paired ? s->was : &s->x, &y, err) &&
               (t->paired ? lq_picked_take(&p, t->first + e, 1, &s->x, &x, err)
                          : left_of(t, &y, t->of[e].column, &x, err));
        if (done) add(t, &t->of[e], &x, &y);
    }
    done = done && t->on->ops.sync(t->on, err);
    lq_picked_close(&p);
    return done;
}

// --- least squares ---

static double cell(const moments *m, int64_t width, int64_t i, int64_t j) {
    return m->h[(i < j ? i : j) * width + (i < j ? j : i)] / (double)m->rows;
}

// The factor of H and its damping is in u; *ok false: it has none.
static bool factor(const lq_refit *r, const moments *of, int64_t m, double *u, bool *ok, lq_err *err) {
    lq_dev *dev = lq_stream_dev(r->s);
    double mean = 0, share = damp;
    for (int64_t j = 0; j < m; j++) mean += cell(of, m, j, j) / (double)m;
    *ok = false;
    if (!isfinite(mean))
        return lq_fail(err, LQ_E_FORMAT, "%s: what layer %d is given of the calibration text is no number",
                       r->o.cut, r->layer);
    for (int t = 0; mean > 0 && t < DAMPINGS && !*ok; t++, share *= 10) {
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = i; j < m; j++) u[i * m + j] = cell(of, m, i, j) + (i == j ? share * mean : 0);
        dev->ops.factor(dev, &(lq_factor_args){.h = u, .n = (int)m, .ok = ok});
        if (!dev->ops.sync(dev, err)) return false;
    }
    return true;
}

// T [m][k], allocated; *out NULL: nothing is to be refitted.
static bool solve(lq_refit *r, const watching *t, moments *of, float **out, lq_err *err) {
    const int64_t m = t->m, k = t->k;
    const size_t cells = (size_t)m * (size_t)k;
    lq_dev *dev = lq_stream_dev(r->s);
    bool ok = false;
    *out = NULL;
    if (of->rows < m) return true;
    double *u = lq_room_open(&r->rooms, (size_t)m * (size_t)m * sizeof *u, err);
    bool done = u && factor(r, of, m, u, &ok, err);
    if (done && ok) {
        for (size_t i = 0; i < cells; i++) of->g[i] /= (double)of->rows;
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < m; j++) of->g[i * k + (of->column ? of->column[j] : j)] -= cell(of, m, i, j);
        dev->ops.solve(dev, &(lq_solve_args){.u = u, .n = (int)m, .b = of->g, .cols = (int)k});
        done = dev->ops.sync(dev, err) && (*out = lq_room_open(&r->rooms, cells * sizeof **out, err)) != NULL;
    }
    for (size_t i = 0; done && ok && i < cells; i++) (*out)[i] = (float)of->g[i];
    for (int64_t j = 0; done && ok && j < m; j++) (*out)[j * k + (of->column ? of->column[j] : j)] += 1;
    lq_room_close(&r->rooms, u);
    return done;
}

// --- a matrix ---

// Rows of the whole matrix w, those of the list (NULL: all), times T are in `to`.
static bool apply(const lq_refit *r, const lq_weight *w, const int32_t *list, const lq_slot *s, const float *t,
                  char *to, lq_err *err) {
    lq_dev *dev = lq_stream_dev(r->s);
    const lq_dtype_row *type = &lq_dtypes[w->type.elem];
    const lq_weight turn = {.type = {.kind = LQ_W_PLAIN, .elem = LQ_F32, .bits = 32}, .n = s->k, .k = w->k, .q = t};
    float *x = malloc(BAND * (size_t)(w->k + s->k) * sizeof *x), *y = x ? x + BAND * w->k : NULL;
    bool done = x || lq_fail(err, LQ_E_MEMORY, "no memory for rows of %lld", (long long)w->k);
    for (int64_t first = 0; done && first < s->n; first += BAND) {
        const int rows = (int)(s->n - first < BAND ? s->n - first : BAND);
        const size_t cells = (size_t)rows * (size_t)s->k;
        if (!r->o.w->tick(r->o.w->arg, 0, 0)) done = lq_fail(err, LQ_E_CANCELLED, "stopped");
        for (int i = 0; i < rows; i++) lq_weight_row(w, list ? list[first + i] : first + i, x + i * w->k);
        const lq_act act = {.x = mat_of(x, rows, w->k)};
        dev->ops.matmul(dev, &(lq_matmul_args){.x = &act, .count = 1, .w = {&turn}, .y = {mat_of(y, rows, s->k)}});
        done = done && dev->ops.sync(dev, err);
        for (size_t i = 0; done && i < cells; i++)
            if (!isfinite(y[i])) done = lq_fail(err, LQ_E_FORMAT, "row %lld, refitted, is no number", (long long)first);
        if (done && !type->from_f32(y, to + (size_t)first * (size_t)s->k * type->bytes, cells))
            done = lq_fail(err, LQ_E_FORMAT, "it cannot be refitted: a weight would be more than %s can hold", type->name);
    }
    free(x);
    return done;
}

// Matrix `at` of a slot becomes what T makes of it.
static bool refit(lq_refit *r, int slot, int at, const float *t, lq_err *err) {
    const lq_plan *p = r->o.w->p;
    const lq_slot *to = &r->to[slot], *from = &r->from[slot];
    refitted *made = &r->made[slot];
    lq_pick pick;
    lq_weight w;
    lq_stay stay;
    if (!lq_source_pick(p->in, from, at, &pick, err) || !lq_ckpt_pick(p->in, &pick, from->n, from->k, &w, NULL, err) ||
        !lq_stay_of(&p->in_desc, r->o.what, from, at, &stay, err)) return false;
    bool done = true;
    if (w.type.kind == LQ_W_PLAIN) {
        if (!made->w) made->w = calloc((size_t)matrices(to), sizeof *made->w);
        if (!made->held) made->held = calloc((size_t)matrices(to), sizeof *made->held);
        done = (made->w && made->held) || lq_fail(err, LQ_E_MEMORY, "no memory for %d matrices", matrices(to));
        const size_t bytes = (size_t)to->n * (size_t)to->k * lq_dtype_size(w.type.elem);
        done = done && (made->held[at] = lq_room_open(&r->rooms, bytes, err)) != NULL;
        if (done && !apply(r, &w, stay.row, to, t, made->held[at], err))
            done = lq_fail_in(err, "%s: tensor %s", lq_ckpt_path(p->in), pick.name);
        if (done) made->w[at] = (lq_weight){.type = w.type, .n = to->n, .k = to->k, .q = made->held[at]};
        done = done && lq_stream_put(r->s, to->role, at, &made->w[at], err);
    }
    lq_ckpt_done(p->in, &w);
    lq_stay_free(&stay);
    return done;
}

// --- an input ---

// Whether a slot is a matrix that reads this input as all rows are (`stack` false), or as experts do.
static bool reads(const lq_slot *s, int input, bool stack) {
    return s->input == input && s->k > 0 && !s->flat && (stack ? s->count > 0 && is_expert(s->role) : !s->count);
}

static int reader_of(const lq_refit *r, int input, bool stack) {
    for (int i = 0; i < r->slots; i++)
        if (reads(&r->to[i], input, stack)) return i;
    return -1;
}

static bool moments_open(lq_refit *r, const watching *t, moments *of, lq_err *err) {
    const size_t m = (size_t)t->m, k = (size_t)t->k;
    return (of->by_h = lq_by_open(t->on, &r->rooms, m * m * sizeof *of->h, err)) != NULL &&
           (of->by_g = lq_by_open(t->on, &r->rooms, m * k * sizeof *of->g, err)) != NULL;
}

// What was summed, with the host.
static bool bring(lq_refit *r, const watching *t, double **by, int64_t columns, double **to, lq_err *err) {
    const size_t bytes = (size_t)t->m * (size_t)columns * sizeof **to;
    if (t->on->host) *to = *by;
    else {
        if (!(*to = lq_room_open(&r->rooms, bytes, err))) return false;
        t->on->ops.get(t->on, *to, *by, bytes);
        if (!t->on->ops.sync(t->on, err)) return false;
        lq_by_close(t->on, &r->rooms, *by);
    }
    *by = NULL;
    return true;
}

static void moments_close(lq_refit *r, const watching *t, moments *of) {
    lq_by_close(t->on, &r->rooms, of->by_h);
    lq_by_close(t->on, &r->rooms, of->by_g);
    lq_room_close(&r->rooms, of->h);
    lq_room_close(&r->rooms, of->g);
    of->by_h = of->by_g = of->h = of->g = NULL;
}

static bool refit_readers(lq_refit *r, int input, const watching *t, lq_err *err) {
    bool done = true;
    for (int e = 0; done && e < (t->count ? t->count : 1); e++) {
        float *by = NULL;
        moments *of = &t->of[e];
        done = bring(r, t, &of->by_h, t->m, &of->h, err) && bring(r, t, &of->by_g, t->k, &of->g, err) &&
               solve(r, t, of, &by, err);
        for (int i = 0; done && by && i < r->slots; i++)
            if (reads(&r->to[i], input, t->count > 0)) done = refit(r, i, t->first + e, by, err);
        lq_room_close(&r->rooms, by);
        moments_close(r, t, of);
    }
    return done;
}

// All rows (count 0), or experts first .. first + count.
static bool refit_input(lq_refit *r, int input, int first, int count, lq_err *err) {
    const int reader = reader_of(r, input, count > 0), sets = count ? count : 1;
    const bool own = r->to[reader].role == LQ_R_EXPERT_DOWN; // what experts made themselves
    watching t = {.on = lq_stream_on(r->s), .paired = !own, .first = first, .count = count,
                  .experts = r->to[reader].count, .m = r->to[reader].k, .k = r->from[reader].k};
    lq_stay *stay = calloc((size_t)sets, sizeof *stay);
    t.of = calloc((size_t)sets, sizeof *t.of);
    bool done = (stay && t.of) || lq_fail(err, LQ_E_MEMORY, "no memory for %d experts", sets);
    done = done && (t.work = lq_by_open(t.on, &r->rooms, (size_t)t.m * (size_t)t.k * sizeof *t.work, err)) != NULL;
    for (int e = 0; done && e < sets; e++) {
        done = lq_stay_of(&r->o.w->p->in_desc, r->o.what, &r->from[reader], first + e, &stay[e], err) &&
               moments_open(r, &t, &t.of[e], err);
        t.of[e].column = stay[e].column;
    }
    if (done && own) done = lq_stream_see_was(r->s, input, look, &t, err);
    else if (done) done = count ? lq_stream_see_apart(r->s, input, 0, true, look, &t, err)
                                : lq_stream_see(r->s, input, true, look, &t, err);
    done = done && refit_readers(r, input, &t, err);
    for (int e = 0; e < sets; e++) {
        if (t.of) moments_close(r, &t, &t.of[e]);
        if (stay) lq_stay_free(&stay[e]);
    }
    lq_by_close(t.on, &r->rooms, t.work);
    if (t.x) t.on->ops.free(t.on, t.x);
    free(t.of);
    free(stay);
    return done;
}

// As many experts at once as have room.
static bool refit_experts(lq_refit *r, int input, lq_err *err) {
    const int reader = reader_of(r, input, true);
    const lq_slot *s = &r->to[reader];
    const size_t m = (size_t)s->k, k = (size_t)r->from[reader].k, each = m * (m + k) * sizeof(double);
    lq_dev *on = lq_stream_on(r->s);
    const size_t most = (on->host ? r->rooms.left : on->ops.room(on)) / 2 / each;
    const int at_once = most < 1 ? 1 : most < (size_t)s->count ? (int)most : s->count;
    if (s->role == LQ_R_EXPERT_DOWN && m == k) return true;
    for (int e = 0; e < s->count; e += at_once)
        if (!refit_input(r, input, e, s->count - e < at_once ? s->count - e : at_once, err)) return false;
    return true;
}

// --- a layer ---

bool lq_refit_layer(lq_refit *r, int layer, lq_err *err) {
    lq_input input[LQ_INPUTS];
    const int inputs = lq_desc_inputs(r->o.desc, layer, input);
    int was;
    r->layer = layer;
    r->to = lq_desc_slots(r->o.desc, layer, &r->slots);
    r->from = lq_desc_slots(&r->o.w->p->in_desc, r->o.what->layer[layer], &was);
    r->made = calloc((size_t)r->slots, sizeof *r->made);
    if (!r->to || !r->from || !r->made || r->slots != was)
        return lq_fail(err, LQ_E_MEMORY, "no memory for the weights of a layer");
    if (!lq_stream_enter(r->s, layer, err)) return false;
    for (int i = 0; i < inputs; i++) {
        if (reader_of(r, i, false) >= 0 && !refit_input(r, i, 0, 0, err)) return false;
        if (reader_of(r, i, true) >= 0 && !refit_experts(r, i, err)) return false;
    }
    return true;
}

const lq_weight *lq_refit_made(const lq_refit *r, int slot, int at) {
    const refitted *made = &r->made[slot];
    return made->w && made->held[at] ? &made->w[at] : NULL;
}

static void let_go(lq_refit *r) {
    for (int i = 0; r->made && i < r->slots; i++) {
        for (int at = 0; r->made[i].held && at < matrices(&r->to[i]); at++)
            lq_room_close(&r->rooms, r->made[i].held[at]);
        free(r->made[i].held);
        free(r->made[i].w);
    }
    free(r->made);
    free(r->to);
    free(r->from);
    r->made = NULL, r->to = r->from = NULL;
}

bool lq_refit_leave(lq_refit *r, lq_err *err) {
    const bool done = lq_stream_leave(r->s, NULL, err);
    let_go(r);
    return done;
}

// --- the whole ---

bool lq_refit_open(const lq_refit_opts *o, lq_refit **out, lq_err *err) {
    const lq_worth *w = o->w;
    lq_refit *r = *out = calloc(1, sizeof *r);
    if (!r) return lq_fail(err, LQ_E_MEMORY, "no memory to refit what is left");
    *r = (lq_refit){.o = *o, .rooms = w->rooms};
    lq_lent *lent = w->p->o->lent;
    const lq_dev_opts like = {.threads = w->p->o->threads, .numerics = LQ_NUM_EXACT, .rough = true};
    const lq_stream_opts opts = {.in = o->cut, .desc = o->desc, .text = w->text, .threads = w->p->o->threads,
                                 .on = lq_lend_far(lent), .paired = true, .was = w->p->o->in, .of = o->what->layer,
                                 .rooms = &r->rooms, .spill = w->spill, .tick = w->tick, .arg = w->arg};
    bool done = (!lent || lq_dev_open("cpu", &like, &r->cpu, err)) && lq_stream_open(&opts, &r->s, err);
    if (done && lent) lq_stream_lend(r->s, lq_lend(lent, r->cpu));
    if (done && lq_stream_begin(r->s, err)) return true;
    lq_refit_close(r);
    *out = NULL;
    return false;
}

size_t lq_refit_bytes(int64_t widest) { return 2 * BAND * (size_t)widest * sizeof(float); }

void lq_refit_close(lq_refit *r) {
    if (!r) return;
    let_go(r);
    lq_stream_close(r->s);
    if (r->cpu) lq_dev_close(r->cpu);
    free(r);
}
