// here.c: rows that lie on a device, as numbers that the host can look at, and back. Owns the copies.
#include "quant/here.h"
#include <stdlib.h>

static size_t row_bytes(const lq_mat *m) { return (size_t)m->cols * lq_dtype_size(m->type); }

static bool one_piece(const lq_mat *m) { return m->stride == (size_t)m->cols || m->rows < 2; }

// All rows, one behind the other, from the device or (put) to it.
static void move(lq_dev *dev, const lq_mat *m, char *host, bool put) {
    const size_t step = m->stride * lq_dtype_size(m->type), row = row_bytes(m);
    const size_t pieces = one_piece(m) ? 1 : (size_t)m->rows, bytes = one_piece(m) ? row * (size_t)m->rows : row;
    for (size_t i = 0; i < pieces; i++)
        if (put) dev->ops.put(dev, (char *)m->p + i * step, host + i * row, bytes);
        else dev->ops.get(dev, host + i * row, (const char *)m->p + i * step, bytes);
}

bool lq_here_open(lq_dev *dev, const lq_mat *m, lq_here *h, lq_err *err) {
    const size_t cells = (size_t)m->rows * (size_t)m->cols;
    const bool host = !dev || dev->host;
    *h = (lq_here){0};
    if (host && m->type == LQ_F32 && one_piece(m)) {
        h->x = m->p;
        return !dev || dev->ops.sync(dev, err);
    }
    char *raw = malloc(cells ? cells * lq_dtype_size(m->type) : 1);
    h->x = h->own = malloc(cells ? cells * sizeof *h->own : 1);
    bool done = (raw && h->own) || lq_fail(err, LQ_E_MEMORY, "no memory for %d rows of %d", m->rows, m->cols);
    if (done && dev) move(dev, m, raw, false);
    done = done && (!dev || dev->ops.sync(dev, err));
    if (done) lq_dtypes[m->type].to_f32(dev ? raw : m->p, h->own, cells);
    free(raw);
    if (!done) lq_here_close(h);
    return done;
}

void lq_here_close(lq_here *h) {
    free(h->own);
    *h = (lq_here){0};
}

bool lq_here_put(lq_dev *dev, const lq_here *h, const lq_mat *m, lq_err *err) {
    const size_t cells = (size_t)m->rows * (size_t)m->cols;
    char *raw = malloc(cells ? cells * lq_dtype_size(m->type) : 1);
    if (!raw) return lq_fail(err, LQ_E_MEMORY, "no memory for %d rows of %d", m->rows, m->cols);
    lq_dtypes[m->type].from_f32(h->x, raw, cells);
    move(dev, m, raw, true);
    free(raw);
    return true;
}
