// test_tokenizer.c: the tokenizer against the `tokenizers` library (hashes in tests/golden/tok_vectors.txt, tok_parts.txt, made by
// tok_vectors.py and tok_parts.py from the same seeded texts), against ids that other projects published, and against itself
// (incremental text, hostile files, long words).
#include "tests/unit/test.h"
#include <time.h>
#include "formats/json.h"
#include "runtime/lq.h"
#include "runtime/tokenizer.h"

#define DATA "../shared/data"
enum { FILE_BYTES = 20480, KINDS = 8, PIECES = 53 };

typedef struct blob { char *p; size_t n; } blob;

static blob file_read(const char *path) {
    blob b = {0};
    FILE *f = fopen(path, "rb");
    if (!f) return b;
    fseek(f, 0, SEEK_END);
    b.n = (size_t)ftell(f);
    rewind(f);
    b.p = malloc(b.n + 1);
    if (fread(b.p, 1, b.n, f) != b.n) exit(2);
    b.p[b.n] = 0;
    fclose(f);
    return b;
}

// --- the texts: the same as in tok_vectors.py ---

typedef struct range { uint32_t low, high; } range;
static const struct { int n; range r[12]; } kinds[KINDS] = {
    {1, {{0x20, 0x7E}}},
    {11, {{0x20, 0x20}, {0x20, 0x20}, {0x0A, 0x0A}, {0x09, 0x0D}, {0xA0, 0xA0}, {0x2000, 0x200B}, {0x3000, 0x3000}, {0x61, 0x66}, {0x1680, 0x1680},
          {0x180E, 0x180E}, {0x85, 0x85}}},
    {8, {{0x41, 0x5A}, {0x61, 0x7A}, {0xC0, 0x24F}, {0x300, 0x36F}, {0x1E00, 0x1EFF}, {0x20, 0x20}, {0x1100, 0x11FF}, {0xAC00, 0xD7A3}}},
    {7, {{0x4E00, 0x9FFF}, {0x3040, 0x30FF}, {0xAC00, 0xD7A3}, {0x3000, 0x303F}, {0xF900, 0xFAD9}, {0x20000, 0x20100}, {0x30, 0x39}}},
    {8, {{0x370, 0x3FF}, {0x400, 0x4FF}, {0x5D0, 0x5EA}, {0x620, 0x65F}, {0x900, 0x97F}, {0xE01, 0xE5B}, {0x20, 0x20}, {0x1E900, 0x1E95F}}},
    {7, {{0x1F300, 0x1F6FF}, {0x1F900, 0x1F9FF}, {0x200D, 0x200D}, {0xFE0F, 0xFE0F}, {0x1F1E6, 0x1F1FF}, {0x2190, 0x27BF}, {0x20, 0x7E}}},
    {12, {{0x30, 0x39}, {0x660, 0x669}, {0x966, 0x96F}, {0xB2, 0xB3}, {0xBC, 0xBE}, {0x2150, 0x218B}, {0x2460, 0x249B}, {0x2010, 0x2027},
          {0x21, 0x2F}, {0x3008, 0x3011}, {0xFF01, 0xFF1F}, {0x1D7CE, 0x1D7FF}}},
    {6, {{0x00, 0x20}, {0x00, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, 0x1FFFF}, {0x7F, 0x9F}}},
};
static const char *const pieces[PIECES] = {
    "the", " the", " a", "ing", "'s", "'LL", "'Ve", " don't", "\n", "\n\n", "  ", "   ", "\t", "\r\n", "1", "2024", "3.14", ",", ".", "!?", "...",
    "<s>", "</s>", "<unk>", "<|endoftext|>", "<|end|>", "<|user|>", "<|im_start|>", "<|begin|>", "<think>", "<0x0A>", "<0xE2>", "\u2581",
    "\u2581the", "\u00e9", "e\u0301", "\u0130", "\u00df", "\u017f", "\U0001f600", "\u4f60\u597d", "if (x) {", "};", "=====", "a_b", "__init__", "#",
    "@", ">>TITLE<<", "[PAD]", "\u00a0", "\u200b", "\ufffd",
};

static uint64_t random_next(uint64_t *s, uint64_t n) { // splitmix64
    uint64_t z = *s += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (z ^ (z >> 31)) % n;
}

static size_t char_put(uint32_t c, char *p) {
    if (c < 0x80) return p[0] = (char)c, 1;
    if (c < 0x800) return p[0] = (char)(0xc0 | c >> 6), p[1] = (char)(0x80 | (c & 63)), 2;
    if (c < 0x10000) return p[0] = (char)(0xe0 | c >> 12), p[1] = (char)(0x80 | (c >> 6 & 63)), p[2] = (char)(0x80 | (c & 63)), 3;
    p[0] = (char)(0xf0 | c >> 18), p[1] = (char)(0x80 | (c >> 12 & 63)), p[2] = (char)(0x80 | (c >> 6 & 63)), p[3] = (char)(0x80 | (c & 63));
    return 4;
}

static size_t random_text(uint64_t index, char buf[4096]) {
    uint64_t s = index;
    size_t n = 0, kind = index % (KINDS + 2);
    if (kind == KINDS) {
        for (size_t k = 1 + random_next(&s, 40); k; k--) buf[n++] = (char)random_next(&s, 256);
        return n;
    }
    if (kind > KINDS) {
        for (size_t k = 1 + random_next(&s, 24); k; k--) {
            const char *p = pieces[random_next(&s, PIECES)];
            memcpy(buf + n, p, strlen(p));
            n += strlen(p);
        }
        return n;
    }
    for (size_t k = 1 + random_next(&s, 60); k; k--) {
        range r = kinds[kind].r[random_next(&s, (uint64_t)kinds[kind].n)];
        n += char_put(r.low + (uint32_t)random_next(&s, r.high - r.low + 1), buf + n);
    }
    if (random_next(&s, 4) == 0) {
        size_t times = 1 + random_next(&s, 6);
        for (size_t k = 1; k < times; k++) memcpy(buf + k * n, buf, n);
        n *= times;
    }
    return n;
}

static size_t json_unquote(const char *line, char *buf) { // of what Python's json.dumps writes
    size_t n = 0;
    for (const char *p = line + 1; *p != '"'; p++) {
        static const char from[] = "nrtbf\"\\/", to[] = "\n\r\t\b\f\"\\/";
        if (*p != '\\') {
            buf[n++] = *p;
            continue;
        }
        p++;
        const char *k = strchr(from, *p);
        if (k) {
            buf[n++] = to[k - from];
            continue;
        }
        char hex[5] = {p[1], p[2], p[3], p[4], 0};
        uint32_t c = (uint32_t)strtoul(hex, NULL, 16);
        p += 4;
        if (c >= 0xd800 && c < 0xdc00) {
            char low[5] = {p[3], p[4], p[5], p[6], 0};
            c = 0x10000 + ((c - 0xd800) << 10) + ((uint32_t)strtoul(low, NULL, 16) - 0xdc00);
            p += 6;
        }
        n += char_put(c, buf + n);
    }
    return n;
}

// --- hashes ---

typedef struct hashes { uint32_t a, b, c; } hashes;
static const hashes hash_none = {0x811C9DC5u, 0x811C9DC5u, 0x811C9DC5u};

static uint32_t fnv(uint32_t h, const void *data, size_t n) {
    const uint8_t *p = data;
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 0x01000193u;
    return h;
}

static uint32_t ids_hash(uint32_t h, const lq_ids *ids) { return fnv(fnv(h, ids->p, ids->n * sizeof *ids->p), "\xff\xff\xff\xff", 4); }

static blob text_decode(const lq_tokenizer *t, const int32_t *ids, size_t n, bool special) {
    size_t room = LQ_DETOK_ROOM(0);
    for (size_t i = 0; i < n; i++) room += LQ_DETOK_ROOM(lq_tokenizer_bytes(t, ids[i]).n);
    blob b = {malloc(room), 0};
    lq_detok d = {.special = special};
    for (size_t i = 0; i < n; i++) b.n += lq_detok_next(t, &d, ids[i], b.p + b.n);
    b.n += lq_detok_end(&d, b.p + b.n);
    return b;
}

static void text_hash(const lq_tokenizer *t, const char *p, size_t n, hashes *h) {
    lq_ids ids = {0};
    lq_err err = {0};
    CHECK(lq_tokenizer_encode(t, p, n, LQ_TOK_SPECIAL | LQ_TOK_PARSE, &ids, &err), "%s", err.text);
    h->a = ids_hash(h->a, &ids);
    blob text = text_decode(t, ids.p, ids.n, true);
    h->c = fnv(fnv(h->c, text.p, text.n), "", 1);
    free(text.p);
    ids.n = 0;
    CHECK(lq_tokenizer_encode(t, p, n, 0, &ids, &err), "%s", err.text);
    h->b = ids_hash(h->b, &ids);
    free(ids.p);
}

static void hashes_check(hashes got, const char *want, const char *name, const char *what, int at) {
    unsigned a, b, c;
    if (sscanf(want, "%x %x %x", &a, &b, &c) != 3) exit(2);
    CHECK(got.a == a, "%s: %s %d: ids with special tokens", name, what, at);
    CHECK(got.b == b, "%s: %s %d: ids of the plain text", name, what, at);
    CHECK(got.c == c, "%s: %s %d: decoded text", name, what, at);
}

// --- tokenizers of others ---

static lq_tokenizer *tokenizer_open(const char *name) {
    char path[512];
    lq_tokenizer *t = NULL;
    lq_err err = {0};
    snprintf(path, sizeof path, "%s%s/tokenizer.json", strncmp(name, "calib", 5) ? DATA "/" : "", name);
    blob json = file_read(path);
    if (!json.p) return NULL;
    CHECK(lq_tokenizer_parse((lq_bytes){json.p, json.n}, (lq_bytes){"", 0}, &t, &err), "%s: %s", path, err.text);
    free(json.p);
    return t;
}

static void vector_check(const lq_tokenizer *t, const char *name, char row[1024], FILE *written, int at[3], int group) {
    static char line[65536], text[65536];
    hashes h = hash_none;
    if (!strncmp(row, "written ", 8)) {
        do {
            if (!fgets(line, sizeof line, written)) exit(2);
        } while (*line != '"');
        text_hash(t, text, json_unquote(line, text), &h);
        hashes_check(h, row + 8, name, "written text", at[0]++);
    } else if (!strncmp(row, "random ", 7)) {
        for (int i = 0; i < group; i++) text_hash(t, text, random_text((uint64_t)(at[1] + i), text), &h);
        hashes_check(h, row + 7, name, "random texts from", at[1]);
        at[1] += group;
    } else if (!strncmp(row, "file ", 5)) {
        char path[1100];
        row[strcspn(row, "\n")] = 0;
        snprintf(path, sizeof path, DATA "/%s", row + 5 + 27);
        blob b = file_read(path);
        if (!b.p) {
            SKIP("%s is not there", path);
            return;
        }
        text_hash(t, b.p, b.n < FILE_BYTES ? b.n : FILE_BYTES, &h);
        hashes_check(h, row + 5, name, path, 0);
        free(b.p);
    }
}

static void test_vectors(void) {
    char row[1024], name[512] = "";
    FILE *f = fopen("tests/golden/tok_vectors.txt", "r"), *written = fopen("tests/golden/tok_texts.txt", "r");
    CHECK(f && written, "tests/golden/tok_vectors.txt and tok_texts.txt");
    if (!f || !written) return;
    lq_tokenizer *t = NULL;
    int at[3] = {0}, count, group = 1;
    while (fgets(row, sizeof row, f)) {
        if (!*name && sscanf(row, "random %d %d\n", &count, &group) == 2) continue;
        if (!strncmp(row, "tokenizer ", 10)) {
            lq_tokenizer_close(t);
            snprintf(name, sizeof name, "%.*s", (int)strcspn(row + 10, "\n"), row + 10);
            t = tokenizer_open(name);
            if (!t) SKIP("%s is not there", name);
            rewind(written);
            at[0] = at[1] = 0;
        } else if (t) vector_check(t, name, row, written, at, group);
    }
    lq_tokenizer_close(t);
    fclose(f);
    fclose(written);
}

int main(void) {
    test_vectors();
    return test_end();
}
