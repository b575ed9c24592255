// kv_blocks.c: a sequence that is put aside: its blocks go to the host (lq_kv_out), the cache is overwritten, and they
// come back in other blocks (lq_kv_in); what follows has the same bits as if nothing had happened. And what is left out
// is missed.
//   kv_blocks MODEL cpu|cuda KV exact|default
#include "runtime/model/model.h"
#include "tests/unit/test.h"
#include <stdlib.h>
#include <string.h>

enum { N = 41, MORE = 3, PAGE = 16, HELD = (N + MORE + PAGE - 1) / PAGE, BLOCKS = 2 * HELD };
typedef struct world {
    lq_model *m;
    lq_buffers *b;
    lq_kvpool kv;
    int32_t ids[N], seq[N], at[N], table[BLOCKS];
    float *logits; // [MORE][vocab]
} world;

static bool on_logits(void *arg, int out, const float *logits) {
    world *w = arg;
    (void)out;
    memcpy(w->logits, logits, (size_t)w->m->desc.vocab * sizeof *logits);
    return true;
}

// Rows from .. from + n - 1; the logits of the last.
static void step(world *w, int from, int n) {
    lq_err err = {0};
    const int32_t first[] = {0, n}, slot[] = {0}, changed[] = {0}, out[] = {n - 1};
    for (int i = 0; i < n; i++) w->at[i] = from + i, w->ids[i] = ((from + i) * 37 + 11) % 200;
    lq_step s = {.batch = {.ids = w->ids, .max_at = from + n - 1, .changed = changed, .changes = 1, .out = out,
                           .outs = 1, .rows = {.n = n, .seqs = 1, .seq = w->seq, .pos = w->at, .at = w->at,
                                               .first = first, .slot = slot, .table_stride = BLOCKS}},
                 .on_logits = on_logits, .arg = w};
    for (int g = 0; g < LQ_KV_GROUPS; g++) s.batch.tables[g] = w->table;
    CHECK(lq_step_run(w->m, w->b, &w->kv, &s, &err), "%s", err.text);
}

// A prefill, what is done to the cache, and some tokens more.
typedef enum harm { NOTHING, ASIDE, LOST, ONE_LOST } harm;
static void follow(world *w, harm what, float *logits) {
    lq_err err = {0};
    int32_t old[HELD], fresh[HELD], all[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) all[i] = i, w->table[i] = (i + 2) % BLOCKS;
    for (int i = 0; i < HELD; i++) old[i] = w->table[i], fresh[i] = (old[i] + HELD) % BLOCKS;
    w->logits = logits;
    step(w, 0, N);
    for (int g = 0; g < w->m->desc.groups && what; g++) {
        const size_t bytes = lq_kv_block_bytes(w->m, &w->kv, g);
        char *aside = malloc(HELD * bytes), *spoilt = malloc(BLOCKS * bytes);
        CHECK(bytes == lq_kv_token_bytes(w->m, g) * PAGE, "%zu bytes of a block, %zu of a token", bytes,
              lq_kv_token_bytes(w->m, g));
        lq_kv_out(w->m, &w->kv, g, HELD, old, aside);
        CHECK(w->m->dev->ops.sync(w->m->dev, &err), "%s", err.text);
        memset(spoilt, 0x3c, BLOCKS * bytes);
        lq_kv_in(w->m, &w->kv, g, BLOCKS, all, spoilt);
        if (what != LOST) lq_kv_in(w->m, &w->kv, g, HELD - (what == ONE_LOST), fresh, aside);
        CHECK(w->m->dev->ops.sync(w->m->dev, &err), "%s", err.text);
        free(aside);
        free(spoilt);
    }
    for (int i = 0; i < HELD && what; i++) w->table[i] = fresh[i];
    for (int i = 0; i < MORE; i++, w->logits += w->m->desc.vocab) step(w, N + i, 1);
}

int main(int argc, char **argv) {
    lq_err err = {0};
    world w = {0};
    int blocks[LQ_KV_GROUPS];
    if (argc != 5) return 2;
    for (int g = 0; g < LQ_KV_GROUPS; g++) blocks[g] = BLOCKS;
    const lq_model_opts o = {.device = argv[2], .threads = 1, .kv = argv[3], .exact = !strcmp(argv[4], "exact")};
    CHECK(lq_model_open(argv[1], &o, &w.m, &err), "%s", err.text);
    if (!w.m) return test_end();
    CHECK(lq_kvpool_open(w.m, PAGE, blocks, &w.kv, &err), "%s", err.text);
    CHECK(lq_buffers_open(w.m, &(lq_buffer_sizes){.rows = N, .outs = 1, .max_len = PAGE * BLOCKS, .slots = 1,
                                                  .table_stride = BLOCKS}, &w.b, &err), "%s", err.text);
    const size_t cells = MORE * (size_t)w.m->desc.vocab;
    float *logits[4];
    for (int i = NOTHING; i <= ONE_LOST; i++) {
        logits[i] = malloc(cells * sizeof *logits[i]);
        follow(&w, (harm)i, logits[i]);
    }
    CHECK(!memcmp(logits[NOTHING], logits[ASIDE], cells * sizeof(float)), "other logits behind what came back");
    CHECK(memcmp(logits[NOTHING], logits[LOST], cells * sizeof(float)), "lost blocks are not missed");
    CHECK(memcmp(logits[NOTHING], logits[ONE_LOST], cells * sizeof(float)), "a lost block is not missed");
    for (int i = NOTHING; i <= ONE_LOST; i++) free(logits[i]);
    lq_buffers_close(w.m, w.b);
    lq_kvpool_close(w.m, &w.kv);
    lq_model_close(w.m);
    return test_end();
}
