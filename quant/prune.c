// prune.c: a model of which something goes before it is quantized: what is asked is read, what goes is chosen
// (worth.c), and what stays is written to OUT.cut.lq and, refitted (refit.c), to OUT.pruned.lq, in the types that the
// checkpoint has, which the pass then reads in its place and which is gone when the pass is done. Owns these files
// while they are made. A run that was interrupted while they were made begins anew; one that was interrupted later
// finds it there.
//
// Refused: shares and depths that leave nothing, and what a model's config.json cannot say.
#include "quant/probe.h"
#include "quant/prune.h"
#include "formats/writer.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static const char meta_told[] = "lq.pruned", meta_id[] = "lq.pruned.id";

// --- what is asked ---

static bool read_depth(const char *word, const char *value, lq_prune *out, lq_err *err) {
    char *end;
    const long depth = value ? strtol(value, &end, 10) : 0;
    if (!value || end == value || *end || depth < 1 || depth > 4095)
        return lq_fail(err, LQ_E_USAGE, "prune: %s \"%s\", expected how many layers go, at least 1", word,
                       value ? value : "");
    if (out->depth) return lq_fail(err, LQ_E_USAGE, "prune: how many layers go is said twice");
    out->depth = (int)depth;
    out->influence = *word == 'i';
    return true;
}

static bool read_word(const char *word, size_t n, lq_prune *out, lq_err *err) {
    const struct { const char *name; double *to[3]; } widths[] = {
        {"width", {&out->mlp, &out->heads, &out->hidden}}, {"mlp", {&out->mlp}}, {"heads", {&out->heads}},
        {"hidden", {&out->hidden}}};
    char own[64], *end, *value;
    snprintf(own, sizeof own, "%.*s", (int)(n < sizeof own ? n : sizeof own - 1), word);
    value = strchr(own, ':');
    if (value) *value++ = 0;
    if (!strcmp(own, "depth") || !strcmp(own, "influence")) return read_depth(own, value, out, err);
    for (int i = 0; i < 4; i++) {
        if (strcmp(own, widths[i].name) != 0) continue;
        const double share = value ? strtod(value, &end) : 0;
        if (!value || end == value || *end || !(share > 0 && share <= 1))
            return lq_fail(err, LQ_E_USAGE, "prune: %s \"%s\", expected the share that stays, more than 0 and at most 1",
                           own, value ? value : "");
        for (int k = 0; k < 3 && widths[i].to[k]; k++) {
            if (*widths[i].to[k] > 0) return lq_fail(err, LQ_E_USAGE, "prune: %s is said twice", own);
            *widths[i].to[k] = share;
        }
        return true;
    }
    return lq_fail(err, LQ_E_USAGE, "prune: \"%s\" is nothing that can go; expected depth:N, influence:N, width:X, mlp:X, "
                   "heads:X or hidden:X", own);
}

bool lq_prune_read(const char *text, lq_prune *out, lq_err *err) {
    *out = (lq_prune){0};
    for (const char *at = text;; at++) {
        const size_t n = strcspn(at, ",");
        if (!read_word(at, n, out, err)) return false;
        at += n;
        if (!*at) return true;
    }
}

// --- the file ---

typedef struct pruning {
    const lq_quant_opts *o;
    lq_plan whole;      // of the model as it was
    lq_prune what;
    lq_calib text, probes;
    lq_dev *on;         // where the whole model runs, if its layers are tried; NULL: on a CPU
    lq_cut cut;
    lq_desc desc;       // of what is left
    lq_text config;
    lq_writer *writer;
    lq_refit *refit;    // NULL: matrices are written as they are cut
    lq_pruned *out;
} pruning;

static bool refits(const pruning *p) { return !p->whole.base.as_cut; }

static bool heard(void *arg, size_t done, size_t total) {
    const pruning *p = arg;
    (void)done;
    (void)total;
    return !p->o->tick || p->o->tick(p->o->arg, 0, p->whole.blocks, "pruning");
}

static bool told(const pruning *p, lq_err *err) {
    return heard((void *)(uintptr_t)p, 0, 0) || lq_fail(err, LQ_E_CANCELLED, "stopped");
}

// A weight on its way: the slot that it becomes and the one that it was.
typedef struct moving {
    const lq_slot *to, *from;
    lq_stay stay;
    lq_weight src, w;   // as it is, what stays of it
    void *held;
    int slot;
} moving;

static bool open_weight(pruning *p, moving *m, int at, lq_err *err) {
    lq_pick pick;
    lq_stay_free(&m->stay);
    const lq_weight *made = p->refit && m->to->layer >= 0 ? lq_refit_made(p->refit, m->slot, at) : NULL;
    m->src = (lq_weight){0};
    if (made) m->w = *made;
    if (made) return told(p, err);
    if (!told(p, err) || !lq_stay_of(&p->whole.in_desc, &p->cut, m->from, at, &m->stay, err) ||
        !lq_source_pick(p->whole.in, m->from, at, &pick, err) ||
        !lq_ckpt_pick(p->whole.in, &pick, m->from->n, m->from->k, &m->src, NULL, err))
        return false;
    if (lq_stay_take(&m->stay, &m->src, m->to->n, m->to->k, &m->held, &m->w, err)) return true;
    lq_ckpt_done(p->whole.in, &m->src);
    return lq_fail_in(err, "%s: tensor %s", lq_ckpt_path(p->whole.in), pick.name);
}

static void close_weight(pruning *p, moving *m) {
    if (m->src.q) lq_ckpt_done(p->whole.in, &m->src);
    free(m->held);
    m->held = NULL;
}

// Matrices of a stack, one after the other.
static bool write_stack(pruning *p, moving *m, lq_err *err) {
    const lq_slot *to = m->to;
    bool done = true;
    for (int i = 0; done && i < to->count; i++) {
        if (!open_weight(p, m, i, err)) return false;
        done = (i || lq_writer_stack(p->writer, to->name, &m->w.type, to->count, to->n, to->k, err)) &&
               lq_writer_stack_put(p->writer, &m->w, err);
        close_weight(p, m);
    }
    return done;
}

// The vectors of a stack, one behind the other.
static bool write_vectors(pruning *p, moving *m, lq_err *err) {
    const lq_slot *to = m->to;
    const int64_t shape[] = {to->count, to->n};
    char *all = NULL;
    bool done = true;
    for (int i = 0; done && i < to->count; i++) {
        done = open_weight(p, m, i, err);
        if (!done) break;
        const size_t bytes = (size_t)to->n * lq_dtype_size(m->w.type.elem);
        if (!all) all = malloc((size_t)to->count * bytes);
        if (all) memcpy(all + (size_t)i * bytes, m->w.q, bytes);
        else done = lq_fail(err, LQ_E_MEMORY, "no memory for %d vectors of %" PRId64, to->count, to->n);
        close_weight(p, m);
    }
    done = done && lq_writer_add(p->writer, to->name, m->w.type.elem, 2, shape, all, err);
    free(all);
    return done;
}

static bool write_one(pruning *p, moving *m, lq_err *err) {
    const lq_slot *to = m->to;
    const int64_t shape[] = {to->n, to->k};
    if (!open_weight(p, m, 0, err)) return false;
    const bool done = m->w.type.kind != LQ_W_PLAIN ? lq_writer_weight(p->writer, to->name, &m->w, err)
        : lq_writer_add(p->writer, to->name, m->w.type.elem, to->k ? 2 : 1, shape, m->w.q, err);
    close_weight(p, m);
    return done;
}

// The slots of a layer, or of the model before (`ahead`) or behind its layers.
static bool write_slots(pruning *p, int layer, bool ahead, lq_err *err) {
    int n, was;
    lq_slot *to = lq_desc_slots(&p->desc, layer, &n);
    lq_slot *from = lq_desc_slots(&p->whole.in_desc, layer < 0 ? -1 : p->cut.layer[layer], &was);
    bool done = (to && from && n == was) || lq_fail(err, LQ_E_MEMORY, "no memory for %d weights", n);
    for (int i = 0; done && i < n; i++) {
        if (layer < 0 && (to[i].role < LQ_R_NORM_OUT) != ahead) continue;
        moving m = {.to = &to[i], .from = &from[i], .slot = i};
        done = (!to[i].count ? write_one : to[i].k ? write_stack : write_vectors)(p, &m, err);
        lq_stay_free(&m.stay);
    }
    free(to);
    free(from);
    return done && lq_writer_block(p->writer, "[]", err);
}

static bool write_files(pruning *p, lq_err *err) {
    for (size_t i = 0; lq_side_files[i]; i++) {
        char name[LQ_NAME];
        lq_bytes file;
        if (!lq_ckpt_file(p->whole.in, lq_side_files[i], &file, err)) return false;
        if (!file.p) continue;
        if (!strcmp(lq_side_files[i], "config.json")) file = (lq_bytes){p->config.p, p->config.n};
        const int64_t n = (int64_t)file.n;
        snprintf(name, sizeof name, "lq.file/%s", lq_side_files[i]);
        if (!lq_writer_add(p->writer, name, LQ_U8, 1, &n, file.p, err)) return false;
    }
    return true;
}

// What nobody knows is carried along.
static bool write_strangers(pruning *p, lq_err *err) {
    for (size_t i = 0; i < p->whole.count; i++) {
        const lq_tensor *t = p->whole.items[i].t;
        if (p->whole.items[i].slot.role != LQ_ROLES) continue;
        if (!lq_writer_add(p->writer, t->name, t->type, t->rank, t->shape, t->data, err)) return false;
        lq_ckpt_drop(p->whole.in, t);
    }
    return true;
}

static bool write_meta(pruning *p, lq_err *err) {
    lq_text kept = {0};
    if (p->whole.kept.n) lq_text_fmt(&kept, "[%s]", p->whole.kept.p);
    const char *const meta[][2] = {{"lq.arch", p->desc.arch->name}, {"lq.layout", "any"}, {"lq.kept", kept.p},
                                   {"lq.recipe", "{\"method\": \"none\"}"}, {meta_told, p->out->told.p},
                                   {meta_id, p->out->id}};
    bool done = !kept.failed || lq_fail(err, LQ_E_MEMORY, "no memory for the names of what is kept");
    for (int i = 0; i < 6 && done; i++) done = !meta[i][1] || lq_writer_meta(p->writer, meta[i][0], meta[i][1], err);
    lq_text_free(&kept);
    return done;
}

static bool write_all(pruning *p, lq_err *err) {
    bool done = write_meta(p, err) && write_files(p, err) && write_slots(p, -1, true, err);
    for (int l = 0; done && l < p->desc.layers; l++)
        done = (!p->refit || lq_refit_layer(p->refit, l, err)) && write_slots(p, l, false, err) &&
               (!p->refit || lq_refit_leave(p->refit, err));
    return done && write_slots(p, -1, false, err) && write_strangers(p, err) && lq_writer_block(p->writer, "[]", err);
}

static bool check_data(void *arg, const char *data, lq_err *err) {
    return lq_validate_data(data, NULL, heard, arg, NULL, err);
}

// Room for the header: no more than what the whole model's names take, and what is said of what goes.
static size_t header_room(const pruning *p) {
    char name[LQ_NAME];
    size_t room = (1u << 16) + 2 * p->whole.kept.n + 64 * (size_t)p->whole.in_desc.layers;
    for (size_t i = 0; i < p->whole.count; i++) {
        const char *own = lq_item_name(&p->whole.items[i]);
        const lq_typed *w = NULL;
        lq_pick pick;
        if (p->whole.items[i].slot.k && lq_item_pick(p->whole.in, &p->whole.items[i], 0, &pick, NULL))
            w = lq_ckpt_typed(p->whole.in, pick.name);
        room += w ? lq_writer_weight_room(own, &w->type) : lq_writer_entry_room(own);
    }
    for (size_t i = 0; lq_side_files[i]; i++) {
        snprintf(name, sizeof name, "lq.file/%s", lq_side_files[i]);
        room += lq_writer_entry_room(name);
    }
    return room;
}

// --- the whole ---

// What stands between layers is in memory as far as it may.
static bool plan_rooms(const pruning *p, lq_worth *w, lq_err *err) {
    const size_t most = p->o->max_ram, all = (size_t)1 << 30;
    *w = (lq_worth){.p = &p->whole, .what = &p->what, .text = &p->text, .probes = &p->probes,
                    .on = p->on, .tick = heard, .arg = (void *)(uintptr_t)p};
    const size_t need = lq_prune_bytes(w, refits(p));
    const size_t kept = lq_stream_cost(&p->whole.in_desc, &p->text, refits(p), 0).kept;
    if (most && need > most)
        return lq_fail(err, LQ_E_LIMIT, "memory: pruning needs %.1f MB, more than the %.1f MB it may use",
                       (double)need / 1e6, (double)most / 1e6);
    w->rooms.left = !most || most - need > all ? all : most - need;
    w->spill = 2 * kept > w->rooms.left;
    return true;
}

// A file of what is left: what goes is chosen when the first one is begun.
static bool write_model(pruning *p, const char *path, lq_worth *worth, bool refitted, lq_err *err) {
    char folder[sizeof p->out->path + 16];
    const lq_writer_opts w = {.out = path, .fingerprint = p->out->id, .overwrite = true,
                              .header_room = header_room(p), .tick = heard, .arg = p};
    const lq_refit_opts r = {.w = worth, .cut = p->out->cut, .desc = &p->desc, .what = &p->cut};
    snprintf(folder, sizeof folder, "%s.partial", path);
    worth->rooms.folder = folder;
    bool done = lq_writer_open(&w, &p->writer, err);
    if (!p->cut.layer)
        done = done && lq_prune_choose(worth, &p->cut, &p->out->told, err) &&
               lq_narrow(p->whole.in, &p->whole.in_desc, &p->cut, &p->desc, &p->config, err);
    done = done && (!refitted || lq_refit_open(&r, &p->refit, err)) && write_all(p, err);
    lq_refit_close(p->refit);
    p->refit = NULL;
    done = done && lq_writer_commit(p->writer, check_data, p, err);
    if (p->writer) lq_writer_close(p->writer, !done);
    p->writer = NULL;
    return done;
}

static bool make(pruning *p, lq_err *err) {
    lq_worth worth;
    bool done = plan_rooms(p, &worth, err);
    if (!refits(p)) done = done && write_model(p, p->out->path, &worth, false, err);
    else done = done && write_model(p, p->out->cut, &worth, false, err) &&
                write_model(p, p->out->path, &worth, true, err);
    if (refits(p)) unlink(p->out->cut);
    if (!done && err->code == LQ_E_CANCELLED)
        return lq_fail(err, LQ_E_CANCELLED, "stopped before any block was quantized: the same command begins anew");
    return done;
}

// Everything that decides what is left: the input, what is asked, the text, and who computes.
static bool make_id(pruning *p, lq_err *err) {
    char isa[192];
    if (!lq_whole_isa(lq_lend_far(p->o->lent), isa, sizeof isa, err)) return false;
    XXH64_hash_t h = XXH64(p->o->prune, strlen(p->o->prune), LQ_QUANT_NUMERICS);
    h = XXH64(p->text.ids, p->text.samples * (size_t)p->text.len * sizeof *p->text.ids, h);
    h = XXH64(&p->text.len, sizeof p->text.len, h);
    h = XXH64(&p->what.group, sizeof p->what.group, h);
    h = XXH64(isa, strlen(isa), h);
    h = XXH64(&(char){(char)refits(p)}, 1, h);
    if (p->on) h = XXH64(p->on->name, strlen(p->on->name), h);
    const char *input = strchr(p->whole.fingerprint, '.');
    snprintf(p->out->id, sizeof p->out->id, "%016" PRIx64 ".%.64s", (uint64_t)h, input ? input + 1 : "");
    return true;
}

// Whether it is there, made of the same by an interrupted run.
static bool take(pruning *p) {
    lq_ckpt *c = NULL;
    const char *id, *was;
    if (p->o->fresh || access(p->out->path, F_OK) || !lq_ckpt_open(p->out->path, &c, NULL)) return false;
    const bool same = (id = lq_ckpt_meta(c, meta_id)) && (was = lq_ckpt_meta(c, meta_told)) && !strcmp(id, p->out->id);
    if (same) lq_text_fmt(&p->out->told, "%s", was);
    lq_ckpt_close(c);
    return same && !p->out->told.failed;
}

// Neither file takes another's place but that of one that pruning made.
static bool place_check(const char *path, lq_err *err) {
    lq_ckpt *c = NULL;
    struct stat st;
    if (lstat(path, &st)) return true;
    const bool ours = S_ISREG(st.st_mode) && lq_ckpt_open(path, &c, NULL) && lq_ckpt_meta(c, meta_id);
    if (c) lq_ckpt_close(c);
    return ours || lq_fail(err, LQ_E_USAGE, "%s: is there already, where the pruned model would lie while it is "
                           "quantized", path);
}

// Columns that share a scale in the type of most matrices.
static int group_of(const pruning *p) {
    for (size_t i = 0; i < p->whole.count; i++) {
        const lq_item *it = &p->whole.items[i];
        if (it->round && it->slot.layer >= 0 && it->recipe.type.kind != LQ_W_PLAIN) return it->recipe.type.group;
    }
    return 0;
}

static bool open_text(const pruning *p, const lq_quant_opts *o, lq_calib *out, lq_err *err) {
    return lq_calib_open(o, p->whole.in_desc.ctx, out, err) && (p->o->dry_run || lq_self_write(o, out, err));
}

// What is wrong with the rest of the command is said before the work begins.
static bool plan_whole(pruning *p, lq_err *err) {
    lq_quant_opts o = *p->o;
    if (o.method && !strcmp(o.method, "auto")) o.method = NULL, o.target_bits = 0, o.target_size = 0;
    o.prune = NULL, o.plan = NULL;
    if (!lq_plan_make(&o, &p->whole, err)) return false;
    p->whole.o = p->o;
    if (p->what.depth >= p->whole.in_desc.layers)
        return lq_fail(err, LQ_E_USAGE, "prune: %d layers are to go, but %s has %d", p->what.depth,
                       lq_ckpt_path(p->whole.in), p->whole.in_desc.layers);
    p->what.group = group_of(p);
    o = p->whole.own;
    o.plan = p->o->plan;
    if (!open_text(p, &o, &p->text, err)) return false;
    if (!o.samples || o.samples > LQ_PROBES) o.samples = LQ_PROBES;
    if (!open_text(p, &o, &p->probes, err)) return false;
    const size_t more = lq_stream_cost(&p->whole.in_desc, &p->probes, false, p->whole.in_desc.dim).chunk;
    return !p->what.depth || p->what.influence || lq_whole_on(p->o, p->o->in, more, &p->on, err);
}

static bool find_or_make(pruning *p, lq_err *err) {
    const lq_calib *text = p->what.depth && !p->what.influence ? &p->probes : &p->text;
    char where[128];
    lq_whole_words(p->o, p->what.depth && !p->what.influence ? p->on : lq_lend_far(p->o->lent), where, sizeof where);
    lq_tell(p->o, "prune %s: %zu sequences of %d tokens (%s) say what goes%s", p->o->prune, text->samples, text->len,
        text->source, where);
    lq_tell(p->o, "what stays lies in %s until it is quantized, at most %.1f MB%s", p->out->path,
            (double)p->out->in_bytes / 1e6, refits(p) ? " (twice as much while it is refitted)" : "");
    if (p->o->dry_run) // what is left is planned
        return lq_prune_guess(&p->whole, &p->what, &p->out->guess, err) &&
               lq_narrow(p->whole.in, &p->whole.in_desc, &p->out->guess, &p->desc, &p->out->config, err);
    if (!make_id(p, err)) return false;
    if (take(p)) return true;
    if (!place_check(p->out->path, err) || (refits(p) && !place_check(p->out->cut, err)) || !make(p, err)) return false;
    lq_tell(p->o, "pruned: %s", p->out->told.p);
    return true;
}

bool lq_prune_make(const lq_quant_opts *o, lq_pruned *out, lq_err *err) {
    pruning p = {.o = o, .out = out};
    *out = (lq_pruned){.in = o->in};
    bool done = lq_prune_read(o->prune, &p.what, err) && plan_whole(&p, err);
    snprintf(out->cut, sizeof out->cut, "%s.cut.lq", o->out);
    if (done && (size_t)snprintf(out->path, sizeof out->path, "%s.pruned.lq", o->out) >= sizeof out->path - 16)
        done = lq_fail(err, LQ_E_LIMIT, "%.100s...: the name is too long", o->out);
    if (done) out->in_bytes = lq_ckpt_file_bytes(p.whole.in);
    done = done && find_or_make(&p, err);
    if (!done && err->code == LQ_E_FORMAT && p.whole.count) lq_plan_odd(&p.whole, err);
    if (!done) lq_pruned_free(out, false);
    lq_plan_free(&p.whole);
    lq_calib_close(&p.text);
    lq_calib_close(&p.probes);
    lq_cut_free(&p.cut);
    lq_desc_free(&p.desc);
    lq_text_free(&p.config);
    return done;
}

void lq_pruned_free(lq_pruned *p, bool done) {
    if (done) unlink(p->path);
    lq_text_free(&p->told);
    lq_text_free(&p->config);
    lq_cut_free(&p->guess);
}
