// test_tokenizer.c: the tokenizer against the `tokenizers` library (hashes in tests/golden/tok_vectors.txt,
// tok_parts.txt, made by tok_vectors.py and tok_parts.py from the same seeded texts), against ids that other projects
// published, and against itself (incremental text, hostile files, long words).
#include "tests/unit/test.h"
#include <time.h>
#include "formats/json.h"
#include "runtime/lq.h"
#include "runtime/text/tok_text.h"
#include "runtime/text/tokenizer.h"

#define DATA "../shared/data"
#define RANKS "tiktoken/src/Microsoft.ML.Tokenizers.Data."
enum {
    FILE_BYTES = 20480, KINDS = 8, PIECES = 53,
    PART_GROUP = 40, MODEL_GROUP = 60, LONG_TEXTS = 1000, PART_WRITTEN = 10, PART_BLOCK = 0x2000
};

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
    {11, {{0x20, 0x20}, {0x20, 0x20}, {0x0A, 0x0A}, {0x09, 0x0D}, {0xA0, 0xA0}, {0x2000, 0x200B}, {0x3000, 0x3000},
          {0x61, 0x66}, {0x1680, 0x1680},
          {0x180E, 0x180E}, {0x85, 0x85}}},
    {8, {{0x41, 0x5A}, {0x61, 0x7A}, {0xC0, 0x24F}, {0x300, 0x36F}, {0x1E00, 0x1EFF}, {0x20, 0x20}, {0x1100, 0x11FF},
         {0xAC00, 0xD7A3}}},
    {7, {{0x4E00, 0x9FFF}, {0x3040, 0x30FF}, {0xAC00, 0xD7A3}, {0x3000, 0x303F}, {0xF900, 0xFAD9}, {0x20000, 0x20100},
         {0x30, 0x39}}},
    {8, {{0x370, 0x3FF}, {0x400, 0x4FF}, {0x5D0, 0x5EA}, {0x620, 0x65F}, {0x900, 0x97F}, {0xE01, 0xE5B}, {0x20, 0x20},
         {0x1E900, 0x1E95F}}},
    {7, {{0x1F300, 0x1F6FF}, {0x1F900, 0x1F9FF}, {0x200D, 0x200D}, {0xFE0F, 0xFE0F}, {0x1F1E6, 0x1F1FF},
         {0x2190, 0x27BF}, {0x20, 0x7E}}},
    {12, {{0x30, 0x39}, {0x660, 0x669}, {0x966, 0x96F}, {0xB2, 0xB3}, {0xBC, 0xBE}, {0x2150, 0x218B}, {0x2460, 0x249B},
          {0x2010, 0x2027},
          {0x21, 0x2F}, {0x3008, 0x3011}, {0xFF01, 0xFF1F}, {0x1D7CE, 0x1D7FF}}},
    {6, {{0x00, 0x20}, {0x00, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, 0x1FFFF}, {0x7F, 0x9F}}},
};
static const char *const pieces[PIECES] = {
    "the", " the", " a", "ing", "'s", "'LL", "'Ve", " don't", "\n", "\n\n", "  ", "   ", "\t", "\r\n", "1", "2024",
        "3.14", ",", ".", "!?", "...",
    "<s>", "</s>", "<unk>", "<|endoftext|>", "<|end|>", "<|user|>", "<|im_start|>", "<|begin|>", "<think>", "<0x0A>",
    "<0xE2>", "\u2581",
    "\u2581the", "\u00e9", "e\u0301", "\u0130", "\u00df", "\u017f", "\U0001f600", "\u4f60\u597d", "if (x) {", "};",
    "=====", "a_b", "__init__", "#",
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
    if (c < 0x10000) return p[0] = (char)(0xe0 | c >> 12), p[1] = (char)(0x80 | (c >> 6 & 63)),
        p[2] = (char)(0x80 | (c & 63)), 3;
    p[0] = (char)(0xf0 | c >> 18), p[1] = (char)(0x80 | (c >> 12 & 63)), p[2] = (char)(0x80 | (c >> 6 & 63)),
        p[3] = (char)(0x80 | (c & 63));
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

static uint32_t ids_hash(uint32_t h, const lq_ids *ids) {
    return fnv(fnv(h, ids->p, ids->n * sizeof *ids->p), "\xff\xff\xff\xff", 4);
}

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

static bool tokenizer_same(const char *name, uint32_t hash) {
    char path[1024];
    snprintf(path, sizeof path, "%s%s/tokenizer.json", strncmp(name, "calib", 5) ? DATA "/" : "", name);
    blob b = file_read(path);
    bool same = b.p && fnv(hash_none.a, b.p, b.n) == hash;
    if (!same) SKIP("%s %s", path, b.p ? "is another one than tok_vectors.py saw" : "is not there");
    free(b.p);
    return same;
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
            snprintf(name, sizeof name, "%.*s", (int)strcspn(row + 19, "\n"), row + 19);
            t = tokenizer_same(name, (uint32_t)strtoul(row + 10, NULL, 16)) ? tokenizer_open(name) : NULL;
            rewind(written);
            at[0] = at[1] = 0;
        } else if (t) vector_check(t, name, row, written, at, group);
    }
    lq_tokenizer_close(t);
    fclose(f);
    fclose(written);
}

// --- token by token, and long words ---

// Token by token, forked at every step: what was written is whole characters, and all of
// it is the text decoded at once.
static void growing_check(const lq_tokenizer *t, const char *name) {
    static char text[65536], buf[65536];
    for (uint64_t k = 0; k < 300; k++) {
        lq_ids ids = {0};
        lq_err err = {0};
        uint64_t s = k;
        size_t n = random_text(k, text);
        CHECK(lq_tokenizer_encode(t, text, n, 0, &ids, &err), "%s", err.text);
        for (size_t i = 0; k % 3 == 0 && i < ids.n; i++)
            ids.p[i] = (int32_t)random_next(&s, (uint64_t)lq_tokenizer_vocab(t)) + (i == 3 ? 1 << 20 : 0);
        blob whole = text_decode(t, ids.p, ids.n, false);
        lq_detok d = {0};
        bool valid = true, room = true;
        size_t done = 0;
        for (size_t i = 0; i <= ids.n; i++) {
            lq_detok fork = d;
            char spare[16];
            lq_detok_end(&fork, spare);
            size_t wrote = i < ids.n ? lq_detok_next(t, &d, ids.p[i], buf + done) : lq_detok_end(&d, buf + done);
            room = room && wrote <= LQ_DETOK_ROOM(i < ids.n ? lq_tokenizer_bytes(t, ids.p[i]).n : 0);
            for (size_t j = done; j < done + wrote;) {
                uint8_t c = (uint8_t)buf[j];
                size_t len = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
                valid = valid && (c < 0x80 || c >= 0xc2) && j + len <= done + wrote;
                j += len;
            }
            done += wrote;
        }
        CHECK(valid, "%s: text %d: part of a character was written", name, (int)k);
        CHECK(room, "%s: text %d: more was written than LQ_DETOK_ROOM says", name, (int)k);
        CHECK(done == whole.n && !memcmp(buf, whole.p, done), "%s: text %d: token by token is not the whole", name,
              (int)k);
        free(whole.p);
        free(ids.p);
    }
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#if defined(__SANITIZE_ADDRESS__) // it looks at all of a text whenever a part of it is compared: no measure of ours
static const double much = 1e6;
static const size_t long_text = (size_t)1 << 14; // what it sees of memory it sees in less
#else
static const double much = 24;
static const size_t long_text = (size_t)1 << 20;
#endif

// CPU seconds of reading n bytes: the least of a few goes, as a busy machine makes single ones longer.
static double reading(const lq_tokenizer *t, const char *unit, size_t n, int goes, double enough) {
    const size_t u = strlen(unit);
    double least = 1e9;
    lq_err err = {0};
    bool good = true;
    char *text = malloc(n);
    for (size_t i = 0; i < n; i++) text[i] = unit[i % u];
    for (int go = 0; go < goes && least > enough; go++) {
        lq_ids ids = {0};
        const double from = seconds();
        good = good && lq_tokenizer_encode(t, text, n, LQ_TOK_PARSE, &ids, &err);
        const double took = seconds() - from;
        least = took < least ? took : least;
        free(ids.p);
    }
    CHECK(good, "%s", err.text);
    free(text);
    return least;
}

// A megabyte that is one word, or one run: eight times the text may not take much more than eight times as long.
static void long_check(const lq_tokenizer *t, const char *name) {
    static const char *const units[] = {"a", "ab", " ", "\n", "=", "1", "\xcc\x81\xcc\xa3", "\xe4\xbd\xa0", "\xff",
                                        "<s>", "'s", "\xe2\x96\x81"};
    for (size_t k = 0; k < sizeof units / sizeof *units; k++) {
        const double some = reading(t, units[k], long_text / 8, 1, 0), most = much * some + 0.05;
        const double all = reading(t, units[k], long_text, 5, most);
        CHECK(all <= most, "%s: %.3f s for %zu bytes of \"%s\", %.3f s for eight times as many", name, some, long_text / 8, units[k], all);
    }
}

static void test_whole(lq_tokenizer *t, const char *name) {
    if (t) {
        growing_check(t, name);
        long_check(t, name);
    } else SKIP("%s is not there", name);
    lq_tokenizer_close(t);
}

// --- small tokenizers of our own, one component each ---

static size_t json_text(cJSON *json, char **out) {
    *out = cJSON_PrintUnformatted(json);
    return strlen(*out);
}

static lq_tokenizer *part_open(const cJSON *bases, const cJSON *one, const char *name) {
    static const char *const keys[] = {"added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder"};
    cJSON *base = cJSON_GetObjectItem(bases, lq_json_str(one, "base"));
    cJSON *whole = cJSON_CreateObject(), *model = cJSON_Duplicate(base, true);
    for (size_t i = 0; i < 5; i++) {
        cJSON *k = cJSON_GetObjectItem(one, keys[i]);
        cJSON_AddItemToObject(whole, keys[i], k ? cJSON_Duplicate(k, true) : cJSON_CreateNull());
    }
    const cJSON *flags = cJSON_GetObjectItem(one, "model");
    for (const cJSON *k = flags ? flags->child : NULL; k; k = k->next) {
        cJSON_DeleteItemFromObject(model, k->string);
        cJSON_AddItemToObject(model, k->string, cJSON_Duplicate(k, true));
    }
    cJSON_AddItemToObject(whole, "model", model);
    char *text;
    lq_err err = {0};
    lq_tokenizer *t = NULL;
    size_t n = json_text(whole, &text);
    CHECK(lq_tokenizer_parse((lq_bytes){text, n}, (lq_bytes){"", 0}, &t, &err), "%s: %s", name, err.text);
    free(text);
    cJSON_Delete(whole);
    return t;
}

static void part_check(const lq_tokenizer *t, const cJSON *one, const char *name, FILE *written) {
    static char line[65536], text[65536];
    int at = 0;
    rewind(written);
    for (const cJSON *k = cJSON_GetObjectItem(one, "written")->child; k; k = k->next) {
        hashes h = hash_none;
        for (int i = 0; i < PART_WRITTEN && fgets(line, sizeof line, written); i++) {
            if (*line == '"') text_hash(t, text, json_unquote(line, text), &h);
            else i--;
        }
        hashes_check(h, k->valuestring, name, "written texts from", at);
        at += PART_WRITTEN;
    }
    at = 0;
    for (const cJSON *k = cJSON_GetObjectItem(one, "random")->child; k; k = k->next) {
        hashes h = hash_none;
        for (int i = 0; i < PART_GROUP; i++) text_hash(t, text, random_text((uint64_t)(at + i), text), &h);
        hashes_check(h, k->valuestring, name, "random texts from", at);
        at += PART_GROUP;
    }
    const cJSON *chars = cJSON_GetObjectItem(one, "chars");
    uint32_t c = 0;
    for (const cJSON *k = chars ? chars->child : NULL; k; k = k->next) { // every character, behind an a
        hashes h = hash_none;
        size_t n = 0;
        if (!k->next) c = 0xe0000;
        for (uint32_t end = c + PART_BLOCK; c < end; c++) {
            if (c >= 0xd800 && c < 0xe000) continue;
            text[n++] = 'a';
            n += char_put(c, text + n);
        }
        text_hash(t, text, n, &h);
        hashes_check(h, k->valuestring, name, "characters before", (int)c);
    }
}

static void test_parts(void) {
    blob file = file_read("tests/golden/tok_parts.json");
    FILE *written = fopen("tests/golden/tok_texts.txt", "r");
    cJSON *all = NULL;
    lq_err err = {0};
    bool ok = file.p && written && lq_json_parse(file.p, file.n, (lq_json_limits){1 << 26, 64}, "tok_parts.json", &all,
                                                 &err);
    CHECK(ok, "tests/golden/tok_parts.json: %s", err.text);
    if (!ok) return;
    const cJSON *bases = cJSON_GetObjectItem(all, "bases");
    int number = 0;
    const char *last = "";
    for (const cJSON *k = cJSON_GetObjectItem(all, "cases")->child; k; k = k->next, number++) {
        char name[2048];
        const cJSON *n = cJSON_GetObjectItem(k, "normalizer"), *p = cJSON_GetObjectItem(k, "pre_tokenizer");
        const cJSON *m = cJSON_GetObjectItem(k, "model");
        char *ns = cJSON_PrintUnformatted(n), *ps = cJSON_PrintUnformatted(p), *ms = cJSON_PrintUnformatted(m);
        snprintf(name, sizeof name, "case %d (%s %.600s %.600s %.200s)", number, lq_json_str(k, "base"), ns ? ns : "",
                 ps ? ps : "", ms ? ms : "");
        free(ns);
        free(ps);
        free(ms);
        lq_tokenizer *t = part_open(bases, k, name);
        if (t) part_check(t, k, name, written);
        const char *base = lq_json_str(k, "base");
        if (t && strcmp(base, last) && (strstr(base, "unigram") || strstr(base, "word"))) {
            growing_check(t, base);
            long_check(t, base);
        }
        last = base;
        lq_tokenizer_close(t);
    }
    CHECK(number > 150, "only %d cases", number);
    cJSON_Delete(all);
    free(file.p);
    fclose(written);
}

// --- models of sentencepiece ---

static bool one_file(void *from, const char *name, lq_bytes *out, lq_err *err) {
    (void)err;
    if (!strcmp(name, "tokenizer.model")) *out = *(lq_bytes *)from;
    return true;
}

static lq_tokenizer *model_open(const char *p, size_t n, lq_err *err) {
    lq_tokenizer *t = NULL;
    lq_bytes file = {p, n};
    lq_tok_files files = {one_file, &file, NULL};
    lq_tokenizer_read(&files, &t, err);
    return t;
}

static void piece_hash(const lq_tokenizer *t, const char *p, size_t n, hashes *h) {
    lq_ids ids = {0};
    lq_err err = {0};
    CHECK(lq_tokenizer_encode(t, p, n, 0, &ids, &err), "%s", err.text);
    h->a = ids_hash(h->a, &ids);
    blob text = text_decode(t, ids.p, ids.n, true);
    h->b = fnv(fnv(h->b, text.p, text.n), "", 1);
    free(text.p);
    free(ids.p);
}

static void pieces_check(hashes got, const char *want, int number, const char *what, int at) {
    unsigned a, b;
    if (sscanf(want, "%x %x", &a, &b) != 2) exit(2);
    CHECK(got.a == a, "model %d: ids of %s texts from %d", number, what, at);
    CHECK(got.b == b, "model %d: text of their ids, %s texts from %d", number, what, at);
}

static void model_check(const lq_tokenizer *t, const cJSON *one, int number, FILE *written) {
    static char line[65536], text[65536];
    int at = 0;
    rewind(written);
    for (const cJSON *k = cJSON_GetObjectItem(one, "written")->child; k; k = k->next, at += PART_WRITTEN) {
        hashes h = hash_none;
        for (int i = 0; i < PART_WRITTEN && fgets(line, sizeof line, written); i++) {
            if (*line == '"') piece_hash(t, text, json_unquote(line, text), &h);
            else i--;
        }
        pieces_check(h, k->valuestring, number, "written", at);
    }
    at = 0;
    for (const cJSON *k = cJSON_GetObjectItem(one, "random")->child; k; k = k->next, at += MODEL_GROUP) {
        hashes h = hash_none;
        for (int i = 0; i < MODEL_GROUP; i++) piece_hash(t, text, random_text((uint64_t)(at + i), text), &h);
        pieces_check(h, k->valuestring, number, "random", at);
    }
    hashes h = hash_none;
    char *all = malloc(LONG_TEXTS * sizeof text / 16);
    size_t n = 0;
    for (int i = 0; i < LONG_TEXTS; i++)
        if (i % 10 < KINDS) n += random_text((uint64_t)i, all + n);
    piece_hash(t, all, n, &h);
    pieces_check(h, lq_json_str(one, "long"), number, "long", 0);
    free(all);
}

// Each beginning of a model, and the model with each byte turned over, opens or is refused in one line.
static void model_broken(const char *p, size_t n) {
    char *copy = malloc(n);
    for (size_t i = 0; i < 2 * n; i++) {
        lq_err err = {0};
        memcpy(copy, p, n);
        if (i >= n) copy[i - n] ^= (char)(1 << i % 8);
        lq_tokenizer *t = model_open(copy, i < n ? i : n, &err);
        CHECK(t ? !err.code : *err.text && !strchr(err.text, '\n'), "byte %zu: \"%s\"", i, err.text);
        lq_ids ids = {0};
        if (t) lq_tokenizer_encode(t, "The th\xc3\xa9 ==== \xf0\x9f\x98\x80 ab", 22, 0, &ids, &err);
        free(ids.p);
        lq_tokenizer_close(t);
    }
    free(copy);
}

static void test_models(void) {
    blob file = file_read("tests/golden/tok_spm.json");
    FILE *written = fopen("tests/golden/tok_texts.txt", "r");
    cJSON *all = NULL;
    lq_err err = {0};
    bool ok = file.p && written &&
              lq_json_parse(file.p, file.n, (lq_json_limits){1 << 26, 8}, "tok_spm.json", &all, &err);
    CHECK(ok, "tests/golden/tok_spm.json: %s", err.text);
    if (!ok) return;
    int number = 0;
    for (const cJSON *k = all->child; k; k = k->next, number++) {
        const char *base64 = lq_json_str(k, "model");
        lq_tok_buf model = {0};
        lq_err why = {0};
        if (!lq_tok_base64(base64, strlen(base64), &model, &why)) exit(2);
        lq_tokenizer *t = model_open(model.p, model.n, &why);
        CHECK(t, "model %d: %s", number, why.text);
        if (t) model_check(t, k, number, written);
        if (t && (number % 6 == 2 || number % 6 == 4)) { // with what users defined, with what is taken apart again
            char name[32];
            snprintf(name, sizeof name, "model %d", number);
            growing_check(t, name);
            long_check(t, name);
        }
        lq_tokenizer_close(t);
        if (number % 6 == 5) model_broken(model.p, model.n);
        free(model.p);
    }
    CHECK(number == 14, "%d models", number);
    cJSON_Delete(all);
    free(file.p);
    fclose(written);
}

// --- ids that other projects published ---

static lq_tokenizer *folder_open(const char *name) {
    char path[512];
    lq_tokenizer *t = NULL;
    lq_err err = {0};
    snprintf(path, sizeof path, DATA "/tokenizers/%s", name);
    FILE *f = fopen(path, "r");
    if (!f) return NULL;
    fclose(f);
    CHECK(lq_tokenizer_load(path, &t, &err), "%s: %s", path, err.text);
    return t;
}

// Ids of one source file, published for each of tiktoken's lists of ranks.
static void test_ranks(const char *name, const char *ids_name) {
    static const char folder[] = DATA "/tokenizers/tiktoken/test/Microsoft.ML.Tokenizers.Tests/Data/";
    char path[512];
    lq_tokenizer *t = folder_open(name);
    snprintf(path, sizeof path, "%slib.rs.txt", folder);
    blob text = file_read(path);
    snprintf(path, sizeof path, "%s%s", folder, ids_name);
    blob want = file_read(path);
    if (!t || !text.p || !want.p) SKIP("%s is not there", name);
    else {
        lq_ids ids = {0};
        lq_err err = {0};
        size_t same = 0;
        const char *p = want.p;
        CHECK(lq_tokenizer_encode(t, text.p, text.n, 0, &ids, &err), "%s", err.text);
        while (same < ids.n && (p = strpbrk(p, "0123456789"))) {
            char *end;
            if (strtol(p, &end, 10) != ids.p[same]) break;
            p = end;
            same++;
        }
        CHECK(ids.n > 1000 && same == ids.n && !strpbrk(p, "0123456789"), "%s: id %zu of %zu", name, same, ids.n);
        blob back = text_decode(t, ids.p, ids.n, true);
        CHECK(back.n == text.n && !memcmp(back.p, text.p, text.n), "%s: the text that comes back", name);
        free(back.p);
        free(ids.p);
    }
    free(text.p);
    free(want.p);
    lq_tokenizer_close(t);
}

// Texts between __ggml_vocab_test__ lines, and a line of ids for each.
static void published_check(const lq_tokenizer *t, char *text, char *ids_at, const char *name) {
    static const char between[] = "\n__ggml_vocab_test__\n";
    int number = 0;
    for (char *end; (end = strstr(text, between)); text = end + sizeof between - 1, number++) {
        lq_ids ids = {0};
        lq_err err = {0};
        size_t i = 0;
        bool same = lq_tokenizer_encode(t, text, (size_t)(end - text), LQ_TOK_PARSE, &ids, &err);
        char *stop = strchr(ids_at, '\n'), *next;
        for (; stop && ids_at < stop; ids_at = next, i++) {
            long want = strtol(ids_at, &next, 10);
            if (next == ids_at || next > stop) break;
            if (i >= ids.n || ids.p[i] != want) same = false;
        }
        CHECK(same && i == ids.n, "%s: text %d: %zu ids, not %zu", name, number, ids.n, i);
        free(ids.p);
        if (!stop) break;
        ids_at = stop + 1;
    }
    CHECK(number > 30, "%s: only %d texts", name, number);
}

static void test_published(lq_tokenizer *t, const char *name) {
    char path[512];
    snprintf(path, sizeof path, DATA "/tokenizers/ggml-vocab/ggml-vocab-%s.gguf.inp", name);
    blob in = file_read(path);
    snprintf(path, sizeof path, DATA "/tokenizers/ggml-vocab/ggml-vocab-%s.gguf.out", name);
    blob out = file_read(path);
    if (t && in.p && out.p) published_check(t, in.p, out.p, name);
    else SKIP("the tokenizer or the published ids of %s are not there", name);
    lq_tokenizer_close(t);
    free(in.p);
    free(out.p);
}

// --- against itself ---

// --- which file it is ---

static bool named_file(void *from, const char *name, lq_bytes *out, lq_err *err) {
    (void)err;
    for (const char *const *p = from; *p; p += 2)
        if (!strcmp(*p, name)) *out = (lq_bytes){p[1], strlen(p[1])};
    return true;
}

// Files by name and content; the ids of `text`, or what an error says.
static void files_check(const char *const *names, const char *only, const char *text, const char *want) {
    lq_tokenizer *t = NULL;
    lq_err err = {0};
    lq_ids ids = {0};
    char got[256] = "";
    const lq_tok_files files = {named_file, (void *)(uintptr_t)names, only};
    if (lq_tokenizer_read(&files, &t, &err) &&
        lq_tokenizer_encode(t, text, strlen(text), LQ_TOK_SPECIAL | LQ_TOK_PARSE, &ids, &err)) {
        for (size_t i = 0; i < ids.n; i++) snprintf(got + strlen(got), sizeof got - strlen(got), " %d", ids.p[i]);
        CHECK(!strcmp(got, want), "%s: \"%s\", not \"%s\"", names[0], got, want);
    } else CHECK(strstr(err.text, want), "%s: \"%s\" does not say \"%s\"", names[0], err.text, want);
    free(ids.p);
    lq_tokenizer_close(t);
}

#define JSON "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":7},\"merges\":[]}}"
#define WORDS "[UNK]\n[CLS]\n[SEP]\na\n##b\n"
#define PAIRS "{\"a\":0,\"b\":1,\"ab\":2,\"\xc4\xa0\":3,\"<e>\":4,\"A\":5}"
static void test_files(void) {
    static const char *const all[] = {"vocab.txt", WORDS, "tokenizer.json", JSON, "vocab.json", PAIRS, "merges.txt",
                                      "a b", NULL};
    static const char *const bert[] = {"vocab.txt", WORDS, NULL};
    static const char *const cased[] = {"vocab.txt", WORDS, "tokenizer_config.json", "{\"do_lower_case\":false}", NULL};
    static const char *const gpt2[] = {"vocab.json", PAIRS, "merges.txt", "#version: 0.2\na b\n", "config.json",
                                       "{\"model_type\":\"gpt2\"}", "vocab.txt", WORDS, NULL};
    static const char *const config[] = {
        "vocab.json", PAIRS, "merges.txt", "a b", "tokenizer_config.json", "{\"tokenizer_class\":\"Qwen2TokenizerFast\","
        "\"add_bos_token\":true,\"bos_token\":{\"content\":\"<e>\"},\"add_prefix_space\":true,"
        "\"added_tokens_decoder\":{\"9\":{\"content\":\"<f>\",\"special\":true}}}", NULL};
    static const char *const old[] = {"vocab.json", PAIRS, "merges.txt", "a b", "added_tokens.json",
                                      "{\"<g>\":11}", NULL};
    static const char *const odd[] = {"vocab.json", PAIRS, "merges.txt", "a b", "config.json",
                                      "{\"model_type\":\"odd\"}", NULL};
    static const char *const alone[] = {"vocab.json", PAIRS, NULL};
    static const char *const pair[] = {"vocab.json", PAIRS, "merges.txt", "a c", NULL};
    static const char *const none[] = {"config.json", "{}", NULL};
    static const char *const spm[] = {"tokenizer.model", "\n\5abc", NULL};
    static const char *const ranks[] = {"qwen.tiktoken", "QQ== 0\nQg== x\n", NULL};
    files_check(all, NULL, "a", " 7");
    files_check(all, "vocab.txt", "ab", " 1 3 4 2");
    files_check(all, "none.json", "ab", "there is no such file");
    files_check(bert, NULL, "A[SEP]c", " 1 3 2 0 2");
    files_check(cased, NULL, "A", " 1 0 2");
    files_check(gpt2, NULL, "ab b", " 2 3 1");
    files_check(config, NULL, "ab<f>", " 4 3 2 9");
    files_check(old, NULL, "ab<g>", " 2 11");
    files_check(odd, NULL, "ab", "model_type odd");
    files_check(alone, NULL, "ab", "no merges.txt");
    files_check(pair, NULL, "ab", "merges[0]");
    files_check(none, NULL, "ab", "there is no tokenizer.json");
    files_check(spm, NULL, "ab", "tokenizer.model: the file is cut short");
    files_check(ranks, NULL, "ab", "qwen.tiktoken: line 2");
}

// --- refused ---

static void refused(const char *json, const char *config, const char *says) {
    lq_tokenizer *t = NULL;
    lq_err err = {0};
    bool ok = lq_tokenizer_parse((lq_bytes){json, strlen(json)}, (lq_bytes){config, strlen(config)}, &t, &err);
    CHECK(!ok && !t, "opened: %s", json);
    CHECK(strstr(err.text, says) && !strchr(err.text, '\n'), "\"%s\" does not say \"%s\"", err.text, says);
    lq_tokenizer_close(t);
}

#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"
#define PIECE(k) "{\"SpecialToken\":{\"id\":\"" k "\"}}"
#define TEMPLATE(around) "{\"type\":\"TemplateProcessing\",\"special_tokens\":{\"x\":{\"ids\":[0]}},\"single\":[{\"Sequence\":{\"id\":\"A\"}}" around "]}"
#define TWO TEMPLATE("," PIECE("x"))
#define THREE TEMPLATE("," PIECE("x") "," PIECE("x"))
static void test_refused(void) {
    static const struct { const char *json, *says; } bad[] = {
        {"", "tokenizer.json"}, {"[]", "model"}, {"{}", "model"}, {"{\"model\":3}", "model"},
        {"{\"model\":{\"type\":\"Odd\",\"vocab\":{}}}", "Odd"},
        {"{\"model\":{\"type\":\"Unigram\"}}", "vocab"}, {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}}", "vocab[0]"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",\"b\"]]}}", "vocab[0]"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]],\"unk_id\":1}}", "unk_id"},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{}}}", "vocab"},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0},\"max_input_chars_per_word\":-1}}", "max_input"},
        {"{\"model\":{\"type\":\"BPE\"}}", "vocab"}, {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0}}}", "merges"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", "id"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1.5},\"merges\":[]}}", "id"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1e12},\"merges\":[]}}", "id"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":\"0\"},\"merges\":[]}}", "id"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", "two tokens"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}", "merges[0]"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"aa\"]}}", "merges[0]"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}", "merges[0]"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"a\"]]}}", "merges[0]"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"dropout\":0.1}}", "dropout"},
        {"{" MODEL ",\"normalizer\":{\"type\":\"Precompiled\"}}", "Precompiled"},
        {"{" MODEL ",\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"A\"}}", "base64"},
        {"{" MODEL ",\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"////fwAA\"}}", "no table"},
        {"{" MODEL ",\"normalizer\":{}}", "type"},
        {"{" MODEL ",\"normalizer\":{\"type\":\"Sequence\"}}", "normalizers"},
        {"{" MODEL ",\"normalizer\":{\"type\":\"Replace\",\"content\":\"\",\"pattern\":{\"Regex\":\"(\"}}}", "("},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}}", "UnicodeScripts"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Odd\",\"pattern\":{\"String\":\"a\"}}}",
         "Odd"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Removed\",\"pattern\":{\"Regex\":\"(*ACCEPT)\"}}}", "verb"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Removed\",\"pattern\":{\"Regex\":\"\\\\p{Odd}\"}}}", "property"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"CharDelimiterSplit\",\"delimiter\":\"ab\"}}", "one character"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"FixedLength\",\"length\":0}}", "length"},
        {"{" MODEL ",\"decoder\":{\"type\":\"CTC\"}}", "CTC"},
        {"{" MODEL ",\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"#########\"}}", "prefix"},
        {"{" MODEL ",\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"ByteLevel\"}]}}",
         "decoder 1"},
        {"{" MODEL ",\"post_processor\":{\"type\":\"Odd\"}}", "Odd"},
        {"{" MODEL ",\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":\"Metaspace\"}]}}",
         "decoder 1 stands behind ByteFallback"},
        {"{" MODEL ",\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":\"ByteLevel\"}]}}", "behind"},
        {"{" MODEL ",\"decoder\":{\"type\":\"BPEDecoder\",\"suffix\":\"a\"}}", "token 2"},
        {"{" MODEL ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}}]}}", "x"},
        {"{" MODEL ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"B\"}}]}}", "Sequence B"},
        {"{" MODEL ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{}},{\"Sequence\":{}}]}}", "2 times"},
        {"{" MODEL ",\"post_processor\":{\"type\":\"Sequence\",\"processors\":[" THREE "," THREE "]}}", "of 3 pieces"},
        {"{" MODEL ",\"post_processor\":{\"type\":\"Sequence\",\"processors\":[" TWO "," TWO "]}}", "without pair"},
        {"{" MODEL ",\"normalizer\":{\"type\":\"Lowercase\"},\"added_tokens\":[{\"id\":7,\"content\":\"Xy\"},{\"id\":8,\"content\":\"XY\"}]}",
         "7 \"Xy\" and 8 \"XY\""},
        {"{" MODEL ",\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"a\",9],\"sep\":[\"a\",0]}}", "cls"},
        {"{" MODEL ",\"added_tokens\":[{\"id\":0}]}", "content"},
        {"{" MODEL ",\"added_tokens\":[{\"id\":0,\"content\":\"x\"}]}", "another"},
        {"{" MODEL ",\"added_tokens\":[{\"content\":\"x\"}]}", "id"},
        {"{" MODEL ",\"added_tokens\":3}", "added_tokens"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) refused(bad[i].json, "", bad[i].says);
    refused("{" MODEL "}", "{\"add_bos_token\":true,\"bos_token\":\"<x>\"}", "bos_token");
    refused("{" MODEL "}", "{\"add_bos_token\":3}", "add_bos_token");
    refused("{" MODEL "}", "[", "tokenizer_config.json");
}

// --- steps that make a text longer ---

// {"<model>", "<key>": a Sequence of `times` steps}
static lq_tokenizer *grower_open(const char *key, const char *list, const char *step, int times, const char *more,
                                 lq_err *err) {
    static char json[1 << 18];
    lq_tokenizer *t = NULL;
    int n = snprintf(json, sizeof json, "{" MODEL "%s,\"%s\":{\"type\":\"Sequence\",\"%s\":[", more, key, list);
    for (int i = 0; i < times; i++) n += snprintf(json + n, sizeof json - (size_t)n, "%s%s", i ? "," : "", step);
    n += snprintf(json + n, sizeof json - (size_t)n, "]}}");
    lq_tokenizer_parse((lq_bytes){json, (size_t)n}, (lq_bytes){0}, &t, err);
    return t;
}

static void growth_check(const char *key, const char *list, const char *step, int times, const char *text,
                         size_t repeat, bool fits) {
    lq_err err = {0};
    lq_ids ids = {0};
    const size_t n = strlen(text);
    char *p = malloc(n * repeat);
    for (size_t i = 0; i < repeat; i++) memcpy(p + i * n, text, n);
    lq_tokenizer *t = grower_open(key, list, step, times,
                                  ",\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true}]", &err);
    CHECK(t, "%s: %s", step, err.text);
    if (!t) return;
    const clock_t begun = clock();
    const bool done = lq_tokenizer_encode(t, p, n * repeat, LQ_TOK_PARSE, &ids, &err);
    CHECK(done == fits && (done || (err.code == LQ_E_LIMIT && strstr(err.text, "steps of tokenizer.json"))),
          "%d times %s: %s", times, step, err.text);
    CHECK(clock() - begun < CLOCKS_PER_SEC, "%d times %s: %.1f s", times, step,
          (double)(clock() - begun) / CLOCKS_PER_SEC);
    free(ids.p);
    free(p);
    lq_tokenizer_close(t);
}

// A text that doubles with each step is refused while it is small, wherever it grows; one that
// its language makes longer is not.
static void test_growth(void) {
    static const char twice[] = "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aa\"}";
    static const char regex[] = "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"\"},\"content\":\"ab\"}";
    static const char bytes[] = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}";
    static char wide[5000] = "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"";
    lq_err err = {0};
    size_t n = strlen(wide);
    memset(wide + n, 'b', 4000);
    strcpy(wide + n + 4000, "\"}");
    growth_check("normalizer", "normalizers", twice, 64, "a sixteen byte a", 1, false);
    growth_check("normalizer", "normalizers", twice, 3, "a sixteen byte a", 1000, true);
    growth_check("normalizer", "normalizers", twice, 9, "<s>a", 2000, false); // each piece by itself is short
    growth_check("normalizer", "normalizers", twice, 40, "<s>a", 1, false);
    growth_check("normalizer", "normalizers", regex, 64, "a", 1, false);
    growth_check("normalizer", "normalizers", wide, 1, "a", 100, false);
    growth_check("normalizer", "normalizers", wide, 1, "a", 16, true);
    growth_check("normalizer", "normalizers", bytes, 64, "\xc3\xa9", 1, false);
    growth_check("pre_tokenizer", "pretokenizers", bytes, 64, "\xc3\xa9", 1, false);
    growth_check("pre_tokenizer", "pretokenizers", bytes, 3, "\xc3\xa9", 20000, true);
    // a ligature of 18 letters
    growth_check("normalizer", "normalizers", "{\"type\":\"NFKC\"}", 1, "\xef\xb7\xba", 20000, true);
    CHECK(!grower_open("decoder", "decoders", twice, 64, "", &err) && strstr(err.text, "steps of tokenizer.json"),
          "a decoder: %s", err.text);
    err.text[0] = 0;
    CHECK(!grower_open("normalizer", "normalizers", twice, 64,
                       ",\"added_tokens\":[{\"id\":3,\"content\":\"cab\",\"normalized\":true}]", &err) &&
          strstr(err.text, "steps of tokenizer.json"), "an added token: %s", err.text);
}

// --- tokenizer_config.json ---

static void config_check(const char *config, int32_t before, int32_t after) {
    static const char json[] = "{" MODEL ",\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true}]}";
    lq_tokenizer *t = NULL;
    lq_err err = {0};
    lq_ids ids = {0};
    CHECK(lq_tokenizer_parse((lq_bytes){json, sizeof json - 1}, (lq_bytes){config, strlen(config)}, &t, &err), "%s",
          err.text);
    if (!t) return;
    CHECK(lq_tokenizer_encode(t, "ab", 2, LQ_TOK_SPECIAL, &ids, &err), "%s", err.text);
    size_t at = before >= 0;
    CHECK(ids.n == at + 1 + (after >= 0) && ids.p[at] == 2, "%s: %zu ids", config, ids.n);
    CHECK(before < 0 || ids.p[0] == before, "%s: begins with %d", config, ids.p[0]);
    CHECK(after < 0 || ids.p[ids.n - 1] == after, "%s: ends with %d", config, ids.p[ids.n - 1]);
    CHECK(lq_tokenizer_id(t, "<s>", 3) == 3 && lq_tokenizer_id(t, "ab", 2) == 2 && lq_tokenizer_id(t, "c", 1) == -1,
          "ids by content");
    char text[LQ_DETOK_ROOM(3)];
    lq_detok shown = {.special = true}, hidden = {0};
    CHECK(lq_detok_next(t, &shown, 3, text) == 3 && !memcmp(text, "<s>", 3), "a special token is shown");
    CHECK(lq_detok_next(t, &hidden, 3, text) == 0 && lq_detok_next(t, &hidden, 2, text) == 2, "or is not");
    CHECK(lq_tokenizer_bytes(t, 99).n == 0 && lq_tokenizer_bytes(t, -1).n == 0, "bytes of no token");
    free(ids.p);
    lq_tokenizer_close(t);
}

static void test_config(void) {
    config_check("", -1, -1);
    config_check("{\"bos_token\":\"<s>\"}", -1, -1);
    config_check("{\"bos_token\":\"<s>\",\"add_bos_token\":true}", 3, -1);
    config_check("{\"bos_token\":{\"content\":\"<s>\"},\"add_bos_token\":true,\"add_eos_token\":null}", 3, -1);
    config_check("{\"bos_token\":\"<s>\",\"tokenizer_class\":\"LlamaTokenizerFast\"}", 3, -1);
    config_check("{\"bos_token\":\"<s>\",\"eos_token\":\"b\",\"add_bos_token\":false,\"add_eos_token\":true,\"tokenizer_class\":\"LlamaTokenizer\"}", -1, 1);
    config_check("{\"eos_token\":\"</s>\",\"add_eos_token\":true,\"added_tokens_decoder\":{\"7\":{\"content\":\"</s>\",\"special\":true}}}", -1, 7);
}

// A decoder may make a token of the vocabulary shorter than it stands there; the first
// token goes through the same steps.
static void test_first_token(void) {
    static char json[8192], big[4001], buf[LQ_DETOK_ROOM(64)];
    lq_tokenizer *t;
    lq_err err = {0};
    lq_detok d = {0};
    memset(big, 'a', 4000);
    const int n = snprintf(json, sizeof json, "{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"\"},"
        "{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"always\",\"split\":true}]},"
        "\"model\":{\"type\":\"BPE\",\"vocab\":{\"\xe2\x96\x81" "b\":0,\"%s\":1},\"merges\":[]}}", big);
    CHECK(lq_tokenizer_parse((lq_bytes){json, (size_t)n}, (lq_bytes){0}, &t, &err), "%s", err.text);
    CHECK(lq_tokenizer_longest(t) == 2 && lq_detok_next(t, &d, 1, buf) == 0,
          "the first token keeps what Replace takes away");
    d = (lq_detok){0};
    CHECK(lq_detok_next(t, &d, 0, buf) == 1 && buf[0] == 'b', "the first token keeps its mark");
    CHECK(lq_detok_next(t, &d, 0, buf) == 2 && !memcmp(buf, " b", 2), "a later token loses its mark");
    lq_tokenizer_close(t);
}

int main(void) {
    test_first_token();
    test_vectors();
    test_parts();
    test_models();
    test_published(tokenizer_open("tokenizers/hf/falcon-tokenizer"), "falcon");
    test_published(tokenizer_open("tokenizers/hf/phi-3-mini"), "phi-3");
    test_published(tokenizer_open("tokenizers/hf/llama2"), "llama-spm");
    test_published(folder_open("llama2/tokenizer.model"), "llama-spm");
    test_published(folder_open("hf/gpt2"), "gpt-2");
    test_ranks(RANKS "Cl100kBase/Data/cl100k_base.tiktoken", "tokens.json");
    test_ranks(RANKS "O200kBase/Data/o200k_base.tiktoken", "tokens_gpt4o.json");
    test_ranks(RANKS "P50kBase/Data/p50k_base.tiktoken", "tokens_p50k_base.json");
    test_ranks(RANKS "R50kBase/Data/r50k_base.tiktoken", "tokens_r50k_base.json");
    test_whole(tokenizer_open("tokenizers/hf/llama2"), "tokenizers/hf/llama2");
    test_whole(tokenizer_open("tokenizers/pythia"), "tokenizers/pythia");
    test_whole(tokenizer_open("calib_data/demo"), "calib_data/demo");
    test_whole(folder_open("llama2/tokenizer.model"), "llama2/tokenizer.model");
    test_whole(folder_open("llama3/tokenizer.model"), "llama3/tokenizer.model");
    test_files();
    test_refused();
    test_growth();
    test_config();
    return test_end();
}
