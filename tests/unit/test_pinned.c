// test_pinned.c: put, get and sync of kernels/cuda/pinned.c over a driver that is as late as it may be, or at times
// early: what is put is what its source was at the call, what is got what the device had there, whatever the order and
// the size; the host waits where the ring is full and nowhere else.
#include "kernels/cuda/pinned.h"
#include "tests/unit/test.h"

enum { MEMORY = 48 << 20, STEPS = 4096 };

typedef struct step { char *dst; const char *src; size_t n; } step;

struct lq_gpu {
    lq_pinned *pinned;
    char *memory, *ring;
    size_t ring_bytes;
    step step[STEPS];
    size_t given, done, mark[LQ_GPU_MARKS];
    int waits;      // where something was not done yet
    bool early, broken, foreign;
};

static uint64_t seed = 7;
static size_t below(size_t n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(seed >> 33) % n;
}

// --- the driver ---

static void run_until(lq_gpu *g, size_t end) {
    for (; g->done < end; g->done++) {
        const step *s = &g->step[g->done % STEPS];
        memcpy(s->dst, s->src, s->n);
    }
}

static void submit(lq_gpu *g, void *dst, const void *src, size_t n, const char *pinned) {
    g->foreign |= pinned < g->ring || pinned + n > g->ring + g->ring_bytes;
    g->step[g->given++ % STEPS] = (step){dst, src, n};
    if (g->early && below(4) == 0) run_until(g, g->done + below(g->given - g->done + 1));
}

lq_pinned *lq_gpu_pinned(lq_gpu *g) { return g->pinned; }

bool lq_gpu_pin(lq_gpu *g, size_t bytes, void **out, lq_err *err) {
    if (g->broken) return lq_fail(err, LQ_E_MEMORY, "nothing can be pinned");
    *out = g->ring = malloc(bytes);
    g->ring_bytes = bytes;
    return true;
}

void lq_gpu_unpin(lq_gpu *g, void *p) {
    (void)g;
    free(p);
}

void lq_gpu_up(lq_gpu *g, void *dst, const void *pinned, size_t n) { submit(g, dst, pinned, n, pinned); }
void lq_gpu_down(lq_gpu *g, void *pinned, const void *src, size_t n) { submit(g, pinned, src, n, pinned); }
void lq_gpu_mark(lq_gpu *g, int mark) { g->mark[mark] = g->given; }

void lq_gpu_reach(lq_gpu *g, int mark) {
    g->waits += g->mark[mark] > g->done;
    run_until(g, g->mark[mark]);
}

bool lq_gpu_finish(lq_gpu *g, lq_err *err) {
    if (g->broken) return lq_fail(err, LQ_E_DEVICE, "it broke");
    run_until(g, g->given);
    return true;
}

// --- what is held ---

static lq_gpu *gpu_open(lq_pool *pool) {
    lq_gpu *g = calloc(1, sizeof *g);
    lq_err err;
    g->memory = calloc(1, MEMORY);
    CHECK(lq_pinned_open(g, &g->pinned, &err), "%s", err.text);
    lq_gpu_help(g, pool);
    return g;
}

static void gpu_close(lq_gpu *g) {
    CHECK(!g->foreign, "a copy to or from memory that is not pinned");
    lq_pinned_close(g->pinned);
    free(g->memory);
    free(g);
}

// Mostly small, at times more than a piece, rarely more than the ring.
static size_t some_bytes(void) {
    const size_t kind = below(40);
    return 1 + below(kind < 30 ? 5000 : kind < 39 ? 9 << 20 : MEMORY);
}

enum { GETS = 8 };

static void test_random(lq_pool *pool, bool early) {
    char *is = calloc(1, MEMORY), *src = malloc(MEMORY);
    lq_gpu *g = gpu_open(pool);
    g->early = early;
    for (int round = 0; round < 12; round++) {
        char *got[GETS], *want[GETS];
        size_t n[GETS], total = 0;
        int gets = 0, wrong = 0;
        for (int i = 0; i < 60; i++) {
            const size_t bytes = some_bytes(), at = below(MEMORY - bytes + 1);
            if (gets < GETS && below(3) == 0) {
                got[gets] = malloc(bytes), want[gets] = malloc(bytes), n[gets] = bytes;
                memcpy(want[gets], is + at, bytes);
                lq_gpu_get(g, got[gets++], g->memory + at, bytes);
            } else {
                memset(src, (int)below(256), bytes);
                src[0] = (char)i, src[bytes - 1] = (char)round;
                memcpy(is + at, src, bytes);
                lq_gpu_put(g, g->memory + at, src, bytes);
                memset(src, 0x55, bytes);
            }
            total += bytes;
        }
        lq_err err;
        CHECK(lq_gpu_sync(g, &err), "sync");
        for (int i = 0; i < gets; i++) {
            wrong += memcmp(got[i], want[i], n[i]) != 0;
            free(got[i]);
            free(want[i]);
        }
        CHECK(!wrong && !memcmp(is, g->memory, MEMORY), "%d of %d got wrong, %zu bytes, early %d", wrong, gets, total,
              early);
    }
    gpu_close(g);
    free(is);
    free(src);
}

// As long as there is room a device may be as late as it likes; behind a sync there is room again.
static void test_waits(void) {
    static char small[4096], large[20 << 20];
    lq_gpu *g = gpu_open(NULL);
    lq_err err;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 100; i++) lq_gpu_put(g, g->memory, small, sizeof small);
        lq_gpu_put(g, g->memory, large, sizeof large);
        lq_gpu_get(g, small, g->memory, sizeof small);
        CHECK(g->waits == 0 && g->done < g->given, "round %d: the host waited %d times", round, g->waits);
        CHECK(lq_gpu_sync(g, &err), "sync");
    }
    for (int i = 0; i < 2; i++) lq_gpu_put(g, g->memory, large, sizeof large);
    CHECK(g->waits > 0 && g->done < g->given, "a ring that is full was waited for %d times, %zu of %zu are done",
          g->waits, g->done, g->given);
    CHECK(lq_gpu_sync(g, &err), "sync");
    g->waits = 0;
    for (int i = 0; i < LQ_GPU_MARKS; i++) lq_gpu_put(g, g->memory, small, 1);
    CHECK(g->waits == 0, "%d waits before all marks are used", g->waits);
    lq_gpu_put(g, g->memory, small, 1);
    CHECK(g->waits == 1 && g->done == g->given - LQ_GPU_MARKS, "%d waits where marks are used up", g->waits);
    CHECK(lq_gpu_sync(g, &err), "sync");
    g->waits = 0;
    for (size_t room = g->ring_bytes; room; room -= 4 << 20) lq_gpu_put(g, g->memory, large, 4 << 20);
    CHECK(g->waits == 0, "%d waits before the ring is full", g->waits);
    lq_gpu_put(g, g->memory, small, 1);
    CHECK(g->waits == 1 && g->done == g->given - 8, "%d waits where it is full to the last byte", g->waits);
    gpu_close(g);
}

// What a device that broke still owes is forgotten.
static void test_broken(void) {
    lq_gpu *g = gpu_open(NULL);
    lq_err err;
    char *gone = malloc(100), here[4] = "abc";
    memset(gone, 'x', 100);
    lq_gpu_get(g, gone, g->memory, 100);
    g->broken = true;
    CHECK(!lq_gpu_sync(g, &err) && !strcmp(err.text, "it broke"), "%s", err.text);
    CHECK(gone[0] == 'x' && gone[99] == 'x', "a device that broke hands something over");
    free(gone);
    g->broken = false;
    lq_gpu_get(g, here, g->memory, 3);
    CHECK(lq_gpu_sync(g, &err) && !memcmp(here, "\0\0", 3), "%.3s", here);
    lq_gpu_put(g, g->memory, here, 0);
    lq_gpu_get(g, here, g->memory, 0);
    CHECK(lq_gpu_sync(g, &err), "nothing is copied");
    gpu_close(g);
    lq_gpu none = {.broken = true};
    CHECK(!lq_pinned_open(&none, &none.pinned, &err) && !none.pinned, "opened without memory");
    lq_pinned_close(none.pinned);
}

int main(void) {
    lq_pool *pool;
    lq_err err;
    CHECK(lq_pool_open(3, &pool, &err), "%s", err.text);
    test_waits();
    test_broken();
    for (int early = 0; early < 2; early++) {
        test_random(NULL, early);
        test_random(pool, early);
    }
    lq_pool_close(pool);
    return test_end();
}
