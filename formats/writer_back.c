// writer_back.c: weights of a file that is still being written, bound to its own bytes as a checkpoint's are.
#include "formats/writer_state.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// Where the bytes of an entry are mapped. A mapping ends where an entry does; what is written later gets its own.
static const void *entry_map(lq_writer *w, const lq_entry *e, lq_err *err) {
    if (!e->t.bytes) return "";
    for (size_t i = w->spans; i--;)
        if (e->at >= w->span[i].from && e->at + e->t.bytes <= w->span[i].to)
            return w->span[i].p + (e->at - w->span[i].from);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), from = w->spans ? w->span[w->spans - 1].to / page * page : 0;
    if (!lq_grow((void **)&w->span, w->spans, &w->span_cap, sizeof *w->span)) return lq_writer_no_memory(w, err), NULL;
    void *p = mmap(NULL, w->at - from, PROT_READ, MAP_SHARED, w->data, (off_t)from);
    if (p == MAP_FAILED) return lq_fail(err, LQ_E_IO, "%s: cannot be mapped: %s", w->data_path, strerror(errno)), NULL;
    w->span[w->spans++] = (lq_span){p, from, w->at};
    return (const uint8_t *)p + (e->at - from);
}

// Adds a tensor to those that the weight is bound from.
static bool back_add(lq_writer *w, const lq_entry *e, lq_tensor *list, lq_err *err) {
    lq_tensor *t = &list[w->back->count];
    *t = e->t;
    if (!(t->data = entry_map(w, e, err))) return false;
    w->back->count++;
    return true;
}

static bool back_bind(lq_writer *w, const char *name, int count, int64_t n, int64_t k, lq_weight *out, lq_err *err) {
    lq_ckpt *c = w->back;
    bool ok = lq_hashed_build(&c->names, c->tensor, c->count, sizeof *c->tensor) &&
              lq_hashed_build(&c->type_names, c->typed, c->typeds, sizeof *c->typed);
    if (!ok) lq_writer_no_memory(w, err);
    else if (!count) ok = lq_ckpt_weight(c, name, n, k, out, err);
    for (lq_pick p = {.stack = count}; ok && p.at < count; p.at++) {
        ok = snprintf(p.name, sizeof p.name, "%s", name) < (int)sizeof p.name ||
             lq_fail(err, LQ_E_LIMIT, "%s: weight %s: a name too long to be picked by", w->data_path, name);
        ok = ok && lq_ckpt_pick(c, &p, n, k, &out[p.at], NULL, err);
    }
    lq_hashed_free(&c->names);
    lq_hashed_free(&c->type_names);
    return ok;
}

static bool coded_back(lq_writer *w, const char *name, const lq_entry *codes, int count, lq_weight *out, lq_err *err) {
    lq_tensor parts[LQ_PARTS];
    lq_typed type = {.name = name};
    char full[LQ_NAME + 16];
    if (!lq_typed_parse(w->data_path, w->type[codes->type - 1].value, &type, err)) return false;
    type.layout = lq_layout_in(lq_writer_layout(w), &type.type, type.n, type.k);
    for (lq_part_id i = 0; i < LQ_PARTS; i++) {
        if (!lq_part_may(i, &type.type)) continue;
        snprintf(full, sizeof full, "%s%s", name, lq_part_suffix(i));
        const lq_entry *e = lq_entry_find(w, full);
        if (e && !back_add(w, e, parts, err)) return false;
    }
    w->back->tensor = parts, w->back->typed = &type, w->back->typeds = 1;
    return back_bind(w, name, count, type.n, type.k, out, err);
}

static bool plain_back(lq_writer *w, const char *name, const lq_entry *e, int count, lq_weight *out, lq_err *err) {
    lq_tensor t[1];
    const int rank = e->t.rank, more = count != 0;
    if (rank < 1 + 2 * more || rank > 2 + more)
        return lq_fail(err, LQ_E_USAGE, "%s: tensor %s: is no %s", w->data_path, name,
                       count ? "stack" : "matrix or vector");
    if (!back_add(w, e, t, err)) return false;
    w->back->tensor = t;
    return back_bind(w, name, count, t->shape[more], rank == 1 ? 0 : t->shape[rank - 1], out, err);
}

bool lq_writer_weight_back(lq_writer *w, const char *name, int count, lq_weight *out, lq_err *err) {
    const lq_entry *e = lq_entry_find(w, name), *codes = e ? NULL : lq_entry_codes(w, name);
    if (!w->back && !(w->back = lq_ckpt_empty(w->data_path))) return lq_writer_no_memory(w, err);
    if ((w->stack.open && !strcmp(w->stack.name, name)) || (!e && (!codes || !codes->type)))
        return lq_fail(err, LQ_E_USAGE, "%s: weight %s: is not written yet", w->data_path, name);
    bool ok = e ? plain_back(w, name, e, count, out, err) : coded_back(w, name, codes, count, out, err);
    w->back->tensor = NULL, w->back->typed = NULL;
    w->back->count = w->back->typeds = 0;
    return ok;
}

void lq_writer_rest(lq_writer *w) {
    for (size_t i = 0; i < w->spans; i++)
        madvise((void *)(uintptr_t)w->span[i].p, w->span[i].to - w->span[i].from, MADV_DONTNEED);
}
