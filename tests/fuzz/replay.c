// replay.c: runs a fuzzer's function over files and folders given as arguments: a corpus as a test, without libFuzzer.
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static size_t runs, failed;

static void file_run(const char *path) {
    struct stat st;
    FILE *f = fopen(path, "rb");
    uint8_t *p = f && !fstat(fileno(f), &st) ? malloc((size_t)st.st_size + 1) : NULL;
    if (p) {
        LLVMFuzzerTestOneInput(p, fread(p, 1, (size_t)st.st_size, f));
        runs++;
    } else {
        printf("%s: cannot be read\n", path);
        failed++;
    }
    free(p);
    if (f) fclose(f);
}

static void path_run(const char *path) {
    DIR *d = opendir(path);
    if (!d && access(path, F_OK)) return; // a folder that nobody has filled
    if (!d) {
        file_run(path);
        return;
    }
    for (struct dirent *e; (e = readdir(d));) {
        char full[4096];
        snprintf(full, sizeof full, "%s/%s", path, e->d_name);
        if (e->d_type == DT_REG) file_run(full);
    }
    closedir(d);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) path_run(argv[i]);
    if (!runs) printf("SKIPPED: no inputs; tests/fuzz/make_corpus.py makes some\n");
    printf("%zu passed, %zu failed, %d skipped\n", runs, failed, !runs);
    return failed != 0;
}
