// gpu_emu.c: the driver of gpu.h on this machine: kernels of task.h run task by task, those of simt.h on the emulated
// machine. Like a GPU it is behind the host: what is submitted waits, until someone waits for it or there is too much,
// so that who reads a result or changes a source too early sees it. Its memory can be touched by kernels and copies
// alone: host code that reads or writes a device pointer dies, and so does a copy whose other end is not pinned.
// LQ_EMU_MEMORY (bytes) makes it small, LQ_EMU_AT_ONCE one that is never behind, LQ_EMU_CAPABILITY (90) another than an
// sm_80; LQ_EMU_COUNT makes it say at its end what was recorded, how many kernels ran, how many bytes were put there
// and got from there, and which plain kernels those were. It cannot tell that a kernel reads the host's memory. Owns
// one region of memory for the whole process.
#include "kernels/cuda/pinned.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

size_t lq_task_now;
const char *lq_task_name;
// gpu_emu_run.cpp
void lq_emu_adopt(void *memory, size_t bytes);
bool lq_emu_run(const void *kernel, const void *args, const lq_gpu_grid *grid, char *why, size_t size);

enum { BORDER = 256, BLOCKS = 1 << 16, BEHIND = 4096 };
typedef struct block { char *p; size_t bytes; bool used; } block; // side by side, in order
typedef struct step {
    const void *kernel; // NULL: a copy
    const char *name;   // of one of task.h
    lq_gpu_grid grid;
    void *dst;
    const void *src;
    size_t bytes;
    char *args;
} step;
typedef struct lq_gpu_graph steps;
struct lq_gpu_graph { step *step; int n, room; };
struct lq_gpu {
    char *memory, *fresh; // from here on nobody had any: it is zero, and no page of this machine's
    size_t bytes, used;
    block *block;
    int blocks;
    steps waiting, *recording;
    int next, most;                // of those that wait; how many may
    size_t over, mark[LQ_GPU_MARKS]; // how many steps are; were submitted where a mark was set
    char *pinned;
    size_t pinned_bytes;
    lq_pinned *ring;
    int recorded, replayed, plain, fast; // plain: kernels of task.h that ran; fast: those of simt.h
    struct { const char *name; int n; } ran[64]; // each of the plain ones
    size_t put, got;               // bytes
    lq_err error;
};

// --- memory ---

static void open_memory(lq_gpu *g, bool on) { mprotect(g->memory, g->bytes, on ? PROT_READ | PROT_WRITE : PROT_NONE); }

bool lq_gpu_open(int device, lq_gpu **out, lq_gpu_info *info, lq_err *err) {
    const char *size = getenv("LQ_EMU_MEMORY"), *as = getenv("LQ_EMU_CAPABILITY");
    *out = NULL;
    if (device) return lq_fail(err, LQ_E_USAGE, "device cuda:%d: expected cuda:0", device);
    lq_gpu *g = calloc(1, sizeof *g);
    if (!g || !(g->block = calloc(BLOCKS, sizeof *g->block))) {
        free(g);
        return lq_fail(err, LQ_E_MEMORY, "device cuda: no memory");
    }
    g->most = getenv("LQ_EMU_AT_ONCE") ? 0 : BEHIND;
    g->bytes = size ? strtoull(size, NULL, 10) / 4096 * 4096 : (size_t)8 << 30;
    g->memory = mmap(NULL, g->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (g->memory == MAP_FAILED) {
        free(g->block);
        free(g);
        return lq_fail(err, LQ_E_MEMORY, "device cuda: no memory");
    }
    g->block[g->blocks++] = (block){g->memory, g->bytes, false};
    g->fresh = g->memory;
    lq_emu_adopt(g->memory, g->bytes);
    *info = (lq_gpu_info){.name = "emulated", .capability = as ? atoi(as) : 80, .processors = 1, .memory = g->bytes};
    if (!lq_pinned_open(g, &g->ring, err)) {
        lq_gpu_close(g);
        return false;
    }
    *out = g;
    return true;
}

static void run_until(lq_gpu *g, size_t end);
static void run_all(lq_gpu *g) { run_until(g, SIZE_MAX); }

void lq_gpu_close(lq_gpu *g) {
    run_all(g);
    if (getenv("LQ_EMU_COUNT"))
        fprintf(stderr, "gpu_emu: %d recorded, %d replayed, %d plain, %d fast, %zu put, %zu got", g->recorded,
                g->replayed, g->plain, g->fast, g->put, g->got);
    for (int i = 0; getenv("LQ_EMU_COUNT") && g->ran[i].name; i++)
        fprintf(stderr, "%s %s %d", i ? "," : ":", g->ran[i].name, g->ran[i].n);
    if (getenv("LQ_EMU_COUNT")) fputc('\n', stderr);
    lq_pinned_close(g->ring);
    munmap(g->memory, g->bytes);
    free(g->waiting.step);
    free(g->block);
    free(g);
}

bool lq_gpu_alloc(lq_gpu *g, size_t bytes, void **out, lq_err *err) {
    const size_t want = bytes < g->bytes ? (bytes + BORDER) / BORDER * BORDER : SIZE_MAX;
    *out = NULL;
    for (int i = 0; i < g->blocks; i++) {
        block *b = g->block + i;
        if (b->used || b->bytes < want || g->blocks == BLOCKS) continue;
        if (b->bytes > want) {
            memmove(b + 2, b + 1, (size_t)(g->blocks++ - i - 1) * sizeof *b);
            b[1] = (block){b->p + want, b->bytes - want, false};
        }
        *b = (block){b->p, want, true};
        g->used += want;
        if (b->p < g->fresh) {
            open_memory(g, true);
            memset(b->p, 0, (size_t)(g->fresh - b->p) < want ? (size_t)(g->fresh - b->p) : want);
            open_memory(g, false);
        }
        if (b->p + want > g->fresh) g->fresh = b->p + want;
        *out = b->p;
        return true;
    }
    return lq_fail(err, LQ_E_MEMORY, "device cuda: %zu bytes: out of memory", bytes);
}

void lq_gpu_free(lq_gpu *g, void *p) {
    int i = 0;
    if (!p) return;
    run_all(g);
    while (i < g->blocks && g->block[i].p != p) i++;
    if (i == g->blocks || !g->block[i].used) {
        fprintf(stderr, "gpu_emu: %p was given back, and it is nobody's\n", p);
        abort();
    }
    g->block[i].used = false;
    g->used -= g->block[i].bytes;
    for (int j = i > 0 ? i - 1 : 0; j <= i && j + 1 < g->blocks;) {
        if (g->block[j].used || g->block[j + 1].used) {
            j++;
            continue;
        }
        g->block[j].bytes += g->block[j + 1].bytes;
        memmove(g->block + j + 1, g->block + j + 2, (size_t)(--g->blocks - j - 1) * sizeof *g->block);
        i--;
    }
}

size_t lq_gpu_room(lq_gpu *g) { return g->bytes - g->used; }

// --- work ---

static void count(lq_gpu *g, const char *name) {
    int i = 0;
    while (g->ran[i].name && strcmp(g->ran[i].name, name) != 0) i++;
    g->ran[i].name = name;
    g->ran[i].n++;
    g->plain++;
}

static void run(lq_gpu *g, const step *s) {
    char why[200];
    if (s->name) count(g, s->name);
    if (!s->kernel) memmove(s->dst, s->src, s->bytes);
    else if (s->grid.simt) {
        g->fast++;
        if (!lq_emu_run(s->kernel, s->args, &s->grid, why, sizeof why) && !g->error.code)
            lq_fail(&g->error, LQ_E_DEVICE, "device cuda: a kernel: %s", why);
    } else for (lq_task_now = 0; lq_task_now < (size_t)s->grid.blocks * s->grid.threads; lq_task_now++)
        ((void (*)(const void *))(uintptr_t)s->kernel)(s->args);
}

// No further than it must.
static void run_until(lq_gpu *g, size_t end) {
    if (g->next == g->waiting.n) return;
    open_memory(g, true);
    for (; g->next < g->waiting.n && g->over < end; g->over++) {
        const step *s = g->waiting.step + g->next++;
        run(g, s);
        free(s->args);
    }
    open_memory(g, false);
    if (g->next == g->waiting.n) g->next = g->waiting.n = 0;
}

static void append(steps *to, step s) {
    if (to->n == to->room) {
        to->room = to->room ? 2 * to->room : 64;
        to->step = realloc(to->step, (size_t)to->room * sizeof *to->step);
    }
    s.args = s.kernel ? memcpy(malloc(s.bytes), s.args, s.bytes) : NULL;
    to->step[to->n++] = s;
}

static void wait_for(lq_gpu *g, step s) {
    append(&g->waiting, s);
    if (g->waiting.n - g->next > g->most) run_all(g);
}

static void submit(lq_gpu *g, step s) {
    if (g->recording) append(g->recording, s);
    else wait_for(g, s);
}

static void forbid(lq_gpu *g, const char *what) {
    if (g->recording && !g->error.code) lq_fail(&g->error, LQ_E_DEVICE, "device cuda: %s in a recording", what);
}

void lq_gpu_copy(lq_gpu *g, void *dst, const void *src, size_t n) {
    submit(g, (step){.dst = dst, .src = src, .bytes = n});
}

// --- what pinned.c stands on ---

lq_pinned *lq_gpu_pinned(lq_gpu *g) { return g->ring; }

bool lq_gpu_pin(lq_gpu *g, size_t bytes, void **out, lq_err *err) {
    *out = g->pinned = malloc(bytes);
    g->pinned_bytes = bytes;
    return *out || lq_fail(err, LQ_E_MEMORY, "device cuda: %zu bytes of the host's memory, pinned", bytes);
}

void lq_gpu_unpin(lq_gpu *g, void *p) {
    (void)g;
    free(p);
}

static void cross(lq_gpu *g, const char *pinned, step s, const char *what) {
    forbid(g, what);
    if (pinned < g->pinned || pinned + s.bytes > g->pinned + g->pinned_bytes) {
        fprintf(stderr, "gpu_emu: %s whose end on the host is not pinned\n", what);
        abort();
    }
    wait_for(g, s);
}

void lq_gpu_up(lq_gpu *g, void *dst, const void *pinned, size_t n) {
    g->put += n;
    cross(g, pinned, (step){.dst = dst, .src = pinned, .bytes = n}, "a copy to the device");
}

void lq_gpu_down(lq_gpu *g, void *pinned, const void *src, size_t n) {
    g->got += n;
    cross(g, pinned, (step){.dst = pinned, .src = src, .bytes = n}, "a copy from the device");
}

void lq_gpu_mark(lq_gpu *g, int mark) { g->mark[mark] = g->over + (size_t)(g->waiting.n - g->next); }

void lq_gpu_reach(lq_gpu *g, int mark) { run_until(g, g->mark[mark]); }

bool lq_gpu_finish(lq_gpu *g, lq_err *err) {
    forbid(g, "waiting");
    run_all(g);
    if (g->error.code && err) *err = g->error;
    return !g->error.code;
}

// --- kernels ---

bool lq_gpu_prepare(lq_gpu *g, const void *kernel, size_t shared, lq_err *err) {
    (void)g, (void)kernel, (void)shared, (void)err;
    return true;
}

void lq_gpu_launch(lq_gpu *g, const void *kernel, const void *args, size_t bytes, lq_gpu_grid grid) {
    submit(g, (step){.kernel = kernel, .name = grid.simt ? NULL : lq_task_name, .args = (char *)(uintptr_t)args,
                     .bytes = bytes, .grid = grid});
}

double lq_gpu_seconds(lq_gpu *g, void (*work)(void *arg), void *arg) {
    struct timespec from, to;
    run_all(g);
    clock_gettime(CLOCK_MONOTONIC, &from);
    work(arg);
    run_all(g);
    clock_gettime(CLOCK_MONOTONIC, &to);
    return (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
}

// --- recordings ---

bool lq_gpu_record(lq_gpu *g, lq_err *err) {
    g->recording = calloc(1, sizeof *g->recording);
    return g->recording || lq_fail(err, LQ_E_MEMORY, "device cuda: no memory for a graph");
}

bool lq_gpu_recorded(lq_gpu *g, lq_gpu_graph **out, lq_err *err) {
    *out = g->recording;
    g->recording = NULL;
    g->recorded++;
    if (!g->error.code) return true;
    lq_gpu_forget(g, *out);
    *out = NULL;
    if (err) *err = g->error;
    return false;
}

void lq_gpu_replay(lq_gpu *g, lq_gpu_graph *graph) {
    g->replayed++;
    for (int i = 0; i < graph->n; i++) wait_for(g, graph->step[i]);
}

void lq_gpu_forget(lq_gpu *g, lq_gpu_graph *graph) {
    (void)g;
    for (int i = 0; graph && i < graph->n; i++) free(graph->step[i].args);
    if (graph) free(graph->step);
    free(graph);
}
