// trim.c: rows about which nobody asks go no further than where they leave their last K and V: of a prompt all but
// its last row skip nearly all of the last layer, and those behind it that have no K and V of their own. What is asked
// for has the same bits. Owns nothing.
#include "runtime/model/part.h"
#include <stdlib.h>
#include <string.h>

enum { LEAST = 16 }; // rows: fewer cost little more than reading the weights, which those that are left do anyway

bool lq_trims(int rows, int asked) { return asked * 2 <= rows && (rows >= LEAST || !asked); }

static bool keeps(const lq_desc *d, int layer) {
    const lq_layer *l = &d->layer[layer];
    return l->kv_from == layer && lq_layer_attn(l);
}

int lq_trim_layer(const lq_desc *d) {
    int last = d->layers - 1;
    while (last > 0 && !keeps(d, last)) last--;
    return last;
}

// The buffers' numbers, each for as many rows as a batch may have: of those that are left the bits of a tree (two
// each), sequence, position, place in the cache, and which they are; where all rows stand. Then of the buffers' `outs`
// and, last, where sequences begin.
enum { TREE, SEQ = 2, POS, AT, LEFT, PLACES, OUTS };
static int32_t *numbers(const lq_buffers *b, int which) { return b->trim + (size_t)which * (size_t)b->h.rows; }

bool lq_trim_open(lq_buffers *b, const lq_buffer_sizes *o, lq_err *err) {
    const size_t rows = (size_t)o->rows, seqs = (size_t)(o->slots > o->rows ? o->slots : o->rows);
    b->trim = malloc((OUTS * rows + (size_t)o->outs + seqs + 1) * sizeof *b->trim);
    return b->trim || lq_fail(err, LQ_E_MEMORY, "no memory for the indices of %d rows", o->rows);
}

const int32_t *lq_places(lq_run *c, const int32_t *rows, int n) {
    int32_t *to = numbers(c->b, OUTS);
    if (!c->place) return rows;
    for (int i = 0; i < n; i++) to[i] = c->place[rows[i]];
    return to;
}

// Rows in order about which somebody asks, and where they will stand.
static int asked(const lq_buffers *b, const lq_step *s) {
    int32_t *rows = numbers(b, LEFT), *place = numbers(b, PLACES);
    int n = 0;
    memset(place, 0, (size_t)s->batch.rows.n * sizeof *place);
    for (int i = 0; i < s->batch.outs; i++) place[s->batch.out[i]] = 1;
    for (int i = 0; i < s->hiddens; i++) place[s->hidden[i]] = 1;
    for (int r = 0; r < s->batch.rows.n; r++)
        if (place[r]) place[r] = n, rows[n++] = r;
    return n;
}

// The batch of those rows.
static lq_batch batch_of(const lq_buffers *b, const lq_batch *all, int n) {
    const lq_rows *from = &all->rows;
    const int32_t *row = numbers(b, LEFT);
    uint64_t *tree = (uint64_t *)(void *)numbers(b, TREE);
    int32_t *seq = numbers(b, SEQ), *pos = numbers(b, POS), *at = numbers(b, AT), *first = numbers(b, OUTS) + b->outs;
    lq_batch out = *all;
    out.changes = 0;
    out.rows.n = n;
    for (int i = 0; i < n; i++) {
        seq[i] = from->seq[row[i]], pos[i] = from->pos[row[i]], at[i] = from->at[row[i]];
        if (from->tree) tree[i] = from->tree[row[i]];
    }
    for (int s = 0, i = 0; s <= from->seqs; s++) {
        while (i < n && row[i] < from->first[s]) i++;
        first[s] = i;
    }
    out.rows.seq = seq, out.rows.pos = pos, out.rows.at = at, out.rows.first = first;
    if (from->tree) out.rows.tree = tree;
    return out;
}

// Those rows of a table, as many at a time as the device gets indices.
static void gather(lq_run *c, const void *table, int n, lq_mat to) {
    const size_t row = (size_t)to.cols * lq_dtype_size(to.type);
    for (int from = 0, some; from < n; from += some) {
        some = n - from < c->b->outs ? n - from : c->b->outs;
        lq_mat part = lq_view(to, some, to.cols);
        part.p = (char *)to.p + (size_t)from * row;
        lq_gather(c, table, lq_stage_out(c, numbers(c->b, LEFT) + from, some, some), part);
    }
}

static void put_back(lq_run *c, lq_mat from, void *to) {
    c->ops->copy(c->m->dev, to, from.p, (size_t)from.rows * (size_t)from.cols * lq_dtype_size(from.type));
}

// The layer at hand is not to know that there were others: rows that are left have what they had before it.
bool lq_trim(lq_run *c, const lq_step *s) {
    lq_buffers *b = c->b;
    const lq_desc *d = &c->m->desc;
    const int layer = lq_trim_layer(d), n = asked(b, s), all = c->batch.rows.n;
    const lq_part *p = &d->layer[layer].part[0];
    if (!lq_trims(all, n) || (!lq_parts[p->kind].keep && keeps(d, layer))) return true;
    const float pending = b->pending;
    const lq_mat h = lq_view(b->more, n, d->dim); // n is no more than half of its rows
    lq_mat delta = h;
    delta.p = (char *)h.p + (size_t)n * (size_t)d->dim * lq_dtype_size(h.type);
    gather(c, b->h.p, n, h);
    if (pending != 0) gather(c, b->delta.p, n, delta);
    if (d->token_dim && n) {
        c->used = 0;
        const lq_mat told = lq_take(c, n, (int64_t)d->layers * d->token_dim);
        gather(c, b->tokens.p, n, told);
        put_back(c, told, b->tokens.p);
    }
    if (keeps(d, layer)) {
        c->layer = layer;
        c->ahead = NULL;
        const lq_mat x = lq_part_reads(c, layer, 0);
        c->used = 0;
        lq_parts[p->kind].keep(c, p, c->m->layer[layer], x);
    }
    if (!n) return false;
    put_back(c, h, b->h.p);
    if (pending != 0) put_back(c, delta, b->delta.p);
    b->pending = pending;
    const lq_batch left = batch_of(b, &s->batch, n);
    lq_stage(c, &left, n, left.rows.seqs);
    c->place = numbers(b, PLACES);
    return true;
}
