// writer.h: writes a .lq file (or plain safetensors) so that a reader never sees an unfinished one.
//
// Work goes to OUT.partial/: `data` grows tensor by tensor behind room kept for the header, `journal` names what is
// whole. lq_writer_commit writes the header into that room, syncs, opens and checks the result as any reader would,
// lets the caller check it too, and only then renames it: what fails leaves OUT as it was.
// Opening with `resume` goes on from a journal that has the same fingerprint, and refuses another's finished blocks (a
// fingerprint of the form "<recipe>.<input>" or "<recipe>.<input>.<machine>": those of another recipe, or of another
// machine, which is named; what came of another state of the input is thrown away); without it what is there is thrown
// away.
#ifndef LQ_WRITER_H
#define LQ_WRITER_H
#include "formats/ckpt.h"

typedef struct lq_writer lq_writer;

typedef struct lq_writer_opts {
    const char *out;         // the file's final name
    const char *fingerprint; // of everything that decides the bytes; also what resume compares
    bool plain;              // ordinary safetensors: no alignment, checksums or lq metadata
    bool overwrite;          // OUT may exist
    bool resume;
    lq_tick *tick;           // asked while much is written or read back; false stops with LQ_E_CANCELLED. May be NULL
    void *arg;
    size_t header_room;      // bytes for the header: lq_writer_entry_room or _weight_room of everything + metadata
} lq_writer_opts;

// Whether a file of this name would open again: not one like a shard's or an index's.
bool lq_out_name_check(const char *out, lq_err *err);
bool lq_writer_open(const lq_writer_opts *o, lq_writer **out, lq_err *err);
// The most header bytes that a tensor of this name and its checksum can take, or a weight: its type
// and all parts that it may have.
size_t lq_writer_entry_room(const char *name);
size_t lq_writer_type_room(const char *name); // of a coded weight, its line in lq.types alone
size_t lq_writer_weight_room(const char *name, const lq_wtype *t); // of a stack too

bool lq_writer_meta(lq_writer *w, const char *key, const char *value, lq_err *err);
// Adds a tensor. After a resume, one that the journal holds is skipped (its bytes are already there).
bool lq_writer_add(lq_writer *w, const char *name, lq_dtype type, int rank, const int64_t *shape, const void *data,
                   lq_err *err);
// Adds a whole weight: a plain one as the tensor `name`; of a coded one the type and every part that is
// there, as name.q, name.scale ... in the shapes of its layout. The file's layout is the metadata
// "lq.layout", to be given before ("any" if not).
bool lq_writer_weight(lq_writer *w, const char *name, const lq_weight *q, lq_err *err);
// A stack: `count` matrices of one type and shape under one name, whose parts lie one behind the other. Each is put as
// it is made, in their order, in the layout that the type has in this file; nothing is buffered, and nothing else may
// be added before the last. All have the same parts. After a resume that holds the stack, they are skipped.
bool lq_writer_stack(lq_writer *w, const char *name, const lq_wtype *t, int count, int64_t n, int64_t k, lq_err *err);
bool lq_writer_stack_put(lq_writer *w, const lq_weight *q, lq_err *err);
// Forgets the matrices of an unfinished stack: it may begin anew, with another type. One that a resume found stays.
void lq_writer_stack_drop(lq_writer *w);
// Ends a block: everything added so far is on disk before the journal says so.
bool lq_writer_block(lq_writer *w, const char *note /* kept for resume, one line */, lq_err *err);
// A weight or a plain matrix or vector that was written whole, in this run or before a resume, bound as lq_ckpt_weight
// (of a stack, count > 0, lq_ckpt_pick) binds it to the file's own bytes. It lives until the writer is closed.
bool lq_writer_weight_back(lq_writer *w, const char *name, int count, lq_weight *out /* [1], [count] */, lq_err *err);
// Nobody looks at what was read back for a while: its pages leave the process's memory until one does.
void lq_writer_rest(lq_writer *w);
bool lq_writer_outdated(const lq_writer *w); // finished blocks were thrown away because the input has changed since
// Blocks that a resume found whole, and the note of each.
size_t lq_writer_resumed(const lq_writer *w);
const char *lq_writer_note(const lq_writer *w, size_t i);
// `check` (may be NULL) opens the whole file `data` before it takes its name. Where it says no, OUT
// and OUT.partial stay as they are.
typedef bool lq_writer_check(void *arg, const char *data, lq_err *err);
bool lq_writer_commit(lq_writer *w, lq_writer_check *check, void *arg, lq_err *err);
// Frees. Without commit: OUT.partial stays for a resume unless `discard`.
void lq_writer_close(lq_writer *w, bool discard);

// The folder OUT.partial, made where it is not there, and a plain file of ours in it, likewise; -1: see err. In a
// folder that others may write to a link could lead anywhere: it is refused.
int lq_partial_open(const char *folder, lq_err *err);
int lq_partial_file(int dir, const char *name, const char *path /* for errors */, lq_err *err);
#endif
