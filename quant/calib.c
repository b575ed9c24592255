// calib.c: the text that calibration looks at, as tokens: built in, or a user's .txt, .jsonl or folder of them (what
// the model writes itself: self.c). It is cut into sequences of one length, each beginning as the tokenizer begins a
// text, and as many as are wanted are drawn from all of it. Refused: text that is shorter than one sequence, files that
// are not text.
#include "quant/pass.h"
#include "runtime/lq.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SAMPLES = 128, LEN = 512, TEXT_MOST = 256 << 20 };

extern const char lq_calib_text[]; // calib_data/calib.txt, put in by the build
extern const size_t lq_calib_text_size;
static const char built_in[] = "built-in";

// --- the text ---

static bool fail_file(const char *path, lq_err *err) {
    return lq_fail(err, LQ_E_IO, "%s: the calibration text cannot be read: %s", path, strerror(errno));
}

static bool file_text(const char *path, lq_text *out, lq_err *err) {
    char buf[65536];
    FILE *f = fopen(path, "rbe");
    if (!f) return fail_file(path, err);
    size_t n;
    bool small = true;
    while (small && (n = fread(buf, 1, sizeof buf, f)) > 0) {
        lq_text_add(out, buf, n);
        small = out->n <= TEXT_MOST;
    }
    const bool done = !ferror(f);
    fclose(f);
    if (!done) return fail_file(path, err);
    if (!small) return lq_fail(err, LQ_E_LIMIT, "%s: more than %d MB of calibration text", path, TEXT_MOST >> 20);
    return !out->failed || lq_fail(err, LQ_E_MEMORY, "no memory for the text of %s", path);
}

static bool ends(const char *path, const char *with) {
    const size_t n = strlen(path), m = strlen(with);
    return n > m && !strcmp(path + n - m, with);
}

// The member "text" of each line, an empty line between two.
static bool lines_text(const char *path, const lq_text *lines, lq_text *out, lq_err *err) {
    const char *p = lines->p, *const end = p + lines->n;
    char what[4200];
    for (int line = 1; p < end; line++) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        const size_t n = (size_t)((stop ? stop : end) - p);
        if (strspn(p, " \t\r") < n) {
            cJSON *json;
            snprintf(what, sizeof what, "%s:%d", path, line);
            if (!lq_json_parse(p, n, (lq_json_limits){TEXT_MOST, 64}, what, &json, err)) return false;
            const char *text = lq_json_str(json, "text");
            if (text) lq_text_fmt(out, "%s\n\n", text);
            cJSON_Delete(json);
            if (!text) return lq_fail(err, LQ_E_FORMAT, "%s: no \"text\" in it, which is what calibration reads", what);
        }
        p += n + 1;
    }
    return true;
}

static bool one_file(const char *path, lq_text *out, lq_err *err) {
    lq_text raw = {0};
    if (!ends(path, ".jsonl")) return file_text(path, out, err);
    lq_text_add(&raw, "", 0);
    bool done = file_text(path, &raw, err);
    if (done && raw.n) {
        lq_text_add(&raw, "", 1); // strspn wants an end
        raw.n--;
        done = lines_text(path, &raw, out, err);
    }
    lq_text_free(&raw);
    return done;
}

static int text_file(const struct dirent *d) { return ends(d->d_name, ".txt") || ends(d->d_name, ".jsonl"); }

// What is no UTF-8 is no text, or none that the model knows.
static bool check_text(const char *source, const lq_text *text, lq_err *err) {
    const unsigned char *p = (const unsigned char *)text->p, *const end = p + text->n;
    for (size_t n; p < end; p += n)
        if (!(n = *p < 0x80 ? 1 : lq_utf8_len(p, end)))
            return lq_fail(err, LQ_E_FORMAT, "%s: byte %zu of the calibration text is no UTF-8", source,
                           (size_t)(p - (const unsigned char *)text->p));
    return text->n > 0 || lq_fail(err, LQ_E_FORMAT, "%s: no calibration text in it", source);
}

static bool read_text(const char *path, lq_text *out, lq_err *err) {
    struct stat st;
    if (!path || !strcmp(path, built_in)) {
        lq_text_add(out, lq_calib_text, lq_calib_text_size);
        return !out->failed || lq_fail(err, LQ_E_MEMORY, "no memory for a text");
    }
    if (stat(path, &st)) return fail_file(path, err);
    if (!S_ISDIR(st.st_mode)) return one_file(path, out, err);
    struct dirent **names;
    const int n = scandir(path, &names, text_file, alphasort);
    if (n < 0) return fail_file(path, err);
    bool done = n > 0 || lq_fail(err, LQ_E_FORMAT, "%s: no .txt and no .jsonl in it", path);
    for (int i = 0; i < n; i++) {
        char full[4096];
        const int size = snprintf(full, sizeof full, "%s/%s", path, names[i]->d_name);
        if (done && size >= (int)sizeof full) done = lq_fail(err, LQ_E_LIMIT, "%s: its names are too long", path);
        done = done && one_file(full, out, err);
        if (done) lq_text_add(out, "\n\n", 2);
        free(names[i]);
    }
    free(names);
    return done;
}

// --- the tokens ---

static uint64_t mix(uint64_t *state) { // splitmix64
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

// Draws `want` of the sequences that the tokens are cut into, in the order of the text.
static bool draw(const int32_t *ids, size_t count, int32_t bos, size_t want, uint64_t seed, lq_calib *c, lq_err *err) {
    const size_t own = (size_t)c->len - (bos >= 0), all = count / own;
    if (!all)
        return lq_fail(err, LQ_E_FORMAT, "%s: %zu tokens of calibration text, expected at least one sequence of %zu",
                       c->source, count, own);
    c->samples = want < all ? want : all;
    c->of = all;
    c->ids = malloc(c->samples * (size_t)c->len * sizeof *c->ids);
    c->drawn = malloc(c->samples * sizeof *c->drawn);
    if (!c->ids || !c->drawn) return lq_fail(err, LQ_E_MEMORY, "no memory for %zu sequences", c->samples);
    size_t done = 0;
    for (size_t i = 0; i < all && done < c->samples; i++) {
        // Of those that are left, each with the same chance.
        if (mix(&seed) % (all - i) >= c->samples - done) continue;
        c->drawn[done] = i;
        int32_t *to = c->ids + done++ * (size_t)c->len;
        if (bos >= 0) *to++ = bos;
        memcpy(to, ids + i * own, own * sizeof *to);
    }
    return true;
}

bool lq_calib_open(const lq_quant_opts *o, int ctx, lq_calib *c, lq_err *err) {
    lq_text text = {0};
    lq_tokenizer *tok = NULL;
    int32_t *ids = NULL, *empty = NULL;
    size_t count, begins;
    *c = (lq_calib){.len = o->seqlen ? o->seqlen : LEN, .samples = o->samples ? o->samples : SAMPLES};
    if (c->len > ctx) c->len = ctx;
    if (c->len < 2) return lq_fail(err, LQ_E_USAGE, "sequences of %d tokens, expected at least 2", c->len);
    snprintf(c->source, sizeof c->source, "%s", o->calib ? o->calib : built_in);
    if (o->calib && !strcmp(o->calib, "self")) return lq_self_plan(o, c, err);
    bool done = read_text(o->calib, &text, err) && check_text(c->source, &text, err) &&
                lq_tokenizer_load(o->in, &tok, err);
    done = done && lq_tokenizer_ids(tok, text.p ? text.p : "", text.n, 0, &ids, &count, err) &&
           lq_tokenizer_ids(tok, "", 0, LQ_TOK_SPECIAL, &empty, &begins, err);
    done = done && draw(ids, count, begins ? empty[0] : -1, c->samples, o->seed, c, err);
    lq_free(ids);
    lq_free(empty);
    if (tok) lq_tokenizer_close(tok);
    lq_text_free(&text);
    if (!done) lq_calib_close(c);
    return done;
}

void lq_calib_close(lq_calib *c) {
    free(c->ids);
    free(c->drawn);
    *c = (lq_calib){0};
}
