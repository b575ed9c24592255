// lqfile.c: the conventions that make a safetensors file a .lq file (docs/FORMAT.md), checked in full once lq.version
// is seen. Refused: another version, a header or tensor without its checksum, loose alignment, types that are not in
// their one written form, parts that are missing or have another shape than type and layout say, side files whose names
// are paths. Parts that a weight may not have are refused where shards are joined (open.c).
#include "formats/container.h"
#include "formats/json.h"
#include "formats/parts.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

const lq_tensor *lq_shard_find(const lq_shard *s, const char *name) {
    return lq_hashed_find(&s->names, s->tensor, sizeof *s->tensor, name, strlen(name));
}

const char *lq_shard_meta(const lq_shard *s, const char *key) {
    for (size_t i = 0; i < s->metas; i++)
        if (!strcmp(s->meta[i].key, key)) return s->meta[i].value;
    return NULL;
}

static bool starts(const char *s, const char *prefix) { return !strncmp(s, prefix, strlen(prefix)); }
bool lq_name_reserved(const char *name) { return starts(name, LQ_PAD_PREFIX) || starts(name, LQ_FILE_PREFIX); }

bool lq_file_name_ok(const char *name) {
    return lq_name_ok(name, strlen(name)) && !strchr(name, '/') && !strchr(name, '\\') && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

// --- checksums ---

bool lq_sum_parse(const char *text, size_t n, uint64_t *out) {
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (d < 0) return false;
        v = v << 4 | (unsigned)d;
    }
    *out = v;
    return n == 16;
}

uint64_t lq_header_sum(const char *header, size_t n, size_t digits) {
    XXH64_state_t *st = XXH64_createState();
    if (!st) return 0;
    XXH64_reset(st, 0);
    XXH64_update(st, header, digits);
    XXH64_update(st, "0000000000000000", 16);
    XXH64_update(st, header + digits + 16, n - digits - 16);
    uint64_t v = XXH64_digest(st);
    XXH64_freeState(st);
    return v;
}

static bool header_check(const lq_shard *s, lq_err *err) {
    const lq_meta *m = NULL;
    for (size_t i = 0; i < s->metas; i++)
        if (!strcmp(s->meta[i].key, "lq.header")) m = &s->meta[i];
    if (!m) return lq_fail(err, LQ_E_FORMAT, "%s: metadata lq.header (the header's checksum) is missing", s->path);
    uint64_t want, got;
    size_t n = s->data_at - 8;
    if (strlen(m->value) != 16 || memcmp(s->header + m->at, m->value, 16) != 0 || !lq_sum_parse(m->value, 16, &want))
        return lq_fail(err, LQ_E_FORMAT, "%s: metadata lq.header is \"%.40s\", expected 16 hex digits", s->path,
                       m->value);
    got = lq_header_sum(s->header, n, m->at);
    if (got != want)
        return lq_fail(err, LQ_E_FORMAT, "%s: the header is damaged: checksum %016llx, expected %016llx", s->path,
                       (unsigned long long)got, (unsigned long long)want);
    return true;
}

// Opens the object that a metadata string holds, and walks it by string pairs.
static const lq_json_limits inner = {100 * 1000 * 1000, 1};

static bool object_open(const lq_shard *s, const char *key, lq_json_walk *w, lq_err *err) {
    const char *text = lq_shard_meta(s, key);
    if (!text) return lq_fail(err, LQ_E_FORMAT, "%s: metadata %s is missing", s->path, key);
    if (!lq_json_check(text, strlen(text), inner, key, err)) return lq_fail_in(err, "%s: metadata", s->path);
    *w = (lq_json_walk){text, text + strlen(text)};
    if (lq_json_next(w) != '{') return lq_fail(err, LQ_E_FORMAT, "%s: metadata %s is not an object", s->path, key);
    lq_json_take(w);
    return true;
}

// The next pair of strings: 1, 0 at the end, -1 if it is not one.
static int pair_take(const lq_shard *s, const char *key, lq_json_walk *w, char *name, char **value, lq_err *err) {
    if (lq_json_next(w) != '"') return 0;
    size_t n = lq_json_take_str(w, name);
    name[n] = 0;
    *value = name + n + 1;
    bool ok = strlen(name) == n && lq_name_ok(name, n) && lq_json_next(w) == '"';
    if (ok) {
        size_t m = lq_json_take_str(w, *value);
        (*value)[m] = 0;
        ok = strlen(*value) == m;
    }
    if (!ok) lq_fail(err, LQ_E_FORMAT, "%s: metadata %s: \"%.100s\" is not a proper name with a string", s->path, key,
                     name);
    return ok ? 1 : -1;
}

static bool sums_take(lq_shard *s, char *buf, bool *have, lq_err *err) {
    lq_json_walk w;
    char *value;
    int got;
    size_t next = 0;
    if (!object_open(s, "lq.xxh64", &w, err)) return false;
    while ((got = pair_take(s, "lq.xxh64", &w, buf, &value, err)) > 0) {
        while (next < s->count && starts(s->tensor[next].name, LQ_PAD_PREFIX)) next++;
        // lq writes them in the order of the tensors
        const bool here = next < s->count && !strcmp(s->tensor[next].name, buf);
        const lq_tensor *t = here ? &s->tensor[next] : lq_shard_find(s, buf);
        if (!t || starts(buf, LQ_PAD_PREFIX))
            return lq_fail(err, LQ_E_FORMAT, "%s: a checksum for tensor %s, which is not there", s->path, buf);
        size_t i = (size_t)(t - s->tensor);
        next = i + 1;
        if (!lq_sum_parse(value, strlen(value), &s->sum[i]))
            return lq_fail(err, LQ_E_FORMAT, "%s: tensor %s: checksum \"%.40s\", expected 16 hex digits", s->path, buf,
                           value);
        have[i] = true;
    }
    if (got < 0) return false;
    for (size_t i = 0; i < s->count; i++)
        if (!have[i] && !starts(s->tensor[i].name, LQ_PAD_PREFIX))
            return lq_fail(err, LQ_E_FORMAT, "%s: tensor %s: has no checksum", s->path, s->tensor[i].name);
    return true;
}

static bool sums_read(lq_shard *s, lq_err *err) {
    const char *text = lq_shard_meta(s, "lq.xxh64");
    char *buf = malloc(text ? strlen(text) + 1 : 1);
    bool *have = calloc(s->count + 1, sizeof *have);
    s->sum = calloc(s->count + 1, sizeof *s->sum);
    bool ok = buf && have && s->sum ? sums_take(s, buf, have, err)
                                    : lq_fail(err, LQ_E_MEMORY, "%s: no memory for the checksums", s->path);
    free(buf);
    free(have);
    return ok;
}

// --- alignment, in the order of the bytes ---

static size_t align_of(size_t bytes) { return bytes >= LQ_ALIGN_PAGE ? LQ_ALIGN_PAGE : LQ_ALIGN; }

static bool places_check(lq_shard *s, lq_err *err) {
    size_t pads = 0;
    if (s->data_at % LQ_ALIGN_PAGE)
        return lq_fail(err, LQ_E_FORMAT, "%s: the data begins at byte %zu, not at a multiple of %d", s->path,
                       s->data_at, LQ_ALIGN_PAGE);
    for (size_t i = 0; i < s->count; i++) {
        const lq_tensor *t = &s->tensor[i];
        size_t at = (size_t)((const uint8_t *)t->data - s->map);
        if (starts(t->name, LQ_PAD_PREFIX)) {
            char want[32];
            snprintf(want, sizeof want, LQ_PAD_PREFIX "%zu", pads++);
            size_t to = i + 1 < s->count ? align_of(s->tensor[i + 1].bytes) : 1;
            size_t gap = (to - at % to) % to;
            if (i + 1 < s->count && starts(s->tensor[i + 1].name, LQ_PAD_PREFIX))
                return lq_fail(err, LQ_E_FORMAT, "%s: padding %s stands before padding, expected a tensor behind it",
                               s->path, t->name);
            if (strcmp(t->name, want) != 0 || t->type != LQ_U8 || t->rank != 1 || t->bytes == 0 || t->bytes != gap)
                return lq_fail(err, LQ_E_FORMAT, "%s: padding %s of %zu bytes, expected %s of %zu", s->path, t->name,
                               t->bytes, want, gap);
            continue;
        }
        if (at % align_of(t->bytes))
            return lq_fail(err, LQ_E_FORMAT, "%s: tensor %s: begins at byte %zu, not at a multiple of %zu", s->path,
                           t->name, at, align_of(t->bytes));
        if (!starts(t->name, LQ_FILE_PREFIX)) continue;
        s->files = true;
        if (t->type != LQ_U8 || t->rank != 1 || !lq_file_name_ok(t->name + strlen(LQ_FILE_PREFIX)))
            return lq_fail(err, LQ_E_FORMAT, "%s: side file %s: expected plain bytes under a name without a path",
                           s->path, t->name);
    }
    return true;
}

// --- weights ---

static bool shape_same(const lq_tensor *t, const lq_part_form *p) {
    bool same = t->type == p->type && t->rank == p->rank;
    for (int d = 0; d < p->rank && same; d++) same = t->shape[d] == p->shape[d];
    return same;
}

static bool part_check(const lq_shard *s, const lq_typed *w, lq_part_id i, const lq_tensor *t, const lq_part_form *p,
                       lq_err *err) {
    if (!t) return !lq_part_needed(i, &w->type) ||
                   lq_fail(err, LQ_E_FORMAT, "%s: weight %s: its part %s is missing", s->path, w->name,
                           lq_part_suffix(i));
    if (shape_same(t, p)) return true;
    char name[LQ_TYPED_TEXT];
    lq_typed_name(w, name, sizeof name);
    return lq_fail(err, LQ_E_FORMAT, "%s: weight %s: part %s is %s of %zu bytes, which is not the shape for %s",
                   s->path, w->name, lq_part_suffix(i), lq_dtypes[t->type].name, t->bytes, name);
}

// Gives each tensor that is a weight's part its place among that weight's. What else has such a name is
// found where shards are joined.
static void parts_find(const lq_shard *s, const lq_tensor *(*part)[LQ_PARTS]) {
    bool length[LQ_NAME] = {false}; // of some weight's name: few beginnings of names are worth a look
    for (size_t i = 0; i < s->typeds; i++) length[strlen(s->typed[i].name)] = true;
    for (size_t i = 0; i < s->count && s->typeds; i++) {
        const char *name = s->tensor[i].name, *dot = strrchr(name, '.'); // no suffix has a second dot
        const size_t n = dot ? (size_t)(dot - name) : 0;
        const lq_typed *w = length[n] ? lq_hashed_find(&s->type_names, s->typed, sizeof *s->typed, name, n) : NULL;
        for (lq_part_id p = 0; p < LQ_PARTS && w; p++)
            if (!strcmp(dot, lq_part_suffix(p))) part[w - s->typed][p] = &s->tensor[i];
    }
}

static bool weight_check(const lq_shard *s, const lq_typed *w, const lq_tensor *const *part, lq_err *err) {
    lq_weight of = {.type = w->type, .layout = w->layout, .n = w->n, .k = w->k};
    lq_part_form form;
    if (!lq_part_of(LQ_PART_Q, &of, w->count, &form))
        return lq_fail(err, LQ_E_FORMAT, "%s: weight %s: a size or type that cannot be", s->path, w->name);
    if (lq_shard_find(s, w->name))
        return lq_fail(err, LQ_E_FORMAT, "%s: weight %s: is there both plain and coded", s->path, w->name);
    const lq_tensor *cols = part[LQ_PART_OUTLIER_COLS], *vals = part[LQ_PART_OUTLIER_W];
    const int64_t count = cols && cols->rank ? cols->shape[cols->rank - 1] : 0;
    if ((cols || vals) && (!cols || !vals || count < 1 || count > w->k || count > LQ_OUTLIERS))
        return lq_fail(err, LQ_E_FORMAT, "%s: weight %s: outlier columns and values do not go together", s->path,
                       w->name);
    of.outliers = (int32_t)count;
    for (lq_part_id i = 0; i < LQ_PARTS; i++)
        if (lq_part_of(i, &of, w->count, &form) && !part_check(s, w, i, part[i], &form, err)) return false;
    return true;
}

void lq_typed_name(const lq_typed *w, char *buf, size_t size) {
    char type[LQ_WTYPE_TEXT], count[24] = "";
    lq_wtype_name(&w->type, type, sizeof type);
    if (w->count) snprintf(count, sizeof count, "%lldx", (long long)w->count);
    snprintf(buf, size, "%s %s%lldx%lld", type, count, (long long)w->n, (long long)w->k);
}

// "<type> <n>x<k>" or "<type> <count>x<n>x<k>", in exactly the form that a writer gives it.
bool lq_typed_parse(const char *path, const char *text, lq_typed *w, lq_err *err) {
    char type[96], again[LQ_TYPED_TEXT];
    const char *cut = strrchr(text, ' ');
    long long size[3];
    int end[3] = {0, 0, 0};
    bool ok = cut && (size_t)(cut - text) < sizeof type;
    const int got = ok ? sscanf(cut, " %18lldx%18lld%nx%18lld%n", &size[0], &size[1], &end[1], &size[2], &end[2]) : 0;
    ok = got >= 2 && cut[end[got - 1]] == 0;
    for (int i = 0; i < got && ok; i++) ok = size[i] > 0 && size[i] <= INT32_MAX;
    if (ok) {
        memcpy(type, text, (size_t)(cut - text));
        type[cut - text] = 0;
        w->count = got == 3 ? size[0] : 0, w->n = size[got - 2], w->k = size[got - 1];
        ok = lq_wtype_parse(type, &w->type, NULL) && w->type.kind != LQ_W_PLAIN;
    }
    if (ok) lq_typed_name(w, again, sizeof again);
    if (ok && !strcmp(again, text)) return true;
    return lq_fail(err, LQ_E_FORMAT,
                   "%s: weight %s: type \"%.100s\", expected one like \"int4 g128 sym f16 4096x11008\"", path, w->name,
                   text);
}

static bool lies_as(const lq_typed *w, lq_layout layout, const lq_tensor *q) {
    const lq_weight of = {.type = w->type, .layout = layout, .n = w->n, .k = w->k};
    lq_part_form form;
    return lq_part_of(LQ_PART_Q, &of, w->count, &form) && shape_same(q, &form);
}

// Types that have come to x86 since there are such files lie in older ones as in any, which the shape of codes tells.
static void layout_settle(lq_typed *w, const lq_tensor *q) {
    const bool later = w->type.kind == LQ_W_TABLE || (w->type.bits != 4 && w->type.bits != 8);
    if (w->layout == LQ_X86 && later && q && !lies_as(w, LQ_X86, q) && lies_as(w, LQ_ANY, q)) w->layout = LQ_ANY;
}

static bool weights_check(lq_shard *s, lq_err *err) {
    const lq_tensor *(*part)[LQ_PARTS] = calloc(s->typeds + 1, sizeof *part);
    bool ok = (part && lq_hashed_build(&s->type_names, s->typed, s->typeds, sizeof *s->typed)) ||
              lq_fail(err, LQ_E_MEMORY, "%s: no memory for the types", s->path);
    if (ok) parts_find(s, part);
    for (size_t i = 0; i < s->typeds && ok; i++) {
        layout_settle(&s->typed[i], part[i][LQ_PART_Q]);
        ok = weight_check(s, &s->typed[i], part[i], err);
    }
    free(part);
    return ok;
}

static bool types_read(lq_shard *s, lq_err *err) {
    const char *name = lq_shard_meta(s, "lq.layout"), *text = lq_shard_meta(s, "lq.types");
    int layout = 0;
    while (layout < LQ_LAYOUTS && (!name || strcmp(name, lq_layout_names[layout]) != 0)) layout++;
    if (layout == LQ_LAYOUTS)
        return lq_fail(err, LQ_E_FORMAT, "%s: metadata lq.layout is \"%.40s\", expected any, x86 or cuda", s->path,
                       name ? name : "");
    lq_json_walk w;
    if (!object_open(s, "lq.types", &w, err)) return false;
    char *at = s->typed_arena = malloc(strlen(text) + 1), *value;
    lq_typed last = {0};
    char said[128] = ""; // what `last` was parsed from
    size_t cap = 0;
    int got;
    if (!at) return lq_fail(err, LQ_E_MEMORY, "%s: no memory for the types", s->path);
    while ((got = pair_take(s, "lq.types", &w, at, &value, err)) > 0) {
        lq_typed t = last; // experts are all of one type and size
        t.name = at;
        if ((!said[0] || strcmp(value, said) != 0) && !lq_typed_parse(s->path, value, &t, err)) return false;
        snprintf(said, sizeof said, "%s", value);
        last = t;
        at += strlen(at) + 1;
        t.layout = lq_layout_in((lq_layout)layout, &t.type, t.n, t.k);
        if (s->typeds == cap) {
            cap = cap ? cap * 2 : 64;
            lq_typed *p = realloc(s->typed, cap * sizeof *p);
            if (!p) return lq_fail(err, LQ_E_MEMORY, "%s: no memory for the types", s->path);
            s->typed = p;
        }
        s->typed[s->typeds++] = t;
    }
    return got == 0 && weights_check(s, err);
}

// "1/3" of a model in several files.
static bool part_number_read(lq_shard *s, lq_err *err) {
    const char *text = lq_shard_meta(s, "lq.shard");
    char again[32];
    if (!text) return true;
    bool ok = sscanf(text, "%6ld/%6ld", &s->part, &s->parts) == 2 && s->part >= 1 && s->part <= s->parts;
    snprintf(again, sizeof again, "%ld/%ld", s->part, s->parts);
    if (ok && !strcmp(again, text)) return true;
    return lq_fail(err, LQ_E_FORMAT, "%s: metadata lq.shard is \"%.40s\", expected one like 1/3", s->path, text);
}

bool lq_lqfile_read(lq_shard *s, lq_err *err) {
    const char *version = lq_shard_meta(s, "lq.version");
    if (strcmp(version, "0") != 0)
        return lq_fail(err, LQ_E_UNSUPPORTED, "%s: .lq version \"%.20s\", this lq reads version 0", s->path, version);
    if (!header_check(s, err) || !places_check(s, err)) return false;
    if (!lq_hashed_build(&s->names, s->tensor, s->count, sizeof *s->tensor))
        return lq_fail(err, LQ_E_MEMORY, "%s: no memory for %zu names", s->path, s->count);
    return sums_read(s, err) && types_read(s, err) && part_number_read(s, err);
}
