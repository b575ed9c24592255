// ahead.c: what the next block is made of is read from the disk while one is worked on: a thread of low priority brings
// the bytes into the system's cache, in the order of the file, each once. Owns that thread. It stays no further ahead
// than the next block, and an eighth of what memory may be used; what is more is read when it is needed. Nobody waits
// for it, and no error of it counts: whoever needs the bytes reads them.
#include "quant/pass.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PIECE = 2 << 20, LATER = 10 }; // bytes that are asked for at once; how much nicer the thread is

typedef struct span { const char *p; size_t n; } span;

struct lq_ahead {
    const lq_plan *plan;
    size_t most;          // bytes of a block that are read ahead
    pthread_t thread;
    bool runs;
    pthread_mutex_t lock; // of all below
    pthread_cond_t wake;
    span *span;           // [spans] what is to be read, in order; taken by the thread
    size_t spans;
    bool over;
};

// --- what may be used ---

// A number of a file; 0: there is none.
static size_t number_in(const char *path) {
    unsigned long long n = 0;
    FILE *f = fopen(path, "re");
    if (f && fscanf(f, "%llu", &n) != 1) n = 0;
    if (f) fclose(f);
    return (size_t)n;
}

// The least limit of the control groups that this process is in, from the innermost out; SIZE_MAX: there is none.
static size_t group_limit(void) {
    char line[1024], path[1200];
    size_t least = SIZE_MAX;
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f && fgets(line, sizeof line, f)) {
        char *name = strchr(line, ':');
        char *at = name ? strchr(name + 1, ':') : NULL;
        if (!at) continue;
        *at++ = 0;
        const bool first = !strcmp(name + 1, "memory"); // of version 1
        if (!first && name[1]) continue;
        at[strcspn(at, "\n")] = 0;
        for (char *end = at; end; *end = 0) {
            snprintf(path, sizeof path, "/sys/fs/cgroup%s%s/memory.%s", first ? "/memory" : "",
                     strcmp(at, "/") ? at : "", first ? "limit_in_bytes" : "max");
            const size_t limit = number_in(path); // "max": none
            if (limit && limit < least) least = limit;
            if (!(end = strrchr(at, '/'))) break;
        }
    }
    if (f) fclose(f);
    return least;
}

// Memory that the system could give.
static size_t available(void) {
    char line[128];
    unsigned long long kb = 0;
    FILE *f = fopen("/proc/meminfo", "re");
    while (f && !kb && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %llu", &kb) != 1) kb = 0;
    if (f) fclose(f);
    return (size_t)kb * 1024;
}

static size_t most_ahead(const lq_quant_opts *o) {
    const size_t limits[] = {available(), group_limit(), o->max_ram ? o->max_ram : SIZE_MAX};
    size_t least = SIZE_MAX;
    for (int i = 0; i < 3; i++) least = limits[i] < least ? limits[i] : least;
    return least / 8;
}

// --- the thread ---

static bool taken(lq_ahead *a, span *out) {
    pthread_mutex_lock(&a->lock);
    while (!a->spans && !a->over) pthread_cond_wait(&a->wake, &a->lock);
    const bool more = !a->over;
    if (more) {
        const size_t n = a->span[0].n < PIECE ? a->span[0].n : PIECE;
        *out = (span){a->span[0].p, n};
        a->span[0].p += n, a->span[0].n -= n;
        if (!a->span[0].n) memmove(a->span, a->span + 1, --a->spans * sizeof *a->span);
    }
    pthread_mutex_unlock(&a->lock);
    return more;
}

static void *reads(void *arg) {
    lq_ahead *a = arg;
    span s;
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), LATER);
    while (taken(a, &s)) lq_ckpt_bring(a->plan->in, s.p, s.n);
    return NULL;
}

// --- what is read ---

static int by_place(const void *x, const void *y) {
    const char *a = ((const span *)x)->p, *b = ((const span *)y)->p;
    return a < b ? -1 : a > b;
}

// The bytes of a weight, where it is a tensor.
static bool span_of(const lq_plan *p, const lq_item *it, int at, span *out) {
    lq_pick pick;
    const lq_tensor *t = it->t;
    if (it->slot.role != LQ_ROLES) {
        if (!lq_item_pick(p->in, it, at, &pick, NULL) || !(t = lq_ckpt_find(p->in, pick.name))) return false;
    } else pick = (lq_pick){.stack = 0};
    const size_t each = pick.stack ? t->bytes / (size_t)pick.stack : t->bytes;
    *out = (span){(const char *)t->data + (size_t)pick.at * each, each};
    return each > 0;
}

// Those of a block, in the order of the file, each once and no more than may be; NULL: there is no memory.
static span *spans_of(const lq_ahead *a, size_t block, size_t *count) {
    const lq_plan *p = a->plan;
    size_t n = 0, all = 0, left = a->most;
    for (size_t i = p->first[block]; i < p->first[block + 1]; i++)
        all += p->items[i].slot.count ? (size_t)p->items[i].slot.count : 1;
    span *list = malloc((all + 1) * sizeof *list);
    for (size_t i = p->first[block]; list && i < p->first[block + 1]; i++)
        for (int at = 0; at < (p->items[i].slot.count ? p->items[i].slot.count : 1); at++)
            n += span_of(p, &p->items[i], at, &list[n]);
    if (n) qsort(list, n, sizeof *list, by_place);
    *count = 0;
    const char *end = NULL; // of what is in the list
    for (size_t i = 0; i < n && left; i++) {
        span s = list[i];
        const char *to = s.p + s.n;
        if (end && s.p < end) s.p = end;
        if (to <= s.p) continue;
        s.n = (size_t)(to - s.p) < left ? (size_t)(to - s.p) : left;
        left -= s.n, end = s.p + s.n;
        list[(*count)++] = s;
    }
    return list;
}

// --- the whole ---

bool lq_ahead_open(const lq_plan *p, lq_ahead **out, lq_err *err) {
    lq_ahead *a = *out = calloc(1, sizeof *a);
    if (!a) return lq_fail(err, LQ_E_MEMORY, "no memory to read ahead");
    a->plan = p;
    a->most = most_ahead(p->o);
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->wake, NULL);
    a->runs = !pthread_create(&a->thread, NULL, reads, a); // else what is needed is read when it is
    return true;
}

void lq_ahead_next(lq_ahead *a, size_t block) {
    size_t n;
    if (!a->runs || block >= a->plan->blocks) return;
    span *list = spans_of(a, block, &n);
    if (!list) return;
    pthread_mutex_lock(&a->lock);
    span *before = a->span;
    a->span = list, a->spans = n;
    pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->lock);
    free(before);
}

void lq_ahead_close(lq_ahead *a) {
    if (!a) return;
    pthread_mutex_lock(&a->lock);
    a->over = true;
    pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->lock);
    if (a->runs) pthread_join(a->thread, NULL);
    pthread_cond_destroy(&a->wake);
    pthread_mutex_destroy(&a->lock);
    free(a->span);
    free(a);
}
