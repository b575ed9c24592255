// place.c: where the output and its report go: what can be known of their places before any work is done. Owns nothing.
//
// Refused: names that would not open again, files of the input, folders and devices, what is there already; and even
// with --force whatever lq did not write.
#include "formats/writer.h"
#include "quant/pass.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Whether a file begins as a .lq, be it damaged, or is empty.
static bool looks_ours(const char *path) {
    enum { HEAD = 1 << 20 };
    static const char key[] = "\"lq.version\"";
    uint8_t size[8];
    uint64_t n = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char *head = fd < 0 ? NULL : malloc(HEAD);
    bool ours = false;
    if (head) {
        const ssize_t got = pread(fd, size, sizeof size, 0), more = got == 8 ? pread(fd, head, HEAD, 8) : 0;
        for (int i = 8; i-- > 0;) n = n << 8 | size[i];
        ours = got == 0 || (more > 0 && n <= 100000000 && head[0] == '{' &&
                            memmem(head, (size_t)more, key, sizeof key - 1));
    }
    free(head);
    if (fd >= 0) close(fd);
    return ours;
}

// The folder of `path` takes a new name.
static bool folder_check(const char *path, lq_err *err) {
    const char *slash = strrchr(path, '/');
    char *folder = !slash ? strdup(".") : slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
    if (!folder) return lq_fail(err, LQ_E_MEMORY, "%s: no memory for its name", path);
    struct stat st;
    bool done = stat(folder, &st) == 0 || lq_fail(err, LQ_E_IO, "%s: its folder %s: %s", path, folder, strerror(errno));
    if (done && !S_ISDIR(st.st_mode)) done = lq_fail(err, LQ_E_IO, "%s: %s is no folder", path, folder);
    if (done && access(folder, W_OK | X_OK))
        done = lq_fail(err, LQ_E_IO, "%s: its folder %s: %s", path, folder, strerror(errno));
    free(folder);
    return done;
}

// What both places have in common. *there: a plain file that --force may replace.
static bool place_check(const lq_plan *p, const char *path, bool *there, lq_err *err) {
    struct stat st, to;
    *there = lstat(path, &st) == 0;
    if (!*there) return folder_check(path, err);
    if (stat(path, &to) == 0 && lq_ckpt_is_file(p->in, (uint64_t)to.st_dev, (uint64_t)to.st_ino))
        return lq_fail(err, LQ_E_USAGE, "%s: is a file of the checkpoint that is read; it is not replaced", path);
    if (S_ISDIR(st.st_mode)) return lq_fail(err, LQ_E_USAGE, "%s: is a directory, expected the name of a file", path);
    if (!S_ISREG(st.st_mode)) return lq_fail(err, LQ_E_USAGE, "%s: is no plain file; it is not replaced", path);
    if (!p->o->overwrite) return lq_fail(err, LQ_E_USAGE, "%s: is there already; --force replaces it", path);
    return folder_check(path, err);
}

static bool report_check(lq_plan *p, lq_err *err) {
    struct stat out, report;
    bool there;
    if (p->o->report) lq_text_fmt(&p->report, "%s", p->o->report);
    else lq_text_fmt(&p->report, "%s.report.json", p->o->out);
    if (p->report.failed) return lq_fail(err, LQ_E_MEMORY, "no memory for the report's name");
    p->report_told = !strcmp(p->report.p, "-");
    if (p->report_told) return true;
    const char *path = p->report.p;
    const size_t n = strlen(p->o->out);
    const bool inside = !strncmp(path, p->o->out, n) && !strncmp(path + n, ".partial", 8);
    if (!*path || path[strlen(path) - 1] == '/')
        return lq_fail(err, LQ_E_USAGE, "report \"%s\": expected the name of a file", path);
    if (!strcmp(path, p->o->out) || inside || (stat(path, &report) == 0 && stat(p->o->out, &out) == 0 &&
                                               report.st_dev == out.st_dev &&
                                               report.st_ino == out.st_ino))
        return lq_fail(err, LQ_E_USAGE, "%s: the report cannot stand where the output does", path);
    return place_check(p, path, &there, err) || lq_fail_in(err, "report");
}

// Side files are carried over as they are; what would be no JSON in the output is told now.
static bool files_check(const lq_plan *p, lq_err *err) {
    for (size_t i = 0; lq_side_files[i]; i++) {
        lq_bytes file;
        if (!lq_ckpt_file(p->in, lq_side_files[i], &file, err)) return false;
        if (!lq_side_check(lq_side_files[i], &file, err)) return lq_fail_in(err, "%s", lq_ckpt_path(p->in));
    }
    return true;
}

bool lq_places_check(lq_plan *p, lq_err *err) {
    const char *out = p->o->out;
    bool there;
    if (!lq_out_name_check(out, err) || !place_check(p, out, &there, err)) return false;
    if (there && !looks_ours(out))
        return lq_fail(err, LQ_E_USAGE, "%s: is no file that lq wrote; it is not replaced", out);
    return report_check(p, err) && files_check(p, err);
}
