// tok_charsmap.c: sentencepiece's normalization: a table of what beginnings of texts become (a double array, then the
// texts), as its own normalizer uses it and as the `tokenizers` library does, which is something else.
// Refuses tables whose parts do not fit into their bytes; where the array leads out of itself there is no match.
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include "runtime/text/tok.h"

enum { RULE_MAX = 256, CLUSTER_MAX = 6 }; // bytes that a rule, a cluster of the library's, may have

// --- the table ---

bool lq_tok_charsmap_read(const char *p, size_t n, lq_tok_charsmap *m, const char *what, lq_err *err) {
    uint8_t head[4];
    if (!n) return true;
    if (n >= 4) memcpy(head, p, 4);
    const size_t bytes = n < 4 ? 0 : head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24;
    if (n < 4 || bytes < 4 || bytes % 4 || bytes >= n - 4)
        return lq_fail(err, LQ_E_FORMAT, "%s: precompiled_charsmap: %zu bytes that hold no table", what, n);
    m->units = bytes / 4;
    m->text_n = n - 4 - bytes;
    m->unit = malloc(bytes);
    m->text = lq_tok_text_copy(p + 4 + bytes, m->text_n, err);
    if (!m->unit || !m->text) return lq_fail(err, LQ_E_MEMORY, "%s: no memory for its precompiled_charsmap", what);
    for (size_t i = 0; i < m->units; i++) {
        const uint8_t *u = (const uint8_t *)p + 4 + 4 * i;
        m->unit[i] = u[0] | (uint32_t)u[1] << 8 | (uint32_t)u[2] << 16 | (uint32_t)u[3] << 24;
    }
    for (size_t i = 0, len; i < m->text_n; i += len) {
        bool valid;
        len = lq_tok_char_check((const uint8_t *)m->text + i, m->text_n - i, &valid);
        if (!valid) return lq_fail(err, LQ_E_FORMAT, "%s: precompiled_charsmap: byte %zu of its texts is not UTF-8", what, i);
    }
    return true;
}

void lq_tok_charsmap_free(lq_tok_charsmap *m) {
    free(m->unit);
    free(m->text);
}

// Where the children of a unit begin, relative to it.
static uint32_t unit_offset(uint32_t u) { return u >> 10 << (u >> 6 & 8); }

// The shortest or the longest rule that p begins with: how many bytes it takes, and what they become. 0: none.
static size_t rule_find(const lq_tok_charsmap *m, const char *p, size_t n, bool longest, const char **to) {
    size_t found = 0;
    if (!m->units) return 0;
    size_t at = unit_offset(m->unit[0]);
    for (size_t i = 0; i < n && i < RULE_MAX && p[i]; i++) {
        at ^= (uint8_t)p[i];
        if (at >= m->units || (m->unit[at] & 0x800000ffu) != (uint8_t)p[i]) break;
        const bool leaf = m->unit[at] >> 8 & 1;
        at ^= unit_offset(m->unit[at]);
        if (!leaf) continue;
        const size_t value = at < m->units ? m->unit[at] & 0x7fffffffu : SIZE_MAX;
        if (value >= m->text_n) continue;
        if (value && ((uint8_t)m->text[value] & 0xc0) == 0x80) continue; // the middle of a character
        *to = m->text + value;
        found = i + 1;
        if (!longest) break;
    }
    return found;
}

// --- as the library does it ---

static bool library_char(const lq_tok_charsmap *m, const char *p, size_t n, bool *done, lq_tok_buf *out, lq_err *err) {
    const char *to;
    *done = rule_find(m, p, n, false, &to) > 0;
    return !*done || lq_tok_buf_add(out, to, strlen(to), err);
}

// Where the lead ends once what begins the text at `at` became nothing: the library forgets these characters, so that
// those behind them stand for them.
static size_t lead_move(const char *p, size_t n, size_t at, size_t end, size_t lead) {
    for (size_t len, on; at < end && lead < n; at += len, lead += on) {
        lq_tok_char_get(p + at, &len);
        lq_tok_char_get(p + lead, &on);
    }
    return lead;
}

// Cluster by cluster: a short one becomes as a whole what its shortest beginning does; else each character for itself.
bool lq_tok_charsmap_run(const lq_tok_charsmap *m, const char *p, size_t n, lq_tok_buf *out, size_t *lead,
                         lq_err *err) {
    size_t len, end, had = *lead;
    bool done;
    for (size_t at = 0; at < n; at = end) {
        utf8proc_int32_t state = 0, c = (utf8proc_int32_t)lq_tok_char_get(p + at, &len);
        for (end = at + len; end < n; end += len) {
            const utf8proc_int32_t next = (utf8proc_int32_t)lq_tok_char_get(p + end, &len);
            if ((c < 0x80 && next < 0x80 && c != '\r') || utf8proc_grapheme_break_stateful(c, next, &state)) break;
            c = next;
        }
        done = false;
        if (end - at < CLUSTER_MAX && !library_char(m, p + at, end - at, &done, out, err)) return false;
        if (done && had && !out->n) had = lead_move(p, n, at, end, had);
        if (at < had) *lead = out->n;
        for (size_t i = at; !done && i < end; i += len) {
            bool mapped;
            lq_tok_char_get(p + i, &len);
            if (!library_char(m, p + i, len, &mapped, out, err)) return false;
            if (!mapped && !lq_tok_buf_add(out, p + i, len, err)) return false;
            if (had && !out->n) had = lead_move(p, n, i, i + len, had);
            if (i < had) *lead = out->n;
        }
    }
    return true;
}

// --- as sentencepiece does it ---

// What the beginning of p becomes, and how many of its bytes that takes.
static size_t prefix_find(const lq_tok_norm *o, const lq_tok_tree *user, const char *p, size_t n, const char **to,
                          size_t *to_n) {
    int32_t id;
    size_t len = lq_tok_tree_longest(user, 0, p, n, &id);
    if (!len && (len = rule_find(&o->map, p, n, true, to)) > 0) {
        *to_n = strlen(*to);
        return len;
    }
    if (!len) lq_tok_char_get(p, &len);
    *to = p;
    *to_n = len;
    return len;
}

static bool space_add(const lq_tok_norm *o, lq_tok_buf *out, lq_err *err) {
    return o->escape ? lq_tok_buf_add(out, "\xe2\x96\x81", 3, err) : lq_tok_buf_add(out, " ", 1, err);
}

static bool spaced_add(const lq_tok_norm *o, const char *p, size_t n, lq_tok_buf *out, lq_err *err) {
    while (n) {
        const char *q = o->escape ? memchr(p, ' ', n) : NULL;
        const size_t k = q ? (size_t)(q - p) : n;
        if (!lq_tok_buf_add(out, p, k, err) || (q && !space_add(o, out, err))) return false;
        p += k + (q != NULL);
        n -= k + (q != NULL);
    }
    return true;
}

static void spaces_drop(const lq_tok_norm *o, lq_tok_buf *out) {
    if (o->escape) while (out->n >= 3 && !memcmp(out->p + out->n - 3, "\xe2\x96\x81", 3)) out->n -= 3;
    else while (out->n && out->p[out->n - 1] == ' ') out->n--;
}

bool lq_tok_pieces_run(const lq_tok_norm *o, const lq_tok_tree *user, const char *p, size_t n, bool first,
                       lq_tok_buf *out, lq_err *err) {
    const bool dummy = o->dummy && (first || o->always);
    const char *to;
    size_t at = 0, len, to_n;
    while (o->squeeze && at < n) {
        len = prefix_find(o, user, p + at, n - at, &to, &to_n);
        if (to_n != 1 || *to != ' ') break;
        at += len;
    }
    if (at == n) return true;
    if (dummy && !o->behind && !space_add(o, out, err)) return false;
    for (bool spaced = o->squeeze; at < n; at += len) {
        len = prefix_find(o, user, p + at, n - at, &to, &to_n);
        while (spaced && to_n && *to == ' ') to++, to_n--;
        if (!to_n) continue;
        if (!spaced_add(o, to, to_n, out, err)) return false;
        spaced = o->squeeze && to[to_n - 1] == ' ';
    }
    if (o->squeeze) spaces_drop(o, out);
    return !dummy || !o->behind || space_add(o, out, err);
}
