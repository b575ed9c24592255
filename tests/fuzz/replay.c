// replay.c: runs a fuzz target over the files of its corpus without libFuzzer: each as it is, then cut short and with bytes changed in
// ways that depend on its content alone, so that every run does the same. A finding is a crash or a sanitizer's report.
//   fuzz_<target> FILE-OR-FOLDER... [-m MUTATIONS per file, default 64]
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int passed, skipped;
static long mutations = 64;

// A copy of exactly this size: reading past its end is seen.
static void try_bytes(const uint8_t *data, size_t n) {
    uint8_t *p = malloc(n ? n : 1);
    if (!p) return;
    if (n) memcpy(p, data, n);
    LLVMFuzzerTestOneInput(p, n);
    free(p);
}

static uint64_t draw(uint64_t *s) { // xorshift64*
    *s ^= *s >> 12, *s ^= *s << 25, *s ^= *s >> 27;
    return *s * 0x2545f4914f6cdd1dull;
}

static void try_mutations(const uint8_t *data, size_t n) {
    uint64_t seed = 0x9e3779b97f4a7c15ull;
    for (size_t i = 0; i < n; i++) seed = (seed ^ data[i]) * 0x100000001b3ull;
    seed |= 1;
    uint8_t *p = malloc(n ? n : 1);
    for (long m = 0; p && n && m < mutations; m++) {
        size_t len = m % 4 ? n : draw(&seed) % n;
        memcpy(p, data, n);
        for (uint64_t k = draw(&seed) % 4 + (m % 4 != 0); k; k--) {
            size_t at = draw(&seed) % n;
            uint64_t how = draw(&seed);
            p[at] = how & 1 ? (uint8_t)(how >> 8) : p[at] ^ (uint8_t)(1u << (how >> 8 & 7));
        }
        try_bytes(p, len);
    }
    free(p);
}

static void try_file(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) return;
    size_t cap = 1 << 16, n = 0, got;
    uint8_t *p = malloc(cap);
    while (p && (got = fread(p + n, 1, cap - n, f)) > 0)
        if ((n += got) == cap) {
            uint8_t *more = realloc(p, cap *= 2);
            if (!more) free(p);
            p = more;
        }
    fclose(f);
    if (!p) return;
    try_bytes(p, n);
    try_mutations(p, n);
    free(p);
    passed++;
}

static void try_path(const char *path) {
    struct stat st;
    if (stat(path, &st)) return;
    if (!S_ISDIR(st.st_mode)) {
        try_file(path);
        return;
    }
    struct dirent **list;
    int n = scandir(path, &list, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char file[4096];
        if (list[i]->d_name[0] != '.' && snprintf(file, sizeof file, "%s/%s", path, list[i]->d_name) < (int)sizeof file && !stat(file, &st) && S_ISREG(st.st_mode))
            try_file(file);
        free(list[i]);
    }
    if (n >= 0) free(list);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "-m") && i + 1 < argc) mutations = atol(argv[++i]);
        else try_path(argv[i]);
    }
    if (!passed) {
        skipped++;
        printf("SKIPPED: no file to replay\n");
    }
    printf("%d passed, 0 failed, %d skipped\n", passed, skipped);
    return 0;
}
