// tmpl_str.c: strings as Python has them: they are counted and cut in characters, changed to another case with all the
// special cases of Unicode, and escaped where they meet markup. Owns the tables of cases that utf8proc does not have.
#include "runtime/text/tmpl.h"
#include "formats/json.h"
#include <string.h>
#include <utf8proc.h>

// --- characters ---

uint32_t lq_tstr_char(const char *p, size_t *len) { // of valid UTF-8
    const unsigned char *u = (const unsigned char *)p;
    if (u[0] < 0x80) return *len = 1, u[0];
    if (u[0] < 0xe0) return *len = 2, (u[0] & 31u) << 6 | (u[1] & 63u);
    if (u[0] < 0xf0) return *len = 3, (u[0] & 15u) << 12 | (u[1] & 63u) << 6 | (u[2] & 63u);
    return *len = 4, (u[0] & 7u) << 18 | (u[1] & 63u) << 12 | (u[2] & 63u) << 6 | (u[3] & 63u);
}

size_t lq_tstr_put_char(uint32_t c, char *p) {
    if (c < 0x80) return p[0] = (char)c, 1;
    if (c < 0x800) return p[0] = (char)(0xc0 | c >> 6), p[1] = (char)(0x80 | (c & 63)), 2;
    if (c < 0x10000)
        return p[0] = (char)(0xe0 | c >> 12), p[1] = (char)(0x80 | (c >> 6 & 63)), p[2] = (char)(0x80 | (c & 63)), 3;
    p[0] = (char)(0xf0 | c >> 18), p[1] = (char)(0x80 | (c >> 12 & 63));
    p[2] = (char)(0x80 | (c >> 6 & 63)), p[3] = (char)(0x80 | (c & 63));
    return 4;
}

bool lq_tchar_is_space(uint32_t c) {
    if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x1f);
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

bool lq_tchar_is_print(uint32_t c) {
    if (c == ' ') return true;
    switch (utf8proc_category((int32_t)c)) {
    case UTF8PROC_CATEGORY_CN: case UTF8PROC_CATEGORY_CC: case UTF8PROC_CATEGORY_CF: case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO: case UTF8PROC_CATEGORY_ZS: case UTF8PROC_CATEGORY_ZL: case UTF8PROC_CATEGORY_ZP:
        return false;
    default: return true;
    }
}

// --- making strings ---

static size_t count_chars(const char *p, size_t n) {
    size_t chars = 0;
    for (size_t i = 0; i < n; i++) chars += (p[i] & 0xc0) != 0x80;
    return chars;
}

static bool str_of(lq_tm *m, const char *p, size_t n, size_t chars, lq_tv *out) {
    lq_tstr *s = lq_tm_take(m, 1, sizeof *s);
    if (!s) return false;
    *s = (lq_tstr){p, n, chars};
    *out = lq_tv_str(s);
    return true;
}

bool lq_tstr_part(lq_tm *m, const char *p, size_t n, lq_tv *out) {
    return str_of(m, p, n, count_chars(p, n), out) && lq_tm_steps(m, n / 64);
}

bool lq_tstr_const(lq_tm *m, const char *s, lq_tv *out) { return lq_tstr_part(m, s, strlen(s), out); }

bool lq_tstr_new(lq_tm *m, const char *p, size_t n, lq_tv *out) {
    char *to = lq_tm_take_bytes(m, n);
    if (!to) return false;
    if (n) memcpy(to, p, n);
    return lq_tstr_part(m, to, n, out);
}

// Texts are often collected piece by piece: a string grows where it lies if nothing lies behind it, as behind the one
// that was made last. A long one gets room of its own when it has to move.
bool lq_tstr_add(lq_tm *m, const lq_tstr *a, const lq_tstr *b, lq_tv *out) {
    enum { LONG = 1024 };
    const size_t n = a->n + b->n;
    lq_troom last = {m->bytes.at, m->bytes.end}, *room = a->p + a->n == last.at ? &last : NULL;
    if (!lq_tm_steps(m, b->n / 16)) return false;
    for (int i = 0; i < LQ_TM_ROOMS && !room; i++)
        if (a->p + a->n == m->room[i].at) room = &m->room[i];
    if (room && room->at && (size_t)(room->end - room->at) >= b->n) {
        if (b->n) memcpy(room->at, b->p, b->n);
        room->at += b->n;
        if (room == &last) m->bytes.at = room->at;
        return str_of(m, a->p, n, a->chars + b->chars, out);
    }
    const size_t more = n < LONG ? 0 : n / 2;
    char *to = lq_tm_steps(m, a->n / 16) ? lq_tm_take_bytes(m, n + more) : NULL;
    if (!to) return false;
    if (a->n) memcpy(to, a->p, a->n);
    if (b->n) memcpy(to + a->n, b->p, b->n);
    if (more) m->room[m->rooms++ % LQ_TM_ROOMS] = (lq_troom){to + n, to + n + more};
    return str_of(m, to, n, a->chars + b->chars, out);
}

bool lq_tstr_same(const lq_tstr *a, const lq_tstr *b) {
    return a == b || (a->n == b->n && (!a->n || !memcmp(a->p, b->p, a->n)));
}

bool lq_tstr_is(const lq_tstr *s, const char *what) {
    return s->n == strlen(what) && !memcmp(s->p, what, s->n);
}

size_t lq_tstr_at(const lq_tstr *s, size_t chars) {
    if (s->chars == s->n || chars >= s->chars) return chars < s->chars ? chars : s->n;
    size_t at = 0;
    while (chars--)
        do at++;
        while ((s->p[at] & 0xc0) == 0x80);
    return at;
}

const char *lq_tstr_find(const char *p, size_t n, const char *what, size_t w) {
    return w ? memmem(p, n, what, w) : p;
}

// Looks at each place: whoever calls it counts n * w / 64 steps.
const char *lq_tstr_rfind(const char *p, size_t n, const char *what, size_t w) {
    for (size_t at = w <= n ? n - w + 1 : 0; at-- > 0;)
        if (!w || !memcmp(p + at, what, w)) return p + at;
    return NULL;
}

size_t lq_tstr_line_end(const char *p, size_t n, size_t *mark) {
    for (size_t at = 0, len; at < n; at += len) {
        const uint32_t c = lq_tstr_char(p + at, &len);
        if ((c < 10 || c > 13) && (c < 0x1c || c > 0x1e) && c != 0x85 && c != 0x2028 && c != 0x2029) continue;
        *mark = c == '\r' && at + 1 < n && p[at + 1] == '\n' ? 2 : len;
        return at;
    }
    return *mark = 0, n;
}

// --- case ---

// What becomes several characters: in upper case, and at the beginning of a word. U+1F80 to U+1FAF are regular.
static const struct { uint32_t c, upper[3], title[3]; } special[] = {
    {0xdf, {0x53, 0x53}, {0x53, 0x73}}, {0x149, {0x2bc, 0x4e}, {0x2bc, 0x4e}}, {0x1f0, {0x4a, 0x30c}, {0x4a, 0x30c}},
    {0x390, {0x399, 0x308, 0x301}, {0x399, 0x308, 0x301}}, {0x3b0, {0x3a5, 0x308, 0x301}, {0x3a5, 0x308, 0x301}},
    {0x587, {0x535, 0x552}, {0x535, 0x582}}, {0x1e96, {0x48, 0x331}, {0x48, 0x331}},
    {0x1e97, {0x54, 0x308}, {0x54, 0x308}}, {0x1e98, {0x57, 0x30a}, {0x57, 0x30a}},
    {0x1e99, {0x59, 0x30a}, {0x59, 0x30a}}, {0x1e9a, {0x41, 0x2be}, {0x41, 0x2be}},
    {0x1f50, {0x3a5, 0x313}, {0x3a5, 0x313}}, {0x1f52, {0x3a5, 0x313, 0x300}, {0x3a5, 0x313, 0x300}},
    {0x1f54, {0x3a5, 0x313, 0x301}, {0x3a5, 0x313, 0x301}}, {0x1f56, {0x3a5, 0x313, 0x342}, {0x3a5, 0x313, 0x342}},
    {0x1fb2, {0x1fba, 0x399}, {0x1fba, 0x345}}, {0x1fb3, {0x391, 0x399}, {0x1fbc}},
    {0x1fb4, {0x386, 0x399}, {0x386, 0x345}}, {0x1fb6, {0x391, 0x342}, {0x391, 0x342}},
    {0x1fb7, {0x391, 0x342, 0x399}, {0x391, 0x342, 0x345}}, {0x1fbc, {0x391, 0x399}, {0x1fbc}},
    {0x1fc2, {0x1fca, 0x399}, {0x1fca, 0x345}}, {0x1fc3, {0x397, 0x399}, {0x1fcc}},
    {0x1fc4, {0x389, 0x399}, {0x389, 0x345}}, {0x1fc6, {0x397, 0x342}, {0x397, 0x342}},
    {0x1fc7, {0x397, 0x342, 0x399}, {0x397, 0x342, 0x345}}, {0x1fcc, {0x397, 0x399}, {0x1fcc}},
    {0x1fd2, {0x399, 0x308, 0x300}, {0x399, 0x308, 0x300}}, {0x1fd3, {0x399, 0x308, 0x301}, {0x399, 0x308, 0x301}},
    {0x1fd6, {0x399, 0x342}, {0x399, 0x342}}, {0x1fd7, {0x399, 0x308, 0x342}, {0x399, 0x308, 0x342}},
    {0x1fe2, {0x3a5, 0x308, 0x300}, {0x3a5, 0x308, 0x300}}, {0x1fe3, {0x3a5, 0x308, 0x301}, {0x3a5, 0x308, 0x301}},
    {0x1fe4, {0x3a1, 0x313}, {0x3a1, 0x313}}, {0x1fe6, {0x3a5, 0x342}, {0x3a5, 0x342}},
    {0x1fe7, {0x3a5, 0x308, 0x342}, {0x3a5, 0x308, 0x342}}, {0x1ff2, {0x1ffa, 0x399}, {0x1ffa, 0x345}},
    {0x1ff3, {0x3a9, 0x399}, {0x1ffc}}, {0x1ff4, {0x38f, 0x399}, {0x38f, 0x345}},
    {0x1ff6, {0x3a9, 0x342}, {0x3a9, 0x342}}, {0x1ff7, {0x3a9, 0x342, 0x399}, {0x3a9, 0x342, 0x345}},
    {0x1ffc, {0x3a9, 0x399}, {0x1ffc}}, {0xfb00, {0x46, 0x46}, {0x46, 0x66}}, {0xfb01, {0x46, 0x49}, {0x46, 0x69}},
    {0xfb02, {0x46, 0x4c}, {0x46, 0x6c}}, {0xfb03, {0x46, 0x46, 0x49}, {0x46, 0x66, 0x69}},
    {0xfb04, {0x46, 0x46, 0x4c}, {0x46, 0x66, 0x6c}}, {0xfb05, {0x53, 0x54}, {0x53, 0x74}},
    {0xfb06, {0x53, 0x54}, {0x53, 0x74}}, {0xfb13, {0x544, 0x546}, {0x544, 0x576}},
    {0xfb14, {0x544, 0x535}, {0x544, 0x565}}, {0xfb15, {0x544, 0x53b}, {0x544, 0x56b}},
    {0xfb16, {0x54e, 0x546}, {0x54e, 0x576}}, {0xfb17, {0x544, 0x53d}, {0x544, 0x56d}},
};

// Cased characters that are no letters of a case.
static const uint32_t other_lower[][2] = {{0xaa, 0xaa}, {0xba, 0xba}, {0x2b0, 0x2b8}, {0x2c0, 0x2c1}, {0x2e0, 0x2e4},
    {0x345, 0x345}, {0x37a, 0x37a}, {0x1d2c, 0x1d6a}, {0x1d78, 0x1d78}, {0x1d9b, 0x1dbf}, {0x2071, 0x2071},
    {0x207f, 0x207f}, {0x2090, 0x209c}, {0x2170, 0x217f}, {0x24d0, 0x24e9}, {0x2c7c, 0x2c7d}, {0xa69c, 0xa69d},
    {0xa770, 0xa770}, {0xa7f8, 0xa7f9}, {0xab5c, 0xab5f}};
static const uint32_t other_upper[][2] = {{0x2160, 0x216f}, {0x24b6, 0x24cf}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169},
    {0x1f170, 0x1f189}};

static bool among(const uint32_t (*of)[2], size_t n, uint32_t c) {
    for (size_t i = 0; i < n; i++)
        if (c >= of[i][0] && c <= of[i][1]) return true;
    return false;
}

// 'l', 'u', 't', or 0 for a character without a case.
static char case_of(uint32_t c) {
    if (c < 0x80) return c >= 'a' && c <= 'z' ? 'l' : c >= 'A' && c <= 'Z' ? 'u' : '\0';
    const utf8proc_category_t k = utf8proc_category((int32_t)c);
    if (k == UTF8PROC_CATEGORY_LL || among(other_lower, sizeof other_lower / sizeof *other_lower, c)) return 'l';
    if (k == UTF8PROC_CATEGORY_LU || among(other_upper, sizeof other_upper / sizeof *other_upper, c)) return 'u';
    return k == UTF8PROC_CATEGORY_LT ? 't' : '\0';
}

// What may stand in a word without being of it.
static bool case_ignored(uint32_t c) {
    static const uint32_t marks[] = {'\'', '.', ':', 0xb7, 0x387, 0x55f, 0x5f4, 0x2018, 0x2019, 0x2024, 0x2027, 0xfe13,
        0xfe52, 0xfe55, 0xff07, 0xff0e, 0xff1a};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (c == marks[i]) return true;
    const utf8proc_category_t k = utf8proc_category((int32_t)c);
    return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF ||
           k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_SK;
}

// A capital sigma at the end of a word has a small form of its own.
static bool sigma_ends(const char *p, size_t n, size_t at) {
    size_t i = at, len;
    uint32_t c = 0;
    while (i) {
        do i--;
        while (i && (p[i] & 0xc0) == 0x80);
        if (!case_ignored(c = lq_tstr_char(p + i, &len))) break;
        c = 0;
    }
    if (!c || !case_of(c)) return false;
    for (i = at + 2; i < n; i += len)
        if (!case_ignored(c = lq_tstr_char(p + i, &len))) return !case_of(c);
    return true;
}

static size_t to_upper(uint32_t c, bool title, uint32_t to[3]) {
    if (c >= 0x1f80 && c <= 0x1faf) {
        to[0] = title ? c | 8 : (0x1f00 | (c & 7) | 8 | (c < 0x1f90 ? 0 : c < 0x1fa0 ? 0x20 : 0x60));
        to[1] = 0x399;
        return title ? 1 : 2;
    }
    for (size_t i = 0; c >= 0xdf && i < sizeof special / sizeof *special; i++) {
        if (special[i].c != c) continue;
        memcpy(to, title ? special[i].title : special[i].upper, 3 * sizeof *to);
        return to[2] ? 3 : to[1] ? 2 : 1;
    }
    to[0] = (uint32_t)(title ? utf8proc_totitle((int32_t)c) : utf8proc_toupper((int32_t)c));
    return 1;
}

static size_t to_lower(const lq_tstr *s, size_t at, uint32_t c, uint32_t to[3]) {
    if (c == 0x130) return to[0] = 'i', to[1] = 0x307, 2;
    to[0] = c == 0x3a3 && sigma_ends(s->p, s->n, at) ? 0x3c2 : (uint32_t)utf8proc_tolower((int32_t)c);
    return 1;
}

bool lq_tstr_case(lq_tm *m, lq_tv v, lq_tcase to, lq_tv *out) {
    const lq_tstr *s = v.s;
    const size_t from = m->out_n;
    bool inside = false; // of a word
    for (size_t at = 0, len; at < s->n; at += len) {
        const uint32_t c = lq_tstr_char(s->p + at, &len);
        uint32_t many[3] = {c};
        char text[16];
        size_t n, k = 0;
        const char is = to == LQ_TO_TITLE || to == LQ_TO_SWAPPED ? case_of(c) : '\0';
        if (to == LQ_TO_UPPER || (to == LQ_TO_SWAPPED && is == 'l')) n = to_upper(c, false, many);
        else if (to == LQ_TO_LOWER || (to == LQ_TO_CAPITAL && at) || (to == LQ_TO_TITLE && inside) || is == 'u')
            n = to == LQ_TO_TITLE && !inside ? to_upper(c, true, many) : to_lower(s, at, c, many);
        else n = to == LQ_TO_SWAPPED ? 1 : to_upper(c, true, many);
        inside = is != '\0';
        for (size_t i = 0; i < n; i++) k += lq_tstr_put_char(many[i], text + k);
        if (!lq_tm_put(m, text, k)) return false;
    }
    if (!lq_tm_steps(m, s->n / 8) || !lq_tm_cut(m, from, out)) return false;
    out->safe = v.safe;
    return true;
}

bool lq_tstr_is_case(const lq_tstr *s, bool upper) {
    bool any = false;
    for (size_t at = 0, len; at < s->n; at += len) {
        const char is = case_of(lq_tstr_char(s->p + at, &len));
        if (!is) continue;
        if (is != (upper ? 'u' : 'l')) return false;
        any = true;
    }
    return any;
}

// --- strip, replace, escape ---

static bool strips(lq_tm *m, const char *p, size_t len, const lq_tstr *of) {
    if (!of) return lq_tchar_is_space(lq_tstr_char(p, &len));
    if (!lq_tm_steps(m, of->n / 8)) return false;
    for (size_t at = 0, n; at < of->n; at += n) {
        lq_tstr_char(of->p + at, &n);
        if (n == len && !memcmp(of->p + at, p, n)) return true;
    }
    return false;
}

bool lq_tstr_strip(lq_tm *m, lq_tv v, const lq_tstr *of, int sides, lq_tv *out) {
    const char *p = v.s->p, *end = p + v.s->n;
    size_t len;
    while ((sides & LQ_STRIP_LEFT) && p < end) {
        lq_tstr_char(p, &len);
        if (!strips(m, p, len, of)) break;
        p += len;
    }
    while ((sides & LQ_STRIP_RIGHT) && p < end) {
        const char *last = end - 1;
        while ((*last & 0xc0) == 0x80) last--;
        if (!strips(m, last, (size_t)(end - last), of)) break;
        end = last;
    }
    if (!lq_tm_steps(m, 1)) return false; // or a limit stopped it
    if ((size_t)(end - p) == v.s->n) return *out = v, true;
    if (!lq_tstr_part(m, p, (size_t)(end - p), out)) return false;
    out->safe = v.safe;
    return true;
}

bool lq_tstr_replace(lq_tm *m, lq_tv v, const lq_tstr *old, const lq_tstr *by, int64_t count, lq_tv *out) {
    const char *p = v.s->p, *end = p + v.s->n, *at = p;
    const size_t from = m->out_n;
    if (!lq_tm_steps(m, v.s->n / 16)) return false;
    for (; count && (!old->n || (at = lq_tstr_find(p, (size_t)(end - p), old->p, old->n))); count--) {
        size_t len = 0;
        if (!lq_tm_steps(m, 1)) return false;
        if (old->n) {
            if (!lq_tm_put(m, p, (size_t)(at - p)) || !lq_tm_put(m, by->p, by->n)) return false;
            p = at + old->n;
            continue;
        }
        if (!lq_tm_put(m, by->p, by->n)) return false; // before each character and at the end
        if (p == end) break;
        lq_tstr_char(p, &len);
        if (!lq_tm_put(m, p, len)) return false;
        p += len;
    }
    if (!lq_tm_put(m, p, (size_t)(end - p)) || !lq_tm_cut(m, from, out)) return false;
    out->safe = v.safe;
    return true;
}

bool lq_tstr_escape(lq_tm *m, lq_tv v, lq_tv *out) {
    static const char marks[] = "&<>'\"", *const as[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    const size_t from = m->out_n;
    if (!v.safe) {
        for (const char *p = v.s->p, *end = p + v.s->n; p < end;) {
            const char *mark = strchr(marks, *p);
            if (*p && mark) {
                if (!lq_tm_puts(m, as[mark - marks])) return false;
                p++;
                continue;
            }
            const char *q = p + 1;
            while (q < end && (!*q || !strchr(marks, *q))) q++;
            if (!lq_tm_put(m, p, (size_t)(q - p))) return false;
            p = q;
        }
        if (!lq_tm_steps(m, v.s->n / 8) || !lq_tm_cut(m, from, out)) return false;
    } else *out = v;
    out->safe = true;
    return true;
}
