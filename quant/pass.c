// pass.c: lq_quantize: the pass over a model, block by block: matrices are rounded on all threads, packed and written, their
// pages given back. Owns the device, the buffers of one matrix, and the writer of the output.
//
// What a block came to is kept in the writer's journal beside it, so that the report of a resumed run has every line.
#include "quant/pass.h"
#include "formats/writer.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

// A matrix on its way through the pass, or what the matrices of a stack came to together.
typedef struct module {
    const lq_item *it;
    lq_recipe recipe;
    lq_weight src, out;
    double error, norm, max_error;
    int worst;          // of a stack
    double worst_error;
} module;

typedef struct pass {
    lq_plan plan;
    lq_dev *dev;
    lq_writer *writer;
    lq_quant_row *rows; // [plan.count] of the rounded items, in order
    size_t count;
    size_t resumed, block;
    const char *what;   // for whoever is told of progress
    lq_text note;       // of the block that is being worked on
    void *buf;          // [plan.buffer] codes, scales and zeros of one matrix, as rounded and as packed
    size_t peak;        // most memory of our own that was seen
} pass;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Memory of the process that is not a file's.
static void look_at_memory(pass *p) {
    char line[128];
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f)) {
        size_t kb;
        if (sscanf(line, "RssAnon: %zu", &kb) == 1 && kb * 1024 > p->peak) p->peak = kb * 1024;
    }
    if (f) fclose(f);
}

// --- who may stop us ---

static bool heard(void *arg) {
    const pass *p = arg;
    const lq_quant_opts *o = p->plan.o;
    return !o->tick || o->tick(o->arg, p->block, p->plan.blocks, p->what);
}
static bool heard_at(void *arg, size_t done, size_t total) {
    (void)done;
    (void)total;
    return heard(arg);
}
static bool fail_stopped(const pass *p, lq_err *err) {
    return lq_fail(err, LQ_E_CANCELLED, "stopped after %zu of %zu blocks, which %s.partial keeps: the same command goes on from there", p->block,
                   p->plan.blocks, p->plan.o->out);
}

// --- one matrix ---

// The parts of a weight, one after the other in `at`, each on 64 bytes. Returns what is behind them.
static uint8_t *lay_out(uint8_t *at, const lq_weight_size *size, bool wide_scales, lq_weight_out *out) {
    const size_t sizes[3] = {size->q, wide_scales ? 2 * size->scale : size->scale, size->zero};
    void **const parts[3] = {&out->q, &out->scale, &out->zero};
    for (int i = 0; i < 3; i++) {
        *parts[i] = sizes[i] ? at : NULL;
        at += (sizes[i] + 63) & ~(size_t)63;
    }
    return at;
}

// |W - Q| / |W|
static double relative(double error, double norm) { return norm > 0 ? sqrt(error / norm) : 0; }

static bool add_row(pass *p, const module *m, lq_err *err) {
    const lq_slot *s = &m->it->slot;
    const lq_wtype *type = &m->recipe.type;
    lq_quant_row *r = &p->rows[p->count++];
    *r = (lq_quant_row){.name = strdup(lq_item_name(m->it)), .count = s->count, .n = s->n, .k = s->k,
                        .bits = lq_wtype_bits(type, s->k), .rel_error = relative(m->error, m->norm), .max_error = m->max_error,
                        .worst = m->worst, .worst_error = m->worst_error, .note = ""};
    lq_wtype_name(type, r->type, sizeof r->type);
    if (type->scale != m->it->recipe.type.scale) r->note = "scales in f32: one leaves the normal range of f16";
    return r->name || lq_fail(err, LQ_E_MEMORY, "no memory for the report");
}

static void note_row(pass *p, const module *m) {
    char type[64];
    const char *name = lq_item_name(m->it);
    lq_wtype_name(&m->recipe.type, type, sizeof type);
    lq_text_fmt(&p->note, p->note.n > 1 ? ", {\"name\": " : "{\"name\": ");
    lq_text_json(&p->note, name, strlen(name));
    lq_text_fmt(&p->note, ", \"type\": \"%s\", \"error\": %.17g, \"norm\": %.17g, \"max_error\": %.17g", type, m->error, m->norm,
                m->max_error);
    if (m->it->slot.count) lq_text_fmt(&p->note, ", \"worst\": %d, \"worst_error\": %.17g", m->worst, m->worst_error);
    lq_text_fmt(&p->note, "}");
}

static bool round_module(pass *p, module *m, lq_err *err) {
    const lq_item *it = m->it;
    const lq_wtype *want = &m->recipe.type;
    lq_weight_size any, laid;
    lq_weight_out raw, packed;
    if (!lq_weight_sizes(want, it->slot.n, it->slot.k, &any)) return lq_fail(err, LQ_E_LIMIT, "it is too large");
    uint8_t *behind = lay_out(p->buf, &any, true, &raw);
    lq_matrix x = {.w = &m->src, .dev = p->dev, .q = raw.q, .scale = raw.scale, .zero = raw.zero, .tick = heard, .arg = p};
    if (!lq_quantize_matrix(&m->recipe, &x, err)) return false;
    m->recipe.type = x.type;
    m->error = x.error, m->norm = x.norm, m->max_error = x.max_error;
    m->out = (lq_weight){.type = x.type, .layout = LQ_ANY, .n = it->slot.n, .k = it->slot.k, .q = raw.q, .scale = raw.scale, .zero = raw.zero,
                         .table = lq_wtype_table(&x.type)};
    if (p->plan.layout == LQ_ANY || !lq_layout_sizes(p->plan.layout, &x.type, it->slot.n, it->slot.k, &laid)) return true;
    lay_out(behind, &laid, false, &packed);
    lq_pack(&m->out, p->plan.layout, packed, p->dev->pool);
    m->out.layout = p->plan.layout;
    m->out.q = packed.q;
    m->out.scale = packed.scale;
    m->out.zero = packed.zero;
    return true;
}

// Matrix `at` of an item, rounded or as it is: in m->out until it is let go.
static bool open_module(pass *p, module *m, int at, lq_err *err) {
    const lq_item *it = m->it;
    const char *path = lq_ckpt_path(p->plan.in);
    lq_pick from;
    if (!lq_item_pick(p->plan.in, &it->slot, at, &from))
        return lq_fail(err, LQ_E_LIMIT, "%s: tensor %s: its source's name is too long", path, it->slot.name);
    if (!lq_ckpt_pick(p->plan.in, &from, it->slot.n, it->slot.k, &m->src, NULL, err)) return false;
    m->out = m->src;
    if (!it->round || round_module(p, m, err)) return true;
    lq_ckpt_done(p->plan.in, &m->src);
    if (err->code == LQ_E_CANCELLED) return false;
    if (from.stack) lq_fail_in(err, "matrix %d", at);
    return lq_fail_in(err, "%s: tensor %s", path, it->slot.count ? from.name : it->slot.name);
}

// The matrices of a stack one after the other. *wide: one of them needs scales in F32.
static bool do_matrices(pass *p, module *all, bool *wide, lq_err *err) {
    const lq_slot *s = &all->it->slot;
    if (!lq_writer_stack(p->writer, s->name, &all->recipe.type, s->count, s->n, s->k, err)) return false;
    for (int i = 0; i < s->count; i++) {
        module m = {.it = all->it, .recipe = all->recipe};
        if (!heard(p)) return fail_stopped(p, err);
        if (!open_module(p, &m, i, err)) return false;
        *wide = m.recipe.type.scale != all->recipe.type.scale;
        const bool done = *wide || lq_writer_stack_put(p->writer, &m.out, err);
        look_at_memory(p);
        lq_ckpt_done(p->plan.in, &m.src);
        if (!done || *wide) return done;
        const double error = relative(m.error, m.norm);
        all->error += m.error, all->norm += m.norm;
        all->max_error = fmax(all->max_error, m.max_error);
        if (error > all->worst_error) all->worst = i, all->worst_error = error;
    }
    return true;
}

// All matrices of a stack have one type: where one of them needs scales in F32, it begins anew with such scales for all.
static bool do_stack(pass *p, const lq_item *it, lq_err *err) {
    module all = {.it = it, .recipe = it->recipe};
    bool wide = false;
    if (!do_matrices(p, &all, &wide, err)) return false;
    if (wide) {
        lq_writer_stack_drop(p->writer);
        all = (module){.it = it, .recipe = it->recipe};
        all.recipe.type.scale = LQ_F32;
        if (!do_matrices(p, &all, &wide, err)) return false;
    }
    if (it->round) note_row(p, &all);
    return !it->round || add_row(p, &all, err);
}

// A matrix or vector of the architecture: read, rounded or as it is, written, let go.
static bool do_module(pass *p, const lq_item *it, lq_err *err) {
    const lq_slot *s = &it->slot;
    module m = {.it = it, .recipe = it->recipe};
    if (!open_module(p, &m, 0, err)) return false;
    bool done;
    if (it->round) {
        note_row(p, &m);
        done = add_row(p, &m, err) && lq_writer_weight(p->writer, s->name, &m.out, err);
    } else {
        done = lq_writer_add(p->writer, s->name, m.src.type.elem, s->k ? 2 : 1, (int64_t[]){s->n, s->k}, m.src.q, err);
    }
    look_at_memory(p);
    lq_ckpt_done(p->plan.in, &m.src);
    return done;
}

// --- blocks ---

static bool add_files(pass *p, lq_err *err) {
    char name[LQ_NAME];
    for (size_t i = 0; lq_side_files[i]; i++) {
        lq_bytes file;
        if (!lq_ckpt_file(p->plan.in, lq_side_files[i], &file, err)) return false;
        if (!file.p) continue;
        const int64_t n = (int64_t)file.n;
        snprintf(name, sizeof name, "lq.file/%s", lq_side_files[i]);
        if (!lq_writer_add(p->writer, name, LQ_U8, 1, &n, file.p, err)) return false;
    }
    return true;
}

static bool do_block(pass *p, lq_err *err) {
    const lq_plan *plan = &p->plan;
    lq_text_free(&p->note);
    lq_text_fmt(&p->note, "[");
    if (p->block == 0 && !add_files(p, err)) return false;
    for (size_t i = plan->first[p->block]; i < plan->first[p->block + 1]; i++) {
        const lq_item *it = &plan->items[i];
        if (!heard(p)) return fail_stopped(p, err);
        if (it->slot.role != LQ_ROLES) {
            if (!(it->slot.count ? do_stack : do_module)(p, it, err)) return false;
            continue;
        }
        const lq_tensor *t = it->t;
        if (!lq_writer_add(p->writer, t->name, t->type, t->rank, t->shape, t->data, err)) return false;
        lq_ckpt_drop(plan->in, t);
    }
    lq_text_fmt(&p->note, "]");
    if (p->note.failed) return lq_fail(err, LQ_E_MEMORY, "no memory for the journal of block %zu", p->block);
    return lq_writer_block(p->writer, p->note.p, err);
}

// One line of the report out of what the journal says of its module.
static bool take_row(pass *p, const lq_item *it, const cJSON *note, lq_err *err) {
    static const char *const keys[] = {"error", "norm", "max_error", "worst_error", "worst"};
    const cJSON *m = note ? note->child : NULL;
    const char *name = NULL, *type = NULL;
    double figures[5] = {-1, -1, -1, -1, -1};
    module row = {.it = it, .recipe = it->recipe};
    for (; m; m = m->next)
        if ((name = lq_json_str(m, "name")) && !strcmp(name, lq_item_name(it))) break;
    if (!m || !(type = lq_json_str(m, "type")) || !lq_wtype_parse(type, &row.recipe.type, NULL)) return false;
    for (int i = 0; i < (it->slot.count ? 5 : 3); i++)
        if (!lq_json_num(m, keys[i], &figures[i], "the journal", NULL) || figures[i] < 0) return false;
    row.error = figures[0], row.norm = figures[1], row.max_error = figures[2];
    if (it->slot.count) {
        if (figures[4] >= it->slot.count) return false;
        row.worst_error = figures[3], row.worst = (int)figures[4];
    }
    return add_row(p, &row, err);
}
// What the journal says of a block that an interrupted run finished.
static bool take_block(pass *p, lq_err *err) {
    const char *text = lq_writer_note(p->writer, p->block);
    cJSON *note = NULL;
    const lq_json_limits limits = {64u << 20, 4};
    bool done = lq_json_parse(text, strlen(text), limits, "the journal", &note, err);
    for (size_t i = p->plan.first[p->block]; i < p->plan.first[p->block + 1] && done; i++)
        if (p->plan.items[i].round) done = take_row(p, &p->plan.items[i], note, err);
    cJSON_Delete(note);
    return done || lq_fail(err, LQ_E_FORMAT, "%s.partial: the journal's note of block %zu does not fit the model; start afresh (--fresh)",
                           p->plan.o->out, p->block);
}

static bool do_blocks(pass *p, lq_err *err) {
    const lq_plan *plan = &p->plan;
    char what[32];
    p->resumed = lq_writer_resumed(p->writer);
    if (p->resumed > plan->blocks)
        return lq_fail(err, LQ_E_FORMAT, "%s.partial: its journal has %zu blocks, expected no more than %zu", plan->o->out, p->resumed,
                       plan->blocks);
    p->what = what;
    for (size_t i = 0; i < plan->blocks; i++) {
        p->block = i;
        snprintf(what, sizeof what, i == 0 ? "embedding" : i + 1 == plan->blocks ? "head" : "layer %zu", i - 1);
        if (!heard(p)) return fail_stopped(p, err);
        if (i < p->resumed ? take_block(p, err) : do_block(p, err)) continue;
        return err->code == LQ_E_CANCELLED ? fail_stopped(p, err) : false;
    }
    p->block = plan->blocks;
    return true;
}

// --- the whole ---

// An interrupted run's blocks are of no use where the input has changed since; whoever waits is told why it begins anew.
static void tell_outdated(const pass *p) {
    char line[1200];
    snprintf(line, sizeof line, "%s.partial: its blocks came of %s as it was before it changed: they are made anew", p->plan.o->out, p->plan.o->in);
    if (p->plan.o->plan) p->plan.o->plan(p->plan.o->arg, line);
}

static bool open_writer(pass *p, lq_err *err) {
    const lq_plan *plan = &p->plan;
    lq_text kept = {0};
    if (plan->kept.n) lq_text_fmt(&kept, "[%s]", plan->kept.p);
    const char *const meta[][2] = {{"lq.arch", plan->desc.arch->name}, {"lq.recipe", plan->recipe.p}, {"lq.layout", lq_layout_names[plan->layout]},
                                   {"lq.kept", kept.p}};
    const lq_writer_opts o = {.out = plan->o->out, .fingerprint = plan->fingerprint, .overwrite = plan->o->overwrite,
                              .resume = !plan->o->fresh, .header_room = plan->header_room, .tick = heard_at, .arg = p};
    bool done = !kept.failed || lq_fail(err, LQ_E_MEMORY, "no memory for the names of what is kept");
    done = done && lq_writer_open(&o, &p->writer, err);
    if (done && lq_writer_outdated(p->writer)) tell_outdated(p);
    for (int i = 0; i < 4 && done; i++) done = !meta[i][1] || lq_writer_meta(p->writer, meta[i][0], meta[i][1], err);
    lq_text_free(&kept);
    return done;
}

static void sum_up(pass *p, double start, lq_quant_result *out) {
    struct stat st;
    double bits = 0, weights = 0;
    look_at_memory(p);
    *out = (lq_quant_result){.rows = p->rows, .count = p->count, .in_bytes = lq_ckpt_file_bytes(p->plan.in), .out_bytes = p->plan.out_bytes,
                             .plan_bytes = p->plan.memory, .peak_bytes = p->peak, .blocks = p->plan.blocks, .resumed = p->resumed,
                             .seconds = now() - start};
    char data[4096]; // as long as the output will be: the header's room is in it
    snprintf(data, sizeof data, "%s.partial/data", p->plan.o->out);
    if (!p->plan.o->dry_run && stat(data, &st) == 0) out->out_bytes = (size_t)st.st_size;
    for (size_t i = 0; i < p->plan.count; i++) {
        const lq_item *it = &p->plan.items[i];
        const double n = (double)it->slot.n * (double)it->slot.k * (it->slot.count ? it->slot.count : 1);
        if (it->round || !it->slot.k) continue;
        bits += n * it->recipe.type.bits;
        weights += n;
    }
    for (size_t i = 0; i < p->count; i++) {
        const double n = (double)p->rows[i].n * (double)p->rows[i].k * (p->rows[i].count ? p->rows[i].count : 1);
        bits += n * p->rows[i].bits;
        weights += n;
    }
    out->bits = weights > 0 ? bits / weights : 0;
}

static bool check_data(void *arg, const char *data, lq_err *err) {
    pass *p = arg;
    return lq_validate_data(data, p->plan.in, heard_at, p, NULL, err);
}

// The output and its report appear together: all that can fail is done before either has its name.
static bool publish(pass *p, double start, lq_quant_result *out, lq_err *err) {
    const lq_plan *plan = &p->plan;
    char *report = NULL;
    sum_up(p, start, out);
    if (!lq_report_make(plan, out, lq_pool_threads(p->dev->pool), &report, err)) return false;
    p->what = "checking";
    bool done = heard(p) || fail_stopped(p, err);
    done = done && (plan->report_told || lq_report_put(plan->report.p, report, err));
    if (done && !lq_writer_commit(p->writer, check_data, p, err)) {
        done = false;
        if (!plan->report_told) lq_report_forget(plan->report.p);
        if (err->code == LQ_E_CANCELLED) fail_stopped(p, err);
    }
    done = done && (plan->report_told || lq_report_publish(plan->report.p, err));
    out->seconds = now() - start;
    out->report = done ? report : NULL;
    if (!done) free(report);
    return done;
}

static bool work(pass *p, double start, lq_quant_result *out, lq_err *err) {
    p->buf = aligned_alloc(64, p->plan.buffer + 64);
    if (!p->buf) return lq_fail(err, LQ_E_MEMORY, "no memory for the parts of a matrix (%zu bytes)", p->plan.buffer);
    return open_writer(p, err) && do_blocks(p, err) && publish(p, start, out, err);
}

bool lq_quantize(const lq_quant_opts *o, lq_quant_result *out, lq_err *err) {
    pass p = {.what = "planning"};
    lq_err none;
    const double start = now();
    if (!err) err = &none;
    *out = (lq_quant_result){0};
    bool done = lq_plan_make(o, &p.plan, err) && lq_dev_open("cpu", &(lq_dev_opts){.threads = o->threads}, &p.dev, err);
    if (done) {
        p.rows = calloc(p.plan.count, sizeof *p.rows);
        if (!p.rows) done = lq_fail(err, LQ_E_MEMORY, "no memory for a report of %zu rows", p.plan.count);
    }
    done = done && lq_plan_tell(&p.plan, lq_pool_threads(p.dev->pool), err);
    if (done && o->dry_run) sum_up(&p, start, out);
    else if (done) done = work(&p, start, out, err);
    if (!done) {
        *out = (lq_quant_result){.rows = p.rows, .count = p.count};
        lq_quant_result_free(out);
    }
    // What cannot become a model is not worth going on from.
    if (p.writer) lq_writer_close(p.writer, !done && err->code == LQ_E_FORMAT);
    lq_dev_close(p.dev);
    lq_text_free(&p.note);
    free(p.buf);
    lq_plan_free(&p.plan);
    return done;
}

void lq_quant_result_free(lq_quant_result *r) {
    for (size_t i = 0; i < r->count; i++) free(r->rows[i].name);
    free(r->rows);
    free(r->report);
    *r = (lq_quant_result){0};
}
