// pass.c: lq_quantize: the pass over a model, block by block: what transforms make of it is settled, then its matrices
// are changed and rounded on all threads, packed and written, their pages given back. Owns the device, the buffers of
// one matrix, and the writer of the output.
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

// What became of a matrix, or of the matrices of a stack together.
typedef struct made {
    const lq_module *m;
    const lq_item *it;  // of the module
    lq_recipe recipe;
    lq_weight src, out; // as read, as written
    float scale2;       // of `out`
    double error, norm, max_error;
    int worst;          // of a stack
    double worst_error;
} made;

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
    return lq_fail(err, LQ_E_CANCELLED,
                   "stopped after %zu of %zu blocks, which %s.partial keeps: the same command goes on from there",
                   p->block, p->plan.blocks, p->plan.o->out);
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

static made begin(const lq_module *m) { return (made){.m = m, .it = m->it, .recipe = m->it->recipe}; }

static bool add_row(pass *p, const made *x, lq_err *err) {
    const lq_slot *s = &x->it->slot;
    const lq_wtype *type = &x->recipe.type;
    lq_quant_row *r = &p->rows[p->count++];
    *r = (lq_quant_row){.name = strdup(lq_item_name(x->it)), .count = s->count, .n = s->n, .k = s->k,
                        .bits = lq_wtype_bits(type, s->k), .rel_error = relative(x->error, x->norm),
                        .max_error = x->max_error, .worst = x->worst, .worst_error = x->worst_error, .note = ""};
    lq_wtype_name(type, r->type, sizeof r->type);
    if (type->scale != x->it->recipe.type.scale) r->note = "scales in f32: one leaves the normal range of f16";
    return r->name || lq_fail(err, LQ_E_MEMORY, "no memory for the report");
}

static void note_row(pass *p, const made *x) {
    char type[64];
    const char *name = lq_item_name(x->it);
    lq_wtype_name(&x->recipe.type, type, sizeof type);
    lq_text_fmt(&p->note, p->note.n > 1 ? ", {\"name\": " : "{\"name\": ");
    lq_text_json(&p->note, name, strlen(name));
    lq_text_fmt(&p->note, ", \"type\": \"%s\", \"error\": %.17g, \"norm\": %.17g, \"max_error\": %.17g", type, x->error,
                x->norm, x->max_error);
    if (x->it->slot.count) lq_text_fmt(&p->note, ", \"worst\": %d, \"worst_error\": %.17g", x->worst, x->worst_error);
    lq_text_fmt(&p->note, "}");
}

// `from` is what is rounded: the source, or a changed copy of it.
static bool round_matrix(pass *p, made *x, const lq_weight *from, const lq_edit *edit, lq_err *err) {
    const lq_slot *s = &x->it->slot;
    const lq_wtype *want = &x->recipe.type;
    lq_weight_size any, laid;
    lq_weight_out raw, packed;
    if (!lq_weight_sizes(want, s->n, s->k, &any)) return lq_fail(err, LQ_E_LIMIT, "it is too large");
    uint8_t *behind = lay_out(p->buf, &any, true, &raw);
    lq_matrix m = {.w = from, .edit = edit, .dev = p->dev, .q = raw.q, .scale = raw.scale, .zero = raw.zero,
                   .tick = heard, .arg = p};
    if (!lq_quantize_matrix(&x->recipe, &m, err)) return false;
    x->recipe.type = m.type;
    x->error = m.error, x->norm = m.norm, x->max_error = m.max_error;
    x->out = (lq_weight){.type = m.type, .layout = LQ_ANY, .n = s->n, .k = s->k, .q = raw.q, .scale = raw.scale,
                         .zero = raw.zero, .table = lq_wtype_table(&m.type)};
    x->scale2 = m.scale2;
    if (m.type.scale == LQ_E4M3) x->out.scale2 = &x->scale2;
    if (p->plan.layout == LQ_ANY || !lq_layout_sizes(p->plan.layout, &m.type, s->n, s->k, &laid)) return true;
    lay_out(behind, &laid, false, &packed);
    lq_pack(&x->out, p->plan.layout, packed, p->dev->pool);
    x->out.layout = p->plan.layout;
    x->out.q = packed.q;
    x->out.scale = packed.scale;
    x->out.zero = packed.zero;
    return true;
}

// Where rows are turned the matrix has to be whole; what becomes of columns is done row by row as they are read.
static bool change_and_round(pass *p, made *x, lq_err *err) {
    const lq_edit *edit = &x->m->edit;
    if (!edit->out) return round_matrix(p, x, &x->src, edit->in || edit->column ? edit : NULL, err);
    const int64_t n = x->src.n, k = x->src.k;
    lq_weight whole = {.type = {.kind = LQ_W_PLAIN, .elem = LQ_F32, .bits = 32}, .n = n, .k = k};
    float *copy = malloc((size_t)n * (size_t)k * sizeof *copy);
    whole.q = copy;
    const bool done = (copy || lq_fail(err, LQ_E_MEMORY, "no memory for a matrix of %lld x %lld", (long long)n,
                                       (long long)k)) &&
                      lq_edit_matrix(edit, &x->src, p->dev->pool, copy, err) && round_matrix(p, x, &whole, NULL, err);
    look_at_memory(p);
    free(copy);
    return done;
}

// What stays coded as it came, in the layout of the file.
static bool lay_coded(pass *p, made *x) {
    lq_weight_size laid;
    lq_weight_out packed;
    const lq_wtype *t = &x->src.type;
    if (t->kind == LQ_W_PLAIN || !lq_layout_sizes(p->plan.layout, t, x->src.n, x->src.k, &laid) ||
        p->plan.layout == x->src.layout)
        return true;
    lay_out(p->buf, &laid, false, &packed);
    lq_pack(&x->src, p->plan.layout, packed, p->dev->pool);
    x->out.layout = p->plan.layout;
    x->out.q = packed.q, x->out.scale = packed.scale, x->out.zero = packed.zero;
    return true;
}

// Matrix `at` of a module, rounded or as it is: in x->out until it is let go.
static bool open_matrix(pass *p, made *x, int at, lq_err *err) {
    const lq_slot *s = &x->it->slot;
    const char *path = lq_ckpt_path(p->plan.in);
    lq_pick from;
    if (!lq_item_pick(p->plan.in, x->it, at, &from, err)) return false;
    if (!lq_ckpt_pick(p->plan.in, &from, s->n, s->k, &x->src, NULL, err)) return false;
    x->out = x->src;
    if (x->it->round ? change_and_round(p, x, err) : lay_coded(p, x)) return true;
    lq_ckpt_done(p->plan.in, &x->src);
    if (err->code == LQ_E_CANCELLED) return false;
    if (from.stack) lq_fail_in(err, "matrix %d", at);
    return lq_fail_in(err, "%s: tensor %s", path, s->count ? from.name : s->name);
}

// The matrices of a stack one after the other. *wide: one of them needs scales in F32.
static bool do_matrices(pass *p, made *all, bool *wide, lq_err *err) {
    const lq_slot *s = &all->it->slot;
    if (!lq_writer_stack(p->writer, s->name, &all->recipe.type, s->count, s->n, s->k, err)) return false;
    for (int i = 0; i < s->count; i++) {
        made x = begin(all->m);
        x.recipe = all->recipe;
        if (!heard(p)) return fail_stopped(p, err);
        if (!open_matrix(p, &x, i, err)) return false;
        *wide = x.recipe.type.scale != all->recipe.type.scale;
        const bool done = *wide || lq_writer_stack_put(p->writer, &x.out, err);
        look_at_memory(p);
        lq_ckpt_done(p->plan.in, &x.src);
        if (!done || *wide) return done;
        const double error = relative(x.error, x.norm);
        all->error += x.error, all->norm += x.norm;
        all->max_error = fmax(all->max_error, x.max_error);
        if (error > all->worst_error) all->worst = i, all->worst_error = error;
    }
    return true;
}

// All matrices of a stack have one type: where one of them needs scales in F32, it begins anew with F32 for all.
static bool do_stack(pass *p, const lq_module *m, lq_err *err) {
    made all = begin(m);
    bool wide = false;
    if (!do_matrices(p, &all, &wide, err)) return false;
    if (wide) {
        lq_writer_stack_drop(p->writer);
        all = begin(m);
        all.recipe.type.scale = LQ_F32;
        if (!do_matrices(p, &all, &wide, err)) return false;
    }
    if (m->it->round) note_row(p, &all);
    return !m->it->round || add_row(p, &all, err);
}

// The vectors of a stack as they are, one behind the other.
static bool do_vectors(pass *p, const lq_module *m, lq_err *err) {
    const lq_slot *s = &m->it->slot;
    const lq_dtype elem = m->it->recipe.type.elem;
    const size_t bytes = (size_t)s->n * lq_dtype_size(elem);
    char *all = malloc((size_t)s->count * bytes);
    bool done = all || lq_fail(err, LQ_E_MEMORY, "no memory for %d vectors of %lld", s->count, (long long)s->n);
    for (int i = 0; done && i < s->count; i++) {
        made x = begin(m);
        done = open_matrix(p, &x, i, err);
        if (!done) break;
        if (x.src.type.elem == elem) memcpy(all + (size_t)i * bytes, x.src.q, bytes);
        else done = lq_fail(err, LQ_E_UNSUPPORTED, "tensor %s: vector %d is of another type than the first", s->name, i);
        lq_ckpt_done(p->plan.in, &x.src);
    }
    done = done && lq_writer_add(p->writer, s->name, elem, 2, (int64_t[]){s->count, s->n}, all, err);
    look_at_memory(p);
    free(all);
    return done;
}

// A matrix or vector of the architecture: read, rounded or as it is, written, let go.
static bool do_one(pass *p, const lq_module *m, lq_err *err) {
    const lq_slot *s = &m->it->slot;
    made x = begin(m);
    if (!open_matrix(p, &x, 0, err)) return false;
    bool done;
    if (m->it->round) {
        note_row(p, &x);
        done = add_row(p, &x, err) && lq_writer_weight(p->writer, s->name, &x.out, err);
    } else {
        done = lq_writer_add(p->writer, s->name, x.src.type.elem, s->k ? 2 : 1, (int64_t[]){s->n, s->k}, x.src.q, err);
    }
    look_at_memory(p);
    lq_ckpt_done(p->plan.in, &x.src);
    return done;
}

// A tensor of the output: a weight, a vector that was changed, or what nobody knows.
static bool do_module(pass *p, lq_block *b, lq_module *m, lq_err *err) {
    const lq_slot *s = &m->it->slot;
    const lq_tensor *t = m->it->t;
    if (!heard(p)) return fail_stopped(p, err);
    if (s->role == LQ_ROLES) {
        if (!lq_writer_add(p->writer, t->name, t->type, t->rank, t->shape, t->data, err)) return false;
        lq_ckpt_drop(p->plan.in, t);
        return true;
    }
    if (s->k || !m->it->recipe.transform)
        return (!s->count ? do_one : s->k ? do_stack : do_vectors)(p, m, err);
    const float *v = lq_block_vector(b, m, err);
    const int64_t shape[] = {s->count, s->n};
    return v && lq_writer_add(p->writer, s->name, LQ_F32, s->count ? 2 : 1, shape + !s->count, v, err);
}

// --- blocks ---

// config.json as the output has it: a head that has become a matrix of its own is not tied any more.
static bool untie(const lq_bytes *file, lq_text *out, lq_err *err) {
    const lq_json_limits limits = {16u << 20, 64};
    cJSON *config;
    if (!lq_json_parse(file->p, file->n, limits, "config.json", &config, err)) return false;
    cJSON *const in[] = {config, cJSON_GetObjectItemCaseSensitive(config, "text_config")};
    for (int i = 0; i < 2; i++) {
        if (!cJSON_IsObject(in[i])) continue;
        cJSON_DeleteItemFromObjectCaseSensitive(in[i], "tie_word_embeddings");
        if (!cJSON_AddFalseToObject(in[i], "tie_word_embeddings")) out->failed = true;
    }
    char *text = cJSON_Print(config);
    if (text) lq_text_fmt(out, "%s\n", text);
    cJSON_free(text);
    cJSON_Delete(config);
    return (text && !out->failed) || lq_fail(err, LQ_E_MEMORY, "no memory for config.json");
}

static bool add_file(pass *p, const char *side, lq_err *err) {
    char name[LQ_NAME];
    lq_bytes file;
    lq_text edited = {0};
    bool done = lq_ckpt_file(p->plan.in, side, &file, err);
    if (!done || !file.p) return done;
    if (!strcmp(side, "config.json") && p->plan.in_desc.tied && !p->plan.desc.tied) {
        done = untie(&file, &edited, err);
        file = (lq_bytes){edited.p, edited.n};
    }
    const int64_t n = (int64_t)file.n;
    snprintf(name, sizeof name, "lq.file/%s", side);
    done = done && lq_writer_add(p->writer, name, LQ_U8, 1, &n, file.p, err);
    lq_text_free(&edited);
    return done;
}

static bool add_files(pass *p, lq_err *err) {
    for (size_t i = 0; lq_side_files[i]; i++)
        if (!add_file(p, lq_side_files[i], err)) return false;
    return true;
}

static bool do_block(pass *p, lq_err *err) {
    lq_block b = {0};
    lq_text_free(&p->note);
    lq_text_fmt(&p->note, "[");
    bool done = (p->block > 0 || add_files(p, err)) && lq_block_open(&p->plan, p->block, &b, err);
    for (int i = 0; done && i < b.modules; i++) done = do_module(p, &b, &b.module[i], err);
    lq_block_close(&b);
    if (!done) return false;
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
    made row = {.it = it, .recipe = it->recipe};
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
    return done || lq_fail(err, LQ_E_FORMAT,
                           "%s.partial: the journal's note of block %zu does not fit the model; start afresh (--fresh)",
                           p->plan.o->out, p->block);
}

static bool do_blocks(pass *p, lq_err *err) {
    const lq_plan *plan = &p->plan;
    char what[32];
    p->resumed = lq_writer_resumed(p->writer);
    if (p->resumed > plan->blocks)
        return lq_fail(err, LQ_E_FORMAT, "%s.partial: its journal has %zu blocks, expected no more than %zu",
                       plan->o->out, p->resumed, plan->blocks);
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

// An interrupted run's blocks are of no use where the input has changed since; whoever waits is told so.
static void tell_outdated(const pass *p) {
    char line[1200];
    snprintf(line, sizeof line, "%s.partial: its blocks came of %s as it was before it changed: they are made anew",
             p->plan.o->out, p->plan.o->in);
    if (p->plan.o->plan) p->plan.o->plan(p->plan.o->arg, line);
}

static bool open_writer(pass *p, lq_err *err) {
    const lq_plan *plan = &p->plan;
    lq_text kept = {0};
    if (plan->kept.n) lq_text_fmt(&kept, "[%s]", plan->kept.p);
    const char *const meta[][2] = {{"lq.arch", plan->desc.arch->name}, {"lq.recipe", plan->recipe.p},
                                   {"lq.layout", lq_layout_names[plan->layout]}, {"lq.kept", kept.p}};
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
    *out = (lq_quant_result){.rows = p->rows, .count = p->count, .in_bytes = lq_ckpt_file_bytes(p->plan.in),
                             .out_bytes = p->plan.out_bytes, .plan_bytes = p->plan.memory, .peak_bytes = p->peak,
                             .blocks = p->plan.blocks, .resumed = p->resumed, .seconds = now() - start};
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
