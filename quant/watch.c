// watch.c: what an input is given while the text goes by: moments, sizes of columns and some of the rows. Sums are made
// on the device that has the rows; when the text has gone by, those of columns are the host's, and moments once it asks
// for them. Owns them, and what picks rows out.
#include "quant/here.h"
#include "quant/pass.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// --- memory where the text goes by ---

void *lq_by_open(lq_dev *on, lq_rooms *rooms, size_t bytes, lq_err *err) {
    void *p = NULL;
    if (on->host) return lq_room_open(rooms, bytes, err);
    return on->ops.alloc(on, bytes, &p, err) ? p : NULL;
}

void lq_by_close(lq_dev *on, lq_rooms *rooms, void *p) {
    if (p && !on->host) on->ops.free(on, p);
    else lq_room_close(rooms, p);
}

// --- columns ---

static size_t columns_bytes(int64_t k) { return (size_t)k * (2 * sizeof(float) + sizeof(double)); }

bool lq_columns_open(lq_columns *c, lq_dev *on, int64_t k, bool squares, lq_err *err) {
    const size_t n = (size_t)k, bytes = columns_bytes(k);
    void *p = NULL;
    *c = (lq_columns){.on = on, .k = k};
    if (!(c->own = calloc(1, bytes)))
        return lq_fail(err, LQ_E_MEMORY, "no memory for the sums of an input of %zu columns", n);
    if (!on->host && !on->ops.alloc(on, bytes, &p, err)) return false;
    c->there = on->host ? c->own : p;
    *(squares ? &c->square : &c->sum) = c->own;
    c->lo = (float *)((double *)c->own + n), c->hi = c->lo + n;
    return true;
}

void lq_columns_add(const lq_columns *c, const lq_mat *x) {
    double *sum = c->there;
    float *lo = (float *)(sum + c->k);
    c->on->ops.tally(c->on, &(lq_tally_args){.x = *x, .lo = lo, .hi = lo + c->k, .sum = c->sum ? sum : NULL,
                                             .square = c->square ? sum : NULL});
}

bool lq_columns_end(const lq_columns *c, lq_err *err) {
    if (c->there != c->own)
        c->on->ops.get(c->on, c->own, c->there, columns_bytes(c->k));
    return c->on->ops.sync(c->on, err);
}

void lq_columns_close(lq_columns *c) {
    if (c->there && c->there != c->own) c->on->ops.free(c->on, c->there);
    free(c->own);
    *c = (lq_columns){0};
}

// --- an input ---

bool lq_watch_open(lq_watch *w, lq_dev *on, lq_rooms *rooms, int64_t k, const lq_watched *what, lq_err *err) {
    const size_t n = (size_t)k, cells = n * n * sizeof(double);
    *w = (lq_watch){.rooms = rooms, .on = on, .k = k, .absmax = calloc(n, sizeof *w->absmax)};
    if (what->some) w->some = malloc(LQ_SOME * n * sizeof *w->some), w->step = 1;
    if (!w->absmax || (what->some && !w->some))
        return lq_fail(err, LQ_E_MEMORY, "no memory for the sums of an input of %zu columns", n);
    if (!lq_columns_open(&w->columns, on, k, false, err)) return false;
    w->abssum = w->columns.sum;
    return (!what->moments || (w->by_h = lq_by_open(on, rooms, cells, err)) != NULL) &&
           (!what->paired || (w->by_g = lq_by_open(on, rooms, cells, err)) != NULL);
}

// What was summed, with the host.
static bool bring(const lq_watch *w, double **by, double **to, lq_err *err) {
    const size_t bytes = (size_t)w->k * (size_t)w->k * sizeof **by;
    if (!*by) return true;
    if (w->on->host) *to = *by;
    else {
        if (!(*to = lq_room_open(w->rooms, bytes, err))) return false;
        w->on->ops.get(w->on, *to, *by, bytes);
        if (!w->on->ops.sync(w->on, err)) return false;
        w->on->ops.free(w->on, *by);
    }
    *by = NULL;
    return true;
}

// Where moments lie is no part of what they are: it changes behind a const.
bool lq_watch_here(const lq_watch *w, lq_err *err) {
    lq_watch *own = (lq_watch *)(uintptr_t)w;
    return bring(w, &own->by_h, &own->h, err) && bring(w, &own->by_g, &own->g, err);
}

bool lq_watch_end(lq_watch *w, lq_err *err) {
    const lq_columns *c = &w->columns;
    if (!lq_columns_end(c, err) || (w->on->host && !lq_watch_here(w, err))) return false;
    for (int64_t j = 0; j < w->k; j++) w->absmax[j] = -c->lo[j] > c->hi[j] ? -c->lo[j] : c->hi[j];
    return true;
}

void lq_watch_close(lq_watch *w) {
    lq_by_close(w->on, w->rooms, w->by_h);
    lq_by_close(w->on, w->rooms, w->by_g);
    lq_room_close(w->rooms, w->h);
    lq_room_close(w->rooms, w->g);
    lq_columns_close(&w->columns);
    free(w->absmax);
    free(w->some);
    *w = (lq_watch){0};
}

// Every step-th row; where there are too many, every third of those: samples are mostly as
// long as a power of two, which three does not divide, so that their first tokens have no more than their share.
static bool keep_row(lq_watch *w, const lq_mat *x, int row, lq_err *err) {
    const size_t k = (size_t)w->k;
    const lq_mat m = {.p = (char *)x->p + (size_t)row * x->stride * lq_dtype_size(x->type), .type = x->type, .rows = 1,
                      .cols = x->cols, .stride = x->stride};
    lq_here v;
    if (!lq_here_open(w->on, &m, &v, err)) return false;
    if (w->somes == LQ_SOME) {
        for (size_t i = 0; i < LQ_SOME; i += 3) memmove(w->some + i / 3 * k, w->some + i * k, k * sizeof *v.x);
        w->somes = LQ_SOME / 3;
        w->step *= 3;
        // The row at hand is the next of the sparser ones, as LQ_SOME is a multiple of three.
    }
    memcpy(w->some + (size_t)w->somes++ * k, v.x, k * sizeof *v.x);
    lq_here_close(&v);
    return true;
}

bool lq_watch_add(lq_watch *w, const lq_mat *x, const lq_mat *was, float *work, lq_err *err) {
    lq_dev *on = w->on;
    if (!x->rows) return true;
    if (w->by_h) on->ops.gram(on, &(lq_gram_args){.x = *x, .h = w->by_h, .work = work});
    if (w->by_g) on->ops.gram(on, &(lq_gram_args){.x = *x, .with = was ? was : x, .h = w->by_g, .work = work});
    lq_columns_add(&w->columns, x);
    for (int r = 0; w->some && r < x->rows; r++)
        if ((w->rows + r) % w->step == 0 && !keep_row(w, x, r, err)) return false;
    w->rows += x->rows;
    return true;
}

// --- rows of an expert ---

bool lq_picked_open(lq_picked *p, lq_dev *on, const lq_sight *s, int experts, lq_err *err) {
    const size_t borders = (size_t)experts + 1;
    *p = (lq_picked){.on = on, .start = malloc(borders * sizeof *p->start)};
    if (!p->start) return lq_fail(err, LQ_E_MEMORY, "no memory for %d experts", experts);
    on->ops.get(on, p->start, s->start, borders * sizeof *p->start);
    if (!on->ops.sync(on, err)) return false;
    const size_t slots = (size_t)p->start[experts], bytes = (slots ? slots : 1) * sizeof *p->row;
    if (!(p->row = malloc(bytes))) return lq_fail(err, LQ_E_MEMORY, "no memory for %zu rows", slots);
    on->ops.get(on, p->row, s->order, slots * sizeof *p->row);
    if (!on->ops.sync(on, err)) return false;
    for (size_t i = 0; i < slots; i++) p->row[i] /= s->top_k;
    void *there = NULL;
    if (!on->ops.alloc(on, bytes, &there, err)) return false;
    p->there = there;
    on->ops.put(on, there, p->row, slots * sizeof *p->row);
    return true;
}

// A gather is an embedding whose table is what is gathered from.
bool lq_picked_take(lq_picked *p, int expert, int at, const lq_mat *from, lq_mat *out, lq_err *err) {
    const int first = p->start[expert], n = p->start[expert + 1] - first;
    const size_t size = lq_dtype_size(from->type), need = (size_t)n * (size_t)from->cols * size;
    const lq_weight table = {.type = {.kind = LQ_W_PLAIN, .elem = from->type, .bits = 8 * (int)size}, .n = from->rows,
                             .k = from->cols, .q = from->p};
    if (need > p->cap[at]) {
        if (p->rows[at]) p->on->ops.free(p->on, p->rows[at]);
        p->rows[at] = NULL, p->cap[at] = 0;
        if (!p->on->ops.alloc(p->on, need, &p->rows[at], err)) return false;
        p->cap[at] = need;
    }
    *out = (lq_mat){.p = p->rows[at], .type = from->type, .rows = n, .cols = from->cols, .stride = (size_t)from->cols};
    if (n) p->on->ops.embed(p->on, &(lq_embed_args){.w = &table, .ids = p->there + first, .y = *out});
    return true;
}

void lq_picked_close(lq_picked *p) {
    for (int i = 0; i < 2; i++)
        if (p->rows[i]) p->on->ops.free(p->on, p->rows[i]);
    if (p->there) p->on->ops.free(p->on, p->there);
    free(p->start);
    free(p->row);
    *p = (lq_picked){0};
}
