// rows_avx512.c: coded weights of layout any with AVX-512: as f32 rows (rows_vec.h), and for batches of few rows their
// product at once, each number multiplied as soon as it is made. Owns nothing.
//
// The order of sums is dot_vec.h's: lane i of a cut adds k = i mod 16, lanes 8, 4, 2, 1 apart are added, cuts in order.
#include "kernels/cpu/x86/rows_vec.h"

enum { TILE = LQ_ANY_ROWS };

typedef struct thin { // one cut of one tile
    const lq_weight *w;
    int64_t n, k;            // its first row and column
    int len, rows;           // columns; rows that there are
    const float *x[LQ_THIN_ROWS];
    span of;
    cells *c;                // [TILE]
    const float *z[TILE];
} thin;

// Rows behind the last one repeat it and are not stored.
INLINE int64_t row_of(const thin *p, int r) { return p->n + (r < p->rows ? r : p->rows - 1); }

INLINE void sums_store(const thin *p, vf s[TILE][LQ_THIN_ROWS], float *y, size_t ldy, const int M) {
    EACH (int m = 0; m < M; m++) EACH (int r = 0; r < TILE; r += 4) {
        float part[4], *to = y + (size_t)m * ldy + (size_t)(p->n + r);
        const __m128 v = fold4(s[r][m], s[r + 1][m], s[r + 2][m], s[r + 3][m]);
        if (p->rows - r >= 4) {
            _mm_storeu_ps(to, p->k ? _mm_add_ps(_mm_loadu_ps(to), v) : v);
            continue;
        }
        _mm_storeu_ps(part, v);
        for (int i = 0; i < p->rows - r; i++) to[i] = p->k ? to[i] + part[i] : part[i];
    }
}

INLINE vf x_some(const float *x, int n) { return vf_load_m(vm_first(n), x); }

// 16 codes of 4 bits are 64 bits, and one shift of each of eight copies puts codes i and i + 8 beside each other. So x
// is taken in that order, and the lanes of a sum are put back at its end.
INLINE vi paired(void) { return _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15); }
INLINE vi unpaired(void) { return _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15); }
INLINE vi pairs_at(const uint8_t *p) {
    int64_t v;
    memcpy(&v, p, sizeof v);
    return _mm512_srlv_epi64(_mm512_set1_epi64(v), _mm512_setr_epi64(0, 4, 8, 12, 16, 20, 24, 28));
}

// What 16 columns of this tile bring with them of the next one, which lies behind it: a line or two at a time, since a
// core waits for only so many at once. Codes in the order of memory, whatever the order of the columns; of 8-bit
// floats, whose rows are long and read before they are multiplied, a line of each of two rows.
INLINE void ahead(const thin *p, size_t row, int k, const int bits) {
    const char *next = (const char *)p->w->q + (size_t)(p->n + TILE) * row;
    if (bits < 8) {
        _mm_prefetch(next + (size_t)(p->k + k) * (size_t)bits, _MM_HINT_T0);
        return;
    }
    for (int i = k / 8; i < k / 8 + 2; i++) _mm_prefetch(next + (size_t)(i % TILE) * row + p->k + k, _MM_HINT_T0);
}

// --- int and table codes of few bits ---

INLINE void coded_thin(const thin *p, float *y, size_t ldy, const int bits, const bool table, const int M) {
    const size_t bytes = lq_code_row_bytes(bits, p->w->k), step = VEC * (size_t)bits / 8;
    const spread by = spread_of(bits);
    const uint8_t *q[TILE];
    vf base[TABLES], s[TILE][LQ_THIN_ROWS];
    EACH (int r = 0; r < TILE; r++)
        q[r] = (const uint8_t *)p->w->q + (size_t)row_of(p, r) * bytes + (size_t)p->k / 8 * (size_t)bits;
    EACH (int r = 0; r < TILE; r++) EACH (int m = 0; m < M; m++) s[r][m] = vf_zero();
    table_load(table ? p->w->table : NULL, base, bits);
    const size_t row = bytes - (size_t)p->k / 8 * (size_t)bits; // bytes from the cut's first to the row's last
    const int safe = row < READ ? 0 : (int)least_of((int64_t)((row - READ) / step + 1) * VEC, p->len / VEC * VEC);
    const int64_t group = p->of.group;
    int64_t end = (p->of.first + 1) * group - p->k;
    size_t at = 0;
    bool turned = false;
    for (int k = 0, g = 0; k < p->len; g++, end += group) {
        vf t[TILE];
        EACH (int r = 0; r < TILE; r++)
            t[r] = vf_mul(table ? base[0] : vf_sub(base[0], vf_set(p->z[r][g])), vf_set(p->c[r].s[g]));
        const int last = end < safe ? (int)end : safe;
        for (; k < last; k += VEC, at += step) {
            vf x[LQ_THIN_ROWS];
            ahead(p, bytes, k, bits);
            EACH (int m = 0; m < M; m++) x[m] = vf_load(p->x[m] + k);
            EACH (int m = 0; bits == 4 && m < M; m++) x[m] = _mm512_permutexvar_ps(paired(), x[m]);
            EACH (int r = 0; r < TILE; r++) {
                const vf v = look_up(t + r, bits == 4 ? pairs_at(q[r] + at) : codes_at(q[r] + at, &by, bits), 4);
                EACH (int m = 0; m < M; m++) s[r][m] = vf_fma(v, x[m], s[r][m]);
            }
        }
        if (bits == 4 && (k >= p->len || end > safe) && !turned) {
            EACH (int r = 0; r < TILE; r++)
                EACH (int m = 0; m < M; m++) s[r][m] = _mm512_permutexvar_ps(unpaired(), s[r][m]);
            turned = true;
        }
        for (; k < p->len && k < end; k += VEC, at += step) {
            const vm some = vm_first(p->len - k);
            EACH (int r = 0; r < TILE; r++) {
                const vf v = vf_only(some, look_up(t + r, codes_within(q[r] + at, q[r] + row, &by, bits), 4));
                EACH (int m = 0; m < M; m++) s[r][m] = vf_fma(v, x_some(p->x[m] + k, p->len - k), s[r][m]);
            }
        }
    }
    sums_store(p, s, y, ldy, M);
}

// --- 8-bit floats ---

static void by_rows(const thin *p, float *y, size_t ldy, const int M) {
    _Alignas(64) float v[TILE * LQ_K_CUT + VEC] = {0};
    vf s[TILE][LQ_THIN_ROWS];
    lq_rows_f32_f32_fp8any_avx512(p->w, p->n / TILE, p->k, p->k + p->len, v);
    for (int r = 0; r < TILE; r++)
        for (int m = 0; m < M; m++) {
            s[r][m] = vf_zero();
            for (int k = 0; k < p->len; k += VEC)
                s[r][m] = vf_fma(vf_only(vm_first(p->len - k), vf_load(v + r * p->len + k)),
                                 x_some(p->x[m] + k, p->len - k), s[r][m]);
        }
    sums_store(p, s, y, ldy, M);
}

INLINE void fp8_thin(const thin *p, float *y, size_t ldy, const lq_dtype e, const int M) {
    _Alignas(64) uint16_t h[TILE][LQ_K_CUT + 32];
    vf s[TILE][LQ_THIN_ROWS];
    EACH (int r = 0; r < TILE; r++) EACH (int m = 0; m < M; m++) s[r][m] = vf_zero();
    bool odd = false; // what halves and scales times 2^8 cannot say
    for (int r = 0; r < TILE; r++) {
        const uint8_t *q = (const uint8_t *)p->w->q + row_of(p, r) * p->w->k + p->k;
        odd |= fp8_halves(q, p->len, h[r], e);
        for (int64_t g = 0; e == LQ_E4M3 && p->w->type.scale != LQ_F16 && g < p->of.n; g++)
            odd |= fabsf(p->c[r].s[g]) >= 0x1p119f;
    }
    if (odd) {
        by_rows(p, y, ldy, M);
        return;
    }
    int64_t end = (p->of.first + 1) * p->of.group - p->k;
    for (int k = 0, g = 0; k < p->len; g++, end += p->of.group) {
        vf by[TILE];
        EACH (int r = 0; r < TILE; r++) by[r] = vf_set(e == LQ_E4M3 ? p->c[r].s[g] * 256.0f : p->c[r].s[g]);
        const int last = end < p->len ? (int)end : p->len;
        for (; k + VEC <= last; k += VEC) {
            vf x[LQ_THIN_ROWS];
            ahead(p, (size_t)p->w->k, k, 8);
            EACH (int m = 0; m < M; m++) x[m] = vf_load(p->x[m] + k);
            EACH (int r = 0; r < TILE; r++) {
                const vf v = vf_mul(vf_of_f16(h[r] + k), by[r]);
                EACH (int m = 0; m < M; m++) s[r][m] = vf_fma(v, x[m], s[r][m]);
            }
        }
        if (k >= last) continue;
        EACH (int r = 0; r < TILE; r++) {
            const vf v = vf_only(vm_first(last - k), vf_mul(vf_of_f16(h[r] + k), by[r]));
            EACH (int m = 0; m < M; m++) s[r][m] = vf_fma(v, x_some(p->x[m] + k, last - k), s[r][m]);
        }
        k = last;
    }
    sums_store(p, s, y, ldy, M);
}

// --- all tiles ---

typedef void thin_fn(const thin *p, float *y, size_t ldy);
#define THIN(NAME, CALL, ...)                                                                                    \
    static void NAME##_1(const thin *p, float *y, size_t ldy) { CALL(p, y, ldy, __VA_ARGS__, 1); }               \
    static void NAME##_2(const thin *p, float *y, size_t ldy) { CALL(p, y, ldy, __VA_ARGS__, 2); }
THIN(int2, coded_thin, 2, false) THIN(int3, coded_thin, 3, false) THIN(int4, coded_thin, 4, false)
THIN(table2, coded_thin, 2, true) THIN(table3, coded_thin, 3, true) THIN(table4, coded_thin, 4, true)
THIN(e4m3, fp8_thin, LQ_E4M3) THIN(e5m2, fp8_thin, LQ_E5M2)

static thin_fn *const ints[][LQ_THIN_ROWS] = {{int2_1, int2_2}, {int3_1, int3_2}, {int4_1, int4_2}};
static thin_fn *const tables[][LQ_THIN_ROWS] = {{table2_1, table2_2}, {table3_1, table3_2}, {table4_1, table4_2}};
static thin_fn *const floats[][LQ_THIN_ROWS] = {{e4m3_1, e4m3_2}, {e5m2_1, e5m2_2}};

static void walk(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1, float *y, size_t ldy,
                 thin_fn *const fns[LQ_THIN_ROWS]) {
    cells c[TILE];
    thin p = {.w = w, .c = c};
    for (int64_t t = t0; t < t1; t++)
        for (int64_t k = 0; k < w->k; k += LQ_K_CUT) {
            p.n = t * TILE;
            p.k = k;
            p.len = (int)least_of(w->k - k, LQ_K_CUT);
            p.rows = (int)least_of(w->n - p.n, TILE);
            p.of = span_of(w, k, k + p.len);
            for (int r = 0; r < TILE; r++)
                if (w->type.kind == LQ_W_PLAIN) c[r].s[0] = 1;
                else p.z[r] = groups_of(w, row_of(&p, r), &p.of, &c[r]);
            for (int m = m0, some; m < m1; m += some) {
                some = m1 - m < LQ_THIN_ROWS ? m1 - m : LQ_THIN_ROWS;
                for (int i = 0; i < some; i++) p.x[i] = lq_mat_row(&a->x, m + i) + k;
                fns[some - 1](&p, y + (size_t)m * ldy, ldy);
            }
        }
}

// named in ukr.c
lq_ukr_run lq_matmul_f32_f32_intany_avx512, lq_matmul_f32_f32_tableany_avx512, lq_matmul_f32_f32_fp8any_avx512;
void lq_matmul_f32_f32_intany_avx512(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1,
                                     float *y, size_t ldy) {
    walk(w, a, t0, t1, m0, m1, y, ldy, ints[w->type.bits - 2]);
}

void lq_matmul_f32_f32_tableany_avx512(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1,
                                       float *y, size_t ldy) {
    walk(w, a, t0, t1, m0, m1, y, ldy, tables[w->type.bits - 2]);
}

void lq_matmul_f32_f32_fp8any_avx512(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1,
                                     float *y, size_t ldy) {
    walk(w, a, t0, t1, m0, m1, y, ldy, floats[w->type.elem == LQ_E5M2]);
}
