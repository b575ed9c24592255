// tok_tree.c: texts by their beginnings: for each place of a text, which tokens begin there. Built in time linear in
// the bytes of the tokens, whatever they are.
#include <stdlib.h>
#include <string.h>
#include "runtime/text/tok.h"

enum { FEW = 24 }; // children that are looked through one by one; texts that are sorted by insertion

// A node while the tree is built: the texts that begin so are order[low] .. order[high - 1].
typedef struct range { uint32_t low, high; } range;
typedef struct builder {
    const lq_tok_vocab *v;
    lq_tok_tree *t;
    uint32_t *order, *other; // [texts] ids, and room to sort them
    range *node;             // [bytes + 1]
    uint32_t depth;
} builder;

static uint8_t byte_of(const builder *b, uint32_t id) { return (uint8_t)b->v->text[b->v->at[id] + b->depth]; }

// Stably, by the byte at this depth.
static void range_sort(builder *b, uint32_t low, uint32_t high) {
    if (high - low <= FEW) {
        for (uint32_t i = low + 1; i < high; i++) {
            uint32_t id = b->order[i], k = i;
            for (; k > low && byte_of(b, b->order[k - 1]) > byte_of(b, id); k--) b->order[k] = b->order[k - 1];
            b->order[k] = id;
        }
        return;
    }
    uint32_t count[257] = {0};
    for (uint32_t i = low; i < high; i++) count[byte_of(b, b->order[i]) + 1]++;
    for (int i = 1; i < 257; i++) count[i] += count[i - 1];
    for (uint32_t i = low; i < high; i++) b->other[count[byte_of(b, b->order[i])]++] = b->order[i];
    memcpy(b->order + low, b->other, (high - low) * sizeof *b->order);
}

// The texts that end at a node leave its range (of equal ones the last counts); the others make its children.
static void node_split(builder *b, size_t i) {
    lq_tok_tree *t = b->t;
    uint32_t low = b->node[i].low, high = b->node[i].high, ended = low;
    t->token[i] = -1;
    t->child[i] = (uint32_t)t->nodes;
    for (uint32_t k = low; k < high; k++) {
        uint32_t id = b->order[k];
        if (b->v->len[id] > b->depth) continue;
        if ((int32_t)id > t->token[i]) t->token[i] = (int32_t)id;
        b->order[k] = b->order[ended];
        b->order[ended++] = id;
    }
    low = ended;
    range_sort(b, low, high);
    while (low < high) {
        uint8_t byte = byte_of(b, b->order[low]);
        uint32_t end = low + 1;
        while (end < high && byte_of(b, b->order[end]) == byte) end++;
        t->byte[t->nodes] = byte;
        b->node[t->nodes++] = (range){low, end};
        low = end;
    }
}

static void tree_build(builder *b, uint32_t texts) {
    lq_tok_tree *t = b->t;
    b->node[0] = (range){0, texts};
    t->nodes = 1;
    for (size_t i = 0; i < t->nodes;) { // level by level
        for (size_t end = t->nodes; i < end; i++) node_split(b, i);
        b->depth++;
    }
    t->child[t->nodes] = (uint32_t)t->nodes;
    for (uint32_t i = t->child[0]; i < t->child[1]; i++) t->top[t->byte[i]] = i;
}

bool lq_tok_tree_make(lq_tok_tree *t, const lq_tok_vocab *v, uint8_t kind, uint8_t without, lq_err *err) {
    size_t bytes = 0, n = 0;
    for (int32_t id = 0; id < v->count; id++)
        if ((v->kind[id] & kind) && !(v->kind[id] & without)) bytes += v->len[id], n++;
    builder b = {.v = v, .t = t, .order = malloc((n + 1) * sizeof *b.order), .other = malloc((n + 1) * sizeof *b.other),
                 .node = malloc((bytes + 1) * sizeof *b.node)};
    t->child = malloc((bytes + 2) * sizeof *t->child);
    t->byte = calloc(bytes + 1, 1);
    t->token = malloc((bytes + 1) * sizeof *t->token);
    bool ok = b.order && b.other && b.node && t->child && t->byte && t->token;
    if (ok) {
        n = 0;
        for (int32_t id = 0; id < v->count; id++)
            if ((v->kind[id] & kind) && !(v->kind[id] & without)) b.order[n++] = (uint32_t)id;
        tree_build(&b, (uint32_t)n);
    } else lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for %zu tokens", n);
    free(b.order);
    free(b.other);
    free(b.node);
    return ok;
}

void lq_tok_tree_free(lq_tok_tree *t) {
    free(t->child);
    free(t->byte);
    free(t->token);
}

uint32_t lq_tok_tree_step(const lq_tok_tree *t, uint32_t node, uint8_t byte) {
    if (!node) return t->top[byte];
    uint32_t low = t->child[node], high = t->child[node + 1];
    while (high - low > FEW) {
        uint32_t mid = low + (high - low) / 2;
        if (t->byte[mid] > byte) high = mid;
        else low = mid;
    }
    for (uint32_t i = low; i < high; i++)
        if (t->byte[i] == byte) return i;
    return 0;
}

size_t lq_tok_tree_longest(const lq_tok_tree *t, uint32_t node, const char *p, size_t n, int32_t *id) {
    size_t found = 0;
    if (!t->nodes || node == UINT32_MAX) return 0;
    for (size_t i = 0; i < n; i++) {
        node = lq_tok_tree_step(t, node, (uint8_t)p[i]);
        if (!node) break;
        if (t->token[node] < 0) continue;
        *id = t->token[node];
        found = i + 1;
    }
    return found;
}
