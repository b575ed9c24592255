// input.c: what comes in from outside a verb's arguments: files, standard input, time, Ctrl-C and other signals. Owns
// the flag that a signal sets. Refuses a file past the caller's limit.
#include "tools/verb.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

double lq_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

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

// --- signals ---

static volatile sig_atomic_t stopped;
static const char *ends_line; // what clears a progress bar that may stand on the terminal

// From a handler: the last line, and the end.
static void last_line(const char *text) {
    ssize_t n = write(STDERR_FILENO, ends_line, strlen(ends_line));
    n = write(STDERR_FILENO, text, strlen(text));
    (void)n;
    _exit(1);
}

static void on_bus(int sig, siginfo_t *info, void *context) {
    (void)context;
    // A page of a mapped file that is not there any more. Anything else is a fault of ours: the
    // access fails again, and kills.
    if (info->si_code == BUS_ADRERR)
        last_line("lq: a file that is in use became shorter, or cannot be read any more\n");
    signal(sig, SIG_DFL);
}

void lq_input_guard(void) {
    ends_line = lq_say_cursor(stderr) ? "\r\033[K" : "";
    struct sigaction bus = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO}, ignore = {.sa_handler = SIG_IGN};
    sigemptyset(&bus.sa_mask);
    sigaction(SIGBUS, &bus, NULL);
    sigaction(SIGXFSZ, &ignore, NULL); // writing past `ulimit -f` then fails with EFBIG, which is told
}

static void on_alarm(int sig) {
    (void)sig;
    last_line("lq: stopped\n");
}

// One signal asks, the next one kills: the handler is gone after its first call. Who is too busy to hear it is ended.
static void on_signal(int sig) {
    (void)sig;
    stopped = 1;
    alarm(1);
}

void lq_input_catch(void) {
    // SA_RESTART: a write that was cut short would be an error of its stream.
    struct sigaction ask = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    struct sigaction end = {.sa_handler = on_alarm};
    sigemptyset(&ask.sa_mask);
    sigemptyset(&end.sa_mask);
    sigaction(SIGALRM, &end, NULL);
    sigaction(SIGINT, &ask, NULL);
    sigaction(SIGTERM, &ask, NULL);
}

bool lq_input_stopped(void) {
    if (stopped) alarm(0);
    return stopped;
}

void lq_input_forget(bool deaf) {
    signal(SIGINT, deaf ? SIG_IGN : SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    alarm(0);
    stopped = 0;
}

size_t lq_input_memory(void) {
    char line[128];
    size_t kb = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "RssAnon: %zu", &kb) == 1) break;
    if (f) fclose(f);
    return kb * 1024;
}
