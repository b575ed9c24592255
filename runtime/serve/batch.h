// batch.h: what the two files of a batch share: lines that are read one by one, what a line says, names that were met
// before, and the two files themselves (batch_files.c); the run is batch.c's.
#ifndef LQ_BATCH_H
#define LQ_BATCH_H
#include "runtime/serve/server.h"

// --- lines ---

typedef struct lq_lines {
    int fd;
    const char *path;      // for errors
    char *p, *work;        // [cap] what was read; room for what a line's strings decode to
    size_t cap, at, n;     // p[at..n): not taken
    size_t looked;         // of that, where no line feed is
    size_t most;           // bytes that a line may have
    uint64_t number;       // of the last line that was taken, from 1
    uint64_t begins, next; // where it begins, and where the next one does
    bool over, whole;      // over: there is no more to read; whole: the last line ended with a line feed
    bool skips;            // of a line that is too long the rest
} lq_lines;

typedef enum lq_line {
    LQ_LINE,      // *text is valid until the next call
    LQ_LINE_LONG, // there was one, longer than `most`
    LQ_LINE_WAIT, // nothing came within so many milliseconds (negative: no limit)
    LQ_LINE_OVER,
    LQ_LINE_FAILED
} lq_line;
lq_line lq_lines_next(lq_lines *l, int ms, const char **text, size_t *n, lq_err *err);
void lq_lines_end(lq_lines *l);

// What a line of either file says; all borrowed until the next one is taken.
typedef struct lq_said {
    const char *custom;   // custom_id, where that is a text; else NULL
    size_t custom_len;
    const char *body;     // as it is written; NULL: there is none
    size_t body_len;
    char method[16], url[128]; // "": no text, or none that could be right
    bool response, error; // of an output: it has these members
    bool failed;          // and error is not null
    uint64_t line;        // error.line
} lq_said;
bool lq_said_blank(const char *text, size_t n);
// `what` begins the errors.
bool lq_said_read(lq_lines *l, const char *text, size_t n, const char *what, lq_said *said, lq_err *err);

// --- names that were met ---

// 16 bytes a name: its hash and the line it stood in. That two of a billion names have one hash is as likely as 1e-11.
typedef struct lq_met { uint64_t hash; uint32_t more, line; } lq_met; // line 0: free
typedef struct lq_names { lq_met *p; size_t n, cap; } lq_names;
lq_met lq_name_of(const char *custom, size_t n, uint64_t line);
lq_met lq_name_of_line(uint64_t line); // of a line that has no custom_id
uint32_t lq_met_find(const lq_names *s, lq_met m);           // the line it was met in; 0: in none
bool lq_met_add(lq_names *s, lq_met m, uint32_t *before);    // *before: the same. False: no memory

// --- files ---

typedef struct lq_batch_files {
    lq_lines in;
    int out;
    const char *out_path;
    bool in_plain, out_plain; // plain: a file, which has a size and can be read again
    bool made;                // this run made `out`
    uint64_t out_size;        // of its whole lines
    lq_names asked, told;     // by lines of `in` (where that cannot be read twice), by answers in `out`
    uint64_t total;           // requests of `in`, where it is plain
    uint64_t before, before_failed; // answers that stood in `out`: to those of `in`; that tell of a failure
} lq_batch_files;

bool lq_batch_files_open(lq_batch_files *f, const lq_batch_opts *o, lq_err *err);
// A whole line or, where that fails, nothing.
bool lq_batch_files_write(lq_batch_files *f, const lq_text *line, lq_err *err);
// Brings what was written to the disk. `kept` false: a file that this run made and nothing was written to goes again.
bool lq_batch_files_close(lq_batch_files *f, bool kept, lq_err *err);
#endif
