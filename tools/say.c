// say.c: what every verb prints with: text of files and of the command line, errors, numbers with
// units, a progress bar, tables. Owns a few static buffers. Colours and bars appear on a terminal only,
// colours not where NO_COLOR is set.
#include "tools/verb.h"
#include "formats/words.h"
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>

bool lq_say_cursor(FILE *f) {
    const char *term = getenv("TERM");
    return isatty(fileno(f)) && term && *term && strcmp(term, "dumb") != 0;
}

bool lq_say_color(FILE *f) {
    const char *no = getenv("NO_COLOR");
    return lq_say_cursor(f) && !(no && *no);
}

void lq_say_style(FILE *f, const char *code) {
    if (lq_say_color(f)) fprintf(f, "\033[%sm", code);
}

// --- text that others wrote ---

// What a terminal obeys instead of showing: controls, line and paragraph separators, marks that turn the direction of
// writing or show nothing at all. The joiners that Persian and emoji are written with stay.
static bool is_obeyed(utf8proc_int32_t c) {
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return true;
    case UTF8PROC_CATEGORY_CF: return c != 0x200c && c != 0x200d;
    default: return false;
    }
}

enum { SHOWN = 16 };

// The next character of text[0..n) as a terminal may have it, in out; returns how many bytes it is of.
static size_t shown(const char *text, size_t n, bool lines, char out[SHOWN]) {
    utf8proc_int32_t c;
    utf8proc_ssize_t took = utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, &c);
    if (took <= 0) snprintf(out, SHOWN, "\\x%02x", (unsigned char)*text);
    else if (lines && (c == '\n' || c == '\t')) snprintf(out, SHOWN, "%c", (int)c);
    else if (!is_obeyed(c)) snprintf(out, SHOWN, "%.*s", (int)took, text);
    else if (c == '\n' || c == '\t' || c == '\r') snprintf(out, SHOWN, "\\%c", c == '\n' ? 'n' : c == '\t' ? 't' : 'r');
    else if (c < 0x80) snprintf(out, SHOWN, "\\x%02x", (unsigned)c);
    else snprintf(out, SHOWN, "\\u{%x}", (unsigned)c);
    return took > 0 ? (size_t)took : 1;
}

void lq_say_text(FILE *f, const char *text, size_t n, bool lines) {
    char out[SHOWN];
    for (size_t i = 0; i < n;) {
        i += shown(text + i, n - i, lines, out);
        fputs(out, f);
    }
}

char *lq_say_shown(const char *text) {
    size_t n = strlen(text), used = 0;
    char *copy = malloc(n * (SHOWN - 1) + 1);
    for (size_t i = 0; copy && i < n; used += strlen(copy + used)) i += shown(text + i, n - i, false, copy + used);
    if (!copy) return NULL;
    copy[used] = '\0';
    char *tight = realloc(copy, used + 1);
    return tight ? tight : copy;
}

static void say(FILE *f, const char *fmt, va_list ap) {
    char *text = NULL;
    const int n = vasprintf(&text, fmt, ap);
    if (n >= 0) lq_say_text(f, text, (size_t)n, false);
    if (n >= 0) free(text);
}

void lq_say(FILE *f, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    say(f, fmt, ap);
    va_end(ap);
}

void lq_say_line(FILE *f, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    say(f, fmt, ap);
    va_end(ap);
    fputc('\n', f);
}

void lq_say_number(lq_text *t, double x, int digits) {
    if (isfinite(x)) lq_text_fmt(t, "%.*g", digits, x);
    else lq_text_fmt(t, "null");
}

int lq_say_json(lq_text *t) {
    const lq_err memory = {LQ_E_MEMORY, "no memory for the result"};
    const int status = t->failed ? lq_say_error(&memory) : 0;
    if (!status) fwrite(t->p, 1, t->n, stdout), putchar('\n');
    lq_text_free(t);
    return status;
}

// --- errors ---

static void error_head(void) {
    fflush(stdout);
    lq_say_style(stderr, "31");
    fputs("lq", stderr);
    lq_say_style(stderr, "");
}

int lq_say_error(const lq_err *err) {
    error_head();
    lq_say_line(stderr, ": %s", err && err->text[0] ? err->text : "failed, and nothing says why");
    return 1;
}

int lq_say_usage(const char *verb, const char *fmt, ...) {
    va_list ap;
    error_head();
    fprintf(stderr, "%s%s: ", verb ? " " : "", verb ? verb : "");
    va_start(ap, fmt);
    say(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "\nlq help%s%s explains it\n", verb ? " " : "", verb ? verb : "");
    return 2;
}

// --- numbers ---

static const char *lasting(lq_words w) {
    static lq_words last[16];
    static unsigned next;
    lq_words *to = &last[next++ % 16];
    *to = w;
    return to->text;
}

const char *lq_say_bytes(double bytes) { return lasting(lq_words_bytes(bytes)); }
const char *lq_say_count(double n) { return lasting(lq_words_count(n)); }
const char *lq_say_time(double s) { return lasting(lq_words_time(s)); }

int lq_say_width(const char *text) {
    int width = 0;
    utf8proc_int32_t c;
    const utf8proc_uint8_t *p = (const utf8proc_uint8_t *)text;
    while (*p) {
        utf8proc_ssize_t n = utf8proc_iterate(p, -1, &c);
        width += n > 0 ? utf8proc_charwidth(c) : 1;
        p += n > 0 ? n : 1;
    }
    return width;
}

// --- progress ---

static int columns(void) {
    struct winsize w;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 20 ? w.ws_col : 80;
}

void lq_bar_begin(lq_bar *b, const char *what, const char *unit, size_t total, bool quiet) {
    *b = (lq_bar){.what = what, .unit = unit, .start = lq_seconds(), .tty = lq_say_cursor(stderr), .quiet = quiet,
                  .total = total, .percent = -1};
    b->last = b->tty ? 0 : b->start;
}

// "42 %  1.2 GB/s  3.1 s left  note"
static void bar_text(const lq_bar *b, double done, double at, const char *note, char *out, size_t size) {
    const double passed = at - b->start, total = (double)b->total, gone = done - b->from;
    size_t n = total > 0 ? (size_t)snprintf(out, size, "%3.0f %%", floor(100 * done / total))
                         : (size_t)snprintf(out, size, "%.0f %s", done, b->unit ? b->unit : "");
    if (passed > 0.3 && gone > 0) {
        const double rate = gone / passed;
        const bool bytes = b->unit && !strcmp(b->unit, "B");
        n += (size_t)snprintf(out + n, size - n, "  %s%s%s/s", bytes ? lq_say_bytes(rate) : lq_say_count(rate),
                              bytes ? "" : " ", bytes || !b->unit ? "" : b->unit);
        if (done < total) n += (size_t)snprintf(out + n, size - n, "  %s left", lq_say_time((total - done) / rate));
    }
    if (note && *note) snprintf(out + n, size - n, "  %s", note);
}

void lq_bar_at(lq_bar *b, size_t done, const char *note) { lq_bar_share(b, (double)done, note); }

void lq_bar_share(lq_bar *b, double done, const char *note) {
    const double at = lq_seconds(), total = (double)b->total;
    if (b->total) done = fmin(done, total);
    const int percent = total > 0 ? (int)(done * 100 / total) : 0;
    // A terminal is redrawn ten times a second; a log gets a line every ten seconds.
    if (b->quiet || at - b->last < (b->tty ? 0.1 : 10) || (!b->tty && b->total && percent == b->percent)) return;
    b->last = at;
    b->percent = percent;
    char text[256], *safe = note ? lq_say_shown(note) : NULL;
    bar_text(b, done, at, safe, text, sizeof text);
    free(safe);
    if (!b->tty) {
        fprintf(stderr, "%s: %s\n", b->what, text);
        return;
    }
    enum { CELLS = 24 };
    char cells[CELLS + 1];
    for (int i = 0; i < CELLS; i++) cells[i] = i * 100 < percent * CELLS ? '#' : '.';
    cells[CELLS] = '\0';
    int room = columns() - 1 - lq_say_width(b->what) - CELLS - 4;
    if (room < 5 || !b->total) fprintf(stderr, "\r%.*s\033[K", columns() - 1, text);
    else fprintf(stderr, "\r%s [%s] %.*s\033[K", b->what, cells, room, text);
    fflush(stderr);
}

void lq_bar_end(lq_bar *b) {
    if (!b->quiet && b->tty) fputs("\r\033[K", stderr);
    fflush(stderr);
}

// --- tables ---

struct lq_table {
    int columns;
    size_t rows, cap;
    int *width;  // [columns], of the widest cell
    char **cell; // [rows][columns], row 0 is the head
};

lq_table *lq_table_new(int count, const char *const *head) {
    lq_table *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->columns = count;
    t->width = calloc((size_t)count, sizeof *t->width);
    if (!t->width) return free(t), NULL;
    lq_table_row(t, head);
    return t;
}

void lq_table_row(lq_table *t, const char *const *cells) {
    if (!t) return;
    size_t width = (size_t)t->columns;
    if (t->rows == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 16;
        char **p = realloc(t->cell, cap * width * sizeof *p);
        if (!p) return;
        t->cell = p;
        t->cap = cap;
    }
    for (size_t c = 0; c < width; c++) {
        char *text = t->cell[t->rows * width + c] = lq_say_shown(cells[c] ? cells[c] : "");
        const int wide = text ? lq_say_width(text) : 0;
        if (wide > t->width[c]) t->width[c] = wide;
    }
    t->rows++;
}

static const char *cell_at(const lq_table *t, size_t row, int col) {
    const char *s = t->cell[row * (size_t)t->columns + (size_t)col];
    return s ? s : "";
}

// A column of numbers: every cell below the head is empty or begins like one.
static bool is_numbers(const lq_table *t, int col) {
    bool any = false;
    for (size_t r = 1; r < t->rows; r++) {
        const char *s = cell_at(t, r, col);
        if (!*s || !strcmp(s, "-")) continue;
        s += strspn(s, "+-.~<");
        if (*s < '0' || *s > '9') return false;
        any = true;
    }
    return any;
}

void lq_table_trim(lq_table *t) {
    if (!t) return;
    const int was = t->columns;
    int kept = 0;
    bool *any = calloc((size_t)was, sizeof *any);
    for (size_t r = 1; any && r < t->rows; r++)
        for (int c = 0; c < was; c++) any[c] |= *cell_at(t, r, c) != 0;
    for (int c = 0; any && c < was; c++)
        if (any[c]) t->width[kept++] = t->width[c];
    for (size_t i = 0, to = 0; any && i < t->rows * (size_t)was; i++) {
        if (any[i % (size_t)was]) t->cell[to++] = t->cell[i];
        else free(t->cell[i]);
    }
    if (any) t->columns = kept;
    free(any);
}

static void table_free(lq_table *t) {
    for (size_t i = 0; i < t->rows * (size_t)t->columns; i++) free(t->cell[i]);
    free(t->cell);
    free(t->width);
    free(t);
}

// A bar in a cell would end it.
static int bars(const char *text) {
    int n = 0;
    for (; *text; text++) n += *text == '|';
    return n;
}

static void markdown_cell(const char *text, int width, bool right, FILE *f) {
    const int blank = width - lq_say_width(text) - bars(text);
    fprintf(f, " %*s", right ? blank : 0, "");
    for (const char *p = text; *p; p++) fprintf(f, *p == '|' ? "\\%c" : "%c", *p);
    fprintf(f, "%*s |", right ? 0 : blank, "");
}

void lq_table_markdown(lq_table *t, FILE *f) {
    if (!t) return;
    for (size_t r = 0; r < t->rows; r++)
        for (int c = 0; c < t->columns; c++) {
            const char *text = cell_at(t, r, c);
            const int width = lq_say_width(text) + bars(text);
            if (width > t->width[c]) t->width[c] = width;
            if (t->width[c] < 3) t->width[c] = 3;
        }
    for (size_t r = 0; r < t->rows; r++) {
        fputc('|', f);
        for (int c = 0; c < t->columns; c++) markdown_cell(cell_at(t, r, c), t->width[c], is_numbers(t, c), f);
        fputc('\n', f);
        if (r) continue;
        fputc('|', f);
        for (int c = 0; c < t->columns; c++) {
            const bool right = is_numbers(t, c);
            fputc(' ', f);
            for (int i = right; i < t->width[c]; i++) fputc('-', f);
            fputs(right ? ": |" : " |", f);
        }
        fputc('\n', f);
    }
    table_free(t);
}

void lq_table_print(lq_table *t, FILE *f) {
    if (!t) return;
    for (int c = 0; c < t->columns; c++)
        if (is_numbers(t, c)) t->width[c] = -t->width[c]; // negative: to the right
    for (size_t r = 0; r < t->rows; r++) {
        if (!r) lq_say_style(f, "1");
        int owed = 0; // spaces that are due before the next text, so that no line ends in blanks
        for (int c = 0; c < t->columns; c++) {
            const char *text = cell_at(t, r, c);
            int width = abs(t->width[c]), mine = lq_say_width(text), before = t->width[c] < 0 ? width - mine : 0;
            if (mine) fprintf(f, "%*s%s", owed + before, "", text);
            owed = (mine ? width - mine - before : owed + width) + 2;
        }
        if (!r) lq_say_style(f, "");
        fputc('\n', f);
    }
    table_free(t);
}
