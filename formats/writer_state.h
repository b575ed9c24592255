// writer_state.h: what a writer knows while OUT.partial/ is not yet OUT, and what its files do with it. Inside formats/
// only: writer.c adds tensors, writer_entries.c finds them by name, writer_journal.c writes and reads the journal,
// writer_disk.c has the folder and its files, writer_back.c reads back, writer_commit.c writes the header.
#ifndef LQ_WRITER_STATE_H
#define LQ_WRITER_STATE_H
#include "formats/container.h"
#include "formats/json.h"
#include "formats/parts.h"
#include "formats/writer.h"
#include <xxhash.h>

// A tensor that is in `data`, padding too.
typedef struct lq_entry {
    lq_tensor t;   // name is owned; data is not used
    size_t at;     // in the file
    uint64_t sum;
    bool again;    // added in this run
    size_t type;   // of codes: 1 + index of their weight's type, once the weight is whole
} lq_entry;

typedef struct lq_pair { char *key, *value; } lq_pair;
// Bytes of the data that are mapped.
typedef struct lq_span { const uint8_t *p; size_t from, to; } lq_span;
// A finished block of an earlier run: its note, and how much there was of everything at its end.
typedef struct lq_resumed { char *note; size_t entries, types, end, journal_end; } lq_resumed;

// A stack that is being written: its entries are there from the first matrix on, their checksums when the last one is.
typedef struct lq_stacking {
    char name[LQ_NAME];
    lq_typed of;
    lq_layout layout;
    int32_t outliers;
    int64_t put;
    bool open, there; // there: the interrupted run wrote it
    size_t used;      // header bytes that were spoken for before it
    size_t first;     // its first entry, padding included
    size_t entry[LQ_PARTS], bytes[LQ_PARTS]; // of each part its entry, and the bytes of one matrix; 0: no such part
    XXH64_state_t *sum[LQ_PARTS];
} lq_stacking;

struct lq_writer {
    lq_writer_opts o;
    char *out, *fingerprint, *folder, *data_path, *journal_path;
    int dir, data, journal; // dir: OUT.partial/, through which the others are reached
    bool failed, done;   // done: OUT has its name
    bool outdated;       // finished blocks of another input were thrown away
    size_t start;        // of the data: a header of start - 8 bytes stands before it
    size_t at, used;     // end of the data so far; header bytes spoken for
    size_t journal_at;   // its end
    lq_entry *entry;     // [entries] in the order of their bytes
    size_t entries, entry_cap;
    size_t pads;         // how many of them are padding
    uint32_t *slot;      // [slots] 1 + index of the entry whose name falls there
    size_t slots;
    lq_pair *type, *meta; // [types] of coded weights, [metas]
    size_t types, type_cap, metas, meta_cap;
    lq_resumed *block;   // [blocks]
    size_t blocks, block_cap;
    lq_stacking stack;
    lq_text pending;     // journal lines of the block that is being written
    lq_span *span;       // [spans] for reading back
    size_t spans, span_cap;
    lq_ckpt *back;       // what weights are bound through when they are read back, empty else
};

// writer.c
bool lq_writer_no_memory(const lq_writer *w, lq_err *err);
lq_layout lq_writer_layout(const lq_writer *w); // the file's
bool lq_writer_stack_over(const lq_writer *w, lq_err *err); // no stack wants another matrix

// writer_entries.c
lq_entry *lq_entry_find(const lq_writer *w, const char *name);
lq_entry *lq_entry_codes(const lq_writer *w, const char *name); // the codes of a coded weight
bool lq_entry_push(lq_writer *w, const lq_entry *e, const char *name); // copies both; false: no memory
void lq_entries_cut(lq_writer *w, size_t entries, size_t types); // forgets what came later
bool lq_pairs_push(lq_pair **list, size_t *n, size_t *cap, const char *key, const char *value); // copies both
bool lq_name_pads(const char *name); // a tensor of this name is padding

// writer_disk.c. What fails here fails the writer.
enum { LQ_DISK_PIECE = 1 << 26 }; // what is hashed or written before anybody is asked whether to go on
bool lq_disk_open(lq_writer *w, lq_err *err); // the folder, its lock and both files
bool lq_disk_publish(lq_writer *w, lq_err *err); // the data takes the file's name
bool lq_disk_write(lq_writer *w, int fd, const char *path, const void *data, size_t n, size_t at, lq_err *err);
bool lq_disk_fail(lq_writer *w, const char *path, const char *what, lq_err *err); // with what errno says
bool lq_disk_go_on(lq_writer *w, lq_err *err); // asks whether to

// writer_journal.c
bool lq_journal_begin(lq_writer *w, lq_err *err); // an empty one of this work
// Reads an interrupted run's: entries, types and blocks that are on disk as it says. *ours: it is of this work; else it
// is refused where it names finished blocks, unless only the input has changed since.
bool lq_journal_resume(lq_writer *w, bool *ours, lq_err *err);
void lq_journal_tensor(lq_writer *w, const lq_entry *e);
void lq_journal_type(lq_writer *w, const char *name, const char *type);
bool lq_journal_block(lq_writer *w, const char *note, lq_err *err); // what was said since the last is on disk with it
void lq_shape_add(lq_text *t, const lq_tensor *tensor); // as a JSON list
#endif
