// writer_disk.c: OUT.partial/ on disk: its folder and lock, its two files, and how one of them becomes OUT. Refuses a
// folder that another process works in, and links where its own files should be. What fails here fails the writer.
#include "formats/writer_state.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

bool lq_disk_fail(lq_writer *w, const char *path, const char *what, lq_err *err) {
    const char *more = errno == EFBIG ? " (a limit of the file system or the shell, see ulimit -f)" : "";
    w->failed = true;
    return lq_fail(err, LQ_E_IO, "%s: %s: %s%s", path, what, strerror(errno), more);
}

bool lq_disk_go_on(lq_writer *w, lq_err *err) {
    if (!w->o.tick || w->o.tick(w->o.arg, w->at, 0)) return true;
    w->failed = true;
    return lq_fail(err, LQ_E_CANCELLED, "%s: stopped", w->out);
}

bool lq_disk_write(lq_writer *w, int fd, const char *path, const void *data, size_t n, size_t at, lq_err *err) {
    const char *p = data;
    while (n) {
        if (n > LQ_DISK_PIECE && !lq_disk_go_on(w, err)) return false;
        ssize_t got = pwrite(fd, p, n < LQ_DISK_PIECE ? n : LQ_DISK_PIECE, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got == 0) errno = ENOSPC;
        if (got <= 0) return lq_disk_fail(w, path, "cannot be written", err);
        p += got, n -= (size_t)got, at += (size_t)got;
    }
    return true;
}

int lq_partial_open(const char *folder, lq_err *err) {
    int dir = -1;
    if (mkdir(folder, 0777) && errno != EEXIST)
        lq_fail(err, LQ_E_IO, "%s: cannot be made: %s", folder, strerror(errno));
    else if ((dir = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) >= 0) return dir;
    else if (errno == ELOOP || errno == ENOTDIR)
        lq_fail(err, LQ_E_IO, "%s: is a link or no directory, expected one that lq made", folder);
    else lq_fail(err, LQ_E_IO, "%s: cannot be opened: %s", folder, strerror(errno));
    return -1;
}

int lq_partial_file(int dir, const char *name, const char *path, lq_err *err) {
    struct stat st;
    const int fd = openat(dir, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666), why = errno;
    if (fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_nlink <= 1) return fd;
    if (fd >= 0) close(fd);
    if (fd >= 0 || why == ELOOP)
        lq_fail(err, LQ_E_IO, "%s: is a link or no plain file, expected one that lq made", path);
    else lq_fail(err, LQ_E_IO, "%s: cannot be opened: %s", path, strerror(why));
    return -1;
}

// One of the two files; what else has its name is thrown away by a run that begins anew.
static int own_open(lq_writer *w, const char *name, const char *path, lq_err *err) {
    int fd = lq_partial_file(w->dir, name, path, err);
    if (fd < 0 && !w->o.resume && !unlinkat(w->dir, name, 0)) fd = lq_partial_file(w->dir, name, path, err);
    return fd;
}

// Some file systems have no locks; there it is left to the user to start only one.
static bool journal_lock(lq_writer *w, lq_err *err) {
    struct stat at_path, at_fd;
    if (flock(w->journal, LOCK_EX | LOCK_NB) && errno != ENOSYS && errno != EOPNOTSUPP) {
        if (errno != EWOULDBLOCK) return lq_disk_fail(w, w->journal_path, "cannot be locked", err);
        return lq_fail(err, LQ_E_IO, "%s: another process is writing here", w->folder);
    }
    // Who held the lock before may have removed the file that was opened here.
    if (!fstatat(w->dir, "journal", &at_path, AT_SYMLINK_NOFOLLOW) && !fstat(w->journal, &at_fd) &&
        at_path.st_ino == at_fd.st_ino)
        return true;
    return lq_fail(err, LQ_E_IO, "%s: another process is writing here", w->folder);
}

bool lq_disk_open(lq_writer *w, lq_err *err) {
    if ((w->dir = lq_partial_open(w->folder, err)) < 0) return false;
    if ((w->journal = own_open(w, "journal", w->journal_path, err)) < 0 || !journal_lock(w, err)) return false;
    return (w->data = own_open(w, "data", w->data_path, err)) >= 0;
}

bool lq_disk_publish(lq_writer *w, lq_err *err) {
    struct stat at_name, at_fd;
    if (fstatat(w->dir, "data", &at_name, AT_SYMLINK_NOFOLLOW) || fstat(w->data, &at_fd) ||
        at_name.st_ino != at_fd.st_ino || at_name.st_dev != at_fd.st_dev)
        return lq_fail(err, LQ_E_IO, "%s: is no longer the file that was written", w->data_path);
    int rc = w->o.overwrite ? renameat(w->dir, "data", AT_FDCWD, w->out)
                            : renameat2(w->dir, "data", AT_FDCWD, w->out, RENAME_NOREPLACE);
    if (rc && !w->o.overwrite && (errno == ENOSYS || errno == EINVAL))
        rc = linkat(w->dir, "data", AT_FDCWD, w->out, 0) ? -1 : unlinkat(w->dir, "data", 0);
    if (rc) return lq_disk_fail(w, w->out, "cannot take its name", err);
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
