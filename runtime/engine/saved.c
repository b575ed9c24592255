// saved.c: logits of a model on a text, in a file. Two forms are read:
//   ours        plain safetensors: "tokens" I32 [windows][window] and "logits.000000", ... F32 [scored][vocab], a
//               window each, bit for bit what the model gave; metadata logits.protocol, .arithmetic, .model,
//               .tokens, the XXH64 of the tokens' bytes, and .pieces, that of what they are in the vocabulary.
//   llama.cpp's "_logits_", u32 window, i32 vocab, i32 windows, i32 tokens [windows][window], then of each window
//               window - 1 - window / 2 rows of two f32 (scale, least ln p), u16 codes [vocab] and one more where vocab
//               is odd: ln p = scale * code + least. Little-endian. What lies 16 below the likeliest was cut off.
// Refused: a file whose size is not what its head says, numbers that are none, tokens that the vocabulary lacks; and to
// replace a file that is not ours.
#include "formats/writer.h"
#include "runtime/engine/eval.h"
#include "runtime/text/tokenizer.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

struct lq_saved {
    char *path;
    lq_saved_info info;
    size_t rows;
    int32_t *tokens;
    lq_ckpt *c;          // ours
    int fd;              // llama.cpp's; else -1
    size_t head;         // bytes before its rows
    unsigned char *raw;  // one row of it
};

enum { WINDOW_MAX = 1 << 24, VOCAB_MAX = 1 << 24, HEAD = 20 };
static const char magic[] = "_logits_";

static uint64_t tokens_hash(const int32_t *tokens, size_t n) { return XXH64(tokens, n * sizeof *tokens, 0); }

// Models of one vocabulary's size may still mean other words by its ids: each token of the text, and its piece.
static uint64_t pieces_hash(const lq_tokenizer *t, const int32_t *tokens, size_t n) {
    uint64_t h = 0;
    for (size_t i = 0; i < n; i++) {
        size_t len = 0;
        const char *p = lq_tokenizer_piece(t, tokens[i], &len);
        h = XXH64(p ? p : "", len, h + 1);
    }
    return h;
}

static size_t row_bytes(const lq_saved *s) { return ((size_t)s->info.vocab + 1) / 2 * 4 + 8; }

// --- reading ---

static bool read_at(const lq_saved *s, void *to, size_t n, size_t at, lq_err *err) {
    for (size_t have = 0; have < n;) {
        const ssize_t got = pread(s->fd, (char *)to + have, n - have, (off_t)(at + have));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return lq_fail(err, LQ_E_IO, "%s: %s", s->path, got ? strerror(errno) : "it became shorter");
        have += (size_t)got;
    }
    return true;
}

// What holds for both forms: the tokens are of the vocabulary.
static bool tokens_check(const lq_saved *s, lq_err *err) {
    const size_t n = s->info.windows * (size_t)s->info.window;
    for (size_t i = 0; i < n; i++)
        if (s->tokens[i] < 0 || s->tokens[i] >= s->info.vocab)
            return lq_fail(err, LQ_E_FORMAT, "%s: token %zu is %d, the vocabulary has %d", s->path, i, s->tokens[i],
                           s->info.vocab);
    return true;
}

static bool llama_open(lq_saved *s, size_t bytes, lq_err *err) {
    int32_t head[3] = {0};
    if (bytes < HEAD) return lq_fail(err, LQ_E_FORMAT, "%s: %zu bytes are no logits", s->path, bytes);
    if (!read_at(s, head, sizeof head, 8, err)) return false;
    if (head[0] < 4 || head[0] > WINDOW_MAX || head[1] < 2 || head[1] > VOCAB_MAX || head[2] < 1)
        return lq_fail(err, LQ_E_FORMAT, "%s: %d windows of %d tokens of a vocabulary of %d are no logits", s->path,
                       head[2], head[0], head[1]);
    s->info = (lq_saved_info){.protocol = LQ_PPL_LLAMACPP512, .window = head[0], .vocab = head[1],
                              .windows = (size_t)head[2], .rounded = true, .model = "a model that llama.cpp ran"};
    s->rows = lq_scored(&lq_protocols[LQ_PPL_LLAMACPP512], (size_t)head[0]);
    // 2^31 windows of 2^24 tokens, and of 2^23 rows of 2^25 bytes: the first fits, the second is checked
    const size_t ids = s->info.windows * (size_t)head[0] * sizeof(int32_t);
    size_t all;
    if (!lq_mul_size(s->info.windows, s->rows * row_bytes(s), &all) || !lq_add_size(all, HEAD + ids, &all) ||
        all != bytes)
        return lq_fail(err, LQ_E_FORMAT,
                       "%s: has %zu bytes, %zu windows of %d tokens of a vocabulary of %d need another number", s->path,
                       bytes, s->info.windows, head[0], head[1]);
    s->head = HEAD + ids;
    s->tokens = malloc(ids);
    s->raw = malloc(row_bytes(s));
    if (!s->tokens || !s->raw) return lq_fail(err, LQ_E_MEMORY, "%s: no memory for %zu tokens", s->path, ids / 4);
    return read_at(s, s->tokens, ids, HEAD, err) && tokens_check(s, err);
}

static const lq_tensor *window_of(const lq_saved *s, size_t i) {
    char name[40];
    snprintf(name, sizeof name, "logits.%06zu", i);
    return lq_ckpt_find(s->c, name);
}

static bool ours_open(lq_saved *s, lq_err *err) {
    const lq_tensor *t = lq_ckpt_find(s->c, "tokens"), *first = window_of(s, 0);
    const char *protocol = lq_ckpt_meta(s->c, "logits.protocol"), *hash = lq_ckpt_meta(s->c, "logits.tokens");
    const char *arithmetic = lq_ckpt_meta(s->c, "logits.arithmetic"), *model = lq_ckpt_meta(s->c, "logits.model");
    const char *name;
    size_t p = 0;
    while ((name = lq_ppl_name(p)) && strcmp(name, protocol)) p++;
    if (!name) return lq_fail(err, LQ_E_FORMAT, "%s: logits of protocol %s, which lq does not know", s->path, protocol);
    if (!t || t->type != LQ_I32 || t->rank != 2 || t->shape[0] < 1 || t->shape[1] < 4 || t->shape[1] > WINDOW_MAX ||
        !first || first->rank != 2 || first->shape[1] < 2 || first->shape[1] > VOCAB_MAX)
        return lq_fail(err, LQ_E_FORMAT, "%s: expected tokens [windows][window] and logits.000000 [scored][vocab]",
                       s->path);
    s->info = (lq_saved_info){.protocol = (lq_ppl_protocol)p, .window = (int)t->shape[1],
                              .vocab = (int)first->shape[1], .windows = (size_t)t->shape[0]};
    snprintf(s->info.arithmetic, sizeof s->info.arithmetic, "%s", arithmetic ? arithmetic : "");
    snprintf(s->info.model, sizeof s->info.model, "%s", model ? model : "");
    s->rows = lq_scored(&lq_protocols[p], (size_t)s->info.window);
    for (size_t i = 0; i < s->info.windows; i++) {
        const lq_tensor *w = window_of(s, i);
        if (!w || w->type != LQ_F32 || w->rank != 2 || w->shape[0] != (int64_t)s->rows || w->shape[1] != s->info.vocab)
            return lq_fail(err, LQ_E_FORMAT, "%s: logits.%06zu: expected F32 [%zu][%d]", s->path, i, s->rows,
                           s->info.vocab);
    }
    s->tokens = malloc(t->bytes);
    if (!s->tokens) return lq_fail(err, LQ_E_MEMORY, "%s: no memory for %zu tokens", s->path, t->bytes / 4);
    memcpy(s->tokens, t->data, t->bytes);
    char want[20];
    snprintf(want, sizeof want, "%016llx", (unsigned long long)tokens_hash(s->tokens, t->bytes / 4));
    if (!hash || strcmp(hash, want))
        return lq_fail(err, LQ_E_FORMAT, "%s: its tokens are not those that its metadata tells of (%s, not %s)",
                       s->path, want, hash ? hash : "nothing");
    return tokens_check(s, err);
}

// Whether a regular file begins as llama.cpp's do; its descriptor is then kept.
static bool is_llama(lq_saved *s, size_t *bytes) {
    struct stat st;
    char head[8];
    s->fd = open(s->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (s->fd >= 0 && !fstat(s->fd, &st) && S_ISREG(st.st_mode) && pread(s->fd, head, 8, 0) == 8 &&
        !memcmp(head, magic, 8)) {
        *bytes = (size_t)st.st_size;
        return true;
    }
    if (s->fd >= 0) close(s->fd);
    s->fd = -1;
    return false;
}

bool lq_saved_open(const char *path, lq_saved **out, lq_err *err) {
    *out = NULL;
    lq_saved *s = calloc(1, sizeof *s);
    if (!s || !(s->path = strdup(path))) {
        free(s);
        return lq_fail(err, LQ_E_MEMORY, "%s: no memory to open it", path);
    }
    size_t bytes = 0;
    bool done = true, found = is_llama(s, &bytes);
    if (found) done = llama_open(s, bytes, err);
    else if (lq_ckpt_open(path, &s->c, NULL) && lq_ckpt_meta(s->c, "logits.protocol")) {
        found = true;
        done = ours_open(s, err);
    }
    if (found && done) *out = s;
    else lq_saved_close(s);
    return done;
}

void lq_saved_close(lq_saved *s) {
    if (!s) return;
    if (s->c) lq_ckpt_close(s->c);
    if (s->fd >= 0) close(s->fd);
    free(s->tokens);
    free(s->raw);
    free(s->path);
    free(s);
}

bool lq_saved_means(const lq_saved *s, const lq_tokenizer *t) {
    const char *hash = s->c ? lq_ckpt_meta(s->c, "logits.pieces") : NULL;
    char mine[20];
    snprintf(mine, sizeof mine, "%016llx",
             (unsigned long long)pieces_hash(t, s->tokens, s->info.windows * (size_t)s->info.window));
    return !hash || !strcmp(hash, mine);
}

void lq_saved_describe(const lq_saved *s, lq_saved_info *out) { *out = s->info; }
const int32_t *lq_saved_tokens(const lq_saved *s) { return s->tokens; }
const char *lq_saved_path(const lq_saved *s) { return s->path; }

double lq_saved_floor(const lq_saved *s, bool *log_probs) {
    *log_probs = s->info.rounded;
    return s->info.rounded ? -16 : -INFINITY;
}

static bool llama_row(const lq_saved *s, size_t row, float *out, lq_err *err) {
    float head[2];
    if (!read_at(s, s->raw, row_bytes(s), s->head + row * row_bytes(s), err)) return false;
    memcpy(head, s->raw, sizeof head);
    if (!isfinite(head[0]) || head[0] < 0 || !isfinite(head[1]))
        return lq_fail(err, LQ_E_FORMAT, "%s: row %zu has scale %g and least %g", s->path, row, (double)head[0],
                       (double)head[1]);
    for (int i = 0; i < s->info.vocab; i++) {
        uint16_t code;
        memcpy(&code, s->raw + 8 + 2 * i, sizeof code);
        out[i] = head[0] * code + head[1];
    }
    return true;
}

bool lq_saved_rows(const lq_saved *s, size_t window, float *rows, lq_err *err) {
    if (s->c) {
        const lq_tensor *t = window_of(s, window);
        memcpy(rows, t->data, t->bytes);
        lq_ckpt_drop(s->c, t);
        return true;
    }
    for (size_t r = 0; r < s->rows; r++)
        if (!llama_row(s, window * s->rows + r, rows + r * (size_t)s->info.vocab, err)) return false;
    return true;
}

// --- writing ---

struct lq_saver {
    lq_writer *w;
    lq_saved_info info;
    size_t next;
    bool done;
};

// What --force may replace: a file of saved logits.
static bool may_replace(const char *path, lq_err *err) {
    struct stat st;
    lq_ckpt *c = NULL;
    if (lstat(path, &st)) return true;
    const bool ours = S_ISREG(st.st_mode) && lq_ckpt_open(path, &c, NULL) && lq_ckpt_meta(c, "logits.protocol");
    if (c) lq_ckpt_close(c);
    return ours || lq_fail(err, LQ_E_USAGE, "%s: is there, and no file of saved logits; it is not replaced", path);
}

bool lq_saver_open(const char *path, bool force, const lq_saved_info *info, const lq_tokenizer *t,
                   const int32_t *tokens, lq_saver **out, lq_err *err) {
    static const char ending[] = ".safetensors";
    const size_t n = strlen(path), end = sizeof ending - 1;
    *out = NULL;
    if (n <= end || strcmp(path + n - end, ending))
        return lq_fail(err, LQ_E_USAGE, "%s: logits are saved as a file whose name ends in %s", path, ending);
    if (force && !may_replace(path, err)) return false;
    lq_saver *s = calloc(1, sizeof *s);
    if (!s) return lq_fail(err, LQ_E_MEMORY, "%s: no memory to write it", path);
    s->info = *info;
    char hash[20], pieces[20];
    const size_t count = info->windows * (size_t)info->window;
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)tokens_hash(tokens, count));
    snprintf(pieces, sizeof pieces, "%016llx", (unsigned long long)pieces_hash(t, tokens, count));
    lq_writer_opts o = {.out = path, .fingerprint = "logits", .plain = true, .overwrite = force,
                        .header_room = 4096 + (info->windows + 1) * lq_writer_entry_room("logits.000000000")};
    const bool done = lq_writer_open(&o, &s->w, err) &&
                      lq_writer_meta(s->w, "logits.protocol", lq_ppl_name(info->protocol), err) &&
                      lq_writer_meta(s->w, "logits.arithmetic", info->arithmetic, err) &&
                      lq_writer_meta(s->w, "logits.model", info->model, err) &&
                      lq_writer_meta(s->w, "logits.tokens", hash, err) &&
                      lq_writer_meta(s->w, "logits.pieces", pieces, err) &&
                      lq_writer_add(s->w, "tokens", LQ_I32, 2, (int64_t[]){(int64_t)info->windows, info->window},
                                    tokens, err);
    if (done) *out = s;
    else lq_saver_close(s);
    return done;
}

bool lq_saver_add(lq_saver *s, const float *rows, lq_err *err) {
    char name[40];
    const size_t scored = lq_scored(&lq_protocols[s->info.protocol], (size_t)s->info.window);
    snprintf(name, sizeof name, "logits.%06zu", s->next++);
    return lq_writer_add(s->w, name, LQ_F32, 2, (int64_t[]){(int64_t)scored, s->info.vocab}, rows, err);
}

bool lq_saver_commit(lq_saver *s, lq_err *err) { return s->done = lq_writer_commit(s->w, NULL, NULL, err); }

void lq_saver_close(lq_saver *s) {
    if (!s) return;
    if (s->w) lq_writer_close(s->w, !s->done);
    free(s);
}
