// thin_vec.h: coded weights of layout any x few rows of activations, each number multiplied as soon as it is made, for
// the ISA this is compiled for (behind rows_vec.h): the walk over tiles, and 8-bit floats. Owns nothing.
//
// The order of sums is dot_vec.h's: lane i of a cut adds k = i mod VEC, lanes VEC / 2 to 1 apart are added, cuts in
// order.
#ifndef LQ_THIN_VEC_H
#define LQ_THIN_VEC_H

#define by_rows NAME(by_rows)
#define walk NAME(walk)
#define tiles NAME(tiles)
#define no_scales NAME(no_scales)
#define cells_scaled NAME(cells_scaled)

enum { TILE = LQ_ANY_ROWS };

typedef struct thin { // one cut of one tile
    const lq_weight *w;
    int64_t n, k;            // its first row and column
    int len, rows;           // columns; rows that there are
    bool more, bare;         // y has the sums of the cuts before; scales are 1, whatever the type says
    const float *x[LQ_THIN_ROWS];
    span of;
    cells *c;                // [TILE]; of E4M3 scales times 2^8
    const float *z[TILE];
} thin;

// Rows behind the last one repeat it and are not stored.
INLINE int64_t row_of(const thin *p, int r) { return p->n + (r < p->rows ? r : p->rows - 1); }

// Rows first .. first + R.
INLINE void sums_store(const thin *p, vf s[TILE][LQ_THIN_ROWS], int first, float *y, size_t ldy, const int R,
                       const int M) {
    EACH (int m = 0; m < M; m++) EACH (int r = 0; r < R; r += 4)
        store4(y + (size_t)m * ldy + (size_t)(first + r), p->rows - first - r,
               fold4(s[r][m], s[r + 1][m], s[r + 2][m], s[r + 3][m]), p->more);
}

INLINE vf x_some(const float *x, int n) { return vf_load_m(vm_first(n), x); }

// --- 8-bit floats ---

enum { PER = CODES / VEC }; // vectors of what is made at once

// As they are (E4M3: 2^-8 of them).
INLINE void fp8_wide(const uint8_t *q, vf v[PER], const lq_dtype e) {
    const __m256i h = fp8_halves(q, e);
#if defined(__AVX512F__)
    v[0] = _mm512_cvtph_ps(h);
#else
    v[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(h));
    v[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1));
#endif
}

// By lq_rows: what halves and scales times 2^8 cannot say.
static void by_rows(const thin *p, float *y, size_t ldy, const int M) {
    _Alignas(64) float v[TILE * LQ_K_CUT + VEC] = {0};
    vf s[TILE][LQ_THIN_ROWS];
    lq_weight w = *p->w;
    if (p->bare) w.type.kind = LQ_W_PLAIN;
    NAME(lq_rows_f32_f32_fp8any)(&w, p->n / TILE, p->k, p->k + p->len, v, (size_t)p->len);
    for (int r = 0; r < TILE; r++)
        for (int m = 0; m < M; m++) {
            s[r][m] = vf_zero();
            for (int k = 0; k < p->len; k += VEC)
                s[r][m] = vf_fma(vf_only(vm_first(p->len - k), vf_load(v + r * p->len + k)),
                                 x_some(p->x[m] + k, p->len - k), s[r][m]);
        }
    sums_store(p, s, 0, y, ldy, TILE, M);
}

INLINE bool fp8_odd(const thin *p) {
    bool odd = false;
    __m256i most = _mm256_setzero_si256();
    for (int r = 0; r < p->rows; r++) {
        most = most_of(most, (const uint8_t *)p->w->q + (p->n + r) * p->w->k + p->k, p->len);
        for (int g = 0; p->w->type.scale != LQ_F16 && g < p->of.n; g++) odd |= !(fabsf(p->c[r].s[g]) < 0x1p127f);
    }
    return odd || any_7f(most);
}

INLINE void fp8_some(const thin *p, int first, float *y, size_t ldy, const lq_dtype e, const int R, const int M) {
    const uint8_t *q[TILE];
    vf s[TILE][LQ_THIN_ROWS], x[PER][LQ_THIN_ROWS], v[PER];
    EACH (int r = 0; r < R; r++) q[r] = (const uint8_t *)p->w->q + row_of(p, first + r) * p->w->k + p->k;
    EACH (int r = 0; r < R; r++) EACH (int m = 0; m < M; m++) s[r][m] = vf_zero();
    int64_t end = (p->of.first + 1) * p->of.group - p->k;
    const char *next = (const char *)p->w->q + (p->n + first + TILE) * p->w->k + R * p->k; // rows of the next tile
    for (int k = 0, g = 0; k < p->len; g++, end += p->of.group) {
        vf by[TILE];
        EACH (int r = 0; r < R; r++) by[r] = vf_set(p->c[first + r].s[g]);
        const int last = end < p->len ? (int)end : p->len;
        for (; k + CODES <= last; k += CODES) {
            EACH (int h = 0; h < PER; h++) EACH (int m = 0; m < M; m++) x[h][m] = vf_load(p->x[m] + k + h * VEC);
            EACH (int i = 0; i < CODES * R; i += 64) _mm_prefetch(next + R * k + i, _MM_HINT_T1);
            EACH (int r = 0; r < R; r++) {
                fp8_wide(q[r] + k, v, e);
                EACH (int h = 0; h < PER; h++) v[h] = vf_mul(v[h], by[r]);
                EACH (int h = 0; h < PER; h++)
                    EACH (int m = 0; m < M; m++) s[r][m] = vf_fma(v[h], x[h][m], s[r][m]);
            }
        }
        if (k >= last) continue;
        EACH (int r = 0; r < R; r++) { // the end of a row
            uint8_t part[CODES] = {0};
            fp8_wide(memcpy(part, q[r] + k, (size_t)(last - k)), v, e);
            EACH (int h = 0; h < PER; h++)
                EACH (int m = 0; m < M; m++) {
                    const int left = last - k - h * VEC;
                    if (left > 0) s[r][m] = vf_fma(vf_mul(v[h], by[r]), x_some(p->x[m] + k + h * VEC, left), s[r][m]);
                }
        }
        k = last;
    }
    sums_store(p, s, first, y, ldy, R, M);
}

// As many rows as there are registers for.
INLINE void fp8_thin(const thin *p, float *y, size_t ldy, const lq_dtype e, const int M) {
    if (e == LQ_E4M3 && fp8_odd(p)) by_rows(p, y, ldy, M);
    else for (int r = 0; r < TILE; r += TILE / PER) fp8_some(p, r, y, ldy, e, TILE / PER, M);
}

// --- all tiles ---

typedef void thin_fn(const thin *p, float *y, size_t ldy);
#define THIN(TYPE, CALL, ...)                                                                                          \
    static void NAME(TYPE##_1)(const thin *p, float *y, size_t ldy) { CALL(p, y, ldy, __VA_ARGS__, 1); }               \
    static void NAME(TYPE##_2)(const thin *p, float *y, size_t ldy) { CALL(p, y, ldy, __VA_ARGS__, 2); }
THIN(e4m3, fp8_thin, LQ_E4M3) THIN(e5m2, fp8_thin, LQ_E5M2)

static void no_scales(thin *p) {
    for (int r = 0; r < TILE; r++) p->c[r].s[0] = p->w->type.elem == LQ_E4M3 ? 256 : 1;
}

// Columns k0 .. k1 of a tile, times rows m0 .. m1: y begins with the first of them and the tile's first row.
static void walk(thin *p, const lq_act *a, int64_t k0, int64_t k1, int m0, int m1, float *y, size_t ldy,
                 thin_fn *const fns[LQ_THIN_ROWS]) {
    for (p->k = k0; p->k < k1; p->k += LQ_K_CUT) {
        p->more = p->k > k0;
        p->len = (int)least_of(k1 - p->k, LQ_K_CUT);
        p->of = p->bare ? (span){.group = p->w->k, .n = 1} : span_of(p->w, p->k, p->k + p->len);
        for (int r = 0; r < TILE && !p->bare; r++) {
            p->z[r] = groups_of(p->w, row_of(p, r), &p->of, &p->c[r]);
            for (int g = 0; p->w->type.elem == LQ_E4M3 && g < p->of.n; g += VEC)
                vf_store(p->c[r].s + g, vf_mul(vf_load(p->c[r].s + g), vf_set(256.0f)));
        }
        for (int m = m0, some; m < m1; m += some) {
            some = m1 - m < LQ_THIN_ROWS ? m1 - m : LQ_THIN_ROWS;
            for (int i = 0; i < some; i++)
                p->x[i] = (a->type.elem == LQ_E4M3 ? (const float *)a->q + (size_t)(m + i) * a->q_row
                                                   : lq_mat_row(&a->x, m + i)) + p->k;
            fns[some - 1](p, y + (size_t)(m - m0) * ldy, ldy);
        }
    }
}

static void tiles(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1, float *y, size_t ldy,
                  thin_fn *const fns[LQ_THIN_ROWS]) {
    cells c[TILE];
    thin p = {.w = w, .c = c, .bare = w->type.kind == LQ_W_PLAIN};
    if (p.bare) no_scales(&p);
    for (int64_t t = t0; t < t1; t++) {
        p.n = t * TILE;
        p.rows = (int)least_of(w->n - p.n, TILE);
        walk(&p, a, 0, w->k, m0, m1, y + (size_t)m0 * ldy + (size_t)p.n, ldy, fns);
    }
}

// E4M3 activations: the sums of each of their cells, then its scales.
static void cells_scaled(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1, float *y,
                         size_t ldy, thin_fn *const fns[LQ_THIN_ROWS]) {
    const int64_t cell = (int64_t)a->q_group;
    float sum[LQ_FEW_ROWS][TILE];
    cells c[TILE];
    thin p = {.w = w, .c = c, .bare = true};
    no_scales(&p);
    for (int64_t t = t0; t < t1; t++)
        for (int m = m0, end; m < m1; m = end) {
            end = m1 - m < LQ_FEW_ROWS ? m1 : m + LQ_FEW_ROWS;
            p.n = t * TILE;
            p.rows = (int)least_of(w->n - p.n, TILE);
            for (int64_t k = 0; k < w->k; k += cell) {
                walk(&p, a, k, least_of(k + cell, w->k), m, end, sum[0], TILE, fns);
                lq_ukr_scaled(w, a, p.n, p.rows, k, cell, m, end, sum[0], TILE, y, ldy);
            }
        }
}

lq_ukr_run NAME(lq_matmul_f32_f32_fp8any); // named in ukr.c
void NAME(lq_matmul_f32_f32_fp8any)(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1,
                                    float *y, size_t ldy) {
    static thin_fn *const floats[][LQ_THIN_ROWS] = {{NAME(e4m3_1), NAME(e4m3_2)}, {NAME(e5m2_1), NAME(e5m2_2)}};
    thin_fn *const *fns = floats[w->type.elem == LQ_E5M2];
    if (a->type.elem == LQ_E4M3) cells_scaled(w, a, t0, t1, m0, m1, y, ldy, fns);
    else tiles(w, a, t0, t1, m0, m1, y, ldy, fns);
}
#endif
