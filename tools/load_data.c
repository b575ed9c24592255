// load_data.c: what `lq bench serve` sends, and when: random prompts, conversations and traces of files, arrivals. Owns
// the requests. All that is random comes of the seed and a request's number, whatever order they run in. Refuses files
// that are none of the known forms.
#include "tools/load.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const size_t file_most = (size_t)1 << 30;

// --- chance ---

// SplitMix64.
uint64_t lq_load_draw(uint64_t *state) {
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static double draw_share(uint64_t *state) { return (double)(lq_load_draw(state) >> 11) * 0x1p-53; } // [0, 1)

// Every whole number from n * (1 - range) to n * (1 + range) alike, as vLLM's random dataset has them.
static int draw_length(uint64_t *state, int n, double range) {
    const int low = (int)ceil(n * (1 - range)), high = (int)floor(n * (1 + range));
    const int at = low + (int)(draw_share(state) * (high - low + 1));
    return at < 1 ? 1 : at;
}

// --- bodies ---

static const char *const words[] = {
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school", "state",
    "family", "student", "group", "country", "problem", "hand", "part", "place", "case", "week", "company", "system",
    "program", "question", "work", "number", "night", "point", "home", "water", "room", "mother", "area", "money",
    "story", "fact", "month", "lot", "right", "study", "book", "eye", "job", "word", "business", "issue", "side",
    "kind", "head", "house", "service", "friend", "father", "power", "hour", "game", "line", "end", "member", "law",
    "car"};
enum { WORDS = sizeof words / sizeof *words };

// A token from an eighth of the vocabulary on: what ends a text or begins a turn mostly stands before.
static void add_piece(const lq_load *l, uint64_t draw, bool first, lq_text *out) {
    char text[32];
    size_t n;
    if (!l->vocab) n = (size_t)snprintf(text, sizeof text, "%s%s", first ? "" : " ", words[draw % WORDS]);
    else {
        const uint64_t low = (uint64_t)l->vocab / 8;
        uint64_t id = low + draw % ((uint64_t)l->vocab - low);
        char *p = text + sizeof text;
        do *--p = (char)('0' + id % 10);
        while (id /= 10);
        if (!first) *--p = ',';
        n = (size_t)(text + sizeof text - p);
        memmove(text, p, n);
    }
    lq_text_add(out, text, n);
}

static void add_made_up(const lq_load *l, const lq_load_request *q, lq_text *out) {
    const double scale = l->vocab ? 1 : l->words, beside = l->vocab ? 0 : l->beside;
    const long shared = lround(l->prefix * scale), all = lround((l->prefix + q->input - beside) * scale);
    uint64_t same = l->seed, own = q->draw, block = 0;
    lq_text_add(out, l->vocab ? "[" : "\"", 1);
    for (long i = 0; i < (all < 1 ? 1 : all); i++) {
        const long at = i - shared, k = at / LQ_LOAD_BLOCK;
        uint64_t *from = i < shared ? &same : k < q->block_count ? &block : &own;
        if (from == &block && at % LQ_LOAD_BLOCK == 0) block = l->seed ^ (uint64_t)q->blocks[k] * 0xd1342543de82ef95u;
        add_piece(l, lq_load_draw(from), i == 0, out);
    }
    lq_text_add(out, l->vocab ? "]" : "\"", 1);
}

void lq_load_body(const lq_load *l, const lq_load_request *q, lq_text *out) {
    lq_text_fmt(out, "{\"model\":");
    lq_text_json(out, l->model, strlen(l->model));
    lq_text_fmt(out, l->chat ? ",\"messages\":[{\"role\":\"user\",\"content\":" : ",\"prompt\":");
    if (q->text) lq_text_json(out, q->text, strlen(q->text));
    else add_made_up(l, q, out);
    lq_text_fmt(out, "%s,\"max_tokens\":%d,\"temperature\":", l->chat ? "}]" : "", q->output);
    lq_say_number(out, l->temperature, 15);
    lq_text_fmt(out, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}%s}",
                l->ignore_eos ? ",\"ignore_eos\":true" : "");
}

// --- files ---

typedef struct reader {
    lq_load *l;
    const lq_load_plan *plan;
    const char *path;
    size_t cap;
    bool times; // the file has them
} reader;

static bool add_request(reader *r, lq_load_request q, lq_err *err) {
    void *p = r->l->q;
    if (!lq_grow(&p, r->l->n, &r->cap, sizeof q)) {
        free(q.text);
        free(q.blocks);
        return lq_fail(err, LQ_E_MEMORY, "%s: no memory for %zu requests", r->path, r->l->n);
    }
    r->l->q = p;
    r->l->q[r->l->n++] = q;
    return true;
}

// Tokens of a text that no tokenizer has seen: four bytes each.
static int guess(const char *text) {
    const size_t n = (strlen(text) + 3) / 4;
    return n > LQ_LOAD_TOKENS ? LQ_LOAD_TOKENS : (int)n;
}

static bool add_text(reader *r, const char *prompt, const char *answer, int output, lq_err *err) {
    lq_load_request q = {.input = guess(prompt), .output = output ? output : answer ? guess(answer) : 128};
    if (r->plan->output) q.output = r->plan->output;
    q.text = strdup(prompt);
    return q.text ? add_request(r, q, err) : lq_fail(err, LQ_E_MEMORY, "%s: no memory for its prompts", r->path);
}

static const char *text_at(const cJSON *list, int i) {
    const cJSON *turn = cJSON_GetArrayItem(list, i);
    if (cJSON_IsString(turn)) return turn->valuestring;
    return cJSON_IsObject(turn) ? lq_json_str(turn, "value") : NULL;
}

// ShareGPT: the first turn asks, the second says how long an answer is. What vLLM leaves out of it is left out: texts
// of under 4 tokens, prompts of over 1,024, both together over 2,048.
static bool read_conversations(reader *r, const char *text, size_t n, lq_err *err) {
    cJSON *root;
    if (!lq_json_parse(text, n, (lq_json_limits){file_most, 32}, r->path, &root, err)) return false;
    const cJSON *at;
    bool done = true;
    cJSON_ArrayForEach(at, root) {
        const cJSON *turns = cJSON_IsObject(at) ? cJSON_GetObjectItemCaseSensitive(at, "conversations") : NULL;
        const char *prompt = turns ? text_at(turns, 0) : NULL, *answer = turns ? text_at(turns, 1) : NULL;
        if (!prompt || !answer) continue;
        const int in = guess(prompt), out = guess(answer);
        if (in < 4 || out < 4 || in > 1024 || in + out > 2048) continue;
        if (done) done = add_text(r, prompt, answer, 0, err);
    }
    cJSON_Delete(root);
    return done;
}

static bool read_blocks(const cJSON *list, lq_load_request *q, const char *what, lq_err *err) {
    const int n = cJSON_GetArraySize(list);
    q->blocks = n ? calloc((size_t)n, sizeof *q->blocks) : NULL;
    if (n && !q->blocks) return lq_fail(err, LQ_E_MEMORY, "%s: no memory for %d blocks", what, n);
    const cJSON *at;
    cJSON_ArrayForEach(at, list) {
        if (!cJSON_IsNumber(at)) return lq_fail(err, LQ_E_FORMAT, "%s: hash_ids has what is no number", what);
        q->blocks[q->block_count++] = (int64_t)at->valuedouble;
    }
    return true;
}

// A line of JSON: of Mooncake's traces (timestamp in ms, input_length, output_length, hash_ids), or a prompt.
static bool read_object(reader *r, const cJSON *line, const char *what, lq_err *err) {
    const cJSON *turns = cJSON_GetObjectItemCaseSensitive(line, "turns");
    const char *prompt = lq_json_str(line, "prompt") ? lq_json_str(line, "prompt") : text_at(turns, 0);
    int64_t in = 0, out = 0;
    double ms = NAN;
    if (!lq_json_int(line, "input_length", 1, LQ_LOAD_TOKENS, &in, what, err) ||
        !lq_json_int(line, prompt ? "output_tokens" : "output_length", 0, LQ_LOAD_TOKENS, &out, what, err) ||
        !lq_json_num(line, "timestamp", &ms, what, err)) return false;
    if (prompt) return add_text(r, prompt, NULL, (int)out, err);
    if (!in) return lq_fail(err, LQ_E_FORMAT, "%s: has neither prompt nor input_length", what);
    if (!out) return true;
    lq_load_request q = {.due = ms * 1e-3, .input = (int)in, .output = (int)out};
    r->times = isfinite(ms) && (r->times || !r->l->n);
    const cJSON *ids = cJSON_GetObjectItemCaseSensitive(line, "hash_ids");
    if (ids && !read_blocks(ids, &q, what, err)) return free(q.blocks), false;
    return add_request(r, q, err);
}

static bool read_json_line(reader *r, char *line, const char *what, lq_err *err) {
    cJSON *root;
    if (!lq_json_parse(line, strlen(line), (lq_json_limits){file_most, 32}, what, &root, err)) return false;
    const bool done = read_object(r, root, what, err);
    cJSON_Delete(root);
    return done;
}

// --- traces of CSV ---

// What the columns are called by Azure, Vidur and BurstGPT.
enum { TIME, INPUT, OUTPUT, COLUMNS, NAMES = 4 };
static const char *const columns[COLUMNS][NAMES] = {
    {"TIMESTAMP", "arrived_at", "arrival_time"},
    {"ContextTokens", "num_prefill_tokens", "input_length", "Request tokens"},
    {"GeneratedTokens", "num_decode_tokens", "output_length", "Response tokens"}};

static bool read_names(const char *path, char *line, int at[COLUMNS], lq_err *err) {
    char *rest = line;
    for (int c = 0; c < COLUMNS; c++) at[c] = -1;
    for (int i = 0; rest; i++) {
        const char *name = strsep(&rest, ",");
        for (int k = 0; k < COLUMNS * NAMES; k++)
            if (columns[k / NAMES][k % NAMES] && !strcasecmp(name, columns[k / NAMES][k % NAMES])) at[k / NAMES] = i;
    }
    if (at[INPUT] >= 0 && at[OUTPUT] >= 0) return true;
    return lq_fail(err, LQ_E_FORMAT, "%s: its first line names no column of %s tokens; a trace begins with a line like "
                   "TIMESTAMP,ContextTokens,GeneratedTokens", path, at[INPUT] < 0 ? "input" : "output");
}

// Days since 1970 of a day of the Gregorian calendar.
static double days(int year, int month, int day) {
    const int y = year - (month <= 2), era = (y >= 0 ? y : y - 399) / 400, of_era = y - era * 400;
    const int of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return (double)era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

// Seconds, or a date and time of day.
static bool read_time(const char *text, double *out) {
    int year, month, day, hour, minute;
    double second;
    if (sscanf(text, "%d-%d-%d%*1[ T]%d:%d:%lf", &year, &month, &day, &hour, &minute, &second) == 6 && year > 0 &&
        year < 10000 && month > 0 && month < 13) {
        *out = days(year, month, day) * 86400 + hour * 3600 + minute * 60 + second;
        return true;
    }
    char *end;
    *out = strtod(text, &end);
    return end != text && !*end && isfinite(*out);
}

static bool read_row(reader *r, char *line, const int at[COLUMNS], const char *what, lq_err *err) {
    lq_load_request q = {0};
    char *rest = line;
    double value[COLUMNS] = {0};
    bool had[COLUMNS] = {false};
    for (int i = 0; rest; i++) {
        const char *cell = strsep(&rest, ",");
        for (int c = 0; c < COLUMNS; c++) {
            if (at[c] != i) continue;
            char *end;
            if (c == TIME) had[c] = read_time(cell, &value[c]);
            else value[c] = strtod(cell, &end), had[c] = end != cell && !*end;
            if (!had[c] || (c != TIME && !(value[c] >= 0 && value[c] <= LQ_LOAD_TOKENS)))
                return lq_fail(err, LQ_E_FORMAT, "%s: %s is no %s", what, cell,
                               c == TIME ? "time" : "number of tokens");
        }
    }
    if (!had[INPUT] || !had[OUTPUT]) return lq_fail(err, LQ_E_FORMAT, "%s: has too few columns", what);
    q.due = value[TIME];
    q.input = (int)value[INPUT];
    q.output = (int)value[OUTPUT];
    return !q.input || !q.output || add_request(r, q, err); // one that failed when it was recorded says nothing
}

static bool read_lines(reader *r, char *text, lq_err *err) {
    const bool json = *text == '{';
    int at[COLUMNS] = {-1, -1, -1};
    char *rest = text, what[300];
    for (size_t i = 1; rest; i++) {
        char *line = strsep(&rest, "\n");
        line[strcspn(line, "\r")] = '\0';
        snprintf(what, sizeof what, "%.250s:%zu", r->path, i);
        if (i == 1 && !json) {
            if (!read_names(r->path, line, at, err)) return false;
            r->times = at[TIME] >= 0;
        } else if (*line && !(json ? read_json_line(r, line, what, err) : read_row(r, line, at, what, err)))
            return false;
    }
    return true;
}

static bool read_file(reader *r, lq_err *err) {
    char *text;
    size_t n;
    if (!lq_input_read(r->path, file_most, &text, &n, err)) return false;
    const char *p = text + strspn(text, " \t\r\n");
    bool done = strlen(text) == n ? true : lq_fail(err, LQ_E_FORMAT, "%s: has a NUL byte", r->path);
    if (done) done = *p == '[' ? read_conversations(r, text, n, err) : read_lines(r, text + (p - text), err);
    free(text);
    if (done && !r->l->n) return lq_fail(err, LQ_E_FORMAT, "%s: has no request", r->path);
    return done;
}

// --- which of them, and when ---

static int by_due(const void *a, const void *b) {
    const lq_load_request *x = a, *y = b;
    if (x->due != y->due) return x->due < y->due ? -1 : 1;
    return x->draw < y->draw ? -1 : x->draw > y->draw; // as they stood in the file
}

// Of conversations a choice by the seed, of a trace its beginning.
static void choose(lq_load *l, size_t count, bool times) {
    uint64_t state = l->seed + 1;
    for (size_t i = l->n; i-- > 1 && l->q[0].text;) {
        const size_t k = lq_load_draw(&state) % (i + 1);
        const lq_load_request swap = l->q[i];
        l->q[i] = l->q[k];
        l->q[k] = swap;
    }
    for (size_t i = 0; i < l->n; i++) l->q[i].draw = i;
    if (times) qsort(l->q, l->n, sizeof *l->q, by_due);
    for (size_t i = count; count && i < l->n; i++) {
        free(l->q[i].text);
        free(l->q[i].blocks);
    }
    if (count && count < l->n) l->n = count;
}

// Poisson arrivals are exponential gaps; a trace's own times begin with its first request.
static void set_times(lq_load *l, const lq_load_plan *p) {
    uint64_t state = l->seed + 2;
    const double first = l->q[0].due;
    double at = 0;
    for (size_t i = 0; i < l->n; i++) {
        if (p->rate > 0) at += isinf(p->rate) ? 0 : -log1p(-draw_share(&state)) / p->rate;
        l->q[i].due = l->closed ? 0 : p->rate > 0 ? at : (l->q[i].due - first) / p->speed;
    }
}

bool lq_load_make(lq_load *l, const lq_load_plan *p, lq_err *err) {
    const bool random = !strcmp(p->dataset, "random");
    reader r = {.l = l, .plan = p, .path = p->dataset};
    uint64_t state = l->seed;
    if (!random && !read_file(&r, err)) return false;
    for (size_t i = 0; random && i < p->count; i++) {
        lq_load_request q = {.input = draw_length(&state, p->input, p->range)};
        q.output = draw_length(&state, p->output, p->range);
        if (!add_request(&r, q, err)) return false;
    }
    if (!random) choose(l, p->count, r.times);
    if (!random && !l->closed && !p->rate && !r.times)
        return lq_fail(err, LQ_E_USAGE, "%s: has no times of arrival: --rate or --concurrency says when", p->dataset);
    set_times(l, p);
    for (size_t i = 0; i < l->n; i++) {
        uint64_t own = l->seed ^ (i + 1) * 0xa0761d6478bd642fu;
        l->q[i].draw = lq_load_draw(&own);
        l->q[i].input_said = l->q[i].output_said = -1;
        if (p->output && !random) l->q[i].output = p->output;
    }
    return true;
}
