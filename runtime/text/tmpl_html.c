// tmpl_html.c: the filter `striptags`: a text without tags and comments, runs of space as one blank, then entities as
// their characters, as MarkupSafe and Python's html.unescape have it. Of entities the numbers are known and the 106
// names that HTML takes without ";"; refuses another name with one.
#include "runtime/text/tmpl.h"
#include <string.h>

// --- entities ---

typedef struct name { const char *text; unsigned char c; } name;
static const name others[] = {{"AMP", '&'}, {"amp", '&'}, {"COPY", 0xa9}, {"GT", '>'}, {"gt", '>'}, {"LT", '<'},
                              {"lt", '<'}, {"QUOT", '"'}, {"quot", '"'}, {"REG", 0xae}};
static const char latin[][8] = { // of U+00A0 and those behind it
    "nbsp", "iexcl", "cent", "pound", "curren", "yen", "brvbar", "sect", "uml", "copy", "ordf", "laquo", "not", "shy",
    "reg", "macr", "deg", "plusmn", "sup2", "sup3", "acute", "micro", "para", "middot", "cedil", "sup1", "ordm",
    "raquo", "frac14", "frac12", "frac34", "iquest", "Agrave", "Aacute", "Acirc", "Atilde", "Auml", "Aring", "AElig",
    "Ccedil", "Egrave", "Eacute", "Ecirc", "Euml", "Igrave", "Iacute", "Icirc", "Iuml", "ETH", "Ntilde", "Ograve",
    "Oacute", "Ocirc", "Otilde", "Ouml", "times", "Oslash", "Ugrave", "Uacute", "Ucirc", "Uuml", "Yacute", "THORN",
    "szlig", "agrave", "aacute", "acirc", "atilde", "auml", "aring", "aelig", "ccedil", "egrave", "eacute", "ecirc",
    "euml", "igrave", "iacute", "icirc", "iuml", "eth", "ntilde", "ograve", "oacute", "ocirc", "otilde", "ouml",
    "divide", "oslash", "ugrave", "uacute", "ucirc", "uuml", "yacute", "thorn", "yuml"};

static bool same(const char *p, size_t n, const char *text) { return strlen(text) == n && !memcmp(p, text, n); }

static uint32_t named(const char *p, size_t n) { // 0: none
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (same(p, n, others[i].text)) return others[i].c;
    for (size_t i = 0; i < sizeof latin / sizeof *latin; i++)
        if (same(p, n, latin[i])) return (uint32_t)(0xa0 + i);
    return 0;
}

static bool put_char(lq_tm *m, uint32_t c) {
    char text[4];
    return lq_tm_put(m, text, lq_tstr_put_char(c, text));
}

// What a number stands for: some are read as those of Windows-1252, some as nothing.
static bool put_number(lq_tm *m, uint32_t c) {
    static const uint16_t windows[32] = {
        0x20ac, 0x81, 0x201a, 0x192, 0x201e, 0x2026, 0x2020, 0x2021, 0x2c6, 0x2030, 0x160, 0x2039, 0x152, 0x8d, 0x17d,
        0x8f, 0x90, 0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014, 0x2dc, 0x2122, 0x161, 0x203a, 0x153, 0x9d,
        0x17e, 0x178};
    if (c >= 0x80 && c <= 0x9f) return put_char(m, windows[c - 0x80]);
    if (!c || (c >= 0xd800 && c <= 0xdfff) || c > 0x10ffff) return put_char(m, 0xfffd);
    const bool control = c < 9 || c == 11 || (c >= 14 && c < 32) || c == 127;
    return control || (c >= 0xfdd0 && c <= 0xfdef) || (c & 0xfffe) == 0xfffe || put_char(m, c);
}

static int digit(char c, int base) {
    const int d = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : 99;
    return d < base ? d : -1;
}

// The number behind "&#" at p; *len: 0, if there is none.
static uint32_t number_read(const char *p, size_t n, size_t *len) {
    const int base = n && (*p | 32) == 'x' ? 16 : 10;
    const size_t from = base == 16;
    uint32_t c = 0;
    size_t at = from;
    for (int d; at < n && (d = digit(p[at], base)) >= 0; at++) c = c > 0x10ffff ? c : c * (uint32_t)base + (uint32_t)d;
    *len = at > from ? at + (at < n && p[at] == ';') : 0;
    return c;
}

static bool is_letter(char c) { return (c | 32) >= 'a' && (c | 32) <= 'z'; }

// A name behind "&": the whole of it, else its longest beginning that is one.
static bool put_name(lq_tm *m, const char *p, size_t n, bool ended) {
    bool plain = n > 1 && is_letter(*p);
    uint32_t c = named(p, n);
    if (c) return put_char(m, c);
    for (size_t i = 0; plain && i < n; i++) plain = is_letter(p[i]) || digit(p[i], 10) >= 0;
    if (plain && ended) return lq_tm_fail(m, "striptags: the entity &%.*s; is none that lq knows", (int)n, p);
    size_t k = n;
    while (k >= 2 && !(c = named(p, k))) k--;
    if (c ? !put_char(m, c) : !lq_tm_put(m, "&", 1)) return false;
    return lq_tm_put(m, p + (c ? k : 0), n - (c ? k : 0)) && (!ended || lq_tm_put(m, ";", 1));
}

static bool put_unescaped(lq_tm *m, const lq_tstr *s) {
    enum { LONGEST = 32 }; // characters of a name
    const char *p = s->p, *end = p + s->n;
    while (p < end) {
        const char *and = memchr(p, '&', (size_t)(end - p));
        if (!lq_tm_put(m, p, (size_t)((and ? and : end) - p))) return false;
        if (!and) break;
        size_t n = 0, len;
        p = and + 1;
        if (p < end && *p == '#') {
            const uint32_t c = number_read(p + 1, (size_t)(end - p - 1), &n);
            if (n ? !put_number(m, c) : !lq_tm_put(m, "&", 1)) return false;
            p += n ? n + 1 : 0;
            continue;
        }
        for (int i = 0; i < LONGEST && p + n < end && (!p[n] || !strchr("\t\n\f <&#;", p[n])); i++, n += len)
            lq_tstr_char(p + n, &len);
        const bool ended = n && p + n < end && p[n] == ';';
        if (n ? !put_name(m, p, n, ended) : !lq_tm_put(m, "&", 1)) return false;
        p += n + ended;
    }
    return lq_tm_steps(m, s->n / 8);
}

// --- tags ---

// Behind the tag or comment that begins at p, or NULL: it has no end.
static const char *tag_end(const char *p, const char *end) {
    const bool comment = end - p >= 4 && !memcmp(p, "<!--", 4);
    const char *q = comment ? lq_tstr_find(p + 4, (size_t)(end - p - 4), "-->", 3) : memchr(p, '>', (size_t)(end - p));
    return q ? q + (comment ? 3 : 1) : NULL;
}

static bool put_untagged(lq_tm *m, const lq_tstr *s) {
    const char *p = s->p, *end = p + s->n;
    for (const char *tag, *next; (tag = memchr(p, '<', (size_t)(end - p))) && (next = tag_end(tag, end)); p = next)
        if (!lq_tm_put(m, p, (size_t)(tag - p))) return false;
    return lq_tm_put(m, p, (size_t)(end - p));
}

// One blank between words.
static bool put_words(lq_tm *m, const lq_tstr *s) {
    bool begun = false;
    for (size_t at = 0, len; at < s->n;) {
        if (lq_tchar_is_space(lq_tstr_char(s->p + at, &len))) {
            at += len;
            continue;
        }
        const size_t from = at;
        while (at < s->n && !lq_tchar_is_space(lq_tstr_char(s->p + at, &len))) at += len;
        if ((begun && !lq_tm_put(m, " ", 1)) || !lq_tm_put(m, s->p + from, at - from)) return false;
        begun = true;
    }
    return lq_tm_steps(m, s->n / 8);
}

bool lq_tmpl_striptags(lq_tm *m, lq_tv v, const lq_targs *a, lq_tv *out) {
    const size_t from = m->out_n;
    if (a->n || a->named) return lq_tm_fail(m, "striptags takes no arguments");
    return lq_tv_show(m, v, &v) && put_untagged(m, v.s) && lq_tm_cut(m, from, &v) && put_words(m, v.s) &&
           lq_tm_cut(m, from, &v) && put_unescaped(m, v.s) && lq_tm_cut(m, from, out);
}
