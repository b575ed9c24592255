// attn_few.h: what attn_vec.h does for a tile of few query vectors, one row that decodes: the heads that share K and V,
// at most ROWS with AVX-512 and two with AVX2. There is little to do for each number of the cache, so it goes from
// there to the products in registers. The chains are attn_vec.h's, and so are the bits. Owns nothing.

// What comes next from the cache, by chunks of VEC positions: K of a split, its V, K of the next one. They are asked
// for in this order while there is other work, line by line, since what is asked for at once waits for one another,
// and so far ahead that memory has its work also while weights and further columns of V take nothing from it.
enum { NEAR_CHUNKS = 4, AHEAD_BYTES = 64 * 1024 };

// Where the chunks of a split lie, of positions from .. end.
static void chunks_find(const lq_attn_args *a, tile *t, int from, int end) {
    t->asked.has[from / LQ_SPLIT & 1] = from / LQ_SPLIT;
    for (int v = 0; v < (a->cache.v_in_k ? 1 : 2); v++) {
        chunk *to = t->asked.at[from / LQ_SPLIT & 1][v];
        for (int j = from, i = from / a->cache.page, at = from % a->cache.page; j < end; i++, at = 0) {
            chunk c = chunk_at(a, t, v, i, at);
            for (; at < a->cache.page && j < end; at += VEC, j += VEC) {
                to[j % LQ_SPLIT / VEC] = c;
                c.p += VEC * c.row;
                if (c.scales) c.scales += VEC;
            }
        }
    }
}

static const char *chunk_next(const lq_attn_args *a, tile *t) { // NULL: no more
    asked *k = &t->asked;
    if (k->j >= k->end && !k->v && !a->cache.v_in_k) k->j = k->from, k->v = true;
    else if (k->j >= k->end) {
        if (k->end >= k->stop || k->end / LQ_SPLIT > k->split + 1) return NULL;
        k->j = k->from = k->end, k->v = false;
        k->end = k->end + LQ_SPLIT < k->stop ? k->end + LQ_SPLIT : k->stop;
        chunks_find(a, t, k->from, k->end);
    }
    if (k->j >= k->end) return NULL; // of splits before a window there is nothing
    const char *p = k->at[k->j / LQ_SPLIT & 1][k->v][k->j % LQ_SPLIT / VEC].p;
    k->j += VEC;
    k->ahead++;
    return p;
}

// The next one, to be asked for in so many steps.
INLINE due chunk_in(const lq_attn_args *a, tile *t, size_t steps) {
    const char *p = chunk_next(a, t);
    const size_t each = (t->asked.bytes + steps - 1) / steps;
    return p ? (due){p, t->asked.bytes, (each + 63) & ~(size_t)63} : (due){0};
}

static void chunk_ask(const lq_attn_args *a, tile *t) {
    due all = chunk_in(a, t, 1);
    due_ask(&all);
}

// The next one, if not enough are on their way. Of what is met soon one more, now.
INLINE due chunk_due(const lq_attn_args *a, tile *t, size_t steps) {
    if (t->asked.ahead < NEAR_CHUNKS) chunk_ask(a, t);
    return t->asked.ahead < t->asked.most ? chunk_in(a, t, steps) : (due){0};
}

// For positions from .. stop, of which the first split's end with `end`.
static void chunks_begin(const lq_attn_args *a, tile *t, int from, int end, int stop) {
    const size_t bytes = VEC * (size_t)lq_cache_width(&a->cache, false) * lq_dtype_size(a->cache.type);
    asked *k = &t->asked;
    k->from = k->j = from, k->end = end < stop ? end : stop, k->stop = stop, k->v = false, k->ahead = 0;
    k->split = from / LQ_SPLIT, k->has[0] = k->has[1] = -1;
    k->bytes = bytes, k->most = NEAR_CHUNKS + (int)(AHEAD_BYTES / bytes);
    chunks_find(a, t, from, k->end);
    for (int i = 0; i < NEAR_CHUNKS; i++) chunk_ask(a, t);
}

// A step with what lies at x broadcast.
INLINE void step_at(vf *s, vf y, const float *x) {
#if defined(__AVX512BF16__) && !defined(__clang__)
    __asm__("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(*s) : "v"(y), "m"(*x));
#else
    *s = step(y, vf_set(*x), *s);
#endif
}

INLINE vf by_of(const chunk *c, const lq_dtype type, int i, float by) {
    return vf_set(type == LQ_I8 && c->scales ? c->scales[i] : by);
}

// Vectors of positions that are met side by side: of few rows several, or a chain would wait for itself.
enum { WIDEST = 4 };
#define WIDE(rows) ((rows) <= 2 ? WIDEST : (rows) <= 4 ? 2 : 1)

// Chunks of K that are met side by side, and what is asked for meanwhile: from afar into the second cache, and what is
// met soon once more into the first, as what was asked for while much else was on its way may have been forgotten.
typedef struct keys {
    int n;
    float by;
    const chunk *at;
    const char *next[WIDEST], *soon[WIDEST];
} keys;

// Scores of VEC positions of each: c[r][0..VEC) of `rows` query vectors, whose cells lie side by side in q.
INLINE void few_scores_of(const lq_dtype type, const keys *k, int dk, const float *q, float *c, const int rows) {
    const int step = PER * VEC * (int)bytes_of(type); // of a chunk for a cell
    const int wide = WIDE(rows);
    vf s[WIDEST][ROWS];
    EACH (int w = 0; w < WIDEST; w++) EACH (int r = 0; r < rows; r++) s[w][r] = vf_zero();
    for (int d = 0; d < dk; d += VEC * PER, q += VEC * ROWS) {
        EACH (int w = 0; w < WIDEST; w++) {
            if (w >= wide || w >= k->n) continue;
            const chunk *at = k->at + w;
            const char *p = at->p + (size_t)d * bytes_of(type), *next = k->next[w] + d / PER * step;
            const char *soon = k->soon[w] + d / PER * step;
            vf x[VEC], y[VEC];
            if (dk - d >= VEC * PER) {
                EACH (int i = 0; i < VEC; i++)
                    x[i] = cells_of(type, p + (size_t)i * at->row, by_of(at, type, i, k->by));
                across(x, y);
                EACH (int i = 0; i < VEC; i++) {
                    if (i * step % 64 == 0) {
                        _mm_prefetch(next + i * step, _MM_HINT_T1);
                        _mm_prefetch(soon + i * step, _MM_HINT_T0);
                    }
                    EACH (int r = 0; r < rows; r++) step_at(&s[w][r], y[i], q + i * ROWS + r);
                }
                continue;
            }
            for (int i = 0; i < VEC; i++)
                x[i] = cells_first(type, p + (size_t)i * at->row, dk - d, by_of(at, type, i, k->by));
            across(x, y);
            for (int i = 0; i < (dk - d + PER - 1) / PER; i++)
                EACH (int r = 0; r < rows; r++) step_at(&s[w][r], y[i], q + i * ROWS + r);
        }
    }
    EACH (int w = 0; w < WIDEST; w++)
        EACH (int r = 0; r < rows; r++)
            if (w < wide && w < k->n) vf_store(c + r * LQ_SPLIT + w * VEC, s[w][r]);
}

// PER positions of V from the i-th of a span on, of which the second may not be there, are added to units of sums: of
// COLS columns, or (units 0) of `left`, which are fewer.
enum { MOST_UNITS = 4 };
INLINE void few_add(const lq_dtype type, const chunk *v, float by, const char *p, int i, const bool both, int left,
                    const float *w, vf s[MOST_UNITS][2][ROWS], const int rows, const int units) {
    const int all = units ? units : 1;
    EACH (int n = 0; n < all; n++) {
        vf x[2]; // of PER positions, COLS numbers each
        EACH (int h = 0; h < 2; h++) {
            const int at = PER == 2 ? i + h : i, d = n * COLS + (PER == 2 ? 0 : h * VEC);
            const char *from = p + (PER == 2 && h ? v->row : 0) + (size_t)d * bytes_of(type);
            if (PER == 2 && h && !both) x[h] = vf_zero();
            else x[h] = units ? cells_of(type, from, by_of(v, type, at, by))
                              : cells_some(type, from, left - d, by_of(v, type, at, by));
        }
        positions(x, x[0], x[1]);
        EACH (int r = 0; r < rows; r++) EACH (int h = 0; h < 2; h++) step_at(&s[n][h][r], x[h], w + r * LQ_SPLIT);
    }
}

// Units from column d0 on of the weighted V of positions low .. high of a split.
INLINE void few_values_of(const lq_dtype type, const lq_attn_args *a, tile *t, int j0, int low, int high, int d0,
                          const int rows, const int units) {
    const int all = units ? units : 1, left = a->cache.dv - d0;
    vf s[MOST_UNITS][2][ROWS];
    EACH (int n = 0; n < all; n++) EACH (int r = 0; r < rows; r++) s[n][0][r] = s[n][1][r] = vf_zero();
    const chunk *at = t->asked.at[j0 / LQ_SPLIT & 1][!a->cache.v_in_k];
    const int most = a->cache.page % COLS ? VEC : COLS; // that lie behind each other
    const float by = lq_cache_head_scale(&a->cache, t->kv_head, true);
    for (int j = low; j < high; j += most) {
        const int n = high - j < most ? high - j : most;
        const chunk *v = at + j / VEC;
        const char *p = v->row ? v->p + (size_t)d0 * bytes_of(type) : v->p;
        const char *soon = high - j > most && v[most / VEC].row ? v[most / VEC].p + (size_t)d0 * bytes_of(type) : p;
        if (d0 == 0 && !a->cache.v_in_k) t->asked.ahead -= (n + VEC - 1) / VEC;
        due next = chunk_due(a, t, (size_t)most / PER);
        const float *w = &t->p[0][j / PER];
        int i = 0;
        for (; i + PER <= n; i += PER, p += PER * v->row, w++) {
            due_ask(&next);
            EACH (int h = 0; h < PER; h++, soon += v->row)
                EACH (int b = 0; b < (all + 1) * COLS * (int)bytes_of(type); b += 64)
                    _mm_prefetch(soon + b, _MM_HINT_T0);
            few_add(type, v, by, p, i, true, left, w, s, rows, units);
        }
        if (i < n) few_add(type, v, by, p, i, false, left, w, s, rows, units);
    }
    EACH (int n = 0; n < all; n++)
        EACH (int r = 0; r < rows; r++) {
            vf_store(t->o[r * all + n], s[n][0][r]);
            vf_store(t->o[r * all + n] + VEC, s[n][1][r]);
        }
}

// By type and number of rows. Of one and two rows several units go side by side, for the same reason.
typedef void few_scores_fn(const keys *k, int dk, const float *q, float *c);
typedef void few_values_fn(const lq_attn_args *a, tile *t, int j0, int low, int high, int d0);
typedef struct few_fns { few_scores_fn *scores; few_values_fn *values[MOST_UNITS + 1]; } few_fns; // by units, or NULL
#define SCORES_FN(T, N)                                                                               \
    static void NAME(few_scores_##T##_##N)(const keys *k, int dk, const float *q, float *c) {         \
        few_scores_of(LQ_##T, k, dk, q, c, N);                                                        \
    }
#define VALUES_NAME(T, N, UNITS) NAME(few_values_##T##_##N##_##UNITS)
#define VALUES_FN(T, N, UNITS)                                                                        \
    static void VALUES_NAME(T, N, UNITS)(const lq_attn_args *a, tile *t, int j0, int low, int high, int d0) { \
        few_values_of(LQ_##T, a, t, j0, low, high, d0, N, UNITS);                                     \
    }
#define FN(T, N) SCORES_FN(T, N) VALUES_FN(T, N, 0) VALUES_FN(T, N, 1)
#define FN_NAMES(T, N, ...) {NAME(few_scores_##T##_##N), {VALUES_NAME(T, N, 0), VALUES_NAME(T, N, 1), __VA_ARGS__}}
#define TWO_FNS(T) FN(T, 1) VALUES_FN(T, 1, 2) VALUES_FN(T, 1, 4) FN(T, 2) VALUES_FN(T, 2, 2)
#define TWO_NAMES(T)                                                                                  \
    FN_NAMES(T, 1, VALUES_NAME(T, 1, 2), [4] = VALUES_NAME(T, 1, 4)), FN_NAMES(T, 2, VALUES_NAME(T, 2, 2))
#if defined(__AVX512F__)
enum { FEW = ROWS };
#define FNS(T) TWO_FNS(T) FN(T, 3) FN(T, 4) FN(T, 5) FN(T, 6) FN(T, 7) FN(T, 8)
#define NAMES(T)                                                                                      \
    [LQ_##T] = {TWO_NAMES(T), FN_NAMES(T, 3, NULL), FN_NAMES(T, 4, NULL), FN_NAMES(T, 5, NULL),       \
                FN_NAMES(T, 6, NULL), FN_NAMES(T, 7, NULL), FN_NAMES(T, 8, NULL)},
#else // more than two are no faster in 16 registers
enum { FEW = 2 };
#define FNS(T) TWO_FNS(T)
#define NAMES(T) [LQ_##T] = {TWO_NAMES(T)},
#endif
FNS(F32) FNS(F16) FNS(BF16) FNS(I8) FNS(E4M3)
static const few_fns few_all[LQ_DTYPES][FEW] = {NAMES(F32) NAMES(F16) NAMES(BF16) NAMES(I8) NAMES(E4M3)};

// Whether a tile is done so: pages hold whole vectors of positions, and the queries' cells fit where K's would be.
static bool few_fits(const lq_attn_args *a, const tile *t) {
    return t->n <= FEW && a->cache.page % VEC == 0 && (a->cache.dk + VEC * PER - 1) / PER * ROWS <= CELLS * COLS;
}

static void few_scores(const lq_attn_args *a, tile *t, int j0, int low, int high) {
    float *q = t->kv[0];
    t->asked.split = j0 / LQ_SPLIT;
    if (t->asked.has[t->asked.split & 1] != t->asked.split) chunks_find(a, t, j0 + low, j0 + high);
    for (int r = 0; r < t->n; r++)
        for (int d = 0; d < a->cache.dk; d += VEC * PER) {
            float x[VEC];
            vf_store(x, query_cells(t->q[r] + d, a->cache.dk - d));
            for (int i = 0; i < VEC; i++) q[(d / PER + i) * ROWS + r] = x[i];
        }
    few_scores_fn *fn = few_all[a->cache.type][t->n - 1].scores;
    keys k = {.by = lq_cache_head_scale(&a->cache, t->kv_head, false)};
    const chunk *at = t->asked.at[j0 / LQ_SPLIT & 1][0];
    const int wide = WIDE(t->n), far = wide < 2 ? 2 : wide;
    for (int j = low; j < high; j += k.n * VEC) {
        const int left = (high - j + VEC - 1) / VEC;
        k.at = at + j / VEC, k.n = left < wide ? left : wide;
        t->asked.ahead -= k.n;
        for (int w = 0; w < k.n; w++) {
            const char *p = chunk_due(a, t, 1).p;
            k.next[w] = p ? p : k.at[w].p;
            k.soon[w] = w + far < left ? k.at[w + far].p : k.at[w].p;
        }
        fn(&k, a->cache.dk, q, &t->p[0][j]);
    }
}

// How many units of columns these are; 0: some of it is NaN or infinite.
static int few_values(const lq_attn_args *a, tile *t, int j0, int low, int high, int d0) {
    few_values_fn *const *fns = few_all[a->cache.type][t->n - 1].values;
    const int left = a->cache.dv - d0;
    int units = MOST_UNITS;
    while (units && (!fns[units] || left < units * COLS)) units /= 2;
    fns[units](a, t, j0, low, high, d0);
    const int all = units ? units : 1;
    vf odd = vf_zero();
    for (int r = 0; r < t->n * all; r++)
        for (int d = 0; d < COLS; d += VEC) odd = vf_or(odd, vf_sub(vf_load(t->o[r] + d), vf_load(t->o[r] + d)));
    return vf_any_nan(odd) ? 0 : all;
}
