// batch_files.c: the files of a batch. Requests are read line by line, answers are written line by line, and of an
// earlier run what stands in the output is found again. Owns both descriptors and the names that were met.
//
// Refuses an output that another run is writing, that holds something else than answers, or that is the input; and an
// input in which two requests have one custom_id.
#include "runtime/serve/batch.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { DEPTH = 68 };                            // of a line: what a body may have, and what it stands in
static const size_t out_most = (size_t)1 << 30; // bytes of a line of answers
static const char bom[] = "\xef\xbb\xbf";       // what some editors put before a text
static const char begins[] = "{\"id\":\"batch_req_"; // each line of answers

// --- lines ---

static bool room(lq_lines *l, lq_err *err) {
    if (l->at) memmove(l->p, l->p + l->at, l->n -= l->at);
    l->at = 0;
    if (l->n < l->cap) return true;
    const size_t cap = l->cap ? l->cap * 2 : 1 << 16;
    char *p = realloc(l->p, cap);
    if (p) l->p = p;
    char *work = p ? realloc(l->work, cap) : NULL;
    if (!work) return lq_fail(err, LQ_E_MEMORY, "%s:%" PRIu64 ": no memory for a line", l->path, l->number + 1);
    l->work = work;
    l->cap = cap;
    return true;
}

// More bytes. False: none came in time (*failed: none will).
static bool read_more(lq_lines *l, int ms, bool *failed, lq_err *err) {
    struct pollfd f = {.fd = l->fd, .events = POLLIN};
    if (!room(l, err)) return *failed = true, false;
    if (poll(&f, 1, ms) <= 0) return false;
    const ssize_t got = read(l->fd, l->p + l->n, l->cap - l->n);
    if (got < 0 && errno != EINTR && errno != EAGAIN) {
        *failed = true;
        return lq_fail(err, LQ_E_IO, "%s: %s", l->path, strerror(errno));
    }
    if (got == 0) l->over = true;
    if (got > 0) l->n += (size_t)got;
    return got >= 0;
}

// p[at..at + n) is a line, or the end of one that was too long.
static lq_line take(lq_lines *l, size_t n, bool whole) {
    const bool longer = l->skips || n > l->most;
    if (!l->skips) l->begins = l->next;
    l->next += n + whole;
    l->at += n + whole;
    l->looked = 0;
    l->whole = whole;
    l->skips = false;
    l->number++;
    return longer ? LQ_LINE_LONG : LQ_LINE;
}

lq_line lq_lines_next(lq_lines *l, int ms, const char **text, size_t *n, lq_err *err) {
    for (bool failed = false;;) {
        const size_t have = l->n - l->at;
        const char *begin = l->p ? l->p + l->at : "";
        const char *feed = have > l->looked ? memchr(begin + l->looked, '\n', have - l->looked) : NULL;
        *text = begin;
        *n = feed ? (size_t)(feed - begin) : have;
        if (l->over && !have && !l->skips) return LQ_LINE_OVER;
        if (feed || l->over) {
            const bool mark = !l->number && *n >= sizeof bom - 1 && !memcmp(begin, bom, sizeof bom - 1);
            const lq_line got = take(l, *n, feed != NULL);
            if (mark) *text += sizeof bom - 1, *n -= sizeof bom - 1;
            return got;
        }
        l->looked = have;
        if (have > l->most) { // its end is looked for, and nothing of it is kept
            if (!l->skips) l->begins = l->next;
            l->next += have;
            l->at = l->n = l->looked = 0;
            l->skips = true;
        }
        if (!read_more(l, ms, &failed, err)) return failed ? LQ_LINE_FAILED : LQ_LINE_WAIT;
    }
}

void lq_lines_end(lq_lines *l) {
    free(l->p);
    free(l->work);
    l->p = l->work = NULL;
}

bool lq_said_blank(const char *text, size_t n) {
    while (n && strchr(" \t\r", text[n - 1]) && text[n - 1]) n--;
    return !n;
}

// The next key of an object, decoded into `to`, where it is NUL-terminated if it is short. False: that was the last.
static bool next_key(lq_json_walk *w, char *to, char key[16]) {
    const char c = lq_json_next(w);
    if (c != '"') return lq_json_take(w), false;
    const size_t n = lq_json_take_str(w, to);
    snprintf(key, 16, "%.*s", n < 16 && !memchr(to, 0, n) ? (int)n : 0, to);
    lq_json_next(w);
    return true;
}

// A text that fits, or "".
static void take_word(lq_json_walk *w, char *work, char *to, size_t size) {
    *to = '\0';
    if (lq_json_next(w) != '"') {
        lq_json_skip(w);
        return;
    }
    const size_t n = lq_json_take_str(w, work);
    if (n >= size || memchr(work, 0, n)) return;
    memcpy(to, work, n);
    to[n] = '\0';
}

static uint64_t take_line(lq_json_walk *w, char *work) {
    uint64_t line = 0;
    char key[16];
    if (lq_json_next(w) != '{') return lq_json_skip(w), 0;
    lq_json_take(w);
    while (next_key(w, work, key))
        if (strcmp(key, "line")) lq_json_skip(w);
        else lq_json_take_u64(w, &line);
    return line;
}

static void take_custom(lq_json_walk *w, char **work, lq_said *said) {
    if (lq_json_next(w) != '"') {
        lq_json_skip(w);
        return;
    }
    const size_t n = lq_json_take_str(w, *work);
    if (n) said->custom = *work, said->custom_len = n;
    *work += n;
}

bool lq_said_read(lq_lines *l, const char *text, size_t n, const char *what, lq_said *said, lq_err *err) {
    lq_json_walk w = {text, text + n};
    char *work = l->work, key[16];
    *said = (lq_said){0};
    if (!lq_json_check(text, n, (lq_json_limits){.bytes = n, .depth = DEPTH}, what, err)) return false;
    if (lq_json_next(&w) != '{') return lq_fail(err, LQ_E_FORMAT, "%s: expected an object", what);
    lq_json_take(&w);
    while (next_key(&w, work, key)) {
        const char c = lq_json_next(&w), *at = w.p;
        if (!strcmp(key, "custom_id")) take_custom(&w, &work, said);
        else if (!strcmp(key, "method")) take_word(&w, work, said->method, sizeof said->method);
        else if (!strcmp(key, "url")) take_word(&w, work, said->url, sizeof said->url);
        else if (!strcmp(key, "error")) {
            said->error = true;
            said->failed = c != 'n';
            said->line = take_line(&w, work);
        } else lq_json_skip(&w);
        if (!strcmp(key, "response")) said->response = true;
        if (!strcmp(key, "body") && c != 'n') said->body = at, said->body_len = (size_t)(w.p - at);
    }
    return true;
}

// --- names ---

static lq_met met(const void *p, size_t n, uint64_t seed, uint64_t line) {
    const XXH128_hash_t h = XXH3_128bits_withSeed(p, n, seed);
    return (lq_met){h.low64, (uint32_t)h.high64, (uint32_t)line};
}

lq_met lq_name_of(const char *custom, size_t n, uint64_t line) { return met(custom, n, 0, line); }
lq_met lq_name_of_line(uint64_t line) { return met(&line, sizeof line, 1, line); }

static lq_met *place(lq_met *p, size_t cap, lq_met m) {
    size_t at = m.hash & (cap - 1);
    while (p[at].line && (p[at].hash != m.hash || p[at].more != m.more)) at = (at + 1) & (cap - 1);
    return &p[at];
}

uint32_t lq_met_find(const lq_names *s, lq_met m) { return s->n ? place(s->p, s->cap, m)->line : 0; }

bool lq_met_add(lq_names *s, lq_met m, uint32_t *before) {
    if (s->n >= s->cap / 4 * 3) {
        const size_t cap = s->cap ? s->cap * 2 : 1024;
        lq_met *p = calloc(cap, sizeof *p);
        if (!p) return false;
        for (size_t i = 0; i < s->cap; i++)
            if (s->p[i].line) *place(p, cap, s->p[i]) = s->p[i];
        free(s->p);
        s->p = p;
        s->cap = cap;
    }
    lq_met *at = place(s->p, s->cap, m);
    *before = at->line;
    if (*before) return true;
    *at = m;
    s->n++;
    return true;
}

static void names_free(lq_names *s) {
    free(s->p);
    *s = (lq_names){0};
}

// --- the output ---

// What an earlier run left: its whole lines are read, and where the next one belongs is f->out_size.
static bool read_answers(lq_batch_files *f, lq_err *err) {
    static const char no_answer[] = "no answer of a batch";
    lq_lines l = {.fd = f->out, .path = f->out_path, .most = out_most};
    const char *text;
    size_t n;
    lq_said said;
    uint32_t before;
    lq_err why = {0};
    lq_line got;
    bool done = true;
    while (done && ((got = lq_lines_next(&l, -1, &text, &n, err)) <= LQ_LINE_WAIT)) {
        if (got == LQ_LINE_WAIT) continue;
        if (!l.whole) { // cut off in the middle: it is written anew
            const size_t known = n < sizeof begins - 1 ? n : sizeof begins - 1;
            done = (got == LQ_LINE && !memcmp(text, begins, known)) ||
                   lq_fail(err, LQ_E_FORMAT, "%s:%" PRIu64 ": %s", f->out_path, l.number, no_answer);
            break;
        }
        f->out_size = l.next;
        lq_fail(&why, LQ_E_FORMAT, "%s", no_answer);
        done = (got == LQ_LINE && lq_said_read(&l, text, n, no_answer, &said, &why) && said.response && said.error) ||
               lq_fail(err, LQ_E_FORMAT, "%s:%" PRIu64 ": %s", f->out_path, l.number, why.text);
        if (!done) break;
        f->before_failed += said.failed;
        if (!said.custom && !said.line) continue;
        const lq_met m = said.custom ? lq_name_of(said.custom, said.custom_len, 1) : lq_name_of_line(said.line);
        done = lq_met_add(&f->told, m, &before) || lq_fail(err, LQ_E_MEMORY, "no memory for a batch's names");
    }
    lq_lines_end(&l);
    return done && got != LQ_LINE_FAILED;
}

// Nothing else than answers is replaced.
static bool may_replace(const lq_batch_files *f, lq_err *err) {
    char p[sizeof begins - 1];
    const ssize_t n = pread(f->out, p, sizeof p, 0);
    return (n > 0 && !memcmp(p, begins, (size_t)n)) ||
           lq_fail(err, LQ_E_FORMAT, "%s: has no answers of a batch; it is not replaced", f->out_path);
}

static bool out_open(lq_batch_files *f, const lq_batch_opts *o, lq_err *err) {
    struct stat in, out;
    const int flags = O_RDWR | O_APPEND | O_CLOEXEC;
    f->out_path = strcmp(o->out, "-") ? o->out : "standard output";
    if (f->out_path != o->out) f->out = STDOUT_FILENO;
    else if ((f->out = open(o->out, flags | O_CREAT | O_EXCL, 0666)) >= 0) f->made = true;
    else if (errno == EEXIST) f->out = open(o->out, flags);
    if (f->out < 0 || fstat(f->out, &out)) return lq_fail(err, LQ_E_IO, "%s: %s", f->out_path, strerror(errno));
    f->out_plain = S_ISREG(out.st_mode) && f->out_path == o->out;
    if (!f->out_plain)
        return !o->resume || lq_fail(err, LQ_E_USAGE, "%s: no file that could be gone on with", f->out_path);
    if (!fstat(f->in.fd, &in) && in.st_dev == out.st_dev && in.st_ino == out.st_ino)
        return lq_fail(err, LQ_E_USAGE, "%s: is the input too", f->out_path);
    if (flock(f->out, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        return lq_fail(err, LQ_E_BUSY, "%s: another lq batch is writing it", f->out_path);
    if (!out.st_size) return true;
    if (o->resume) return read_answers(f, err);
    if (o->force) return may_replace(f, err);
    return lq_fail(err, LQ_E_USAGE, "%s: exists; --resume goes on with it, --force begins anew", f->out_path);
}

// --- the input ---

static bool name_take(lq_batch_files *f, const lq_said *said, lq_err *err) {
    uint32_t before;
    const uint64_t line = f->in.number;
    if (line > UINT32_MAX) return lq_fail(err, LQ_E_LIMIT, "%s: has more than %u lines", f->in.path, UINT32_MAX);
    if (!lq_met_add(&f->asked, lq_name_of(said->custom, said->custom_len, line), &before))
        return lq_fail(err, LQ_E_MEMORY, "no memory for a batch's names");
    return !before || lq_fail(err, LQ_E_FORMAT, "%s:%" PRIu64 ": custom_id \"%.*s\" is that of line %u too; each "
                              "request of a batch has its own", f->in.path, line,
                              said->custom_len < 100 ? (int)said->custom_len : 100, said->custom, before);
}

// Once through a file that can be read again: how many requests there are, and whether each has a name of its own.
static bool read_names(lq_batch_files *f, lq_err *err) {
    lq_lines *l = &f->in;
    const off_t from = lseek(l->fd, 0, SEEK_CUR);
    const char *text;
    size_t n;
    lq_line got;
    bool done = true;
    while (done && ((got = lq_lines_next(l, -1, &text, &n, err)) <= LQ_LINE_WAIT)) {
        lq_said said = {0};
        if (got == LQ_LINE_WAIT || (got == LQ_LINE && lq_said_blank(text, n))) continue;
        f->total++;
        if (got == LQ_LINE) lq_said_read(l, text, n, "", &said, NULL);
        if (said.custom) done = name_take(f, &said, err);
        f->before += lq_met_find(&f->told, said.custom ? lq_name_of(said.custom, said.custom_len, 1)
                                                         : lq_name_of_line(l->number)) != 0;
    }
    if (!done || got == LQ_LINE_FAILED) return false;
    names_free(&f->asked);
    *l = (lq_lines){.fd = l->fd, .path = l->path, .most = l->most, .p = l->p, .work = l->work, .cap = l->cap};
    return lseek(l->fd, from, SEEK_SET) >= 0 || lq_fail(err, LQ_E_IO, "%s: %s", l->path, strerror(errno));
}

static bool in_open(lq_batch_files *f, const lq_batch_opts *o, lq_err *err) {
    struct stat in;
    const bool given = !strcmp(o->in, "-");
    f->in.path = given ? "standard input" : o->in;
    f->in.most = (o->max_body ? o->max_body : 4 << 20) + (64 << 10); // the rest of the line is no body
    f->in.fd = given ? STDIN_FILENO : open(o->in, O_RDONLY | O_CLOEXEC);
    if (f->in.fd < 0 || fstat(f->in.fd, &in)) return lq_fail(err, LQ_E_IO, "%s: %s", f->in.path, strerror(errno));
    f->in_plain = S_ISREG(in.st_mode);
    return true;
}

bool lq_batch_files_open(lq_batch_files *f, const lq_batch_opts *o, lq_err *err) {
    *f = (lq_batch_files){.in.fd = -1, .out = -1};
    if (!in_open(f, o, err) || !out_open(f, o, err) || (f->in_plain && !read_names(f, err))) return false;
    return !f->out_plain || !ftruncate(f->out, (off_t)f->out_size) ||
           lq_fail(err, LQ_E_IO, "%s: %s", f->out_path, strerror(errno));
}

bool lq_batch_files_write(lq_batch_files *f, const lq_text *line, lq_err *err) {
    if (line->failed) return lq_fail(err, LQ_E_MEMORY, "%s: no memory for a line", f->out_path);
    for (size_t at = 0; at < line->n;) {
        const ssize_t n = write(f->out, line->p + at, line->n - at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            lq_fail(err, LQ_E_IO, "%s: %s", f->out_path, strerror(errno));
            if (f->out_plain && at) (void)!ftruncate(f->out, (off_t)f->out_size); // else the next run cuts it off
            return false;
        }
        at += (size_t)n;
    }
    f->out_size += line->n;
    return true;
}

bool lq_batch_files_close(lq_batch_files *f, bool kept, lq_err *err) {
    bool done = true;
    if (f->made && !kept && !f->out_size) unlink(f->out_path);
    else if (f->out_plain && kept && fsync(f->out))
        done = lq_fail(err, LQ_E_IO, "%s: %s", f->out_path, strerror(errno));
    if (f->out > STDERR_FILENO && close(f->out) && done && kept)
        done = lq_fail(err, LQ_E_IO, "%s: %s", f->out_path, strerror(errno));
    if (f->in.fd > STDERR_FILENO) close(f->in.fd);
    lq_lines_end(&f->in);
    names_free(&f->asked);
    names_free(&f->told);
    f->in.fd = f->out = -1;
    f->made = f->out_plain = false;
    return done;
}
