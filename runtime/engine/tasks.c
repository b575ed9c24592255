// tasks.c: questions in JSONL files, scored as lm-evaluation-harness scores them:
//   - an answer follows its text behind a blank; blanks at the end of the text go to the answer. Its tokens are those
//     of text and answer together, less as many as the text alone has; before them stand the text's own, even where one
//     of the tokens together goes on across its end. A text that is longer than the context loses its
//     beginning; lm-evaluation-harness keeps one token more of it, as it need not compute behind the last one.
//   - its score is the sum of ln p of its tokens. acc takes the answer with the highest score (the first of several),
//     acc_norm the one with the highest score for each character. A last word is right if each of its tokens was the
//     likeliest one; its perplexity is exp of the mean of -score over words.
//   - errors are standard errors of these means, with n - 1.
// Many texts are in the engine at once. Refused: lines that are not all of one kind, answers without tokens.
#include "formats/json.h"
#include "runtime/engine/request.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHOICES = 64, AHEAD = 256, LINE = 1 << 24, DEPTH = 8 };

typedef struct question question;
typedef struct answer { // and its text, on their way through the engine
    question *of;
    double score;
    size_t chars;
    bool greedy;
} answer;

struct question {
    int gold, answers, open; // open: answers that are not scored
    answer at[];             // [answers]
};

typedef struct job {
    lq_engine *e;
    const lq_model *m;
    const char *name;
    const lq_task_opts *o;
    const char *p, *end;     // of the lines that are not read
    size_t line, asked, total;
    bool begun;
    int open;                // requests in the engine
    uint64_t first, last;    // of all requests
    lq_task_score *out;
    double right, right_norm, score, score2;
    bool failed;
    lq_err *err;
} job;

// --- texts ---

// The white space of Python's str.rstrip.
static bool is_space(uint32_t c) {
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

// The length of a text (which is UTF-8) without the white space at its end.
static size_t stripped(const char *s, size_t n) {
    while (n) {
        size_t at = n - 1;
        while (at && ((unsigned char)s[at] & 0xc0) == 0x80) at--;
        const unsigned char *u = (const unsigned char *)s + at;
        const uint32_t c = n - at == 1   ? u[0]
                           : n - at == 2 ? (uint32_t)(u[0] & 0x1f) << 6 | (u[1] & 0x3f)
                           : n - at == 3 ? (uint32_t)(u[0] & 0x0f) << 12 | (uint32_t)(u[1] & 0x3f) << 6 | (u[2] & 0x3f)
                                         : 0;
        if (!is_space(c)) break;
        n = at;
    }
    return n;
}

static size_t characters(const char *s) {
    size_t n = 0;
    for (; *s; s++) n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

// The tokens of text and answer, and how many of them are the text's. `blank`: one stands between the two.
static bool encode(const job *j, const char *text, const char *tail, bool blank, lq_ids *ids, size_t *head,
                   lq_err *err) {
    const lq_tokenizer *t = j->m->tok;
    const int32_t bos = lq_tokenizer_bos(t), first = bos >= 0 || !j->m->desc.eoses ? bos : j->m->desc.eos[0];
    size_t n = 0;
    const char *piece = lq_tokenizer_piece(t, bos, &n);
    const bool own = n && !strncmp(text, piece, n); // such a text brings its own BOS
    const int flags = LQ_TOK_PARSE | (j->o->no_bos || own ? 0 : LQ_TOK_SPECIAL);
    lq_text all = {0};
    lq_ids alone = {0};
    lq_text_add(&all, text, strlen(text));
    lq_text_add(&all, " ", blank);
    lq_text_add(&all, tail, strlen(tail));
    bool done = !all.failed || lq_fail(err, LQ_E_MEMORY, "no memory for a text");
    done = done && lq_tokenizer_encode(t, text, stripped(text, strlen(text)), flags, &alone, err);
    if (done && !alone.n && first >= 0) { // a text of nothing begins with BOS, or as its like
        if (!(ids->p = malloc(sizeof *ids->p))) done = lq_fail(err, LQ_E_MEMORY, "no memory for a token");
        else ids->p[0] = first, ids->n = ids->cap = 1;
    }
    *head = alone.n + ids->n;
    done = done && lq_tokenizer_encode(t, all.p, all.n, flags, ids, err);
    if (done && ids->n >= *head && alone.n) memcpy(ids->p + *head - alone.n, alone.p, alone.n * sizeof *alone.p);
    free(alone.p);
    lq_text_free(&all);
    return done;
}

// --- requests ---

static void count_in(job *j, const question *q) {
    int best = 0, norm = 0;
    for (int i = 1; i < q->answers; i++) {
        if (q->at[i].score > q->at[best].score) best = i;
        if (q->at[i].score / (double)q->at[i].chars > q->at[norm].score / (double)q->at[norm].chars) norm = i;
    }
    const bool last = j->out->kind == LQ_TASK_LAST_WORD;
    j->right += last ? q->at[0].greedy : best == q->gold;
    j->right_norm += norm == q->gold;
    j->score += q->at[0].score;
    j->score2 += q->at[0].score * q->at[0].score;
    j->out->questions++;
}

// What an answer's request needs to find its way back.
typedef struct ticket { job *j; answer *a; } ticket;

static bool on_event(void *arg, const lq_event *ev) {
    ticket *t = arg;
    job *j = t->j;
    question *q = t->a->of;
    for (int i = 0; ev->prompt && i < ev->count; i++) {
        t->a->score += (double)ev->logprobs[i];
        t->a->greedy = t->a->greedy && ev->top_n && ev->top[i * ev->top_n].id == ev->tokens[i];
    }
    if (ev->finish == LQ_RUNNING) return true;
    if ((ev->finish == LQ_FAILED || isnan(t->a->score)) && !j->failed) {
        j->failed = true;
        char why[512];
        if (ev->error) snprintf(why, sizeof why, "%s", ev->error);
        else lq_model_blame(j->m, why, sizeof why);
        lq_fail(j->err, LQ_E_FORMAT, "%s (with %s)", why, j->name);
    }
    j->open--;
    free(t);
    if (--q->open) return true;
    if (ev->finish == LQ_LENGTH && !j->failed) count_in(j, q);
    free(q);
    return true;
}

static bool ask(job *j, answer *a, const char *text, const char *tail, bool blank, lq_err *err) {
    lq_ids ids = {0};
    lq_engine_stats stats;
    size_t head = 0;
    lq_engine_describe(j->e, &stats);
    bool done = encode(j, text, tail, blank, &ids, &head, err);
    const size_t room = (size_t)stats.ctx, n = ids.n, skip = n > room ? n - room : 0;
    if (done && (head >= n || !head))
        done = lq_fail(err, LQ_E_FORMAT, "%s: line %zu: an answer has no tokens, or nothing stands before it", j->name,
                       j->line);
    if (done && skip >= head)
        done = lq_fail(err, LQ_E_LIMIT, "%s: line %zu: an answer has %zu tokens, the context holds %zu", j->name,
                       j->line, n - head, room);
    ticket *t = done ? malloc(sizeof *t) : NULL;
    if (done && !t) done = lq_fail(err, LQ_E_MEMORY, "no memory for a question");
    if (done) {
        *t = (ticket){j, a};
        const lq_request r = {.prompt = ids.p + skip, .prompt_len = n - skip, .prompt_logprobs = true,
                              .prompt_from = (int)(head - skip), .score_only = true, .top_n = 1,
                              .on_event = on_event, .arg = t};
        done = lq_submit(j->e, &r, &j->last, err);
        if (done) j->open++, j->out->cut += skip > 0;
        else free(t);
        if (!j->first) j->first = j->last;
    }
    free(ids.p);
    return done;
}

// --- lines ---

static const char *const shapes[] = {
    [LQ_TASK_CHOICES] = "\"query\", \"choices\" and \"gold\"",
    [LQ_TASK_CONTEXTS] = "\"context_options\", \"continuation\" and \"gold\"",
    [LQ_TASK_LAST_WORD] = "\"context\" and \"continuation\"",
};

// The texts and answers of a line: `many` are its choices or contexts, `one` what they share.
typedef struct parts { const cJSON *many; const char *one, *tail; int n, gold; } parts;

static bool read_line(job *j, const cJSON *o, parts *p, lq_err *err) {
    const cJSON *choices = cJSON_GetObjectItemCaseSensitive(o, "choices"),
                *contexts = cJSON_GetObjectItemCaseSensitive(o, "context_options");
    const lq_task_kind kind = choices ? LQ_TASK_CHOICES : contexts ? LQ_TASK_CONTEXTS : LQ_TASK_LAST_WORD;
    int64_t gold = -1;
    char what[300];
    snprintf(what, sizeof what, "%s: line %zu", j->name, j->line);
    if (j->begun && kind != j->out->kind)
        return lq_fail(err, LQ_E_FORMAT, "%s: expected %s, as in the lines before", what, shapes[j->out->kind]);
    j->out->kind = kind;
    j->begun = true;
    p->many = choices ? choices : contexts;
    p->one = lq_json_str(o, choices ? "query" : contexts ? "continuation" : "context");
    p->tail = p->many ? NULL : lq_json_str(o, "continuation");
    p->n = p->many ? cJSON_GetArraySize(p->many) : 1;
    bool good = p->one && (p->many ? cJSON_IsArray(p->many) && p->n > 1 && p->n <= CHOICES : p->tail != NULL);
    for (int i = 0; good && p->many && i < p->n; i++) {
        const cJSON *c = cJSON_GetArrayItem(p->many, i);
        good = cJSON_IsString(c) && *c->valuestring;
    }
    if (!good && kind == LQ_TASK_LAST_WORD)
        return lq_fail(err, LQ_E_FORMAT, "%s: expected %s, or %s, or %s", what, shapes[LQ_TASK_CHOICES],
                       shapes[LQ_TASK_CONTEXTS], shapes[kind]);
    if (!good) return lq_fail(err, LQ_E_FORMAT, "%s: expected %s, with 2 to %d texts to choose from", what, shapes[kind],
                              CHOICES);
    if (p->many && !lq_json_int(o, "gold", 0, p->n - 1, &gold, what, err)) return false;
    p->gold = (int)gold;
    return !p->many || gold >= 0 || lq_fail(err, LQ_E_FORMAT, "%s: expected %s", what, shapes[kind]);
}

static bool ask_all(job *j, const parts *p, lq_err *err) {
    question *q = calloc(1, sizeof *q + (size_t)p->n * sizeof *q->at);
    if (!q) return lq_fail(err, LQ_E_MEMORY, "no memory for a question");
    q->answers = q->open = p->n;
    q->gold = p->gold;
    for (int i = 0; i < p->n; i++) {
        const char *item = p->many ? cJSON_GetArrayItem(p->many, i)->valuestring : NULL;
        const char *text = j->out->kind == LQ_TASK_CONTEXTS ? item : p->one;
        const char *tail = j->out->kind == LQ_TASK_CHOICES ? item : item ? p->one : p->tail;
        // LAMBADA's word may bring its own blank.
        const bool blank = item || !is_space((unsigned char)*tail);
        q->at[i] = (answer){.of = q, .chars = characters(tail), .greedy = true};
        if (ask(j, &q->at[i], text, tail, blank, err)) continue;
        q->open -= p->n - i; // those that were asked will find nobody else open, and free it
        q->gold = -1;
        if (!q->open) free(q);
        return false;
    }
    j->asked++;
    return true;
}

// The next line that is not blank becomes a question. *any: there was one.
static bool next(job *j, bool *any, lq_err *err) {
    *any = false;
    if (j->o->limit && j->asked >= j->o->limit) return true;
    while (j->p < j->end && !*any) {
        const char *line = j->p, *stop = memchr(line, '\n', (size_t)(j->end - line));
        if (!stop) stop = j->end;
        j->p = stop < j->end ? stop + 1 : stop;
        j->line++;
        for (const char *c = line; c < stop; c++) *any = *any || !strchr(" \t\r", *c) || !*c;
        if (!*any) continue;
        char what[300];
        snprintf(what, sizeof what, "%s: line %zu", j->name, j->line);
        cJSON *o = NULL;
        parts p = {0};
        if (!lq_json_parse(line, (size_t)(stop - line), (lq_json_limits){LINE, DEPTH}, what, &o, err)) return false;
        const bool done = read_line(j, o, &p, err) && ask_all(j, &p, err);
        cJSON_Delete(o);
        return done;
    }
    return true;
}

static size_t count_lines(const char *p, const char *end) {
    size_t n = 0;
    while (p < end && (p = memchr(p, '\n', (size_t)(end - p)))) n++, p++;
    return n + (end[-1] != '\n');
}

static void result(job *j) {
    lq_task_score *s = j->out;
    const double n = (double)s->questions, mean = j->score / n, var = (j->score2 / n - mean * mean) / (n - 1);
    s->acc = j->right / n;
    s->acc_norm = j->right_norm / n;
    s->acc_error = n > 1 ? sqrt(s->acc * (1 - s->acc) / (n - 1)) : 0;
    s->acc_norm_error = n > 1 ? sqrt(s->acc_norm * (1 - s->acc_norm) / (n - 1)) : 0;
    s->ppl = exp(-mean);
    s->ppl_error = n > 1 && var > 0 ? s->ppl * sqrt(var) : 0;
    if (s->kind != LQ_TASK_CHOICES) s->acc_norm = s->acc_norm_error = NAN;
    if (s->kind != LQ_TASK_LAST_WORD) s->ppl = s->ppl_error = NAN;
}

bool lq_task_run(lq_engine *e, const char *name, const char *text, size_t n, const lq_task_opts *o, lq_task_score *out,
             lq_err *err) {
    static const lq_task_opts none;
    const double started = lq_engine_clock();
    *out = (lq_task_score){0};
    if (!n) return lq_fail(err, LQ_E_FORMAT, "%s: there is no question in it", name);
    job j = {.e = e, .m = lq_engine_model(e), .name = name, .o = o ? o : &none, .p = text, .end = text + n, .out = out,
             .err = err};
    j.total = count_lines(text, text + n);
    if (j.o->limit && j.total > j.o->limit) j.total = j.o->limit;
    bool done = true, any = true;
    while (done && (any || j.open)) {
        while (done && any && j.open < AHEAD) done = next(&j, &any, err);
        if (!done || !j.open) continue;
        done = lq_engine_step(e, NULL, err) && !j.failed;
        const double acc = out->questions ? j.right / (double)out->questions : 0;
        if (done && j.o->tick && !j.o->tick(j.o->arg, out->questions, j.total, acc))
            done = lq_fail(err, LQ_E_CANCELLED, "%s: stopped after %zu of %zu questions", name, out->questions,
                           j.total);
    }
    // What is still open refers to this call's memory.
    j.failed = j.failed || !done;
    for (uint64_t id = j.first; j.open && id <= j.last; id++) lq_cancel(e, id);
    while (j.open) lq_engine_step(e, NULL, NULL);
    if (!done) return false;
    if (!out->questions) return lq_fail(err, LQ_E_FORMAT, "%s: there is no question in it", name);
    result(&j);
    out->seconds = lq_engine_clock() - started;
    return true;
}
