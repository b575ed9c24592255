// ckpt.c: what an open checkpoint holds: tensors, side files and weights by name, and the walk over all of its bytes.
// Owns side files that were read and aligned copies. Refuses weights of another shape, and columns past the row or there twice.
#include "formats/container.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

const char *const lq_side_files[] = {
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "tokenizer.model", "vocab.json", "merges.txt", "vocab.txt", "chat_template.jinja", "chat_template.json",
    "preprocessor_config.json", NULL};

// --- what is in it ---

const char *lq_ckpt_path(const lq_ckpt *c) { return c->path; }
const char *lq_ckpt_container(const lq_ckpt *c) { return c->shard[0].container; }
size_t lq_ckpt_count(const lq_ckpt *c) { return c->count; }
const lq_tensor *lq_ckpt_at(const lq_ckpt *c, size_t i) { return i < c->count ? &c->tensor[i] : NULL; }
const char *lq_ckpt_meta(const lq_ckpt *c, const char *key) { return lq_shard_meta(&c->shard[0], key); }

bool lq_ckpt_meta_at(const lq_ckpt *c, size_t i, const char **key, const char **value) {
    for (size_t f = 0; f < c->shards; i -= c->shard[f++].metas) {
        if (i >= c->shard[f].metas) continue;
        *key = c->shard[f].meta[i].key;
        *value = c->shard[f].meta[i].value;
        return true;
    }
    return false;
}

size_t lq_ckpt_file_bytes(const lq_ckpt *c) {
    size_t n = 0;
    for (size_t i = 0; i < c->shards; i++) n += c->shard[i].bytes;
    return n;
}

// A side file inside a .lq; *any: it carries some.
static const lq_tensor *file_inside(const lq_ckpt *c, const char *name, bool *any) {
    char full[LQ_NAME + 16];
    snprintf(full, sizeof full, LQ_FILE_PREFIX "%s", name);
    const lq_tensor *found = NULL;
    *any = false;
    for (size_t i = 0; i < c->shards; i++) {
        const lq_shard *s = &c->shard[i];
        if (!s->sum) continue;
        for (size_t j = 0; j < s->count && !*any; j++) *any = !strncmp(s->tensor[j].name, LQ_FILE_PREFIX, strlen(LQ_FILE_PREFIX));
        if (!found) found = lq_shard_find(s, full);
    }
    return found;
}

// The most that is read of a side file: vocabularies are large, all else is small.
static size_t file_max(const char *name) {
    static const char *const large[] = {"tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "merges.txt"};
    for (size_t i = 0; i < sizeof large / sizeof *large; i++)
        if (!strcmp(name, large[i])) return 256u << 20;
    return 16u << 20;
}

// Of a file that is mapped a copy: what was checked must not change before it is read.
static bool file_copy(const lq_ckpt *c, const lq_tensor *t, lq_kept **out, lq_err *err) {
    const char *name = t->name + strlen(LQ_FILE_PREFIX);
    if (t->bytes > file_max(name))
        return lq_fail(err, LQ_E_LIMIT, "%s: side file %s: %zu bytes, at most %zu are read", c->path, name, t->bytes, file_max(name));
    if (!(*out = lq_kept_new(t->bytes))) return lq_fail(err, LQ_E_MEMORY, "%s: no memory for %s", c->path, name);
    if (t->bytes) memcpy((*out)->data, t->data, t->bytes);
    return true;
}

static bool file_beside(const lq_ckpt *c, const char *name, lq_kept **out, lq_err *err) {
    char *path = lq_path_join(c->folder, name);
    if (!path) return lq_fail(err, LQ_E_MEMORY, "%s: no memory", name);
    bool ok = access(path, F_OK) != 0 || lq_kept_read(path, file_max(name), out, NULL, err);
    free(path);
    return ok;
}

bool lq_ckpt_file(lq_ckpt *c, const char *name, lq_bytes *out, lq_err *err) {
    *out = (lq_bytes){0};
    if (!lq_file_name_ok(name)) return lq_fail(err, LQ_E_USAGE, "%s: side file \"%.100s\" is a path, expected a name", c->path, name);
    bool any, ok = true;
    const lq_tensor *t = file_inside(c, name, &any);
    if (!t && (any || !c->folder)) return true;
    pthread_mutex_lock(&c->lock);
    lq_kept *k = c->kept;
    while (k && (!k->name || strcmp(k->name, name) != 0)) k = k->next;
    if (!k) {
        ok = t ? file_copy(c, t, &k, err) : file_beside(c, name, &k, err);
        if (k && !(k->name = strdup(name))) {
            free(k);
            k = NULL;
            ok = lq_fail(err, LQ_E_MEMORY, "%s: no memory", name);
        }
        if (k) k->next = c->kept, c->kept = k;
    }
    pthread_mutex_unlock(&c->lock);
    if (k) *out = (lq_bytes){k->data, k->n};
    return ok;
}

bool lq_ckpt_file_size(const lq_ckpt *c, const char *name, size_t *out) {
    struct stat st;
    bool any, found;
    *out = 0;
    if (!lq_file_name_ok(name)) return false;
    const lq_tensor *t = file_inside(c, name, &any);
    if (t) return *out = t->bytes, true;
    char *path = any || !c->folder ? NULL : lq_path_join(c->folder, name);
    found = path && !stat(path, &st);
    free(path);
    if (found && S_ISREG(st.st_mode)) *out = (size_t)st.st_size;
    return found;
}

// --- the files themselves ---

bool lq_ckpt_stat(const lq_ckpt *c, size_t i, lq_file_info *out) {
    const bool indexed = c->index.path != NULL;
    if (indexed && i == 0) return *out = c->index, true;
    i -= indexed;
    if (i >= c->shards || !c->shard[i].mapped) return false;
    return *out = c->shard[i].info, true;
}

bool lq_ckpt_is_file(const lq_ckpt *c, uint64_t dev, uint64_t ino) {
    lq_file_info f;
    struct stat st;
    for (size_t i = 0; lq_ckpt_stat(c, i, &f); i++)
        if (f.dev == dev && f.ino == ino) return true;
    for (size_t i = 0; lq_side_files[i] && c->folder; i++) {
        char *path = lq_path_join(c->folder, lq_side_files[i]);
        bool same = path && !stat(path, &st) && (uint64_t)st.st_dev == dev && (uint64_t)st.st_ino == ino;
        free(path);
        if (same) return true;
    }
    return false;
}

// --- weights ---

// The tensor's bytes at a multiple of `to`: as they lie, or a copy (many weights share none, so one per tensor).
static bool aligned(const lq_ckpt *c, const lq_tensor *t, size_t to, const void **out, lq_err *err) {
    *out = t->data;
    if ((uintptr_t)t->data % to == 0) return true;
    lq_ckpt *m = (lq_ckpt *)(uintptr_t)c; // the list of copies is a cache behind a lock
    pthread_mutex_lock(&m->lock);
    lq_kept *k = m->kept;
    while (k && (k->key != t->data || k->n != t->bytes)) k = k->next; // an empty tensor may begin where another does
    if (!k && (k = lq_kept_new(t->bytes))) {
        memcpy(k->data, t->data, t->bytes);
        k->next = m->kept, k->key = t->data;
        m->kept = k;
    }
    pthread_mutex_unlock(&m->lock);
    if (!k) return lq_fail(err, LQ_E_MEMORY, "%s: tensor %s: no memory for an aligned copy of %zu bytes", c->path, t->name, t->bytes);
    *out = k->data;
    return true;
}

static const lq_tensor *part_find(const lq_ckpt *c, const char *name, const char *suffix) {
    char full[LQ_NAME + 16];
    snprintf(full, sizeof full, "%s%s", name, suffix);
    return lq_ckpt_find(c, full);
}

const lq_typed *lq_ckpt_typed(const lq_ckpt *c, const char *name) {
    return lq_typed_find(c->typed, c->typeds, name);
}

bool lq_ckpt_has_weight(const lq_ckpt *c, const char *name) { return lq_ckpt_find(c, name) || lq_ckpt_typed(c, name); }

// Every column once: nothing that indexes by these may leave the row.
static bool columns_check(const lq_ckpt *c, const char *name, const char *what, const int32_t *col, int64_t count, int64_t k, lq_err *err) {
    uint8_t *seen = calloc((size_t)k / 8 + 1, 1);
    if (!seen) return lq_fail(err, LQ_E_MEMORY, "%s: weight %s: no memory", c->path, name);
    int64_t bad = -1;
    for (int64_t i = 0; i < count && bad < 0; i++) {
        if (col[i] < 0 || col[i] >= k || seen[col[i] >> 3] >> (col[i] & 7) & 1) bad = i;
        else seen[col[i] >> 3] |= (uint8_t)(1 << (col[i] & 7));
    }
    free(seen);
    if (bad < 0) return true;
    return lq_fail(err, LQ_E_FORMAT, "%s: weight %s: %s[%lld] is %d, which is past %lld columns or there twice", c->path, name, what,
                   (long long)bad, col[bad], (long long)k);
}

static bool plain_bind(const lq_ckpt *c, const lq_tensor *t, int64_t n, int64_t k, lq_weight *out, lq_err *err) {
    bool matrix = k > 0;
    if (!lq_dtypes[t->type].number)
        return lq_fail(err, LQ_E_FORMAT, "%s: tensor %s: is %s, expected a float type", c->path, t->name, lq_dtypes[t->type].name);
    if (t->rank != (matrix ? 2 : 1) || t->shape[0] != n || (matrix && t->shape[1] != k)) {
        char found[LQ_RANK * 24] = "";
        for (int i = 0, at = 0; i < t->rank; i++)
            at += snprintf(found + at, sizeof found - (size_t)at, i ? "x%lld" : "%lld", (long long)t->shape[i]);
        if (!matrix) return lq_fail(err, LQ_E_FORMAT, "%s: tensor %s: shape %s, expected %lld", c->path, t->name, found, (long long)n);
        return lq_fail(err, LQ_E_FORMAT, "%s: tensor %s: shape %s, expected %lldx%lld", c->path, t->name, found, (long long)n,
                       (long long)k);
    }
    const lq_wtype type = {.kind = LQ_W_PLAIN, .elem = t->type, .bits = 8 * (int)lq_dtype_size(t->type), .scale = LQ_F32};
    *out = (lq_weight){.type = type, .n = n, .k = matrix ? k : 1};
    return aligned(c, t, lq_dtype_size(t->type), &out->q, err);
}

bool lq_ckpt_weight(const lq_ckpt *c, const char *name, int64_t n, int64_t k, lq_weight *out, lq_err *err) {
    const lq_tensor *t = lq_ckpt_find(c, name);
    if (t) return plain_bind(c, t, n, k, out, err);
    const lq_typed *w = lq_ckpt_typed(c, name);
    if (!w) return lq_fail(err, LQ_E_FORMAT, "%s: tensor %s is missing", c->path, name);
    if (w->n != n || w->k != k)
        return lq_fail(err, LQ_E_FORMAT, "%s: weight %s: is %lldx%lld, expected %lldx%lld", c->path, name, (long long)w->n,
                       (long long)w->k, (long long)n, (long long)k);
    enum { Q, SCALE, ZERO, TABLE, PERM, SMOOTH, COLS, VALUES, PARTS };
    static const char *const suffix[PARTS] = {".q", ".scale", ".zero", ".table", ".perm", ".smooth", ".outlier_cols", ".outlier_w"};
    const void *p[PARTS] = {NULL};
    int64_t outliers = 0;
    for (int i = 0; i < PARTS; i++) {
        if (!(t = part_find(c, name, suffix[i]))) continue;
        if (!aligned(c, t, LQ_ALIGN, &p[i], err)) return false; // files do align them; memory that somebody else gave may not
        if (i == COLS) outliers = t->shape[0];
    }
    *out = (lq_weight){.type = w->type, .layout = w->layout, .n = n, .k = k, .q = p[Q], .scale = p[SCALE], .zero = p[ZERO], .perm = p[PERM],
                       .smooth = p[SMOOTH], .table = p[TABLE], .outlier = p[COLS], .outlier_w = p[VALUES], .outliers = (int32_t)outliers};
    return (!out->perm || columns_check(c, name, "perm", out->perm, k, k, err)) &&
           (!outliers || columns_check(c, name, "outlier_cols", out->outlier, outliers, k, err));
}

// --- reading through it ---

static bool pad_empty(const lq_tensor *t) {
    const uint8_t *p = t->data;
    for (size_t i = 0; i < t->bytes; i++)
        if (p[i]) return false;
    return true;
}

// A walk over a shard in the order of its bytes. Of a large file only the piece at hand stays mapped in, and the next is on its way.
enum { PIECE = 8 << 20, STREAM_MIN = 64 << 20 };
typedef struct reading {
    const lq_shard *s;
    bool streams;
    size_t page, gone; // bytes of the file before `gone` were given back
    lq_tick *tick;
    void *arg;
    size_t done, total;
} reading;

static void pages_advise(const lq_shard *s, size_t from, size_t to, int advice) {
    if (from < to) madvise((void *)(uintptr_t)(s->map + from), to - from, advice);
}

static void reading_ahead(const reading *r, size_t from) {
    size_t to = r->s->bytes - from < PIECE ? r->s->bytes : from + PIECE;
    if (r->streams) pages_advise(r->s, from / r->page * r->page, to, MADV_WILLNEED);
}

static void reading_begin(reading *r, const lq_shard *s) {
    r->s = s;
    r->page = (size_t)sysconf(_SC_PAGESIZE);
    r->gone = s->data_at / r->page * r->page;
    r->streams = s->mapped && s->bytes > STREAM_MIN;
    if (r->streams) pages_advise(s, r->gone, s->bytes, MADV_SEQUENTIAL);
    reading_ahead(r, s->data_at);
}

// The n bytes that end before `at` of the file were read.
static bool reading_on(reading *r, size_t at, size_t n) {
    size_t to = at / r->page * r->page;
    if (r->streams && to > r->gone) pages_advise(r->s, r->gone, to, MADV_DONTNEED), r->gone = to;
    r->done += n;
    return !r->tick || r->tick(r->arg, r->done, r->total);
}

static void reading_end(const reading *r) {
    if (r->streams) pages_advise(r->s, r->s->data_at / r->page * r->page, r->s->bytes, MADV_NORMAL);
}

static bool tensor_check(reading *r, const lq_tensor *t, lq_err *err) {
    const lq_shard *s = r->s;
    const uint8_t *p = t->data;
    bool pad = s->sum && !strncmp(t->name, LQ_PAD_PREFIX, strlen(LQ_PAD_PREFIX)), go = true;
    if (pad && !pad_empty(t)) return lq_fail(err, LQ_E_FORMAT, "%s: padding %s: is damaged: not all zeros", s->path, t->name);
    XXH64_state_t *st = XXH64_createState();
    if (!st) return lq_fail(err, LQ_E_MEMORY, "%s: no memory to check it", s->path);
    XXH64_reset(st, 0);
    for (size_t at = 0; at < t->bytes && go;) {
        size_t n = t->bytes - at < PIECE ? t->bytes - at : PIECE, end = (size_t)(p - s->map) + at + n;
        reading_ahead(r, end);
        XXH64_update(st, p + at, n);
        at += n;
        go = reading_on(r, end, n);
    }
    uint64_t sum = XXH64_digest(st), want = s->sum ? s->sum[t - s->tensor] : sum;
    XXH64_freeState(st);
    if (!go) return lq_fail(err, LQ_E_CANCELLED, "%s: the check was stopped", s->path);
    return pad || sum == want || lq_fail(err, LQ_E_FORMAT, "%s: tensor %s: is damaged: its bytes have checksum %016llx, expected %016llx",
                                         s->path, t->name, (unsigned long long)sum, (unsigned long long)want);
}

static int by_place(const void *x, const void *y) {
    const lq_tensor *a = *(const lq_tensor *const *)x, *b = *(const lq_tensor *const *)y;
    const char *p = a->data, *q = b->data;
    return (p > q) - (p < q);
}

bool lq_ckpt_verify(const lq_ckpt *c, lq_tick *tick, void *arg, lq_err *err) {
    reading r = {.tick = tick, .arg = arg};
    bool ok = true;
    for (size_t i = 0; i < c->shards; i++) r.total += c->shard[i].bytes - c->shard[i].data_at;
    for (size_t i = 0; i < c->shards && ok; i++) {
        const lq_shard *s = &c->shard[i];
        const lq_tensor **order = malloc((s->count + 1) * sizeof *order);
        if (!order) return lq_fail(err, LQ_E_MEMORY, "%s: no memory to check it", s->path);
        for (size_t j = 0; j < s->count; j++) order[j] = &s->tensor[j];
        qsort(order, s->count, sizeof *order, by_place);
        reading_begin(&r, s);
        for (size_t j = 0; j < s->count && ok; j++) ok = tensor_check(&r, order[j], err);
        reading_end(&r);
        free(order);
    }
    return ok;
}

void lq_ckpt_drop(const lq_ckpt *c, const lq_tensor *t) {
    const lq_shard *s = &c->shard[t->file];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), from = (size_t)((const uint8_t *)t->data - s->map), to = from + t->bytes;
    if (s->mapped) pages_advise(s, (from + page - 1) / page * page, to / page * page, MADV_DONTNEED);
}
