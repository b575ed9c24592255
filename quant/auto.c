// auto.c: which type each part of a model gets, so that all of it fits a size and what it says changes least. Owns the
// list of units while it is at work; what comes out is a recipe, the same as a person could write.
//
// A unit is what must have one type: the matrices of a layer that read one input; and the embedding, and the head,
// where no option says what they become. Each is rounded coarsely by itself, and the model's probabilities are held
// against its own (probe.c): that is what the unit's errors cost. What another type would cost follows from how much
// larger or smaller its errors are. Then the cheapest choice of types for the size: of each unit those types that lie
// on the lower hull of cost over bytes, the best trade first. What was measured is kept (measured.c): neither an
// interrupted run nor another target measures it again.
#include "quant/pass.h"
#include "quant/probe.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static const char *const types[] = {"int2 g32",  "int3 g128", "int3 g32",  "int4 g128",
                                    "int4 g32", "int5 g128", "int6 g128", "int8 g128"};
enum { TYPES = sizeof types / sizeof *types, PROBE = 1, POINTS = 16 };

typedef struct unit {
    int layer, input;
    bool stacks;
    const lq_item *item[LQ_MATS * 2];
    int items;
    double kld, error[TYPES];          // measured: of the probe; mean squared relative error in each type
    double cost[TYPES], bytes[TYPES];
    int hull[TYPES], points;           // types of the hull, by bytes
    int at;                            // which of them it has
} unit;

typedef struct automatic {
    const lq_quant_opts *o;
    lq_plan plan;                      // with every unit in the smallest type
    lq_probe *probe;                   // once there is something to measure
    lq_dev *on, *cpu, *dev;            // where that runs, NULL: on a CPU; who rounds, and its CPU where that is another
    lq_measured *kept;
    unit *unit;
    size_t units;
    size_t measured;                   // in this run
    double fixed, weights;             // bytes of all that no unit has; weights of all matrices
} automatic;

// --- units ---

static bool in_unit(const automatic *a, const lq_item *it) {
    if (!it->round || !it->slot.quantizable || it->slot.role == LQ_ROLES) return false;
    const char *option, *asked = lq_type_asked(&a->plan, &it->slot, &option);
    return it->slot.layer >= 0 || !asked || !strcmp(option, "type");
}

static double item_bytes(const lq_item *it, const lq_wtype *t) {
    lq_weight_size size;
    if (!lq_weight_sizes(t, it->slot.n, it->slot.k, &size)) return 0;
    return (double)(it->slot.count ? it->slot.count : 1) * (double)(size.q + size.scale + size.zero);
}

static bool add_item(automatic *a, const lq_item *it, lq_err *err) {
    const lq_slot *s = &it->slot;
    const bool stacks = s->count > 0;
    unit *u = NULL;
    for (size_t i = 0; i < a->units && !u; i++)
        if (s->layer >= 0 && a->unit[i].layer == s->layer && a->unit[i].input == s->input &&
            a->unit[i].stacks == stacks)
            u = &a->unit[i];
    if (!u) {
        if ((a->units & (a->units - 1)) == 0) {
            unit *more = realloc(a->unit, (a->units ? 2 * a->units : 1) * sizeof *more);
            if (!more) return lq_fail(err, LQ_E_MEMORY, "no memory for a list");
            a->unit = more;
        }
        u = &a->unit[a->units++];
        *u = (unit){.layer = s->layer, .input = s->input, .stacks = stacks};
    }
    if (u->items == LQ_MATS * 2)
        return lq_fail(err, LQ_E_LIMIT, "layer %d: more than %d matrices read one input", s->layer, LQ_MATS * 2);
    u->item[u->items++] = it;
    return true;
}

static bool find_units(automatic *a, lq_err *err) {
    double coded = 0;
    for (size_t i = 0; i < a->plan.count; i++) {
        const lq_item *it = &a->plan.items[i];
        if (!in_unit(a, it)) continue;
        coded += item_bytes(it, &it->recipe.type);
        if (!add_item(a, it, err)) return false;
    }
    for (unit *u = a->unit; u < a->unit + a->units; u++)
        for (int i = 0; i < TYPES; i++) {
            lq_wtype t;
            if (!lq_wtype_parse(types[i], &t, err)) return false;
            for (int k = 0; k < u->items; k++) u->bytes[i] += item_bytes(u->item[k], &t);
        }
    a->fixed = (double)a->plan.out_bytes - coded;
    a->weights = (double)a->plan.weights;
    return a->units || lq_fail(err, LQ_E_USAGE, "%s: it has no matrices to choose types for", a->o->in);
}

// --- what errors cost ---

// Rounds every matrix of a unit to a type: the mean of their squared relative errors; with `put` the model has them.
static bool round_unit(automatic *a, const unit *u, const lq_wtype *t, void **held, double *error, lq_err *err) {
    double sum = 0;
    int n = 0, all = 0;
    for (int i = 0; i < u->items; i++) {
        const lq_slot *s = &u->item[i]->slot;
        lq_module m = {.it = u->item[i]};
        for (int at = 0; at < (s->count ? s->count : 1); at++, all++) {
            lq_made x = {.recipe = {.type = *t}};
            const size_t bytes = (lq_module_bytes(t, s->n, s->k) + 63) & ~(size_t)63;
            void *buf = aligned_alloc(64, bytes);
            if (!buf) return lq_fail(err, LQ_E_MEMORY, "no memory for a matrix of %zu bytes", bytes);
            bool done = lq_module_make(&a->plan, a->dev, &m, at, NULL, buf, NULL, NULL, &x, err);
            if (done) lq_ckpt_done(a->plan.in, &x.src);
            if (done && x.norm > 0) sum += x.error / x.norm, n++;
            if (done && held) done = lq_probe_put(a->probe, s->layer, s->role, at, &x.out, err);
            if (done && held) held[all] = buf;
            else free(buf);
            if (!done) return false;
        }
    }
    *error = n ? sum / n : 0;
    return true;
}

static bool heard(const automatic *a, size_t i, lq_err *err) {
    char what[64];
    snprintf(what, sizeof what, "measuring, unit %zu of %zu", i + 1, a->units);
    return !a->o->tick || a->o->tick(a->o->arg, 0.0, a->plan.blocks, what) ||
           lq_fail(err, LQ_E_CANCELLED, "stopped after %zu of %zu measurements%s%s%s", i, a->units,
                   a->o->dry_run ? "" : ", which ", a->o->dry_run ? "" : a->o->out,
                   a->o->dry_run ? "" : ".partial keeps: the same command goes on from there");
}

static bool probe_unit(automatic *a, unit *u, lq_err *err) {
    lq_wtype t;
    size_t all = 0;
    for (int i = 0; i < u->items; i++) all += (size_t)(u->item[i]->slot.count ? u->item[i]->slot.count : 1);
    void **held = calloc(all, sizeof *held);
    bool done = held || lq_fail(err, LQ_E_MEMORY, "no memory for %zu matrices", all);
    done = done && lq_wtype_parse(types[PROBE], &t, err) && round_unit(a, u, &t, held, &u->error[PROBE], err) &&
           lq_probe_kld(a->probe, &u->kld, err);
    lq_probe_restore(a->probe);
    for (size_t i = 0; held && i < all; i++) free(held[i]);
    free(held);
    for (int i = 0; done && i < TYPES; i++)
        done = i == PROBE || (lq_wtype_parse(types[i], &t, err) && round_unit(a, u, &t, NULL, &u->error[i], err));
    return done;
}

// Units are rounded as the pass does it, wherever the model runs that they are tried in.
static bool open_probe(automatic *a, lq_err *err) {
    const lq_dev_opts like = {.threads = a->o->threads, .numerics = LQ_NUM_EXACT};
    char where[128];
    lq_whole_words(a->o, a->on, where, sizeof where);
    if (a->o->lent) lq_tell(a->o, "auto: what errors cost is measured%s", where);
    if (!lq_probe_open(a->o->in, &a->plan.calib, a->on, a->o->threads, &a->probe, err)) return false;
    if (a->on && !lq_dev_open("cpu", &like, &a->cpu, err)) return false;
    a->dev = lq_lend(a->o->lent, a->cpu ? a->cpu : lq_probe_dev(a->probe));
    return true;
}

// What the unit costs in each type, by what was measured now or by an interrupted run.
static bool measure_unit(automatic *a, size_t at, lq_err *err) {
    unit *u = &a->unit[at];
    double figures[1 + TYPES];
    if (lq_measured_get(a->kept, at, figures, 1 + TYPES)) {
        u->kld = figures[0];
        memcpy(u->error, figures + 1, sizeof u->error);
    } else {
        if (!heard(a, at, err)) return false;
        if (!a->probe && !open_probe(a, err)) return false;
        if (!probe_unit(a, u, err)) return false;
        figures[0] = u->kld;
        memcpy(figures + 1, u->error, sizeof u->error);
        if (!lq_measured_put(a->kept, at, figures, 1 + TYPES, err)) return false;
        a->measured++;
    }
    for (int i = 0; i < TYPES; i++)
        u->cost[i] = u->error[PROBE] > 0 ? fmax(u->kld, 0) * u->error[i] / u->error[PROBE] : 0;
    return true;
}

// Everything that a measurement depends on.
static bool hash_all(const automatic *a, uint64_t *out, lq_err *err) {
    const lq_calib *c = &a->plan.calib;
    const char *input = strchr(a->plan.fingerprint, '.');
    const int64_t numbers[] = {LQ_QUANT_NUMERICS, c->len, TYPES, PROBE};
    char isa[192];
    if (!lq_whole_isa(a->on, isa, sizeof isa, err)) return false;
    uint64_t h = XXH64(input, strlen(input), XXH64(numbers, sizeof numbers, XXH64(isa, strlen(isa), 0)));
    h = XXH64(c->ids, c->samples * (size_t)c->len * sizeof *c->ids, h);
    for (int i = 0; i < TYPES; i++) h = XXH64(types[i], strlen(types[i]) + 1, h);
    for (size_t i = 0; i < a->units; i++)
        for (int k = 0; k < a->unit[i].items; k++) {
            const char *name = a->unit[i].item[k]->slot.name;
            h = XXH64(name, strlen(name) + (k == 0), h);
        }
    *out = h;
    return true;
}

// --- the choice ---

// The types that no mix of others beats, from the smallest on.
static void find_hull(unit *u) {
    u->points = 0;
    for (int at = -1;;) {
        int best = -1;
        double steepest = 0;
        for (int i = 0; i < TYPES; i++) {
            if (at < 0) { // the least bytes, and of those the least cost
                if (best < 0 || u->bytes[i] < u->bytes[best] ||
                    (u->bytes[i] == u->bytes[best] && u->cost[i] < u->cost[best])) best = i;
                continue;
            }
            const double fall = u->cost[at] - u->cost[i], bytes = u->bytes[i] - u->bytes[at];
            if (bytes <= 0 || fall <= 0 || fall / bytes <= steepest) continue;
            steepest = fall / bytes;
            best = i;
        }
        if (best < 0) return;
        u->hull[u->points++] = at = best;
    }
}

static int type_of(const unit *u) { return u->hull[u->at]; }

static double gain_of(const unit *u, double *bytes) {
    const int from = type_of(u), to = u->hull[u->at + 1];
    *bytes = u->bytes[to] - u->bytes[from];
    return u->cost[from] - u->cost[to];
}

// The best trades while there is room. Returns the bytes that are taken; *cost is what it should come to.
static double choose(automatic *a, double room, double *cost) {
    double taken = 0;
    for (size_t i = 0; i < a->units; i++) a->unit[i].at = 0, taken += a->unit[i].bytes[type_of(&a->unit[i])];
    for (;;) {
        unit *best = NULL;
        double steepest = 0, more = 0;
        for (size_t i = 0; i < a->units; i++) {
            unit *u = &a->unit[i];
            double bytes;
            if (u->at + 1 >= u->points) continue;
            const double gain = gain_of(u, &bytes);
            if (taken + bytes > room || gain / bytes <= steepest) continue;
            steepest = gain / bytes, best = u, more = bytes;
        }
        if (!best) break;
        best->at++;
        taken += more;
    }
    *cost = 0;
    for (size_t i = 0; i < a->units; i++) *cost += a->unit[i].cost[type_of(&a->unit[i])];
    return taken;
}

static double bits_of(const automatic *a, double bytes) { return bytes * 8 / a->weights; }

// Bytes of the matrices that no unit has.
static double other_matrices(const automatic *a) {
    double sum = 0;
    for (size_t i = 0; i < a->plan.count; i++) {
        const lq_item *it = &a->plan.items[i];
        if (it->slot.k && it->slot.role != LQ_ROLES && !in_unit(a, it)) sum += item_bytes(it, &it->recipe.type);
    }
    return sum;
}

// The bytes that units may take. A target that no types could keep to is refused, before anything is measured.
static bool room_of(const automatic *a, double *room, lq_err *err) {
    double least = 0;
    if (a->o->target_size) *room = (double)a->o->target_size - a->fixed;
    else *room = a->o->target_bits * a->weights / 8 - other_matrices(a);
    for (size_t i = 0; i < a->units; i++) {
        double own = a->unit[i].bytes[0];
        for (int t = 1; t < TYPES; t++) own = fmin(own, a->unit[i].bytes[t]);
        least += own;
    }
    if (least <= *room) return true;
    return lq_fail(err, LQ_E_USAGE, "%s: even in %s it takes %.2f bits a weight, %.1f MB in all: more than the target", a->o->in,
                   types[0], bits_of(a, least + other_matrices(a)), (least + a->fixed) / 1e6);
}

// --- what comes out ---

static void write_rules(const automatic *a, lq_text *out) {
    lq_text_fmt(out, "{\"modules\": [");
    bool first = true;
    for (size_t i = 0; i < a->units; i++)
        for (int k = 0; k < a->unit[i].items; k++) {
            const char *name = a->unit[i].item[k]->slot.name;
            lq_text_fmt(out, first ? "{\"match\": " : ", {\"match\": ");
            lq_text_json(out, name, strlen(name));
            lq_text_fmt(out, ", \"type\": \"%s\"}", types[type_of(&a->unit[i])]);
            first = false;
        }
    lq_text_fmt(out, "]}");
}

// What other sizes would come to, by the same measurements; and what each unit's probe did.
static void write_curve(automatic *a, double room, lq_text *out) {
    double least = 0, most = 0, cost;
    for (size_t i = 0; i < a->units; i++) {
        least += a->unit[i].bytes[a->unit[i].hull[0]];
        most += a->unit[i].bytes[a->unit[i].hull[a->unit[i].points - 1]];
    }
    lq_text_fmt(out, "{\"probe\": \"%s\", \"tokens\": %zu, \"curve\": [", types[PROBE],
                a->plan.calib.samples * (size_t)a->plan.calib.len);
    for (int i = 0; i < POINTS; i++) {
        const double taken = choose(a, least + (most - least) * i / (POINTS - 1), &cost);
        lq_text_fmt(out, "%s{\"bits\": %.4f, \"bytes\": %.0f, \"kld\": %.6g}", i ? ", " : "",
                    bits_of(a, taken + other_matrices(a)), taken + a->fixed, cost);
    }
    const double taken = choose(a, room, &cost);
    lq_text_fmt(out, "], \"chosen\": {\"bits\": %.4f, \"bytes\": %.0f, \"kld\": %.6g}, \"units\": [",
                bits_of(a, taken + other_matrices(a)), taken + a->fixed, cost);
    for (size_t i = 0; i < a->units; i++) {
        const unit *u = &a->unit[i];
        lq_text_fmt(out, "%s{\"layer\": %d, \"input\": %d, \"first\": ", i ? ", " : "", u->layer, u->input);
        lq_text_json(out, u->item[0]->slot.name, strlen(u->item[0]->slot.name));
        lq_text_fmt(out, ", \"probe_kld\": %.6g, \"type\": \"%s\", \"kld\": %.6g}", u->kld, types[type_of(u)],
                    u->cost[type_of(u)]);
    }
    lq_text_fmt(out, "]}");
}

static bool open_all(automatic *a, lq_quant_opts *o, double *room, lq_err *err) {
    lq_calib *c = &a->plan.calib;
    *o = *a->o;
    o->method = "rtn", o->recipe = NULL, o->type = types[0], o->plan = NULL, o->target_bits = 0, o->target_size = 0;
    o->samples = LQ_PROBES;
    if (!lq_plan_make(o, &a->plan, err) || !find_units(a, err) || !room_of(a, room, err) ||
        !lq_calib_open(o, a->plan.desc.ctx, c, err)) return false;
    o->plan = a->o->plan;
    if (!lq_self_write(o, c, err)) return false;
    lq_probe_fit(c, a->plan.desc.vocab);
    uint64_t of;
    const size_t more = lq_stream_cost(&a->plan.desc, c, false, a->plan.desc.dim).chunk;
    return lq_whole_on(a->o, a->o->in, more, &a->on, err) && hash_all(a, &of, err) &&
           lq_measured_open(a->o, of, &a->kept, err);
}

bool lq_auto(const lq_quant_opts *o, lq_text *rules, lq_text *told, size_t *measured, lq_err *err) {
    automatic a = {.o = o};
    lq_quant_opts own;
    double room, cost;
    bool done = open_all(&a, &own, &room, err);
    for (size_t i = 0; done && i < a.units; i++) {
        done = measure_unit(&a, i, err);
        find_hull(&a.unit[i]);
    }
    if (done) {
        write_curve(&a, room, told);
        choose(&a, room, &cost);
        write_rules(&a, rules);
        done = (!rules->failed && !told->failed) || lq_fail(err, LQ_E_MEMORY, "no memory for a recipe");
    }
    if (!done && err->code == LQ_E_FORMAT) lq_plan_odd(&a.plan, err);
    *measured = a.measured;
    lq_probe_close(a.probe);
    if (a.cpu) lq_dev_close(a.cpu);
    lq_measured_close(a.kept);
    lq_plan_free(&a.plan);
    free(a.unit);
    return done;
}
