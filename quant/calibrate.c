// calibrate.c: a layer is rounded input by input: what the text gives to an input is watched, with the inputs before it
// rounded already; then the matrices that read it are rounded, and take the places of those that were there. Where a
// transform looks at text, all inputs of the layer as it was are watched first, and factors found of their columns.
// Owns which inputs are watched, and what rounding makes of them.
//
// Of experts as many are watched at once as have room; each costs the text another way through the layer. One that the
// router sends fewer rows than its input has columns is watched again, with all rows sent to it, and leans on those.
#include "quant/here.h"
#include "quant/pass.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// An input while the text goes by: its rows together, or those of experts first .. first + count.
typedef struct watching {
    lq_dev *on;           // which has the rows
    lq_watch *w;          // [experts]
    bool all, paired, counts; // counts: rows alone, nothing is summed
    bool routed;          // what was seen had been sent by a router
    int first, experts, of; // of so many
    int64_t k;
    const lq_edit *edit;  // paired: what became of a matrix that reads it, and so of what it read
    float *work;          // [k][k]
} watching;

static lq_mat turn_of(const lq_mat *x, int at, int of) {
    return (lq_mat){.p = (char *)x->p + (size_t)at * x->stride * lq_dtype_size(x->type), .type = x->type,
                    .rows = x->rows / of, .cols = x->cols, .stride = x->stride * (size_t)of};
}

// What an edited matrix would have read as the model was.
static bool edit_input(const watching *t, const lq_mat *was, lq_err *err) {
    lq_here here;
    if (!t->edit || (!t->edit->column && !t->edit->in)) return true;
    if (!lq_here_open(t->on, was, &here, err)) return false;
    float *x = (float *)(uintptr_t)here.x;
    for (int r = 0; r < was->rows; r++) lq_edit_input(t->edit, x + (size_t)r * (size_t)was->cols, was->cols);
    const bool done = !here.own || lq_here_put(t->on, &here, was, err);
    lq_here_close(&here);
    return done;
}

// Rows that a router sent.
static bool look_routed(watching *t, const lq_sight *s, lq_err *err) {
    lq_picked p;
    t->routed = true;
    bool done = lq_picked_open(&p, t->on, s, t->of, err);
    for (int e = 0; done && e < t->experts; e++) {
        lq_mat x, was;
        const bool paired = t->paired && s->was;
        if (t->counts) t->w[e].rows += p.start[t->first + e + 1] - p.start[t->first + e];
        else done = lq_picked_take(&p, t->first + e, 0, &s->x, &x, err) &&
                    (!paired || lq_picked_take(&p, t->first + e, 1, s->was, &was, err)) &&
                    lq_watch_add(&t->w[e], &x, paired ? &was : NULL, t->work, err);
    }
    lq_picked_close(&p);
    return done;
}

static bool look(void *arg, const lq_sight *s, lq_err *err) {
    watching *t = arg;
    if (t->paired && s->was && !edit_input(t, s->was, err)) return false;
    if (t->all) return lq_watch_add(&t->w[0], &s->x, t->paired ? s->was : NULL, t->work, err);
    if (s->order) return look_routed(t, s, err);
    for (int e = 0; e < t->experts; e++) { // heads, whose rows take turns
        const lq_mat x = turn_of(&s->x, t->first + e, t->of);
        const lq_mat was = s->was ? turn_of(s->was, t->first + e, t->of) : x;
        if (!lq_watch_add(&t->w[e], &x, t->paired && s->was ? &was : NULL, t->work, err)) return false;
    }
    return true;
}

static bool end_all(const watching *t, lq_err *err) {
    for (int e = 0; e < t->experts; e++)
        if (!lq_watch_end(&t->w[e], err)) return false;
    return true;
}

// --- a block ---

typedef struct calibration {
    lq_stream *s;
    lq_block *b;
    lq_dev *dev;
    lq_tick *tick;
    void *arg;
    lq_err *err;
    const lq_acts *acts;  // of the input at hand; NULL: nobody wants any
} calibration;

static bool told(const calibration *c) {
    return c->tick(c->arg, 0, 0) || lq_fail(c->err, LQ_E_CANCELLED, "stopped");
}

static int matrices(const lq_module *m) { return m->it->slot.count ? m->it->slot.count : 1; }

// Outlier columns are named by where they are stored.
static void store_places(const lq_weight *w) {
    int32_t *outlier = (int32_t *)(uintptr_t)w->outlier;
    for (int i = 0; i < w->outliers; i++) {
        int32_t at = 0;
        while (w->perm[at] != outlier[i]) at++;
        outlier[i] = at;
    }
}

// Matrix `at` of a module, rounded by what is known of its input, in the place of the one that was there.
static bool make(const calibration *c, lq_module *m, int at, lq_solve *solve) {
    const lq_slot *s = &m->it->slot;
    lq_made *x = &m->made[at];
    *x = (lq_made){.recipe = m->it->recipe};
    x->recipe.type.scale = m->made[0].held ? m->made[0].recipe.type.scale : x->recipe.type.scale;
    const size_t codes = (lq_module_bytes(&x->recipe.type, s->n, s->k) + 63) & ~(size_t)63;
    const bool turned = solve && !solve->stays;
    const size_t order = turned ? ((size_t)s->k * sizeof(int32_t) + 63) & ~(size_t)63 : 0;
    x->held = aligned_alloc(64, codes + order + lq_acts_bytes(&x->recipe, s->n, s->k));
    if (!x->held) return lq_fail(c->err, LQ_E_MEMORY, "no memory for %s", s->name);
    x->beside = (uint8_t *)x->held + codes + order;
    const lq_given given = {solve, c->acts};
    if (!lq_module_make(c->b->plan, c->dev, m, at, &given, x->held, c->tick, c->arg, x, c->err)) return false;
    if (turned) {
        int32_t *perm = (void *)((char *)x->held + codes);
        memcpy(perm, solve->order, (size_t)s->k * sizeof *perm);
        x->out.perm = perm;
        if (x->out.outliers) store_places(&x->out);
    }
    if (x->out.type.scale == LQ_E4M3) x->out.scale2 = &x->scale2;
    lq_ckpt_done(c->b->plan->in, &x->src);
    x->src = (lq_weight){0};
    return lq_stream_put(c->s, s->role, at, &x->out, c->err);
}

// All matrices of a stack have one type: where one needs scales in F32, the others get them too.
static bool widen(const calibration *c, lq_module *m, lq_dtype was) {
    bool wide = false;
    for (int i = 0; i < matrices(m); i++) wide |= m->made[i].recipe.type.scale != was;
    for (int i = 0; wide && i < matrices(m); i++) {
        lq_made *x = &m->made[i];
        const size_t n = (size_t)m->it->slot.n * (size_t)lq_weight_groups(&x->recipe.type, m->it->slot.k);
        if (x->recipe.type.scale != was) continue;
        float *scale = malloc(n * sizeof *scale); // the room behind the scales holds twice as many bytes
        if (!scale) return lq_fail(c->err, LQ_E_MEMORY, "no memory for %zu scales", n);
        lq_dtypes[was].to_f32(x->out.scale, scale, n);
        memcpy((void *)(uintptr_t)x->out.scale, scale, n * sizeof *scale);
        free(scale);
        x->recipe.type.scale = x->out.type.scale = LQ_F32;
        if (!lq_stream_put(c->s, m->it->slot.role, i, &x->out, c->err)) return false;
    }
    return true;
}

static bool made_room(const calibration *c, lq_module *m) {
    if (!m->made) m->made = calloc((size_t)matrices(m), sizeof *m->made);
    return m->made || lq_fail(c->err, LQ_E_MEMORY, "no memory for %d matrices", matrices(m));
}

static bool reads(const lq_module *m, int input) { return m->it->round && lq_reads(m, input); }

// All matrices of a module, whatever their inputs' moments are.
static bool round_all(const calibration *c, lq_module *m) {
    if (!made_room(c, m)) return false;
    for (int i = 0; i < matrices(m); i++)
        if (!told(c) || !make(c, m, i, NULL)) return false;
    return !m->it->slot.count || widen(c, m, m->it->recipe.type.scale);
}

static bool knows(const lq_module *m) { return lq_recipe_solves(&m->it->recipe); }

// Of gate or up, whether s is to hear of what the MLP makes of some rows.
static bool hear_hidden(const calibration *c, const lq_module *m, int at, const lq_watch *w, lq_hidden *h,
                        lq_solve *s) {
    s->hidden = NULL;
    if (!lq_hidden_of(&m->it->slot, &m->it->recipe)) return true;
    if ((h->of != m || h->at != at) && !lq_hidden_open(c->dev, c->b, m, at, w, h, c->err)) return false;
    h->lifts = h->of == m;
    s->hidden = h->of ? h : NULL;
    return true;
}

// The matrices of experts first .. first + count, or those that read all rows.
static bool round_readers(const calibration *c, int input, const watching *t) {
    lq_solve s = {0};
    lq_apart apart = {0};
    lq_hidden hidden = {0};
    const lq_recipe *of = NULL; // what s was made for
    int expert = -1;
    bool done = true;
    for (int e = 0; done && e < t->experts; e++) {
        lq_apart_close(&apart);
        const bool keeps = c->acts && c->acts->outliers;
        if (keeps) done = lq_apart_make(c->dev, &t->w[e], c->acts, &c->b->plan->base, &apart, c->err);
        for (lq_module *m = c->b->module; done && m < c->b->module + c->b->modules; m++) {
            if (!reads(m, input) || !knows(m) || (m->it->slot.count == 0) != t->all) continue;
            const lq_recipe *r = &m->it->recipe;
            if (!of || expert != e || of->order != r->order || of->type.group != r->type.group ||
                of->rounding != r->rounding || of->transform != r->transform || of->range != r->range) {
                lq_solve_close(&s);
                done = lq_solve_make(c->dev, &t->w[e], r, &s, c->err);
                s.apart = keeps ? &apart : NULL;
                of = r, expert = e;
            }
            done = done && told(c) && made_room(c, m) &&
                   hear_hidden(c, m, t->first + e, &t->w[e], &hidden, &s) && make(c, m, t->first + e, &s);
            if (done && s.hidden && !hidden.lifts) done = lq_hidden_made(&hidden, &m->made[t->first + e].out, c->err);
            if (!s.u && r->rounding == LQ_ROUND_GPTQ) m->note = "its inputs' moments have no inverse: rounded to the nearest";
        }
    }
    lq_apart_close(&apart);
    lq_solve_close(&s);
    lq_hidden_close(&hidden);
    return done;
}

// Whether rows stand there that a router sent: other ones than it would have in the model as it was.
static bool experts_chose(const lq_block *b, int input) {
    for (const lq_module *m = b->module; m < b->module + b->modules; m++)
        if (m->it->slot.role == LQ_R_EXPERT_DOWN && m->it->slot.input == input) return true;
    return false;
}

// What becomes of what was seen.
typedef bool then_fn(const calibration *c, int input, const watching *t);

// A text that the model answers with what is no number says nothing of its inputs.
static bool all_numbers(const calibration *c, int input, const watching *t) {
    for (int e = 0; e < t->experts; e++)
        for (int64_t j = 0; j < t->k; j++) {
            if (isfinite(t->w[e].abssum[j])) continue;
            const lq_module *m = c->b->module;
            while (m < c->b->module + c->b->modules && !reads(m, input)) m++;
            return lq_fail(c->err, LQ_E_FORMAT, "%s: column %lld of what %s reads is no number on the calibration text",
                           lq_ckpt_path(c->b->plan->in), (long long)j,
                           m < c->b->module + c->b->modules ? m->it->slot.name : "the layer");
        }
    return true;
}

static then_fn find_factors;

// --- experts that the router sends little to ---

// How many experts a row of this input goes to.
static int experts_used(const lq_block *b, int input) {
    const lq_layer *l = &b->plan->desc.layer[b->layer];
    for (int i = 0; i < l->parts; i++)
        if (l->part[i].experts == b->input[input].count) return l->part[i].experts_used;
    return 1;
}

static bool lacks(const calibration *c, const watching *t, int e) {
    return c->b->plan->o->all_experts || t->w[e].rows < t->k;
}

static void add_sums(double *to, const double *from, size_t n, double times) {
    for (size_t i = 0; to && i < n; i++) to[i] += times * from[i];
}

// What an expert was given, as if so many rows of all had come to it as it lacks to as many as there are columns; of
// rows that are tried: from all those of its own are left out that have no place. `own`: whether its rows count.
static void lean(lq_watch *w, const lq_watch *all, bool own) {
    const size_t k = (size_t)w->k;
    if (!own) {
        w->rows = w->somes = 0;
        memset(w->absmax, 0, k * sizeof *w->absmax);
        memset(w->abssum, 0, k * sizeof *w->abssum);
        if (w->h) memset(w->h, 0, k * k * sizeof *w->h);
        if (w->g) memset(w->g, 0, k * k * sizeof *w->g);
    }
    const double times = (double)((own ? w->k : all->rows) - w->rows) / (double)all->rows;
    for (size_t j = 0; j < k; j++) w->absmax[j] = fmaxf(w->absmax[j], all->absmax[j]);
    add_sums(w->abssum, all->abssum, k, times);
    add_sums(w->h, all->h, k * k, times);
    add_sums(w->g, all->g, k * k, times);
    for (int i = 0; w->some && i < all->somes && w->somes < LQ_SOME; i++)
        memcpy(w->some + (size_t)w->somes++ * k, all->some + (size_t)i * k, k * sizeof *w->some);
    w->rows = own ? w->k : all->rows;
}

// Of all rows: what `like` would keep of them, for one set of rows, or for experts from `first` on.
static bool see_all(const calibration *c, int input, const watching *like, watching *u, lq_err *err) {
    lq_rooms *rooms = lq_stream_rooms(c->s);
    const lq_watch *one = like->w;
    const lq_watched what = {one->h || one->by_h, one->g || one->by_g, one->some};
    u->w = calloc((size_t)u->experts, sizeof *u->w);
    bool done = u->w || lq_fail(err, LQ_E_MEMORY, "no memory for %d experts", u->experts);
    for (int e = 0; done && e < u->experts; e++)
        done = lq_watch_open(&u->w[e], u->on, rooms, u->k, &what, err);
    done = done && (u->all ? lq_stream_see(c->s, input, u->paired, look, u, err)
                           : lq_stream_see_apart(c->s, input, u->first + 1, u->paired, look, u, err));
    return done && end_all(u, err);
}

// Experts that were given too little lean on all rows. What experts share one input gives them all the same; what each
// makes of it itself takes another way through the layer for as many as the router would choose.
static bool fill_experts(const calibration *c, int input, watching *t) {
    const bool each = experts_chose(c->b, input), own = !c->b->plan->o->all_experts;
    const int used = experts_used(c->b, input);
    bool done = true;
    for (int e = 0, n; done && e < t->experts; e += n) {
        n = 1;
        if (!lacks(c, t, e)) continue;
        n = !each || t->experts - e < used ? t->experts - e : used;
        watching u = {.on = t->on, .all = !each, .paired = t->paired, .first = t->first + e,
                      .experts = each ? n : 1, .of = t->of, .k = t->k, .edit = t->edit, .work = t->work};
        done = see_all(c, input, t, &u, c->err);
        for (int i = 0; done && i < n; i++) {
            if (!lacks(c, t, e + i)) continue;
            done = lq_watch_here(&t->w[e + i], c->err) && lq_watch_here(&u.w[each ? i : 0], c->err);
            if (done) lean(&t->w[e + i], &u.w[each ? i : 0], own);
        }
        for (int i = 0; u.w && i < u.experts; i++) lq_watch_close(&u.w[i]);
        free(u.w);
    }
    return done;
}

// How many rows the router sent to each, for all matrices of the mixture.
static bool note_reached(const calibration *c, const watching *t) {
    for (lq_module *m = c->b->module; m < c->b->module + c->b->modules; m++) {
        const lq_slot *s = &m->it->slot;
        if (s->role != LQ_R_EXPERT_GATE && s->role != LQ_R_EXPERT_UP && s->role != LQ_R_EXPERT_DOWN) continue;
        if (!s->k || s->count != t->of) continue;
        if (!m->reached) m->reached = calloc((size_t)s->count, sizeof *m->reached);
        if (!m->reached) return lq_fail(c->err, LQ_E_MEMORY, "no memory for %d experts", s->count);
        for (int e = 0; e < t->experts; e++) m->reached[t->first + e] = t->w[e].rows;
        if (m->it->round && !m->note)
            for (int e = 0; e < t->experts; e++)
                if (t->w[e].rows < t->k && !c->b->plan->o->all_experts)
                    m->note = "experts that few rows reached lean on what all rows give them";
    }
    return true;
}

static bool watch_input(const calibration *c, int input, bool all, int first, int count, then_fn *then) {
    const lq_input *in = &c->b->input[input];
    watching t = {.on = lq_stream_on(c->s), .all = all, .first = first, .experts = count, .of = in->count,
                  .k = in->k};
    const size_t k = (size_t)in->k;
    t.paired = then == round_readers && c->b->plan->paired && !(in->count && experts_chose(c->b, input));
    for (const lq_module *m = c->b->module; t.paired && m < c->b->module + c->b->modules; m++)
        if (reads(m, input)) t.edit = &m->edit;
    const unsigned transform = c->b->plan->base.transform;
    const bool moments = then == round_readers || transform & LQ_T_AWQ;
    bool some = then == find_factors && transform & LQ_T_SMOOTH;
    for (const lq_module *m = c->b->module; then == round_readers && m < c->b->module + c->b->modules; m++)
        some |= reads(m, input) && lq_hidden_of(&m->it->slot, &m->it->recipe);
    t.counts = !all && in->count && c->b->plan->o->all_experts;
    t.w = calloc((size_t)count, sizeof *t.w);
    lq_rooms *rooms = lq_stream_rooms(c->s);
    bool done = t.w || lq_fail(c->err, LQ_E_MEMORY, "no memory for %d experts", count);
    if (moments) done = done && (t.work = lq_by_open(t.on, rooms, k * k * sizeof *t.work, c->err)) != NULL;
    for (int e = 0; done && e < count; e++)
        done = lq_watch_open(&t.w[e], t.on, rooms, in->k, &(lq_watched){moments, t.paired, some}, c->err);
    done = done && (all ? lq_stream_see(c->s, input, t.paired, look, &t, c->err)
                        : lq_stream_see_apart(c->s, input, 0, t.paired, look, &t, c->err)) && end_all(&t, c->err) &&
           (!t.routed || (note_reached(c, &t) && fill_experts(c, input, &t)));
    lq_by_close(t.on, rooms, t.work);
    done = done && all_numbers(c, input, &t) && then(c, input, &t);
    for (int e = 0; t.w && e < count; e++) lq_watch_close(&t.w[e]);
    free(t.w);
    return done;
}

// As many experts at once as have room.
static bool watch_experts(const calibration *c, int input, then_fn *then) {
    const lq_input *in = &c->b->input[input];
    const int at_once = c->b->plan->together;
    for (int e = 0; e < in->count; e += at_once)
        if (!watch_input(c, input, false, e, in->count - e < at_once ? in->count - e : at_once, then)) return false;
    return true;
}

// Each transform that looks at text finds factors of an input's columns, which are folded.
static bool find_factors(const calibration *c, int input, const watching *t) {
    float *factor = malloc((size_t)t->k * sizeof *factor);
    bool done = factor || lq_fail(c->err, LQ_E_MEMORY, "no memory for %lld factors", (long long)t->k);
    for (int i = 0; done && i < LQ_TRANSFORMS; i++) {
        if (!(c->b->plan->base.transform >> i & 1) || !lq_transforms[i].search) continue;
        for (int e = 0; done && e < t->experts; e++) {
            const int expert = t->all ? -1 : t->first + e;
            const lq_seek s = {c->dev, c->b, input, expert, &t->w[e], c->tick, c->arg};
            for (int64_t j = 0; j < t->k; j++) factor[j] = 1;
            done = lq_transforms[i].search(&s, factor, c->err) && lq_fold(c->b, input, expert, factor, c->err);
        }
    }
    free(factor);
    return done;
}

static bool seek_input(const calibration *c, int input) {
    bool coded = false;
    for (const lq_module *m = c->b->module; m < c->b->module + c->b->modules; m++)
        coded |= reads(m, input) && m->it->recipe.type.kind != LQ_W_PLAIN && lq_searches(m->it->recipe.transform);
    if (!coded || !lq_fold_can(c->b, input)) return true;
    return lq_fold_each(c->b, input) ? watch_experts(c, input, find_factors)
                                     : watch_input(c, input, true, 0, 1, find_factors);
}

static bool round_input(const calibration *c, int input) {
    bool alone = false, stacks = false;
    for (const lq_module *m = c->b->module; m < c->b->module + c->b->modules; m++) {
        if (!reads(m, input) || !knows(m)) continue;
        alone |= m->it->slot.count == 0;
        stacks |= m->it->slot.count > 0;
    }
    if (alone && !watch_input(c, input, true, 0, 1, round_readers)) return false;
    if (stacks && !watch_experts(c, input, round_readers)) return false;
    for (lq_module *m = c->b->module; m < c->b->module + c->b->modules; m++)
        if (reads(m, input) && m->it->slot.count && m->made && !widen(c, m, m->it->recipe.type.scale)) return false;
    return true;
}

// Whose input is watched before anything is made of it.
static bool waits(const lq_module *m) {
    return knows(m) || (m->it->slot.input >= 0 && lq_acts_reads(m, m->it->slot.input));
}

static bool calibrate_input(const calibration *c, int input) {
    calibration own = *c;
    lq_acts acts = {0};
    bool any = false;
    for (const lq_module *m = c->b->module; m < c->b->module + c->b->modules; m++) any |= lq_acts_reads(m, input);
    if (any && !lq_acts_make(c->s, c->b, input, &acts, c->err)) return false;
    if (any) own.acts = &acts;
    bool done = true;
    for (lq_module *m = c->b->module; done && m < c->b->module + c->b->modules; m++) {
        if (!lq_acts_reads(m, input)) continue;
        if (acts.left) m->note = "more columns reach the threshold than may be kept in 16 bits";
        if (!knows(m)) done = round_all(&own, m);
    }
    done = done && round_input(&own, input);
    lq_acts_close(&acts);
    return done;
}

// The least, the first of equals; what one input loses counts as a share of what it makes.
static double least_alpha(const double *tally) {
    int best = 0;
    for (int i = 1; i <= LQ_ALPHAS; i++) best = tally[i] < tally[best] ? i : best;
    return (double)best / LQ_ALPHAS;
}

static bool tally_inputs(const calibration *c, double *tally) {
    bool done = true;
    c->b->tally = tally;
    for (int i = 0; done && i < c->b->inputs; i++) done = seek_input(c, i);
    c->b->tally = NULL;
    return done;
}

bool lq_calibrate_alpha(lq_stream *s, const lq_plan *p, lq_tick *tick, void *arg, double *out, lq_err *err) {
    double tally[LQ_ALPHAS + 1] = {0};
    bool done = lq_stream_begin(s, err);
    for (size_t i = 1; done && i + 1 < p->blocks; i++) {
        lq_block b;
        const calibration c = {s, &b, lq_stream_dev(s), tick, arg, err, NULL};
        done = lq_block_open(p, i, &b, err) && lq_stream_enter(s, b.layer, err) && tally_inputs(&c, tally) &&
               lq_stream_leave(s, NULL, err);
        lq_block_close(&b);
    }
    *out = least_alpha(tally);
    return done;
}

bool lq_calibrate_block(lq_stream *s, lq_block *b, lq_tick *tick, void *arg, lq_err *err) {
    const calibration c = {s, b, lq_stream_dev(s), tick, arg, err, NULL};
    const lq_recipe *r = &b->plan->base;
    if (r->transform & LQ_T_SMOOTH && r->alpha_of == LQ_ALPHA_LAYER && b->alpha < 0) {
        double tally[LQ_ALPHAS + 1] = {0};
        if (!tally_inputs(&c, tally)) return false;
        b->alpha = least_alpha(tally);
    }
    for (int i = 0; i < b->inputs; i++)
        if (!seek_input(&c, i)) return false;
    for (lq_module *m = b->module; m < b->module + b->modules; m++) {
        const lq_slot *slot = &m->it->slot;
        if (slot->role == LQ_ROLES || slot->role == LQ_R_KV_SCALE) continue;
        if (m->vector || (!slot->k && m->it->recipe.transform)) {
            const float *v = lq_block_vector(b, m, err);
            if (!v) return false;
            lq_stream_put_vector(s, slot, v);
        }
        if (m->it->round && slot->k && !waits(m) && !round_all(&c, m)) return false;
    }
    for (int i = 0; i < b->inputs; i++) {
        if (!tick(arg, (size_t)i, (size_t)b->inputs)) return lq_fail(err, LQ_E_CANCELLED, "stopped");
        if (!calibrate_input(&c, i)) return false;
    }
    return lq_kv_scales(s, b, err);
}
