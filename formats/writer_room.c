// writer_room.c: how much of a header the names and types of a file can take: what a writer keeps free before it knows
// them all. Owns nothing.
#include "formats/parts.h"
#include "formats/writer.h"
#include "formats/json.h"
#include <stdio.h>
#include <string.h>

// Bytes of a name in the header, and quoted within a quoted text.
static size_t name_room(const char *name, bool inner) {
    const unsigned char *p = (const unsigned char *)name, *end = p + strlen(name);
    size_t n = (size_t)(end - p) + 2;
    for (size_t len; p < end; p += len ? len : 1) {
        len = lq_utf8_len(p, end);
        if (*p == '"' || *p == '\\') n += inner ? 3 : 1;
        else if (len && lq_utf8_unseen(p, len)) n += (inner ? 7 : 6) - len; // \u202e
    }
    return inner ? n + 2 : n;
}

size_t lq_writer_entry_room(const char *name) {
    // Beside its name: the entry (252), its checksum (26) and the padding before it (140).
    return name_room(name, false) + name_room(name, true) + 418;
}

size_t lq_writer_type_room(const char *name) { return name_room(name, true) + 140; }

size_t lq_writer_weight_room(const char *name, const lq_wtype *t) {
    if (t->kind == LQ_W_PLAIN) return lq_writer_entry_room(name);
    char full[LQ_NAME + 16];
    size_t n = lq_writer_type_room(name);
    for (lq_part_id i = 0; i < LQ_PARTS; i++) {
        snprintf(full, sizeof full, "%.*s%s", LQ_NAME, name, lq_part_suffix(i)); // a longer name will be refused
        if (lq_part_may(i, t)) n += lq_writer_entry_room(full);
    }
    return n;
}
