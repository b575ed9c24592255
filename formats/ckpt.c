// ckpt.c: what an open checkpoint holds: tensors, coded weights and side files by name, and the walk over
// all of its bytes. Owns side files that were read. Refuses side files whose names are paths, and bytes that
// are not what their checksum says.
#include "formats/container.h"
#include "formats/kind.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

const char *const lq_side_files[] = {
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "tokenizer.model", "tekken.json", "tiktoken.model", "qwen.tiktoken", "hy.tiktoken",
    "arcade100k.tiktoken", "cl100k_base.tiktoken", "o200k_base.tiktoken", "p50k_base.tiktoken", "r50k_base.tiktoken",
    "gpt2.tiktoken", "vocab.json", "merges.txt", "vocab.txt", "chat_template.jinja", "chat_template.json",
    "preprocessor_config.json", "modules.json", "1_Pooling.json", NULL
};
const char *const lq_vocab_files[] = {
    "tokenizer.json", "tekken.json", "tiktoken.model", "tokenizer.model", "qwen.tiktoken", "hy.tiktoken",
    "arcade100k.tiktoken", "cl100k_base.tiktoken", "o200k_base.tiktoken", "p50k_base.tiktoken", "r50k_base.tiktoken",
    "gpt2.tiktoken", "vocab.json", "vocab.txt", NULL
};

// Where a side file stands in a folder: beside the weights, but for one that others have in a folder of its own.
static char *side_path(const char *folder, const char *name) {
    return lq_path_join(folder, strcmp(name, "1_Pooling.json") ? name : "1_Pooling/config.json");
}

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

void lq_ckpt_runner(lq_ckpt *c, lq_runner *run, void *pool, int threads) {
    c->run = run, c->run_pool = pool, c->run_threads = threads;
}

const lq_typed *lq_ckpt_typed(const lq_ckpt *c, const char *name) {
    return lq_hashed_find(&c->type_names, c->typed, sizeof *c->typed, name, strlen(name));
}

bool lq_ckpt_has_weight(const lq_ckpt *c, const char *name) { return lq_ckpt_find(c, name) || lq_ckpt_typed(c, name); }

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
        *any = *any || s->files;
        if (!found) found = lq_shard_find(s, full);
    }
    return found;
}

// The most that is read of a side file: vocabularies are large, all else is small.
static size_t file_max(const char *name) {
    static const char *const large[] = {"tokenizer.json", "tokenizer.model", "tekken.json", "tiktoken.model",
                                        "vocab.json", "vocab.txt", "merges.txt"};
    const size_t n = strlen(name);
    if (n > 9 && !strcmp(name + n - 9, ".tiktoken")) return 256u << 20;
    for (size_t i = 0; i < sizeof large / sizeof *large; i++)
        if (!strcmp(name, large[i])) return 256u << 20;
    return 16u << 20;
}

// Of a file that is mapped a copy: what was checked must not change before it is read.
static bool file_copy(const lq_ckpt *c, const lq_tensor *t, lq_kept **out, lq_err *err) {
    const char *name = t->name + strlen(LQ_FILE_PREFIX);
    if (t->bytes > file_max(name))
        return lq_fail(err, LQ_E_LIMIT, "%s: side file %s: %zu bytes, at most %zu are read", c->path, name, t->bytes,
                       file_max(name));
    if (!(*out = lq_kept_new(t->bytes))) return lq_fail(err, LQ_E_MEMORY, "%s: no memory for %s", c->path, name);
    if (t->bytes) memcpy((*out)->data, t->data, t->bytes);
    return true;
}

static bool file_beside(const lq_ckpt *c, const char *name, lq_kept **out, lq_err *err) {
    char *path = side_path(c->folder, name);
    if (!path) return lq_fail(err, LQ_E_MEMORY, "%s: no memory", name);
    bool ok = lq_path_absent(path) || lq_kept_read(path, file_max(name), out, NULL, err);
    free(path);
    return ok;
}

bool lq_ckpt_file(lq_ckpt *c, const char *name, lq_bytes *out, lq_err *err) {
    *out = (lq_bytes){0};
    if (!lq_file_name_ok(name))
        return lq_fail(err, LQ_E_USAGE, "%s: side file \"%.100s\" is a path, expected a name", c->path, name);
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
    char *path = any || !c->folder ? NULL : side_path(c->folder, name);
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
        char *path = side_path(c->folder, lq_side_files[i]);
        bool same = path && !stat(path, &st) && (uint64_t)st.st_dev == dev && (uint64_t)st.st_ino == ino;
        free(path);
        if (same) return true;
    }
    return false;
}

// --- reading through it ---

static bool pad_empty(const lq_tensor *t) {
    const uint8_t *p = t->data;
    for (size_t i = 0; i < t->bytes; i++)
        if (p[i]) return false;
    return true;
}

// A walk over a shard in the order of its bytes. Of a large file only the piece at hand stays mapped
// in, and the next is on its way.
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

void lq_ckpt_sparse(const lq_ckpt *c, bool on) {
    for (size_t i = 0; i < c->shards; i++)
        if (c->shard[i].mapped) pages_advise(&c->shard[i], 0, c->shard[i].bytes, on ? MADV_RANDOM : MADV_NORMAL);
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
    if (pad && !pad_empty(t))
        return lq_fail(err, LQ_E_FORMAT, "%s: padding %s: is damaged: not all zeros", s->path, t->name);
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
    return pad || sum == want || lq_fail(err, LQ_E_FORMAT,
                                         "%s: tensor %s: is damaged: its bytes have checksum %016llx, expected %016llx",
                                         s->path, t->name, (unsigned long long)sum, (unsigned long long)want);
}

bool lq_ckpt_verify(const lq_ckpt *c, lq_tick *tick, void *arg, lq_err *err) {
    reading r = {.tick = tick, .arg = arg};
    bool ok = true;
    for (size_t i = 0; i < c->shards; i++) r.total += c->shard[i].bytes - c->shard[i].data_at;
    for (size_t i = 0; i < c->shards && ok; i++) {
        const lq_shard *s = &c->shard[i];
        reading_begin(&r, s);
        for (size_t j = 0; j < s->count && ok; j++) ok = tensor_check(&r, &s->tensor[j], err);
        reading_end(&r);
    }
    return ok;
}

void lq_ckpt_drop(const lq_ckpt *c, const lq_tensor *t) { lq_ckpt_drop_bytes(c, t->data, t->bytes); }

// Of whole pages or (soon) of all that hold any of it.
static void bytes_advise(const lq_ckpt *c, const void *p, size_t n, bool soon) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < c->shards && p; i++) {
        const lq_shard *s = &c->shard[i];
        const size_t from = (uintptr_t)p - (uintptr_t)s->map, to = from + n;
        if ((uintptr_t)p < (uintptr_t)s->map || to > s->bytes || !s->mapped) continue;
        if (soon) pages_advise(s, from / page * page, to, MADV_WILLNEED);
        else pages_advise(s, (from + page - 1) / page * page, to / page * page, MADV_DONTNEED);
        return;
    }
}

void lq_ckpt_drop_bytes(const lq_ckpt *c, const void *p, size_t n) { bytes_advise(c, p, n, false); }

void lq_ckpt_soon(const lq_ckpt *c, const void *p, size_t n) { bytes_advise(c, p, n, true); }

void lq_ckpt_bring(const lq_ckpt *c, const void *p, size_t n) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    lq_ckpt_soon(c, p, n);
    for (size_t at = 0; at < n; at += page) (void)((const volatile char *)p)[at];
    lq_ckpt_drop_bytes(c, p, n);
}
