// writer_entries.c: the tensors that a writer has, found by their names, and its lists of
// texts. Owns both on the writer.
#include "formats/writer_state.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

lq_entry *lq_entry_find(const lq_writer *w, const char *name) {
    if (!w->slots) return NULL;
    for (size_t i = XXH64(name, strlen(name), 0) & (w->slots - 1); w->slot[i]; i = (i + 1) & (w->slots - 1))
        if (!strcmp(w->entry[w->slot[i] - 1].t.name, name)) return &w->entry[w->slot[i] - 1];
    return NULL;
}

lq_entry *lq_entry_codes(const lq_writer *w, const char *name) {
    char full[LQ_NAME + 16];
    int n = snprintf(full, sizeof full, "%s%s", name, lq_part_suffix(LQ_PART_Q));
    return n < (int)sizeof full ? lq_entry_find(w, full) : NULL;
}

static void slot_put(lq_writer *w, size_t index) {
    const char *name = w->entry[index].t.name;
    size_t i = XXH64(name, strlen(name), 0) & (w->slots - 1);
    while (w->slot[i]) i = (i + 1) & (w->slots - 1);
    w->slot[i] = (uint32_t)index + 1;
}

static bool slots_build(lq_writer *w, size_t slots) {
    uint32_t *p = calloc(slots, sizeof *p);
    if (!p) return false;
    free(w->slot);
    w->slot = p, w->slots = slots;
    for (size_t i = 0; i < w->entries; i++) slot_put(w, i);
    return true;
}

bool lq_entry_push(lq_writer *w, const lq_entry *e, const char *name) {
    char *own = strdup(name);
    bool ok = own && lq_grow((void **)&w->entry, w->entries, &w->entry_cap, sizeof *w->entry) &&
              ((w->entries + 1) * 2 <= w->slots || slots_build(w, w->slots ? w->slots * 2 : 256));
    if (!ok) return free(own), false;
    w->entry[w->entries] = *e;
    w->entry[w->entries++].t.name = own;
    slot_put(w, w->entries - 1);
    w->pads += lq_name_pads(name);
    return true;
}

void lq_entries_cut(lq_writer *w, size_t entries, size_t types) {
    while (w->entries > entries) {
        const char *name = w->entry[--w->entries].t.name;
        w->pads -= lq_name_pads(name);
        free((void *)(uintptr_t)name);
    }
    for (; w->types > types; w->types--) free(w->type[w->types - 1].key), free(w->type[w->types - 1].value);
    if (w->slots) {
        memset(w->slot, 0, w->slots * sizeof *w->slot);
        for (size_t i = 0; i < w->entries; i++) slot_put(w, i);
    }
}

bool lq_pairs_push(lq_pair **list, size_t *n, size_t *cap, const char *key, const char *value) {
    lq_pair p = {strdup(key), strdup(value)};
    if (!p.key || !p.value || !lq_grow((void **)list, *n, cap, sizeof **list)) return free(p.key), free(p.value), false;
    (*list)[(*n)++] = p;
    return true;
}

bool lq_name_pads(const char *name) { return !strncmp(name, LQ_PAD_PREFIX, strlen(LQ_PAD_PREFIX)); }
