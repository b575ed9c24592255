// run.h: what `lq run` is made of: an answer as it comes (reply.c), a line of input on a terminal (line.c), and a
// conversation (chat.c).
#ifndef LQ_RUN_H
#define LQ_RUN_H
#include "tools/verb.h"

// --- an answer ---

typedef struct lq_drew { int32_t id; float logprob; lq_top top[3]; int tops; } lq_drew; // a token that was drawn

typedef struct lq_reply {
    const lq_model *model;
    bool quiet;             // nothing is printed while it comes: it is kept for --json
    bool special;           // every token's own bytes, special ones too
    bool keep_draws;
    lq_text text, ids, logprobs;
    lq_drew *draw;
    size_t draws, draw_cap;
    double begun, first, last, loaded; // loaded: seconds that opening the model took; 0: not told
    int prompt_tokens, cached, tokens; // cached: of the prompt, from the answer before
    lq_finish finish;
    bool newline, screen;   // newline: what was printed ends with one; screen: standard output is a terminal
    char torn[4];           // the beginning of a character, where tokens are parts of one
    size_t torn_n;
} lq_reply;

// Runs one request whose prompt is a text, and prints what comes. True too where Ctrl-C ended it.
bool lq_reply_get(lq_reply *a, const lq_model *m, lq_engine *e, const lq_request *ask, const char *prompt, size_t n,
                   int tok_flags, lq_err *err);
void lq_reply_end(lq_reply *a);           // what is left of a torn character, and a line feed if the text has none
int lq_reply_json(const lq_reply *a);     // exit status
void lq_reply_summary(const lq_reply *a); // counts and speeds, on stderr
void lq_reply_draws(const lq_reply *a);   // how sure the model was of its tokens, on stderr
void lq_reply_free(lq_reply *a);          // ready for the next one

// --- a line of input ---

typedef enum lq_line_end { LQ_LINE_DONE, LQ_LINE_STOPPED /* Ctrl-C */, LQ_LINE_OVER /* Ctrl-D, end */ } lq_line_end;

typedef struct lq_lines { char **p; size_t n, cap; } lq_lines; // those entered before
// Reads a text from standard input, with editing where that is a terminal: several lines by Alt-Enter, Ctrl-J, a
// backslash at a line's end or pasting. *text is allocated (free), NUL-terminated; NULL but for LQ_LINE_DONE.
lq_line_end lq_line_read(lq_lines *past, const char *prompt, char **text);
void lq_lines_free(lq_lines *past);

// --- a conversation ---

typedef struct lq_chat_opts {
    lq_model *model;
    lq_engine *engine;
    const lq_template *tmpl;    // NULL: each text is continued as it is
    const lq_request *ask;
    const char *system;         // NULL: none
    const char *messages;       // a file that it begins with; NULL: none
    const lq_template_var *vars; // [var_count] more that the template is given
    size_t var_count;
    bool json, quiet, draw, special, no_special;
    double loaded;
} lq_chat_opts;
// One answer: to `prompt` (NULL: to the messages as they are). Exit status.
int lq_chat_once(const lq_chat_opts *o, const char *prompt, size_t n);
// Asks for texts and answers them until the user leaves. Exit status.
int lq_chat_talk(const lq_chat_opts *o);
#endif
