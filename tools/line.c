// line.c: a text typed on a terminal: editing, lines entered before, several lines, pasting. On a terminal that obeys
// no escape sequences a plain line. The terminal is put back before anything else can happen.
#include "tools/run.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <utf8proc.h>

typedef struct editor {
    char *text;      // [n], room for cap
    size_t n, cap, at; // at: the cursor
    const char *prompt;
    int row;         // of the cursor, below the first row of what is drawn
    const lq_lines *past;
    size_t shown;    // of past: which one is being edited; past->n: a new one
    char *kept;      // the new one, while another is shown
    int ahead;       // bytes that were typed before
    struct termios before;
} editor;

enum { MOST = 16 << 20 }; // bytes of a text

// --- characters ---

// The character at p; its bytes.
static size_t decode(const char *p, size_t n, int *width) {
    utf8proc_int32_t c;
    const utf8proc_ssize_t took = utf8proc_iterate((const utf8proc_uint8_t *)p, (utf8proc_ssize_t)n, &c);
    *width = took > 0 ? utf8proc_charwidth(c) : 1;
    return took > 0 ? (size_t)took : 1;
}

// One character to the left or right, with what combines with it.
static size_t step_right(const editor *e, size_t at) {
    int width;
    if (at < e->n) at += decode(e->text + at, e->n - at, &width);
    while (at < e->n && e->text[at] != '\n') {
        const size_t took = decode(e->text + at, e->n - at, &width);
        if (width) break;
        at += took;
    }
    return at;
}

static size_t step_left(const editor *e, size_t at) {
    int width = 0;
    while (at && !width) {
        do at--;
        while (at && ((unsigned char)e->text[at] & 0xc0) == 0x80);
        decode(e->text + at, e->n - at, &width);
        if (e->text[at] == '\n') break;
    }
    return at;
}

static bool is_word(char c) {
    return (unsigned char)c >= 0x80 || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
}

static size_t word_left(const editor *e, size_t at) {
    while (at && !is_word(e->text[at - 1])) at--;
    while (at && is_word(e->text[at - 1])) at--;
    return at;
}

static size_t word_right(const editor *e, size_t at) {
    while (at < e->n && !is_word(e->text[at])) at++;
    while (at < e->n && is_word(e->text[at])) at++;
    return at;
}

static size_t line_start(const editor *e, size_t at) {
    while (at && e->text[at - 1] != '\n') at--;
    return at;
}

static size_t line_end(const editor *e, size_t at) {
    while (at < e->n && e->text[at] != '\n') at++;
    return at;
}

// --- changes ---

static void insert(editor *e, const char *p, size_t n) {
    while (e->cap < e->n + n + 1)
        if (e->n + n > MOST || !lq_grow((void **)&e->text, e->cap, &e->cap, 1)) return;
    memmove(e->text + e->at + n, e->text + e->at, e->n - e->at);
    memcpy(e->text + e->at, p, n);
    e->n += n;
    e->at += n;
}

static void cut(editor *e, size_t from, size_t to) {
    if (from == to) return; // also of a line that nothing was typed in: it has no memory
    memmove(e->text + from, e->text + to, e->n - to);
    e->n -= to - from;
    e->at = from;
}

static void replace(editor *e, const char *p) {
    e->n = e->at = 0;
    insert(e, p, strlen(p));
}

// One entered before, or (past the last) the new one as it was.
static void show_past(editor *e, size_t which) {
    if (which > e->past->n || which == e->shown) return;
    if (e->shown == e->past->n) {
        free(e->kept);
        e->kept = strndup(e->n ? e->text : "", e->n);
    }
    e->shown = which;
    replace(e, which < e->past->n ? e->past->p[which] : e->kept ? e->kept : "");
}

// Up and down within the text keep the column; beyond it they go through what was entered before.
static void vertical(editor *e, bool up) {
    const size_t start = line_start(e, e->at), end = line_end(e, e->at), column = e->at - start;
    if (up ? !start : end == e->n) {
        if (up && e->shown) show_past(e, e->shown - 1);
        if (!up && e->shown < e->past->n) show_past(e, e->shown + 1);
        return;
    }
    const size_t to = up ? line_start(e, start - 1) : end + 1, last = line_end(e, to);
    e->at = to + column < last ? to + column : last;
    while (e->at > to && e->at < e->n && ((unsigned char)e->text[e->at] & 0xc0) == 0x80) e->at--;
}

// --- drawing ---

typedef struct place { int row, col; } place;

// Goes on by one character of this width. *wraps: it does not fit this row.
static place advance(place p, bool newline, int width, int columns, int indent, bool *wraps) {
    *wraps = !newline && p.col + width > columns;
    if (newline) return (place){p.row + 1, indent};
    if (*wraps) return (place){p.row + 1, width};
    return (place){p.row, p.col + width};
}

// Draws all of it anew. Rows that do not fit the screen are left out above or below the cursor's.
static void draw(editor *e) {
    struct winsize size = {0};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || size.ws_col < 8) size = (struct winsize){.ws_row = 24, .ws_col = 80};
    const int columns = size.ws_col, indent = lq_say_width(e->prompt), height = size.ws_row > 2 ? size.ws_row : 2;
    lq_text out = {0};
    place p = {0, indent}, cursor = p;
    bool wraps;
    int width;
    for (size_t i = 0; i < e->n; ) { // where the cursor is
        if (i == e->at) cursor = p;
        const size_t took = decode(e->text + i, e->n - i, &width);
        p = advance(p, e->text[i] == '\n', width, columns, indent, &wraps);
        if (wraps && i == e->at) cursor = (place){p.row, 0};
        i += took;
    }
    if (e->at == e->n) cursor = p.col < columns ? p : (place){p.row + 1, 0};
    const int top = cursor.row >= height ? cursor.row - height + 1 : 0;
    if (e->row) lq_text_fmt(&out, "\033[%dA", e->row);
    lq_text_fmt(&out, "\r\033[J");
    if (!top) lq_text_fmt(&out, "%s", e->prompt);
    int row = top;
    p = (place){0, indent};
    for (size_t i = 0; i < e->n && row - top < height; ) {
        const size_t took = decode(e->text + i, e->n - i, &width);
        p = advance(p, e->text[i] == '\n', width, columns, indent, &wraps);
        if (p.row > row && p.row - top < height) lq_text_fmt(&out, "\r\n%*s", wraps ? 0 : indent, "");
        if (p.row > row) row = p.row;
        if (p.row >= top && p.row - top < height && e->text[i] != '\n') lq_text_add(&out, e->text + i, took);
        i += took;
    }
    if (cursor.row > row) lq_text_fmt(&out, "\r\n"), row = cursor.row;
    if (row - top >= height) row = top + height - 1;
    if (row > cursor.row) lq_text_fmt(&out, "\033[%dA", row - cursor.row);
    lq_text_fmt(&out, "\r");
    if (cursor.col) lq_text_fmt(&out, "\033[%dC", cursor.col);
    e->row = cursor.row - top;
    if (!out.failed) fwrite(out.p, 1, out.n, stdout);
    fflush(stdout);
    lq_text_free(&out);
}

// --- keys ---

enum { KEY_END = -1, KEY_LEFT = 256, KEY_RIGHT, KEY_UP, KEY_DOWN, KEY_HOME, KEY_LAST, KEY_DELETE, KEY_WORD_LEFT,
       KEY_WORD_RIGHT, KEY_NEWLINE, KEY_PASTE, KEY_PASTED, KEY_NONE };

// What was typed before the editor listened has come through the terminal's own editing, which makes Enter a line feed.
static int next_byte(editor *e) {
    unsigned char c;
    const bool ahead = e->ahead > 0 && e->ahead--;
    const ssize_t n = read(STDIN_FILENO, &c, 1);
    return n != 1 ? KEY_END : ahead && c == '\n' ? '\r' : c;
}

// Behind an escape: a sequence, or Alt and a key.
static int escape(editor *e) {
    int c = next_byte(e), number = 0, modifier = 0;
    if (c == '\r' || c == '\n') return KEY_NEWLINE;
    if (c == 'b') return KEY_WORD_LEFT;
    if (c == 'f') return KEY_WORD_RIGHT;
    if (c != '[' && c != 'O') return c == KEY_END ? KEY_END : KEY_NONE;
    while ((c = next_byte(e)) != KEY_END && ((c >= '0' && c <= '9') || c == ';')) {
        if (c == ';') modifier = 1;
        else if (!modifier && number < 1000) number = number * 10 + c - '0';
    }
    switch (c) {
    case 'A': return KEY_UP;
    case 'B': return KEY_DOWN;
    case 'C': return modifier ? KEY_WORD_RIGHT : KEY_RIGHT;
    case 'D': return modifier ? KEY_WORD_LEFT : KEY_LEFT;
    case 'H': return KEY_HOME;
    case 'F': return KEY_LAST;
    case '~': break;
    default: return c == KEY_END ? KEY_END : KEY_NONE;
    }
    switch (number) {
    case 1: case 7: return KEY_HOME;
    case 3: return KEY_DELETE;
    case 4: case 8: return KEY_LAST;
    case 200: return KEY_PASTE;
    case 201: return KEY_PASTED;
    default: return KEY_NONE;
    }
}

// A character of UTF-8 whose first byte is c; what would be obeyed is left out.
static void type(editor *e, int c) {
    char bytes[4] = {(char)c};
    const size_t want = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
    size_t n = 1;
    if (c == '\t') insert(e, "    ", 4);
    if (c < ' ' || c == 127) return;
    while (n < want && (c = next_byte(e)) != KEY_END) bytes[n++] = (char)c;
    utf8proc_int32_t code;
    if (utf8proc_iterate((const utf8proc_uint8_t *)bytes, (utf8proc_ssize_t)n, &code) != (utf8proc_ssize_t)n) return;
    if (!lq_utf8_unseen((const unsigned char *)bytes, n)) insert(e, bytes, n);
}

static void paste(editor *e) {
    for (int c; (c = next_byte(e)) != KEY_END; ) {
        if (c == 27) {
            if (escape(e) == KEY_PASTED) return;
        } else if (c == '\r' || c == '\n') insert(e, "\n", 1);
        else type(e, c);
    }
}

static void move(editor *e, int key) {
    switch (key) {
    case KEY_LEFT: case 2: e->at = step_left(e, e->at); break;
    case KEY_RIGHT: case 6: e->at = step_right(e, e->at); break;
    case KEY_UP: case 16: vertical(e, true); break;
    case KEY_DOWN: case 14: vertical(e, false); break;
    case KEY_HOME: case 1: e->at = line_start(e, e->at); break;
    case KEY_LAST: case 5: e->at = line_end(e, e->at); break;
    case KEY_WORD_LEFT: e->at = word_left(e, e->at); break;
    case KEY_WORD_RIGHT: e->at = word_right(e, e->at); break;
    default: break;
    }
}

static void change(editor *e, int key) {
    switch (key) {
    case KEY_NEWLINE: case '\n': insert(e, "\n", 1); break;
    case KEY_PASTE: paste(e); break;
    case KEY_DELETE: cut(e, e->at, step_right(e, e->at)); break;
    case 8: case 127: cut(e, step_left(e, e->at), e->at); break;
    case 11: cut(e, e->at, line_end(e, e->at)); break;
    case 21: cut(e, line_start(e, e->at), e->at); break;
    case 23: cut(e, word_left(e, e->at), e->at); break;
    default:
        if (key < 256) type(e, key);
        else move(e, key);
    }
}

static void raw(const editor *e, bool on) {
    struct termios t = e->before;
    t.c_lflag &= (tcflag_t)~(ICANON | ECHO | ISIG | IEXTEN);
    t.c_iflag &= (tcflag_t)~(ICRNL | INLCR | IXON);
    t.c_cc[VMIN] = 1;
    t.c_cc[VTIME] = 0;
    fputs(on ? "\033[?2004h" : "\033[?2004l", stdout); // what is pasted comes in brackets
    fflush(stdout);
    tcsetattr(STDIN_FILENO, TCSADRAIN, on ? &t : &e->before);
}

static lq_line_end edit(editor *e) {
    raw(e, true);
    lq_input_forget(true); // also what came when the answer before had just ended
    if (ioctl(STDIN_FILENO, FIONREAD, &e->ahead)) e->ahead = 0;
    draw(e);
    lq_line_end end = LQ_LINE_OVER;
    for (int key; (key = next_byte(e)) != KEY_END; draw(e)) {
        if (key == 27) key = escape(e);
        if (key == '\r' && e->at && e->at == e->n && e->text[e->n - 1] == '\\') {
            e->text[e->n - 1] = '\n';
            continue;
        }
        if (key == 3) end = LQ_LINE_STOPPED;
        if (key == '\r') end = LQ_LINE_DONE;
        if (key == KEY_END || key == 3 || key == '\r' || (key == 4 && !e->n)) break;
        if (key == 4) key = KEY_DELETE;
        if (key == 12) fputs("\033[H\033[2J", stdout), e->row = 0;
        else if (key == 26) {
            raw(e, false);
            raise(SIGTSTP);
            raw(e, true);
            e->row = 0;
        } else if (key < 32 && strchr("\001\002\005\006\016\020", key) && key) move(e, key);
        else change(e, key);
    }
    e->at = e->n;
    draw(e);
    fputs("\r\n", stdout);
    lq_input_catch();
    raw(e, false);
    return end;
}

static lq_line_end read_plain(const char *prompt, char **text) {
    size_t cap = 0;
    fputs(prompt, stdout);
    fflush(stdout);
    lq_input_forget(false);
    ssize_t n = getline(text, &cap, stdin);
    lq_input_catch();
    if (n > 0 && (*text)[n - 1] == '\n') (*text)[--n] = '\0';
    if (n >= 0) return LQ_LINE_DONE;
    free(*text);
    *text = NULL;
    return LQ_LINE_OVER;
}

static void remember(lq_lines *past, const char *text) {
    if (!*text || (past->n && !strcmp(past->p[past->n - 1], text))) return;
    if (!lq_grow((void **)&past->p, past->n, &past->cap, sizeof *past->p)) return;
    char *own = strdup(text);
    if (own) past->p[past->n++] = own;
}

lq_line_end lq_line_read(lq_lines *past, const char *prompt, char **text) {
    editor e = {.prompt = prompt, .past = past, .shown = past->n};
    *text = NULL;
    if (!lq_say_cursor(stdout) || tcgetattr(STDIN_FILENO, &e.before))
        return read_plain(prompt, text);
    lq_line_end end = edit(&e);
    if (end == LQ_LINE_DONE) {
        *text = strndup(e.n ? e.text : "", e.n);
        if (*text) remember(past, *text);
        else end = LQ_LINE_OVER;
    }
    free(e.text);
    free(e.kept);
    return end;
}

void lq_lines_free(lq_lines *past) {
    for (size_t i = 0; i < past->n; i++) free(past->p[i]);
    free(past->p);
    *past = (lq_lines){0};
}
