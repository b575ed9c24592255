// rows_avx512.c: coded weights of layout any with AVX-512: as f32 rows (rows_vec.h), and for batches of few rows their
// product at once (thin_vec.h). Owns nothing.
#include "kernels/cpu/x86/rows_vec.h"
#include "kernels/cpu/x86/thin_vec.h"

// 16 codes of 4 bits are 64 bits, and one shift of each of eight copies puts codes i and i + 8 beside each other. So x
// is taken in that order, and the lanes of a sum are put back at its end.
INLINE vi paired(void) { return _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15); }
INLINE vi unpaired(void) { return _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15); }
INLINE vi pairs_at(const uint8_t *p) {
    int64_t v;
    memcpy(&v, p, sizeof v);
    return _mm512_srlv_epi64(_mm512_set1_epi64(v), _mm512_setr_epi64(0, 4, 8, 12, 16, 20, 24, 28));
}

// What 16 columns of this tile bring with them of the next one, which lies behind it, in the order of memory: a line at
// a time, since a core waits for only so many at once.
INLINE void ahead(const thin *p, size_t row, int k, const int bits) {
    _mm_prefetch((const char *)p->w->q + (size_t)(p->n + TILE) * row + (size_t)(p->k + k) * (size_t)bits, _MM_HINT_T0);
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
    sums_store(p, s, 0, y, ldy, TILE, M);
}

THIN(int2, coded_thin, 2, false) THIN(int3, coded_thin, 3, false) THIN(int4, coded_thin, 4, false)
THIN(table2, coded_thin, 2, true) THIN(table3, coded_thin, 3, true) THIN(table4, coded_thin, 4, true)

#define FEW(TYPE) {NAME(TYPE##_1), NAME(TYPE##_2)}
static thin_fn *const ints[][LQ_THIN_ROWS] = {FEW(int2), FEW(int3), FEW(int4)};
static thin_fn *const tables[][LQ_THIN_ROWS] = {FEW(table2), FEW(table3), FEW(table4)};

// named in ukr.c
lq_ukr_run lq_matmul_f32_f32_intany_avx512, lq_matmul_f32_f32_tableany_avx512;
void lq_matmul_f32_f32_intany_avx512(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1,
                                     float *y, size_t ldy) {
    tiles(w, a, t0, t1, m0, m1, y, ldy, ints[w->type.bits - 2]);
}

void lq_matmul_f32_f32_tableany_avx512(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1,
                                       float *y, size_t ldy) {
    tiles(w, a, t0, t1, m0, m1, y, ldy, tables[w->type.bits - 2]);
}
