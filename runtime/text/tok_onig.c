// tok_onig.c: regular expressions as tokenizer.json has them (Oniguruma's syntax, Unicode
// classes of its own) in PCRE2's words.
//
// What differs is rewritten: \s \w \b \h \v and POSIX brackets are spelled out, \p{Han} is the
// script and not its extensions,
// [a[b]&&[^c]] becomes look-aheads, x{2}+ is a repeated repetition and not a possessive one, x{,2} begins at 0, \uHHHH
// and (?m:) get their PCRE2 names. What has no counterpart is refused by name.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/text/tok_pattern.h"

#define SPACES "\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define WORDS "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define WORDS_ALONE WORDS "\\xb2\\xb3\\xb9\\xbc-\\xbe" // outside a class \w has these six too
#define HEXES "0-9A-Fa-f"
enum { CLASS_DEPTH = 8, GROUP_DEPTH = 128 };

typedef struct reader {
    const char *s;
    size_t i;
    lq_err *err;
} reader;

static bool text_put(lq_tok_buf *out, const char *s, lq_err *err) { return lq_tok_buf_add(out, s, strlen(s), err); }

static bool char_put(lq_tok_buf *out, uint32_t c, lq_err *err) {
    char t[16];
    if (c < 128 && isalnum((int)c)) snprintf(t, sizeof t, "%c", (int)c);
    else snprintf(t, sizeof t, "\\x{%x}", (unsigned)c);
    return text_put(out, t, err);
}

static bool refuse(const reader *r, const char *what) {
    return lq_fail(r->err, LQ_E_UNSUPPORTED, "tokenizer.json: regex %.120s: %s at byte %zu", r->s, what, r->i);
}

// --- properties ---

// Names of Oniguruma that PCRE2 does not have, or means otherwise.
static const struct { const char *name, *set; } properties[] = {
    {"alpha", "\\p{Alphabetic}"}, {"digit", "\\p{Nd}"}, {"space", SPACES}, {"upper", "\\p{Uppercase}"},
    {"lower", "\\p{Lowercase}"}, {"alnum", "\\p{Alphabetic}\\p{Nd}"}, {"punct", "\\p{P}"}, {"word", WORDS},
    {"xdigit", HEXES}, {"blank", "\\x09\\p{Zs}"}, {"graph", "[:graph:]\\x{61c}\\x{180e}\\x{2066}-\\x{2069}\\p{Co}"},
    {"print", "[:print:]\\x{61c}\\x{2066}-\\x{2069}\\p{Co}"}, {"cntrl", "\\p{Cc}"}, {"ascii", "\\x{0}-\\x{7f}"},
    {"any", "\\x{0}-\\x{10ffff}"}, {"letter", "\\p{L}"}, {"mark", "\\p{M}"}, {"number", "\\p{N}"},
    {"punctuation", "\\p{P}"}, {"symbol", "\\p{S}"}, {"separator", "\\p{Z}"}, {"other", "\\p{C}"},
    {"uppercaseletter", "\\p{Lu}"}, {"lowercaseletter", "\\p{Ll}"}, {"titlecaseletter", "\\p{Lt}"},
    {"modifierletter", "\\p{Lm}"}, {"otherletter", "\\p{Lo}"}, {"nonspacingmark", "\\p{Mn}"},
    {"spacingmark", "\\p{Mc}"}, {"enclosingmark", "\\p{Me}"}, {"decimalnumber", "\\p{Nd}"},
    {"letternumber", "\\p{Nl}"}, {"othernumber", "\\p{No}"}, {"connectorpunctuation", "\\p{Pc}"},
    {"dashpunctuation", "\\p{Pd}"}, {"openpunctuation", "\\p{Ps}"}, {"closepunctuation", "\\p{Pe}"},
    {"initialpunctuation", "\\p{Pi}"}, {"finalpunctuation", "\\p{Pf}"}, {"otherpunctuation", "\\p{Po}"},
    {"mathsymbol", "\\p{Sm}"}, {"currencysymbol", "\\p{Sc}"}, {"modifiersymbol", "\\p{Sk}"},
    {"othersymbol", "\\p{So}"}, {"spaceseparator", "\\p{Zs}"}, {"lineseparator", "\\p{Zl}"},
    {"paragraphseparator", "\\p{Zp}"}, {"control", "\\p{Cc}"}, {"format", "\\p{Cf}"}, {"privateuse", "\\p{Co}"},
    {"surrogate", "\\p{Cs}"}, {"unassigned", "\\p{Cn}"},
};

static bool pattern_compiles(const char *p) {
    int code;
    PCRE2_SIZE at;
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)p, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
    pcre2_code_free(re);
    return re != NULL;
}

static const char *property_named(const char *name) {
    for (size_t i = 0; i < sizeof properties / sizeof *properties; i++) {
        if (!strcmp(name, properties[i].name)) return properties[i].set;
    }
    return NULL;
}

// The members of a property by name, as they stand in a class.
static bool property_set(reader *r, const char *name, size_t n, char *set, size_t cap) {
    char key[64];
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (name[i] == '_' || name[i] == ' ' || name[i] == '-') continue;
        if (k + 1 == sizeof key || !isalnum((unsigned char)name[i])) return refuse(r, "property with no plain name");
        key[k++] = (char)tolower((unsigned char)name[i]);
    }
    key[k] = 0;
    const char *known = property_named(key);
    if (known) {
        snprintf(set, cap, "%s", known);
        return true;
    }
    snprintf(set, cap, "\\p{sc:%s}", key);
    if (k > 2 && pattern_compiles(set)) return true;
    snprintf(set, cap, "\\p{%s}", key);
    return pattern_compiles(set) || refuse(r, "unknown property");
}

// Reads {Name}, {^Name} or a single letter; *negate comes in from \P.
static bool property_read(reader *r, bool *negate, char *set, size_t cap) {
    const char *s = r->s + r->i;
    if (*s != '{') {
        if (!isalpha((unsigned char)*s)) return refuse(r, "property without a name");
        r->i++;
        return property_set(r, s, 1, set, cap);
    }
    const char *end = strchr(s, '}');
    if (!end) return refuse(r, "property without an end");
    s++;
    if (*s == '^') {
        *negate = !*negate;
        s++;
    }
    if (!property_set(r, s, (size_t)(end - s), set, cap)) return false;
    r->i = (size_t)(end + 1 - r->s);
    return true;
}

// --- escapes ---

static bool hex_read(reader *r, int digits, uint32_t *c) {
    *c = 0;
    for (int i = 0; i < digits; i++) {
        char h[2] = {r->s[r->i], 0};
        if (!isxdigit((unsigned char)h[0])) return refuse(r, "bad hexadecimal number");
        *c = *c * 16 + (uint32_t)strtoul(h, NULL, 16);
        r->i++;
    }
    return true;
}

// An escape that is one character. r->i stands behind the backslash. *is false: it is something else, nothing was read.
static bool escape_char_read(reader *r, bool *is, uint32_t *c) {
    static const char names[] = "nrtfvae", codes[] = "\n\r\t\f\v\a\033";
    char e = r->s[r->i];
    const char *k = e ? strchr(names, e) : NULL;
    *is = true;
    if (!e) return refuse(r, "backslash at the end");
    if (k) {
        *c = (uint8_t)codes[k - names];
        r->i++;
        return true;
    }
    if (e == 'u') return r->i++, hex_read(r, 4, c);
    if (e == 'x' && r->s[r->i + 1] == '{') {
        size_t n = strspn(r->s + r->i + 2, "0123456789abcdefABCDEF");
        r->i += 2;
        if (!n || n > 6 || r->s[r->i + n] != '}' || !hex_read(r, (int)n, c)) return refuse(r, "bad \\x{}");
        r->i++;
        return *c <= 0x10ffff || refuse(r, "no such character");
    }
    if (e == 'x') {
        r->i++;
        return hex_read(r, 2, c) && (*c < 0x80 || refuse(r, "a byte that is no character"));
    }
    if (e == '0') return r->i++, *c = 0, true;
    if (isalnum((unsigned char)e)) return *is = false, true;
    size_t len;
    *c = lq_tok_char_get(r->s + r->i, &len);
    r->i += len;
    return true;
}

// An escape that is a set: its members, and whether it stands for all others. *is false: nothing was read.
static bool escape_set_read(reader *r, bool *is, bool *negate, char *set, size_t cap) {
    char e = r->s[r->i];
    const char *members = NULL;
    if (strchr("sS", e)) members = SPACES;
    else if (strchr("dD", e)) members = "\\p{Nd}";
    else if (strchr("wW", e)) members = WORDS;
    else if (strchr("hH", e)) members = HEXES;
    *is = members || e == 'p' || e == 'P';
    if (!*is) return true;
    r->i++;
    *negate = isupper((unsigned char)e) != 0;
    if (!members) return property_read(r, negate, set, cap);
    snprintf(set, cap, "%s", members);
    return true;
}

// --- classes ---

typedef struct class_parts { // of one side of &&
    lq_tok_buf set, alt; // members; whole atoms joined by |
} class_parts;

static bool alt_add(reader *r, class_parts *c, const char *p, size_t n) {
    return (!c->alt.n || text_put(&c->alt, "|", r->err)) && lq_tok_buf_add(&c->alt, p, n, r->err);
}

static bool side_put(reader *r, const class_parts *c, bool negate, lq_tok_buf *out) {
    lq_err *err = r->err;
    if (!c->alt.n && !c->set.n) return text_put(out, negate ? "(?s:.)" : "(?!)", err);
    if (!c->alt.n) return text_put(out, negate ? "[^" : "[", err) && lq_tok_buf_add(out, c->set.p, c->set.n, err) &&
        text_put(out, "]", err);
    if (!text_put(out, negate ? "(?:(?!" : "(?:", err)) return false;
    if (c->set.n && !(text_put(out, "[", err) && lq_tok_buf_add(out, c->set.p, c->set.n, err) &&
                      text_put(out, "]|", err))) return false;
    return lq_tok_buf_add(out, c->alt.p, c->alt.n, err) && text_put(out, negate ? ")(?s:.))" : ")", err);
}

static bool class_set_add(reader *r, class_parts *c, bool negate, const char *set) {
    char t[160];
    if (!negate) return text_put(&c->set, set, r->err);
    if (!strcmp(set, SPACES)) return text_put(&c->set, "\\P{White_Space}", r->err);
    if (!strncmp(set, "\\p{", 3) && !strchr(set + 1, '\\'))
        return text_put(&c->set, "\\P", r->err) && text_put(&c->set, set + 2, r->err);
    snprintf(t, sizeof t, "[^%s]", set);
    return alt_add(r, c, t, strlen(t));
}

static bool posix_read(reader *r, class_parts *c) {
    char set[160];
    const char *s = r->s + r->i + 2, *end = strstr(s, ":]");
    if (!end) return refuse(r, "POSIX bracket without an end");
    bool negate = *s == '^';
    s += negate;
    r->i = (size_t)(end + 2 - r->s);
    if (end - s == 5 && !memcmp(s, "punct", 5)) // more than \p{Punct} is
        return class_set_add(r, c, negate, "\\p{P}\\p{S}");
    return property_set(r, s, (size_t)(end - s), set, sizeof set) && class_set_add(r, c, negate, set);
}

static bool class_char_read(reader *r, bool *is, uint32_t *c) {
    size_t len;
    *is = true;
    if (r->s[r->i] != '\\') {
        *c = lq_tok_char_get(r->s + r->i, &len);
        r->i += len;
        return true;
    }
    r->i++;
    if (r->s[r->i] == 'b') return r->i++, *c = 8, true;
    if (!escape_char_read(r, is, c)) return false;
    if (!*is) r->i--;
    return true;
}

// A character, a range or an escape.
static bool class_item_read(reader *r, class_parts *parts) {
    bool is, negate;
    uint32_t c, to;
    char set[160];
    if (!class_char_read(r, &is, &c)) return false;
    if (!is) {
        r->i++;
        if (!escape_set_read(r, &is, &negate, set, sizeof set)) return false;
        return is ? class_set_add(r, parts, negate, set) : refuse(r, "unknown escape in a class");
    }
    if (!char_put(&parts->set, c, r->err)) return false;
    const char *s = r->s + r->i;
    if (s[0] != '-' || !s[1] || s[1] == ']' || s[1] == '[' || (s[1] == '&' && s[2] == '&')) return true;
    size_t back = r->i++;
    if (!class_char_read(r, &is, &to)) return false;
    if (!is) return r->i = back, true; // the dash is itself the next item
    if (to < c) return refuse(r, "range that runs backwards");
    return text_put(&parts->set, "-", r->err) && char_put(&parts->set, to, r->err);
}

static bool class_read(reader *r, lq_tok_buf *out, int depth);

static bool class_parts_read(reader *r, class_parts *c, lq_tok_buf *ahead, lq_tok_buf *nested, int depth) {
    for (bool begin = true;; begin = false) {
        const char *s = r->s + r->i;
        if (!*s) return refuse(r, "class without an end");
        if (*s == ']' && !begin) return r->i++, true;
        if (s[0] == '&' && s[1] == '&') {
            r->i += 2;
            if (!text_put(ahead, "(?=", r->err) || !side_put(r, c, false, ahead) || !text_put(ahead, ")", r->err))
                return false;
            c->set.n = c->alt.n = 0;
        } else if (s[0] == '[' && s[1] == ':') {
            if (!posix_read(r, c)) return false;
        } else if (*s == '[') {
            r->i++;
            nested->n = 0;
            if (!class_read(r, nested, depth + 1) || !alt_add(r, c, nested->p, nested->n)) return false;
        } else if (!class_item_read(r, c)) return false;
    }
}

// From behind the '['; nesting is bounded.
static bool class_read(reader *r, lq_tok_buf *out, int depth) {
    if (depth == CLASS_DEPTH) return refuse(r, "classes nested too deeply");
    class_parts c = {0};
    lq_tok_buf ahead = {0}, nested = {0};
    lq_err *err = r->err;
    bool negate = r->s[r->i] == '^';
    r->i += negate;
    bool ok = class_parts_read(r, &c, &ahead, &nested, depth);
    if (ok && !ahead.n) ok = side_put(r, &c, negate, out);
    else if (ok) {
        ok = text_put(out, negate ? "(?:(?!" : "(?:", err) && lq_tok_buf_add(out, ahead.p, ahead.n, err) &&
             side_put(r, &c, false, out) && text_put(out, negate ? ")(?s:.))" : ")", err);
    }
    free(c.set.p);
    free(c.alt.p);
    free(ahead.p);
    free(nested.p);
    return ok;
}

// --- the rest ---

static bool escape_read(reader *r, lq_tok_buf *out) {
    static const char edge[] =
        "(?:(?<=[" WORDS_ALONE "])(?![" WORDS_ALONE "])|(?<![" WORDS_ALONE "])(?=[" WORDS_ALONE "]))";
    static const char inside[] =
        "(?:(?<=[" WORDS_ALONE "])(?=[" WORDS_ALONE "])|(?<![" WORDS_ALONE "])(?![" WORDS_ALONE "]))";
    char e = r->s[++r->i], set[160], t[200];
    bool is, negate;
    uint32_t c;
    if (e == 'b' || e == 'B') return r->i++, text_put(out, e == 'b' ? edge : inside, r->err);
    if (e && strchr("AzZGKRX123456789", e)) {
        snprintf(t, sizeof t, "\\%c", e);
        r->i++;
        return text_put(out, t, r->err);
    }
    if (!escape_char_read(r, &is, &c)) return false;
    if (is) return char_put(out, c, r->err);
    if (!escape_set_read(r, &is, &negate, set, sizeof set)) return false;
    if (!is) return refuse(r, "unknown escape");
    snprintf(t, sizeof t, "[%s%s]", negate ? "^" : "", strcmp(set, WORDS) ? set : WORDS_ALONE);
    return text_put(out, t, r->err);
}

// *opens: something is open behind it, not so behind (?i) and (?#).
static bool group_read(reader *r, lq_tok_buf *out, bool *opens) {
    const char *s = r->s + r->i;
    *opens = true;
    if (s[1] == '*') return refuse(r, "verb");
    if (s[1] != '?') return r->i++, text_put(out, "(", r->err);
    if (s[2] == '#') {
        const char *end = strchr(s, ')');
        *opens = false;
        return end ? r->i = (size_t)(end + 1 - r->s), true : refuse(r, "comment without an end");
    }
    static const char *const heads[] = {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        size_t n = strlen(heads[i]);
        if (!strncmp(s, heads[i], n)) return r->i += n, lq_tok_buf_add(out, s, n, r->err);
    }
    size_t n = strspn(s + 2, "imx-");
    if (!n || (s[2 + n] != ':' && s[2 + n] != ')')) return refuse(r, "unknown group");
    if (!text_put(out, "(?", r->err)) return false;
    for (size_t i = 0; i < n; i++) { // m is what PCRE2 calls s
        char t = s[2 + i] == 'm' ? 's' : s[2 + i];
        if (!lq_tok_buf_add(out, &t, 1, r->err)) return false;
    }
    r->i += 3 + n;
    *opens = s[2 + n] == ':';
    return lq_tok_buf_add(out, s + 2 + n, 1, r->err);
}

// {2}, {2,}, {2,3}, {,3}; anything else is a brace. `atom`: where in *out that begins which is repeated.
static bool interval_read(reader *r, lq_tok_buf *out, size_t atom) {
    const char *s = r->s + r->i + 1;
    size_t low = strspn(s, "0123456789"), comma = s[low] == ',', high = comma ? strspn(s + low + 1, "0123456789") : 0;
    size_t n = low + comma + high;
    if (s[n] != '}' || !(low + high)) return r->i++, text_put(out, "\\{", r->err);
    bool again = s[n + 1] == '+' || (s[n + 1] == '?' && !comma); // x{2}? is an optional pair
    r->i += n + 2;
    if (again) {
        if (!lq_tok_buf_room(out, 3, r->err)) return false;
        memmove(out->p + atom + 3, out->p + atom, out->n - atom);
        memcpy(out->p + atom, "(?:", 3);
        out->n += 3;
    }
    return text_put(out, low ? "{" : "{0", r->err) && lq_tok_buf_add(out, s, n, r->err) &&
           text_put(out, again ? "})" : "}", r->err);
}

bool lq_tok_regex_translate(const char *source, lq_tok_buf *out, lq_err *err) {
    reader r = {source, 0, err};
    size_t groups[GROUP_DEPTH], atom = 0, len;
    int depth = 0;
    while (source[r.i]) {
        size_t begin = out->n;
        bool ok = true, is_atom = true, opens;
        switch (source[r.i]) {
        case '\\': ok = escape_read(&r, out); break;
        case '[': r.i++, ok = class_read(&r, out, 0); break;
        case '(':
            if (depth == GROUP_DEPTH) return refuse(&r, "groups nested too deeply");
            ok = group_read(&r, out, &opens);
            if (opens) groups[depth++] = begin;
            break;
        case ')':
            if (!depth) return refuse(&r, "a group's end without its begin");
            begin = groups[--depth];
            ok = text_put(out, ")", err);
            r.i++;
            break;
        case '{': ok = interval_read(&r, out, atom), is_atom = false; break;
        case '*': case '+': case '?': is_atom = false; // fall through
        default:
            lq_tok_char_get(source + r.i, &len);
            ok = lq_tok_buf_add(out, source + r.i, len, err);
            r.i += len;
        }
        if (!ok) return false;
        if (is_atom) atom = begin;
    }
    return lq_tok_buf_add(out, "", 1, err);
}
