// mutate_json.c: what libFuzzer does to a JSON text, besides what it does to bytes: a value becomes another one, of a
// list of ours or from elsewhere in the text; a member goes, or comes once more under another's name.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t n, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t max, unsigned seed);

static const char *const values[] = {
    "0", "1", "2", "3", "4", "5", "7", "8", "16", "31", "64", "127", "128", "255", "256", "1024", "4096", "65536", "-1",
    "1048576", "16777216", "2147483647", "2147483648", "4294967296", "9223372036854775807", "9223372036854775808",
    "18446744073709551616", "0.5", "1e-5", "1.5", "1e9", "1e39", "1e308", "1e-320", "-0.0", "null", "true", "false",
    "\"\"", "\"x\"", "[]", "{}", "[0]", "[1,2,3]", "[null]", "{\"x\":0}", "\"default\"", "\"yarn\"", "\"llama3\"",
    "\"linear\"", "\"dynamic\"", "\"longrope\"", "\"full_attention\"", "\"sliding_attention\"",
};
enum { VALUES = sizeof values / sizeof *values, SPOTS = 512 };

typedef struct spot { size_t key, at, end; } spot; // a value, and where its member begins (key == at: an element)

static int in(const char *set, uint8_t c) { return c && strchr(set, c); }

// The end of the string, number, word, list or object at p[i].
static size_t value_end(const uint8_t *p, size_t n, size_t i) {
    size_t deep = 0;
    do {
        if (p[i] == '"') {
            for (i++; i < n && p[i] != '"'; i++) i += p[i] == '\\';
            i++;
        } else if (in("[{", p[i])) deep++, i++;
        else if (in("]}", p[i])) deep -= deep > 0, i++;
        else for (i++; i < n && !in(",:]}[{\"", p[i]); i++) {}
    } while (deep && i < n);
    return i < n ? i : n;
}

static size_t spots_find(const uint8_t *p, size_t n, spot *out) {
    size_t count = 0;
    for (size_t i = 0; i < n && count < SPOTS; i++) {
        if (!in("[{,", p[i]) || i + 1 == n || in("]}", p[i + 1])) continue;
        size_t key = i + 1, end = value_end(p, n, key), at = key;
        if (end < n && p[end] == ':' && end + 1 < n) at = end + 1, end = value_end(p, n, at);
        if (end > at) out[count++] = (spot){key, at, end};
    }
    return count;
}

static size_t replace(uint8_t *p, size_t n, size_t max, size_t at, size_t end, const void *by, size_t len) {
    if (n - (end - at) + len > max) return n;
    memmove(p + at + len, p + end, n - end);
    memcpy(p + at, by, len);
    return n - (end - at) + len;
}

size_t LLVMFuzzerCustomMutator(uint8_t *p, size_t n, size_t max, unsigned seed) {
    static spot s[SPOTS];
    static uint8_t piece[1 << 16];
    const size_t count = spots_find(p, n, s);
    srand(seed);
    if (!count || rand() % 4 == 0) return LLVMFuzzerMutate(p, n, max);
    const spot a = s[(size_t)rand() % count], b = s[(size_t)rand() % count];
    const char *v = values[rand() % VALUES];
    size_t len = b.end - b.at;
    switch (rand() % 8) {
    case 0: case 1: case 2: return replace(p, n, max, a.at, a.end, v, strlen(v));
    case 3: // a member goes, with the comma behind it
        return replace(p, n, max, a.key, a.end + (a.end < n && p[a.end] == ','), "", 0);
    case 4: // by another value of the text
        if (len > sizeof piece) return n;
        memcpy(piece, p + b.at, len);
        return replace(p, n, max, a.at, a.end, piece, len);
    case 5: // a member of somewhere else comes in
        len = b.end - b.key;
        if (len >= sizeof piece) return n;
        memcpy(piece, p + b.key, len);
        piece[len] = ',';
        return replace(p, n, max, a.key, a.key, piece, len + 1);
    default: // a little more or less of a number, or other letters
        memcpy(piece, p + a.at, len = a.end - a.at > 32 ? 32 : a.end - a.at);
        len = LLVMFuzzerMutate(piece, len, 64);
        return replace(p, n, max, a.at, a.end, piece, len);
    }
}
