// json.c: the check that every JSON text passes before anything reads it, the walk over checked text, and writing.
// Owns nothing but lq_text. Refuses what RFC 8259 does not allow, and duplicate names, lone surrogates and bad UTF-8.
#include "formats/json.h"
#include "formats/kind.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

// --- characters ---

// Else than the table of RFC 3629 nothing passes.
size_t lq_utf8_len(const unsigned char *p, const unsigned char *end) {
    size_t left = (size_t)(end - p);
    unsigned char c = p[0], lo = 0x80, hi = 0xbf;
    if (c < 0x80) return 1;
    if (c < 0xc2 || c > 0xf4) return 0;
    size_t n = c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    if (c == 0xe0) lo = 0xa0;
    if (c == 0xed) hi = 0x9f;
    if (c == 0xf0) lo = 0x90;
    if (c == 0xf4) hi = 0x8f;
    if (left < n || p[1] < lo || p[1] > hi) return 0;
    for (size_t i = 2; i < n; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    return n;
}

unsigned lq_utf8_unseen(const unsigned char *s, size_t len) {
    unsigned c = len == 1 ? *s : 0;
    if (len == 2) c = (s[0] & 31u) << 6 | (s[1] & 63u);
    if (len == 3) c = (s[0] & 15u) << 12 | (s[1] & 63u) << 6 | (s[2] & 63u);
    const bool yes = (c && c < 0x20) || (c >= 0x7f && c <= 0x9f) || c == 0x61c || c == 0x200b ||
                     (c >= 0x200e && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) ||
                     c == 0xfeff;
    return yes ? c : 0;
}

static int hex4(const char *p) {
    int v = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' &&
            c <= 'F' ? c - 'A' + 10 : -1;
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

static size_t utf8_put(uint32_t u, char *out) {
    if (u < 0x80) return out[0] = (char)u, 1;
    if (u < 0x800) return out[0] = (char)(0xc0 | u >> 6), out[1] = (char)(0x80 | (u & 63)), 2;
    if (u < 0x10000) {
        out[0] = (char)(0xe0 | u >> 12), out[1] = (char)(0x80 | (u >> 6 & 63)), out[2] = (char)(0x80 | (u & 63));
        return 3;
    }
    out[0] = (char)(0xf0 | u >> 18), out[1] = (char)(0x80 | (u >> 12 & 63));
    out[2] = (char)(0x80 | (u >> 6 & 63)), out[3] = (char)(0x80 | (u & 63));
    return 4;
}

// Passes bytes of a string that are ASCII and stand for themselves, eight at a time; less than eight may be left.
static const char *plain_skip(const char *p, const char *end) {
    const uint64_t ones = 0x0101010101010101u;
    for (uint64_t x; end - p >= 8; p += 8) {
        memcpy(&x, p, 8);
        const uint64_t low = x - ones * 0x20, quote = (x ^ ones * '"') - ones, slash = (x ^ ones * '\\') - ones;
        if ((x | low | quote | slash) & ones << 7) break;
    }
    return p;
}

// The next quote or backslash of a checked string.
static const char *run_end(const char *p, const char *end) {
    for (p = plain_skip(p, end); *p != '"' && *p != '\\';) p++;
    return p;
}

// Decodes one byte or escape of a checked string at *p into out; 0 at the closing quote, which is not passed.
static size_t unit_decode(const char **p, char out[4]) {
    const char *s = *p;
    if (*s == '"') return 0;
    if (*s != '\\') return out[0] = *s, *p = s + 1, 1;
    *p = s + 2;
    switch (s[1]) {
    case 'b': return out[0] = '\b', 1;
    case 'f': return out[0] = '\f', 1;
    case 'n': return out[0] = '\n', 1;
    case 'r': return out[0] = '\r', 1;
    case 't': return out[0] = '\t', 1;
    case 'u': break;
    default: return out[0] = s[1], 1;
    }
    uint32_t u = (uint32_t)hex4(s + 2);
    *p = s + 6;
    if (u >= 0xd800 && u < 0xdc00) {
        u = 0x10000 + ((u - 0xd800) << 10) + ((uint32_t)hex4(s + 8) - 0xdc00);
        *p = s + 12;
    }
    return utf8_put(u, out);
}

// --- the check ---

typedef struct name_at { uint64_t hash; const char *p; } name_at; // a member's name: p stands behind the opening quote
typedef struct level { bool object; size_t names; } level;        // names: how many were kept when it was opened
// The index-th number is one that keeps its text: an integer that a double may not hold, or (exact) no integer.
typedef struct kept_num { size_t index; const char *p; size_t n; } kept_num;

typedef struct checker {
    const char *text, *p, *end, *what;
    lq_err *err;
    level *stack; // [depth]
    int depth, max_depth;
    uint64_t seed; // of the hashes: drawn, so that nobody can write names that all have one
    name_at *name; // of all open objects
    size_t names, name_cap;
    bool for_cjson, exact;
    size_t numbers;
    kept_num *kept;
    size_t kept_n, kept_cap;
} checker;

static bool bad(const checker *c, const char *found) {
    const char *kind = c->p == c->text ? lq_kind_of(c->text, (size_t)(c->end - c->text)) : NULL;
    if (kind) return lq_fail(c->err, LQ_E_FORMAT, "%s: not JSON: is %s", c->what, kind);
    return lq_fail(c->err, LQ_E_FORMAT, "%s: not JSON: %s at byte %zu", c->what, found, (size_t)(c->p - c->text));
}

// It is JSON, and cJSON cannot hold it.
static bool beyond(const checker *c, const char *found) {
    return lq_fail(c->err, LQ_E_LIMIT, "%s: %s at byte %zu, which lq does not take", c->what, found,
                   (size_t)(c->p - c->text));
}

static bool no_memory(const checker *c) {
    return lq_fail(c->err, LQ_E_MEMORY, "%s: no memory to check the JSON text", c->what);
}

bool lq_grow(void **p, size_t n, size_t *cap, size_t size) {
    if (n < *cap) return true;
    size_t want = *cap ? *cap * 2 : 64, bytes;
    void *q = lq_mul_size(want, size, &bytes) ? realloc(*p, bytes) : NULL;
    if (!q) return false;
    *p = q, *cap = want;
    return true;
}

// p stands at a backslash; passes the escape.
static bool escape_check(checker *c) {
    if (c->end - c->p < 2) return bad(c, "a string without end");
    if (c->p[1] != 'u') {
        if (!c->p[1] || !strchr("\"\\/bfnrt", c->p[1])) return bad(c, "an unknown escape");
        c->p += 2;
        return true;
    }
    int u = c->end - c->p >= 6 ? hex4(c->p + 2) : -1;
    if (u < 0) return bad(c, "a bad \\u escape");
    if (u >= 0xdc00 && u < 0xe000) return bad(c, "a lone surrogate");
    if (u == 0 && c->for_cjson) return beyond(c, "a text with a NUL");
    if (u >= 0xd800 && u < 0xdc00) {
        int v = c->end - c->p >= 12 && c->p[6] == '\\' && c->p[7] == 'u' ? hex4(c->p + 8) : -1;
        if (v < 0xdc00 || v > 0xdfff) return bad(c, "a lone surrogate");
        c->p += 6;
    }
    c->p += 6;
    return true;
}

// p stands at the opening quote; passes the string.
static bool string_check(checker *c) {
    for (c->p++; (c->p = plain_skip(c->p, c->end)) < c->end;) {
        unsigned char b = (unsigned char)*c->p;
        if (b == '"') return c->p++, true;
        if (b < 0x20) return bad(c, "a control character inside a string");
        if (b == '\\') {
            if (!escape_check(c)) return false;
        } else if (b < 0x80) {
            c->p++;
        } else {
            size_t n = lq_utf8_len((const unsigned char *)c->p, (const unsigned char *)c->end);
            if (!n) return bad(c, "bytes that are not UTF-8");
            c->p += n;
        }
    }
    return bad(c, "a string without end");
}

static bool is_digit(const char *p, const char *end) { return p < end && *p >= '0' && *p <= '9'; }

static bool number_check(checker *c) {
    const char *p = c->p, *end = c->end, *start = p;
    bool integer = true;
    if (*p == '-') p++;
    if (!is_digit(p, end)) return bad(c, "a bad number");
    if (*p == '0') p++;
    else while (is_digit(p, end)) p++;
    if (p < end && *p == '.') {
        integer = false;
        if (!is_digit(++p, end)) return bad(c, "a bad number");
        while (is_digit(p, end)) p++;
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        integer = false;
        p++;
        if (p < end && (*p == '+' || *p == '-')) p++;
        if (!is_digit(p, end)) return bad(c, "a bad number");
        while (is_digit(p, end)) p++;
    }
    size_t n = (size_t)(p - start);
    if (c->for_cjson && n > 63) return beyond(c, "a number of more than 63 characters");
    if (c->for_cjson && (integer ? n > 15 : c->exact)) {
        if (!lq_grow((void **)&c->kept, c->kept_n, &c->kept_cap, sizeof *c->kept)) return no_memory(c);
        c->kept[c->kept_n++] = (kept_num){c->numbers, start, n};
    }
    c->numbers++;
    c->p = p;
    return true;
}

static bool word_check(checker *c, const char *word) {
    size_t n = strlen(word);
    if ((size_t)(c->end - c->p) < n || memcmp(c->p, word, n) != 0) return bad(c, "an unknown word");
    c->p += n;
    return true;
}

static bool name_same(const char *p, const char *q) {
    char u[4], v[4];
    size_t un = 0, vn = 0, ui = 0, vi = 0;
    for (;;) {
        if (ui == un) ui = 0, un = unit_decode(&p, u);
        if (vi == vn) vi = 0, vn = unit_decode(&q, v);
        if (!un || !vn) return un == vn;
        if (u[ui++] != v[vi++]) return false;
    }
}

// Decodes the rest of a checked string; the length. What was before an escape or between two is taken in one piece.
static size_t string_decode(const char **at, const char *end, char *dst) {
    size_t n = 0, got;
    const char *p = *at;
    do {
        const char *q = run_end(p, end);
        memcpy(dst + n, p, (size_t)(q - p));
        n += (size_t)(q - p);
        p = q;
        n += got = unit_decode(&p, dst + n);
    } while (got);
    *at = p;
    return n;
}

static bool name_keep(checker *c, const char *p) {
    if (!lq_grow((void **)&c->name, c->names, &c->name_cap, sizeof *c->name)) return no_memory(c);
    name_at *m = &c->name[c->names++];
    const char *end = run_end(p, c->end);
    m->p = p, m->hash = 0;
    if (*end == '"') return m->hash = XXH64(p, (size_t)(end - p), c->seed), true;
    char *text = malloc((size_t)(c->p - p)); // the check stands behind the string: as much as its text
    if (!text) return no_memory(c);
    size_t n = string_decode(&p, c->end, text);
    m->hash = XXH64(text, n, c->seed);
    free(text);
    return true;
}

static bool level_open(checker *c, bool object) {
    if (c->depth >= c->max_depth)
        return lq_fail(c->err, LQ_E_LIMIT, "%s: JSON nested deeper than %d", c->what, c->max_depth);
    c->stack[c->depth++] = (level){object, c->names};
    c->p++;
    return true;
}

// A name that stands twice among these, in *again. Of a few each is compared with each, more go into a table of hashes.
static bool names_check(const checker *c, const name_at *m, size_t n, const name_at **again) {
    *again = NULL;
    if (n <= 8) {
        for (size_t i = 1; i < n; i++)
            for (size_t j = 0; j < i; j++)
                if (m[i].hash == m[j].hash && name_same(m[i].p, m[j].p)) *again = &m[i];
        return true;
    }
    size_t slots = 32;
    while (slots / 2 < n) slots *= 2;
    uint32_t *slot = n < UINT32_MAX ? calloc(slots, sizeof *slot) : NULL;
    if (!slot) return no_memory(c);
    for (size_t i = 0; i < n && !*again; i++) {
        size_t at = m[i].hash & (slots - 1);
        for (; slot[at] && !*again; at = (at + 1) & (slots - 1)) {
            const name_at *other = &m[slot[at] - 1];
            if (other->hash == m[i].hash && name_same(other->p, m[i].p)) *again = &m[i];
        }
        slot[at] = (uint32_t)i + 1;
    }
    free(slot);
    return true;
}

static bool level_close(checker *c) {
    const level l = c->stack[--c->depth];
    const name_at *again = NULL;
    c->p++;
    if (l.object && c->names > l.names && !names_check(c, c->name + l.names, c->names - l.names, &again)) return false;
    c->names = l.names;
    if (!l.object || !again) return true;
    const char *p = again->p, *q = p;
    char u[4];
    while (unit_decode(&q, u)) {}
    return lq_fail(c->err, LQ_E_FORMAT, "%s: not JSON: the name \"%.*s\" stands twice in one object", c->what,
                   (int)(q - p > 100 ? 100 : q - p), p);
}

static void blanks_skip(checker *c) {
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\t' || *c->p == '\n' || *c->p == '\r')) c->p++;
}

// A name and its colon.
static bool member_check(checker *c) {
    if (c->p >= c->end || *c->p != '"') return bad(c, "no name where one must stand");
    const char *name = c->p + 1;
    if (!string_check(c) || !name_keep(c, name)) return false;
    blanks_skip(c);
    if (c->p >= c->end || *c->p != ':') return bad(c, "no colon after a name");
    c->p++;
    return true;
}

// A value that is not a bracket, or the opening of one. *closed: the value is complete.
static bool value_check(checker *c, bool *closed) {
    *closed = true;
    switch (*c->p) {
    case '{':
    case '[': {
        bool object = *c->p == '{';
        if (!level_open(c, object)) return false;
        blanks_skip(c);
        if (c->p < c->end && *c->p == (object ? '}' : ']')) return level_close(c);
        *closed = false;
        return !object || member_check(c);
    }
    case '"': return string_check(c);
    case 't': return word_check(c, "true");
    case 'f': return word_check(c, "false");
    case 'n': return word_check(c, "null");
    default: break;
    }
    if (*c->p == '-' || is_digit(c->p, c->end)) return number_check(c);
    return bad(c, "no value where one must stand");
}

static bool text_check(checker *c) {
    for (;;) {
        bool closed;
        blanks_skip(c);
        if (c->p >= c->end) return bad(c, "the end where a value must stand");
        if (!value_check(c, &closed)) return false;
        if (!closed) continue;
        // Behind a complete value: brackets close until a comma asks for the next one, or the text ends.
        for (;;) {
            blanks_skip(c);
            if (!c->depth) return c->p == c->end || bad(c, "something behind the value");
            if (c->p >= c->end) return bad(c, "the end inside a bracket");
            bool object = c->stack[c->depth - 1].object;
            if (*c->p == ',') break;
            if (*c->p != (object ? '}' : ']')) return bad(c, "neither comma nor closing bracket");
            if (!level_close(c)) return false;
        }
        c->p++;
        blanks_skip(c);
        if (c->stack[c->depth - 1].object && !member_check(c)) return false;
    }
}

static bool run(checker *c, const char *text, size_t n, lq_json_limits lim, const char *what, lq_err *err) {
    if (n > lim.bytes) return lq_fail(err, LQ_E_LIMIT, "%s: %zu bytes of JSON, at most %zu are taken", what, n,
                                      lim.bytes);
    c->text = c->p = text, c->end = text + n, c->what = what, c->err = err;
    c->max_depth = lim.depth;
    if (getrandom(&c->seed, sizeof c->seed, GRND_NONBLOCK) != sizeof c->seed) c->seed = (uint64_t)(uintptr_t)c;
    c->stack = malloc((size_t)(lim.depth > 0 ? lim.depth : 1) * sizeof *c->stack);
    return c->stack ? text_check(c) : no_memory(c);
}

static void checker_free(checker *c) {
    free(c->stack);
    free(c->name);
    free(c->kept);
}

bool lq_json_check(const char *text, size_t n, lq_json_limits lim, const char *what, lq_err *err) {
    checker c = {0};
    bool ok = n ? run(&c, text, n, lim, what, err) : lq_fail(err, LQ_E_FORMAT, "%s: not JSON: empty", what);
    checker_free(&c);
    return ok;
}

// --- the tree ---

// Gives the numbers that keep their text that, as valuestring. Numbers come in the same order in tree and text.
static bool numbers_keep(cJSON *root, const checker *c) {
    cJSON **stack = malloc((size_t)(c->max_depth + 1) * sizeof *stack);
    if (!stack) return false;
    size_t number = 0, next = 0;
    int depth = 0;
    cJSON *at = root;
    bool ok = true;
    while (at && next < c->kept_n && ok) {
        if (cJSON_IsNumber(at) && number++ == c->kept[next].index) {
            char *s = cJSON_malloc(c->kept[next].n + 1);
            ok = s != NULL;
            if (ok) memcpy(s, c->kept[next].p, c->kept[next].n), s[c->kept[next].n] = 0;
            at->valuestring = s;
            next++;
        }
        if (at->child) {
            stack[depth++] = at;
            at = at->child;
            continue;
        }
        while (at && !at->next) at = depth ? stack[--depth] : NULL;
        if (at) at = at->next;
    }
    free(stack);
    return ok;
}

static bool parse(checker *c, const char *text, size_t n, lq_json_limits lim, const char *what, cJSON **out,
                  lq_err *err) {
    *out = NULL;
    c->for_cjson = true;
    bool ok = n ? run(c, text, n, lim, what, err) : lq_fail(err, LQ_E_FORMAT, "%s: not JSON: empty", what);
    if (ok && !(*out = cJSON_ParseWithLength(text, n)))
        ok = lq_fail(err, LQ_E_MEMORY, "%s: the JSON does not fit into memory, or nests too deep", what);
    if (ok && c->kept_n && !numbers_keep(*out, c)) {
        cJSON_Delete(*out);
        *out = NULL;
        ok = no_memory(c);
    }
    checker_free(c);
    return ok;
}

bool lq_json_parse(const char *text, size_t n, lq_json_limits lim, const char *what, cJSON **out, lq_err *err) {
    return parse(&(checker){0}, text, n, lim, what, out, err);
}

bool lq_json_parse_exact(const char *text, size_t n, lq_json_limits lim, const char *what, cJSON **out, size_t *at,
                         lq_err *err) {
    checker c = {.exact = true};
    const bool ok = parse(&c, text, n, lim, what, out, err);
    if (!ok && at) *at = c.p ? (size_t)(c.p - text) : 0;
    return ok;
}

static const cJSON *member(const cJSON *obj, const char *key) {
    const cJSON *m = cJSON_GetObjectItemCaseSensitive(obj, key);
    return m && !cJSON_IsNull(m) ? m : NULL;
}

bool lq_json_int(const cJSON *obj, const char *key, int64_t min, int64_t max, int64_t *out, const char *what,
                 lq_err *err) {
    const cJSON *m = member(obj, key);
    if (!m) return true;
    if (!cJSON_IsNumber(m)) return lq_fail(err, LQ_E_FORMAT, "%s: \"%s\" is not a number", what, key);
    int64_t v = 0;
    bool whole = false;
    if (m->valuestring && !strpbrk(m->valuestring, ".eE")) {
        uint64_t u = 0;
        bool minus = m->valuestring[0] == '-', fits = true;
        for (const char *p = m->valuestring + minus; *p && fits; p++)
            fits = !__builtin_mul_overflow(u, (uint64_t)10, &u) && !__builtin_add_overflow(u, (uint64_t)(*p - '0'), &u);
        whole = fits && u <= (uint64_t)INT64_MAX + minus;
        v = minus ? (int64_t)(0 - u) : (int64_t)u;
    } else if (fabs(m->valuedouble) <= 0x1p53 && m->valuedouble == floor(m->valuedouble)) {
        v = (int64_t)m->valuedouble;
        whole = true;
    }
    if (whole && v >= min && v <= max) return *out = v, true;
    if (whole)
        return lq_fail(err, LQ_E_FORMAT, "%s: \"%s\" is %lld, expected %lld to %lld", what, key, (long long)v,
                       (long long)min, (long long)max);
    return lq_fail(err, LQ_E_FORMAT, "%s: \"%s\" is %g, expected a whole number from %lld to %lld", what, key,
                   m->valuedouble, (long long)min, (long long)max);
}

bool lq_json_num(const cJSON *obj, const char *key, double *out, const char *what, lq_err *err) {
    const cJSON *m = member(obj, key);
    if (!m) return true;
    if (!cJSON_IsNumber(m) || !isfinite(m->valuedouble))
        return lq_fail(err, LQ_E_FORMAT, "%s: \"%s\" is not a finite number", what, key);
    *out = m->valuedouble;
    return true;
}

bool lq_json_bool(const cJSON *obj, const char *key, bool *out, const char *what, lq_err *err) {
    const cJSON *m = member(obj, key);
    if (!m) return true;
    if (!cJSON_IsBool(m)) return lq_fail(err, LQ_E_FORMAT, "%s: \"%s\" is neither true nor false", what, key);
    *out = cJSON_IsTrue(m);
    return true;
}

const char *lq_json_str(const cJSON *obj, const char *key) {
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(obj, key));
}

// --- the walk ---

char lq_json_next(lq_json_walk *w) {
    while (w->p < w->end && strchr(" \t\n\r,:", *w->p) && *w->p) w->p++;
    return w->p < w->end ? *w->p : 0;
}

void lq_json_take(lq_json_walk *w) {
    if (lq_json_next(w)) w->p++;
}

size_t lq_json_take_str(lq_json_walk *w, char *dst) {
    lq_json_next(w);
    w->p++;
    size_t n = string_decode(&w->p, w->end, dst);
    w->p++;
    return n;
}

bool lq_json_take_u64(lq_json_walk *w, uint64_t *out) {
    uint64_t v = 0;
    bool ok = lq_json_next(w) >= '0' && *w->p <= '9';
    const char *p = w->p;
    for (; ok && is_digit(p, w->end); p++)
        ok = !__builtin_mul_overflow(v, (uint64_t)10, &v) && !__builtin_add_overflow(v, (uint64_t)(*p - '0'), &v);
    if (ok && p < w->end && (*p == '.' || *p == 'e' || *p == 'E')) ok = false;
    if (ok) w->p = p, *out = v;
    else lq_json_skip(w);
    return ok;
}

void lq_json_skip(lq_json_walk *w) {
    size_t depth = 0;
    do {
        char c = lq_json_next(w), u[4];
        if (!c) return;
        w->p++;
        if (c == '"') {
            while ((w->p = run_end(w->p, w->end)), unit_decode(&w->p, u)) {}
            w->p++;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']') {
            depth--;
        } else {
            while (w->p < w->end && !strchr(" \t\n\r,:]}", *w->p)) w->p++;
        }
    } while (depth);
}

// --- writing ---

static bool text_room(lq_text *t, size_t more) {
    size_t need;
    if (t->failed || !lq_add_size(t->n, more, &need) || !lq_add_size(need, 1, &need)) return t->failed = true, false;
    if (need <= t->cap) return true;
    size_t cap = t->cap < 256 ? 256 : t->cap;
    while (cap < need)
        if (!lq_mul_size(cap, 2, &cap)) return t->failed = true, false;
    char *p = realloc(t->p, cap);
    if (!p) return t->failed = true, false;
    t->p = p, t->cap = cap;
    return true;
}

void lq_text_add(lq_text *t, const char *p, size_t n) {
    if (!text_room(t, n)) return;
    if (n) memcpy(t->p + t->n, p, n);
    t->n += n;
    t->p[t->n] = 0;
}

void lq_text_fmt(lq_text *t, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    if (n < 0) t->failed = true;
    else if (text_room(t, (size_t)n)) vsnprintf(t->p + t->n, (size_t)n + 1, fmt, again), t->n += (size_t)n;
    va_end(again);
    va_end(ap);
}

// Bytes at p that begin a character but do not complete one: they become one U+FFFD together.
static size_t torn_len(const unsigned char *p, const unsigned char *end) {
    unsigned char c = p[0];
    if (c < 0xc2 || c > 0xf4) return 1;
    size_t want = c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4, n = 1;
    while (n < want && p + n < end) {
        unsigned char lo = 0x80, hi = 0xbf;
        if (n == 1 && c == 0xe0) lo = 0xa0;
        if (n == 1 && c == 0xed) hi = 0x9f;
        if (n == 1 && c == 0xf0) lo = 0x90;
        if (n == 1 && c == 0xf4) hi = 0x8f;
        if (p[n] < lo || p[n] > hi) break;
        n++;
    }
    return n;
}

void lq_text_json(lq_text *t, const char *p, size_t n) {
    const unsigned char *s = (const unsigned char *)p, *end = s + n;
    lq_text_add(t, "\"", 1);
    while (s < end) {
        const unsigned char *run_at = s;
        size_t len;
        while (s < end && *s >= 0x20 && *s != '"' && *s != '\\') {
            len = lq_utf8_len(s, end);
            if (!len || (*s >= 0x7f && lq_utf8_unseen(s, len))) break;
            s += len;
        }
        lq_text_add(t, (const char *)run_at, (size_t)(s - run_at));
        if (s >= end) break;
        if (*s == '"' || *s == '\\') lq_text_fmt(t, "\\%c", *s++);
        else if (*s == '\n') lq_text_add(t, "\\n", 2), s++;
        else if (*s == '\t') lq_text_add(t, "\\t", 2), s++;
        else if (*s == '\r') lq_text_add(t, "\\r", 2), s++;
        else if (*s < 0x20) lq_text_fmt(t, "\\u%04x", *s++);
        else if ((len = lq_utf8_len(s, end)) > 0) lq_text_fmt(t, "\\u%04x", lq_utf8_unseen(s, len)), s += len;
        else lq_text_add(t, "\xef\xbf\xbd", 3), s += torn_len(s, end);
    }
    lq_text_add(t, "\"", 1);
}

static void leaf_add(lq_text *t, const cJSON *v) {
    if (cJSON_IsString(v)) lq_text_json(t, v->valuestring, strlen(v->valuestring));
    else if (cJSON_IsNumber(v) && v->valuestring) lq_text_add(t, v->valuestring, strlen(v->valuestring));
    else if (cJSON_IsNumber(v)) lq_text_fmt(t, "%.17g", v->valuedouble);
    else if (cJSON_IsObject(v) || cJSON_IsArray(v)) lq_text_add(t, cJSON_IsObject(v) ? "{}" : "[]", 2);
    else lq_text_fmt(t, "%s", cJSON_IsBool(v) ? cJSON_IsTrue(v) ? "true" : "false" : "null");
}

void lq_text_tree(lq_text *t, const cJSON *v) {
    const cJSON **up = NULL; // [n] what is open
    size_t n = 0, cap = 0;
    if (!v) lq_text_add(t, "null", 4);
    while (v && !t->failed) {
        if (n && cJSON_IsObject(up[n - 1])) {
            lq_text_json(t, v->string, strlen(v->string));
            lq_text_add(t, ":", 1);
        }
        if (v->child) {
            void *p = up;
            t->failed = t->failed || !lq_grow(&p, n, &cap, sizeof *up);
            if (t->failed) break;
            up = p;
            up[n++] = v;
            lq_text_add(t, cJSON_IsObject(v) ? "{" : "[", 1);
            v = v->child;
            continue;
        }
        leaf_add(t, v);
        for (; n && !v->next; lq_text_add(t, cJSON_IsObject(v) ? "}" : "]", 1)) v = up[--n];
        v = n ? v->next : NULL;
        if (v) lq_text_add(t, ",", 1);
    }
    free(up);
}

void lq_text_free(lq_text *t) {
    free(t->p);
    *t = (lq_text){0};
}
