// kind.h: what a file is that is not what its name says: how broken downloads and mix-ups look.
#ifndef LQ_KIND_H
#define LQ_KIND_H
#include "formats/err.h"

// "a git-LFS pointer: ...", "a GGUF file": by its first bytes; NULL: it looks like nothing that is known here. Only to
// explain what did not parse: a safetensors file may begin like a pickle.
const char *lq_kind_of(const void *p, size_t n);
// The same of what no text and no vocabulary begins with.
const char *lq_kind_of_side(const void *p, size_t n);

bool lq_path_absent(const char *path);              // there is nothing of this name, not even a link
const char *lq_path_why(const char *path, int why); // what errno says of a path that could not be opened
#endif
