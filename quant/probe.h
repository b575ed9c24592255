// probe.h: how far a model's probabilities go from its own when some of its matrices are exchanged, or layers left out.
#ifndef LQ_PROBE_H
#define LQ_PROBE_H
#include "quant/stream.h"

typedef struct lq_probe lq_probe;
// Runs `text` through the model as it is, and keeps what it says of the last half of each sequence. on: it runs there,
// as that device is; NULL: on a CPU, exactly.
bool lq_probe_open(const char *in, const lq_calib *text, lq_dev *on, int threads, lq_probe **out, lq_err *err);
void lq_probe_close(lq_probe *p);
lq_dev *lq_probe_dev(const lq_probe *p);                // where the model runs
size_t lq_probe_bytes(const lq_calib *text, int vocab); // of what is kept
enum { LQ_PROBES = 16 };                                // sequences of the text, at most
void lq_probe_fit(lq_calib *text, int vocab);           // and no more than what is kept of them has room
// Matrix `at` of a stack, or a matrix, becomes `w` until lq_probe_restore; layer -1: of those beside the layers. It
// lies with the host, and lives as long.
bool lq_probe_put(lq_probe *p, int layer, lq_role role, int at, const lq_weight *w, lq_err *err);
void lq_probe_restore(lq_probe *p);
// The residual passes a layer by, or goes through it again.
void lq_probe_skip(lq_probe *p, int layer, bool skip);
// The mean KL divergence of what the model says now from what it said, in nats.
bool lq_probe_kld(lq_probe *p, double *out, lq_err *err);
#endif
