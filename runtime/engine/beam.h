// beam.h: beam search: of all answers those that the model finds likeliest as a whole, as far as `beams` beginnings at
// a time can see. A search is a row of requests of the engine: each round one for each beginning, which finds all but
// its last token in the prefix cache and draws one token, with the likeliest ones beside it. What comes of a round is
// chosen when its last request has ended, on the engine's thread.
#ifndef LQ_BEAM_H
#define LQ_BEAM_H
#include "runtime/engine/request.h"

typedef struct lq_beam { // what the engine knows of a search; it stays while one of its requests does
    _Atomic int refs;
    uint64_t id;              // of its first request, and so the caller's
    double arrived, until;    // of the whole
    _Atomic bool cancelled;
} lq_beam;

bool lq_beam_submit(lq_engine *e, const lq_request *r, uint64_t *id, lq_err *err);
void lq_beam_release(lq_beam *b);
// Whether it is a later round of one.
static inline bool lq_beam_goes_on(const lq_req *q) { return q->beam && q->beam->id != q->id; }
// engine.c: a request of a search.
bool lq_engine_submit(lq_engine *e, const lq_request *r, lq_beam *of, uint64_t *id, lq_err *err);
int lq_engine_ctx(const lq_engine *e);
#endif
