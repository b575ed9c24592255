// pass.c: lq_quantize: the pass over a model, block by block: what transforms make of it is settled, then its matrices
// are changed and rounded on all threads, packed and written, their pages given back. Owns the device, the buffers of
// one matrix, and the writer of the output.
//
// What a block came to is kept in the writer's journal beside it, so that the report of a resumed run has every line.
#include "quant/prune.h"
#include "formats/writer.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct pass {
    lq_plan plan;
    lq_dev *dev, *cpu;  // dev: the CPU, or that with what it has lent
    lq_stream *stream;  // of calibration; NULL: there is none
    lq_writer *writer;
    lq_ahead *ahead;
    lq_quant_row *rows; // [plan.count] of the rounded items, in order
    size_t count;
    size_t resumed, block;
    const char *what;   // for whoever is told of progress
    double begun, times; // when the layer at hand began, 0: none is; how many times its plan the one before took
    size_t part, parts; // of the layer at hand: which of its inputs, of how many; 0: it has none that are watched
    lq_text note;       // of the block that is being worked on
    char scratch[4096]; // where what memory does not hold lies
    double *drift;      // [layers] of the result; NULL: not known
    void *buf;          // [plan.buffer] codes, scales and zeros of one matrix, as rounded and as packed
    size_t peak;        // most memory of our own that was seen
} pass;

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

// How much is done, counted in blocks of the same time: by the plan, and of the layer at hand by how far the one before
// it was off.
static double share_done(const pass *p) {
    const lq_plan *plan = &p->plan;
    double sum = 0, all = 0;
    if (!plan->pace || plan->seconds <= 0) return (double)p->block;
    for (size_t i = 0; i <= plan->blocks; i++) {
        all += plan->pace[i];
        if (i < p->block) sum += plan->pace[i];
    }
    if (p->begun > 0 && plan->pace[p->block] > 0)
        sum += fmin((lq_now() - p->begun) / p->times, 0.99 * plan->pace[p->block]);
    return (double)plan->blocks * sum / all;
}

static bool heard(void *arg) {
    pass *p = arg;
    const lq_quant_opts *o = p->plan.o;
    char what[64];
    look_at_memory(p);
    if (!o->tick) return true;
    if (p->parts) snprintf(what, sizeof what, "%s, input %zu of %zu", p->what, p->part + 1, p->parts);
    return o->tick(o->arg, share_done(p), p->plan.blocks, p->parts ? what : p->what);
}

static bool heard_at(void *arg, size_t done, size_t total) {
    (void)done;
    (void)total;
    return heard(arg);
}

static bool heard_input(void *arg, size_t input, size_t inputs) {
    pass *p = arg;
    if (inputs) p->part = input, p->parts = inputs;
    return heard(arg);
}

static bool fail_stopped(const pass *p, lq_err *err) {
    return lq_fail(err, LQ_E_CANCELLED,
                   "stopped after %zu of %zu blocks, which %s.partial keeps: the same command goes on from there",
                   p->block, p->plan.blocks, p->plan.o->out);
}

// --- one matrix ---

// |W - Q| / |W|
static double relative(double error, double norm) { return norm > 0 ? sqrt(error / norm) : 0; }

// What became of a module: of a stack, of its matrices together.
typedef struct told {
    const lq_item *it;
    lq_wtype type;
    double error, norm, max_error, loss, plain, out_norm;
    int worst;          // of a stack
    int outliers;
    double alpha;
    double worst_error;
    const int64_t *reached; // [count]
    const char *note;
} told;

static told tell(const lq_module *m) {
    return (told){.it = m->it, .type = m->made ? m->made[0].recipe.type : m->it->recipe.type,
                  .alpha = m->alpha, .reached = m->reached, .note = m->note ? m->note : ""};
}

static void tell_more(told *t, const lq_made *x, int at) {
    const double error = relative(x->error, x->norm);
    t->type = x->recipe.type;
    t->outliers = x->out.outliers;
    t->error += x->error, t->norm += x->norm;
    t->loss += x->loss, t->plain += x->loss_plain, t->out_norm += x->loss_norm;
    t->max_error = fmax(t->max_error, x->max_error);
    if (error > t->worst_error) t->worst = at, t->worst_error = error;
}

static bool add_row(pass *p, const told *t, lq_err *err) {
    const lq_slot *s = &t->it->slot;
    lq_quant_row *r = &p->rows[p->count++];
    *r = (lq_quant_row){.name = strdup(lq_item_name(t->it)), .count = s->count, .n = s->n, .k = s->k,
                        .layer = s->layer, .kind = lq_quant_kind(s), .before = t->it->before, .error = t->error,
                        .norm = t->norm, .loss = t->loss, .loss_plain = t->plain, .loss_norm = t->out_norm,
                        .outliers = t->outliers, .alpha = t->alpha,
                        .bits = lq_wtype_bits(&t->type, s->k) + 16.0 * t->outliers / (double)s->k,
                        .rel_error = relative(t->error, t->norm),
                        .max_error = t->max_error, .worst = t->worst,
                        .worst_error = s->count ? t->worst_error : 0, .out_error = -1, .out_plain = -1};
    if (t->out_norm > 0) r->out_error = relative(t->loss, t->out_norm), r->out_plain = relative(t->plain, t->out_norm);
    lq_wtype_name(&t->type, r->type, sizeof r->type);
    const bool wide = t->type.scale != t->it->recipe.type.scale;
    r->note = strdup(wide ? "scales in f32: one leaves the normal range of f16" : t->note ? t->note : "");
    const size_t bytes = t->reached ? (size_t)s->count * sizeof *r->reached : 0;
    if (bytes && (r->reached = malloc(bytes))) memcpy(r->reached, t->reached, bytes);
    if (!r->name || !r->note || (bytes && !r->reached)) return lq_fail(err, LQ_E_MEMORY, "no memory for the report");
    if (p->plan.o->module) p->plan.o->module(p->plan.o->arg, r);
    return true;
}

static void note_row(pass *p, const told *t) {
    char type[64];
    const char *name = lq_item_name(t->it);
    lq_wtype_name(&t->type, type, sizeof type);
    lq_text_fmt(&p->note, p->note.n > 1 ? ", {\"name\": " : "{\"name\": ");
    lq_text_json(&p->note, name, strlen(name));
    lq_text_fmt(&p->note, ", \"type\": \"%s\", \"error\": %.17g, \"norm\": %.17g, \"max_error\": %.17g", type, t->error,
                t->norm, t->max_error);
    if (t->out_norm > 0)
        lq_text_fmt(&p->note, ", \"loss\": %.17g, \"plain\": %.17g, \"out_norm\": %.17g", t->loss, t->plain, t->out_norm);
    if (t->it->slot.count) lq_text_fmt(&p->note, ", \"worst\": %d, \"worst_error\": %.17g", t->worst, t->worst_error);
    if (t->alpha > 0) lq_text_fmt(&p->note, ", \"alpha\": %.17g", t->alpha);
    if (t->outliers) lq_text_fmt(&p->note, ", \"outliers\": %d", t->outliers);
    for (int e = 0; t->reached && e < t->it->slot.count; e++)
        lq_text_fmt(&p->note, e ? ", %lld" : ", \"reached\": [%lld", (long long)t->reached[e]);
    if (t->reached) lq_text_fmt(&p->note, "]");
    if (t->note && *t->note) lq_text_fmt(&p->note, ", \"note\": \"%s\"", t->note);
    lq_text_fmt(&p->note, "}");
}

// In the layout of the file, behind what may stand in the buffer as it was rounded.
static void lay(pass *p, lq_made *x) {
    lq_weight_size laid;
    lq_weight_out packed;
    const lq_wtype *t = &x->out.type;
    const lq_layout to = t->kind == LQ_W_PLAIN ? x->out.layout : lq_layout_in(p->plan.layout, t, x->out.n, x->out.k);
    if (to == x->out.layout || !lq_layout_sizes(to, t, x->out.n, x->out.k, &laid)) return;
    const bool inside = x->out.q == (void *)p->buf;
    uint8_t *at = (uint8_t *)p->buf + (inside ? lq_module_bytes(t, x->out.n, x->out.k) : 0);
    lq_lay_out(at, &laid, false, &packed);
    lq_pack(&x->out, to, packed, p->dev->pool);
    x->out.layout = to;
    x->out.q = packed.q, x->out.scale = packed.scale, x->out.zero = packed.zero;
}

// What comes behind matrix `at` of a module is read by the system while that is worked on.
static void read_next(const pass *p, const lq_module *m, int at) {
    const lq_item *it = m->it;
    lq_pick pick;
    if (++at >= it->slot.count) it++, at = 0;
    if (it == p->plan.items + p->plan.count || it->slot.role == LQ_ROLES) return;
    if (!lq_item_pick(p->plan.in, it, at, &pick, NULL)) return;
    const lq_tensor *t = lq_ckpt_find(p->plan.in, pick.name);
    if (!t) return;
    const size_t each = pick.stack ? t->bytes / (size_t)pick.stack : t->bytes;
    lq_ckpt_soon(p->plan.in, (const char *)t->data + (size_t)pick.at * each, each);
}

// Matrix `at` of a module, rounded or as it is: in x->out until it is let go.
static bool open_matrix(pass *p, const lq_module *m, int at, lq_made *x, lq_err *err) {
    if (m->made) {
        *x = m->made[at];
    } else {
        read_next(p, m, at);
        if (!lq_module_make(&p->plan, p->dev, m, at, NULL, p->buf, heard_at, p, x, err)) return false;
    }
    if (x->out.type.scale == LQ_E4M3) x->out.scale2 = &x->scale2;
    lay(p, x);
    return true;
}

static void close_matrix(pass *p, const lq_module *m, const lq_made *x) {
    if (!m->made) lq_ckpt_done(p->plan.in, &x->src);
}

// The matrices of a stack one after the other. *wide: one of them needs scales in F32.
static bool do_matrices(pass *p, const lq_module *m, told *all, bool *wide, lq_err *err) {
    const lq_slot *s = &m->it->slot;
    const lq_wtype type = all->type;
    if (!lq_writer_stack(p->writer, s->name, &type, s->count, s->n, s->k, err)) return false;
    for (int i = 0; i < s->count; i++) {
        lq_made x = {.recipe = m->it->recipe};
        x.recipe.type = type;
        if (!heard(p)) return fail_stopped(p, err);
        if (!open_matrix(p, m, i, &x, err)) return false;
        *wide = x.recipe.type.scale != type.scale;
        const bool done = *wide || lq_writer_stack_put(p->writer, &x.out, err);
        close_matrix(p, m, &x);
        if (!done || *wide) return done;
        tell_more(all, &x, i);
    }
    return true;
}

// All matrices of a stack have one type: where one of them needs scales in F32, it begins anew with F32 for all.
static bool do_stack(pass *p, const lq_module *m, lq_err *err) {
    told all = tell(m);
    bool wide = false;
    if (!do_matrices(p, m, &all, &wide, err)) return false;
    if (wide) {
        lq_writer_stack_drop(p->writer);
        all = tell(m);
        all.type.scale = LQ_F32;
        if (!do_matrices(p, m, &all, &wide, err)) return false;
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
        lq_made x = {.recipe = m->it->recipe};
        done = open_matrix(p, m, i, &x, err);
        if (!done) break;
        if (x.src.type.elem == elem) memcpy(all + (size_t)i * bytes, x.src.q, bytes);
        else done = lq_fail(err, LQ_E_UNSUPPORTED, "tensor %s: vector %d is of another type than the first", s->name, i);
        close_matrix(p, m, &x);
    }
    done = done && lq_writer_add(p->writer, s->name, elem, 2, (int64_t[]){s->count, s->n}, all, err);
    free(all);
    return done;
}

// A matrix or vector of the architecture: read, rounded or as it is, written, let go.
static bool do_one(pass *p, const lq_module *m, lq_err *err) {
    const lq_slot *s = &m->it->slot;
    lq_made x = {.recipe = m->it->recipe};
    told t = tell(m);
    bool done;
    if (!open_matrix(p, m, 0, &x, err)) return false;
    if (m->it->round) {
        tell_more(&t, &x, 0);
        note_row(p, &t);
        done = add_row(p, &t, err) && lq_writer_weight(p->writer, s->name, &x.out, err);
    } else if (x.out.type.kind != LQ_W_PLAIN) {
        done = lq_writer_weight(p->writer, s->name, &x.out, err);
    } else {
        done = lq_writer_add(p->writer, s->name, x.src.type.elem, s->k ? 2 : 1, (int64_t[]){s->n, s->k}, x.src.q, err);
    }
    close_matrix(p, m, &x);
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
    if (s->k || (!m->it->recipe.transform && !m->vector))
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
    if (done && p->stream && b.layer >= 0)
        done = lq_stream_enter(p->stream, b.layer, err) && lq_calibrate_block(p->stream, &b, heard_input, p, err);
    for (int i = 0; done && i < b.modules; i++) done = do_module(p, &b, &b.module[i], err);
    lq_block_close(&b);
    if (!done) return false;
    lq_text_fmt(&p->note, "]");
    if (p->note.failed) return lq_fail(err, LQ_E_MEMORY, "no memory for the journal of block %zu", p->block);
    return lq_writer_block(p->writer, p->note.p, err);
}

// --- what calibration goes on with ---

// A weight of a finished block as the file has it, so that a resumed run computes with the same bits as one that was
// not interrupted.
static bool put_back(pass *p, const lq_item *it, lq_err *err) {
    const lq_slot *s = &it->slot;
    const int count = s->count ? s->count : 1;
    if (s->role == LQ_ROLES || s->role == LQ_R_KV_SCALE) return true; // no part of a forward in f32
    const bool vector = !s->k || s->flat; // those of a stack are the rows of one
    const size_t n = (size_t)count * (size_t)(s->k ? s->n * s->k : s->n);
    lq_weight *w = malloc((size_t)count * sizeof *w);
    float *v = vector ? malloc(n * sizeof *v) : NULL;
    bool done = (w && (v || !vector)) || lq_fail(err, LQ_E_MEMORY, "no memory for %d weights", count);
    done = done && lq_writer_weight_back(p->writer, s->name, vector ? 0 : s->count, w, err);
    for (int i = 0; done && !vector && i < count; i++) done = lq_stream_put(p->stream, s->role, i, &w[i], err);
    if (done && vector) {
        lq_dtypes[w->type.elem].to_f32(w->q, v, n);
        lq_stream_put_vector(p->stream, s, v);
    }
    free(v);
    free(w);
    return done;
}

// The same of what stands before the layers.
static bool put_top(pass *p, const lq_item *it, lq_err *err) {
    lq_weight w;
    if (!it->slot.k || it->slot.role == LQ_ROLES) return true;
    return lq_writer_weight_back(p->writer, it->slot.name, 0, &w, err) &&
           lq_stream_put_top(p->stream, it->slot.role, &w, err);
}

// The text goes through a block that is finished.
static bool go_on(pass *p, bool entered, lq_err *err) {
    const lq_plan *plan = &p->plan;
    if (!p->stream || p->block + 1 == plan->blocks) return true;
    if (p->block == 0) {
        for (size_t i = 0; i < plan->first[1]; i++)
            if (!put_top(p, &plan->items[i], err)) return false;
        return lq_stream_begin(p->stream, err);
    }
    if (!entered && !lq_stream_enter(p->stream, (int)p->block - 1, err)) return false;
    for (size_t i = plan->first[p->block]; i < plan->first[p->block + 1]; i++)
        if (!put_back(p, &plan->items[i], err)) return false;
    const bool left = lq_stream_leave(p->stream, p->drift ? &p->drift[p->block - 1] : NULL, err);
    lq_writer_rest(p->writer);
    return left;
}

// What the router sent to each expert, in *out (free); not there: NULL. False: it is no list of as many counts.
static bool take_reached(const cJSON *m, int count, int64_t **out, lq_err *err) {
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(m, "reached"), *x = list ? list->child : NULL;
    *out = NULL;
    if (!list) return true;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != count || !count) return false;
    if (!(*out = malloc((size_t)count * sizeof **out))) return lq_fail(err, LQ_E_MEMORY, "no memory for the report");
    for (int e = 0; e < count; e++, x = x->next) {
        if (!cJSON_IsNumber(x) || !(x->valuedouble >= 0 && x->valuedouble < 0x1p53)) return false;
        (*out)[e] = (int64_t)x->valuedouble;
    }
    return true;
}

// One line of the report out of what the journal says of its module.
static bool take_row(pass *p, const lq_item *it, const cJSON *note, lq_err *err) {
    told t = {.it = it, .type = it->recipe.type};
    double worst = 0, outliers = 0;
    const struct { const char *key; double *to; bool must; } figures[] = {
        {"error", &t.error, true}, {"norm", &t.norm, true}, {"max_error", &t.max_error, true},
        {"loss", &t.loss, false}, {"plain", &t.plain, false}, {"out_norm", &t.out_norm, false},
        {"outliers", &outliers, false}, {"alpha", &t.alpha, false}, {"worst_error", &t.worst_error, it->slot.count > 0},
        {"worst", &worst, it->slot.count > 0}};
    const cJSON *m = note ? note->child : NULL;
    const char *name = NULL, *type = NULL;
    for (; m; m = m->next)
        if ((name = lq_json_str(m, "name")) && !strcmp(name, lq_item_name(it))) break;
    if (!m || !(type = lq_json_str(m, "type")) || !lq_wtype_parse(type, &t.type, NULL)) return false;
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        double x = figures[i].must ? -1 : 0;
        if (!lq_json_num(m, figures[i].key, &x, "the journal", NULL) || !(x >= 0)) return false;
        *figures[i].to = x;
    }
    if (worst > 0 && worst >= it->slot.count) return false;
    if (outliers > (double)it->slot.k) return false;
    t.worst = (int)worst, t.outliers = (int)outliers;
    t.note = lq_json_str(m, "note");
    int64_t *reached;
    bool done = take_reached(m, it->slot.count, &reached, err);
    t.reached = reached;
    done = done && add_row(p, &t, err);
    free(reached);
    return done;
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
        p->begun = i > 0 && i + 1 < plan->blocks ? lq_now() : 0;
        if ((i >= p->resumed || p->stream) && !heard(p)) return fail_stopped(p, err);
        if (i + 1 >= p->resumed || plan->paired) lq_ahead_next(p->ahead, i + 1);
        if ((i < p->resumed ? take_block(p, err) : do_block(p, err)) && go_on(p, i >= p->resumed, err)) {
            if (i >= p->resumed && p->begun > 0 && plan->pace[i] > 0) p->times = (lq_now() - p->begun) / plan->pace[i];
            p->parts = 0;
            continue;
        }
        return err->code == LQ_E_CANCELLED ? fail_stopped(p, err) : false;
    }
    p->block = plan->blocks;
    p->begun = 0;
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
                             .plan_seconds = p->plan.seconds,
                             .blocks = p->plan.blocks, .resumed = p->resumed, .seconds = lq_now() - start,
                             .layers = p->plan.desc.layers, .drift = p->drift};
    if (p->plan.o->pruned) out->in_bytes = p->plan.o->pruned->in_bytes;
    char data[4096]; // as long as the output will be: the header's room is in it
    snprintf(data, sizeof data, "%s.partial/data", p->plan.o->out);
    if (!p->plan.o->dry_run && stat(data, &st) == 0) out->out_bytes = (size_t)st.st_size;
    for (size_t i = 0; i < p->plan.count; i++) {
        const lq_item *it = &p->plan.items[i];
        const double n = (double)it->slot.n * (double)it->slot.k * (it->slot.count ? it->slot.count : 1);
        if (it->round || !it->slot.k) continue;
        const bool coded = it->recipe.type.kind != LQ_W_PLAIN;
        const double own = n * (coded ? lq_wtype_bits(&it->recipe.type, it->slot.k) : it->recipe.type.bits);
        bits += own;
        weights += n;
        out->kept += it->slot.count ? it->slot.count : 1;
        out->kept_weights += n, out->kept_bytes += own / 8;
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
    out->seconds = lq_now() - start;
    out->report = done ? report : NULL;
    if (!done) free(report);
    return done;
}

static void help(void *pool, lq_share *fn, void *arg, int tasks) { lq_pool_run(pool, fn, arg, tasks); }

// The models that calibration runs bring a device, whose threads are then used for all; or they run on the one that is
// lent, beside a CPU of the same kind.
static bool open_stream(pass *p, lq_err *err) {
    lq_plan *plan = &p->plan;
    snprintf(p->scratch, sizeof p->scratch, "%s.partial", plan->o->out);
    plan->rooms.folder = p->scratch;
    const lq_stream_opts o = {.in = plan->o->in, .desc = &plan->desc, .text = &plan->calib,
                              .threads = lq_pool_threads(p->dev->pool), .on = lq_lend_far(plan->o->lent),
                              .paired = plan->paired, .rooms = &plan->rooms, .spill = plan->spill,
                              .tick = heard_at, .arg = p};
    lq_dev_close(p->cpu);
    p->dev = p->cpu = NULL;
    const lq_dev_opts like = {.threads = o.threads, .numerics = LQ_NUM_EXACT, .rough = true};
    if ((o.on && !lq_dev_open("cpu", &like, &p->cpu, err)) || !lq_stream_open(&o, &p->stream, err)) return false;
    // What stands between layers is compared with itself in its own basis, or not at all.
    if (plan->paired && !(plan->base.transform & LQ_T_ROTATE)) {
        p->drift = calloc((size_t)plan->desc.layers, sizeof *p->drift);
        if (!p->drift) return lq_fail(err, LQ_E_MEMORY, "no memory for a report of %d layers", plan->desc.layers);
    }
    if (!o.on) p->cpu = lq_dev_use(lq_stream_dev(p->stream));
    p->dev = lq_lend(plan->o->lent, p->cpu);
    lq_ckpt_runner(plan->in, help, p->cpu->pool, lq_pool_threads(p->cpu->pool));
    lq_stream_lend(p->stream, p->dev);
    const int64_t k = plan->widest;
    if (!p->dev->ops.reserve(p->dev, &(lq_dev_limits){.rows = 1 << 16, .outs = 1, .k = (int)k, .n = (int)k,
                                                      .vocab = 1}, err)) return false;
    const lq_recipe *r = &plan->base;
    if (!(r->transform & LQ_T_SMOOTH) || r->alpha_of != LQ_ALPHA_MODEL || r->alpha > 0) return true;
    p->what = "one alpha for the model";
    return lq_calibrate_alpha(p->stream, plan, heard_at, p, &plan->alpha, err);
}

static bool work(pass *p, double start, lq_quant_result *out, lq_err *err) {
    p->buf = aligned_alloc(64, p->plan.buffer + 64);
    if (!p->buf) return lq_fail(err, LQ_E_MEMORY, "no memory for the parts of a matrix (%zu bytes)", p->plan.buffer);
    if (open_writer(p, err) && lq_ahead_open(&p->plan, &p->ahead, err) &&
        (!p->plan.calibrates || open_stream(p, err)) && do_blocks(p, err) &&
        publish(p, start, out, err)) return true;
    if (err->code == LQ_E_FORMAT && (p->stream || p->plan.base.transform)) lq_plan_odd(&p->plan, err);
    // Before the blocks, and in what knows nothing of them, nobody has said yet what is kept.
    if (err->code != LQ_E_CANCELLED) return false;
    if (!p->writer)
        return lq_fail(err, LQ_E_CANCELLED, "stopped while what %s.partial keeps was read: the same command goes on from "
                       "there", p->plan.o->out);
    if (p->block < lq_writer_resumed(p->writer)) p->block = lq_writer_resumed(p->writer);
    return fail_stopped(p, err);
}

static bool quantize(const lq_quant_opts *o, lq_quant_result *out, lq_err *err) {
    pass p = {.what = "planning", .times = 1};
    const double start = lq_now();
    bool done = lq_plan_make(o, &p.plan, err) &&
                lq_dev_open("cpu", &(lq_dev_opts){.threads = o->threads}, &p.cpu, err);
    if (done) {
        p.dev = lq_lend(o->lent, p.cpu);
        lq_ckpt_runner(p.plan.in, help, p.dev->pool, lq_pool_threads(p.dev->pool));
        p.rows = calloc(p.plan.count, sizeof *p.rows);
        if (!p.rows) done = lq_fail(err, LQ_E_MEMORY, "no memory for a report of %zu rows", p.plan.count);
    }
    done = done && lq_plan_device(&p.plan, p.dev, err) && lq_pace_make(&p.plan, p.dev, err) &&
           lq_plan_tell(&p.plan, lq_pool_threads(p.dev->pool), err);
    if (done && o->dry_run) sum_up(&p, start, out);
    else if (done) done = work(&p, start, out, err);
    if (!done) {
        *out = (lq_quant_result){.rows = p.rows, .count = p.count, .drift = p.drift};
        lq_quant_result_free(out);
    }
    // What cannot become a model is not worth going on from.
    const bool over = p.writer && (done || err->code == LQ_E_FORMAT);
    if (p.writer) lq_writer_close(p.writer, !done && over);
    if (over) lq_measured_forget(o->out);
    lq_ahead_close(p.ahead);
    if (p.cpu) lq_dev_close(p.cpu);
    lq_stream_close(p.stream);
    lq_text_free(&p.note);
    free(p.buf);
    lq_plan_free(&p.plan);
    return done;
}

bool lq_quantize(const lq_quant_opts *o, lq_quant_result *out, lq_err *err) {
    lq_err none;
    lq_quant_opts rest = *o;
    lq_pruned pruned;
    const double start = lq_now();
    if (!err) err = &none;
    *out = (lq_quant_result){0};
    if (o->fresh && !o->dry_run && o->out && !lq_measured_empty(o, err)) return false;
    if (!lq_lend_open(o, &rest.lent, err)) return false;
    bool done = !o->prune || lq_prune_make(&rest, &pruned, err);
    const bool made = done && o->prune;
    if (made && !o->dry_run) rest.in = pruned.path;
    if (made) rest.pruned = &pruned;
    done = done && quantize(&rest, out, err);
    if (done) out->seconds = lq_now() - start;
    if (made) lq_pruned_free(&pruned, done && !o->dry_run);
    lq_lend_close(rest.lent);
    return done;
}

void lq_quant_result_free(lq_quant_result *r) {
    for (size_t i = 0; i < r->count; i++) free(r->rows[i].name), free(r->rows[i].note), free(r->rows[i].reached);
    free(r->rows);
    free(r->drift);
    free(r->report);
    *r = (lq_quant_result){0};
}
