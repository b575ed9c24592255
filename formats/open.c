// open.c: opens a checkpoint: finds its files, maps them, hands each to its container, and joins the tables of all
// shards. Owns the mappings and the tables. Refuses a lone shard of a sharded model, shards that an index names by a
// path, tensors the index and the shards do not agree on, two tensors of one name, and a tensor that has the name of a
// coded weight's part without being one.
#include "formats/container.h"
#include "formats/json.h"
#include "formats/kind.h"
#include "formats/parts.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const size_t index_max = 100 * 1000 * 1000;
enum { SHARDS_MAX = 10000 };

// --- containers ---

typedef struct container {
    bool (*probe)(const uint8_t *head, size_t n); // could these be its first bytes?
    bool (*read)(lq_shard *s, lq_err *err);       // fills the shard and says what it is
} container;

// the last row: its reader says what is wrong
static bool tensors_probe(const uint8_t *head, size_t n) { return head || !n; }
static bool tensors_read(lq_shard *s, lq_err *err) {
    s->container = "safetensors";
    if (!lq_safetensors_read(s, err)) return false;
    if (!lq_shard_meta(s, "lq.version")) {
        for (size_t i = 0; i < s->metas; i++)
            if (!strncmp(s->meta[i].key, "lq.", 3))
                return lq_fail(err, LQ_E_FORMAT, "%s: has metadata %s but no lq.version", s->path, s->meta[i].key);
        return true;
    }
    s->container = "lq";
    return lq_lqfile_read(s, err);
}

static const container containers[] = {{tensors_probe, tensors_read}};

static void shard_close(lq_shard *s) {
    if (s->mapped) munmap((void *)(uintptr_t)s->map, s->bytes);
    free(s->header);
    free(s->path);
    free(s->arena);
    free(s->tensor);
    free(s->meta);
    free(s->sum);
    free(s->typed);
    free(s->typed_arena);
    lq_hashed_free(&s->names);
    lq_hashed_free(&s->type_names);
}

static bool shard_read(lq_shard *s, lq_err *err) {
    size_t i = 0, rows = sizeof containers / sizeof *containers;
    while (i < rows && !containers[i].probe(s->map, s->bytes)) i++;
    if (i == rows) return lq_fail(err, LQ_E_FORMAT, "%s: not a checkpoint that lq knows", s->path);
    bool ok = containers[i].read(s, err);
    free(s->header);
    s->header = NULL;
    return ok;
}

static lq_file_info info_of(const char *path, const struct stat *st) {
    return (lq_file_info){.path = path, .dev = (uint64_t)st->st_dev, .ino = (uint64_t)st->st_ino,
                          .bytes = (uint64_t)st->st_size,
                          .sec = (int64_t)st->st_mtim.tv_sec, .nsec = (int64_t)st->st_mtim.tv_nsec};
}

// Opens a regular file to read it; -1 with the reason in err.
static int file_open(const char *path, struct stat *st, lq_err *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && !fstat(fd, st) && S_ISREG(st->st_mode)) return fd;
    if (fd >= 0 && !S_ISREG(st->st_mode)) lq_fail(err, LQ_E_IO, "%s: not a regular file", path);
    else lq_fail(err, LQ_E_IO, "%s: %s", path, lq_path_why(path, errno));
    if (fd >= 0) close(fd);
    return -1;
}

// The descriptor is not kept: a model may have more shards than a process may have files open.
static bool shard_open(lq_shard *s, const char *path, lq_err *err) {
    struct stat st;
    *s = (lq_shard){.path = strdup(path)};
    if (!s->path) return lq_fail(err, LQ_E_MEMORY, "%s: no memory", path);
    int fd = file_open(path, &st, err);
    if (fd < 0) return false;
    s->bytes = (size_t)st.st_size;
    s->info = info_of(s->path, &st);
    void *map = s->bytes ? mmap(NULL, s->bytes, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    int why = errno;
    close(fd);
    if (!s->bytes) return lq_fail(err, LQ_E_FORMAT, "%s: the file is empty", path);
    if (map == MAP_FAILED) return lq_fail(err, LQ_E_IO, "%s: cannot be mapped: %s", path, strerror(why));
    s->map = map, s->mapped = true;
    return shard_read(s, err);
}

// --- files ---

lq_kept *lq_kept_new(size_t n) {
    size_t all;
    if (!lq_add_size(n, sizeof(lq_kept), &all) || !lq_align_size(all, 64, &all)) return NULL;
    lq_kept *k = aligned_alloc(64, all);
    if (k) *k = (lq_kept){.n = n};
    return k;
}

bool lq_kept_read(const char *path, size_t max, lq_kept **out, lq_file_info *info, lq_err *err) {
    struct stat st;
    lq_kept *k = NULL;
    int fd = file_open(path, &st, err);
    bool ok = fd >= 0;
    if (ok && (size_t)st.st_size > max)
        ok = lq_fail(err, LQ_E_LIMIT, "%s: %lld bytes, at most %zu are read", path, (long long)st.st_size, max);
    else if (ok && !(k = lq_kept_new((size_t)st.st_size)))
        ok = lq_fail(err, LQ_E_MEMORY, "%s: no memory for its %lld bytes", path, (long long)st.st_size);
    for (size_t at = 0; ok && at < k->n;) {
        ssize_t got = read(fd, k->data + at, k->n - at);
        if (got > 0) at += (size_t)got;
        else if (got == 0) ok = lq_fail(err, LQ_E_IO, "%s: became shorter while it was read", path);
        else if (errno != EINTR) ok = lq_fail(err, LQ_E_IO, "%s: %s", path, strerror(errno));
    }
    if (fd >= 0) close(fd);
    const char *kind = ok ? lq_kind_of_side(k->data, k->n) : NULL;
    if (kind) ok = lq_fail(err, LQ_E_FORMAT, "%s: is %s", path, kind);
    if (ok && info) *info = info_of(path, &st);
    if (ok) *out = k;
    else free(k);
    return ok;
}

char *lq_path_join(const char *folder, const char *name) {
    char *p = NULL;
    const size_t n = strlen(folder);
    return asprintf(&p, "%s%s%s", folder, n && folder[n - 1] == '/' ? "" : "/", name) < 0 ? NULL : p;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

// The last "-of-" counts: a name may hold others.
long lq_shard_total(const char *name) {
    long total = 0;
    for (const char *of = name; (of = strstr(of, "-of-")); of += 4) {
        char *end;
        total = 0;
        if (of == name || of[-1] < '0' || of[-1] > '9' || of[4] < '0' || of[4] > '9') continue;
        long n = strtol(of + 4, &end, 10);
        if (*end == '.' || *end == 0) total = n;
    }
    return total;
}

// --- joining shards ---

const lq_tensor *lq_ckpt_find(const lq_ckpt *c, const char *name) {
    return lq_hashed_find(&c->names, c->tensor, sizeof *c->tensor, name, strlen(name));
}

static bool part_known(const lq_wtype *t, const char *suffix) {
    for (lq_part_id i = 0; i < LQ_PARTS; i++)
        if (!strcmp(suffix, lq_part_suffix(i)) && lq_part_may(i, t)) return true;
    return false;
}

// The names w.* of a coded weight w are its parts': nothing else may bear one, and a part lies in the file of its
// weight, where its shape was checked.
static bool parts_check(const lq_ckpt *c, lq_err *err) {
    bool length[LQ_NAME] = {false}; // of some weight's name: most parts of names are not worth a look
    for (size_t i = 0; i < c->typeds; i++) length[strlen(c->typed[i].name)] = true;
    for (size_t i = 0; i < c->count && c->typeds && !c->foreign; i++) {
        const lq_tensor *t = &c->tensor[i];
        const lq_shard *s = &c->shard[t->file];
        for (const char *dot = t->name; (dot = strchr(dot, '.')); dot++) {
            const size_t n = (size_t)(dot - t->name);
            const lq_typed *of = length[n] ? lq_hashed_find(&c->type_names, c->typed, sizeof *c->typed, t->name, n)
                : NULL;
            if (!of) continue;
            if (!part_known(&of->type, dot))
                return lq_fail(err, LQ_E_FORMAT, "%s: weight %s: has a part %s, which its type does not have", s->path,
                               of->name, dot);
            if (!lq_hashed_find(&s->type_names, s->typed, sizeof *s->typed, t->name, n))
                return lq_fail(err, LQ_E_FORMAT, "%s: weight %s: its part %s is here, the weight is in another file",
                               s->path, of->name, dot);
        }
    }
    return true;
}

// All model tensors of the shards in one table, by name.
static bool tensors_join(lq_ckpt *c, lq_named *order, lq_err *err) {
    size_t n = 0;
    for (size_t i = 0; i < c->shards; i++)
        for (size_t j = 0; j < c->shard[i].count; j++) {
            lq_tensor *t = &c->shard[i].tensor[j];
            t->file = (int)i;
            if (!c->shard[i].sum || !lq_name_reserved(t->name)) order[n++] = (lq_named){.name = t->name, .of = t};
        }
    if (!lq_named_sort(order, n)) return lq_fail(err, LQ_E_MEMORY, "%s: no memory for %zu names", c->path, n);
    for (size_t i = 0; i < n; i++) {
        const lq_tensor *t = c->tensor + i;
        c->tensor[c->count++] = *(const lq_tensor *)order[i].of;
        if (i && !strcmp(t[-1].name, t->name))
            return lq_fail(err, LQ_E_FORMAT, "%s: tensor %s is also in %s", c->shard[t->file].path, t->name,
                           base_name(c->shard[t[-1].file].path));
    }
    return lq_hashed_build(&c->names, c->tensor, n, sizeof *c->tensor) ||
           lq_fail(err, LQ_E_MEMORY, "%s: no memory for %zu names", c->path, n);
}

static bool types_join(lq_ckpt *c, lq_named *order, lq_err *err) {
    size_t n = 0;
    for (size_t i = 0; i < c->shards; i++)
        for (size_t j = 0; j < c->shard[i].typeds; j++) {
            const lq_typed *t = &c->shard[i].typed[j];
            order[n++] = (lq_named){.name = t->name, .of = t};
        }
    if (!lq_named_sort(order, n)) return lq_fail(err, LQ_E_MEMORY, "%s: no memory for %zu names", c->path, n);
    for (size_t i = 0; i < n; i++) {
        const lq_typed *t = c->typed + i;
        c->typed[c->typeds++] = *(const lq_typed *)order[i].of;
        if ((i && !strcmp(t[-1].name, t->name)) || lq_ckpt_find(c, t->name))
            return lq_fail(err, LQ_E_FORMAT, "%s: weight %s is there twice", c->path, t->name);
    }
    if (c->shards && !c->shard[0].sum && !lq_foreign_find(c, err)) return false;
    if (!lq_hashed_build(&c->type_names, c->typed, c->typeds, sizeof *c->typed))
        return lq_fail(err, LQ_E_MEMORY, "%s: no memory for %zu names", c->path, c->typeds);
    for (size_t i = 0; i < c->typeds; i++)
        if (lq_ckpt_typed(c, c->typed[i].name) != &c->typed[i])
            return lq_fail(err, LQ_E_FORMAT, "%s: weight %s is there twice", c->path, c->typed[i].name);
    return true;
}

static bool shards_join(lq_ckpt *c, lq_err *err) {
    size_t tensors = 0, typeds = 0;
    for (size_t i = 0; i < c->shards; i++) {
        const lq_shard *s = &c->shard[i];
        tensors += s->count, typeds += s->typeds;
        if (strcmp(s->container, c->shard[0].container) != 0)
            return lq_fail(err, LQ_E_FORMAT, "%s: is %s while %s is %s", s->path, s->container, c->shard[0].path,
                           c->shard[0].container);
    }
    c->tensor = malloc((tensors + 1) * sizeof *c->tensor);
    c->typed = malloc((typeds + 1) * sizeof *c->typed);
    lq_named *order = malloc((tensors + typeds + 1) * sizeof *order);
    bool ok = (c->tensor && c->typed && order) || lq_fail(err, LQ_E_MEMORY, "%s: no memory for %zu tensors", c->path,
                                                          tensors);
    ok = ok && tensors_join(c, order, err) && types_join(c, order, err);
    free(order);
    return ok && parts_check(c, err);
}

// --- the index of a sharded model ---

typedef struct placed { const char *name, *file; } placed; // what the index says

static int by_file(const void *x, const void *y) {
    return strcmp(((const placed *)x)->file, ((const placed *)y)->file);
}

// The pairs of weight_map; their strings go to `arena`, which is as large as the text.
static bool index_walk(const char *path, const char *text, size_t n, char *arena, placed **out, size_t *count,
                       lq_err *err) {
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
            if (!ok) return lq_fail(err, LQ_E_FORMAT, "%s: weight_map: \"%.100s\" is not a tensor's name with a file's",
                                    path, p.name);
            if (!lq_file_name_ok(p.file))
                return lq_fail(err, LQ_E_FORMAT, "%s: tensor %s: shard \"%.100s\" is not a file beside the index", path,
                               p.name, p.file);
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
                ok = lq_fail(err, LQ_E_FORMAT, "%s: %s is in file %ld, expected in the first", s->path,
                             s->tensor[j].name, s->part);
    }
    free(seen);
    return ok;
}

static bool index_open_shards(lq_ckpt *c, placed *p, size_t count, lq_err *err) {
    qsort(p, count, sizeof *p, by_file);
    size_t files = 1;
    for (size_t i = 1; i < count; i++) files += strcmp(p[i - 1].file, p[i].file) != 0;
    if (files > SHARDS_MAX)
        return lq_fail(err, LQ_E_LIMIT, "%s: %zu shards, at most %d are taken", c->path, files, SHARDS_MAX);
    c->shard = calloc(files, sizeof *c->shard);
    if (!c->shard) return lq_fail(err, LQ_E_MEMORY, "%s: no memory for %zu shards", c->path, files);
    for (size_t i = 0; i < count; i++) {
        if (i && !strcmp(p[i - 1].file, p[i].file)) continue;
        char *path = lq_path_join(c->folder, p[i].file);
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
        return lq_fail(err, LQ_E_FORMAT, "%s: the shards hold %zu tensors, the index names %zu", c->path, c->count,
                       count);
    return true;
}

static bool index_open(lq_ckpt *c, lq_err *err) {
    lq_kept *text;
    placed *p = NULL;
    size_t count = 0;
    if (!lq_kept_read(c->path, index_max, &text, &c->index, err)) return false;
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

// Whether a file has the name of weights in a form that is not read.
static bool strange(const char *name) {
    static const char *const tails[] = {".bin", ".pth", ".pt", ".ckpt", ".gguf", ".ggml", ".h5", ".msgpack", ".onnx",
                                        ".npz", ".pkl"};
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++)
        if (lq_name_ends(name, tails[i])) return true;
    return false;
}

// Which file of a directory is the checkpoint: the one that goes by the usual name, whatever was
// made beside it, or the only one.
static bool folder_choose(const char *folder, char **out, lq_err *err) {
    DIR *d = opendir(folder);
    if (!d) return lq_fail(err, LQ_E_IO, "%s: %s", folder, strerror(errno));
    char index[256] = "", file[256] = "", other[256] = "";
    size_t indices = 0, files = 0, lqs = 0;
    bool main_index = false, main_file = false;
    for (struct dirent *e; (e = readdir(d));) {
        const char *n = e->d_name;
        bool lq = lq_name_ends(n, ".lq");
        if (lq_name_ends(n, ".safetensors.index.json") || lq_name_ends(n, ".lq.index.json"))
            snprintf(index, sizeof index, "%s", n), indices++;
        else if (lq || lq_name_ends(n, ".safetensors")) snprintf(file, sizeof file, "%s", n), files++;
        else if (strange(n) && (!*other || strcmp(n, other) < 0)) snprintf(other, sizeof other, "%s", n);
        lqs += lq;
        main_index |= !strcmp(n, "model.safetensors.index.json");
        main_file |= !strcmp(n, "model.safetensors");
    }
    closedir(d);
    const char *pick = NULL;
    if (main_index) pick = "model.safetensors.index.json";
    else if (main_file) pick = "model.safetensors";
    else if (indices == 1 && (!lqs || lq_name_ends(index, ".lq.index.json"))) pick = index;
    else if (!indices && files == 1) pick = file;
    if (!pick && !indices && !files)
        return lq_fail(err, LQ_E_FORMAT, "%s: holds no .lq, .safetensors or .safetensors.index.json file%s%s%s", folder,
                       *other ? ", and lq does not read " : "", other, *other ? " and its like" : "");
    if (!pick && !indices && lq_shard_total(file) > 1)
        return lq_fail(err, LQ_E_FORMAT, "%s: holds shards but no index (model.safetensors.index.json)", folder);
    if (!pick) return lq_fail(err, LQ_E_FORMAT, "%s: holds %zu checkpoints; name the one that is meant", folder,
                              indices + files);
    *out = lq_path_join(folder, pick);
    return *out || lq_fail(err, LQ_E_MEMORY, "%s: no memory", folder);
}

// A shard that lost its name still says what it is.
static bool alone_check(const lq_ckpt *c, lq_err *err) {
    const lq_shard *s = c->shard;
    return !s->parts || lq_fail(err, LQ_E_FORMAT,
                                "%s: one shard of %ld; give the model's index (.lq.index.json) or its directory",
                                s->path, s->parts);
}

static bool single_open(lq_ckpt *c, lq_err *err) {
    const char *base = base_name(c->path);
    long total = lq_shard_total(base);
    if (total > 1)
        return lq_fail(err, LQ_E_FORMAT,
                       "%s: one shard of %ld; give the model's index (model.safetensors.index.json) or its directory",
                       c->path, total);
    c->shard = calloc(1, sizeof *c->shard);
    if (!c->shard) return lq_fail(err, LQ_E_MEMORY, "%s: no memory", c->path);
    c->shards = 1;
    return shard_open(c->shard, c->path, err) && alone_check(c, err) && shards_join(c, err);
}

static bool paths_set(lq_ckpt *c, const char *path, lq_err *err) {
    struct stat st;
    if (stat(path, &st)) return lq_fail(err, LQ_E_IO, "%s: %s", path, lq_path_why(path, errno));
    if (S_ISDIR(st.st_mode)) {
        size_t n = strlen(path);
        while (n > 1 && path[n - 1] == '/') n--;
        c->folder = strndup(path, n);
        return c->folder ? folder_choose(c->folder, &c->path, err) : lq_fail(err, LQ_E_MEMORY, "%s: no memory", path);
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

lq_ckpt *lq_ckpt_empty(const char *path) {
    lq_ckpt *c = ckpt_new();
    if (c && (c->path = strdup(path))) return c;
    lq_ckpt_close(c);
    return NULL;
}

bool lq_ckpt_open(const char *path, lq_ckpt **out, lq_err *err) {
    *out = NULL;
    lq_ckpt *c = ckpt_new();
    if (!c) return lq_fail(err, LQ_E_MEMORY, "%s: no memory", path);
    if (!paths_set(c, path, err) ||
        !(lq_name_ends(c->path, ".index.json") ? index_open(c, err) : single_open(c, err))) {
        lq_ckpt_close(c);
        return false;
    }
    *out = c;
    return true;
}

bool lq_ckpt_open_bytes(const void *data, size_t n, const char *name, lq_ckpt **out, lq_err *err) {
    *out = NULL;
    lq_ckpt *c = ckpt_new();
    bool ok = c && (c->path = strdup(name)) && (c->shard = calloc(1, sizeof *c->shard)) &&
              (c->shard->path = strdup(name));
    if (!ok) {
        lq_fail(err, LQ_E_MEMORY, "%s: no memory", name);
    } else {
        c->shards = 1;
        c->shard->map = data, c->shard->bytes = n;
        ok = shard_read(c->shard, err) && alone_check(c, err) && shards_join(c, err);
    }
    if (ok) *out = c;
    else lq_ckpt_close(c);
    return ok;
}

void lq_ckpt_close(lq_ckpt *c) {
    if (!c) return;
    for (size_t i = 0; i < c->shards; i++) shard_close(&c->shard[i]);
    for (lq_kept *k = c->kept, *next; k; k = next) {
        next = k->next;
        free(k->name);
        free(k);
    }
    pthread_mutex_destroy(&c->lock);
    free(c->shard);
    free(c->tensor);
    free(c->typed);
    free(c->foreign);
    free(c->foreign_names);
    lq_hashed_free(&c->names);
    lq_hashed_free(&c->type_names);
    free(c->path);
    free(c->folder);
    free(c);
}
