// fold_model.c: a model whose inputs were all multiplied by factors between 1/4 and 4, wherever they can be folded, in
// f32: it computes what it did. Prints how many inputs of layers there are, and how many were folded.
//   fold_model MODEL OUT.lq
#include "formats/writer.h"
#include "quant/pass.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t state = 1;

static float factor(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return exp2f((float)(state >> 40) / (float)(1 << 22) - 2);
}

static bool fold(lq_block *b, int input, lq_err *err) {
    const int64_t k = b->input[input].k;
    const bool each = lq_fold_each(b, input);
    float *f = malloc((size_t)k * sizeof *f);
    bool done = f;
    for (int e = 0; done && e < (each ? b->input[input].count : 1); e++) {
        for (int64_t j = 0; j < k; j++) f[j] = factor();
        lq_fold_even(b, input, f);
        done = lq_fold(b, input, each ? e : -1, f, err);
    }
    free(f);
    return done;
}

static bool put(const lq_plan *p, lq_dev *dev, lq_writer *w, lq_block *b, lq_module *m, lq_err *err) {
    const lq_slot *s = &m->it->slot;
    const int64_t shape[] = {s->count, s->n};
    if (!s->k) {
        const float *v = lq_block_vector(b, m, err);
        return v && lq_writer_add(w, s->name, LQ_F32, s->count ? 2 : 1, shape + !s->count, v, err);
    }
    void *buf = aligned_alloc(64, (lq_module_bytes(&m->it->recipe.type, s->n, s->k) + 63) & ~(size_t)63);
    bool done = buf && (!s->count || lq_writer_stack(w, s->name, &m->it->recipe.type, s->count, s->n, s->k, err));
    for (int i = 0; done && i < (s->count ? s->count : 1); i++) {
        lq_made x = {.recipe = m->it->recipe};
        done = lq_module_make(p, dev, m, i, NULL, buf, NULL, NULL, &x, err) &&
               (s->count ? lq_writer_stack_put(w, &x.out, err) : lq_writer_weight(w, s->name, &x.out, err));
        lq_ckpt_done(p->in, &x.src);
    }
    free(buf);
    return done;
}

static bool run(const lq_plan *p, lq_dev *dev, lq_writer *w, lq_err *err) {
    int all = 0, folded = 0;
    bool done = true;
    for (size_t i = 0; done && i < p->blocks; i++) {
        lq_block b;
        done = lq_block_open(p, i, &b, err);
        for (int k = 0; done && b.layer >= 0 && k < b.inputs; k++, all++) {
            if (!lq_fold_can(&b, k)) continue;
            done = fold(&b, k, err);
            folded++;
        }
        for (int k = 0; done && k < b.modules; k++)
            if (b.module[k].it->slot.role != LQ_ROLES) done = put(p, dev, w, &b, &b.module[k], err);
        lq_block_close(&b);
    }
    printf("%d %d\n", all, folded);
    return done;
}

int main(int argc, char **argv) {
    lq_err err = {0};
    lq_plan p;
    lq_dev *dev = NULL;
    lq_writer *w = NULL;
    if (argc != 3) return 2;
    const lq_quant_opts o = {.in = argv[1], .out = argv[2], .method = "rtn", .type = "f32", .head = "f32",
                             .embed = "f32", .recipe = "{\"transform\": \"awq\"}", .overwrite = true, .report = "-"};
    bool done = lq_plan_make(&o, &p, &err) && lq_dev_open("cpu", &(lq_dev_opts){.threads = 1}, &dev, &err) &&
                lq_writer_open(&(lq_writer_opts){.out = argv[2], .fingerprint = p.fingerprint, .overwrite = true,
                                                 .header_room = p.header_room}, &w, &err);
    for (size_t i = 0; done && lq_side_files[i]; i++) {
        char name[64];
        lq_bytes file;
        snprintf(name, sizeof name, "lq.file/%s", lq_side_files[i]);
        done = lq_ckpt_file(p.in, lq_side_files[i], &file, &err) &&
               (!file.p || lq_writer_add(w, name, LQ_U8, 1, (int64_t[]){(int64_t)file.n}, file.p, &err));
    }
    done = done && lq_writer_meta(w, "lq.arch", p.desc.arch->name, &err) && run(&p, dev, w, &err) &&
           lq_writer_commit(w, NULL, NULL, &err);
    if (w) lq_writer_close(w, !done);
    if (dev) lq_dev_close(dev);
    lq_plan_free(&p);
    if (!done) fprintf(stderr, "fold_model: %s\n", err.text);
    return !done;
}
