// writer_commit.c: makes a file of what was added: the header, written into the room that was kept for it, what any
// reader would check, and the name. Refuses more header than there is room.
#include "formats/writer_state.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// A quoted JSON text of `"name":"value"` pairs, as a metadata value.
static void object_add(lq_text *h, const char *key, lq_text *object) {
    lq_text_add(object, "}", 1);
    lq_text_fmt(h, ",\"%s\":", key);
    if (object->failed) h->failed = true;
    else lq_text_json(h, object->p, object->n);
    lq_text_free(object);
}

static void meta_add(const lq_writer *w, lq_text *h, size_t *digits) {
    bool layout = false;
    for (size_t i = 0; i < w->metas; i++) layout |= !strcmp(w->meta[i].key, "lq.layout");
    lq_text_fmt(h, "\"lq.version\":\"0\",\"lq.header\":\"");
    *digits = h->n;
    lq_text_fmt(h, "0000000000000000\"%s", layout ? "" : ",\"lq.layout\":\"any\"");
    lq_text types = {0}, sums = {0};
    lq_text_add(&types, "{", 1);
    for (size_t i = 0; i < w->types; i++) {
        if (i) lq_text_add(&types, ",", 1);
        lq_text_json(&types, w->type[i].key, strlen(w->type[i].key));
        lq_text_fmt(&types, ":\"%s\"", w->type[i].value);
    }
    object_add(h, "lq.types", &types);
    bool first = true;
    lq_text_add(&sums, "{", 1);
    for (size_t i = 0; i < w->entries; i++) {
        const lq_entry *e = &w->entry[i];
        if (lq_name_pads(e->t.name)) continue;
        if (!first) lq_text_add(&sums, ",", 1);
        first = false;
        lq_text_json(&sums, e->t.name, strlen(e->t.name));
        lq_text_fmt(&sums, ":\"%016llx\"", (unsigned long long)e->sum);
    }
    object_add(h, "lq.xxh64", &sums);
}

static void header_build(const lq_writer *w, lq_text *h, size_t *digits) {
    bool meta = w->metas || !w->o.plain;
    lq_text_add(h, "{", 1);
    if (meta) {
        lq_text_fmt(h, "\"__metadata__\":{");
        if (!w->o.plain) meta_add(w, h, digits);
        for (size_t i = 0; i < w->metas; i++) {
            if (i || !w->o.plain) lq_text_add(h, ",", 1);
            lq_text_json(h, w->meta[i].key, strlen(w->meta[i].key));
            lq_text_add(h, ":", 1);
            lq_text_json(h, w->meta[i].value, strlen(w->meta[i].value));
        }
        lq_text_add(h, "}", 1);
    }
    for (size_t i = 0; i < w->entries; i++) {
        const lq_entry *e = &w->entry[i];
        if (i || meta) lq_text_add(h, ",", 1);
        lq_text_json(h, e->t.name, strlen(e->t.name));
        lq_text_fmt(h, ":{\"dtype\":\"%s\",\"shape\":", lq_dtypes[e->t.type].safetensors);
        lq_shape_add(h, &e->t);
        lq_text_fmt(h, ",\"data_offsets\":[%zu,%zu]}", e->at - w->start, e->at - w->start + e->t.bytes);
    }
    lq_text_add(h, "}", 1);
}

static bool header_write(lq_writer *w, lq_err *err) {
    lq_text h = {0};
    uint64_t n = w->start - 8;
    size_t digits = 0;
    header_build(w, &h, &digits);
    bool ok = !h.failed || lq_writer_no_memory(w, err);
    if (ok && h.n > n)
        ok = lq_fail(err, LQ_E_LIMIT, "%s: the header takes %zu bytes, %zu were kept", w->out, h.n, (size_t)n);
    char *room = ok ? malloc((size_t)n) : NULL;
    if (ok && !room) ok = lq_writer_no_memory(w, err);
    if (ok) {
        memset(room, ' ', (size_t)n);
        memcpy(room, h.p, h.n);
        if (!w->o.plain) {
            char text[17];
            snprintf(text, sizeof text, "%016llx", (unsigned long long)lq_header_sum(room, (size_t)n, digits));
            memcpy(room + digits, text, 16);
        }
        ok = lq_disk_write(w, w->data, w->data_path, &n, 8, 0, err) &&
             lq_disk_write(w, w->data, w->data_path, room, (size_t)n, 8, err);
    }
    free(room);
    lq_text_free(&h);
    return ok;
}

bool lq_writer_commit(lq_writer *w, lq_writer_check *check, void *arg, lq_err *err) {
    if (w->failed || w->done)
        return lq_fail(err, LQ_E_IO, "%s: %s", w->out, w->done ? "is committed already" : "an earlier write failed");
    if (!lq_writer_stack_over(w, err) || !header_write(w, err)) return false;
    if (ftruncate(w->data, (off_t)w->at) || fsync(w->data))
        return lq_disk_fail(w, w->data_path, "cannot be synced", err);
    lq_ckpt *c;
    if (!lq_ckpt_open(w->data_path, &c, err)) return lq_fail_in(err, "what was written does not open");
    bool ok = lq_ckpt_verify(c, w->o.tick, w->o.arg, err);
    lq_ckpt_close(c);
    if (!ok) return lq_fail_in(err, "what was written does not read back");
    return (!check || check(arg, w->data_path, err)) && lq_disk_publish(w, err);
}
