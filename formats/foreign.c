// foreign.c: coded weights of other people's safetensors: stacks in mxfp4 as gpt-oss has them, `W_blocks` (codes of
// fp4, 32 to a block of 16 bytes, in order, the first in the low bits) with `W_scales` (the exponent of each block).
// Their bytes are those of lq's own parts of such a weight in layout any. Owns the names of such weights. A pair whose
// shapes do not go together is left for tensors of their own names.
#include "formats/container.h"
#include "formats/parts.h"
#include <stdlib.h>
#include <string.h>

static const char *const codes = "_blocks", *const scales = "_scales";

// The scales beside a tensor of codes; NULL: there are none, or they do not fit.
static const lq_tensor *partner(const lq_ckpt *c, const lq_tensor *t, size_t *stem) {
    char name[LQ_NAME + 8];
    const size_t n = strlen(t->name), end = strlen(codes);
    if (n <= end || strcmp(t->name + n - end, codes) != 0 || t->type != LQ_U8) return NULL;
    if (t->rank != 4 || t->shape[3] != 16) return NULL;
    memcpy(name, t->name, n - end);
    memcpy(name + n - end, scales, strlen(scales) + 1);
    const lq_tensor *s = lq_ckpt_find(c, name);
    if (!s || s->type != LQ_U8 || s->rank != t->rank - 1) return NULL;
    for (int i = 0; i < s->rank; i++)
        if (s->shape[i] != t->shape[i] || s->shape[i] < 1 || s->shape[i] > INT32_MAX / 32) return NULL;
    *stem = n - end;
    return s;
}

bool lq_foreign_find(lq_ckpt *c, lq_err *err) {
    size_t count = 0, bytes = 0, stem;
    for (size_t i = 0; i < c->count; i++)
        if (partner(c, &c->tensor[i], &stem)) count++, bytes += stem + 1;
    if (!count) return true;
    lq_typed *all = realloc(c->typed, count * sizeof *all);
    if (all) c->typed = all;
    char *at = c->foreign = malloc(bytes);
    if (!all || !at) return lq_fail(err, LQ_E_MEMORY, "%s: no memory for the names of %zu weights", c->path, count);
    for (size_t i = 0; i < c->count; i++) {
        const lq_tensor *t = &c->tensor[i], *s = partner(c, t, &stem);
        if (!s) continue;
        lq_typed *w = &c->typed[c->typeds];
        memcpy(at, t->name, stem);
        at[stem] = 0;
        *w = (lq_typed){.name = at, .layout = LQ_ANY, .count = s->shape[0], .n = s->shape[1],
                        .k = 32 * s->shape[2]};
        at += stem + 1;
        if (lq_ckpt_find(c, w->name))
            return lq_fail(err, LQ_E_FORMAT, "%s: weight %s is there twice", c->path, w->name);
        if (!lq_wtype_parse("mxfp4", &w->type, err)) return false;
        c->typeds++;
    }
    return true;
}

const lq_tensor *lq_foreign_part(const lq_ckpt *c, const char *weight, lq_part_id part) {
    char name[LQ_NAME + 8];
    const size_t n = strlen(weight);
    const char *end = part == LQ_PART_Q ? codes : part == LQ_PART_SCALE ? scales : NULL;
    if (!c->foreign || !end || n + strlen(end) >= sizeof name) return NULL;
    memcpy(name, weight, n);
    memcpy(name + n, end, strlen(end) + 1);
    return lq_ckpt_find(c, name);
}

const lq_typed *lq_ckpt_part_of(const lq_ckpt *c, const char *tensor, bool *has_codes) {
    char name[LQ_NAME];
    const size_t n = strlen(tensor);
    const char *const ends[] = {codes, scales};
    size_t tail = lq_part_tail(tensor);
    for (int i = 0; i < 2 && c->foreign; i++)
        if (n > strlen(ends[i]) && !strcmp(tensor + n - strlen(ends[i]), ends[i])) tail = strlen(ends[i]);
    if (!tail || n - tail >= sizeof name) return NULL;
    memcpy(name, tensor, n - tail);
    name[n - tail] = 0;
    const lq_typed *w = lq_ckpt_typed(c, name);
    *has_codes = w && (!strcmp(tensor + n - tail, lq_part_suffix(LQ_PART_Q)) || !strcmp(tensor + n - tail, codes));
    return w;
}
