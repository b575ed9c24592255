// writer.c: writes a .lq or plain safetensors file in OUT.partial/ and renames it when it is whole (docs/FORMAT.md).
// Owns OUT.partial/ and holds a lock on it. Refuses names and shapes that a reader would refuse, a tensor that differs from
// what the journal says was written, more header than room was kept for, a directory that another process works in or that
// holds other work, and links where its own files should be.
//
// A journal line is 16 hex digits of XXH64 over what follows the space, then a JSON list:
//     ["lq",0,plain,start,"fingerprint"]             the first line
//     ["t","name","BF16",[shape],offset,"xxh64"]     a tensor, padding included
//     ["w","name","int4 g128 sym f16 64x128"]        the type of a coded weight
//     ["b","note",end]                               everything before it is on disk
#include "formats/writer.h"
#include "formats/container.h"
#include "formats/json.h"
#include "formats/parts.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

typedef struct entry {
    lq_tensor t;   // name is owned; data is not used
    size_t at;     // in the file
    uint64_t sum;
    bool again;    // added in this run
    size_t type;   // of codes: 1 + index of their weight's type, once the weight is whole
} entry;

typedef struct pair { char *key, *value; } pair;
typedef struct span { const uint8_t *p; size_t from, to; } span; // bytes of the data that are mapped
typedef struct block { char *note; size_t entries, types, end, journal_end; } block;

// A stack that is being written: its entries are there from the first matrix on, their checksums when the last one is.
typedef struct stack {
    char name[LQ_NAME];
    lq_typed of;
    lq_layout layout;
    int32_t outliers;
    int64_t put;
    bool open, there; // there: the interrupted run wrote it
    size_t used;      // header bytes that were spoken for before it
    size_t first, entry[LQ_PARTS], bytes[LQ_PARTS]; // entries: the first one, padding included, and of each part; 0 bytes: no such part
    XXH64_state_t *sum[LQ_PARTS];
} stack;

struct lq_writer {
    lq_writer_opts o;
    char *out, *fingerprint, *folder, *data_path, *journal_path;
    bool outdated; // finished blocks of another input were thrown away
    int dir, data, journal; // dir: OUT.partial/, through which the others are reached
    bool failed, done;
    size_t start;        // of the data: a header of start - 8 bytes stands before it
    size_t at, used;     // end of the data so far; header bytes spoken for
    size_t journal_at;
    entry *entry;        // [entries] in the order of their bytes
    size_t entries, entry_cap, pads;
    uint32_t *slot;      // [slots] 1 + index of the entry whose name falls there
    size_t slots;
    pair *type, *meta;   // [types] of coded weights, [metas]
    size_t types, type_cap, metas, meta_cap;
    block *block;        // [blocks], the first `resumed` found by a resume
    size_t blocks, block_cap, resumed;
    stack stack;
    lq_text pending;     // journal lines of the block that is being written
    span *span;          // [spans] for reading back
    size_t spans, span_cap;
    lq_ckpt *back;       // what weights are bound through when they are read back, empty else
};

static bool no_memory(const lq_writer *w, lq_err *err) { return lq_fail(err, LQ_E_MEMORY, "%s: no memory to write it", w->o.out); }

static bool pad_name(const char *name) { return !strncmp(name, LQ_PAD_PREFIX, strlen(LQ_PAD_PREFIX)); }

// --- entries by name ---

static entry *entry_find(const lq_writer *w, const char *name) {
    if (!w->slots) return NULL;
    for (size_t i = XXH64(name, strlen(name), 0) & (w->slots - 1); w->slot[i]; i = (i + 1) & (w->slots - 1))
        if (!strcmp(w->entry[w->slot[i] - 1].t.name, name)) return &w->entry[w->slot[i] - 1];
    return NULL;
}

// The codes of a coded weight.
static entry *codes_find(const lq_writer *w, const char *name) {
    char full[LQ_NAME + 16];
    int n = snprintf(full, sizeof full, "%s%s", name, lq_part_suffix(LQ_PART_Q));
    return n < (int)sizeof full ? entry_find(w, full) : NULL;
}

static void slot_put(lq_writer *w, size_t index) {
    const char *name = w->entry[index].t.name;
    size_t i = XXH64(name, strlen(name), 0) & (w->slots - 1);
    while (w->slot[i]) i = (i + 1) & (w->slots - 1);
    w->slot[i] = (uint32_t)index + 1;
}

static bool slots_build(lq_writer *w, size_t slots) {
    uint32_t *p = calloc(slots, sizeof *p);
    if (!p) return false;
    free(w->slot);
    w->slot = p, w->slots = slots;
    for (size_t i = 0; i < w->entries; i++) slot_put(w, i);
    return true;
}

static bool entry_push(lq_writer *w, const entry *e, const char *name) {
    char *own = strdup(name);
    bool ok = own && lq_grow((void **)&w->entry, w->entries, &w->entry_cap, sizeof *w->entry) &&
              ((w->entries + 1) * 2 <= w->slots || slots_build(w, w->slots ? w->slots * 2 : 256));
    if (!ok) return free(own), false;
    w->entry[w->entries] = *e;
    w->entry[w->entries++].t.name = own;
    slot_put(w, w->entries - 1);
    w->pads += pad_name(name);
    return true;
}

static void entries_cut(lq_writer *w, size_t entries, size_t types) {
    while (w->entries > entries) {
        const char *name = w->entry[--w->entries].t.name;
        w->pads -= pad_name(name);
        free((void *)(uintptr_t)name);
    }
    for (; w->types > types; w->types--) free(w->type[w->types - 1].key), free(w->type[w->types - 1].value);
    if (w->slots) {
        memset(w->slot, 0, w->slots * sizeof *w->slot);
        for (size_t i = 0; i < w->entries; i++) slot_put(w, i);
    }
}

static bool pair_push(pair **list, size_t *n, size_t *cap, const char *key, const char *value) {
    pair p = {strdup(key), strdup(value)};
    if (!p.key || !p.value || !lq_grow((void **)list, *n, cap, sizeof **list)) return free(p.key), free(p.value), false;
    (*list)[(*n)++] = p;
    return true;
}

// --- disk ---

static bool io_fail(lq_writer *w, const char *path, const char *what, lq_err *err) {
    const char *more = errno == EFBIG ? " (a limit of the file system or the shell, see ulimit -f)" : "";
    w->failed = true;
    return lq_fail(err, LQ_E_IO, "%s: %s: %s%s", path, what, strerror(errno), more);
}

// What is hashed or written before anybody is asked whether to go on.
enum { PIECE = 1 << 26 };
static bool heard(lq_writer *w, lq_err *err) {
    if (!w->o.tick || w->o.tick(w->o.arg, w->at, 0)) return true;
    w->failed = true;
    return lq_fail(err, LQ_E_CANCELLED, "%s: stopped", w->out);
}

static bool bytes_write(lq_writer *w, int fd, const char *path, const void *data, size_t n, size_t at, lq_err *err) {
    const char *p = data;
    while (n) {
        if (n > PIECE && !heard(w, err)) return false;
        ssize_t got = pwrite(fd, p, n < PIECE ? n : PIECE, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got == 0) errno = ENOSPC;
        if (got <= 0) return io_fail(w, path, "cannot be written", err);
        p += got, n -= (size_t)got, at += (size_t)got;
    }
    return true;
}

// --- the journal ---

static void sum_add(lq_text *t, uint64_t sum) { lq_text_fmt(t, "%016llx", (unsigned long long)sum); }

// Closes the list that began at `from` of t into a line.
static void line_end(lq_text *t, lq_text *list) {
    lq_text_add(list, "]", 1);
    if (list->failed) {
        t->failed = true;
    } else {
        sum_add(t, XXH64(list->p, list->n, 0));
        lq_text_fmt(t, " %s\n", list->p);
    }
    lq_text_free(list);
}

static void tensor_describe(lq_text *t, const entry *e) {
    lq_text_fmt(t, "[");
    for (int i = 0; i < e->t.rank; i++) lq_text_fmt(t, i ? ",%lld" : "%lld", (long long)e->t.shape[i]);
    lq_text_fmt(t, "]");
}

static void journal_tensor(lq_writer *w, const entry *e, const char *name) {
    lq_text list = {0};
    lq_text_fmt(&list, "[\"t\",");
    lq_text_json(&list, name, strlen(name));
    lq_text_fmt(&list, ",\"%s\",", lq_dtypes[e->t.type].safetensors);
    tensor_describe(&list, e);
    lq_text_fmt(&list, ",%zu,\"", e->at);
    sum_add(&list, e->sum);
    lq_text_fmt(&list, "\"");
    line_end(&w->pending, &list);
}

static void journal_strings(lq_text *to, const char *kind, const char *a, const char *b, size_t end) {
    lq_text list = {0};
    lq_text_fmt(&list, "[\"%s\",", kind);
    lq_text_json(&list, a, strlen(a));
    if (b) lq_text_fmt(&list, ","), lq_text_json(&list, b, strlen(b));
    else lq_text_fmt(&list, ",%zu", end);
    line_end(to, &list);
}

static void journal_head(const lq_writer *w, lq_text *to) {
    lq_text list = {0};
    lq_text_fmt(&list, "[\"lq\",0,%s,%zu,", w->o.plain ? "true" : "false", w->start);
    lq_text_json(&list, w->fingerprint, strlen(w->fingerprint));
    line_end(to, &list);
}

static bool journal_append(lq_writer *w, const lq_text *t, lq_err *err) {
    if (t->failed) return no_memory(w, err);
    if (!bytes_write(w, w->journal, w->journal_path, t->p, t->n, w->journal_at, err)) return false;
    w->journal_at += t->n;
    return !fdatasync(w->journal) || io_fail(w, w->journal_path, "cannot be synced", err);
}

// The next value of a line, which must be a string; *p moves behind it in the scratch.
static const char *line_string(lq_json_walk *l, char **scratch) {
    if (lq_json_next(l) != '"') return NULL;
    char *s = *scratch;
    size_t n = lq_json_take_str(l, s);
    s[n] = 0;
    *scratch += n + 1;
    return strlen(s) == n ? s : NULL;
}

static bool line_tensor(lq_writer *w, lq_json_walk *l, char *scratch) {
    const char *name = line_string(l, &scratch), *type = name ? line_string(l, &scratch) : NULL;
    entry e = {.t = {.type = type ? lq_dtype_of_safetensors(type) : LQ_DTYPES}};
    if (e.t.type == LQ_DTYPES || !lq_name_ok(name, strlen(name)) || entry_find(w, name) || lq_json_next(l) != '[') return false;
    size_t bytes = lq_dtype_size(e.t.type);
    for (lq_json_take(l); lq_json_next(l) != ']';) {
        uint64_t v;
        if (e.t.rank == LQ_RANK || !lq_json_take_u64(l, &v) || v > INT64_MAX || !lq_mul_size(bytes, (size_t)v, &bytes)) return false;
        e.t.shape[e.t.rank++] = (int64_t)v;
    }
    lq_json_take(l);
    uint64_t at;
    if (!lq_json_take_u64(l, &at) || at != w->at || at + bytes < at) return false;
    const char *sum = line_string(l, &scratch);
    if (!sum || !lq_sum_parse(sum, strlen(sum), &e.sum)) return false;
    e.t.bytes = bytes, e.at = w->at;
    w->at += bytes;
    return entry_push(w, &e, name);
}

static bool line_block(lq_writer *w, lq_json_walk *l, char *scratch, size_t journal_end) {
    const char *note = line_string(l, &scratch);
    uint64_t end;
    if (!note || !lq_json_take_u64(l, &end) || end != w->at) return false;
    if (!lq_grow((void **)&w->block, w->blocks, &w->block_cap, sizeof *w->block)) return false;
    char *own = strdup(note);
    if (own) w->block[w->blocks++] = (block){own, w->entries, w->types, w->at, journal_end};
    return own != NULL;
}

static bool line_take(lq_writer *w, const char *p, size_t n, size_t journal_end, char *scratch) {
    uint64_t sum;
    if (n < 18 || p[16] != ' ' || !lq_sum_parse(p, 16, &sum) || XXH64(p + 17, n - 17, 0) != sum) return false;
    p += 17, n -= 17;
    if (!lq_json_check(p, n, (lq_json_limits){n, 3}, w->journal_path, NULL)) return false;
    lq_json_walk l = {p, p + n};
    if (lq_json_next(&l) != '[') return false;
    lq_json_take(&l);
    const char *kind = line_string(&l, &scratch);
    if (!kind) return false;
    if (!strcmp(kind, "t")) return line_tensor(w, &l, scratch);
    if (!strcmp(kind, "b")) return line_block(w, &l, scratch, journal_end);
    const char *name = !strcmp(kind, "w") ? line_string(&l, &scratch) : NULL, *text = name ? line_string(&l, &scratch) : NULL;
    entry *codes = text ? codes_find(w, name) : NULL;
    if (!codes || codes->type || !pair_push(&w->type, &w->types, &w->type_cap, name, text)) return false;
    codes->type = w->types;
    return true;
}

// Whether a journal names a finished block: work that somebody may want.
static bool journal_worth(const char *p, size_t n) {
    static const char kind[] = "[\"b\",";
    uint64_t sum;
    for (const char *end; n && (end = memchr(p, '\n', n)); n -= (size_t)(end + 1 - p), p = end + 1) {
        size_t m = (size_t)(end - p), k = sizeof kind - 1;
        if (m > 17 + k && !memcmp(p + 17, kind, k) && lq_sum_parse(p, 16, &sum) && XXH64(p + 17, m - 17, 0) == sum) return true;
    }
    return false;
}

// Whether a journal is of this work but for the input: the first line has the fingerprint up to its '.'.
static bool journal_outdated(const lq_writer *w, const char *p, size_t n) {
    const char *dot = strchr(w->fingerprint, '.'), *end = memchr(p, '\n', n);
    char head[64];
    if (!dot || !end) return false;
    const int m = snprintf(head, sizeof head, "\"%.*s.", (int)(dot - w->fingerprint), w->fingerprint);
    return m > 0 && (size_t)m < sizeof head && memmem(p, (size_t)(end - p), head, (size_t)m);
}

// Whole lines up to the first that is torn or makes no sense. Returns false if it is not the journal of this work.
static bool journal_lines(lq_writer *w, const char *p, size_t n, char *scratch) {
    lq_text head = {0};
    journal_head(w, &head);
    bool ours = !head.failed && n >= head.n && !memcmp(p, head.p, head.n);
    w->journal_at = head.n;
    lq_text_free(&head);
    if (!ours) return false;
    for (size_t at = w->journal_at; at < n;) {
        const char *end = memchr(p + at, '\n', n - at);
        if (!end || !line_take(w, p + at, (size_t)(end - p) - at, (size_t)(end - p) + 1, scratch)) break;
        at = (size_t)(end - p) + 1;
    }
    return true;
}

// Whether the bytes of a block are what its lines say: a disk may have lost what it promised.
static bool block_check(const lq_writer *w, size_t first, size_t end, char *buf, size_t size) {
    XXH64_state_t *st = XXH64_createState();
    bool ok = st != NULL;
    for (size_t i = first; i < end && ok; i++) {
        const entry *e = &w->entry[i];
        XXH64_reset(st, 0);
        for (size_t at = 0; at < e->t.bytes && ok;) {
            size_t n = e->t.bytes - at < size ? e->t.bytes - at : size;
            ssize_t got = pread(w->data, buf, n, (off_t)(e->at + at));
            ok = got > 0;
            if (ok) XXH64_update(st, buf, (size_t)got), at += (size_t)got;
        }
        ok = ok && XXH64_digest(st) == e->sum;
    }
    XXH64_freeState(st);
    return ok;
}

static bool journal_read(lq_writer *w, bool *ours, lq_err *err) {
    struct stat st;
    enum { CHUNK = 1 << 20 };
    if (fstat(w->journal, &st)) return io_fail(w, w->journal_path, "cannot be read", err);
    size_t n = (size_t)st.st_size, at = 0;
    char *text = malloc(n + 1), *scratch = malloc(n > CHUNK ? n : CHUNK);
    bool ok = (text && scratch) || no_memory(w, err);
    while (ok && at < n) {
        ssize_t got = pread(w->journal, text + at, n - at, (off_t)at);
        if (got <= 0) ok = io_fail(w, w->journal_path, "cannot be read", err);
        else at += (size_t)got;
    }
    *ours = ok && journal_lines(w, text, n, scratch);
    w->outdated = ok && !*ours && journal_outdated(w, text, n) && journal_worth(text, n);
    if (ok && !*ours && !w->outdated && journal_worth(text, n))
        ok = lq_fail(err, LQ_E_USAGE, "%s: holds unfinished work of another input, recipe or version of lq (or is damaged); --fresh throws it away",
                     w->folder);
    size_t good = 0;
    while (ok && good < w->blocks && block_check(w, good ? w->block[good - 1].entries : 0, w->block[good].entries, scratch, CHUNK)) good++;
    free(text);
    free(scratch);
    if (!ok) return false;
    for (; w->blocks > good; w->blocks--) free(w->block[w->blocks - 1].note);
    const block *last = good ? &w->block[good - 1] : NULL;
    entries_cut(w, last ? last->entries : 0, last ? last->types : 0);
    w->resumed = good;
    w->at = last ? last->end : w->start;
    if (last) w->journal_at = last->journal_end;
    return true;
}

// --- open ---

// Opens one of the two files, or makes it. In a folder that others may write to a link could lead anywhere: it is refused, or with
// what else is there thrown away.
static int own_open(lq_writer *w, const char *name, const char *path, lq_err *err) {
    struct stat st;
    for (int i = 0;; i++) {
        int fd = openat(w->dir, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666), why = errno;
        bool own = fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_nlink <= 1;
        if (own) return fd;
        if (fd >= 0) close(fd);
        if (i == 0 && !w->o.resume && !unlinkat(w->dir, name, 0)) continue;
        if (fd >= 0 || why == ELOOP) lq_fail(err, LQ_E_IO, "%s: is a link or no plain file, expected one that lq made", path);
        else errno = why, io_fail(w, path, "cannot be opened", err);
        return -1;
    }
}

// Some file systems have no locks; there it is left to the user to start only one.
static bool journal_lock(lq_writer *w, lq_err *err) {
    struct stat at_path, at_fd;
    if (flock(w->journal, LOCK_EX | LOCK_NB) && errno != ENOSYS && errno != EOPNOTSUPP) {
        if (errno != EWOULDBLOCK) return io_fail(w, w->journal_path, "cannot be locked", err);
        return lq_fail(err, LQ_E_IO, "%s: another process is writing here", w->folder);
    }
    // Who held the lock before may have removed the file that was opened here.
    if (!fstatat(w->dir, "journal", &at_path, AT_SYMLINK_NOFOLLOW) && !fstat(w->journal, &at_fd) && at_path.st_ino == at_fd.st_ino) return true;
    return lq_fail(err, LQ_E_IO, "%s: another process is writing here", w->folder);
}

static bool folder_lock(lq_writer *w, lq_err *err) {
    if (mkdir(w->folder, 0777) && errno != EEXIST) return io_fail(w, w->folder, "cannot be made", err);
    w->dir = open(w->folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (w->dir < 0 && (errno == ELOOP || errno == ENOTDIR))
        return lq_fail(err, LQ_E_IO, "%s: is a link or no directory, expected one that lq made", w->folder);
    if (w->dir < 0) return io_fail(w, w->folder, "cannot be opened", err);
    if ((w->journal = own_open(w, "journal", w->journal_path, err)) < 0 || !journal_lock(w, err)) return false;
    return (w->data = own_open(w, "data", w->data_path, err)) >= 0;
}

static bool work_begin(lq_writer *w, lq_err *err) {
    bool ours = false;
    w->at = w->start;
    if (w->o.resume && !journal_read(w, &ours, err)) return false;
    static const uint64_t none = 0; // a header of length 0 opens nowhere
    if (!ours) {
        lq_text head = {0};
        w->journal_at = 0;
        if (ftruncate(w->journal, 0) || ftruncate(w->data, 0)) return io_fail(w, w->folder, "cannot be emptied", err);
        journal_head(w, &head);
        bool ok = journal_append(w, &head, err);
        lq_text_free(&head);
        if (!ok) return false;
    }
    if (ftruncate(w->journal, (off_t)w->journal_at) || ftruncate(w->data, (off_t)w->at)) return io_fail(w, w->folder, "cannot be cut", err);
    for (size_t i = 0; i < w->entries; i++)
        if (!pad_name(w->entry[i].t.name)) w->used += lq_writer_entry_room(w->entry[i].t.name);
    for (size_t i = 0; i < w->types; i++) w->used += lq_writer_type_room(w->type[i].key);
    return bytes_write(w, w->data, w->data_path, &none, sizeof none, 0, err);
}

bool lq_out_name_check(const char *out, lq_err *err) {
    const char *slash = strrchr(out, '/'), *base = slash ? slash + 1 : out;
    const char *index = ".index.json";
    size_t n = strlen(base), m = strlen(index);
    if (!n) return lq_fail(err, LQ_E_USAGE, "\"%s\": expected the name of a file", out);
    if (lq_shard_total(base) > 1)
        return lq_fail(err, LQ_E_USAGE, "%s: is named like one shard of %ld, and would not open without the others", out, lq_shard_total(base));
    if (n >= m && !strcmp(base + n - m, index)) return lq_fail(err, LQ_E_USAGE, "%s: is named like the index of a model in several files", out);
    return true;
}

bool lq_writer_open(const lq_writer_opts *o, lq_writer **out, lq_err *err) {
    *out = NULL;
    lq_writer *w = calloc(1, sizeof *w);
    if (!w) return lq_fail(err, LQ_E_MEMORY, "%s: no memory to write it", o->out);
    w->o = *o, w->dir = w->data = w->journal = -1;
    w->out = strdup(o->out), w->fingerprint = strdup(o->fingerprint ? o->fingerprint : "");
    w->o.out = w->out, w->o.fingerprint = w->fingerprint;
    if (!w->out || !w->fingerprint || asprintf(&w->folder, "%s.partial", o->out) < 0 || asprintf(&w->data_path, "%s/data", w->folder) < 0 ||
        asprintf(&w->journal_path, "%s/journal", w->folder) < 0) {
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
    if (!ok || !lq_out_name_check(w->out, err) || !folder_lock(w, err) || !work_begin(w, err)) {
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
    if (t.failed) no_memory(w, err);
    lq_text_free(&t);
    if (!ok) return false;
    for (size_t i = 0; i < w->metas; i++) {
        if (strcmp(w->meta[i].key, key) != 0) continue;
        char *v = strdup(value);
        if (!v) return no_memory(w, err);
        free(w->meta[i].value);
        w->meta[i].value = v;
        return true;
    }
    return pair_push(&w->meta, &w->metas, &w->meta_cap, key, value) || no_memory(w, err);
}

// A name must come back from the header as it went in: UTF-8, and nothing that a reader refuses.
static bool name_check(const lq_writer *w, const char *name, lq_err *err) {
    lq_text t = {0};
    bool ok = lq_name_ok(name, strlen(name)) && strcmp(name, "__metadata__") != 0 && !pad_name(name);
    if (ok && !strncmp(name, LQ_FILE_PREFIX, strlen(LQ_FILE_PREFIX))) ok = lq_file_name_ok(name + strlen(LQ_FILE_PREFIX));
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

static bool stack_over(const lq_writer *w, lq_err *err) {
    return !w->stack.open || lq_fail(err, LQ_E_USAGE, "%s: weight %s: %lld of its %lld matrices are there", w->out, w->stack.name,
                                     (long long)w->stack.put, (long long)w->stack.of.count);
}

static bool same_tensor(const lq_tensor *a, lq_dtype type, int rank, const int64_t *shape) {
    if (a->type != type || a->rank != rank) return false;
    for (int i = 0; i < rank; i++)
        if (a->shape[i] != shape[i]) return false;
    return true;
}

static bool sum_of(lq_writer *w, const char *data, size_t n, uint64_t *sum, lq_err *err) {
    XXH64_state_t *st = XXH64_createState();
    if (!st) return no_memory(w, err);
    XXH64_reset(st, 0);
    bool ok = true;
    for (size_t at = 0; at < n && ok; at += PIECE) {
        XXH64_update(st, data + at, n - at < PIECE ? n - at : PIECE);
        ok = n <= PIECE || heard(w, err);
    }
    *sum = XXH64_digest(st);
    XXH64_freeState(st);
    return ok;
}

static bool entry_write(lq_writer *w, entry *e, const char *name, const void *data, lq_err *err) {
    e->at = w->at;
    if (!sum_of(w, data, e->t.bytes, &e->sum, err)) return false;
    if (!bytes_write(w, w->data, w->data_path, data, e->t.bytes, w->at, err)) return false;
    if (!entry_push(w, e, name)) return w->failed = true, no_memory(w, err);
    if (!w->stack.open) journal_tensor(w, e, name); // in a stack, when all of it is there
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
    entry e = {.t = {.type = LQ_U8, .rank = 1, .shape = {(int64_t)gap}, .bytes = gap}, .again = true};
    return entry_write(w, &e, name, zeros, err);
}

bool lq_writer_add(lq_writer *w, const char *name, lq_dtype type, int rank, const int64_t *shape, const void *data, lq_err *err) {
    if (w->failed) return lq_fail(err, LQ_E_IO, "%s: an earlier write failed", w->out);
    if (!name_check(w, name, err) || !stack_over(w, err)) return false;
    if ((int)type < 0 || type >= LQ_DTYPES || !lq_dtypes[type].safetensors || rank < 0 || rank > LQ_RANK)
        return lq_fail(err, LQ_E_USAGE, "%s: tensor %s: a type or rank that safetensors does not have", w->out, name);
    entry e = {.t = {.type = type, .rank = rank, .bytes = lq_dtype_size(type)}, .again = true};
    for (int i = 0; i < rank; i++) {
        if (shape[i] < 0 || !lq_mul_size(e.t.bytes, (size_t)shape[i], &e.t.bytes) || e.t.bytes > INT64_MAX / 2)
            return lq_fail(err, LQ_E_USAGE, "%s: tensor %s: a shape that cannot be", w->out, name);
        e.t.shape[i] = shape[i];
    }
    if (!w->o.plain && !strncmp(name, LQ_FILE_PREFIX, strlen(LQ_FILE_PREFIX)) && (type != LQ_U8 || rank != 1))
        return lq_fail(err, LQ_E_USAGE, "%s: side file %s: is not plain bytes", w->out, name);
    entry *old = entry_find(w, name);
    if (old && old->again) return lq_fail(err, LQ_E_USAGE, "%s: tensor %s: added twice", w->out, name);
    if (old && !same_tensor(&old->t, type, rank, shape))
        return lq_fail(err, LQ_E_FORMAT, "%s: tensor %s: the interrupted run wrote another type or shape", w->out, name);
    if (old) return old->again = true;
    if (!data && e.t.bytes) return lq_fail(err, LQ_E_USAGE, "%s: tensor %s: no data", w->out, name);
    if (!room_take(w, lq_writer_entry_room(name), err)) return false;
    if (!w->o.plain && !pad_write(w, e.t.bytes, err)) return false;
    return entry_write(w, &e, name, data ? data : "", err);
}

// To be said once all parts are there.
static bool type_add(lq_writer *w, const char *name, const lq_typed *of, lq_err *err) {
    char text[LQ_TYPED_TEXT];
    entry *codes = codes_find(w, name);
    lq_typed_name(of, text, sizeof text);
    if (codes->type) {
        const char *old = w->type[codes->type - 1].value;
        return !strcmp(old, text) || lq_fail(err, LQ_E_FORMAT, "%s: weight %s: is \"%s\", the interrupted run wrote \"%s\"", w->out, name,
                                             text, old);
    }
    if (!room_take(w, lq_writer_type_room(name), err)) return false;
    if (!pair_push(&w->type, &w->types, &w->type_cap, name, text)) return no_memory(w, err);
    codes->type = w->types;
    journal_strings(&w->pending, "w", name, text, 0);
    return true;
}

static lq_layout file_layout(const lq_writer *w) {
    for (size_t i = 0; i < w->metas; i++)
        if (!strcmp(w->meta[i].key, "lq.layout")) return !strcmp(w->meta[i].value, lq_layout_names[LQ_X86]) ? LQ_X86 : LQ_ANY;
    return LQ_ANY;
}

static bool weight_check(const lq_writer *w, const char *name, const lq_weight *q, lq_err *err) {
    const lq_layout file = file_layout(w);
    lq_part_form form;
    if (w->o.plain) return lq_fail(err, LQ_E_USAGE, "%s: weight %s: a plain safetensors file has no coded weights", w->out, name);
    if (!name_check(w, name, err)) return false;
    if (!lq_part_of(LQ_PART_Q, q, 0, &form) || q->layout != lq_layout_in(file, &q->type, q->n, q->k))
        return lq_fail(err, LQ_E_USAGE, "%s: weight %s: layout %s does not fit a file in layout %s", w->out, name,
                       lq_layout_names[q->layout], lq_layout_names[file]);
    if (q->outliers && q->type.kind != LQ_W_INT)
        return lq_fail(err, LQ_E_USAGE, "%s: weight %s: outlier columns beside codes that are not integers", w->out, name);
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
    lq_weight like = {.type = *t, .layout = lq_layout_in(file_layout(w), t, n, k), .n = n, .k = k};
    lq_weight_size size;
    if (w->failed) return lq_fail(err, LQ_E_IO, "%s: an earlier write failed", w->out);
    if (!stack_over(w, err) || !name_check(w, name, err) || !(plain || weight_check(w, name, &like, err))) return false;
    if (count < 1 || !lq_layout_sizes(like.layout, t, n, k, &size))
        return lq_fail(err, LQ_E_USAGE, "%s: weight %s: %d matrices of %lldx%lld cannot be", w->out, name, count, (long long)n, (long long)k);
    const entry *old = plain ? entry_find(w, name) : codes_find(w, name);
    if (old && old->again) return lq_fail(err, LQ_E_USAGE, "%s: tensor %s: added twice", w->out, name);
    stack *s = &w->stack;
    *s = (stack){.of = {.type = *t, .n = n, .k = k, .count = count}, .layout = like.layout, .there = old != NULL, .first = w->entries, .used = w->used};
    memcpy(s->name, name, strlen(name) + 1);
    if (old && plain && !same_tensor(&old->t, t->elem, 3, (int64_t[]){count, n, k}))
        return lq_fail(err, LQ_E_FORMAT, "%s: tensor %s: the interrupted run wrote another type or shape", w->out, name);
    return s->open = !old || plain || type_add(w, name, &s->of, err);
}

// Name and form of part i; false: matrices like this one have no such part.
static bool stack_part(const stack *s, int i, const lq_weight *q, char full[LQ_NAME + 16], lq_part_form *form) {
    const bool plain = q->type.kind == LQ_W_PLAIN;
    snprintf(full, LQ_NAME + 16, "%s%s", s->name, plain ? "" : lq_part_suffix((lq_part_id)i));
    if (plain) {
        *form = (lq_part_form){q->type.elem, 3, {s->of.count, q->n, q->k}, (size_t)q->n * (size_t)q->k * lq_dtype_size(q->type.elem)};
        return i == LQ_PART_Q;
    }
    return lq_part_of((lq_part_id)i, q, s->of.count, form) && (lq_part_get((lq_part_id)i, q) || lq_part_needed((lq_part_id)i, &q->type));
}

// The first matrix shows which parts there are: their places are taken.
static bool stack_begin(lq_writer *w, const lq_weight *q, lq_err *err) {
    stack *s = &w->stack;
    lq_part_form form;
    char full[LQ_NAME + 16];
    s->outliers = q->outliers;
    for (int i = 0; i < LQ_PARTS; i++) {
        if (!stack_part(s, i, q, full, &form)) continue;
        s->bytes[i] = form.bytes;
        entry *old = entry_find(w, full);
        if (old) old->again = true;
        if (s->there) continue;
        if (old) return lq_fail(err, LQ_E_USAGE, "%s: tensor %s: added twice", w->out, full);
        if (!name_check(w, full, err) || !room_take(w, lq_writer_entry_room(full), err)) return false;
        entry e = {.t = {.type = form.type, .rank = form.rank}, .again = true};
        memcpy(e.t.shape, form.shape, sizeof form.shape);
        if (!lq_mul_size(form.bytes, (size_t)s->of.count, &e.t.bytes) || e.t.bytes > INT64_MAX / 2)
            return lq_fail(err, LQ_E_USAGE, "%s: tensor %s: a shape that cannot be", w->out, full);
        if (!w->o.plain && !pad_write(w, e.t.bytes, err)) return false;
        e.at = w->at, s->entry[i] = w->entries;
        if (!(s->sum[i] = XXH64_createState()) || !entry_push(w, &e, full)) return no_memory(w, err);
        XXH64_reset(s->sum[i], 0);
        w->at += e.t.bytes;
    }
    return true;
}

static bool stack_end(lq_writer *w, lq_err *err) {
    stack *s = &w->stack;
    for (int i = 0; i < LQ_PARTS; i++) {
        if (!s->sum[i]) continue;
        w->entry[s->entry[i]].sum = XXH64_digest(s->sum[i]);
        XXH64_freeState(s->sum[i]);
        s->sum[i] = NULL;
    }
    for (size_t i = s->first; i < w->entries; i++) journal_tensor(w, &w->entry[i], w->entry[i].t.name);
    s->open = false;
    return s->of.type.kind == LQ_W_PLAIN || type_add(w, s->name, &s->of, err);
}

static bool stack_write(lq_writer *w, const lq_weight *q, lq_err *err) {
    stack *s = &w->stack;
    char full[LQ_NAME + 16];
    lq_part_form form;
    if (!s->put && !stack_begin(w, q, err)) return false;
    for (int i = 0; i < LQ_PARTS; i++) {
        const bool has = stack_part(s, i, q, full, &form);
        const void *data = q->type.kind == LQ_W_PLAIN ? q->q : lq_part_get((lq_part_id)i, q);
        if (has != (s->bytes[i] != 0) || (has && (form.bytes != s->bytes[i] || !data)))
            return lq_fail(err, LQ_E_USAGE, "%s: weight %s: matrix %lld %s %s, unlike the first", w->out, s->name, (long long)s->put,
                           has && data ? "has its own" : "has no", lq_part_suffix((lq_part_id)i) + 1);
        if (!has || s->there) continue;
        XXH64_update(s->sum[i], data, form.bytes);
        if (!bytes_write(w, w->data, w->data_path, data, form.bytes, w->entry[s->entry[i]].at + (size_t)s->put * form.bytes, err)) return false;
    }
    return ++s->put < s->of.count || stack_end(w, err);
}

bool lq_writer_stack_put(lq_writer *w, const lq_weight *q, lq_err *err) {
    const stack *s = &w->stack;
    if (w->failed) return lq_fail(err, LQ_E_IO, "%s: an earlier write failed", w->out);
    if (!s->open) return lq_fail(err, LQ_E_USAGE, "%s: there is no stack that wants a matrix", w->out);
    if (!lq_wtype_equal(&q->type, &s->of.type) || q->layout != s->layout || q->n != s->of.n || q->k != s->of.k || (s->put && q->outliers != s->outliers)) {
        char got[LQ_TYPED_TEXT], want[LQ_TYPED_TEXT];
        lq_typed_name(&(lq_typed){.type = q->type, .n = q->n, .k = q->k}, got, sizeof got);
        lq_typed_name(&(lq_typed){.type = s->of.type, .n = s->of.n, .k = s->of.k}, want, sizeof want);
        return lq_fail(err, LQ_E_USAGE, "%s: weight %s: matrix %lld is %s in layout %s with %d outlier columns, expected %s in layout %s with %d", w->out,
                       s->name, (long long)s->put, got, lq_layout_names[q->layout], q->outliers, want, lq_layout_names[s->layout], s->outliers);
    }
    if (stack_write(w, q, err)) return true;
    w->failed = true; // a stack with a gap cannot be gone on with
    return false;
}

void lq_writer_stack_drop(lq_writer *w) {
    stack *s = &w->stack;
    if (!s->open || s->there || w->failed) return;
    for (int i = 0; i < LQ_PARTS; i++) XXH64_freeState(s->sum[i]), s->sum[i] = NULL;
    if (w->entries > s->first) w->at = w->entry[s->first].at;
    entries_cut(w, s->first, w->types);
    w->used = s->used;
    s->open = false;
}

bool lq_writer_block(lq_writer *w, const char *note, lq_err *err) {
    if (w->failed) return lq_fail(err, LQ_E_IO, "%s: an earlier write failed", w->out);
    if (!stack_over(w, err)) return false;
    if (fdatasync(w->data)) return io_fail(w, w->data_path, "cannot be synced", err);
    journal_strings(&w->pending, "b", note ? note : "", NULL, w->at);
    bool ok = journal_append(w, &w->pending, err);
    lq_text_free(&w->pending);
    return ok;
}

bool lq_writer_outdated(const lq_writer *w) { return w->outdated; }
size_t lq_writer_resumed(const lq_writer *w) { return w->resumed; }
const char *lq_writer_note(const lq_writer *w, size_t i) { return i < w->resumed ? w->block[i].note : NULL; }

// --- reading back ---

// Where the bytes of an entry are mapped. A mapping ends where an entry does, and what is written later gets another one.
static const void *entry_map(lq_writer *w, const entry *e, lq_err *err) {
    if (!e->t.bytes) return "";
    for (size_t i = w->spans; i--;)
        if (e->at >= w->span[i].from && e->at + e->t.bytes <= w->span[i].to) return w->span[i].p + (e->at - w->span[i].from);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), from = w->spans ? w->span[w->spans - 1].to / page * page : 0;
    if (!lq_grow((void **)&w->span, w->spans, &w->span_cap, sizeof *w->span)) return no_memory(w, err), NULL;
    void *p = mmap(NULL, w->at - from, PROT_READ, MAP_SHARED, w->data, (off_t)from);
    if (p == MAP_FAILED) return lq_fail(err, LQ_E_IO, "%s: cannot be mapped: %s", w->data_path, strerror(errno)), NULL;
    w->span[w->spans++] = (span){p, from, w->at};
    return (const uint8_t *)p + (e->at - from);
}

// Adds a tensor to those that the weight is bound from.
static bool back_add(lq_writer *w, const entry *e, lq_tensor *list, lq_err *err) {
    lq_tensor *t = &list[w->back->count];
    *t = e->t;
    if (!(t->data = entry_map(w, e, err))) return false;
    w->back->count++;
    return true;
}

static bool back_bind(lq_writer *w, const char *name, int count, int64_t n, int64_t k, lq_weight *out, lq_err *err) {
    lq_ckpt *c = w->back;
    bool ok = lq_hashed_build(&c->names, c->tensor, c->count, sizeof *c->tensor) &&
              lq_hashed_build(&c->type_names, c->typed, c->typeds, sizeof *c->typed);
    if (!ok) no_memory(w, err);
    else ok = count ? lq_ckpt_stack(c, name, count, n, k, out, err) : lq_ckpt_weight(c, name, n, k, out, err);
    lq_hashed_free(&c->names);
    lq_hashed_free(&c->type_names);
    return ok;
}

static bool coded_back(lq_writer *w, const char *name, const entry *codes, int count, lq_weight *out, lq_err *err) {
    lq_tensor parts[LQ_PARTS];
    lq_typed type = {.name = name};
    char full[LQ_NAME + 16];
    if (!lq_typed_parse(w->data_path, w->type[codes->type - 1].value, &type, err)) return false;
    type.layout = lq_layout_in(file_layout(w), &type.type, type.n, type.k);
    for (lq_part_id i = 0; i < LQ_PARTS; i++) {
        snprintf(full, sizeof full, "%s%s", name, lq_part_suffix(i));
        const entry *e = entry_find(w, full);
        if (e && !back_add(w, e, parts, err)) return false;
    }
    w->back->tensor = parts, w->back->typed = &type, w->back->typeds = 1;
    return back_bind(w, name, count, type.n, type.k, out, err);
}

static bool plain_back(lq_writer *w, const char *name, const entry *e, int count, lq_weight *out, lq_err *err) {
    lq_tensor t[1];
    const int rank = e->t.rank, more = count != 0;
    if (rank < 1 + 2 * more || rank > 2 + more)
        return lq_fail(err, LQ_E_USAGE, "%s: tensor %s: is no %s", w->data_path, name, count ? "stack" : "matrix or vector");
    if (!back_add(w, e, t, err)) return false;
    w->back->tensor = t;
    return back_bind(w, name, count, t->shape[more], rank == 1 ? 0 : t->shape[rank - 1], out, err);
}

bool lq_writer_weight_back(lq_writer *w, const char *name, int count, lq_weight *out, lq_err *err) {
    const entry *e = entry_find(w, name), *codes = e ? NULL : codes_find(w, name);
    if (!w->back && !(w->back = lq_ckpt_empty(w->data_path))) return no_memory(w, err);
    if ((w->stack.open && !strcmp(w->stack.name, name)) || (!e && (!codes || !codes->type)))
        return lq_fail(err, LQ_E_USAGE, "%s: weight %s: is not written yet", w->data_path, name);
    bool ok = e ? plain_back(w, name, e, count, out, err) : coded_back(w, name, codes, count, out, err);
    w->back->tensor = NULL, w->back->typed = NULL;
    w->back->count = w->back->typeds = 0;
    return ok;
}

// --- commit ---

// A quoted JSON text of `"name":"value"` pairs, as a metadata value.
static void object_add(lq_text *h, const char *key, lq_text *object) {
    lq_text_add(object, "}", 1);
    lq_text_fmt(h, ",\"%s\":", key);
    if (object->failed) h->failed = true;
    else lq_text_json(h, object->p, object->n);
    lq_text_free(object);
}

static void lq_meta_add(const lq_writer *w, lq_text *h, size_t *digits) {
    bool layout = false;
    for (size_t i = 0; i < w->metas; i++) layout |= !strcmp(w->meta[i].key, "lq.layout");
    lq_text_fmt(h, "\"lq.version\":\"0\",\"lq.header\":\"");
    *digits = h->n;
    lq_text_fmt(h, "0000000000000000\"%s", layout ? "" : ",\"lq.layout\":\"any\"");
    lq_text types = {0}, sums = {0};
    lq_text_add(&types, "{", 1);
    for (size_t i = 0; i < w->types; i++) {
        if (i) lq_text_add(&types, ",", 1);
        lq_text_json(&types, w->type[i].key, strlen(w->type[i].key));
        lq_text_fmt(&types, ":\"%s\"", w->type[i].value);
    }
    object_add(h, "lq.types", &types);
    bool first = true;
    lq_text_add(&sums, "{", 1);
    for (size_t i = 0; i < w->entries; i++) {
        const entry *e = &w->entry[i];
        if (pad_name(e->t.name)) continue;
        if (!first) lq_text_add(&sums, ",", 1);
        first = false;
        lq_text_json(&sums, e->t.name, strlen(e->t.name));
        lq_text_fmt(&sums, ":\"%016llx\"", (unsigned long long)e->sum);
    }
    object_add(h, "lq.xxh64", &sums);
}

static void header_build(const lq_writer *w, lq_text *h, size_t *digits) {
    bool meta = w->metas || !w->o.plain;
    lq_text_add(h, "{", 1);
    if (meta) {
        lq_text_fmt(h, "\"__metadata__\":{");
        if (!w->o.plain) lq_meta_add(w, h, digits);
        for (size_t i = 0; i < w->metas; i++) {
            if (i || !w->o.plain) lq_text_add(h, ",", 1);
            lq_text_json(h, w->meta[i].key, strlen(w->meta[i].key));
            lq_text_add(h, ":", 1);
            lq_text_json(h, w->meta[i].value, strlen(w->meta[i].value));
        }
        lq_text_add(h, "}", 1);
    }
    for (size_t i = 0; i < w->entries; i++) {
        const entry *e = &w->entry[i];
        if (i || meta) lq_text_add(h, ",", 1);
        lq_text_json(h, e->t.name, strlen(e->t.name));
        lq_text_fmt(h, ":{\"dtype\":\"%s\",\"shape\":", lq_dtypes[e->t.type].safetensors);
        tensor_describe(h, e);
        lq_text_fmt(h, ",\"data_offsets\":[%zu,%zu]}", e->at - w->start, e->at - w->start + e->t.bytes);
    }
    lq_text_add(h, "}", 1);
}

static bool header_write(lq_writer *w, lq_err *err) {
    lq_text h = {0};
    uint64_t n = w->start - 8;
    size_t digits = 0;
    header_build(w, &h, &digits);
    bool ok = !h.failed || no_memory(w, err);
    if (ok && h.n > n) ok = lq_fail(err, LQ_E_LIMIT, "%s: the header takes %zu bytes, %zu were kept", w->out, h.n, (size_t)n);
    char *room = ok ? malloc((size_t)n) : NULL;
    if (ok && !room) ok = no_memory(w, err);
    if (ok) {
        memset(room, ' ', (size_t)n);
        memcpy(room, h.p, h.n);
        if (!w->o.plain) {
            char text[17];
            snprintf(text, sizeof text, "%016llx", (unsigned long long)lq_header_sum(room, (size_t)n, digits));
            memcpy(room + digits, text, 16);
        }
        ok = bytes_write(w, w->data, w->data_path, &n, 8, 0, err) && bytes_write(w, w->data, w->data_path, room, (size_t)n, 8, err);
    }
    free(room);
    lq_text_free(&h);
    return ok;
}

static bool file_publish(lq_writer *w, lq_err *err) {
    struct stat at_name, at_fd;
    if (fstatat(w->dir, "data", &at_name, AT_SYMLINK_NOFOLLOW) || fstat(w->data, &at_fd) || at_name.st_ino != at_fd.st_ino ||
        at_name.st_dev != at_fd.st_dev)
        return lq_fail(err, LQ_E_IO, "%s: is no longer the file that was written", w->data_path);
    int rc = w->o.overwrite ? renameat(w->dir, "data", AT_FDCWD, w->out) : renameat2(w->dir, "data", AT_FDCWD, w->out, RENAME_NOREPLACE);
    if (rc && !w->o.overwrite && (errno == ENOSYS || errno == EINVAL))
        rc = linkat(w->dir, "data", AT_FDCWD, w->out, 0) ? -1 : unlinkat(w->dir, "data", 0);
    if (rc) return io_fail(w, w->out, "cannot take its name", err);
    w->done = true;
    const char *slash = strrchr(w->out, '/');
    char *folder = !slash ? strdup(".") : slash == w->out ? strdup("/") : strndup(w->out, (size_t)(slash - w->out));
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    bool ok = fd >= 0 && !fsync(fd);
    if (!ok) lq_fail(err, LQ_E_IO, "%s: its directory cannot be synced: %s", w->out, strerror(errno));
    if (fd >= 0) close(fd);
    free(folder);
    unlinkat(w->dir, "journal", 0);
    rmdir(w->folder);
    return ok;
}

bool lq_writer_commit(lq_writer *w, lq_writer_check *check, void *arg, lq_err *err) {
    if (w->failed || w->done) return lq_fail(err, LQ_E_IO, "%s: %s", w->out, w->done ? "is committed already" : "an earlier write failed");
    if (!stack_over(w, err) || !header_write(w, err)) return false;
    if (ftruncate(w->data, (off_t)w->at) || fsync(w->data)) return io_fail(w, w->data_path, "cannot be synced", err);
    lq_ckpt *c;
    if (!lq_ckpt_open(w->data_path, &c, err)) return lq_fail_in(err, "what was written does not open");
    bool ok = lq_ckpt_verify(c, w->o.tick, w->o.arg, err);
    lq_ckpt_close(c);
    if (!ok) return lq_fail_in(err, "what was written does not read back");
    return (!check || check(arg, w->data_path, err)) && file_publish(w, err);
}

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
    entries_cut(w, 0, 0);
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
