// test.h: what a unit test needs. A test is a function; CHECK counts and goes on; main ends with `return test_end();`.
#ifndef LQ_TEST_H
#define LQ_TEST_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int test_passed, test_failed, test_skipped;
#define CHECK(cond, ...)                                                                    \
    do {                                                                                    \
        if (cond) test_passed++;                                                            \
        else {                                                                              \
            test_failed++;                                                                  \
            printf("%s:%d: FAILED: %s: ", __FILE__, __LINE__, #cond);                       \
            printf(__VA_ARGS__);                                                            \
            printf("\n");                                                                   \
        }                                                                                   \
    } while (0)
#define SKIP(...) do { test_skipped++; printf("SKIPPED: "); printf(__VA_ARGS__); printf("\n"); } while (0)

// A file of this text in dir, with the folders on its way.
static inline void test_put(const char *dir, const char *name, const char *text) {
    char path[300];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    for (char *p = path + strlen(dir) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(path, 0700);
        *p = '/';
    }
    FILE *f = fopen(path, "w");
    CHECK(f && fputs(text, f) >= 0, "%s", path);
    if (f) fclose(f);
}

static inline int test_end(void) {
    printf("%d passed, %d failed, %d skipped\n", test_passed, test_failed, test_skipped);
    return test_failed != 0;
}
#endif
