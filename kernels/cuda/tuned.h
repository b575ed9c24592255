// tuned.h: how many tokens a block takes, and whether cuts of k are made side by side, where that was measured on a GPU
// (tests/gpu/check.sh tune); for the host. Neither decides a bit. Shapes that are far from all that were measured, and
// products of experts, go by the rules of w4s_pick.h and w8a8_pick.h.
#ifndef LQ_TUNED_H
#define LQ_TUNED_H
#include <stddef.h>

enum { LQ_TUNED_W4S, LQ_TUNED_W8A8 };
typedef struct lq_tuned {
    int capability;              // 90: sm_90
    int family, kind, bits, group; // whose kernels
    int n, k;                    // the shape
    int above, upto;             // numbers of tokens, the latter included
    int tokens;                  // of a block
    int side;                    // 1: cuts of k are made side by side where there is room; of W8A8 0
} lq_tuned;

static const lq_tuned lq_tuned_rows[] = {
#include "kernels/cuda/tuned_rows.h"
    {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}};
enum { LQ_TUNED_COUNT = sizeof lq_tuned_rows / sizeof *lq_tuned_rows };

// How many times the larger of two is the smaller.
static inline double lq_tuned_times(int a, int b) { return a > b ? (double)a / b : (double)b / a; }

// The row for so many tokens of the shape nearest to n x k, at most twice as large or half; NULL: there is none. `like`
// has capability and kernels.
static inline const lq_tuned *lq_tuned_find(const lq_tuned *rows, int count, const lq_tuned *like, int n, int k,
                                            int m) {
    const lq_tuned *found = NULL;
    double nearest = 2;
    for (const lq_tuned *r = rows; r < rows + count; r++) {
        if (r->capability != like->capability || r->family != like->family || r->kind != like->kind ||
            r->bits != like->bits || r->group != like->group || !r->n) continue;
        const double times = lq_tuned_times(n, r->n) * lq_tuned_times(k, r->k);
        if (times > nearest) continue;
        if (times < nearest) found = NULL;
        nearest = times;
        if (m > r->above && m <= r->upto) found = r;
    }
    return found;
}
#endif
