// test_kv.c: block bookkeeping against a model of it: random begins, growths, trims, forks, ends; every block is always
// either free or counted by the tables that name it, and in the end all come back.
#include "runtime/engine/kv.h"
#include "tests/unit/test.h"

enum { SEQS = 6, LEN = 200, PAGE = 16, BLOCKS = 24, GROUPS = 2 };
static int len[SEQS];
static bool live[SEQS];

static bool consistent(lq_kv *kv) {
    for (int g = 0; g < GROUPS; g++) {
        int users[BLOCKS] = {0}, used = 0;
        for (int s = 0; s < SEQS; s++) {
            int holds = 0;
            for (int b = 0; b < lq_kv_table_stride(kv); b++) {
                const int32_t id = (lq_kv_tables(kv, g) + s * lq_kv_table_stride(kv))[b];
                if (id >= BLOCKS || (id >= 0 && !live[s])) return false;
                if (id >= 0) users[id]++;
                holds += live[s] && id >= 0;
                if (live[s] && g == 0 && (id >= 0) != (b < (len[s] + PAGE - 1) / PAGE)) return false;
            }
            if (live[s] && holds != lq_kv_held(kv, g, s)) return false;
        }
        lq_block_map map;
        lq_kv_map(kv, g, &map);
        for (int b = 0; b < BLOCKS; b++) {
            const lq_block_use use = users[b] > 1 ? LQ_BLOCK_SHARED : users[b] ? LQ_BLOCK_HELD : LQ_BLOCK_FREE;
            used += users[b] > 0;
            if (map.cell[b] != use) return false;
        }
        if (used + lq_kv_free_blocks(kv, g) != BLOCKS || map.count[LQ_BLOCK_FREE] != BLOCKS - used) return false;
    }
    return true;
}

// What a device keeps of the tables when it is brought nothing but rows that changed.
static bool mirrored(lq_kv *kv) {
    static int32_t copy[GROUPS][SEQS * ((LEN + PAGE - 1) / PAGE)];
    static bool begun;
    if (!begun) memset(copy, -1, sizeof copy);
    begun = true;
    const int32_t *rows;
    const int n = lq_kv_changes(kv, &rows), stride = lq_kv_table_stride(kv);
    bool same = n <= SEQS;
    for (int g = 0; g < GROUPS && same; g++) {
        for (int i = 0; i < n; i++)
            memcpy(copy[g] + rows[i] * stride, lq_kv_tables(kv, g) + rows[i] * stride,
                   (size_t)stride * sizeof(int32_t));
        same = !memcmp(copy[g], lq_kv_tables(kv, g), sizeof copy[g]);
    }
    return same;
}

static void random_walk(lq_kv *kv) {
    uint64_t r = 1;
    int refused = 0, forks = 0, owned = 0;
    for (int step = 0; step < 20000; step++) {
        r = r * 6364136223846793005u + 1442695040888963407u;
        const int s = (int)(r >> 40) % SEQS, what = (int)(r >> 50) % 6, n = (int)(r >> 20 & 255) % LEN;
        if (!live[s]) {
            const int got = lq_kv_begin(kv);
            if (got < 0) continue;
            live[got] = true;
            len[got] = 0;
        } else if (what < 2) {
            if (lq_kv_grow(kv, s, len[s] + n / 4, step % 2)) len[s] += n / 4;
            else refused++;
        } else if (what == 2) {
            if (n < len[s]) lq_kv_trim(kv, s, len[s] = n);
        } else if (what == 3) {
            const int f = lq_kv_fork(kv, s, len[s]);
            if (f >= 0) live[f] = true, len[f] = len[s], forks++;
        } else if (what == 4) {
            int32_t src[8], dst[8];
            const int c = lq_kv_own(kv, (int)(r >> 60) % GROUPS, s, len[s] - len[s] % PAGE, len[s], src, dst, 8);
            for (int i = 0; i < c; i++) owned += src[i] != dst[i];
        } else if (what == 5 && step % 3 == 0) {
            lq_kv_end(kv, s);
            live[s] = false;
        } else lq_kv_slide(kv, s, len[s]);
        if (!consistent(kv)) { CHECK(false, "step %d", step); return; }
        if (step % 5 == 0 && !mirrored(kv)) { CHECK(false, "step %d: a row changed that is not among the changes",
                                                    step); return; }
    }
    CHECK(refused > 100 && forks > 100 && owned > 10,
          "%d refused, %d forks, %d copied: the walk does not reach what it should", refused, forks, owned);
}

static void window(void) {
    lq_kv *kv;
    lq_err err;
    CHECK(lq_kv_open(&(lq_kv_opts){.page = 16, .blocks = {8, 8}, .groups = 2, .window = {0, 20}, .max_seqs = 1,
                                   .max_len = 128}, &kv, &err), "%s", err.text);
    const int s = lq_kv_begin(kv);
    for (int n = 1; n <= 128; n++) {
        CHECK(lq_kv_grow(kv, s, n, true), "position %d", n);
        lq_kv_slide(kv, s, n); // the token at n sees n - 19 .. n
        const int first = n - 19 > 0 ? n - 19 : 0;
        for (int p = first; p < n; p++)
            CHECK((lq_kv_tables(kv, 1) + s * lq_kv_table_stride(kv))[p / 16] >= 0, "position %d is gone at length %d",
                  p, n);
    }
    CHECK(lq_kv_free_blocks(kv, 0) == 0, "%d", lq_kv_free_blocks(kv, 0));
    lq_kv_trim(kv, s, 0);
    CHECK(lq_kv_grow(kv, s, 128, false) && lq_kv_held(kv, 0, s) == 8 && lq_kv_held(kv, 1, s) == 0,
          "a window takes blocks before its tokens come");
    CHECK(lq_kv_grow(kv, s, 128, true) && lq_kv_held(kv, 1, s) == 8, "a window finds no blocks");
    lq_kv_slide(kv, s, 128);
    CHECK(lq_kv_free_blocks(kv, 1) >= 5, "a window of 20 holds %d blocks", 8 - lq_kv_free_blocks(kv, 1));
    lq_kv_close(kv);
}

// A map of any number of blocks: cells as even as they can be, each the highest use of its blocks.
static void map(int blocks, int each) {
    lq_kv *kv;
    lq_err err;
    lq_block_map got;
    CHECK(lq_kv_open(&(lq_kv_opts){.page = 16, .blocks = {blocks}, .groups = 1, .max_seqs = 2, .max_len = blocks * 16},
                     &kv, &err), "%s", err.text);
    const int a = lq_kv_begin(kv), half = (blocks + 1) / 2, cells = (blocks + each - 1) / each;
    CHECK(lq_kv_grow(kv, a, half * 16, true) && lq_kv_fork(kv, a, 16) >= 0, "%d blocks", blocks);
    const int32_t last = lq_kv_entry(kv, 0, a, half - 1);
    lq_kv_cache(kv, 0, last); // held and cached: held
    lq_kv_map(kv, 0, &got);
    int want[LQ_BLOCK_USES] = {[LQ_BLOCK_FREE] = blocks - half, [LQ_BLOCK_HELD] = half - 1, [LQ_BLOCK_SHARED] = 1};
    CHECK(got.blocks == blocks && got.page == 16 && got.each == each && got.cells == cells && cells <= LQ_BLOCK_CELLS &&
          !memcmp(got.count, want, sizeof want), "%d blocks: %d to a cell, %d cells, %d of %d free", blocks, got.each,
          got.cells, got.count[LQ_BLOCK_FREE], blocks - half);
    for (int c = 0; c < cells; c++)
        CHECK(got.cell[c] == (c * each >= half ? LQ_BLOCK_FREE : c ? LQ_BLOCK_HELD : LQ_BLOCK_SHARED),
              "%d blocks, cell %d: %d", blocks, c, got.cell[c]);
    lq_kv_trim(kv, a, 16);
    lq_kv_map(kv, 0, &got);
    CHECK(got.count[LQ_BLOCK_CACHED] == (half > 1) && got.count[LQ_BLOCK_FREE] == blocks - 1 - (half > 1) &&
          got.cell[last / each] == (last < each ? LQ_BLOCK_SHARED : LQ_BLOCK_CACHED), "%d blocks: %d cached", blocks,
          got.count[LQ_BLOCK_CACHED]);
    lq_kv_close(kv);
}

int main(void) {
    lq_kv *kv;
    lq_err err;
    CHECK(lq_kv_open(&(lq_kv_opts){.page = PAGE, .blocks = {BLOCKS, BLOCKS}, .groups = GROUPS, .window = {0, 0},
                                   .max_seqs = SEQS, .max_len = LEN}, &kv, &err), "%s", err.text);
    random_walk(kv);
    for (int s = 0; s < SEQS; s++)
        if (live[s]) lq_kv_end(kv, s);
    for (int g = 0; g < GROUPS; g++)
        CHECK(lq_kv_free_blocks(kv, g) == BLOCKS, "%d blocks did not come back", BLOCKS - lq_kv_free_blocks(kv, g));
    lq_kv_close(kv);
    CHECK(!lq_kv_open(&(lq_kv_opts){.page = 0, .blocks = {1}, .groups = 1, .max_seqs = 1, .max_len = 1}, &kv, &err) &&
          err.text[0], "page 0");
    window();
    map(2, 1);
    map(LQ_BLOCK_CELLS, 1);
    map(LQ_BLOCK_CELLS + 1, 2);
    map(3 * LQ_BLOCK_CELLS, 3);
    map(5000, 5);
    return test_end();
}
