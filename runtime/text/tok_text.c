// tok_text.c: UTF-8, bytes as characters, and the growing buffers of the tokenizer.
#include <stdlib.h>
#include <string.h>
#include "runtime/text/tok_text.h"

bool lq_tok_array_room(void **p, size_t *cap, size_t need, size_t size, lq_err *err) {
    if (need <= *cap) return true;
    size_t to = *cap ? *cap : 64, bytes;
    while (to < need) {
        if (!lq_mul_size(to, 2, &to))
            return lq_fail(err, LQ_E_LIMIT, "tokenizer: a text of %zu pieces is too long", need);
    }
    if (!lq_mul_size(to, size, &bytes))
        return lq_fail(err, LQ_E_LIMIT, "tokenizer: a text of %zu pieces is too long", need);
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
    if (!lq_tok_array_room(&p, &b->cap, b->n + more, 1, err)) return false;
    b->p = p;
    return true;
}

bool lq_tok_buf_add(lq_tok_buf *b, const char *p, size_t n, lq_err *err) {
    if (b->max && (n > b->max || b->n > b->max - n))
        return lq_fail(err, LQ_E_LIMIT, "tokenizer: the steps of tokenizer.json make more than %zu bytes of a text",
                       b->max);
    if (!lq_tok_buf_room(b, n, err)) return false;
    if (n) memcpy(b->p + b->n, p, n);
    b->n += n;
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
            if (!lq_tok_buf_add(out, p + done, i - done, err) || !lq_tok_buf_add(out, "\xef\xbf\xbd", 3, err))
                return false;
            done = i + len;
        }
        i += len;
    }
    return !*changed || lq_tok_buf_add(out, p + done, n - done, err);
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

size_t lq_tok_chars_size(const char *p, size_t chars) {
    size_t n = 0, len;
    for (; chars; chars--, n += len) lq_tok_char_get(p + n, &len);
    return n;
}

// --- base64 ---

static int base64_digit(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool lq_tok_base64(const char *p, size_t n, lq_tok_buf *out, lq_err *err) {
    if (n % 4 || !lq_tok_buf_room(out, n / 4 * 3 + 1, err)) return false;
    for (size_t i = 0; i < n; i += 4) {
        const int pad = i + 4 < n || p[i + 3] != '=' ? 0 : p[i + 2] != '=' ? 1 : 2;
        uint32_t bits = 0;
        for (int k = 0; k < 4; k++) {
            const int d = k < 4 - pad ? base64_digit(p[i + (size_t)k]) : 0;
            if (d < 0) return false;
            bits = bits << 6 | (uint32_t)d;
        }
        for (int k = 0; k < 3 - pad; k++) out->p[out->n++] = (char)(bits >> (16 - 8 * k));
    }
    return true;
}
