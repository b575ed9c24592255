// tok_text.c: UTF-8, classes of characters and the growing buffers of the tokenizer.
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include "runtime/tok.h"

static bool array_room(void **p, size_t *cap, size_t need, size_t size, lq_err *err) {
    if (need <= *cap) return true;
    size_t to = *cap ? *cap : 64, bytes;
    while (to < need) {
        if (!lq_mul_size(to, 2, &to)) return lq_fail(err, LQ_E_LIMIT, "tokenizer: a text of %zu pieces is too long", need);
    }
    if (!lq_mul_size(to, size, &bytes)) return lq_fail(err, LQ_E_LIMIT, "tokenizer: a text of %zu pieces is too long", need);
    void *q = realloc(*p, bytes);
    if (!q) return lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for %zu bytes", bytes);
    *p = q;
    *cap = to;
    return true;
}

bool lq_tok_buf_room(lq_tok_buf *b, size_t more, lq_err *err) {
    if (more > LQ_TOK_MAX_TEXT || b->n + more > LQ_TOK_MAX_TEXT) {
        return lq_fail(err, LQ_E_LIMIT, "tokenizer: a text of more than %d bytes", LQ_TOK_MAX_TEXT);
    }
    void *p = b->p;
    if (!array_room(&p, &b->cap, b->n + more, 1, err)) return false;
    b->p = p;
    return true;
}

bool lq_tok_buf_add(lq_tok_buf *b, const char *p, size_t n, lq_err *err) {
    if (!lq_tok_buf_room(b, n, err)) return false;
    if (n) memcpy(b->p + b->n, p, n);
    b->n += n;
    return true;
}

bool lq_tok_spans_add(lq_tok_spans *s, size_t at, size_t end, bool hit, lq_err *err) {
    if (s->n == s->cap) {
        void *p = s->p;
        if (!array_room(&p, &s->cap, s->n + 1, sizeof *s->p, err)) return false;
        s->p = p;
    }
    s->p[s->n++] = (lq_tok_span){at, end, hit};
    return true;
}

bool lq_tok_words_add(lq_tok_words *w, size_t at, size_t end, bool first, lq_err *err) {
    if (at == end) return true;
    if (w->n == w->cap) {
        void *p = w->p;
        if (!array_room(&p, &w->cap, w->n + 1, sizeof *w->p, err)) return false;
        w->p = p;
    }
    w->p[w->n++] = (lq_tok_word){at, end, first};
    return true;
}

bool lq_tok_ids_room(lq_ids *ids, size_t more, lq_err *err) {
    void *p = ids->p;
    if (!array_room(&p, &ids->cap, ids->n + more, sizeof *ids->p, err)) return false;
    ids->p = p;
    return true;
}

char *lq_tok_text_copy(const char *p, size_t n, lq_err *err) {
    char *q = malloc(n + 1);
    if (!q) {
        lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for %zu bytes", n + 1);
        return NULL;
    }
    if (n) memcpy(q, p, n);
    q[n] = 0;
    return q;
}

// --- UTF-8 ---

uint32_t lq_tok_char_get(const char *p, size_t *len) {
    const uint8_t *u = (const uint8_t *)p;
    if (u[0] < 0x80) {
        *len = 1;
        return u[0];
    }
    if (u[0] < 0xe0) {
        *len = 2;
        return (u[0] & 31u) << 6 | (u[1] & 63u);
    }
    if (u[0] < 0xf0) {
        *len = 3;
        return (u[0] & 15u) << 12 | (u[1] & 63u) << 6 | (u[2] & 63u);
    }
    *len = 4;
    return (u[0] & 7u) << 18 | (u[1] & 63u) << 12 | (u[2] & 63u) << 6 | (u[3] & 63u);
}

size_t lq_tok_char_put(uint32_t c, char *p) {
    if (c < 0x80) {
        p[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        p[0] = (char)(0xc0 | c >> 6);
        p[1] = (char)(0x80 | (c & 63));
        return 2;
    }
    if (c < 0x10000) {
        p[0] = (char)(0xe0 | c >> 12);
        p[1] = (char)(0x80 | (c >> 6 & 63));
        p[2] = (char)(0x80 | (c & 63));
        return 3;
    }
    p[0] = (char)(0xf0 | c >> 18);
    p[1] = (char)(0x80 | (c >> 12 & 63));
    p[2] = (char)(0x80 | (c >> 6 & 63));
    p[3] = (char)(0x80 | (c & 63));
    return 4;
}

size_t lq_tok_char_check(const uint8_t *p, size_t n, bool *valid) {
    *valid = false;
    uint8_t lead = p[0], low = 0x80, high = 0xbf;
    size_t need;
    if (lead < 0x80) {
        *valid = true;
        return 1;
    }
    if (lead >= 0xc2 && lead <= 0xdf) need = 1;
    else if (lead >= 0xe0 && lead <= 0xef) {
        need = 2;
        if (lead == 0xe0) low = 0xa0;
        if (lead == 0xed) high = 0x9f;
    } else if (lead >= 0xf0 && lead <= 0xf4) {
        need = 3;
        if (lead == 0xf0) low = 0x90;
        if (lead == 0xf4) high = 0x8f;
    } else return 1;
    for (size_t i = 1; i <= need; i++) {
        if (i >= n || p[i] < low || p[i] > high) return i;
        low = 0x80;
        high = 0xbf;
    }
    *valid = true;
    return need + 1;
}

bool lq_tok_utf8_clean(const char *p, size_t n, lq_tok_buf *out, bool *changed, lq_err *err) {
    const uint8_t *u = (const uint8_t *)p;
    size_t done = 0, i = 0;
    *changed = false;
    while (i < n) {
        uint64_t eight;
        if (i + 8 <= n && (memcpy(&eight, u + i, 8), !(eight & 0x8080808080808080u))) {
            i += 8;
            continue;
        }
        bool valid;
        size_t len = lq_tok_char_check(u + i, n - i, &valid);
        if (!valid) {
            *changed = true;
            if (!lq_tok_buf_add(out, p + done, i - done, err) || !lq_tok_buf_add(out, "\xef\xbf\xbd", 3, err)) return false;
            done = i + len;
        }
        i += len;
    }
    return !*changed || lq_tok_buf_add(out, p + done, n - done, err);
}

// --- classes ---

static bool char_is_space(uint32_t c) {
    if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
           c == 0x3000;
}

static bool char_is_word(uint32_t c, utf8proc_category_t k) {
    if (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_NL) return true; // letters, marks, Nd, Nl
    if (k == UTF8PROC_CATEGORY_PC || c == 0x200c || c == 0x200d) return true;
    return (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
}

// The reference's list of punctuation is of Unicode 7: what became it since is none, and two characters were.
static bool char_is_punctuation(uint32_t c, utf8proc_category_t k) {
    static const uint32_t later[][2] = {
        {0x61d, 0x61d}, {0x9fd, 0x9fd}, {0xa76, 0xa76}, {0xc77, 0xc77}, {0xc84, 0xc84}, {0x1b7d, 0x1b7e}, {0x2e43, 0x2e4f}, {0x2e52, 0x2e5d},
        {0x10ead, 0x10ead}, {0x10f55, 0x10f59}, {0x10f86, 0x10f89}, {0x1144b, 0x1144f}, {0x1145a, 0x1145b}, {0x1145d, 0x1145d},
        {0x11660, 0x1166c}, {0x116b9, 0x116b9}, {0x1183b, 0x1183b}, {0x11944, 0x11946}, {0x119e2, 0x119e2}, {0x11a3f, 0x11a46},
        {0x11a9a, 0x11a9c}, {0x11a9e, 0x11aa2}, {0x11b00, 0x11b09}, {0x11c41, 0x11c45}, {0x11c70, 0x11c71}, {0x11ef7, 0x11ef8},
        {0x11f43, 0x11f4f}, {0x11fff, 0x11fff}, {0x12ff1, 0x12ff2}, {0x16e97, 0x16e9a}, {0x16fe2, 0x16fe2}, {0x1e95e, 0x1e95f},
    };
    if (c < 0x80) return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
    if (k < UTF8PROC_CATEGORY_PC || k > UTF8PROC_CATEGORY_PO) return c == 0x166d || c == 0x111c9;
    for (size_t i = 0; i < sizeof later / sizeof *later; i++) {
        if (c >= later[i][0] && c <= later[i][1]) return false;
    }
    return true;
}

bool lq_tok_char_is(uint32_t c, lq_tok_class k) {
    if (k == LQ_TOK_SPACE) return char_is_space(c);
    utf8proc_category_t g = utf8proc_category((utf8proc_int32_t)c);
    switch (k) {
    case LQ_TOK_NUMERIC: return g >= UTF8PROC_CATEGORY_ND && g <= UTF8PROC_CATEGORY_NO;
    case LQ_TOK_PUNCTUATION: return char_is_punctuation(c, g);
    case LQ_TOK_MARK: return g >= UTF8PROC_CATEGORY_MN && g <= UTF8PROC_CATEGORY_ME;
    case LQ_TOK_WORD: return char_is_word(c, g);
    default: return false;
    }
}

// --- bytes as characters ---

// The bytes that have no printable character of their own take 256, 257, ... in order: 0-32, 127-160, 173.
uint32_t lq_tok_byte_char(uint8_t b) {
    if (b <= 32) return 256u + b;
    if (b >= 127 && b <= 160) return 256u + 33 + (b - 127u);
    if (b == 173) return 256u + 33 + 34;
    return b;
}

int lq_tok_char_byte(uint32_t c) {
    if (c < 256) return c <= 32 || (c >= 127 && c <= 160) || c == 173 ? -1 : (int)c;
    c -= 256;
    if (c <= 32) return (int)c;
    if (c < 33 + 34) return (int)(c - 33 + 127);
    return c == 33 + 34 ? 173 : -1;
}

bool lq_tok_bytes_map(const char *p, size_t n, lq_tok_buf *out, lq_err *err) {
    if (!lq_tok_buf_room(out, 2 * n, err)) return false;
    for (size_t i = 0; i < n; i++) out->n += lq_tok_char_put(lq_tok_byte_char((uint8_t)p[i]), out->p + out->n);
    return true;
}
