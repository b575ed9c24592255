// room.c: large memory of a run that calibrates: the process's own as long as there is some left of what it may use,
// and behind that a file without a name beside the output, whose pages the system takes to the disk when it wants
// theirs, or at once when they are said to rest. Owns nothing but the count of what is left.
#include "quant/stream.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HEAD = 64 }; // before the bytes, which begin on 64

typedef struct head {
    size_t bytes;  // mapped
    bool own;
} head;

// What is said of a disk that has no room is said once the file has none of it either.
static int file_open(const char *folder, size_t bytes, lq_err *err) {
    char path[4096];
    snprintf(path, sizeof path, "%s/scratch", folder);
    const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0) unlink(path);
    if (fd >= 0 && posix_fallocate(fd, 0, (off_t)bytes) == 0) return fd;
    if (fd >= 0) close(fd);
    lq_fail(err, LQ_E_IO, "%s: no room on the disk for %.1f MB of calibration", path, (double)bytes / 1e6);
    return -1;
}

void *lq_room_open(lq_rooms *r, size_t bytes, lq_err *err) {
    head *h = MAP_FAILED;
    if (!lq_add_size(bytes, HEAD, &bytes)) {
        lq_fail(err, LQ_E_LIMIT, "calibration would take more than can be counted");
        return NULL;
    }
    // Its own is all written: one call maps it, where a sum's first reading and then writing would fault twice a page.
    const bool own = bytes <= r->left;
    const int how = own ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE : MAP_SHARED;
    const int fd = own ? -1 : file_open(r->folder, bytes, err);
    if (own || fd >= 0)
        h = mmap(NULL, bytes, PROT_READ | PROT_WRITE, how, fd, 0);
    if (fd >= 0) close(fd);
    if (h == MAP_FAILED) {
        if (own || fd >= 0) lq_fail(err, LQ_E_MEMORY, "no memory for %zu bytes of calibration", bytes);
        return NULL;
    }
    *h = (head){bytes, own};
    if (own) r->left -= bytes;
    return (char *)h + HEAD;
}

void lq_room_rest(void *p, size_t from, size_t bytes) {
    head *h = (void *)((char *)p - HEAD);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), first = (HEAD + from) / page * page;
    if (!h->own) madvise((char *)h + first, HEAD + from + bytes - first, MADV_DONTNEED);
}

void lq_room_close(lq_rooms *r, void *p) {
    if (!p) return;
    head *h = (void *)((char *)p - HEAD);
    if (h->own) r->left += h->bytes;
    munmap(h, h->bytes);
}
