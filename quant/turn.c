// turn.c: orthogonal changes of basis by Hadamard matrices: Sylvester's of a power of two, times one of Paley's where
// the width has a factor that is none. A turn is a rule that follows from the width.
#include "quant/pass.h"
#include <math.h>

static bool is_prime(int n) {
    for (int i = 2; i * i <= n; i++)
        if (n % i == 0) return false;
    return n > 1;
}

// 1 where a is a square that is not 0 modulo the prime q, -1 where it is none, 0 for 0.
static int character(int a, int q) {
    int64_t x = 1, base = (a % q + q) % q;
    for (int e = (q - 1) / 2; e; e /= 2, base = base * base % q)
        if (e & 1) x = x * base % q;
    return x == q - 1 ? -1 : (int)x;
}

// Jacobsthal's matrix of order q with a border: a row of ones above, a column of `left` at its left, 0 in the corner.
static int bordered(int i, int j, int q, int left) {
    if (!i || !j) return !i && !j ? 0 : i ? left : 1;
    return character(i - j, q);
}

enum lq_paley { LQ_PALEY_NONE, LQ_PALEY_ONE, LQ_PALEY_TWO };
static enum lq_paley paley_kind(int m) {
    if (is_prime(m - 1) && (m - 1) % 4 == 3) return LQ_PALEY_ONE;
    return m % 2 == 0 && is_prime(m / 2 - 1) && (m / 2 - 1) % 4 == 1 ? LQ_PALEY_TWO : LQ_PALEY_NONE;
}

static int paley(int m, int i, int j) {
    if (paley_kind(m) == LQ_PALEY_ONE) return i == j ? 1 : bordered(i, j, m - 1, -1);
    if (i / 2 != j / 2) return bordered(i / 2, j / 2, m / 2 - 1, 1) * (i & j & 1 ? -1 : 1);
    return i % 2 || j % 2 ? -1 : 1;
}

void lq_turn_make(int64_t width, lq_turn *out) {
    int64_t two = 1, m;
    while (width / two % 2 == 0) two *= 2;
    *out = (lq_turn){.width = width, .two = two, .odd = 1};
    for (m = width / two; m > 1 && m <= LQ_TURN_ODD && two > 1 && !paley_kind((int)m); two /= 2) m *= 2;
    if (m < 2 || m > LQ_TURN_ODD || !paley_kind((int)m)) return;
    out->two = two;
    out->odd = (int)m;
    for (int i = 0; i < out->odd; i++)
        for (int j = 0; j < out->odd; j++) out->sign[i][j] = (int8_t)paley(out->odd, i, j);
}

// Bit 63 of splitmix64's i-th number.
static bool negative(int64_t i) {
    uint64_t z = 0x9e3779b97f4a7c15u * ((uint64_t)i + 1);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) >> 63;
}

// The odd factor, whose elements are `step` apart.
static void turn_odd(const lq_turn *t, float *v, int64_t step) {
    float sum[LQ_TURN_ODD][16];
    for (int64_t at = 0; at < step; at += 16) {
        const int64_t n = step - at < 16 ? step - at : 16;
        for (int j = 0; j < t->odd; j++) {
            for (int64_t l = 0; l < n; l++) sum[j][l] = 0;
            for (int i = 0; i < t->odd; i++)
                for (int64_t l = 0; l < n; l++) sum[j][l] += (float)t->sign[i][j] * v[i * step + at + l];
        }
        for (int j = 0; j < t->odd; j++)
            for (int64_t l = 0; l < n; l++) v[j * step + at + l] = sum[j][l];
    }
}

// Sylvester's: n numbers, each a run of `lanes`.
static void turn_two(float *v, int64_t n, int64_t lanes) {
    for (int64_t h = lanes; h < n * lanes; h *= 2)
        for (int64_t at = 0; at < n * lanes; at += 2 * h)
            for (int64_t i = at; i < at + h; i++) {
                const float a = v[i], b = v[i + h];
                v[i] = a + b;
                v[i + h] = a - b;
            }
}

void lq_turn_run(const lq_turn *t, float *v, int64_t n, int64_t lanes) {
    const int64_t order = t->two * t->odd;
    const float share = (float)(1 / sqrt((double)order));
    for (int64_t i = 0; i < n; i++) {
        const float factor = negative(i % t->width) ? -share : share;
        for (int64_t l = 0; l < lanes; l++) v[i * lanes + l] *= factor;
    }
    for (int64_t at = 0; at < n; at += order) {
        float *block = v + at * lanes;
        for (int i = 0; i < t->odd; i++) turn_two(block + i * t->two * lanes, t->two, lanes);
        if (t->odd > 1) turn_odd(t, block, t->two * lanes);
    }
}
