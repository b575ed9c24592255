// dump_logits.c: the logits of every position of a sequence, or of its last nine, or an embedding of it, raw f32,
// through the public API.
//   dump_logits MODEL IDS(int32 file) OUT CTX ISA|cuda THREADS BATCH exact|default|fast [tail|last|mean]
#include "runtime/lq.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct sink { FILE *f; size_t vocab; } sink;
static bool on(void *arg, size_t at, const float *logits) {
    sink *s = arg;
    (void)at;
    return fwrite(logits, sizeof *logits, s->vocab, s->f) == s->vocab;
}

static bool on_vector(void *arg, const lq_event *e) {
    sink *s = arg;
    return !e->embedding || fwrite(e->embedding, sizeof *e->embedding, (size_t)e->dims, s->f) == (size_t)e->dims;
}

static int fail(const char *what) {
    fprintf(stderr, "dump_logits: %s\n", what);
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 9 && argc != 10)
        return fail("usage: MODEL IDS OUT CTX ISA THREADS BATCH exact|default|fast [tail|last|mean]");
    const char *what = argc == 10 ? argv[9] : "";
    static int32_t ids[1 << 16];
    FILE *in = fopen(argv[2], "rb");
    if (!in) return fail(argv[2]);
    const size_t n = fread(ids, sizeof *ids, sizeof ids / sizeof *ids, in);
    fclose(in);
    lq_err err = {0};
    lq_model *m;
    lq_engine *e;
    lq_model_info info;
    const bool cuda = !strcmp(argv[5], "cuda");
    const lq_model_opts opts = {.ctx = atoi(argv[4]), .device = cuda ? "cuda" : NULL, .isa = cuda ? NULL : argv[5],
                                .threads = atoi(argv[6]), .exact = !strcmp(argv[8], "exact"),
                                .fast = !strcmp(argv[8], "fast")};
    if (!lq_model_open(argv[1], &opts, &m, &err)) return fail(err.text);
    if (!lq_engine_open(m, &(lq_engine_opts){.max_batch = atoi(argv[7]), .max_seqs = 1}, &e, &err))
        return fail(err.text);
    lq_model_describe(m, &info);
    sink s = {fopen(argv[3], "wb"), (size_t)info.vocab};
    if (!s.f) return fail(argv[3]);
    const lq_request r = {.prompt = ids, .prompt_len = n, .on_event = on_vector, .arg = &s,
                          .pool = !strcmp(what, "mean") ? LQ_POOL_MEAN : LQ_POOL_LAST};
    const bool tail = !strcmp(what, "tail"), vector = *what && !tail;
    if (!(vector ? lq_generate(e, &r, &err) : lq_logits(e, ids, n, tail && n > 9 ? n - 9 : 0, on, &s, &err)))
        return fail(err.text);
    fclose(s.f);
    lq_engine_close(e);
    lq_model_close(m);
    return 0;
}
