// ckpt.c: opens a checkpoint: finds its files, maps them, hands each to its container, and joins the tables of all shards.
// Owns the mappings, the tables, side files read from disk and aligned copies. Refuses a lone shard of a sharded model,
// shards that an index names by a path, tensors the index and the shards do not agree on, two tensors of one name, and a
// tensor that has the name of a coded weight's part without being one.
#include "formats/container.h"
#include "formats/json.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static const size_t side_max = 512u << 20, index_max = 100 * 1000 * 1000;
enum { SHARDS_MAX = 10000 };

// Memory that lives as long as the checkpoint: side files and aligned copies.
typedef struct kept {
    struct kept *next;
    const void *key; // of a copy: the bytes it was made from
    char *name;      // of a side file
    size_t n;
    _Alignas(64) char data[];
} kept;

struct lq_ckpt {
    char *path, *folder; // folder NULL: nothing stands beside it
    lq_shard *shard;     // [shards]
    size_t shards;
    lq_tensor *tensor;   // [count] by name
    size_t count;
    lq_typed *typed;     // [typeds] by name
    size_t typeds;
    pthread_mutex_t lock; // of kept
    kept *kept;
};

const char *const lq_side_files[] = {
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "tokenizer.model", "vocab.json", "merges.txt", "vocab.txt", "chat_template.jinja", "chat_template.json",
    "preprocessor_config.json", NULL};

// --- containers ---

typedef struct container {
    bool (*probe)(const uint8_t *head, size_t n); // could these be its first bytes?
    bool (*read)(lq_shard *s, lq_err *err);       // fills the shard and says what it is
} container;

static bool tensors_probe(const uint8_t *head, size_t n) { return head || !n; } // the last row: its reader says what is wrong
static bool tensors_read(lq_shard *s, lq_err *err) {
    s->container = "safetensors";
    if (!lq_safetensors_read(s, err)) return false;
    if (!lq_shard_meta(s, "lq.version")) {
        for (size_t i = 0; i < s->metas; i++)
            if (!strncmp(s->meta[i].key, "lq.", 3))
                return lq_fail(err, LQ_E_FORMAT, "%s: has metadata %s but no lq.version", s->path, s->meta[i].key);
        return lq_shard_sort(s), true;
    }
    s->container = "lq";
    return lq_lqfile_read(s, err);
}

static const container containers[] = {{tensors_probe, tensors_read}};

static void shard_close(lq_shard *s) {
    if (s->fd >= 0) {
        if (s->map) munmap((void *)(uintptr_t)s->map, s->bytes);
        close(s->fd);
    }
    free(s->path);
    free(s->arena);
    free(s->tensor);
    free(s->meta);
    free(s->sum);
    free(s->typed);
    free(s->typed_arena);
}

static bool shard_read(lq_shard *s, lq_err *err) {
    for (size_t i = 0; i < sizeof containers / sizeof *containers; i++)
        if (containers[i].probe(s->map, s->bytes)) return containers[i].read(s, err);
    return lq_fail(err, LQ_E_FORMAT, "%s: not a checkpoint that lq knows", s->path);
}

static bool shard_open(lq_shard *s, const char *path, lq_err *err) {
    struct stat st;
    *s = (lq_shard){.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), .path = strdup(path)};
    if (!s->path) return lq_fail(err, LQ_E_MEMORY, "%s: no memory", path);
    if (s->fd < 0 || fstat(s->fd, &st)) return lq_fail(err, LQ_E_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return lq_fail(err, LQ_E_IO, "%s: not a regular file", path);
    if (st.st_size == 0) return lq_fail(err, LQ_E_FORMAT, "%s: the file is empty", path);
    s->bytes = (size_t)st.st_size;
    void *map = mmap(NULL, s->bytes, PROT_READ, MAP_SHARED, s->fd, 0);
    if (map == MAP_FAILED) return lq_fail(err, LQ_E_IO, "%s: cannot be mapped: %s", path, strerror(errno));
    s->map = map;
    return shard_read(s, err);
}

// --- files ---

static kept *kept_new(size_t n) {
    kept *k = aligned_alloc(64, (sizeof *k + n + 63) / 64 * 64);
    if (k) *k = (kept){.n = n};
    return k;
}

static bool file_read(const char *path, size_t max, kept **out, lq_err *err) {
    struct stat st;
    kept *k = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool ok = fd >= 0 && !fstat(fd, &st);
    if (!ok) lq_fail(err, LQ_E_IO, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode)) ok = lq_fail(err, LQ_E_IO, "%s: not a regular file", path);
    else if ((size_t)st.st_size > max)
        ok = lq_fail(err, LQ_E_LIMIT, "%s: %lld bytes, at most %zu are read", path, (long long)st.st_size, max);
    else if (!(k = kept_new((size_t)st.st_size)))
        ok = lq_fail(err, LQ_E_MEMORY, "%s: no memory for its %lld bytes", path, (long long)st.st_size);
    for (size_t at = 0; ok && at < k->n;) {
        ssize_t got = read(fd, k->data + at, k->n - at);
        if (got > 0) at += (size_t)got;
        else if (got == 0) ok = lq_fail(err, LQ_E_IO, "%s: became shorter while it was read", path);
        else if (errno != EINTR) ok = lq_fail(err, LQ_E_IO, "%s: %s", path, strerror(errno));
    }
    if (fd >= 0) close(fd);
    if (!ok) free(k);
    else *out = k;
    return ok;
}

static char *path_join(const char *folder, const char *name) {
    char *p = NULL;
    return asprintf(&p, "%s/%s", folder, name) < 0 ? NULL : p;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool ends(const char *s, const char *suffix) {
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && !strcmp(s + n - m, suffix);
}

// "...-00001-of-00003.safetensors": the number of shards, 0 if the name is not of that kind.
static long shard_total(const char *name) {
    const char *of = strstr(name, "-of-");
    if (!of || of == name || of[-1] < '0' || of[-1] > '9') return 0;
    char *end;
    long total = strtol(of + 4, &end, 10);
    return end > of + 4 && (*end == '.' || *end == 0) ? total : 0;
}

// --- joining shards ---

static int by_name(const void *x, const void *y) { return strcmp(((const lq_tensor *)x)->name, ((const lq_tensor *)y)->name); }
static int typed_by_name(const void *x, const void *y) { return strcmp(((const lq_typed *)x)->name, ((const lq_typed *)y)->name); }

static const lq_typed *typed_find(const lq_typed *list, size_t count, const char *name) {
    lq_typed key = {.name = name};
    return count ? bsearch(&key, list, count, sizeof key, typed_by_name) : NULL;
}

// The names w.* of a coded weight w are its parts': nothing else may bear one, and a part lies in the file of its weight,
// where its shape was checked.
static bool parts_check(const lq_ckpt *c, lq_err *err) {
    char w[LQ_NAME];
    for (size_t i = 0; i < c->count && c->typeds; i++) {
        const lq_tensor *t = &c->tensor[i];
        const lq_shard *s = &c->shard[t->file];
        snprintf(w, sizeof w, "%s", t->name);
        for (char *dot; (dot = strrchr(w, '.'));) {
            *dot = 0;
            const lq_typed *of = typed_find(c->typed, c->typeds, w);
            const char *suffix = t->name + (dot - w);
            if (!of) continue;
            if (!lq_part_known(&of->type, suffix))
                return lq_fail(err, LQ_E_FORMAT, "%s: weight %s: has a part %s, which its type does not have", s->path, w, suffix);
            if (!typed_find(s->typed, s->typeds, w))
                return lq_fail(err, LQ_E_FORMAT, "%s: weight %s: its part %s is here, the weight is in another file", s->path, w, suffix);
        }
    }
    return true;
}

static bool shards_join(lq_ckpt *c, lq_err *err) {
    size_t tensors = 0, typeds = 0;
    for (size_t i = 0; i < c->shards; i++) tensors += c->shard[i].count, typeds += c->shard[i].typeds;
    c->tensor = malloc((tensors + 1) * sizeof *c->tensor);
    c->typed = malloc((typeds + 1) * sizeof *c->typed);
    if (!c->tensor || !c->typed) return lq_fail(err, LQ_E_MEMORY, "%s: no memory for %zu tensors", c->path, tensors);
    for (size_t i = 0; i < c->shards; i++) {
        const lq_shard *s = &c->shard[i];
        if (strcmp(s->container, c->shard[0].container) != 0)
            return lq_fail(err, LQ_E_FORMAT, "%s: is %s while %s is %s", s->path, s->container, c->shard[0].path, c->shard[0].container);
        for (size_t j = 0; j < s->count; j++) {
            if (s->sum && lq_name_reserved(s->tensor[j].name)) continue;
            c->tensor[c->count] = s->tensor[j];
            c->tensor[c->count++].file = (int)i;
        }
        if (s->typeds) memcpy(c->typed + c->typeds, s->typed, s->typeds * sizeof *s->typed);
        c->typeds += s->typeds;
    }
    qsort(c->tensor, c->count, sizeof *c->tensor, by_name);
    qsort(c->typed, c->typeds, sizeof *c->typed, typed_by_name);
    for (size_t i = 1; i < c->count; i++)
        if (!by_name(&c->tensor[i - 1], &c->tensor[i]))
            return lq_fail(err, LQ_E_FORMAT, "%s: tensor %s is also in %s", c->shard[c->tensor[i].file].path, c->tensor[i].name,
                           base_name(c->shard[c->tensor[i - 1].file].path));
    for (size_t i = 0; i < c->typeds; i++)
        if ((i && !typed_by_name(&c->typed[i - 1], &c->typed[i])) || lq_ckpt_find(c, c->typed[i].name))
            return lq_fail(err, LQ_E_FORMAT, "%s: weight %s is there twice", c->path, c->typed[i].name);
    return parts_check(c, err);
}

// --- the index of a sharded model ---

typedef struct placed { const char *name, *file; } placed; // what the index says

static int by_file(const void *x, const void *y) { return strcmp(((const placed *)x)->file, ((const placed *)y)->file); }

// The pairs of weight_map; their strings go to `arena`, which is as large as the text.
static bool index_walk(const char *path, const char *text, size_t n, char *arena, placed **out, size_t *count, lq_err *err) {
    lq_json_walk w = {text, text + n};
    size_t cap = 0, m;
    bool found = false;
    if (lq_json_next(&w) == '{') lq_json_take(&w);
    while (lq_json_next(&w) == '"') {
        m = lq_json_take_str(&w, arena);
        if (m != 10 || memcmp(arena, "weight_map", 10) != 0 || lq_json_next(&w) != '{') {
            lq_json_skip(&w);
            continue;
        }
        found = true;
        char *at = arena;
        for (lq_json_take(&w); lq_json_next(&w) == '"';) {
            placed p = {.name = at};
            m = lq_json_take_str(&w, at);
            at[m] = 0;
            bool ok = strlen(at) == m && lq_name_ok(at, m) && lq_json_next(&w) == '"';
            if (ok) {
                p.file = at += m + 1;
                m = lq_json_take_str(&w, at);
                at[m] = 0;
                ok = strlen(at) == m;
                at += m + 1;
            }
            if (!ok) return lq_fail(err, LQ_E_FORMAT, "%s: weight_map: \"%.100s\" is not a tensor's name with a file's", path, p.name);
            if (!lq_file_name_ok(p.file))
                return lq_fail(err, LQ_E_FORMAT, "%s: tensor %s: shard \"%.100s\" is not a file beside the index", path, p.name, p.file);
            if (*count == cap) {
                cap = cap ? cap * 2 : 256;
                placed *q = realloc(*out, cap * sizeof *q);
                if (!q) return lq_fail(err, LQ_E_MEMORY, "%s: no memory for the index", path);
                *out = q;
            }
            (*out)[(*count)++] = p;
        }
        lq_json_take(&w);
        at[0] = 0;
        arena = at; // what follows weight_map may not write over it
    }
    return (found && *count) || lq_fail(err, LQ_E_FORMAT, "%s: has no weight_map with tensors in it", path);
}

// The files of a .lq model number themselves; the first carries the side files.
static bool numbers_check(const lq_ckpt *c, lq_err *err) {
    bool *seen = calloc(c->shards + 1, sizeof *seen), ok = seen || lq_fail(err, LQ_E_MEMORY, "%s: no memory", c->path);
    for (size_t i = 0; i < c->shards && ok; i++) {
        const lq_shard *s = &c->shard[i];
        if (!s->sum) continue;
        if ((size_t)s->parts != c->shards || seen[s->part]) {
            const char *text = lq_shard_meta(s, "lq.shard");
            ok = lq_fail(err, LQ_E_FORMAT, "%s: metadata lq.shard is %s, expected each number of %zu once", s->path,
                         text ? text : "missing", c->shards);
        }
        if (ok) seen[s->part] = true;
        for (size_t j = 0; j < s->count && ok && s->part > 1; j++)
            if (!strncmp(s->tensor[j].name, LQ_FILE_PREFIX, strlen(LQ_FILE_PREFIX)))
                ok = lq_fail(err, LQ_E_FORMAT, "%s: %s is in file %ld, expected in the first", s->path, s->tensor[j].name, s->part);
    }
    free(seen);
    return ok;
}

static bool index_open_shards(lq_ckpt *c, placed *p, size_t count, lq_err *err) {
    qsort(p, count, sizeof *p, by_file);
    size_t files = 1;
    for (size_t i = 1; i < count; i++) files += strcmp(p[i - 1].file, p[i].file) != 0;
    if (files > SHARDS_MAX) return lq_fail(err, LQ_E_LIMIT, "%s: %zu shards, at most %d are taken", c->path, files, SHARDS_MAX);
    c->shard = calloc(files, sizeof *c->shard);
    if (!c->shard) return lq_fail(err, LQ_E_MEMORY, "%s: no memory for %zu shards", c->path, files);
    for (size_t i = 0; i < count; i++) {
        if (i && !strcmp(p[i - 1].file, p[i].file)) continue;
        char *path = path_join(c->folder, p[i].file);
        if (!path) return lq_fail(err, LQ_E_MEMORY, "%s: no memory", c->path);
        bool ok = shard_open(&c->shard[c->shards++], path, err);
        free(path);
        if (!ok) return false;
    }
    if (!numbers_check(c, err) || !shards_join(c, err)) return false;
    for (size_t i = 0; i < count; i++) {
        const lq_tensor *t = lq_ckpt_find(c, p[i].name);
        if (!t || strcmp(base_name(c->shard[t->file].path), p[i].file) != 0)
            return lq_fail(err, LQ_E_FORMAT, "%s: tensor %s is not in %s", c->path, p[i].name, p[i].file);
    }
    if (c->count != count)
        return lq_fail(err, LQ_E_FORMAT, "%s: the shards hold %zu tensors, the index names %zu", c->path, c->count, count);
    return true;
}

static bool index_open(lq_ckpt *c, lq_err *err) {
    kept *text;
    placed *p = NULL;
    size_t count = 0;
    if (!file_read(c->path, index_max, &text, err)) return false;
    char *arena = malloc(text->n + 1);
    bool ok = arena || lq_fail(err, LQ_E_MEMORY, "%s: no memory for the index", c->path);
    ok = ok && lq_json_check(text->data, text->n, (lq_json_limits){index_max, 16}, c->path, err) &&
         index_walk(c->path, text->data, text->n, arena, &p, &count, err) && index_open_shards(c, p, count, err);
    free(p);
    free(arena);
    free(text);
    return ok;
}

// --- open ---

// Which file of a directory is the checkpoint: the index, model.safetensors, or the only one there is.
static bool folder_choose(const char *folder, char **out, lq_err *err) {
    DIR *d = opendir(folder);
    if (!d) return lq_fail(err, LQ_E_IO, "%s: %s", folder, strerror(errno));
    char index[256] = "", file[256] = "";
    size_t indices = 0, files = 0, lqs = 0;
    bool main_index = false, main_file = false;
    for (struct dirent *e; (e = readdir(d));) {
        const char *n = e->d_name;
        bool lq = ends(n, ".lq");
        if (ends(n, ".safetensors.index.json") || ends(n, ".lq.index.json")) snprintf(index, sizeof index, "%s", n), indices++;
        else if (lq || ends(n, ".safetensors")) snprintf(file, sizeof file, "%s", n), files++;
        lqs += lq;
        main_index |= !strcmp(n, "model.safetensors.index.json");
        main_file |= !strcmp(n, "model.safetensors");
    }
    closedir(d);
    const char *pick = NULL;
    if (main_index && !lqs) pick = "model.safetensors.index.json";
    else if (main_file && !lqs) pick = "model.safetensors";
    else if (indices == 1 && (!lqs || ends(index, ".lq.index.json"))) pick = index;
    else if (!indices && files == 1) pick = file;
    if (!pick && !indices && !files)
        return lq_fail(err, LQ_E_FORMAT, "%s: holds no .lq, .safetensors or .safetensors.index.json file", folder);
    if (!pick && !indices && shard_total(file) > 1)
        return lq_fail(err, LQ_E_FORMAT, "%s: holds shards but no index (model.safetensors.index.json)", folder);
    if (!pick) return lq_fail(err, LQ_E_FORMAT, "%s: holds %zu checkpoints; name the one that is meant", folder, indices + files);
    *out = path_join(folder, pick);
    return *out || lq_fail(err, LQ_E_MEMORY, "%s: no memory", folder);
}

// A shard that lost its name still says what it is.
static bool alone_check(const lq_ckpt *c, lq_err *err) {
    const lq_shard *s = c->shard;
    return !s->parts || lq_fail(err, LQ_E_FORMAT, "%s: one shard of %ld; give the model's index (.lq.index.json) or its directory", s->path,
                                s->parts);
}

static bool single_open(lq_ckpt *c, lq_err *err) {
    const char *base = base_name(c->path);
    long total = shard_total(base);
    if (total > 1)
        return lq_fail(err, LQ_E_FORMAT, "%s: one shard of %ld; give the model's index (model.safetensors.index.json) or its directory",
                       c->path, total);
    c->shard = calloc(1, sizeof *c->shard);
    if (!c->shard) return lq_fail(err, LQ_E_MEMORY, "%s: no memory", c->path);
    c->shards = 1;
    return shard_open(c->shard, c->path, err) && alone_check(c, err) && shards_join(c, err);
}

static bool paths_set(lq_ckpt *c, const char *path, lq_err *err) {
    struct stat st;
    if (stat(path, &st)) return lq_fail(err, LQ_E_IO, "%s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode)) {
        c->folder = strdup(path);
        return c->folder ? folder_choose(path, &c->path, err) : lq_fail(err, LQ_E_MEMORY, "%s: no memory", path);
    }
    const char *base = base_name(path);
    c->path = strdup(path);
    c->folder = base == path ? strdup(".") : strndup(path, base - path > 1 ? (size_t)(base - path - 1) : 1);
    return (c->path && c->folder) || lq_fail(err, LQ_E_MEMORY, "%s: no memory", path);
}

static lq_ckpt *ckpt_new(void) {
    lq_ckpt *c = calloc(1, sizeof *c);
    if (c) pthread_mutex_init(&c->lock, NULL);
    return c;
}

bool lq_ckpt_open(const char *path, lq_ckpt **out, lq_err *err) {
    *out = NULL;
    lq_ckpt *c = ckpt_new();
    if (!c) return lq_fail(err, LQ_E_MEMORY, "%s: no memory", path);
    if (!paths_set(c, path, err) || !(ends(c->path, ".index.json") ? index_open(c, err) : single_open(c, err))) {
        lq_ckpt_close(c);
        return false;
    }
    *out = c;
    return true;
}

bool lq_ckpt_open_bytes(const void *data, size_t n, const char *name, lq_ckpt **out, lq_err *err) {
    *out = NULL;
    lq_ckpt *c = ckpt_new();
    bool ok = c && (c->path = strdup(name)) && (c->shard = calloc(1, sizeof *c->shard)) && (c->shard->path = strdup(name));
    if (!ok) {
        lq_fail(err, LQ_E_MEMORY, "%s: no memory", name);
    } else {
        c->shards = 1;
        c->shard->fd = -1, c->shard->map = data, c->shard->bytes = n;
        ok = shard_read(c->shard, err) && alone_check(c, err) && shards_join(c, err);
    }
    if (ok) *out = c;
    else lq_ckpt_close(c);
    return ok;
}

void lq_ckpt_close(lq_ckpt *c) {
    if (!c) return;
    for (size_t i = 0; i < c->shards; i++) shard_close(&c->shard[i]);
    for (kept *k = c->kept, *next; k; k = next) {
        next = k->next;
        free(k->name);
        free(k);
    }
    pthread_mutex_destroy(&c->lock);
    free(c->shard);
    free(c->tensor);
    free(c->typed);
    free(c->path);
    free(c->folder);
    free(c);
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

const lq_tensor *lq_ckpt_find(const lq_ckpt *c, const char *name) {
    lq_tensor key = {.name = name};
    return c->count ? bsearch(&key, c->tensor, c->count, sizeof key, by_name) : NULL;
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

bool lq_ckpt_file(lq_ckpt *c, const char *name, lq_bytes *out, lq_err *err) {
    *out = (lq_bytes){0};
    if (!lq_file_name_ok(name)) return lq_fail(err, LQ_E_USAGE, "%s: side file \"%.100s\" is a path, expected a name", c->path, name);
    bool any;
    const lq_tensor *t = file_inside(c, name, &any);
    if (t) return *out = (lq_bytes){t->data, t->bytes}, true;
    if (any || !c->folder) return true;
    pthread_mutex_lock(&c->lock);
    kept *k = c->kept;
    while (k && (!k->name || strcmp(k->name, name) != 0)) k = k->next;
    bool ok = true;
    if (!k) {
        char *path = path_join(c->folder, name);
        if (!path) ok = lq_fail(err, LQ_E_MEMORY, "%s: no memory", name);
        else if (access(path, F_OK) == 0) ok = file_read(path, side_max, &k, err);
        free(path);
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

// --- weights ---

// The tensor's bytes at a multiple of `to`: as they lie, or a copy (many weights share none, so one per tensor).
static bool aligned(const lq_ckpt *c, const lq_tensor *t, size_t to, const void **out, lq_err *err) {
    *out = t->data;
    if ((uintptr_t)t->data % to == 0) return true;
    lq_ckpt *m = (lq_ckpt *)(uintptr_t)c; // the list of copies is a cache behind a lock
    pthread_mutex_lock(&m->lock);
    kept *k = m->kept;
    while (k && (k->key != t->data || k->n != t->bytes)) k = k->next; // an empty tensor may begin where another does
    if (!k && (k = kept_new(t->bytes))) {
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
    return typed_find(c->typed, c->typeds, name);
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
    r->streams = s->fd >= 0 && s->bytes > STREAM_MIN;
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
    if (s->fd >= 0) pages_advise(s, (from + page - 1) / page * page, to / page * page, MADV_DONTNEED);
}
