// kind.c: what a file is that is not what its name says, by its first bytes; why one cannot be opened. Owns nothing.
#include "formats/kind.h"
#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

static bool begins(const char *p, size_t n, const char *with, size_t len) {
    return n >= len && !strncasecmp(p, with, len);
}

const char *lq_kind_of_side(const void *bytes, size_t n) {
    static const struct { const char *magic; size_t n; const char *is; } rows[] = {
        {"version https://git-lfs", 23, "a git-LFS pointer: the file itself was not fetched"},
        {"<!doctype html", 14, "an HTML page"},
        {"<html", 5, "an HTML page"},
        {"<?xml", 5, "an XML page"},
        {"PK\3\4", 4, "a zip archive, as torch.save writes it"},
        {"GGUF", 4, "a GGUF file"},
        {"\x1f\x8b", 2, "compressed by gzip"},
        {"\x28\xb5\x2f\xfd", 4, "compressed by zstd"},
        {"\xfd" "7zXZ", 5, "compressed by xz"},
        {"\x89HDF", 4, "an HDF5 file"},
        {"\xff\xfe", 2, "text in UTF-16"},
        {"\xfe\xff", 2, "text in UTF-16"},
    };
    const char *p = bytes;
    size_t zeros = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (begins(p, n, rows[i].magic, rows[i].n)) return rows[i].is;
    while (zeros < n && zeros < 64 && !p[zeros]) zeros++;
    return zeros && zeros == (n < 64 ? n : 64) ? "zeros: what should stand there was never written" : NULL;
}

const char *lq_kind_of(const void *bytes, size_t n) {
    const unsigned char *p = bytes;
    if (n > 2 && p[0] == 0x80 && p[1] >= 2 && p[1] <= 5) return "a pickle, as torch.save wrote it";
    if (n > 2 && p[0] == 0xef && p[1] == 0xbb && p[2] == 0xbf) return "text with a byte order mark";
    return lq_kind_of_side(bytes, n);
}

bool lq_path_absent(const char *path) {
    struct stat st;
    return lstat(path, &st) && (errno == ENOENT || errno == ENOTDIR);
}

const char *lq_path_why(const char *path, int why) {
    return why == ENOENT && !lq_path_absent(path) ? "a link to a file that is not there" : strerror(why);
}
