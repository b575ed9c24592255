// finite.c: which weight is no number, asked once a model's output is none. Reads tensors in the order of their names,
// in pieces, and gives their pages back.
#include "runtime/model/model.h"
#include <math.h>
#include <stdio.h>

enum { PIECE = 4096 };

// The first element that is no finite number; -1: all are.
static int64_t odd_element(const lq_tensor *t, bool *nan) {
    const lq_dtype_row *type = &lq_dtypes[t->type];
    const int64_t n = type->number || t->type == LQ_E8M0 ? (int64_t)(t->bytes / (size_t)type->bytes) : 0;
    float piece[PIECE];
    for (int64_t at = 0; at < n; at += PIECE) {
        const int64_t some = n - at < PIECE ? n - at : PIECE;
        type->to_f32((const char *)t->data + at * type->bytes, piece, (size_t)some);
        for (int64_t i = 0; i < some; i++)
            if (!isfinite(piece[i])) return *nan = isnan(piece[i]), at + i;
    }
    return -1;
}

void lq_model_blame(const lq_model *m, char *line, size_t size) {
    for (size_t i = 0; i < lq_ckpt_count(m->ckpt); i++) {
        const lq_tensor *t = lq_ckpt_at(m->ckpt, i);
        bool nan;
        const int64_t at = odd_element(t, &nan), k = t->rank ? t->shape[t->rank - 1] : 1;
        lq_ckpt_drop(m->ckpt, t);
        if (at < 0) continue;
        snprintf(line, size, "%s: tensor %s: row %lld, column %lld is %s, expected a finite number",
                 lq_ckpt_path(m->ckpt), t->name, (long long)(at / k), (long long)(at % k), nan ? "NaN" : "infinite");
        return;
    }
    snprintf(line, size, "%s: the model's output is not a number, though all its weights are", lq_ckpt_path(m->ckpt));
}
