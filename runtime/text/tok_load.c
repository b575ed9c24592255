// tok_load.c: the public API of a tokenizer without its model: where its files are found, whole texts there and back.
// Owns the files that it reads from a folder, until the tokenizer is open.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "formats/kind.h"
#include "runtime/text/tok.h"

#define FILE_BYTES ((size_t)256 << 20)
typedef struct kept { struct kept *next; char data[]; } kept;
typedef struct folder { const char *path; size_t n; kept *files; } folder; // path[0..n): "", or with its slash

static bool read_all(FILE *f, const char *path, folder *from, lq_bytes *out, lq_err *err) {
    struct stat st;
    if (fstat(fileno(f), &st) || !S_ISREG(st.st_mode))
        return lq_fail(err, LQ_E_IO, "%s: is not a regular file", path);
    if ((uint64_t)st.st_size > FILE_BYTES)
        return lq_fail(err, LQ_E_LIMIT, "%s: %zu bytes, at most %zu are read", path, (size_t)st.st_size, FILE_BYTES);
    kept *k = malloc(sizeof *k + (size_t)st.st_size + 1);
    if (!k) return lq_fail(err, LQ_E_MEMORY, "%s: no memory", path);
    k->next = from->files;
    from->files = k;
    *out = (lq_bytes){k->data, fread(k->data, 1, (size_t)st.st_size, f)};
    const char *kind = lq_kind_of_side(out->p, out->n);
    if (kind) return lq_fail(err, LQ_E_FORMAT, "%s: is %s", path, kind);
    return !ferror(f) || lq_fail(err, LQ_E_IO, "%s: %s", path, strerror(errno));
}

static bool folder_get(void *arg, const char *name, lq_bytes *out, lq_err *err) {
    folder *from = arg;
    char *path = malloc(from->n + strlen(name) + 1);
    if (!path) return lq_fail(err, LQ_E_MEMORY, "%s: no memory", name);
    memcpy(path, from->path, from->n);
    strcpy(path + from->n, name);
    FILE *f = fopen(path, "rb");
    const bool ok = f ? read_all(f, path, from, out, err)
                      : lq_path_absent(path) || lq_fail(err, LQ_E_IO, "%s: %s", path, lq_path_why(path, errno));
    if (f) fclose(f);
    free(path);
    return ok;
}

static bool folder_read(const char *path, size_t n, const char *only, lq_tokenizer **out, lq_err *err) {
    folder from = {path, n, NULL};
    const bool ok = lq_tokenizer_read(&(lq_tok_files){folder_get, &from, only}, out, err);
    for (kept *k = from.files, *next; k; k = next) {
        next = k->next;
        free(k);
    }
    return ok;
}

static bool is_model(const char *name) {
    static const char *const tails[] = {".lq", ".safetensors", ".safetensors.index.json"};
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++)
        if (n > strlen(tails[i]) && !strcmp(name + n - strlen(tails[i]), tails[i])) return true;
    return false;
}

// A folder without a model may still hold a tokenizer.
bool lq_tokenizer_load(const char *path, lq_tokenizer **out, lq_err *err) {
    struct stat st;
    lq_ckpt *c = NULL;
    lq_err none;
    *out = NULL;
    if (stat(path, &st)) return lq_fail(err, LQ_E_IO, "%s: %s", path, strerror(errno));
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (!S_ISDIR(st.st_mode) && !is_model(name))
        return folder_read(path, (size_t)(name - path), name, out, err) || lq_fail_in(err, "%s", path);
    if (lq_ckpt_open(path, &c, S_ISDIR(st.st_mode) ? &none : err)) {
        const bool ok = lq_tokenizer_open(c, out, err);
        lq_ckpt_close(c);
        return ok;
    }
    if (!S_ISDIR(st.st_mode)) return false;
    const size_t n = strlen(path);
    char *dir = malloc(n + 2);
    if (!dir) return lq_fail(err, LQ_E_MEMORY, "%s: no memory", path);
    memcpy(dir, path, n);
    dir[n] = '/';
    const bool ok = folder_read(dir, n + 1, NULL, out, err) || lq_fail_in(err, "%s", path);
    free(dir);
    return ok;
}

// --- texts ---

bool lq_tokenizer_ids(const lq_tokenizer *t, const char *text, size_t n, int flags, int32_t **ids, size_t *count,
                      lq_err *err) {
    lq_ids out = {0};
    *ids = NULL;
    *count = 0;
    if (!lq_tokenizer_encode(t, text, n, flags, &out, err)) {
        free(out.p);
        return false;
    }
    *ids = out.p ? out.p : calloc(1, sizeof **ids);
    *count = out.n;
    return *ids || lq_fail(err, LQ_E_MEMORY, "no memory for tokens");
}

bool lq_tokenizer_text(const lq_tokenizer *t, const int32_t *ids, size_t count, bool special, char **text, size_t *n,
                       lq_err *err) {
    size_t room = LQ_DETOK_ROOM(lq_tokenizer_longest(t)) + 1, len = 0;
    lq_detok d = {.special = special};
    *text = NULL;
    *n = 0;
    for (size_t i = 0; i < count; i++) room += LQ_DETOK_ROOM(lq_tokenizer_bytes(t, ids[i]).n);
    char *p = malloc(room);
    if (!p) return lq_fail(err, LQ_E_MEMORY, "no memory for the text of %zu tokens", count);
    for (size_t i = 0, run, broken; i < count; i += run) {
        run = lq_detok_run(t, &d, ids + i, count - i, &broken);
        if (broken) len += lq_detok_broken(t, &d, broken, p + len);
        else run += !run; // the one token that is none of bytes
        for (size_t k = i; !broken && k < i + run; k++) len += lq_detok_next(t, &d, ids[k], p + len);
    }
    len += lq_detok_end(&d, p + len);
    p[len] = 0;
    *text = p;
    *n = len;
    return true;
}

const char *lq_tokenizer_piece(const lq_tokenizer *t, int32_t id, size_t *n) {
    const bool there = id >= 0 && id < t->vocab.count && t->vocab.kind[id];
    const lq_bytes b = there ? lq_tok_written(t, id) : (lq_bytes){NULL, 0};
    *n = b.n;
    return b.p;
}
