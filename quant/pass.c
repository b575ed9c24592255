// pass.c: lq_quantize: the pass over a model, block by block: matrices are rounded on all threads, packed and written, their
// pages given back. Owns the device, the buffers of one matrix, and the writer of the output.
//
// What a block came to is kept in the writer's journal beside it, so that the report of a resumed run has every line.
#include "quant/pass.h"
#include "formats/writer.h"
#include "kernels/pack.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef struct pass {
    lq_plan plan;
    lq_dev *dev;
    lq_writer *writer;
    lq_quant_row *rows; // [plan.count] of the rounded items, in order
    size_t count;
    size_t resumed;
    lq_text note;       // of the block that is being worked on
    void *buf;          // [plan.buffer] codes, scales and zeros of one matrix, as rounded and as packed
} pass;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
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

static void note_row(pass *p, const lq_matrix *m, const char *type) {
    lq_text_fmt(&p->note, "%s[\"%s\", %.17g, %.17g, %.17g]", p->note.n > 1 ? ", " : "", type, m->error, m->norm, m->max_error);
}
static void add_row(pass *p, const lq_item *it, const lq_wtype *type, double error, double norm, double max_error) {
    lq_quant_row *r = &p->rows[p->count++];
    *r = (lq_quant_row){.n = it->n, .k = it->k, .bits = lq_wtype_bits(type, it->k), .rel_error = norm > 0 ? sqrt(error / norm) : 0,
                        .max_error = max_error};
    snprintf(r->name, sizeof r->name, "%s", it->t->name);
    lq_wtype_name(type, r->type, sizeof r->type);
    if (type->scale != it->recipe.type.scale) snprintf(r->note, sizeof r->note, "scales in f32: one leaves the normal range of f16");
}

static bool round_item(pass *p, const lq_item *it, lq_err *err) {
    lq_weight_size any, laid;
    lq_weight_out raw, packed;
    char type[64];
    const lq_wtype *want = &it->recipe.type;
    if (!lq_weight_sizes(want, it->n, it->k, &any)) return lq_fail(err, LQ_E_LIMIT, "tensor %s is too large", it->t->name);
    uint8_t *behind = lay_out(p->buf, &any, true, &raw);
    const lq_weight src = {.type = {.kind = LQ_W_PLAIN, .elem = it->t->type}, .n = it->n, .k = it->k, .q = it->t->data};
    lq_matrix m = {.w = &src, .dev = p->dev, .q = raw.q, .scale = raw.scale, .zero = raw.zero};
    if (!lq_quantize_matrix(&it->recipe, &m, err)) return lq_fail_in(err, "%s: tensor %s", lq_ckpt_path(p->plan.in), it->t->name);
    lq_weight w = {.type = m.type, .layout = LQ_ANY, .n = it->n, .k = it->k, .q = m.q, .scale = m.scale, .zero = m.zero};
    if (p->plan.layout != LQ_ANY && lq_layout_sizes(p->plan.layout, &m.type, it->n, it->k, &laid)) {
        lay_out(behind, &laid, false, &packed);
        lq_pack(&w, p->plan.layout, packed, p->dev->pool);
        w.layout = p->plan.layout;
        w.q = packed.q;
        w.scale = packed.scale;
        w.zero = packed.zero;
    }
    lq_wtype_name(&m.type, type, sizeof type);
    note_row(p, &m, type);
    add_row(p, it, &m.type, m.error, m.norm, m.max_error);
    return lq_writer_weight(p->writer, it->t->name, &w, err);
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

static bool do_block(pass *p, size_t block, lq_err *err) {
    const lq_plan *plan = &p->plan;
    lq_text_free(&p->note);
    lq_text_fmt(&p->note, "[");
    if (block == 0 && !add_files(p, err)) return false;
    for (size_t i = plan->first[block]; i < plan->first[block + 1]; i++) {
        const lq_item *it = &plan->items[i];
        const lq_tensor *t = it->t;
        if (!(it->round ? round_item(p, it, err) : lq_writer_add(p->writer, t->name, t->type, t->rank, t->shape, t->data, err))) return false;
        lq_ckpt_drop(plan->in, t);
    }
    lq_text_fmt(&p->note, "]");
    if (p->note.failed) return lq_fail(err, LQ_E_MEMORY, "no memory for the journal of block %zu", block);
    return lq_writer_block(p->writer, p->note.p, err);
}

// What the journal says of a block that an interrupted run finished.
static bool take_block(pass *p, size_t block, lq_err *err) {
    const char *text = lq_writer_note(p->writer, block);
    cJSON *note = NULL;
    const lq_json_limits limits = {16u << 20, 4};
    bool done = lq_json_parse(text, strlen(text), limits, "the journal", &note, err);
    const cJSON *row = note ? note->child : NULL;
    for (size_t i = p->plan.first[block]; i < p->plan.first[block + 1] && done; i++) {
        const lq_item *it = &p->plan.items[i];
        const cJSON *f = row ? row->child : NULL;
        lq_wtype type;
        if (!it->round) continue;
        done = f && f->next && f->next->next && f->next->next->next && cJSON_IsString(f) && lq_wtype_parse(f->valuestring, &type, NULL);
        if (done) add_row(p, it, &type, f->next->valuedouble, f->next->next->valuedouble, f->next->next->next->valuedouble);
        row = row ? row->next : NULL;
    }
    cJSON_Delete(note);
    return done || lq_fail(err, LQ_E_FORMAT, "%s.partial: the journal's note of block %zu does not fit the model; start afresh (--fresh)",
                           p->plan.o->out, block);
}

static bool do_blocks(pass *p, lq_err *err) {
    const lq_plan *plan = &p->plan;
    p->resumed = lq_writer_resumed(p->writer);
    if (p->resumed > plan->blocks)
        return lq_fail(err, LQ_E_FORMAT, "%s.partial: its journal has %zu blocks, expected no more than %zu", plan->o->out, p->resumed,
                       plan->blocks);
    for (size_t i = 0; i < plan->blocks; i++) {
        char what[32];
        snprintf(what, sizeof what, i == 0 ? "embedding" : i + 1 == plan->blocks ? "head" : "layer %zu", i - 1);
        if (plan->o->tick && !plan->o->tick(plan->o->arg, i, plan->blocks, what))
            return lq_fail(err, LQ_E_CANCELLED,
                           "stopped after %zu of %zu blocks, which %s.partial keeps: the same command goes on from there", i, plan->blocks,
                           plan->o->out);
        if (!(i < p->resumed ? take_block(p, i, err) : do_block(p, i, err))) return false;
    }
    return true;
}

// --- the whole ---

static bool open_writer(pass *p, lq_err *err) {
    static const char *const keys[] = {"lq.arch", "lq.recipe", "lq.layout"};
    const lq_plan *plan = &p->plan;
    const char *const values[] = {plan->desc.arch->name, plan->recipe.p, lq_layout_names[plan->layout]};
    const lq_writer_opts o = {.out = plan->o->out, .fingerprint = plan->fingerprint, .overwrite = plan->o->overwrite,
                              .resume = !plan->o->fresh, .header_room = plan->header_room};
    if (!lq_writer_open(&o, &p->writer, err)) return false;
    for (int i = 0; i < 3; i++)
        if (!lq_writer_meta(p->writer, keys[i], values[i], err)) return false;
    return true;
}

// --force replaces what lq wrote, never somebody's checkpoint.
static bool check_output(const lq_quant_opts *o, lq_err *err) {
    lq_ckpt *old = NULL;
    struct stat st;
    if (stat(o->out, &st)) return true;
    if (S_ISDIR(st.st_mode)) return lq_fail(err, LQ_E_USAGE, "%s: is a directory, expected the name of a file", o->out);
    if (!o->overwrite) return lq_fail(err, LQ_E_USAGE, "%s: is there already; --force replaces it", o->out);
    if (!lq_ckpt_open(o->out, &old, NULL)) return true;
    const bool ours = !strcmp(lq_ckpt_container(old), "lq");
    lq_ckpt_close(old);
    return ours || lq_fail(err, LQ_E_USAGE, "%s: is a checkpoint that lq did not write; it is not replaced", o->out);
}

static void sum_up(const pass *p, double start, lq_quant_result *out) {
    struct rusage use;
    struct stat st;
    double bits = 0, weights = 0;
    *out = (lq_quant_result){.rows = p->rows, .count = p->count, .in_bytes = lq_ckpt_file_bytes(p->plan.in), .out_bytes = p->plan.out_bytes,
                             .plan_bytes = p->plan.memory, .blocks = p->plan.blocks, .resumed = p->resumed, .seconds = now() - start};
    char data[4096]; // as long as the output will be: the header's room is in it
    snprintf(data, sizeof data, "%s.partial/data", p->plan.o->out);
    if (!p->plan.o->dry_run && stat(data, &st) == 0) out->out_bytes = (size_t)st.st_size;
    if (getrusage(RUSAGE_SELF, &use) == 0) out->peak_bytes = (size_t)use.ru_maxrss * 1024;
    for (size_t i = 0; i < p->plan.count; i++) {
        const lq_item *it = &p->plan.items[i];
        if (it->round || !it->k) continue;
        bits += 8 * (double)it->t->bytes;
        weights += (double)it->n * (double)it->k;
    }
    for (size_t i = 0; i < p->count; i++) {
        const double n = (double)p->rows[i].n * (double)p->rows[i].k;
        bits += n * p->rows[i].bits;
        weights += n;
    }
    out->bits = weights > 0 ? bits / weights : 0;
}

// The report goes first: when the output has its name, everything that belongs to it is there.
static bool publish(pass *p, double start, lq_quant_result *out, lq_err *err) {
    const lq_quant_opts *o = p->plan.o;
    lq_check check;
    sum_up(p, start, out);
    if (!lq_report_write(&p->plan, out, lq_pool_threads(p->dev->pool), err)) return false;
    if (o->tick) o->tick(o->arg, p->plan.blocks, p->plan.blocks, "writing");
    if (!lq_writer_commit(p->writer, NULL, NULL, err)) return false;
    if (o->tick) o->tick(o->arg, p->plan.blocks, p->plan.blocks, "checking");
    if (!lq_validate(o->out, o->in, &check, err)) {
        unlink(o->out); // nothing that fails its own check keeps the name
        return false;
    }
    out->seconds = now() - start;
    return true;
}

static bool work(pass *p, double start, lq_quant_result *out, lq_err *err) {
    p->buf = aligned_alloc(64, p->plan.buffer + 64);
    if (!p->buf) return lq_fail(err, LQ_E_MEMORY, "no memory for the parts of a matrix (%zu bytes)", p->plan.buffer);
    return open_writer(p, err) && do_blocks(p, err) && publish(p, start, out, err);
}

bool lq_quantize(const lq_quant_opts *o, lq_quant_result *out, lq_err *err) {
    pass p = {0};
    lq_err none;
    const double start = now();
    if (!err) err = &none;
    *out = (lq_quant_result){0};
    bool done = lq_plan_make(o, &p.plan, err) && (o->dry_run || check_output(o, err)) && lq_dev_open("cpu", &(lq_dev_opts){.threads = o->threads}, &p.dev, err);
    if (done) {
        p.rows = calloc(p.plan.count, sizeof *p.rows);
        if (!p.rows) done = lq_fail(err, LQ_E_MEMORY, "no memory for a report of %zu rows", p.plan.count);
    }
    done = done && lq_plan_tell(&p.plan, lq_pool_threads(p.dev->pool), err);
    if (done && o->dry_run) sum_up(&p, start, out);
    else if (done) done = work(&p, start, out, err);
    if (!done) {
        free(p.rows);
        *out = (lq_quant_result){0};
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
    free(r->rows);
    *r = (lq_quant_result){0};
}
