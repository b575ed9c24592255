// writer_journal.c: OUT.partial/journal, which says what of the data is whole, written and read back.
// Refuses finished blocks of other work. What a line says is taken only where its checksum is right and the
// data on disk are what it says.
//
// A line is 16 hex digits of XXH64 over what follows the space, then a JSON list:
//     ["lq",0,plain,start,"fingerprint"]             the first line
//     ["t","name","BF16",[shape],offset,"xxh64"]     a tensor, padding included
//     ["w","name","int4 g128 sym f16 64x128"]        the type of a coded weight
//     ["b","note",end]                               everything before it is on disk
#include "formats/writer_state.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void sum_add(lq_text *t, uint64_t sum) { lq_text_fmt(t, "%016llx", (unsigned long long)sum); }

// The list, closed, becomes a line of t.
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

void lq_shape_add(lq_text *t, const lq_tensor *tensor) {
    lq_text_fmt(t, "[");
    for (int i = 0; i < tensor->rank; i++) lq_text_fmt(t, i ? ",%lld" : "%lld", (long long)tensor->shape[i]);
    lq_text_fmt(t, "]");
}

void lq_journal_tensor(lq_writer *w, const lq_entry *e) {
    lq_text list = {0};
    lq_text_fmt(&list, "[\"t\",");
    lq_text_json(&list, e->t.name, strlen(e->t.name));
    lq_text_fmt(&list, ",\"%s\",", lq_dtypes[e->t.type].safetensors);
    lq_shape_add(&list, &e->t);
    lq_text_fmt(&list, ",%zu,\"", e->at);
    sum_add(&list, e->sum);
    lq_text_fmt(&list, "\"");
    line_end(&w->pending, &list);
}

void lq_journal_type(lq_writer *w, const char *name, const char *type) {
    lq_text list = {0};
    lq_text_fmt(&list, "[\"w\",");
    lq_text_json(&list, name, strlen(name));
    lq_text_fmt(&list, ",");
    lq_text_json(&list, type, strlen(type));
    line_end(&w->pending, &list);
}

static void head_line(const lq_writer *w, lq_text *to) {
    lq_text list = {0};
    lq_text_fmt(&list, "[\"lq\",0,%s,%zu,", w->o.plain ? "true" : "false", w->start);
    lq_text_json(&list, w->fingerprint, strlen(w->fingerprint));
    line_end(to, &list);
}

static bool append(lq_writer *w, const lq_text *t, lq_err *err) {
    if (t->failed) return lq_writer_no_memory(w, err);
    if (!lq_disk_write(w, w->journal, w->journal_path, t->p, t->n, w->journal_at, err)) return false;
    w->journal_at += t->n;
    return !fdatasync(w->journal) || lq_disk_fail(w, w->journal_path, "cannot be synced", err);
}

bool lq_journal_begin(lq_writer *w, lq_err *err) {
    lq_text head = {0};
    head_line(w, &head);
    w->journal_at = 0;
    bool ok = append(w, &head, err);
    lq_text_free(&head);
    return ok;
}

bool lq_journal_block(lq_writer *w, const char *note, lq_err *err) {
    lq_text list = {0};
    lq_text_fmt(&list, "[\"b\",");
    lq_text_json(&list, note, strlen(note));
    lq_text_fmt(&list, ",%zu", w->at);
    line_end(&w->pending, &list);
    bool ok = append(w, &w->pending, err);
    lq_text_free(&w->pending);
    return ok;
}

// The next value of a line, which must be a string; it stands in the scratch, which moves behind it.
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
    lq_entry e = {.t = {.type = type ? lq_dtype_of_safetensors(type) : LQ_DTYPES}};
    if (e.t.type == LQ_DTYPES || !lq_name_ok(name, strlen(name)) || lq_entry_find(w, name) || lq_json_next(l) != '[')
        return false;
    size_t bytes = lq_dtype_size(e.t.type);
    for (lq_json_take(l); lq_json_next(l) != ']';) {
        uint64_t v;
        if (e.t.rank == LQ_RANK || !lq_json_take_u64(l, &v) || v > INT64_MAX || !lq_mul_size(bytes, (size_t)v, &bytes))
            return false;
        e.t.shape[e.t.rank++] = (int64_t)v;
    }
    lq_json_take(l);
    uint64_t at;
    if (!lq_json_take_u64(l, &at) || at != w->at || at + bytes < at) return false;
    const char *sum = line_string(l, &scratch);
    if (!sum || !lq_sum_parse(sum, strlen(sum), &e.sum)) return false;
    e.t.bytes = bytes, e.at = w->at;
    w->at += bytes;
    return lq_entry_push(w, &e, name);
}

static bool line_block(lq_writer *w, lq_json_walk *l, char *scratch, size_t journal_end) {
    const char *note = line_string(l, &scratch);
    uint64_t end;
    if (!note || !lq_json_take_u64(l, &end) || end != w->at) return false;
    if (!lq_grow((void **)&w->block, w->blocks, &w->block_cap, sizeof *w->block)) return false;
    char *own = strdup(note);
    if (own) w->block[w->blocks++] = (lq_resumed){own, w->entries, w->types, w->at, journal_end};
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
    const char *name = !strcmp(kind, "w") ? line_string(&l, &scratch) : NULL;
    const char *text = name ? line_string(&l, &scratch) : NULL;
    lq_entry *codes = text ? lq_entry_codes(w, name) : NULL;
    if (!codes || codes->type || !lq_pairs_push(&w->type, &w->types, &w->type_cap, name, text)) return false;
    codes->type = w->types;
    return true;
}

// Whether a journal names a finished block: work that somebody may want.
static bool worth(const char *p, size_t n) {
    static const char kind[] = "[\"b\",";
    uint64_t sum;
    for (const char *end; n && (end = memchr(p, '\n', n)); n -= (size_t)(end + 1 - p), p = end + 1) {
        size_t m = (size_t)(end - p), k = sizeof kind - 1;
        if (m > 17 + k && !memcmp(p + 17, kind, k) && lq_sum_parse(p, 16, &sum) && XXH64(p + 17, m - 17, 0) == sum)
            return true;
    }
    return false;
}

// Whether a journal is of this work but for the input: the first line has the fingerprint up to its '.'.
static bool outdated(const lq_writer *w, const char *p, size_t n) {
    const char *dot = strchr(w->fingerprint, '.'), *end = memchr(p, '\n', n);
    char head[64];
    if (!dot || !end) return false;
    const int m = snprintf(head, sizeof head, "\"%.*s.", (int)(dot - w->fingerprint), w->fingerprint);
    return m > 0 && (size_t)m < sizeof head && memmem(p, (size_t)(end - p), head, (size_t)m);
}

// Where a journal is of this work but for the machine: how long its fingerprint's third part is, at *at; else 0.
static size_t elsewhere(const lq_writer *w, const char *p, size_t n, const char **at) {
    const char *dot = strchr(w->fingerprint, '.'), *end = memchr(p, '\n', n);
    dot = dot ? strchr(dot + 1, '.') : NULL;
    if (!dot || !end) return 0;
    const size_t m = (size_t)(dot + 1 - w->fingerprint);
    const char *found = memmem(p, (size_t)(end - p), w->fingerprint, m);
    if (!found) return 0;
    *at = found + m;
    const char *quote = memchr(*at, '"', (size_t)(end - *at));
    return quote ? (size_t)(quote - *at) : 0;
}

// Whole lines up to the first that is torn or makes no sense. Returns false if it is not the journal of this work.
static bool lines_take(lq_writer *w, const char *p, size_t n, char *scratch) {
    lq_text head = {0};
    head_line(w, &head);
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
        const lq_entry *e = &w->entry[i];
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

bool lq_journal_resume(lq_writer *w, bool *ours, lq_err *err) {
    struct stat st;
    enum { CHUNK = 1 << 20 };
    if (fstat(w->journal, &st)) return lq_disk_fail(w, w->journal_path, "cannot be read", err);
    size_t n = (size_t)st.st_size, at = 0;
    char *text = malloc(n + 1), *scratch = malloc(n > CHUNK ? n : CHUNK);
    bool ok = (text && scratch) || lq_writer_no_memory(w, err);
    while (ok && at < n) {
        ssize_t got = pread(w->journal, text + at, n - at, (off_t)at);
        if (got <= 0) ok = lq_disk_fail(w, w->journal_path, "cannot be read", err);
        else at += (size_t)got;
    }
    *ours = ok && lines_take(w, text, n, scratch);
    const char *machine = NULL;
    const size_t words = ok && !*ours ? elsewhere(w, text, n, &machine) : 0;
    if (words && worth(text, n))
        ok = lq_fail(err, LQ_E_USAGE, "%s: holds unfinished work of %.*s, here is %s, whose sums differ: go on there, or "
                     "--fresh throws it away", w->folder, words < 100 ? (int)words : 100, machine,
                     strchr(strchr(w->fingerprint, '.') + 1, '.') + 1);
    w->outdated = ok && !*ours && outdated(w, text, n) && worth(text, n);
    if (ok && !*ours && !w->outdated && worth(text, n))
        ok = lq_fail(err, LQ_E_USAGE, "%s: holds unfinished work of another input, recipe or version of lq (or is "
                     "damaged); --fresh throws it away", w->folder);
    size_t good = 0;
    for (size_t first = 0; ok && good < w->blocks; first = w->block[good++].entries)
        if (!block_check(w, first, w->block[good].entries, scratch, CHUNK)) break;
    free(text);
    free(scratch);
    if (!ok) return false;
    for (; w->blocks > good; w->blocks--) free(w->block[w->blocks - 1].note);
    const lq_resumed *last = good ? &w->block[good - 1] : NULL;
    lq_entries_cut(w, last ? last->entries : 0, last ? last->types : 0);
    w->at = last ? last->end : w->start;
    if (last) w->journal_at = last->journal_end;
    return true;
}
