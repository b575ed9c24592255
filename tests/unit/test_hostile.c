// test_hostile.c: files that lie. Every case must be refused in one line that names the file and says why; run under
// ASan and UBSan nothing may leak or be read outside. A flipped byte of a .lq file must be caught wherever it is.
#include "formats/json.h"
#include "tests/unit/lq_make.h"
#include <sys/mman.h>
#include <xxhash.h>

static int refused;

// Opens from a copy of exactly n bytes, so that a read behind them is seen.
static bool opens(const void *p, size_t n, bool verify, lq_err *err) {
    void *exact = malloc(n ? n : 1);
    if (n) memcpy(exact, p, n);
    lq_ckpt *c = NULL;
    memset(err, 0, sizeof *err);
    bool ok = lq_ckpt_open_bytes(exact, n, "evil.safetensors", &c, err);
    if (ok && verify) ok = lq_ckpt_verify(c, NULL, NULL, err);
    if (!ok && !err_good(err, "evil.safetensors")) CHECK(0, "a bad line: \"%s\"", err->text);
    lq_ckpt_close(c);
    refused += !ok;
    free(exact);
    return ok;
}

static blob tensors_make(const char *header, size_t n, size_t data) {
    blob b = {calloc(1, 8 + n + data + 1), 8 + n + data};
    uint64_t len = n;
    memcpy(b.p, &len, 8);
    memcpy(b.p + 8, header, n);
    return b;
}

// --- safetensors: header text, bytes of data, a word of the refusal (NULL: must open) ---

#define T(fields) "{\"a\":{" fields "}}"
#define OK "\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]"
static const struct { const char *header; size_t data; const char *word; } plain[] = {
    {T(OK), 16, NULL},
    {"{}", 0, NULL},
    {T(OK) "     ", 16, NULL},
    {"{\"__metadata__\":{\"format\":\"pt\"},\"a\":{" OK "}}", 16, NULL},
    {T("\"data_offsets\":[0,16],\"shape\":[2,2],\"dtype\":\"F32\""), 16, NULL},
    {T("\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]"), 4, NULL},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, NULL},
    {T(OK), 15, "bytes 0 to 16 of 15"},
    {T(OK), 17, "last 1 bytes"},
    {"{}", 1, "last 1 bytes"},
    {" " T(OK), 16, "begin with {"},
    {"[]", 0, "begin with {"},
    {"{", 0, "begin with {"},
    {"{\"a\":{" OK "}", 16, "not JSON"},
    {"{\"a\":{" OK "}}}", 16, "not JSON"},
    {"{\"a\":{" OK "},}", 16, "not JSON"},
    {"{a:{" OK "}}", 16, "not JSON"},
    {"{\"a\":[]}", 0, "described by an object"},
    {"{\"a\":1}", 0, "described by an object"},
    {"{\"a\":null}", 0, "described by an object"},
    {T(""), 0, "missing"},
    {T("\"dtype\":\"F32\",\"shape\":[2,2]"), 16, "missing"},
    {T("\"dtype\":\"F32\",\"data_offsets\":[0,16]"), 16, "missing"},
    {T("\"shape\":[2,2],\"data_offsets\":[0,16]"), 16, "missing"},
    {T(OK ",\"more\":1"), 16, "field \"more\""},
    {T("\"dtype\":\"F33\",\"shape\":[2,2],\"data_offsets\":[0,16]"), 16, "unknown type"},
    {T("\"dtype\":\"f32\",\"shape\":[2,2],\"data_offsets\":[0,16]"), 16, "unknown type"},
    {T("\"dtype\":\"F32\\u0000\",\"shape\":[2,2],\"data_offsets\":[0,16]"), 16, "unknown type"},
    {T("\"dtype\":7,\"shape\":[2,2],\"data_offsets\":[0,16]"), 16, "field \"dtype\""},
    {T("\"dtype\":\"F32\",\"shape\":[2,-2],\"data_offsets\":[0,16]"), 16, "dimension 1"},
    {T("\"dtype\":\"F32\",\"shape\":[2,2.0],\"data_offsets\":[0,16]"), 16, "dimension 1"},
    {T("\"dtype\":\"F32\",\"shape\":[2,2e0],\"data_offsets\":[0,16]"), 16, "dimension 1"},
    {T("\"dtype\":\"F32\",\"shape\":[2,\"2\"],\"data_offsets\":[0,16]"), 16, "dimension 1"},
    {T("\"dtype\":\"F32\",\"shape\":[2,[2]],\"data_offsets\":[0,16]"), 16, "dimension 1"},
    {T("\"dtype\":\"F32\",\"shape\":{},\"data_offsets\":[0,16]"), 16, "not a list"},
    {T("\"dtype\":\"F32\",\"shape\":4,\"data_offsets\":[0,16]"), 16, "not a list"},
    {T("\"dtype\":\"F32\",\"shape\":[18446744073709551616],\"data_offsets\":[0,16]"), 16, "dimension 0"},
    {T("\"dtype\":\"F32\",\"shape\":[9223372036854775808],\"data_offsets\":[0,16]"), 16, "dimension 0"},
    {T("\"dtype\":\"F32\",\"shape\":[4294967296,4294967297],\"data_offsets\":[0,16]"), 16, "past 2^64"},
    {T("\"dtype\":\"F32\",\"shape\":[4611686018427387908],\"data_offsets\":[0,16]"), 16, "past 2^64"},
    {T("\"dtype\":\"U8\",\"shape\":[9223372036854775807,2,1,1],\"data_offsets\":[0,16]"), 16, "shape and type say"},
    {T("\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]"), 1, "more than 8 dimensions"},
    {T("\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[16,0]"), 16, "bytes 16 to 0"},
    {T("\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,17]"), 17, "takes 17 bytes"},
    {T("\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,18446744073709551615]"), 16, "of 16 that there are"},
    {T("\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[18446744073709551600,16]"), 16, "of 16 that there are"},
    {T("\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0]"), 16, "two whole numbers"},
    {T("\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16,16]"), 16, "two whole numbers"},
    {T("\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[-0,16]"), 16, "two whole numbers"},
    {T("\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":\"0\""), 16, "two whole numbers"},
    {T("\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[4,20]"), 20, "belong to none"},
    {"{\"a\":{" OK "},\"a\":{" OK "}}", 16, "stands twice"},
    {"{\"a\":{" OK "},\"\\u0061\":{" OK "}}", 16, "stands twice"},
    {T("\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]"), 16, "stands twice"},
    {"{\"a\":{" OK "},\"b\":{" OK "}}", 16, "overlap"},
    {"{\"a\":{" OK "},\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[15,17]}}", 17, "overlap"},
    {"{\"a\":{" OK "},\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[17,19]}}", 19, "belong to none"},
    {"{\"a\":{" OK "},\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[8,8]}}", 16, "overlap"},
    {"{\"\":{" OK "}}", 16, "empty, too long or"},
    {"{\"a\\u0000b\":{" OK "}}", 16, "empty, too long or"},
    {"{\"a\\nb\":{" OK "}}", 16, "empty, too long or"},
    {"{\"a\xff\":{" OK "}}", 16, "not UTF-8"},
    {"{\"a\xed\xa0\x80\":{" OK "}}", 16, "not UTF-8"},
    {"{\"\\ud800\":{" OK "}}", 16, "lone surrogate"},
    {"{\"a\tb\":{" OK "}}", 16, "control character"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "not a string"},
    {"{\"__metadata__\":{\"a\":{}}}", 0, "not a string"},
    {"{\"__metadata__\":{\"a\":null}}", 0, "not a string"},
    {"{\"__metadata__\":[]}", 0, "not an object"},
    {"{\"__metadata__\":\"x\"}", 0, "not an object"},
    {"{\"__metadata__\":{\"a\":\"x\\u0000y\"}}", 0, "NUL"},
    {"{\"__metadata__\":{\"a\\u0000\":\"x\"}}", 0, "NUL"},
    {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "stands twice"},
    {"{\"a\":[[[[[[]]]]]]}", 0, "nested deeper"},
    {"{\"__metadata__\":{\"lq.version\":\"1\"}}", 0, "version"},
    {"{\"__metadata__\":{\"lq.version\":\"0\"}}", 0, "lq.header"},
    {"{\"__metadata__\":{\"lq.version\":\"0\",\"lq.header\":\"0\"}}", 0, "16 hex digits"},
    {"{\"__metadata__\":{\"lq.version\":\"0\",\"lq.header\":\"00000000000000000\"}}", 0, "16 hex digits"},
    {"{\"__metadata__\":{\"lq.version\":\"0\",\"lq.header\":\"000000000000000\\u0030\"}}", 0, "16 hex digits"},
    {"{\"__metadata__\":{\"lq.version\":\"0\",\"lq.header\":\"0000000000000000\"}}", 0, "header is damaged"},
};

static void test_plain(void) {
    lq_err err;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        blob b = tensors_make(plain[i].header, strlen(plain[i].header), plain[i].data);
        bool ok = opens(b.p, b.n, true, &err);
        if (plain[i].word) CHECK(!ok && strstr(err.text, plain[i].word), "case %zu, \"%s\": %s", i, plain[i].word,
                                 err.text);
        else CHECK(ok, "case %zu: %s", i, err.text);
        free(b.p);
    }
    printf("safetensors table: %zu cases\n", sizeof plain / sizeof *plain);
}

static void test_lengths(void) {
    static const char header[] = T(OK);
    static const uint64_t lies[] = {0, 1, 2, 7, 16, sizeof header, 1000, 100000001, (uint64_t)1 << 32,
                                    (uint64_t)1 << 63, UINT64_MAX,
        UINT64_MAX - 7};
    lq_err err;
    blob b = tensors_make(header, sizeof header - 1, 16);
    for (size_t n = 0; n < b.n; n++) CHECK(!opens(b.p, n, true, &err), "cut to %zu bytes", n);
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        memcpy(b.p, &lies[i], 8);
        CHECK(!opens(b.p, b.n, true, &err), "header length %llu", (unsigned long long)lies[i]);
    }
    free(b.p);
    // Deep nesting and a very long name: long texts, short work.
    char *deep = malloc(200000);
    memset(deep, '[', 200000);
    memcpy(deep, "{\"a\":", 5);
    b = tensors_make(deep, 200000, 0);
    CHECK(!opens(b.p, b.n, true, &err) && err.code == LQ_E_LIMIT, "%s", err.text);
    free(b.p);
    memset(deep, 'a', 2000);
    memcpy(deep, "{\"", 2);
    strcpy(deep + 2000, "\":{" OK "}}");
    b = tensors_make(deep, strlen(deep), 16);
    CHECK(!opens(b.p, b.n, true, &err) && strstr(err.text, "too long"), "%s", err.text);
    free(b.p);
    free(deep);
}

// --- .lq: a good file, one text of its header replaced, the header's checksum made right again ---

// The length of the header's JSON, without the blanks behind it.
static size_t header_len(blob b) {
    uint64_t n;
    memcpy(&n, b.p, 8);
    while (n && b.p[8 + n - 1] == ' ') n--;
    return (size_t)n;
}

static void header_sign(blob b) {
    uint64_t n;
    memcpy(&n, b.p, 8);
    char *header = (char *)b.p + 8, *digits = memmem(header, (size_t)n, "\"lq.header\":\"", 13);
    if (!digits) return;
    digits += 13;
    memcpy(digits, "0000000000000000", 16);
    char text[17];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)XXH64(header, (size_t)n, 0));
    memcpy(digits, text, 16);
}

static bool header_replace(blob b, const char *from, const char *to) {
    uint64_t room;
    memcpy(&room, b.p, 8);
    size_t n = header_len(b), f = strlen(from), t = strlen(to);
    char *p = memmem(b.p + 8, n, from, f);
    if (!p || n - f + t > room) return false;
    size_t tail = n - (size_t)((uint8_t *)p - (b.p + 8)) - f;
    memmove(p + t, p + f, tail);
    memcpy(p, to, t);
    memset(p + t + tail, ' ', (size_t)room - (n - f + t));
    header_sign(b);
    return true;
}

#define Q "\\\""
static const struct { const char *from, *to, *word; } coded[] = {
    {"LlamaForCausalLM", "MistralForCausalLM", NULL},
    {"\"lq.version\":\"0\"", "\"lq.version\":\"00\"", "version"},
    {"\"lq.version\":\"0\"", "\"lq.version\":\"1\"", "version"},
    {"\"lq.version\":\"0\"", "\"lq.versiom\":\"0\"", "no lq.version"},
    {"\"lq.layout\":\"any\"", "\"lq.layout\":\"rocm\"", "lq.layout"},
    {"\"lq.layout\":\"any\"", "\"lq.layout\":\"cuda\"", "not the shape"},
    {"\"lq.layout\":\"any\"", "\"lq.layout\":\"\"", "lq.layout"},
    {"\"lq.layout\":\"any\"", "\"lq.layout\":\"x86\"", "not the shape"},
    {",\"lq.layout\":\"any\"", "", "lq.layout"},
    {"\"lq.types\":\"{", "\"lq.types\":\"[", "not JSON"},
    {"\"lq.types\":\"", "\"lq.typos\":\"", "lq.types is missing"},
    {"\"lq.xxh64\":\"", "\"lq.xxh65\":\"", "lq.xxh64 is missing"},
    {"\"lq.xxh64\":\"{", "\"lq.xxh64\":\"1{", "not JSON"},
    {"int4 g32 sym f16 20x96", "int4 g32 sym f16 20x97", "not the shape"},
    {"int4 g32 sym f16 20x96", "int4 g32 sym f16 21x96", "not the shape"},
    {"int4 g32 sym f16 20x96", "int4 g16 sym f16 20x96", "not the shape"},
    {"int4 g32 sym f16 20x96", "int4 g32 sym bf16 20x96", "not the shape"},
    {"int4 g32 sym f16 20x96", "int3 g32 sym f16 20x96", "not the shape"},
    {"int4 g32 sym f16 20x96", "int4 g32 asym f16 20x96", ".zero is missing"},
    {"int4 g32 asym f16 20x96", "int4 g32 sym f16 20x96", "part .zero, which its type does not have"},
    {"table4 g16 f16 20x96", "int4 g16 sym f16 20x96", NULL},
    {"int4 g32 sym f16 20x96", "table4 g32 f16 20x96", ".table is missing"},
    {"int4 g32 sym f16 20x96", "int4 g32 f16 20x96", "expected one like"},
    {"int4 g32 sym f16 20x96", "int4  g32 sym f16 20x96", "expected one like"},
    {"int4 g32 sym f16 20x96", "int4 g24 sym f16 20x96", "expected one like"},
    {"int4 g32 sym f16 20x96", "int4 g32 sym f16 20x096", "expected one like"},
    {"int4 g32 sym f16 20x96", "int4 g32 sym f16 -20x96", "expected one like"},
    {"int4 g32 sym f16 20x96", "int4 g32 sym f16 0x96", "expected one like"},
    {"int4 g32 sym f16 20x96", "int4 g32 sym f16 20", "expected one like"},
    {"int4 g32 sym f16 20x96", "int4 g32 sym f16 20x96 ", "expected one like"},
    {"int4 g32 sym f16 20x96", "int4 g32 sym f16 999999999999999999x999999999999999999", "type \""},
    {"int4 g32 sym f16 20x96", "bf16 20x96", "expected one like"},
    {"int4 g32 sym f16 20x96", "", "expected one like"},
    {"int4 g32 sym f16 20x96", "%s%n%s%n 20x96", "expected one like"},
    {"{" Q "model.layers.0.w0" Q ":", "{" Q "model.layers.9.w0" Q ":", "missing"},
    {"{" Q "model.layers.0.w0" Q ":", "{" Q "empty" Q ":" Q "int8 row sym f16 1x1" Q "," Q "model.layers.0.w0" Q ":",
     "both plain and coded"},
    {"{" Q "model.layers.0.w0" Q ":", "{" Q "a\\\\u0000b" Q ":", "proper name"},
    {"{" Q "model.layers.0.w0" Q ":", "{" Q Q ":", "proper name"},
    {"{" Q "model.layers.0.w0" Q ":" Q, "{" Q "x" Q ":{}," Q "model.layers.0.w0" Q ":" Q, "nested deeper"},
    {"{" Q "model.layers.0.w0" Q ":" Q, "{" Q "x" Q ":1," Q "model.layers.0.w0" Q ":" Q, "proper name"},
    {"{" Q "model.layers.0.w0" Q ":" Q "int4", "{" Q "model.layers.0.w1" Q ":" Q "int4", "stands twice"},
    {"\"model.layers.0.norm\":{", "\"model.layers.0.w0\":{", "checksum"},
    {"\"model.layers.0.w0.q\":{", "\"model.layers.0.w0.Q\":{", "checksum"},
    {Q "model.layers.0.norm" Q ":" Q, Q "model.layers.0.nope" Q ":" Q, "not there"},
    {Q "model.layers.0.norm" Q ":" Q, Q "model.layers.0.norm" Q ":" Q "0", "16 hex digits"},
    {Q "model.layers.0.norm" Q ":" Q, Q "model.layers.0.norm" Q ":" Q "0000000000000000" Q "," Q "lq.pad/0" Q ":" Q,
     "not there"},
    {"\"lq.file/config.json\":{", "\"lq.file/../x.jsonnn\":{", "without a path"},
    {"\"lq.file/config.json\":{", "\"lq.file/..\":{", "without a path"},
    {"\"lq.file/config.json\":{", "\"lq.file/\":{", "without a path"},
    {"\"lq.file/config.json\":{", "\"lq.file/a/b\":{", "without a path"},
    {"\"lq.file/config.json\":{", "\"lq.file/a\\\\b\":{", "without a path"},
    {"\"lq.file/config.json\":{\"dtype\":\"U8\"", "\"lq.file/config.json\":{\"dtype\":\"I8\"", "plain bytes"},
    {"\"lq.file/config.json\":{\"dtype\":\"U8\",\"shape\":[17]",
     "\"lq.file/config.json\":{\"dtype\":\"U8\",\"shape\":[17,1]", "plain bytes"},
    {"\"lq.pad/0\":", "\"lq.pad/00\":", "padding"},
    {"\"lq.arch\":", "\"lq.shard\":\"1/3\",\"lq.arch\":", "one shard of 3"},
    {"\"lq.arch\":", "\"lq.shard\":\"1/1\",\"lq.arch\":", "one shard of 1"},
    {"\"lq.arch\":", "\"lq.shard\":\"0/3\",\"lq.arch\":", "expected one like"},
    {"\"lq.arch\":", "\"lq.shard\":\"4/3\",\"lq.arch\":", "expected one like"},
    {"\"lq.arch\":", "\"lq.shard\":\"0/0\",\"lq.arch\":", "expected one like"},
    {"\"lq.arch\":", "\"lq.shard\":\"1/03\",\"lq.arch\":", "expected one like"},
    {"\"lq.arch\":", "\"lq.shard\":\"1/3 \",\"lq.arch\":", "expected one like"},
    {"\"lq.arch\":", "\"lq.shard\":\"-1/3\",\"lq.arch\":", "expected one like"},
    {"\"lq.arch\":", "\"lq.shard\":\"\",\"lq.arch\":", "expected one like"},
    {"\"lq.pad/0\":", "\"lq.pad/99\":", "padding"},
    {"\"lq.pad/1\":", "\"pad\":", "not at a multiple"},
    {"\"lq.pad/0\":{\"dtype\":\"U8\"", "\"lq.pad/0\":{\"dtype\":\"I8\"", "padding"},
    {"\"model.layers.0.w0.q\":{\"dtype\":\"U8\"", "\"model.layers.0.w0.q\":{\"dtype\":\"I8\"", "not the shape"},
    {"\"model.layers.0.w0.scale\":{\"dtype\":\"F16\"", "\"model.layers.0.w0.scale\":{\"dtype\":\"I16\"",
     "not the shape"},
    {"\"model.layers.0.w1.perm\":{\"dtype\":\"I32\"", "\"model.layers.0.w1.perm\":{\"dtype\":\"U32\"", "not the shape"},
    {"\"model.layers.0.w1.smooth\":{\"dtype\":\"F32\",\"shape\":[96]",
     "\"model.layers.0.w1.smooth\":{\"dtype\":\"F32\",\"shape\":[96,1]", "not the shape"},
    {"asym f16 3x20x96", "asym f16 0x20x96", "type \""},
    {"asym f16 3x20x96", "asym f16 03x20x96", "type \""},
    {"asym f16 3x20x96", "asym f16 -3x20x96", "type \""},
    {"asym f16 3x20x96", "asym f16 3x20x96x1", "type \""},
    {"asym f16 3x20x96", "asym f16 x20x96", "type \""},
    {"asym f16 3x20x96", "asym f16 3x20x", "type \""},
    {"asym f16 3x20x96", "asym f16 3x0x96", "type \""},
    {"asym f16 3x20x96", "asym f16 4x20x96",
     "part .q is u8 of 2880 bytes, which is not the shape for int4 g32 asym f16 4x20x96"},
    {"asym f16 3x20x96", "asym f16 60x96", "is not the shape for int4 g32 asym f16 60x96"},
    {"asym f16 3x20x96", "asym f16 1x60x96", "not the shape"},
    {"asym f16 3x20x96", "asym f16 2147483647x20x96", "not the shape"},
    {"asym f16 3x20x96", "asym f16 2147483648x20x96", "type \""},
    {"asym f16 3x20x96", "asym f16 2147483647x2147483647x96", "cannot be"},
    {"asym f16 3x20x96", "asym f16 999999999999999999x1x1", "type \""},
    {"experts.perm\":{\"dtype\":\"I32\",\"shape\":[3,96]", "experts.perm\":{\"dtype\":\"I32\",\"shape\":[288]",
     "part .perm"},
    {"experts.smooth\":{\"dtype\":\"F32\",\"shape\":[3,96]", "experts.smooth\":{\"dtype\":\"F32\",\"shape\":[96,3]",
     "part .smooth"},
    {"experts.q\":{\"dtype\":\"U8\",\"shape\":[3,20,48]", "experts.q\":{\"dtype\":\"U8\",\"shape\":[60,48]", "part .q"},
    {"int4 g32 asym f16 20x96", "int4 g32 asym f16 1x20x96", "not the shape"},
    {"tensor asym 20x96", "tensor 20x96", "part .act_zero,"},
    {"act i8 tensor asym 20x96", "act i8 row 20x96", "part .act_"},
    {"act i8 tensor asym 20x96", "act i8 row asym 20x96", "type \""},
    {"act i8 tensor asym 20x96", "act i8 asym 20x96", "type \""},
    {"act i8 tensor asym 20x96", "act 20x96", "type \""},
    {"act i8 tensor asym 20x96", "act e4m3 tensor 20x96", "type \""},
    {"fp4 g16 e4m3", "fp4 e4m3", "type \""},
    {"fp4 g16 e4m3", "fp5 g16 e4m3", "type \""},
    {"fp4 g16 e4m3", "nvfp4", "type \""},
    {"fp4 g16 e4m3", "int4 g16 e4m3", "type \""},
    {"fp4 g16 e4m3", "fp4 g16 e8m0", "part .scale"},
    {"fp4 g16 e4m3", "fp4 g16 f16", "part .scale"},
    {"fp4 g16 e4m3", "table4 g16 e4m3", "part .table is missing"},
    {"table4 g16 f16", "fp4 g16 f16", "part .table,"},
    {"table4 g16 f16", "table4 g16 e4m3", "part .scale"},
    {"w0.scale2\":{\"dtype\":\"F32\",\"shape\":[1]", "w0.scale2\":{\"dtype\":\"F32\",\"shape\":[]", "part .scale2"},
    {"w0.scale2\":{\"dtype\":\"F32\"", "w0.scale2\":{\"dtype\":\"I32\"", "part .scale2 is i32"},
    {"int8 row sym f16", "i8 row f16", "type \""},
    {"int3 g16 asym dq256", "int3 g16 asym f32", "part .scale"},
    {"int3 g16 asym dq256", "int3 g16 asym dq255", "type \""},
    {"int3 g16 asym dq256", "int3 g32 asym dq256", "part .scale"},
    {"int3 g16 asym dq256", "table3 g16 dq256", "part .table is missing"},
    {"int4 g32 asym f16 20x96", "int4 g32 asym dq256 20x96", "part .scale"},
    {"w1.scale\":{\"dtype\":\"U8\"", "w1.scale\":{\"dtype\":\"I8\"", "part .scale is i8"},
    {"w1.scale_map\":{\"dtype\":\"F32\",\"shape\":[256]", "w1.scale_map\":{\"dtype\":\"I16\",\"shape\":[512]",
     "part .scale_map is i16"},
    {"w1.scale_offset\":{\"dtype\":\"F32\",\"shape\":[1]", "w1.scale_offset\":{\"dtype\":\"F32\",\"shape\":[]",
     "part .scale_offset"},
    {"w1.scale2\":{\"dtype\":\"F32\",\"shape\":[1]", "w1.scale2\":{\"dtype\":\"U16\",\"shape\":[2]", "part .scale2"},
    {"w1.scale_map\":{", "w1.scale_mop\":{", "a checksum for tensor"},
    {"w1.scale_offset\":{", "w0.scale_offset\":{", "a checksum for tensor"},
    {"int8 row sym f16", "int8 row sym f16 act i8 tensor", "part .act_scale is missing"},
    {"w1.act_zero\":{\"dtype\":\"I32\"", "w1.act_zero\":{\"dtype\":\"F32\"", "part .act_zero is f32"},
    {"w1.act_scale\":{\"dtype\":\"F32\",\"shape\":[1]", "w1.act_scale\":{\"dtype\":\"F32\",\"shape\":[]",
     "part .act_scale"},
    {"w1.act_scale\":{\"dtype\":\"F32\",\"shape\":[1]", "w1.act_scale\":{\"dtype\":\"F32\",\"shape\":[1,1]",
     "part .act_scale"},
    {"\"model.layers.1.w0.outlier_cols\":{\"dtype\":\"I32\",\"shape\":[2]",
     "\"model.layers.1.w0.outlier_cols\":{\"dtype\":\"I64\",\"shape\":[1]", "not the shape"},
};

static void test_coded(blob good) {
    lq_err err;
    for (size_t i = 0; i < sizeof coded / sizeof *coded; i++) {
        blob b = {malloc(good.n), good.n};
        memcpy(b.p, good.p, good.n);
        bool there = header_replace(b, coded[i].from, coded[i].to), ok = opens(b.p, b.n, true, &err);
        CHECK(there, "case %zu: \"%s\" is not in the header", i, coded[i].from);
        if (coded[i].word) CHECK(!ok && strstr(err.text, coded[i].word), "case %zu (%s), \"%s\": %s", i, coded[i].to,
                                 coded[i].word,
            err.text);
        else CHECK(ok || strstr(err.text, "header") == NULL, "case %zu: %s", i, err.text);
        free(b.p);
    }
    printf(".lq table: %zu cases\n", sizeof coded / sizeof *coded);
}

// Before layout x86 had tables, files of it had them as any has: the shape of the codes tells.
static void test_before(void) {
    static make_buffers buffers;
    const lq_weight w = make_weight(6 /* nvfp4 */, &buffers);
    lq_err err = {0};
    lq_writer *to = NULL;
    lq_writer_opts o = {.out = at("before.lq"), .fingerprint = "before", .header_room = make_room()};
    bool ok = lq_writer_open(&o, &to, &err) && lq_writer_meta(to, "lq.layout", "any", &err) &&
              lq_writer_weight(to, "w", &w, &err) && lq_writer_commit(to, NULL, NULL, &err);
    CHECK(ok, "%s", err.text);
    lq_writer_close(to, false);
    blob b = blob_read(at("before.lq"));
    CHECK(header_replace(b, "\"lq.layout\":\"any\"", "\"lq.layout\":\"x86\""), "the header says its layout");
    CHECK(blob_write(at("before.lq"), b.p, b.n), "written");
    free(b.p);
    lq_ckpt *c = NULL;
    lq_weight got;
    ok = lq_ckpt_open(at("before.lq"), &c, &err) && lq_ckpt_weight(c, "w", MAKE_N, MAKE_K, &got, &err);
    CHECK(ok && got.layout == LQ_ANY && !memcmp(got.q, w.q, MAKE_N * MAKE_K / 2), "%s", err.text);
    lq_ckpt_close(c);
    unlink(at("before.lq"));
}

// Two texts, each replaced wherever it stands.
static const struct { const char *from[2], *to[2], *word; } renamed[] = {
    {{"layers.0.norm"}, {"layers.0.other"}, NULL},
    {{"layers.0.norm"}, {"layers.0.w0x"}, NULL},
    {{"layers.0.norm"}, {"layers.0.w0.more"}, "part .more,"},
    {{"layers.0.norm"}, {"layers.0.w0."}, "part .,"},
    {{"layers.0.norm"}, {"layers.0.w0.scale.x"}, "part .scale.x,"},
    {{"layers.0.norm"}, {"layers.0.w0.zero"}, "part .zero,"},
    {{"layers.0.norm"}, {"layers.0.w0.table"}, "part .table,"},
    {{"int8 row sym f16 20x96", "layers.1.w0.q\":{\"dtype\":\"U8\""},
     {"e4m3 row f16 20x96", "layers.1.w0.q\":{\"dtype\":\"F8_E4M3\""}, NULL},
    {{"layers.0.w1.perm"}, {"layers.1.w0.perm"}, NULL},
    {{"layers.3.w1.act_scale"}, {"layers.0.w0.act_scale"}, "its part .act_scale is missing"},
    {{"layers.3.w1.act_zero"}, {"layers.3.w1.act_none"}, "its part .act_zero is missing"},
    {{"layers.0.norm"}, {"layers.0.w0.act_scale"}, "part .act_scale,"},
    {{"layers.0.norm"}, {"layers.3.w0.table"}, "part .table,"},
    {{"layers.0.w1.smooth"}, {"layers.1.w0.smooth"}, NULL},
};

static void test_renamed(blob good) {
    lq_err err;
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++) {
        blob b = {malloc(good.n), good.n};
        memcpy(b.p, good.p, good.n);
        for (int j = 0; j < 2 && renamed[i].from[j]; j++) {
            int times = 0;
            while (times < 4 && header_replace(b, renamed[i].from[j], renamed[i].to[j])) times++;
            CHECK(times > 0 && times < 4, "case %zu: \"%s\" %d times", i, renamed[i].from[j], times);
        }
        bool ok = opens(b.p, b.n, true, &err);
        if (renamed[i].word) CHECK(!ok && strstr(err.text, renamed[i].word), "renamed %zu, \"%s\": %s", i,
                                   renamed[i].word, err.text);
        else CHECK(ok, "renamed %zu: %s", i, err.text);
        free(b.p);
    }
    printf("names of parts: %zu cases\n", sizeof renamed / sizeof *renamed);
}

// --- .lq from nothing: tensors of zeros where a case wants them ---

typedef struct place { const char *name, *dtype, *shape; size_t at, n; } place;

static blob lq_build(const char *meta, const place *t, size_t count) {
    static const uint8_t zeros[8192];
    lq_text h = {0};
    lq_text_fmt(&h, "{\"__metadata__\":{\"lq.version\":\"0\",\"lq.header\":\"0000000000000000\",\"lq.layout\":\"any\",%s,\"lq.xxh64\":\"{", meta);
    size_t data = 0;
    bool first = true;
    for (size_t i = 0; i < count; i++) {
        if (t[i].at + t[i].n > data) data = t[i].at + t[i].n;
        if (!strncmp(t[i].name, "lq.pad/", 7)) continue;
        lq_text_fmt(&h, "%s" Q "%s" Q ":" Q "%016llx" Q, first ? "" : ",", t[i].name,
                    (unsigned long long)XXH64(zeros, t[i].n, 0));
        first = false;
    }
    lq_text_fmt(&h, "}\"}");
    for (size_t i = 0; i < count; i++)
        lq_text_fmt(&h, ",\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}", t[i].name, t[i].dtype,
                    t[i].shape, t[i].at, t[i].at + t[i].n);
    lq_text_fmt(&h, "}");
    char room[4096 - 8];
    memset(room, ' ', sizeof room);
    memcpy(room, h.p, h.n);
    lq_text_free(&h);
    blob b = tensors_make(room, sizeof room, data);
    header_sign(b);
    return b;
}

#define TYPES "\"lq.types\":\"{}\""
static const struct { place t[5]; const char *word; } padded[] = {
    {{{"a", "U8", "[17]", 0, 17}, {"lq.pad/0", "U8", "[4079]", 17, 4079}, {"b", "U8", "[4096]", 4096, 4096}}, NULL},
    {{{"a", "U8", "[17]", 0, 17}, {"lq.pad/0", "U8", "[47]", 17, 47}, {"lq.pad/1", "U8", "[4032]", 64, 4032},
      {"b", "U8", "[4096]", 4096, 4096}}, "before padding"},
    {{{"a", "U8", "[17]", 0, 17}, {"lq.pad/0", "U8", "[47]", 17, 47}, {"e", "F32", "[3,0]", 64, 0},
      {"lq.pad/1", "U8", "[4032]", 64, 4032},
      {"b", "U8", "[4096]", 4096, 4096}}, NULL},
    {{{"a", "U8", "[17]", 0, 17}, {"lq.pad/0", "U8", "[47]", 17, 47}, {"e", "F32", "[3,0]", 64, 0}}, NULL},
    {{{"a", "U8", "[17]", 0, 17}, {"e", "F32", "[3,0]", 17, 0}}, "not at a multiple of 64"},
    {{{"a", "U8", "[17]", 0, 17}, {"lq.pad/0", "U8", "[47]", 17, 47}}, "expected lq.pad/0 of 0"},
    {{{"a", "U8", "[64]", 0, 64}, {"lq.pad/0", "U8", "[64]", 64, 64}, {"b", "F64", "[]", 128, 8}},
     "expected lq.pad/0 of 0"},
    {{{"a", "U8", "[64]", 0, 64}, {"lq.pad/0", "U8", "[0]", 64, 0}, {"b", "F64", "[]", 64, 8}},
     "expected lq.pad/0 of 0"},
    {{{"lq.pad/0", "U8", "[64]", 0, 64}, {"b", "F64", "[]", 64, 8}}, "expected lq.pad/0 of 0"},
};

static void test_padding(void) {
    lq_err err;
    for (size_t i = 0; i < sizeof padded / sizeof *padded; i++) {
        size_t n = 0;
        while (n < 5 && padded[i].t[n].name) n++;
        blob b = lq_build(TYPES, padded[i].t, n);
        bool ok = opens(b.p, b.n, true, &err);
        if (padded[i].word) CHECK(!ok && strstr(err.text, padded[i].word), "padding %zu, \"%s\": %s", i, padded[i].word,
                                  err.text);
        else CHECK(ok, "padding %zu: %s", i, err.text);
        free(b.p);
    }
}

// Memory may lie anywhere: each part comes out at a multiple of 64 and with the same values.
static void test_alignment(blob good) {
    lq_err err = {0};
    uint8_t *room = aligned_alloc(64, (good.n + 2 * 64) / 64 * 64);
    for (size_t shift = 0; shift < 64; shift = shift ? shift * 2 : 1) {
        lq_ckpt *c = NULL;
        memcpy(room + shift, good.p, good.n);
        CHECK(lq_ckpt_open_bytes(room + shift, good.n, "shifted.lq", &c, &err), "%s", err.text);
        for (int i = 0; i < MAKE_FEATURES && c; i++) {
            static make_buffers buffers;
            const lq_weight want = make_weight(i, &buffers);
            lq_weight w, again;
            char name[64];
            snprintf(name, sizeof name, "model.layers.%d.w%d", i / 2, i % 2);
            bool ok = lq_ckpt_weight(c, name, MAKE_N, MAKE_K, &w, &err) &&
                      lq_ckpt_weight(c, name, MAKE_N, MAKE_K, &again, &err);
            CHECK(ok, "%s", err.text);
            if (!ok) continue;
            const void *parts[] = {w.q, w.scale, w.zero, w.table, w.perm, w.smooth, w.outlier, w.outlier_w};
            bool same = w.q == again.q && (w.scale == again.scale || w.type.dq), at64 = true;
            for (size_t j = 0; j < sizeof parts / sizeof *parts; j++) at64 &= (uintptr_t)parts[j] % 64 == 0;
            float x[MAKE_K], y[MAKE_K];
            for (int64_t r = 0; r < MAKE_N; r++) {
                lq_weight_row_any(&w, r, x);
                lq_weight_row_any(&want, r, y);
                same &= !memcmp(x, y, sizeof x);
            }
            CHECK(at64 && same, "%s at %zu: aligned %d, the same %d", name, shift, at64, same);
        }
        lq_ckpt_close(c);
    }
    free(room);
}

static void test_flips(blob good) {
    lq_err err;
    size_t n = header_len(good), flips = 0, missed = 0;
    uint64_t room, seed = 2463534242;
    memcpy(&room, good.p, 8);
    for (size_t at = 0; at < 8 + room; at++) {
        for (int bit = 0; bit < 8; bit++) {
            if (at >= 8 && bit != (int)(next_random(&seed) % 8) && (at % 16 || at >= 8 + n)) continue;
            good.p[at] ^= (uint8_t)(1 << bit);
            missed += opens(good.p, good.n, false, &err);
            good.p[at] ^= (uint8_t)(1 << bit);
            flips++;
        }
    }
    CHECK(!missed, "%zu of %zu flips in the header were taken", missed, flips);
    printf("header flips: %zu\n", flips);
    // Data: a flip opens (nothing reads it then) and must be found by the check.
    size_t data = 0;
    missed = 0;
    for (size_t at = 8 + (size_t)room; at < good.n; at += 1 + next_random(&seed) % 40, data++) {
        good.p[at] ^= (uint8_t)(1 << at % 8);
        missed += opens(good.p, good.n, true, &err) || !strstr(err.text, "damaged");
        good.p[at] ^= (uint8_t)(1 << at % 8);
    }
    CHECK(!missed, "%zu of %zu flips in the data were not found", missed, data);
    printf("data flips: %zu\n", data);
    size_t cuts = 0;
    for (size_t to = 0; to < good.n; to += to < 64 ? 1 : 1 + next_random(&seed) % 61, cuts++)
        missed += opens(good.p, to, false, &err);
    CHECK(!missed, "%zu of %zu cuts were taken", missed, cuts);
    printf("cuts: %zu\n", cuts);
}

static bool bind(lq_ckpt *c, const char *name, lq_err *err) {
    lq_weight w;
    bool ok = true;
    if (!strstr(name, "experts")) return lq_ckpt_weight(c, name, MAKE_N, MAKE_K, &w, err);
    for (lq_pick p = {.stack = MAKE_STACK}; ok && p.at < MAKE_STACK; p.at++) {
        snprintf(p.name, sizeof p.name, "%s", name);
        ok = lq_ckpt_pick(c, &p, MAKE_N, MAKE_K, &w, NULL, err);
    }
    return ok;
}

// Columns that would be written outside a row, and scales that are none, are found where the weight is bound.
static void test_columns(blob good) {
    static const struct { const char *part, *weight; int32_t value; } cases[] = {
        {"model.layers.0.w1.perm", "model.layers.0.w1", -1}, {"model.layers.0.w1.perm", "model.layers.0.w1", MAKE_K},
        {"model.layers.0.w1.perm", "model.layers.0.w1", 8},
        {"model.layers.1.w0.outlier_cols", "model.layers.1.w0", 50},
        {"model.layers.1.w0.outlier_cols", "model.layers.1.w0", INT32_MIN},
        {"model.layers.2.experts.perm", "model.layers.2.experts", 8},
        {"model.layers.3.w1.act_scale", "model.layers.3.w1", 0},
        {"model.layers.3.w1.act_scale", "model.layers.3.w1", 0x7fc00000},
        {"model.layers.3.w1.act_scale", "model.layers.3.w1", 0x7f800000},
        {"model.layers.3.w1.act_scale", "model.layers.3.w1", (int32_t)0xbf800000},
        {"model.layers.1.w1.scale2", "model.layers.1.w1", 0x7fc00000},
        {"model.layers.1.w1.scale_map", "model.layers.1.w1", 0x7f800000},
        {"model.layers.1.w1.scale_offset", "model.layers.1.w1", 0x7f800000},
        {"model.layers.3.w0.scale2", "model.layers.3.w0", 0x7fc00000},
        {"model.layers.3.w0.scale2", "model.layers.3.w0", 0x7f800000},
        {"model.layers.3.w0.scale2", "model.layers.3.w0", (int32_t)0xbf800000},
        {"model.layers.3.w1.act_zero", "model.layers.3.w1", 128},
        {"model.layers.3.w1.act_zero", "model.layers.3.w1", -129},
        {"model.layers.3.w1.outlier_cols", "model.layers.3.w1", MAKE_K},
        {"model.layers.3.w1.perm", "model.layers.3.w1", 8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lq_ckpt *c = NULL;
        lq_err err = {0};
        int32_t old;
        CHECK(lq_ckpt_open_bytes(good.p, good.n, "evil.safetensors", &c, &err), "%s", err.text);
        const lq_tensor *t = c ? lq_ckpt_find(c, cases[i].part) : NULL;
        CHECK(t && bind(c, cases[i].weight, &err), "%s: %s", cases[i].part, err.text);
        size_t at = t ? (size_t)((const uint8_t *)t->data - good.p) : 0;
        lq_ckpt_close(c);
        if (!t) continue;
        memcpy(&old, good.p + at, 4);
        memcpy(good.p + at, &cases[i].value, 4);
        // Opened anew: parts that memory does not align are copied once.
        CHECK(lq_ckpt_open_bytes(good.p, good.n, "evil.safetensors", &c, &err), "%s", err.text);
        CHECK(!bind(c, cases[i].weight, &err) && err_good(&err, "evil.safetensors") && strstr(err.text,
            cases[i].weight), "%s: %s", cases[i].part, err.text);
        lq_ckpt_close(c);
        memcpy(good.p + at, &old, 4);
        refused++;
    }
}

// --- on disk: indices, shards, directories ---

#define S1 "model-00001-of-00002.safetensors"
#define S2 "model-00002-of-00002.safetensors"
static const struct { const char *text, *word; } indices[] = {
    {"{\"metadata\":{\"total_size\":32},\"weight_map\":{\"a\":\"" S1 "\",\"b\":\"" S2 "\"},\"more\":\"text behind it\"}", NULL},
    {"{\"weight_map\":{\"a\":\"" S1 "\"}}", NULL}, // a model of one of the files
    {"{\"weight_map\":{\"a\":\"" S2 "\",\"b\":\"" S1 "\"}}", "is not in"},
    {"{\"weight_map\":{\"a\":\"" S1 "\",\"c\":\"" S2 "\"}}", "is not in"},
    {"{\"weight_map\":{\"a\":\"" S1 "\",\"b\":\"two.safetensors\"}}", "the index names"},
    {"{\"weight_map\":{\"a\":\"" S1 "\",\"b\":\"again.safetensors\"}}", "is also in"},
    {"{\"weight_map\":{\"a\":\"" S1 "\",\"b\":\"absent.safetensors\"}}", "absent.safetensors"},
    {"{\"weight_map\":{\"a\":\"../" S1 "\"}}", "beside the index"},
    {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "beside the index"},
    {"{\"weight_map\":{\"a\":\"sub/" S1 "\"}}", "beside the index"},
    {"{\"weight_map\":{\"a\":\"..\"}}", "beside the index"},
    {"{\"weight_map\":{\"a\":\".\"}}", "beside the index"},
    {"{\"weight_map\":{\"a\":\"\"}}", "beside the index"},
    {"{\"weight_map\":{\"a\":\"x\\u0000y\"}}", "not a tensor's name"},
    {"{\"weight_map\":{\"a\\u0000\":\"" S1 "\"}}", "not a tensor's name"},
    {"{\"weight_map\":{\"\":\"" S1 "\"}}", "not a tensor's name"},
    {"{\"weight_map\":{\"a\":1}}", "not a tensor's name"},
    {"{\"weight_map\":{\"a\":[\"" S1 "\"]}}", "not a tensor's name"},
    {"{\"weight_map\":{\"a\":\"" S1 "\",\"a\":\"" S2 "\"}}", "stands twice"},
    {"{\"weight_map\":{}}", "no weight_map"},
    {"{\"weight_map\":[]}", "no weight_map"},
    {"{}", "no weight_map"},
    {"[]", "no weight_map"},
    {"", "empty"},
    {"{\"weight_map\":{\"a\":\"" S1 "\"}", "not JSON"},
    {"{\"weight_map\":{\"a\":\"mixed.lq\",\"b\":\"" S2 "\"}}", "no such"},
    {"{\"weight_map\":{\"a\":\"model.safetensors.index.json\"}}", "safetensors"},
    {"{\"weight_map\":{\"a\":\"nothing.safetensors\"}}", "is empty"},
    {"{\"weight_map\":{\"a\":\"dir.safetensors\"}}", "not a regular file"},
};

static void tensors_put(const char *file, const char *header) {
    blob b = tensors_make(header, strlen(header), 16);
    CHECK(blob_write(at(file), b.p, b.n), "%s", file);
    free(b.p);
}

static bool path_opens(const char *path, lq_err *err) {
    lq_ckpt *c = NULL;
    memset(err, 0, sizeof *err);
    bool ok = lq_ckpt_open(path, &c, err);
    if (!ok && !err_good(err, folder)) CHECK(0, "a bad line: \"%s\"", err->text);
    lq_ckpt_close(c);
    refused += !ok;
    return ok;
}

static void test_indices(void) {
    lq_err err;
    tensors_put(S1, "{\"a\":{" OK "}}");
    tensors_put(S2, "{\"b\":{" OK "}}");
    tensors_put("again.safetensors", "{\"a\":{" OK "}}");
    tensors_put("two.safetensors",
        "{\"b\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]},\"c\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[8,16]}}");
    CHECK(blob_write(at("nothing.safetensors"), "", 0) && !mkdir(at("dir.safetensors"), 0777), "files");
    for (size_t i = 0; i < sizeof indices / sizeof *indices; i++) {
        CHECK(blob_write(at("model.safetensors.index.json"), indices[i].text, strlen(indices[i].text)), "index");
        bool ok = path_opens(at("model.safetensors.index.json"), &err);
        const char *word = indices[i].word;
        bool why = word && (strstr(err.text, word) || (!strcmp(word, "no such") && strstr(err.text, "No such file")));
        CHECK(word ? !ok && why : ok, "index case %zu, \"%s\": %s", i, word ? word : "", err.text);
        CHECK(path_opens(folder, &err) == ok, "the directory is its index, case %zu", i);
    }
    printf("index table: %zu cases\n", sizeof indices / sizeof *indices);
    CHECK(!path_opens(at(S1), &err) && strstr(err.text, "one shard of 2") && strstr(err.text, "index"), "%s", err.text);
    unlink(at("model.safetensors.index.json"));
    CHECK(!path_opens(folder, &err), "many files, no index: %s", err.text);
    unlink(at("nothing.safetensors")), unlink(at("again.safetensors")), unlink(at("two.safetensors")),
        rmdir(at("dir.safetensors"));
    CHECK(!path_opens(folder, &err) && strstr(err.text, "no index"), "shards alone: %s", err.text);
    unlink(at(S2));
    CHECK(!path_opens(folder, &err) && strstr(err.text, "one shard of 2"), "a lone shard: %s", err.text);
    unlink(at(S1));
    CHECK(!path_opens(folder, &err) && strstr(err.text, "holds no"), "%s", err.text);
    CHECK(!path_opens(at("absent"), &err) && err.code == LQ_E_IO, "%s", err.text);
    tensors_put("model-00001-of-00001.safetensors", "{\"a\":{" OK "}}");
    CHECK(path_opens(folder, &err), "a shard of one is a model: %s", err.text);
    tensors_put("b.lq", "{\"a\":{" OK "}}");
    CHECK(!path_opens(folder, &err) && strstr(err.text, "name the one"), "%s", err.text);
}

// --- a .lq model in several files ---

#define W "\"lq.types\":\"{" Q "w" Q ":" Q "int8 row sym f16 1x64" Q "}\""
#define WQ {"w.q", "U8", "[1,64]", 0, 64}, {"w.scale", "F16", "[1,1]", 64, 2}
static const place w_place[] = {WQ}, b_place[] = {{"b", "U8", "[2]", 0, 2}};
static const place perm_place[] = {{"w.perm", "I32", "[1]", 0, 4}};
static const place side_place[] = {{"b", "U8", "[64]", 0, 64}, {"lq.file/config.json", "U8", "[2]", 64, 2}};
static const place first_place[] = {WQ, {"lq.pad/0", "U8", "[62]", 66, 62},
                                    {"lq.file/config.json", "U8", "[2]", 128, 2}};
static const struct {
    const char *meta[2];
    const place *t[2];
    size_t n[2];
    const char *second, *word; // the tensor of the second file; why it is refused
} split[] = {
    {{"\"lq.shard\":\"1/2\"," W, "\"lq.shard\":\"2/2\"," TYPES}, {w_place, b_place}, {2, 1}, "b", NULL},
    {{"\"lq.shard\":\"2/2\"," W, "\"lq.shard\":\"1/2\"," TYPES}, {w_place, b_place}, {2, 1}, "b", NULL},
    {{"\"lq.shard\":\"1/2\"," W, "\"lq.shard\":\"2/2\"," TYPES}, {first_place, b_place}, {4, 1}, "b", NULL},
    {{"\"lq.shard\":\"1/2\"," W, TYPES}, {w_place, b_place}, {2, 1}, "b", "lq.shard is missing"},
    {{"\"lq.shard\":\"1/2\"," W, "\"lq.shard\":\"1/2\"," TYPES}, {w_place, b_place}, {2, 1}, "b", "lq.shard is 1/2"},
    {{"\"lq.shard\":\"1/2\"," W, "\"lq.shard\":\"2/3\"," TYPES}, {w_place, b_place}, {2, 1}, "b", "lq.shard is 2/3"},
    {{"\"lq.shard\":\"1/2\"," W, "\"lq.shard\":\"2/2\"," TYPES}, {w_place, side_place}, {2, 2}, "b",
     "expected in the first"},
    {{"\"lq.shard\":\"1/2\"," W, "\"lq.shard\":\"2/2\"," TYPES}, {w_place, perm_place}, {2, 1}, "w.perm",
     "in another file"},
    {{"\"lq.shard\":\"1/2\"," W, "\"lq.shard\":\"2/2\"," W}, {w_place, b_place}, {2, 1}, "b", "missing"},
    {{"\"lq.shard\":\"1/2\"," W, "\"lq.shard\":\"2/2\"," W}, {w_place, w_place}, {2, 2}, "w.q", "is also in"},
};

static void test_split(void) {
    lq_err err;
    for (size_t i = 0; i < sizeof split / sizeof *split; i++) {
        for (int j = 0; j < 2; j++) {
            blob b = lq_build(split[i].meta[j], split[i].t[j], split[i].n[j]);
            CHECK(blob_write(at(j ? "two.lq" : "one.lq"), b.p, b.n), "file");
            free(b.p);
        }
        char index[256];
        const char *first = strcmp(split[i].second, "w.q") ? "\"w.q\":\"one.lq\"," : "";
        snprintf(index, sizeof index, "{\"weight_map\":{%s\"w.scale\":\"one.lq\",\"%s\":\"two.lq\"}}", first,
                 split[i].second);
        CHECK(blob_write(at("m.lq.index.json"), index, strlen(index)), "index");
        bool ok = path_opens(at("m.lq.index.json"), &err);
        if (split[i].word) CHECK(!ok && strstr(err.text, split[i].word), "split %zu, \"%s\": %s", i, split[i].word,
                                 err.text);
        else CHECK(ok && path_opens(folder, &err), "split %zu: %s", i, err.text);
        CHECK(!path_opens(at("one.lq"), &err) && strstr(err.text, "one shard of 2"), "split %zu, the first alone: %s",
              i, err.text);
    }
    unlink(at("m.lq.index.json"));
    CHECK(!path_opens(folder, &err), "two files: %s", err.text);
    unlink(at("two.lq"));
    CHECK(!path_opens(folder, &err) && strstr(err.text, "one shard of 2"), "a lone shard under another name: %s",
          err.text);
    unlink(at("one.lq"));
    printf("split models: %zu cases\n", sizeof split / sizeof *split);
}

int main(void) {
    snprintf(folder, sizeof folder, "/tmp/lq_hostile_XXXXXX");
    if (!mkdtemp(folder)) return 1;
    test_plain();
    test_lengths();
    lq_err err = {0};
    bool ok = make_lq(at("good.lq"), false, false, &err);
    blob good = blob_read(at("good.lq"));
    CHECK(ok && opens(good.p, good.n, true, &err), "%s", err.text);
    if (ok) {
        test_coded(good);
        test_renamed(good);
        test_alignment(good);
        test_flips(good);
        test_columns(good);
    }
    free(good.p);
    unlink(at("good.lq"));
    test_before();
    test_padding();
    test_split();
    test_indices();
    printf("%d refusals, one line each\n", refused);
    tree_remove(folder);
    return test_end();
}
