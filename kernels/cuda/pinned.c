// pinned.c: what goes between the host and a device, through a ring of pinned memory: a source has been read when put
// returns, though the device may be far behind, and what is got is handed over by sync. The host waits for the device
// where the ring is full, and for nothing else. Large copies go in pieces, so that the device copies one while the
// host's threads fill or empty the next. Owns the ring.
#include "kernels/cuda/pinned.h"
#include <stdlib.h>
#include <string.h>

enum { RING = 32 << 20, PIECE = 4 << 20, ALIGNED = 256, STRIP = 256 << 10 };

typedef struct piece {
    size_t from, end; // in the ring
    void *to;         // [host] where what is got will go; NULL: it is put
    size_t bytes;
} piece;

struct lq_pinned {
    lq_gpu *gpu;
    lq_pool *pool; // that helps with large copies; NULL: none
    char *ring;
    piece piece[LQ_GPU_MARKS]; // a mark for each
    unsigned first, next;      // first .. next - 1 are under way, modulo LQ_GPU_MARKS
};

bool lq_pinned_open(lq_gpu *g, lq_pinned **out, lq_err *err) {
    void *ring;
    lq_pinned *p = calloc(1, sizeof *p);
    *out = NULL;
    if (!p) return lq_fail(err, LQ_E_MEMORY, "device cuda: no memory");
    if (!lq_gpu_pin(g, RING, &ring, err)) {
        free(p);
        return false;
    }
    p->gpu = g;
    p->ring = ring;
    *out = p;
    return true;
}

void lq_pinned_close(lq_pinned *p) {
    if (!p) return;
    lq_gpu_unpin(p->gpu, p->ring);
    free(p);
}

void lq_gpu_help(lq_gpu *g, lq_pool *pool) { lq_gpu_pinned(g)->pool = pool; }

// --- copies on the host ---

typedef struct strips { char *to; const char *from; size_t bytes; } strips;

static void strip_task(void *arg, int task, int worker) {
    const strips *s = arg;
    const size_t at = (size_t)task * STRIP, left = s->bytes - at;
    (void)worker;
    memcpy(s->to + at, s->from + at, left < STRIP ? left : STRIP);
}

static void copy(const lq_pinned *p, void *to, const void *from, size_t bytes) {
    strips s = {to, from, bytes};
    if (p->pool && bytes > STRIP) lq_pool_run(p->pool, strip_task, &s, (int)((bytes + STRIP - 1) / STRIP));
    else memcpy(to, from, bytes);
}

// --- the ring ---

static piece *piece_at(lq_pinned *p, unsigned i) { return &p->piece[i % LQ_GPU_MARKS]; }

// The oldest piece is waited for, handed over and free.
static void retire(lq_pinned *p) {
    const piece *o = piece_at(p, p->first);
    lq_gpu_reach(p->gpu, (int)(p->first % LQ_GPU_MARKS));
    if (o->to) copy(p, o->to, p->ring + o->from, o->bytes);
    p->first++;
}

// Where so many bytes are free: behind the newest piece, or from the beginning on.
static bool free_at(lq_pinned *p, size_t bytes, size_t *at) {
    if (p->first == p->next) return *at = 0, true;
    const size_t oldest = piece_at(p, p->first)->from, head = piece_at(p, p->next - 1)->end;
    const bool wrapped = head <= oldest;
    if (p->next - p->first == LQ_GPU_MARKS) return false;
    if ((wrapped ? oldest : RING) - head >= bytes) return *at = head, true;
    return *at = 0, !wrapped && oldest >= bytes;
}

// The next piece, whose copy is to be submitted and then marked.
static piece *take(lq_pinned *p, size_t bytes, void *to) {
    const size_t whole = (bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
    size_t at;
    while (!free_at(p, whole, &at)) retire(p);
    piece *n = piece_at(p, p->next++);
    *n = (piece){at, at + whole, to, bytes};
    return n;
}

static void submitted(const lq_pinned *p) { lq_gpu_mark(p->gpu, (int)((p->next - 1) % LQ_GPU_MARKS)); }

// --- gpu.h ---

void lq_gpu_put(lq_gpu *g, void *dst, const void *src, size_t n) {
    lq_pinned *p = lq_gpu_pinned(g);
    for (size_t at = 0, some; at < n; at += some) {
        some = n - at < PIECE ? n - at : PIECE;
        const piece *o = take(p, some, NULL);
        copy(p, p->ring + o->from, (const char *)src + at, some);
        lq_gpu_up(g, (char *)dst + at, p->ring + o->from, some);
        submitted(p);
    }
}

void lq_gpu_get(lq_gpu *g, void *dst, const void *src, size_t n) {
    lq_pinned *p = lq_gpu_pinned(g);
    for (size_t at = 0, some; at < n; at += some) {
        some = n - at < PIECE ? n - at : PIECE;
        const piece *o = take(p, some, (char *)dst + at);
        lq_gpu_down(g, p->ring + o->from, (const char *)src + at, some);
        submitted(p);
    }
}

// Nothing is handed over of a device that failed: who asked may be gone by now.
bool lq_gpu_sync(lq_gpu *g, lq_err *err) {
    lq_pinned *p = lq_gpu_pinned(g);
    const bool done = lq_gpu_finish(g, err);
    while (done && p->first != p->next) retire(p);
    p->first = p->next;
    return done;
}
