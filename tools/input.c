// input.c: what comes in from outside a verb's arguments: files, standard input, and Ctrl-C. Owns the flag that a signal sets.
// Refuses a file past the caller's limit.
#include "tools/verb.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static bool read_all(FILE *f, const char *path, size_t limit, char **text, size_t *n, lq_err *err) {
    size_t cap = 1 << 16, have = 0;
    char *p = malloc(cap);
    while (p && !feof(f) && !ferror(f)) {
        have += fread(p + have, 1, cap - 1 - have, f);
        if (have > limit) {
            free(p);
            return lq_fail(err, LQ_E_LIMIT, "%s: larger than %zu bytes", path, limit);
        }
        if (have + 1 < cap) continue;
        char *more = realloc(p, cap *= 2);
        if (!more) free(p);
        p = more;
    }
    if (!p) return lq_fail(err, LQ_E_MEMORY, "%s: no memory to read it", path);
    if (ferror(f)) {
        free(p);
        return lq_fail(err, LQ_E_IO, "%s: %s", path, strerror(errno));
    }
    p[have] = '\0';
    *text = p;
    *n = have;
    return true;
}

bool lq_input_read(const char *path, size_t limit, char **text, size_t *n, lq_err *err) {
    if (!strcmp(path, "-")) return read_all(stdin, "standard input", limit, text, n, err);
    FILE *f = fopen(path, "rb");
    if (!f) return lq_fail(err, LQ_E_IO, "%s: %s", path, strerror(errno));
    bool done = read_all(f, path, limit, text, n, err);
    fclose(f);
    return done;
}

static volatile sig_atomic_t stopped;

static void on_signal(int sig) {
    (void)sig;
    stopped = 1;
}

void lq_input_catch(void) {
    // One signal asks, the next one kills: the handler is gone after its first call.
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
}

bool lq_input_stopped(void) { return stopped; }
