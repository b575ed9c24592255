// writer.c: writes a .lq or plain safetensors file in OUT.partial/, tensor by tensor (docs/FORMAT.md); writer_commit.c
// makes it whole. Owns OUT.partial/. Refuses names and shapes that a reader would refuse, a tensor that differs from
// what the journal says was written, and more header than room was kept for.
#include "formats/writer_state.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

bool lq_writer_no_memory(const lq_writer *w, lq_err *err) {
    return lq_fail(err, LQ_E_MEMORY, "%s: no memory to write it", w->o.out);
}

// --- open ---

static bool work_begin(lq_writer *w, lq_err *err) {
    bool ours = false;
    w->at = w->start;
    if (w->o.resume && !lq_journal_resume(w, &ours, err)) return false;
    static const uint64_t none = 0; // a header of length 0 opens nowhere
    if (!ours && (ftruncate(w->journal, 0) || ftruncate(w->data, 0)))
        return lq_disk_fail(w, w->folder, "cannot be emptied", err);
    if (!ours && !lq_journal_begin(w, err)) return false;
    if (ftruncate(w->journal, (off_t)w->journal_at) || ftruncate(w->data, (off_t)w->at))
        return lq_disk_fail(w, w->folder, "cannot be cut", err);
    for (size_t i = 0; i < w->entries; i++)
        if (!lq_name_pads(w->entry[i].t.name)) w->used += lq_writer_entry_room(w->entry[i].t.name);
    for (size_t i = 0; i < w->types; i++) w->used += lq_writer_type_room(w->type[i].key);
    return lq_disk_write(w, w->data, w->data_path, &none, sizeof none, 0, err);
}

bool lq_out_name_check(const char *out, lq_err *err) {
    const char *slash = strrchr(out, '/'), *base = slash ? slash + 1 : out;
    const char *index = ".index.json";
    size_t n = strlen(base), m = strlen(index);
    if (!n) return lq_fail(err, LQ_E_USAGE, "\"%s\": expected the name of a file", out);
    if (lq_shard_total(base) > 1)
        return lq_fail(err, LQ_E_USAGE, "%s: is named like one shard of %ld, and would not open without the others",
                       out, lq_shard_total(base));
    if (n >= m && !strcmp(base + n - m, index))
        return lq_fail(err, LQ_E_USAGE, "%s: is named like the index of a model in several files", out);
    return true;
}

bool lq_writer_open(const lq_writer_opts *o, lq_writer **out, lq_err *err) {
    *out = NULL;
    lq_writer *w = calloc(1, sizeof *w);
    if (!w) return lq_fail(err, LQ_E_MEMORY, "%s: no memory to write it", o->out);
    w->o = *o, w->dir = w->data = w->journal = -1;
    w->out = strdup(o->out), w->fingerprint = strdup(o->fingerprint ? o->fingerprint : "");
    w->o.out = w->out, w->o.fingerprint = w->fingerprint;
    if (!w->out || !w->fingerprint || asprintf(&w->folder, "%s.partial", o->out) < 0 ||
        asprintf(&w->data_path, "%s/data", w->folder) < 0 || asprintf(&w->journal_path, "%s/journal", w->folder) < 0) {
        lq_fail(err, LQ_E_MEMORY, "%s: no memory to write it", o->out);
        lq_writer_close(w, false);
        return false;
    }
    struct stat st;
    bool exists = !lstat(w->out, &st), ok = true;
    w->used = 512;
    if (exists && (S_ISDIR(st.st_mode) || !o->overwrite))
        ok = lq_fail(err, LQ_E_USAGE, "%s: is there already%s", w->out, S_ISDIR(st.st_mode) ? ", a directory" : "");
    else if (!lq_add_size(o->header_room, 8 + 1024, &w->start) || w->start > 100 * 1000 * 1000 ||
             !lq_align_size(w->start, LQ_ALIGN_PAGE, &w->start))
        ok = lq_fail(err, LQ_E_LIMIT, "%s: a header of %zu bytes is too long", w->out, o->header_room);
    if (!ok || !lq_out_name_check(w->out, err) || !lq_disk_open(w, err) || !work_begin(w, err)) {
        lq_writer_close(w, false);
        return false;
    }
    *out = w;
    return true;
}

// --- adding ---

static bool room_take(lq_writer *w, size_t n, lq_err *err) {
    w->used += n;
    if (w->used <= w->start - 8) return true;
    w->failed = true;
    return lq_fail(err, LQ_E_LIMIT, "%s: the header outgrew the %zu bytes kept for it", w->out, w->start - 8);
}

bool lq_writer_meta(lq_writer *w, const char *key, const char *value, lq_err *err) {
    static const char *const own[] = {"lq.version", "lq.header", "lq.types", "lq.xxh64", "lq.shard"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (!strcmp(key, own[i])) return lq_fail(err, LQ_E_USAGE, "%s: metadata %s is the writer's own", w->out, key);
    lq_text t = {0};
    lq_text_json(&t, key, strlen(key));
    lq_text_json(&t, value, strlen(value));
    bool ok = !t.failed && room_take(w, t.n + 2, err);
    if (t.failed) lq_writer_no_memory(w, err);
    lq_text_free(&t);
    if (!ok) return false;
    for (size_t i = 0; i < w->metas; i++) {
        if (strcmp(w->meta[i].key, key) != 0) continue;
        char *v = strdup(value);
        if (!v) return lq_writer_no_memory(w, err);
        free(w->meta[i].value);
        w->meta[i].value = v;
        return true;
    }
    return lq_pairs_push(&w->meta, &w->metas, &w->meta_cap, key, value) || lq_writer_no_memory(w, err);
}

// A name must come back from the header as it went in: UTF-8, and nothing that a reader refuses.
static bool name_check(const lq_writer *w, const char *name, lq_err *err) {
    lq_text t = {0};
    bool ok = lq_name_ok(name, strlen(name)) && strcmp(name, "__metadata__") != 0 && !lq_name_pads(name);
    if (ok && !strncmp(name, LQ_FILE_PREFIX, strlen(LQ_FILE_PREFIX)))
        ok = lq_file_name_ok(name + strlen(LQ_FILE_PREFIX));
    if (ok) {
        char back[LQ_NAME * 3 + 8];
        lq_text_json(&t, name, strlen(name));
        lq_json_walk walk = {t.p, t.p + t.n};
        size_t n = t.failed ? 0 : lq_json_take_str(&walk, back);
        ok = n == strlen(name) && !memcmp(back, name, n);
        lq_text_free(&t);
    }
    return ok || lq_fail(err, LQ_E_USAGE, "%s: \"%.100s\" cannot be a tensor's name", w->out, name);
}

bool lq_writer_stack_over(const lq_writer *w, lq_err *err) {
    const lq_stacking *s = &w->stack;
    return !s->open || lq_fail(err, LQ_E_USAGE, "%s: weight %s: %lld of its %lld matrices are there", w->out, s->name,
                               (long long)s->put, (long long)s->of.count);
}

static bool same_tensor(const lq_tensor *a, lq_dtype type, int rank, const int64_t *shape) {
    if (a->type != type || a->rank != rank) return false;
    for (int i = 0; i < rank; i++)
        if (a->shape[i] != shape[i]) return false;
    return true;
}

static bool sum_of(lq_writer *w, const char *data, size_t n, uint64_t *sum, lq_err *err) {
    XXH64_state_t *st = XXH64_createState();
    if (!st) return lq_writer_no_memory(w, err);
    XXH64_reset(st, 0);
    bool ok = true;
    for (size_t at = 0; at < n && ok; at += LQ_DISK_PIECE) {
        XXH64_update(st, data + at, n - at < LQ_DISK_PIECE ? n - at : LQ_DISK_PIECE);
        ok = n <= LQ_DISK_PIECE || lq_disk_go_on(w, err);
    }
    *sum = XXH64_digest(st);
    XXH64_freeState(st);
    return ok;
}

static bool entry_write(lq_writer *w, lq_entry *e, const char *name, const void *data, lq_err *err) {
    e->at = w->at;
    if (!sum_of(w, data, e->t.bytes, &e->sum, err)) return false;
    if (!lq_disk_write(w, w->data, w->data_path, data, e->t.bytes, w->at, err)) return false;
    if (!lq_entry_push(w, e, name)) return w->failed = true, lq_writer_no_memory(w, err);
    if (!w->stack.open) lq_journal_tensor(w, &w->entry[w->entries - 1]); // in a stack, when all of it is there
    w->at += e->t.bytes;
    return true;
}

// Zeros up to where a tensor of so many bytes may begin.
static bool pad_write(lq_writer *w, size_t bytes, lq_err *err) {
    static const char zeros[LQ_ALIGN_PAGE];
    const size_t to = bytes >= LQ_ALIGN_PAGE ? LQ_ALIGN_PAGE : LQ_ALIGN, gap = (to - w->at % to) % to;
    char name[40];
    if (!gap) return true;
    snprintf(name, sizeof name, LQ_PAD_PREFIX "%zu", w->pads);
    lq_entry e = {.t = {.type = LQ_U8, .rank = 1, .shape = {(int64_t)gap}, .bytes = gap}, .again = true};
    return entry_write(w, &e, name, zeros, err);
}

bool lq_writer_add(lq_writer *w, const char *name, lq_dtype type, int rank, const int64_t *shape, const void *data,
                   lq_err *err) {
    if (w->failed) return lq_fail(err, LQ_E_IO, "%s: an earlier write failed", w->out);
    if (!name_check(w, name, err) || !lq_writer_stack_over(w, err)) return false;
    if ((int)type < 0 || type >= LQ_DTYPES || !lq_dtypes[type].safetensors || rank < 0 || rank > LQ_RANK)
        return lq_fail(err, LQ_E_USAGE, "%s: tensor %s: a type or rank that safetensors does not have", w->out, name);
    lq_entry e = {.t = {.type = type, .rank = rank, .bytes = lq_dtype_size(type)}, .again = true};
    for (int i = 0; i < rank; i++) {
        if (shape[i] < 0 || !lq_mul_size(e.t.bytes, (size_t)shape[i], &e.t.bytes) || e.t.bytes > INT64_MAX / 2)
            return lq_fail(err, LQ_E_USAGE, "%s: tensor %s: a shape that cannot be", w->out, name);
        e.t.shape[i] = shape[i];
    }
    if (!w->o.plain && !strncmp(name, LQ_FILE_PREFIX, strlen(LQ_FILE_PREFIX)) && (type != LQ_U8 || rank != 1))
        return lq_fail(err, LQ_E_USAGE, "%s: side file %s: is not plain bytes", w->out, name);
    lq_entry *old = lq_entry_find(w, name);
    if (old && old->again) return lq_fail(err, LQ_E_USAGE, "%s: tensor %s: added twice", w->out, name);
    if (old && !same_tensor(&old->t, type, rank, shape))
        return lq_fail(err, LQ_E_FORMAT, "%s: tensor %s: the interrupted run wrote another type or shape", w->out,
                       name);
    if (old) return old->again = true;
    if (!data && e.t.bytes) return lq_fail(err, LQ_E_USAGE, "%s: tensor %s: no data", w->out, name);
    if (!room_take(w, lq_writer_entry_room(name), err)) return false;
    if (!w->o.plain && !pad_write(w, e.t.bytes, err)) return false;
    return entry_write(w, &e, name, data ? data : "", err);
}

// To be said once all parts are there.
static bool type_add(lq_writer *w, const char *name, const lq_typed *of, lq_err *err) {
    char text[LQ_TYPED_TEXT];
    lq_entry *codes = lq_entry_codes(w, name);
    lq_typed_name(of, text, sizeof text);
    if (codes->type) {
        const char *old = w->type[codes->type - 1].value;
        if (!strcmp(old, text)) return true;
        return lq_fail(err, LQ_E_FORMAT, "%s: weight %s: is \"%s\", the interrupted run wrote \"%s\"", w->out, name,
                       text, old);
    }
    if (!room_take(w, lq_writer_type_room(name), err)) return false;
    if (!lq_pairs_push(&w->type, &w->types, &w->type_cap, name, text)) return lq_writer_no_memory(w, err);
    codes->type = w->types;
    lq_journal_type(w, name, text);
    return true;
}

lq_layout lq_writer_layout(const lq_writer *w) {
    for (size_t i = 0; i < w->metas; i++)
        for (int l = LQ_ANY; l < LQ_LAYOUTS && !strcmp(w->meta[i].key, "lq.layout"); l++)
            if (!strcmp(w->meta[i].value, lq_layout_names[l])) return (lq_layout)l;
    return LQ_ANY;
}

static bool weight_check(const lq_writer *w, const char *name, const lq_weight *q, lq_err *err) {
    const lq_layout file = lq_writer_layout(w);
    lq_part_form form;
    if (w->o.plain)
        return lq_fail(err, LQ_E_USAGE, "%s: weight %s: a plain safetensors file has no coded weights", w->out, name);
    if (!name_check(w, name, err)) return false;
    if (!lq_part_of(LQ_PART_Q, q, 0, &form) || q->layout != lq_layout_in(file, &q->type, q->n, q->k))
        return lq_fail(err, LQ_E_USAGE, "%s: weight %s: layout %s does not fit a file in layout %s", w->out, name,
                       lq_layout_names[q->layout], lq_layout_names[file]);
    if (q->outliers < 0 || q->outliers > q->k || q->outliers > LQ_OUTLIERS)
        return lq_fail(err, LQ_E_USAGE, "%s: weight %s: %d outlier columns of %lld, expected at most %d", w->out, name,
                       q->outliers, (long long)q->k, LQ_OUTLIERS);
    return true;
}

bool lq_writer_weight(lq_writer *w, const char *name, const lq_weight *q, lq_err *err) {
    if (q->type.kind == LQ_W_PLAIN) return lq_writer_add(w, name, q->type.elem, 2, (int64_t[]){q->n, q->k}, q->q, err);
    if (!weight_check(w, name, q, err)) return false;
    char full[LQ_NAME + 16];
    for (lq_part_id i = 0; i < LQ_PARTS; i++) {
        lq_part_form form;
        const void *data = lq_part_get(i, q);
        if (!lq_part_of(i, q, 0, &form) || (!data && !lq_part_needed(i, &q->type))) continue;
        snprintf(full, sizeof full, "%s%s", name, lq_part_suffix(i));
        if (!lq_writer_add(w, full, form.type, form.rank, form.shape, data, err)) return false;
    }
    return type_add(w, name, &(lq_typed){.type = q->type, .n = q->n, .k = q->k}, err);
}

// --- stacks ---

bool lq_writer_stack(lq_writer *w, const char *name, const lq_wtype *t, int count, int64_t n, int64_t k, lq_err *err) {
    const bool plain = t->kind == LQ_W_PLAIN;
    lq_weight like = {.type = *t, .layout = lq_layout_in(lq_writer_layout(w), t, n, k), .n = n, .k = k};
    lq_weight_size size;
    if (w->failed) return lq_fail(err, LQ_E_IO, "%s: an earlier write failed", w->out);
    if (!lq_writer_stack_over(w, err) || !name_check(w, name, err) || !(plain || weight_check(w, name, &like, err)))
        return false;
    if (count < 1 || !lq_layout_sizes(like.layout, t, n, k, &size))
        return lq_fail(err, LQ_E_USAGE, "%s: weight %s: %d matrices of %lldx%lld cannot be", w->out, name, count,
                       (long long)n, (long long)k);
    const lq_entry *old = plain ? lq_entry_find(w, name) : lq_entry_codes(w, name);
    if (old && old->again) return lq_fail(err, LQ_E_USAGE, "%s: tensor %s: added twice", w->out, name);
    lq_stacking *s = &w->stack;
    *s = (lq_stacking){.of = {.type = *t, .n = n, .k = k, .count = count}, .layout = like.layout, .there = old != NULL,
                       .first = w->entries, .used = w->used};
    memcpy(s->name, name, strlen(name) + 1);
    if (old && plain && !same_tensor(&old->t, t->elem, 3, (int64_t[]){count, n, k}))
        return lq_fail(err, LQ_E_FORMAT, "%s: tensor %s: the interrupted run wrote another type or shape", w->out,
                       name);
    return s->open = !old || plain || type_add(w, name, &s->of, err);
}

// Name and form of part i; false: matrices like this one have no such part.
static bool stack_part(const lq_stacking *s, int i, const lq_weight *q, char full[LQ_NAME + 16], lq_part_form *form) {
    const bool plain = q->type.kind == LQ_W_PLAIN;
    snprintf(full, LQ_NAME + 16, "%s%s", s->name, plain ? "" : lq_part_suffix((lq_part_id)i));
    if (plain) {
        *form = (lq_part_form){q->type.elem, 3, {s->of.count, q->n, q->k},
                               (size_t)q->n * (size_t)q->k * lq_dtype_size(q->type.elem)};
        return i == LQ_PART_Q;
    }
    return lq_part_of((lq_part_id)i, q, s->of.count, form) &&
           (lq_part_get((lq_part_id)i, q) || lq_part_needed((lq_part_id)i, &q->type));
}

// The first matrix shows which parts there are: their places are taken.
static bool stack_begin(lq_writer *w, const lq_weight *q, lq_err *err) {
    lq_stacking *s = &w->stack;
    lq_part_form form;
    char full[LQ_NAME + 16];
    s->outliers = q->outliers;
    for (int i = 0; i < LQ_PARTS; i++) {
        if (!stack_part(s, i, q, full, &form)) continue;
        s->bytes[i] = form.bytes;
        lq_entry *old = lq_entry_find(w, full);
        if (old) old->again = true;
        if (s->there) continue;
        if (old) return lq_fail(err, LQ_E_USAGE, "%s: tensor %s: added twice", w->out, full);
        if (!name_check(w, full, err) || !room_take(w, lq_writer_entry_room(full), err)) return false;
        lq_entry e = {.t = {.type = form.type, .rank = form.rank}, .again = true};
        memcpy(e.t.shape, form.shape, sizeof form.shape);
        if (!lq_mul_size(form.bytes, (size_t)s->of.count, &e.t.bytes) || e.t.bytes > INT64_MAX / 2)
            return lq_fail(err, LQ_E_USAGE, "%s: tensor %s: a shape that cannot be", w->out, full);
        if (!w->o.plain && !pad_write(w, e.t.bytes, err)) return false;
        e.at = w->at, s->entry[i] = w->entries;
        if (!(s->sum[i] = XXH64_createState()) || !lq_entry_push(w, &e, full)) return lq_writer_no_memory(w, err);
        XXH64_reset(s->sum[i], 0);
        w->at += e.t.bytes;
    }
    return true;
}

static bool stack_end(lq_writer *w, lq_err *err) {
    lq_stacking *s = &w->stack;
    for (int i = 0; i < LQ_PARTS; i++) {
        if (!s->sum[i]) continue;
        w->entry[s->entry[i]].sum = XXH64_digest(s->sum[i]);
        XXH64_freeState(s->sum[i]);
        s->sum[i] = NULL;
    }
    for (size_t i = s->first; i < w->entries; i++) lq_journal_tensor(w, &w->entry[i]);
    s->open = false;
    return s->of.type.kind == LQ_W_PLAIN || type_add(w, s->name, &s->of, err);
}

static bool stack_write(lq_writer *w, const lq_weight *q, lq_err *err) {
    lq_stacking *s = &w->stack;
    char full[LQ_NAME + 16];
    lq_part_form form;
    if (!s->put && !stack_begin(w, q, err)) return false;
    for (int i = 0; i < LQ_PARTS; i++) {
        const bool has = stack_part(s, i, q, full, &form);
        const void *data = q->type.kind == LQ_W_PLAIN ? q->q : lq_part_get((lq_part_id)i, q);
        if (has != (s->bytes[i] != 0) || (has && (form.bytes != s->bytes[i] || !data)))
            return lq_fail(err, LQ_E_USAGE, "%s: weight %s: matrix %lld %s %s, unlike the first", w->out, s->name,
                           (long long)s->put, has && data ? "has its own" : "has no",
                           lq_part_suffix((lq_part_id)i) + 1);
        if (!has || s->there) continue;
        XXH64_update(s->sum[i], data, form.bytes);
        const size_t at = w->entry[s->entry[i]].at + (size_t)s->put * form.bytes;
        if (!lq_disk_write(w, w->data, w->data_path, data, form.bytes, at, err)) return false;
    }
    return ++s->put < s->of.count || stack_end(w, err);
}

bool lq_writer_stack_put(lq_writer *w, const lq_weight *q, lq_err *err) {
    const lq_stacking *s = &w->stack;
    if (w->failed) return lq_fail(err, LQ_E_IO, "%s: an earlier write failed", w->out);
    if (!s->open) return lq_fail(err, LQ_E_USAGE, "%s: there is no stack that wants a matrix", w->out);
    if (!lq_wtype_equal(&q->type, &s->of.type) || q->layout != s->layout || q->n != s->of.n || q->k != s->of.k ||
        (s->put && q->outliers != s->outliers)) {
        char got[LQ_TYPED_TEXT], want[LQ_TYPED_TEXT];
        lq_typed_name(&(lq_typed){.type = q->type, .n = q->n, .k = q->k}, got, sizeof got);
        lq_typed_name(&(lq_typed){.type = s->of.type, .n = s->of.n, .k = s->of.k}, want, sizeof want);
        return lq_fail(err, LQ_E_USAGE,
                       "%s: weight %s: matrix %lld is %s in layout %s with %d outlier columns, "
                       "expected %s in layout %s with %d", w->out, s->name, (long long)s->put, got,
                       lq_layout_names[q->layout], q->outliers, want, lq_layout_names[s->layout], s->outliers);
    }
    if (stack_write(w, q, err)) return true;
    w->failed = true; // a stack with a gap cannot be gone on with
    return false;
}

void lq_writer_stack_drop(lq_writer *w) {
    lq_stacking *s = &w->stack;
    if (!s->open || s->there || w->failed) return;
    for (int i = 0; i < LQ_PARTS; i++) XXH64_freeState(s->sum[i]), s->sum[i] = NULL;
    if (w->entries > s->first) w->at = w->entry[s->first].at;
    lq_entries_cut(w, s->first, w->types);
    w->used = s->used;
    s->open = false;
}

bool lq_writer_block(lq_writer *w, const char *note, lq_err *err) {
    if (w->failed) return lq_fail(err, LQ_E_IO, "%s: an earlier write failed", w->out);
    if (!lq_writer_stack_over(w, err)) return false;
    if (fdatasync(w->data)) return lq_disk_fail(w, w->data_path, "cannot be synced", err);
    return lq_journal_block(w, note ? note : "", err);
}

bool lq_writer_outdated(const lq_writer *w) { return w->outdated; }
size_t lq_writer_resumed(const lq_writer *w) { return w->blocks; }
const char *lq_writer_note(const lq_writer *w, size_t i) { return i < w->blocks ? w->block[i].note : NULL; }

void lq_writer_close(lq_writer *w, bool discard) {
    if (!w) return;
    if (discard && !w->done && w->data >= 0) {
        unlinkat(w->dir, "data", 0);
        unlinkat(w->dir, "journal", 0);
        rmdir(w->folder);
    }
    if (w->dir >= 0) close(w->dir);
    for (size_t i = 0; i < w->spans; i++) munmap((void *)(uintptr_t)w->span[i].p, w->span[i].to - w->span[i].from);
    lq_ckpt_close(w->back);
    free(w->span);
    if (w->data >= 0) close(w->data);
    if (w->journal >= 0) close(w->journal);
    lq_entries_cut(w, 0, 0);
    for (int i = 0; i < LQ_PARTS; i++) XXH64_freeState(w->stack.sum[i]);
    for (size_t i = 0; i < w->metas; i++) free(w->meta[i].key), free(w->meta[i].value);
    for (size_t i = 0; i < w->blocks; i++) free(w->block[i].note);
    free(w->entry);
    free(w->slot);
    free(w->type);
    free(w->meta);
    free(w->block);
    lq_text_free(&w->pending);
    free(w->out);
    free(w->fingerprint);
    free(w->folder);
    free(w->data_path);
    free(w->journal_path);
    free(w);
}
