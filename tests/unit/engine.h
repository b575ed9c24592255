// engine.h: an engine in a test: opened, asked, and empty at its end, or the check fails.
#ifndef LQ_TEST_ENGINE_H
#define LQ_TEST_ENGINE_H
#include "runtime/engine/state.h"
#include "tests/unit/test.h"

static inline lq_engine *engine(lq_model *m, lq_engine_opts o) {
    lq_engine *e = NULL;
    lq_err err = {0};
    CHECK(lq_engine_open(m, &o, &e, &err), "%s", err.text);
    return e;
}

static inline void submit(lq_engine *e, const lq_request *r) {
    lq_err err = {0};
    CHECK(lq_submit(e, r, NULL, &err), "%s", err.text);
}

// Nothing runs or waits, and every block came back or is the prefix cache's alone.
static inline void check_empty(lq_engine *e) {
    lq_engine_stats s;
    lq_engine_describe(e, &s);
    CHECK(s.kv_free == s.kv_blocks && !s.running && !s.waiting, "%d of %d blocks free, %d running, %d waiting",
          s.kv_free, s.kv_blocks, s.running, s.waiting);
    for (int g = 0; g < e->m->desc.groups; g++) {
        const int free = lq_kv_free_blocks(e->kv, g), cached = lq_kv_cached(e->kv, g), all = lq_kv_blocks(e->kv, g);
        CHECK(free + cached == all && (!cached || e->caches), "group %d: %d free and %d cached of %d blocks", g, free,
              cached, all);
    }
    lq_block_map map;
    lq_engine_blocks(e, &map);
    CHECK(map.blocks == s.kv_blocks && map.count[LQ_BLOCK_FREE] + map.count[LQ_BLOCK_CACHED] == map.blocks &&
          map.count[LQ_BLOCK_CACHED] == s.kv_cached, "the map has %d of %d blocks free and %d cached",
          map.count[LQ_BLOCK_FREE], map.blocks, map.count[LQ_BLOCK_CACHED]);
}
#endif
