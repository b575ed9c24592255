// measured.c: what auto measured, kept beside the journal of the output: an interrupted run does not measure it again.
// Owns OUT.partial/measured, a line for each measurement: a checksum, of what model, text and machine it is, its number
// there, and its figures. Lines of other models and texts stay where they are. Refuses a file that another process
// writes, and links where it should be.
#include "formats/json.h"
#include "formats/writer.h"
#include "quant/pass.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { LINE_MOST = 16 << 20 };

struct lq_measured {
    char path[4096];
    char of[40];
    int fd;          // -1: nothing is kept
    size_t end;      // of the whole lines
    lq_text text;    // those that were there when it was opened
};

static bool fail_file(const lq_measured *m, const char *what, lq_err *err) {
    return lq_fail(err, LQ_E_IO, "%s: %s: %s", m->path, what, strerror(errno));
}

static bool own_open(lq_measured *m, const char *out, lq_err *err) {
    char folder[4096];
    snprintf(folder, sizeof folder, "%s.partial", out);
    const int dir = lq_partial_open(folder, err);
    if (dir < 0) return false;
    m->fd = lq_partial_file(dir, "measured", m->path, err);
    close(dir);
    if (m->fd < 0) return false;
    if (!flock(m->fd, LOCK_EX | LOCK_NB) || errno == ENOSYS || errno == EOPNOTSUPP) return true;
    if (errno != EWOULDBLOCK) return fail_file(m, "cannot be locked", err);
    return lq_fail(err, LQ_E_IO, "%s: another process is writing here", folder);
}

// The lines up to the first that is torn.
static bool read_lines(lq_measured *m, lq_err *err) {
    char buf[65536];
    ssize_t got;
    while ((got = pread(m->fd, buf, sizeof buf, (off_t)m->text.n)) > 0) {
        lq_text_add(&m->text, buf, (size_t)got);
        if (m->text.failed) return lq_fail(err, LQ_E_MEMORY, "no memory for %s", m->path);
    }
    if (got < 0) return fail_file(m, "cannot be read", err);
    const char *last = m->text.n ? memrchr(m->text.p, '\n', m->text.n) : NULL;
    m->end = m->text.n = last ? (size_t)(last + 1 - m->text.p) : 0;
    return !ftruncate(m->fd, (off_t)m->end) || fail_file(m, "cannot be cut", err);
}

bool lq_measured_open(const lq_quant_opts *o, uint64_t of, lq_measured **out, lq_err *err) {
    lq_measured *m = *out = calloc(1, sizeof *m);
    if (!m) return lq_fail(err, LQ_E_MEMORY, "no memory for what was measured");
    m->fd = -1;
    snprintf(m->of, sizeof m->of, "\"%016" PRIx64 "\"", of);
    const int size = snprintf(m->path, sizeof m->path, "%s.partial/measured", o->out);
    bool done = size < (int)sizeof m->path || lq_fail(err, LQ_E_LIMIT, "%s: its name is too long", o->out);
    // What only plans leaves nothing, and reads what there is.
    if (done && o->dry_run && access(m->path, R_OK | W_OK)) return true;
    done = done && own_open(m, o->out, err);
    if (done && read_lines(m, err)) return true;
    lq_measured_close(m);
    *out = NULL;
    return false;
}

bool lq_measured_empty(const lq_quant_opts *o, lq_err *err) {
    lq_measured *m;
    char path[4096];
    const int size = snprintf(path, sizeof path, "%s.partial/measured", o->out);
    if (size >= (int)sizeof path || access(path, F_OK)) return true;
    if (!lq_measured_open(o, 0, &m, err)) return false;
    const bool done = !ftruncate(m->fd, 0) || fail_file(m, "cannot be emptied", err);
    lq_measured_close(m);
    return done;
}

void lq_measured_close(lq_measured *m) {
    if (!m) return;
    if (m->fd >= 0) close(m->fd);
    lq_text_free(&m->text);
    free(m);
}

// "<sum> [of, number, figures ...]"
static bool take_line(const lq_measured *m, const char *p, size_t n, size_t at, double *v, int count) {
    char sum[24];
    cJSON *line;
    char head[64];
    const int size = snprintf(head, sizeof head, "[%s,%zu,", m->of, at);
    if (n < 40 || n > LINE_MOST || memcmp(p + 17, head, (size_t)size) != 0) return false;
    snprintf(sum, sizeof sum, "%016" PRIx64 " ", XXH64(p + 17, n - 17, 0));
    if (memcmp(sum, p, 17) != 0) return false;
    if (!lq_json_parse(p + 17, n - 17, (lq_json_limits){LINE_MOST, 2}, m->path, &line, NULL)) return false;
    bool fits = cJSON_GetArraySize(line) == count + 2;
    const cJSON *number = fits ? line->child->next : NULL;
    fits = fits && cJSON_IsNumber(number) && number->valuedouble == (double)at;
    const cJSON *x = fits ? number->next : NULL;
    for (int i = 0; fits && i < count; i++, x = x->next) {
        fits = cJSON_IsNumber(x);
        v[i] = x->valuedouble;
    }
    cJSON_Delete(line);
    return fits;
}

bool lq_measured_get(const lq_measured *m, size_t at, double *v, int count) {
    const char *p = m->text.p, *const end = p + m->text.n;
    for (const char *stop; p < end && (stop = memchr(p, '\n', (size_t)(end - p))); p = stop + 1)
        if (take_line(m, p, (size_t)(stop - p), at, v, count)) return true;
    return false;
}

bool lq_measured_put(lq_measured *m, size_t at, const double *v, int count, lq_err *err) {
    lq_text line = {0}, list = {0};
    if (m->fd < 0) return true;
    lq_text_fmt(&list, "[%s,%zu", m->of, at);
    for (int i = 0; i < count; i++) lq_text_fmt(&list, ",%.17g", v[i]);
    lq_text_fmt(&list, "]");
    lq_text_fmt(&line, "%016" PRIx64 " %s\n", list.failed ? 0 : XXH64(list.p, list.n, 0), list.failed ? "" : list.p);
    bool done = (!list.failed && !line.failed) || lq_fail(err, LQ_E_MEMORY, "no memory for what was measured");
    for (size_t put = 0; done && put < line.n;) {
        const ssize_t got = pwrite(m->fd, line.p + put, line.n - put, (off_t)(m->end + put));
        if (got < 0 && errno == EINTR) continue;
        if (got == 0) errno = ENOSPC;
        if (got <= 0) done = fail_file(m, "cannot be written", err);
        else put += (size_t)got;
    }
    if (done && fdatasync(m->fd)) done = fail_file(m, "cannot be synced", err);
    if (done) m->end += line.n;
    lq_text_free(&list);
    lq_text_free(&line);
    return done;
}

void lq_measured_forget(const char *out) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s.partial/measured", out) >= (int)sizeof path) return;
    if (!unlink(path)) *strrchr(path, '/') = 0, rmdir(path);
}
