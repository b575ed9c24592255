// plain.cu: every slot of a forward as the plainest kernel: one task a thread, f32, sums in the order of portable C
// (kernels/cpu), whose bits these have (but for those of a NaN). They are what exact mode runs, and what faster kernels
// are measured against. A matrix of bf16 is read as what it means, and each number written there is rounded once.
// Compiled without contraction of products into fused multiply-adds.
#include "kernels/cuda/number.h"
#include "kernels/cuda/plain/plain.h"
#include "kernels/cuda/plain/task.h"
#include "kernels/element.h"
#include "kernels/route.h"
#include "kernels/view.h"

using namespace number;

LQ_TASK_KERNEL(embed, lq_plain_embed) {
    const int row = (int)lq_task_id();
    if (row >= p.a.y.rows) return;
    const lq_weight *w = &p.w;
    const int64_t id = p.a.ids[row];
    const line y = line_of(&p.a.y, row);
    const float by = p.a.scale != 0 ? p.a.scale : 1.0f;
    for (int64_t c = 0; c < w->k; c++) put(y, w->perm ? w->perm[c] : c, weight_at(w, id, c, false) * by);
    for (int o = 0; o < w->outliers; o++)
        put(y, w->perm ? w->perm[w->outlier[o]] : w->outlier[o],
            lq_bf16_widen(w->outlier_w[id * w->outliers + o]) * by);
}

// --- activations ---

// Stored column j of what is rounded. turned: x stands in that order already.
LQ_FN float column_at(const lq_act *a, line x, bool turned, int j) {
    for (int o = 0; o < a->outliers; o++)
        if (a->outlier[o] == j) return 0;
    if (turned) return at(x, j);
    const int c = a->perm ? a->perm[j] : j;
    return a->smooth ? at(x, c) * a->smooth[c] : at(x, c);
}

// Rounded values of e4m3 are f32, or where x is of bf16 their codes.
LQ_FN void e4m3_put(const lq_act *a, int row, int i, float v) {
    const size_t at = (size_t)row * a->q_row + (size_t)i;
    if (a->x.type == LQ_BF16) ((uint8_t *)a->q)[at] = (uint8_t)lq_e4m3_narrow(v);
    else ((float *)a->q)[at] = v;
}

LQ_FN void act_span(const lq_act *a, line x, bool turned, int row, int j0, int end) {
    uint32_t top = 0;
    for (int j = j0; j < end; j++) {
        const uint32_t size = lq_bits(column_at(a, x, turned, j)) & 0x7fffffff;
        top = size > top ? size : top;
    }
    const lq_q8_by by = lq_q8_scale(a, top);
    const int cell = (int)a->q_group;
    for (int j = j0; j < end; j += cell) {
        const size_t u = (size_t)(j / cell) * (size_t)a->apart + (size_t)row;
        const int n = end - j < cell ? end - j : cell;
        a->scale[u] = by.scale;
        if (a->type.elem == LQ_E4M3) {
            for (int i = j; i < j + n; i++)
                e4m3_put(a, row, i, by.inverse != 0 ? lq_e4m3_round(column_at(a, x, turned, i) * by.inverse) : 0);
            continue;
        }
        int8_t *q = (int8_t *)a->q + u * (size_t)cell;
        int32_t sum = 0;
        for (int i = 0; i < cell; i++) {
            const bool some = i < n && by.inverse != 0;
            const int32_t code = some ? lq_q8_code(column_at(a, x, turned, j + i), &by) : 0;
            q[i] = (int8_t)code;
            sum += code;
        }
        a->sum[u] = sum;
    }
    if (a->zero) a->zero[row] = by.zero;
}

LQ_FN void act_row(const lq_act *a, line x, int row) {
    const int k = a->x.cols, span = a->type.group ? a->type.group : k;
    bool turned = !a->smooth && !a->perm;
    const line own = line_of(&a->x, row);
    if (a->x.p && own.p != x.p) {
        for (int j = 0; j < k; j++) {
            const int c = a->perm ? a->perm[j] : j;
            put(own, j, a->smooth ? at(x, c) * a->smooth[c] : at(x, c));
        }
        x = own;
        turned = true;
    }
    if (a->type.elem == LQ_F32) return;
    for (int j = 0; j < k; j += span) act_span(a, x, turned, row, j, k - j < span ? k : j + span);
}

LQ_TASK_KERNEL(quant, lq_plain_quant) {
    const int row = (int)lq_task_id();
    if (row < p.a.x.rows) act_row(&p.act, line_of(&p.a.x, row), row);
}

LQ_TASK_KERNEL(norm, lq_plain_norm) {
    const int row = (int)lq_task_id();
    const lq_norm_args *a = &p.a;
    if (row >= a->x.rows) return;
    const int n = a->x.cols;
    const line x = line_of(&a->x, row), y = line_of(&a->y, row);
    if (p.more) {
        const line delta = line_of(&p.delta, row);
        for (int i = 0; i < n; i++) put(x, i, at(x, i) + at(delta, i));
    }
    double mean = 0, sum = 0;
    if (a->kind == LQ_NORM_LAYER) {
        for (int i = 0; i < n; i++) mean += at(x, i);
        mean /= n;
    }
    for (int i = 0; i < n; i++) sum += (at(x, i) - mean) * (at(x, i) - mean);
    const float by = (float)(1 / sqrt((a->kind == LQ_NORM_L2 ? sum : sum / n) + (double)a->eps));
    const float one = a->plus_one ? 1.0f : 0.0f;
    const float *gamma = lq_norm_gamma(a, a->gamma, row), *beta = lq_norm_gamma(a, a->beta, row);
    for (int i = 0; i < n; i++) {
        float v = (float)(at(x, i) - mean) * by;
        if (gamma) v *= one + gamma[i];
        put(y, i, beta ? v + beta[i] : v);
    }
    if (p.acts) act_row(&p.act, y, row);
}

// --- matmul ---

enum { LANES = 16, CUT = 1024 }; // LQ_K_CUT of kernels/cpu/ukr.h

// 16 sums by k mod 16, halved, of columns k0 .. k1.
LQ_FN float cut_dot(line x, const lq_weight *w, int64_t row, int64_t k0, int64_t k1, bool bare) {
    float s[LANES] = {0};
    for (int64_t k = k0; k < k1; k += LANES)
        for (int i = 0; i < LANES && k + i < k1; i++) s[i] += at(x, k + i) * weight_at(w, row, k + i, bare);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) s[i] += s[i + half];
    return s[0];
}

LQ_FN float float_sum(line x, const lq_weight *w, int64_t row, int64_t k0, int64_t k1, bool bare) {
    float y = 0;
    for (int64_t k = k0; k < k1; k += CUT) {
        const float s = cut_dot(x, w, row, k, k1 - k < CUT ? k1 : k + CUT, bare);
        y = k > k0 ? y + s : s;
    }
    return y;
}

// Bare elements over a cell of the activations, then both scales.
LQ_FN float e4m3_sum(const lq_act *a, const lq_weight *w, int m, int64_t row) {
    const int64_t cell = (int64_t)a->q_group;
    const line x = a->x.type == LQ_BF16 ? codes((const uint8_t *)a->q + (size_t)m * a->q_row)
                                        : floats((const float *)a->q + (size_t)m * a->q_row);
    float y = 0;
    for (int64_t k = 0; k < w->k; k += cell) {
        const float s = float_sum(x, w, row, k, w->k - k < cell ? w->k : k + cell, true);
        const float by = scale_at(w, row, w->type.group ? k / w->type.group : 0) *
                         a->scale[(size_t)(k / cell) * (size_t)a->apart + (size_t)m];
        y = y + s * by;
    }
    return y;
}

// Integers, exact over a cell of the activations, or where both have one scale for the row over as many cells as int32
// holds on a CPU.
LQ_FN float i8_sum(const lq_act *a, const lq_weight *w, int m, int64_t row) {
    const int64_t cell = (int64_t)a->q_row, cells = (w->k + cell - 1) / cell;
    const int64_t span = w->type.group || a->type.group ? 1 : (a->zero ? 32768 : 65536) / cell;
    float y = 0;
    int64_t dot = 0;
    for (int64_t c = 0; c < cells; c++) {
        const size_t u = (size_t)c * (size_t)a->apart + (size_t)m;
        const int64_t g = w->type.group ? c * cell / w->type.group : 0;
        const int zero = zero_at(w, row, g), end = (int)(w->k - c * cell < cell ? w->k - c * cell : cell);
        const int8_t *x = (const int8_t *)a->q + u * (size_t)cell;
        if (c % span == 0) dot = 0;
        for (int i = 0; i < end; i++) {
            const int code = (int)weight_code(w, row, c * cell + i) - zero;
            dot += code * (x[i] - (a->zero ? a->zero[m] : 0));
        }
        if ((c + 1) % span && c + 1 < cells) continue;
        y = fmaf((float)dot, scale_at(w, row, g) * a->scale[u], y);
    }
    return y;
}

// Columns that are kept apart, in bf16.
LQ_FN float apart_sum(line x, const lq_weight *w, int64_t row) {
    const uint16_t *v = w->outlier_w + (size_t)row * (size_t)w->outliers;
    float y = 0;
    for (int o0 = 0; o0 < w->outliers; o0 += CUT) {
        const int end = w->outliers - o0 < CUT ? w->outliers : o0 + CUT;
        float s[LANES] = {0};
        for (int o = o0; o < end; o++) s[(o - o0) % LANES] += at(x, w->outlier[o]) * lq_bf16_widen(v[o]);
        for (int half = LANES / 2; half; half /= 2)
            for (int i = 0; i < half; i++) s[i] += s[i + half];
        y = o0 ? y + s[0] : s[0];
    }
    return y;
}

LQ_FN float product_at(const lq_act *a, const lq_weight *w, const float *bias, int m, int64_t row) {
    float y;
    if (a->type.elem == LQ_I8) y = i8_sum(a, w, m, row);
    else if (a->type.elem == LQ_E4M3) y = e4m3_sum(a, w, m, row);
    else y = float_sum(line_of(&a->x, m), w, row, 0, w->k, false);
    if (w->outliers) y += apart_sum(line_of(&a->x, m), w, row);
    return bias ? y + bias[row] : y;
}

LQ_TASK_KERNEL(matmul, lq_plain_matmul) {
    const int64_t row = (int64_t)(lq_task_id() % (size_t)p.w.n);
    const int m = (int)(lq_task_id() / (size_t)p.w.n);
    if (m < p.y.rows) put(line_of(&p.y, m), row, product_at(&p.x, &p.w, p.bias, m, row));
}

LQ_TASK_KERNEL(moe, lq_plain_moe) {
    const int64_t cols = p.y.cols, row = (int64_t)(lq_task_id() % (size_t)cols);
    const int s = (int)(lq_task_id() / (size_t)cols);
    if (s >= p.slots) return;
    int slot = s, e = s % p.experts;
    if (p.order) { // the last expert that begins at s or before it
        int end = p.experts;
        for (e = 0; end - e > 1;) {
            const int mid = (e + end) / 2;
            if (p.start[mid] <= s) e = mid;
            else end = mid;
        }
        if (s < p.start[e] || s >= p.start[e + 1]) return;
        slot = p.order[s];
    }
    const lq_weight *w = p.w ? p.w + e : &p.one;
    const float *bias = p.bias ? p.bias[e] : p.one_bias;
    put(line_of(&p.y, slot), row, product_at(&p.x, w, bias, p.x_by_slot ? slot : slot / p.top_k, row));
}

// --- positions and the cache ---

LQ_TASK_KERNEL(rope, lq_plain_rope) {
    const lq_rope_args *a = &p.a;
    const int half = a->dim / 2, row = (int)(lq_task_id() / (size_t)half), i = (int)(lq_task_id() % (size_t)half);
    if (row >= p.rows.n || row >= lq_rows_real(&p.rows)) return;
    const float pos = (float)p.rows.pos[row], by = a->mscale != 0 ? a->mscale : 1.0f;
    const int near = a->interleaved ? 2 : 1, far = a->interleaved ? 1 : half;
    double sine, cosine;
    lq_sincos((double)(pos * a->inv_freq[i]), &sine, &cosine);
    float s = (float)sine * by, c = (float)cosine * by;
    for (int q = 0; q < 2; q++) {
        const lq_mat *m = q ? &a->q : &a->k;
        const float q_by = lq_rope_q(a, p.rows.pos[row]);
        if (q) s *= q_by, c *= q_by;
        if (!m->p) continue;
        const line x = line_of(m, row);
        for (int d = i * near; d < m->cols; d += a->head_dim) {
            const float u = at(x, d), v = at(x, d + far);
            put(x, d, u * c - v * s);
            put(x, d + far, v * c + u * s);
        }
    }
}

// One head's K or V into its place.
LQ_FN void kv_store(const lq_cache *c, line x, int32_t block, int place, int head, bool v) {
    const int n = lq_cache_width(c, v);
    char *dst = lq_cache_at(c, block, head, v) + (size_t)place * (size_t)n * lq_cache_bytes(c);
    if (c->type == LQ_I8) {
        float most = 0, nan = 0, inverse = 0;
        for (int i = 0; i < n; i++) {
            const float m = lq_float(lq_bits(at(x, i)) & 0x7fffffffu);
            most = m > most ? m : most;
            nan += at(x, i) * 0.0f;
        }
        if (most > 0 && nan == 0) inverse = 127.0f / most > FLT_MAX ? FLT_MAX : 127.0f / most;
        lq_cache_scale(c, block, head, v)[place] = most / 127.0f + nan;
        for (int i = 0; i < n; i++) ((int8_t *)dst)[i] = inverse != 0 ? (int8_t)rintf(at(x, i) * inverse) : 0;
        return;
    }
    const float by = c->type == LQ_E4M3 ? 1.0f / lq_cache_head_scale(c, head, v) : 1.0f;
    for (int i = 0; i < n; i++) {
        float s = at(x, i);
        if (c->type == LQ_E4M3) {
            s *= by;
            s = s > 448.0f ? 448.0f : s < -448.0f ? -448.0f : s;
        }
        elem_put(c->type, dst, (size_t)i, s);
    }
}

LQ_TASK_KERNEL(kv_write, lq_plain_kv) {
    const lq_cache *c = &p.a.cache;
    const int row = (int)(lq_task_id() / (size_t)c->kv_heads), h = (int)(lq_task_id() % (size_t)c->kv_heads);
    if (row >= p.rows.n || row >= lq_rows_real(&p.rows)) return;
    const int to = p.rows.at[row];
    const int32_t block = lq_rows_table(&p.rows, p.rows.seq[row])[to / c->page];
    kv_store(c, line_from(line_of(&p.a.k, row), (int64_t)h * c->dk), block, to % c->page, h, false);
    if (!c->v_in_k) kv_store(c, line_from(line_of(&p.a.v, row), (int64_t)h * c->dv), block, to % c->page, h, true);
}

// --- attention: splits of LQ_SPLIT positions from 0 on, each merged into what there is ---

// Where K or V of one position and head lies, and what its elements are times; NULL: freed behind the window, zeros.
typedef struct kv_at { const char *p; float by; } kv_at;
LQ_FN kv_at kv_find(const lq_plain_attn *p, int32_t seq, int head, bool v, int position) {
    const lq_cache *c = &p->a.cache;
    const int32_t block = lq_rows_table(&p->rows, seq)[position / c->page];
    const int place = position % c->page;
    kv_at out = {NULL, 1.0f};
    if (block < 0) return out;
    out.p = lq_cache_at(c, block, head, v) + (size_t)place * (size_t)lq_cache_width(c, v) * lq_cache_bytes(c);
    out.by = c->type == LQ_I8 ? lq_cache_scale(c, block, head, v)[place] : lq_cache_head_scale(c, head, v);
    return out;
}

LQ_FN float kv_elem(const lq_cache *c, kv_at of, int d) {
    if (!of.p) return 0;
    if (c->type == LQ_I8) return (float)((const int8_t *)of.p)[d] * of.by;
    const float x = elem_at(c->type, of.p, (size_t)d);
    return of.by != 1.0f ? x * of.by : x;
}

LQ_TASK_KERNEL(attn, lq_plain_attn) {
    enum { DIMS = 64 };
    const lq_attn_args *a = &p.a;
    const lq_cache *c = &a->cache;
    const int row = (int)(lq_task_id() / (size_t)a->heads), head = (int)(lq_task_id() % (size_t)a->heads);
    if (row >= p.rows.n) return;
    const line to = line_from(line_of(&a->y, row), (int64_t)head * c->dv);
    float weight[LQ_SPLIT], *y = p.sums ? p.sums + ((size_t)row * (size_t)a->heads + (size_t)head) * (size_t)c->dv
                                        : (float *)to.p;
    for (int d = 0; d < c->dv; d++) y[d] = 0;
    if (row >= lq_rows_real(&p.rows)) {
        for (int d = 0; d < c->dv; d++) put(to, d, 0);
        return;
    }
    const int kv_head = head / (a->heads / c->kv_heads), seq = p.rows.seq[row];
    const line q = line_from(line_of(&a->q, row), (int64_t)head * c->dk);
    const lq_sight see = lq_sight_of(a, &p.rows, row);
    float all_m = -FLT_MAX, all_l = 0;
    for (int j0 = see.from / LQ_SPLIT * LQ_SPLIT; j0 <= see.at; j0 += LQ_SPLIT) {
        const int n = see.at + 1 - j0 < LQ_SPLIT ? see.at + 1 - j0 : LQ_SPLIT;
        float part_m = -FLT_MAX, part_l = 0;
        for (int i = 0; i < n; i++) {
            weight[i] = 0;
            if (!(lq_sight_mask(&see, j0 + i) & 1)) continue;
            const kv_at k = kv_find(&p, seq, kv_head, false, j0 + i);
            float s = 0;
            for (int d = 0; d < c->dk; d++) s += at(q, d) * kv_elem(c, k, d);
            s *= a->scale;
            weight[i] = a->softcap != 0 ? a->softcap * lq_tanhf(s / a->softcap) : s;
            if (a->alibi) weight[i] += lq_alibi(a, head, see.at, j0 + i);
            part_m = weight[i] > part_m ? weight[i] : part_m;
        }
        for (int i = 0; i < n; i++)
            if (lq_sight_mask(&see, j0 + i) & 1) part_l += weight[i] = lq_expf(weight[i] - part_m);
        const float m = part_m > all_m ? part_m : all_m, old = lq_expf(all_m - m), now = lq_expf(part_m - m);
        all_l = all_l * old + part_l * now;
        all_m = m;
        for (int d = 0; d < c->dv; d += DIMS) {
            const int w = c->dv - d < DIMS ? c->dv - d : DIMS;
            float o[DIMS] = {0};
            for (int i = 0; i < n; i++) {
                if (weight[i] == 0) continue; // whatever a position that is not seen holds, it adds nothing
                const kv_at v = kv_find(&p, seq, kv_head, true, j0 + i);
                for (int e = 0; e < w; e++) o[e] += weight[i] * kv_elem(c, v, d + e);
            }
            for (int e = 0; e < w; e++) y[d + e] = y[d + e] * old + o[e] * now;
        }
    }
    float by = 1;
    if (a->sinks) { // one more score, with no V
        const float m = a->sinks[head] > all_m ? a->sinks[head] : all_m;
        by = lq_expf(all_m - m);
        all_l = all_l * by + lq_expf(a->sinks[head] - m);
    }
    by = all_l == 0 ? 0 : by / all_l;
    for (int d = 0; d < c->dv; d++) put(to, d, y[d] * by + 0.0f);
}

// --- element by element ---

LQ_TASK_KERNEL(glu, lq_plain_glu) {
    const int row = (int)lq_task_id();
    if (row >= p.a.y.rows) return;
    const line gate = line_of(&p.a.gate, row), up = line_of(&p.a.up, row), y = line_of(&p.a.y, row);
    for (int i = 0; i < p.a.y.cols; i++) {
        const float u = p.a.up.p ? at(up, i) : 0;
        put(y, i, lq_glu_at(&p.a, at(gate, i), p.a.up.p ? &u : NULL));
    }
    if (p.acts) act_row(&p.act, y, row);
}

LQ_TASK_KERNEL(scale, lq_scale_args) {
    const int row = (int)(lq_task_id() / (size_t)p.x.cols), col = (int)(lq_task_id() % (size_t)p.x.cols);
    if (row < p.x.rows) put(line_of(&p.y, row), col, lq_scale_at(&p, at(line_of(&p.x, row), col), col));
}

LQ_TASK_KERNEL(add, lq_add_args) {
    const int row = (int)(lq_task_id() / (size_t)p.x.cols), col = (int)(lq_task_id() % (size_t)p.x.cols);
    const float by = p.scale != 0 ? p.scale : 1.0f;
    if (row >= p.x.rows) return;
    const line y = line_of(&p.y, row);
    put(y, col, at(y, col) + by * at(line_of(&p.x, row), col));
}

LQ_TASK_KERNEL(gather, lq_gather_args) {
    const int row = (int)(lq_task_id() / (size_t)p.part.cols), col = (int)(lq_task_id() % (size_t)p.part.cols);
    if (row < p.part.rows) put(line_of(&p.whole, row), col, at(line_of(&p.part, row), col));
}

LQ_TASK_KERNEL(mix, lq_mix_args) {
    const int row = (int)(lq_task_id() / (size_t)p.y.cols), col = (int)(lq_task_id() % (size_t)p.y.cols);
    if (row >= p.y.rows) return;
    const float *weight = p.weight ? p.weight + (size_t)row * (size_t)p.top_k : NULL;
    const line y = line_of(&p.y, row);
    float sum = 0;
    for (int s = 0; s < p.top_k; s++) sum += (weight ? weight[s] : 1) * at(line_of(&p.x, row * p.top_k + s), col);
    put(y, col, p.fresh ? sum : at(y, col) + sum);
}

// --- routing ---

LQ_TASK_KERNEL(route, lq_route_args) {
    if (lq_task_id() < (size_t)p.logits.rows) lq_route_row(&p, (int)lq_task_id());
}

// A counting sort by one thread: start[e] runs through the slots of e while they are placed, and so ends where e + 1
// begins.
LQ_TASK_KERNEL(sort, lq_route_args) {
    const int slots = p.logits.rows * p.top_k, experts = p.logits.cols;
    if (lq_task_id()) return;
    for (int e = 0; e <= experts; e++) p.start[e] = 0;
    for (int s = 0; s < slots; s++) p.start[p.expert[s] + 1]++;
    for (int e = 0; e < experts; e++) p.start[e + 1] += p.start[e];
    for (int s = 0; s < slots; s++) p.order[p.start[p.expert[s]]++] = s;
    for (int e = experts; e > 0; e--) p.start[e] = p.start[e - 1];
    p.start[0] = 0;
}

// --- mixers with a state: a column of a sequence; behind the last sequence that column of what is padding ---

LQ_TASK_KERNEL(conv, lq_plain_conv) {
    const lq_conv_args *a = &p.a;
    const int cols = a->x.cols, seq = (int)(lq_task_id() / (size_t)cols), c = (int)(lq_task_id() % (size_t)cols);
    const int past = a->width - 1;
    if (seq > p.rows.seqs) return;
    if (seq == p.rows.seqs) {
        for (int r = lq_rows_real(&p.rows); r < p.rows.n; r++) put(line_of(&a->y, r), c, 0);
        return;
    }
    float *state = a->state + lq_rows_slot(&p.rows, seq) * (size_t)past * (size_t)cols + c;
    const float *w = a->w + (size_t)c * (size_t)a->width;
    for (int r = p.rows.first[seq]; r < p.rows.first[seq + 1]; r++) {
        const float now = at(line_of(&a->x, r), c);
        float sum = a->bias ? a->bias[c] : 0;
        for (int t = 0; t < past; t++) {
            float *s = state + (size_t)t * (size_t)cols;
            sum += w[t] * *s;
            *s = t + 1 < past ? s[cols] : now;
        }
        sum += w[past] * now;
        put(line_of(&a->y, r), c, a->silu ? sum / (1.0f + lq_expf(-sum)) : sum);
    }
}

LQ_TASK_KERNEL(scan, lq_plain_scan) {
    const lq_scan_args *a = &p.a;
    const size_t cols = (size_t)a->heads * (size_t)a->dv, task = lq_task_id() % cols;
    const int seq = (int)(lq_task_id() / cols), head = (int)(task / (size_t)a->dv), c = (int)(task % (size_t)a->dv);
    if (seq > p.rows.seqs) return;
    if (seq == p.rows.seqs) {
        for (int r = lq_rows_real(&p.rows); r < p.rows.n; r++) put(line_of(&a->y, r), (int64_t)task, 0);
        return;
    }
    const int dk = a->dk;
    const size_t group = (size_t)(head / (a->heads / a->groups));
    float *state = a->state + (lq_rows_slot(&p.rows, seq) * (size_t)a->heads + (size_t)head) * (size_t)dk *
                   (size_t)a->dv + c;
    for (int r = p.rows.first[seq]; r < p.rows.first[seq + 1]; r++) {
        const line q = line_from(line_of(&a->q, r), (int64_t)group * dk), log_a = line_of(&a->decay, r),
                   k = line_from(line_of(&a->k, r), (int64_t)group * dk);
        const float v = at(line_of(&a->v, r), (int64_t)task);
        const float beta = a->beta.p ? at(line_of(&a->beta, r), head) : 1.0f;
        const float by = a->decay_per_k ? 1.0f : lq_expf(at(log_a, head));
        float sum = 0;
        for (int i = 0; i < dk; i++) {
            float *s = state + (size_t)i * (size_t)a->dv;
            *s *= a->decay_per_k ? lq_expf(at(log_a, (int64_t)head * dk + i)) : by;
            sum += at(k, i) * *s;
        }
        const float u = beta * (a->delta ? v - sum : v);
        sum = 0;
        for (int i = 0; i < dk; i++) {
            float *s = state + (size_t)i * (size_t)a->dv;
            *s += at(k, i) * u;
            sum += at(q, i) * *s;
        }
        put(line_of(&a->y, r), (int64_t)task, sum);
    }
}

LQ_PLAIN_KERNELS(LQ_LAUNCH)

extern "C" bool lq_plain_prepare(lq_gpu *g, lq_err *err) {
#define LOADED(name, args) if (!lq_gpu_prepare(g, LQ_TASK_ENTRY(name, args), 0, err)) return false;
    LQ_PLAIN_KERNELS(LOADED)
#undef LOADED
    return true;
}
