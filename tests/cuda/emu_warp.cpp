// emu_warp.cpp: what a warp does together (shuffles, votes, ldmatrix, mma: 32 lanes meet, the last one does the work),
// and asynchronous copies, which are as late as the rules let them be: the place holds NaN and may not be touched until
// it is waited for.
#include "tests/cuda/emu_state.h"
#include <string.h>

namespace emu {
static float bf16(uint32_t bits) {
    const uint32_t u = bits << 16;
    float x;
    memcpy(&x, &u, 4);
    return x;
}

static void shuffle(warp &w) {
    for (int l = 0; l < 32; l++) {
        int from;
        memcpy(&from, w.in[l] + 4, 4);
        memcpy(w.out[l], w.in[from], 4);
    }
}

static void ballot(warp &w) {
    uint32_t all = 0;
    for (int l = 0; l < 32; l++) all |= (uint32_t)(w.in[l][0] != 0) << l;
    for (int l = 0; l < 32; l++) memcpy(w.out[l], &all, 4);
}

static void elect(warp &w) {
    const uint32_t yes = 1, no = 0, who = draw() % 32;
    for (uint32_t l = 0; l < 32; l++) memcpy(w.out[l], l == who ? &yes : &no, 4);
}

static void ldmatrix(warp &w, bool trans) {
    smem rows[32];
    const uint32_t first = me->seen.index.x / 32 * 32;
    for (uint32_t l = 0; l < 32; l++) {
        memcpy(&rows[l], w.in[l], 4);
        if (!shared_touched(rows[l], 16, READ, first + l, w.place)) stop();
    }
    matrix_requested(rows, w.place);
    for (int m = 0; m < 4; m++)
        for (int l = 0; l < 32; l++)
            for (int h = 0; h < 2; h++) {
                const int r = trans ? 2 * (l % 4) + h : l / 4, c = trans ? l / 4 : 2 * (l % 4) + h;
                memcpy(w.out[l] + 4 * m + 2 * h, home->shared + (rows[8 * m + r] & ~1u) + 2 * c, 2);
            }
}

// A step of k16 is summed in double and rounded once; a GPU may cut bits off on the way.
static void mma_of_bf16(warp &w) {
    float a[16][16], b[16][8], c[16][8];
    for (int l = 0; l < 32; l++) {
        uint32_t v[6];
        float s[4];
        const int g = l / 4, t = l % 4;
        memcpy(v, w.in[l], sizeof v);
        memcpy(s, w.in[l] + sizeof v, sizeof s);
        for (int h = 0; h < 2; h++) {
            for (int i = 0; i < 4; i++) a[g + 8 * (i & 1)][2 * t + h + 8 * (i >> 1)] = bf16(v[i] >> 16 * h & 0xffff);
            for (int i = 0; i < 2; i++) b[2 * t + h + 8 * i][g] = bf16(v[4 + i] >> 16 * h & 0xffff);
        }
        for (int i = 0; i < 4; i++) c[g + 8 * (i >> 1)][2 * t + (i & 1)] = s[i];
    }
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            double sum = c[i][j];
            for (int k = 0; k < 16; k++) sum += (double)a[i][k] * (double)b[k][j];
            c[i][j] = (float)sum;
        }
    for (int l = 0; l < 32; l++)
        for (int i = 0; i < 4; i++) memcpy(w.out[l] + 4 * i, &c[l / 4 + 8 * (i >> 1)][2 * (l % 4) + (i & 1)], 4);
}

static void mma_of_s8(warp &w) {
    int8_t a[16][32], b[32][8];
    int32_t c[16][8];
    for (int l = 0; l < 32; l++) {
        int8_t v[24];
        const int g = l / 4, t = l % 4;
        memcpy(v, w.in[l], sizeof v);
        for (int e = 0; e < 4; e++) {
            for (int i = 0; i < 4; i++) a[g + 8 * (i & 1)][4 * t + e + 16 * (i >> 1)] = v[4 * i + e];
            for (int i = 0; i < 2; i++) b[4 * t + e + 16 * i][g] = v[16 + 4 * i + e];
        }
        for (int i = 0; i < 4; i++) memcpy(&c[g + 8 * (i >> 1)][2 * t + (i & 1)], w.in[l] + 24 + 4 * i, 4);
    }
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            uint32_t sum = (uint32_t)c[i][j]; // wraps, as the instruction without .satfinite does
            for (int k = 0; k < 32; k++) sum += (uint32_t)(a[i][k] * b[k][j]);
            c[i][j] = (int32_t)sum;
        }
    for (int l = 0; l < 32; l++)
        for (int i = 0; i < 4; i++) memcpy(w.out[l] + 4 * i, &c[l / 4 + 8 * (i >> 1)][2 * (l % 4) + (i & 1)], 4);
}

static void work(warp &w) {
    switch (w.op) {
    case SHUFFLE: shuffle(w); break;
    case BALLOT: ballot(w); break;
    case SYNC:
        w.synced++;
        warp_met();
        break;
    case ELECT: elect(w); break;
    case LDMATRIX: ldmatrix(w, false); break;
    case LDMATRIX_TRANS: ldmatrix(w, true); break;
    case MMA_BF16: mma_of_bf16(w); break;
    case MMA_S8: mma_of_s8(w); break;
    }
}

void collective(warp_op op, const void *in, unsigned in_bytes, void *out, unsigned out_bytes) {
    static const char *const names[] = {"a shuffle", "a vote",   "sync_warp", "ldmatrix",
                                        "ldmatrix",  "mma",      "mma",       "elect_one"};
    void *place = __builtin_return_address(0);
    warp &w = warp_of();
    const int lane = lane_of();
    if (run.how.wrong == LOST_LANE && me->seen.index.x == 39 && ++me->collectives == 3) return;
    if (w.arrived && (w.op != op || w.place != place)) {
        find(DIVERGED, std::string(names[op]) + " meets " + names[w.op] + " of the same warp", place);
        stop();
    }
    w.op = op;
    w.place = place;
    if (in_bytes) memcpy(w.in[lane], in, in_bytes);
    if (++w.arrived < 32) pause(&w.turn, names[op], place);
    else {
        w.arrived = 0;
        work(w);
        w.turn++;
        run.patience = PATIENCE;
    }
    if (out_bytes) memcpy(out, w.out[lane], out_bytes);
}

// --- asynchronous copies ---

void copy_async(smem to, const void *from, unsigned bytes) {
    void *place = __builtin_return_address(0);
    if (run.how.wrong == WHOLE_COPIES) bytes = 16;
    maybe_pause();
    if (!shared_touched(to, 16, WRITE, me->seen.index.x, place)) stop();
    request_made(true, to, 16, true, place);
    if (bytes > 16) find(OUT_OF_BOUNDS, "a copy of " + std::to_string(bytes) + " bytes in 16", place), bytes = 16;
    if ((uintptr_t)from % 16) find(MISALIGNED, global_name(from), place);
    if (bytes) {
        if (!global_touched(from, bytes, READ, place)) bytes = 0;
        else request_made(false, (uint64_t)(uintptr_t)from, 16, false, place);
    }
    memset(home->shared + to, 0xff, 16);
    for (smem i = to / 2; i < to / 2 + 8; i++) home->cells[i].flying = true;
    me->copies.push_back({to, (const unsigned char *)from, bytes, me->group});
}

void copy_commit() { me->group++; }

void copy_wait(int groups) {
    size_t left = 0;
    if (run.how.wrong == WEAK_WAIT) groups++;
    for (const copy &c : me->copies) {
        if (c.group >= me->group - groups) {
            me->copies[left++] = c;
            continue;
        }
        if (c.bytes) memcpy(home->shared + c.to, c.from, c.bytes);
        memset(home->shared + c.to + c.bytes, 0, 16 - c.bytes);
        const stamp now = stamp_of(me->seen.index.x);
        for (smem i = c.to / 2; i < c.to / 2 + 8; i++) {
            cell &x = home->cells[i];
            x.flying = false;
            x.filled = x.generic = true;
            x.written = now;
        }
    }
    me->copies.resize(left);
    maybe_pause();
}
}
