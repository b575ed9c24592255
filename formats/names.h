// names.h: lists whose elements have names: finding one by a hash table beside the list, sorting many that begin alike.
// Each element of such a list begins with its `const char *name`. Inside formats/ only.
#ifndef LQ_NAMES_H
#define LQ_NAMES_H
#include "formats/err.h"

typedef struct lq_hashed {
    uint64_t *slot; // [slots] the upper half of a hash, and 1 + an index; 0: empty
    size_t slots;
    uint64_t seed;  // drawn: nobody can write a file whose names all fall into one place
} lq_hashed;

bool lq_hashed_build(lq_hashed *x, const void *list, size_t count, size_t stride); // false: no memory
// The element whose name is the n bytes at `name`; NULL if there is none.
const void *lq_hashed_find(const lq_hashed *x, const void *list, size_t stride, const char *name, size_t n);
void lq_hashed_free(lq_hashed *x);

typedef struct lq_named {
    const char *name;
    uint64_t head;  // of the sort: eight of its bytes
    const void *of; // what has it
} lq_named;

// By name, as strcmp has it. Equal names stand side by side.
bool lq_named_sort(lq_named *list, size_t count); // false: no memory
#endif
