// tok.h: inside of the tokenizer, between tokenizer.c and the tok_*.c files; nobody else includes it.
//
// Opening: tokenizer.c -> the model (tok_model.c) with its vocabulary (tok_vocab.c), merges (tok_merge.c) and tree
// (tok_tree.c), and the steps (tok_steps.c and what calls it).
// Encoding (tok_encode.c) walks: text -> sections around added tokens (tok_added.c) -> normalizers (tok_norm.c) ->
// words (tok_split.c) -> ids, by the kind of model (tok_bpe.c, tok_unigram.c, tok_wordpiece.c). Decoders stand in
// tok_decode.c, what is put around a text in tok_post.c. All stand on tok_pattern.h -> tok_text.h.
// Everything an open tokenizer holds is constant; what a call needs stands in its lq_tok_work.
#ifndef LQ_TOK_H
#define LQ_TOK_H
#include "runtime/text/tok_pattern.h"
#include "runtime/text/tokenizer.h"

enum {
    LQ_TOK_MAX_ID = 1 << 22,   // a vocabulary past that is not believed
    LQ_TOK_MAX_OPS = 64,       // steps of a normalizer, pre-tokenizer or decoder
    LQ_TOK_MAX_CONTENT = 1024, // bytes of an added token, of a piece of Unigram or WordPiece
    LQ_TOK_GROWTH = 16,        // times as long as it was is what steps may make a text,
    LQ_TOK_GROWTH_TEXT = 65536, LQ_TOK_GROWTH_TOKEN = 256 // and so much more
};

// --- steps ---

// A type of component that tokenizer.json may name, and what reads it; `how` tells types apart that are read alike.
typedef struct lq_tok_step {
    const char *type;
    int how;
    bool (*read)(const cJSON *json, int how, lq_tokenizer *t, lq_err *err);
} lq_tok_step;
typedef struct lq_tok_steps {
    const char *what, *list; // "normalizer", and the key of what a Sequence of them holds
    const lq_tok_step *row;  // [rows]
    size_t rows;
} lq_tok_steps;
// Walks {"type": "Sequence", <list>: [...]} or a lone component without recursion and reads each by its row.
bool lq_tok_steps_read(const cJSON *json, const lq_tok_steps *s, lq_tokenizer *t, lq_err *err);
bool lq_tok_step_fits(int have, const char *what, lq_err *err); // one more, beside those that there are

typedef enum lq_tok_norm_kind {
    LQ_TOK_N_FORM, LQ_TOK_N_LOWER, LQ_TOK_N_STRIP, LQ_TOK_N_STRIP_ACCENTS, LQ_TOK_N_PREPEND, LQ_TOK_N_REPLACE,
    LQ_TOK_N_BYTES, LQ_TOK_N_CLEAN, LQ_TOK_N_CJK, LQ_TOK_N_STRIP_MARKS, LQ_TOK_N_NMT, LQ_TOK_N_CHARSMAP, LQ_TOK_N_PIECES
} lq_tok_norm_kind;
// A table of sentencepiece's: beginnings of texts and what they become (tok_charsmap.c).
typedef struct lq_tok_charsmap {
    uint32_t *unit;  // [units] of the double array
    size_t units;
    char *text;      // [text_n] what becomes of them, each NUL-terminated
    size_t text_n;
} lq_tok_charsmap;
bool lq_tok_charsmap_read(const char *p, size_t n, lq_tok_charsmap *m, const char *what, lq_err *err);
void lq_tok_charsmap_free(lq_tok_charsmap *m);

typedef struct lq_tok_norm {
    lq_tok_norm_kind kind;
    bool compose, compat;      // FORM
    bool today;                // FORM: by the Unicode of today, not by that of the `tokenizers` library
    bool left, right;          // STRIP
    lq_tok_pattern pattern;    // REPLACE
    char *text;                // PREPEND, REPLACE
    size_t n;
    lq_tok_charsmap map;       // CHARSMAP, PIECES
    bool dummy, always;        // PIECES: a space before the text; before each stretch of it
    bool squeeze, escape, behind; // PIECES: of spaces one stays, a mark stands for it, the dummy stands at the end
} lq_tok_norm;

typedef enum lq_tok_behavior { LQ_TOK_REMOVED, LQ_TOK_ISOLATED, LQ_TOK_MERGED_PREVIOUS, LQ_TOK_MERGED_NEXT,
                              LQ_TOK_CONTIGUOUS } lq_tok_behavior;
typedef enum lq_tok_pre_kind {
    LQ_TOK_SPLIT, LQ_TOK_PREFIX_SPACE, LQ_TOK_BYTES, LQ_TOK_METASPACE, LQ_TOK_CHUNKS
} lq_tok_pre_kind;
typedef enum lq_tok_scheme { LQ_TOK_ALWAYS, LQ_TOK_FIRST, LQ_TOK_NEVER } lq_tok_scheme;
typedef struct lq_tok_pre {
    lq_tok_pre_kind kind;
    lq_tok_pattern pattern;
    lq_tok_behavior behavior;
    bool invert;
    char mark[8];              // METASPACE: the character that stands for a space
    size_t mark_n;
    lq_tok_scheme scheme;
    size_t chunk;              // CHUNKS: characters
} lq_tok_pre;

// Of a section: whether it begins where the whole text does, and how many of its bytes, as steps have it so far, stand
// for the text's first character. That is what the library means by a beginning, whatever was added or taken away.
typedef struct lq_tok_lead { bool whole; size_t n; } lq_tok_lead;
typedef struct lq_tok_word { size_t at, end, lead; } lq_tok_word; // lead: of its bytes, see lq_tok_lead
typedef struct lq_tok_words { lq_tok_word *p; size_t n, cap; } lq_tok_words;
bool lq_tok_words_add(lq_tok_words *w, size_t at, size_t end, size_t lead, lq_err *err);

// --- vocabulary ---

typedef enum lq_tok_model { LQ_TOK_BPE, LQ_TOK_UNIGRAM, LQ_TOK_WORDPIECE, LQ_TOK_WORDLEVEL } lq_tok_model;
enum {
    LQ_TOK_K_ABSENT = 0,
    LQ_TOK_K_MODEL = 1,   // the model makes it of text
    LQ_TOK_K_ADDED = 2,
    LQ_TOK_K_SPECIAL = 4,
    LQ_TOK_K_THERE = 8,   // neither: a control or byte piece of sentencepiece
    LQ_TOK_K_USER = 16,   // of sentencepiece: always one piece
    LQ_TOK_K_UNUSED = 32, // of sentencepiece: merged, then taken apart again
    LQ_TOK_ADJACENT = 1 << 19
};
typedef struct lq_tok_entry { // a token as a file lists it
    const char *text;         // [n], borrowed
    size_t n;
    int32_t id;
    uint8_t kind;             // LQ_TOK_K_*
    double score;
} lq_tok_entry;
typedef struct lq_tok_entries { lq_tok_entry *p; size_t n, cap; } lq_tok_entries;

// Texts by their beginnings. The children of a node stand side by side, in the order of their bytes.
typedef struct lq_tok_tree {
    uint32_t *child; // [nodes + 1] child[i] .. child[i + 1] - 1 are those of node i
    uint8_t *byte;   // [nodes] the one that leads here
    int32_t *token;  // [nodes] id of the text that ends here, or -1
    uint32_t top[256]; // of the root, by byte; 0: none
    size_t nodes;    // 0: an empty tree
} lq_tok_tree;

// pair: left << 32 | right; empty: ~0
typedef struct lq_tok_merge { uint64_t pair; uint32_t rank; int32_t id; } lq_tok_merge;
typedef struct lq_tok_vocab {
    lq_tok_model model;
    int32_t count;             // 1 + the highest id
    char *text;                // all contents
    uint32_t *at;              // [count + 1] offsets; by id
    uint32_t *len;             // [count]
    uint8_t *kind;             // [count] LQ_TOK_K_*
    double *score;             // [count] Unigram, pieces of sentencepiece; NULL: none
    int32_t *hash;             // [hash_mask + 1] ids of the model's tokens, by content
    size_t hash_mask;
    lq_tok_merge *merge;       // [merge_mask + 1]
    size_t merge_mask;
    int32_t **chars;           // [0x1100] pages of 256: id of the token that is this character, or -1
    int32_t byte_id[256];      // of "<0xNN>" or, byte-level, of the byte's character
    uint64_t *adjacent;        // [LQ_TOK_ADJACENT / 64] which initial symbols meet in a merged token; NULL: not known
    lq_tok_tree tree;          // of Unigram's and WordPiece's tokens
    lq_tok_tree user;          // of sentencepiece's user-defined pieces
    uint32_t within;           // WordPiece: the node behind `prefix`; UINT32_MAX: no token begins so
    size_t max_chars;          // WordPiece: of a word
    double unk_score;          // Unigram: of a character that is no token
    int32_t unk;               // -1: none
    char *unk_name;            // named but not there
    char *prefix, *suffix;     // of continuing subwords, of words' ends; NULL if empty
    bool byte_level;           // words arrive as bytes
    bool byte_fallback, fuse_unk, ignore_merges;
    bool pieces;               // by sentencepiece's rules
    bool unused;               // there are pieces LQ_TOK_K_UNUSED
} lq_tok_vocab;

bool lq_tok_entry_add(lq_tok_entries *list, lq_tok_entry e, lq_err *err);
// The vocabulary of a model's tokens and of `added` ({"id", "content", "special"} each; NULL: none). `renames`: an
// added token may take the id of another, which is gone then. what begins errors: "tokenizer.json".
bool lq_tok_vocab_make(lq_tok_vocab *v, const lq_tok_entries *list, const cJSON *added, bool renames, const char *what,
                       lq_err *err);
bool lq_tok_vocab_index(lq_tok_vocab *v, lq_err *err); // what depends on byte_level
void lq_tok_vocab_free(lq_tok_vocab *v);
int32_t lq_tok_vocab_find(const lq_tok_vocab *v, const char *p, size_t n); // in the model; -1: none
static inline bool lq_tok_is_special(const lq_tok_vocab *v, int32_t id) {
    return id >= 0 && id < v->count && (v->kind[id] & LQ_TOK_K_SPECIAL);
}

// The model of a tokenizer.json and the added tokens.
bool lq_tok_model_parse(const cJSON *model, const cJSON *added, lq_tok_vocab *v, lq_err *err);

// Symbols of sentencepiece's BPE beyond the vocabulary's ids: a user-defined piece, which merges with nothing, and a
// character that is no piece, though it may be a part of one.
static inline int32_t lq_tok_sym_user(const lq_tok_vocab *v, int32_t id) { return v->count + id; }
static inline int32_t lq_tok_sym_stray(const lq_tok_vocab *v, uint32_t c) { return 2 * v->count + (int32_t)c; }

static inline int32_t lq_tok_char_id(const lq_tok_vocab *v, uint32_t c) {
    const int32_t *page = v->chars[c >> 8];
    return page ? page[c & 255] : -1;
}

static inline uint32_t lq_tok_adjacent_slot(int32_t a, int32_t b) {
    return (uint32_t)((((uint64_t)(uint32_t)a << 32 | (uint32_t)b) * 0x9e3779b97f4a7c15u) >> 45); // 19 bits
}

const lq_tok_merge *lq_tok_merge_find(const lq_tok_vocab *v, int32_t a, int32_t b); // NULL: none
bool lq_tok_merges_begin(lq_tok_vocab *v, size_t n, lq_err *err);                   // an empty table for n merges
// The i-th merge is of these two texts; the later one of equal pairs counts.
bool lq_tok_merge_add(lq_tok_vocab *v, uint32_t i, const char *a, size_t a_n, const char *b, size_t b_n,
                      lq_tok_buf *joined, const char *what, lq_err *err);
// Every way to make a token of two: by score (the higher first), without scores by id (the lower first).
bool lq_tok_merges_join(lq_tok_vocab *v, const char *what, lq_err *err);
bool lq_tok_merges_index(lq_tok_vocab *v, lq_err *err); // fills adjacent

bool lq_tok_tree_make(lq_tok_tree *t, const lq_tok_vocab *v, uint8_t kind, uint8_t without, lq_err *err);
void lq_tok_tree_free(lq_tok_tree *t);
uint32_t lq_tok_tree_step(const lq_tok_tree *t, uint32_t node, uint8_t byte); // 0: no text goes on so
size_t lq_tok_tree_longest(const lq_tok_tree *t, uint32_t node, const char *p, size_t n, int32_t *id); // 0: none

// --- added tokens ---

typedef struct lq_tok_added {
    char *content;
    size_t n;
    int32_t id;
    char *shown;               // [shown_n] what it is written as; NULL: its content
    size_t shown_n;
    bool special, lstrip, rstrip, single, normalized;
} lq_tok_added;
typedef struct lq_tok_edge { uint32_t node, child; int16_t byte; } lq_tok_edge;
typedef struct lq_tok_bytes { // text of every token; id's is p[at[id]] .. p[at[id + 1]]
    char *p;
    uint32_t *at; // [vocab.count + 1]
} lq_tok_bytes;

typedef struct lq_tok_trie { // finds the longest token at a place
    lq_tok_edge *edge;       // [mask + 1]; byte < 0: empty
    size_t mask;
    int32_t *token;          // [nodes] index of the added token, or -1
    size_t nodes;
    bool begins[256];
    bool plain, any;         // plain: holds a token that is not special
} lq_tok_trie;
typedef struct lq_tok_piece { size_t at, end; int32_t id; } lq_tok_piece; // id < 0: text
typedef struct lq_tok_pieces { lq_tok_piece *p; size_t n, cap; } lq_tok_pieces;

// --- decoding ---

typedef enum lq_tok_dec_kind {
    LQ_TOK_D_REPLACE, LQ_TOK_D_BYTES, LQ_TOK_D_FALLBACK, LQ_TOK_D_FUSE, LQ_TOK_D_STRIP, LQ_TOK_D_METASPACE,
    LQ_TOK_D_SUFFIX, LQ_TOK_D_WORDPIECE, LQ_TOK_D_PIECES
} lq_tok_dec_kind;
enum { // of a token, by what the decoders make of it
    LQ_TOK_T_BYTE = 1,         // it is a byte, within a text
    LQ_TOK_T_BYTE_FIRST = 2,   // and as the first token of one
    LQ_TOK_T_GAP = 4           // it ends with a space, unless it is the last one
};
typedef struct lq_tok_dec {
    lq_tok_dec_kind kind;
    lq_tok_pattern pattern;    // REPLACE
    char *text;                // REPLACE, STRIP, METASPACE, SUFFIX, WORDPIECE
    size_t n;
    int start, stop;           // STRIP
    lq_tok_scheme scheme;      // METASPACE
    bool cleanup;              // WORDPIECE
} lq_tok_dec;

// --- the whole ---

struct lq_tokenizer {
    lq_tok_vocab vocab;
    lq_tok_norm *norm;         // [norms]
    lq_tok_pre *pre;           // [pres]
    lq_tok_dec *dec;           // [decs]
    int norms, pres, decs;
    lq_tok_added *added;       // [addeds]
    size_t addeds;
    bool renamed;              // an added token is not written as its content
    lq_tok_trie exact, normal; // of tokens looked for before and after the normalizers
    lq_ids before, after;      // what LQ_TOK_SPECIAL puts around
    int32_t end;               // eos_token of tokenizer_config.json; -1: none
    lq_tok_bytes bytes, first; // of all tokens in the middle of a text; with Metaspace, at its beginning
    size_t longest;
    char strip[8];             // dropped at the beginning, strip_count times at most
    size_t strip_n;
    bool marked;               // Metaspace drops its marks from the first token
    int strip_count;
    bool spaced, suffixed;     // no decoder: a space between tokens; BPEDecoder: a space behind words
    bool fallback;             // tokens of bytes side by side are characters or none is, as ByteFallback has it
    uint8_t *trait;            // [vocab.count] LQ_TOK_T_*; NULL: neither suffixed nor fallback
    bool bytewise;             // one U+FFFD for each byte that becomes no character, as sentencepiece has it
    bool begins;               // a token that wrote nothing leaves the text at its beginning, as sentencepiece has it
    char *unk_text;            // what the unknown token is written as; NULL: its content
};

// The last token of the best way to reach a place, and where it begins.
typedef struct lq_tok_best { double score; uint32_t start; int32_t id; } lq_tok_best;
typedef struct lq_tok_cell { uint8_t n, ids; char key[30]; int32_t id[8]; } lq_tok_cell; // a word seen in this call
typedef struct lq_tok_work {
    const lq_tokenizer *t;
    size_t norm_left, pre_left; // bytes that the normalizers, the pre-tokenizers may still make of the text
    lq_tok_matcher matcher;
    lq_tok_buf clean, section, a, b;
    lq_tok_spans spans;
    lq_tok_words words, next;
    lq_tok_pieces outer, inner;
    lq_ids sym;                // of a word, before merging
    uint32_t *link;            // [2][links] symbol before and after
    uint64_t *heap;            // [3 * links] rank << 32 | place
    size_t links;
    lq_tok_best *best;         // [bests]
    size_t bests;
    uint64_t *apart;           // [vocab.count] of an unused piece the pair last seen that makes it
    lq_tok_cell *cells;        // NULL: the text is short
    lq_ids *out;
} lq_tok_work;
void lq_tok_work_free(lq_tok_work *w);

bool lq_tok_norm_parse(const cJSON *json, lq_tokenizer *t, lq_err *err);
lq_tok_norm *lq_tok_norm_add(lq_tokenizer *t, lq_tok_norm_kind kind, lq_err *err); // NULL: too many
bool lq_tok_charsmap_run(const lq_tok_charsmap *m, const char *p, size_t n, lq_tok_buf *out, size_t *lead,
                         lq_err *err);
bool lq_tok_pieces_run(const lq_tok_norm *o, const lq_tok_tree *user, const char *p, size_t n, bool first,
                       lq_tok_buf *out, lq_err *err);
// The section is in w->a, and so is the result.
bool lq_tok_norm_run(const lq_tokenizer *t, lq_tok_work *w, lq_tok_lead *lead, lq_err *err);

// What both may do to a text of n bytes. Each step of a section counts against it by the longest that it made.
static inline size_t lq_tok_growth(size_t n) { return LQ_TOK_GROWTH * n + LQ_TOK_GROWTH_TEXT; }
// Before a step writes w->b, and after: *left is what remains, *most what this section has used.
static inline void lq_tok_step_begin(lq_tok_work *w, size_t left) { w->b.n = 0, w->b.max = left + 1; }
bool lq_tok_step_end(lq_tok_work *w, size_t left, size_t *most, lq_err *err); // and makes w->b w->a

bool lq_tok_pre_parse(const cJSON *json, lq_tokenizer *t, lq_err *err);
// Cuts w->words (of w->a) into words.
bool lq_tok_pre_run(const lq_tokenizer *t, lq_tok_work *w, lq_err *err);

bool lq_tok_added_parse(const cJSON *added, lq_tokenizer *t, lq_err *err);
bool lq_tok_added_index(lq_tokenizer *t, lq_err *err);
bool lq_tok_added_find(const lq_tokenizer *t, const lq_tok_trie *trie, const char *p, size_t n, bool special,
                       lq_tok_pieces *out, lq_err *err);
// Appends the tokens of a list, or of an object by id, that are not there yet by their content.
bool lq_tok_added_merge(cJSON *into, const cJSON *from, lq_err *err);
int32_t lq_tok_added_id(const lq_tokenizer *t, const char *p, size_t n); // of any token by its content; -1: none
lq_bytes lq_tok_written(const lq_tokenizer *t, int32_t id); // what a token is written as before decoders; id is there
void lq_tok_trie_free(lq_tok_trie *trie);

// The ids of a word, appended to w->out.
bool lq_tok_bpe_word(lq_tok_work *w, const char *p, size_t n, lq_err *err);
bool lq_tok_unigram_word(lq_tok_work *w, const char *p, size_t n, lq_err *err);
bool lq_tok_wordpiece_word(lq_tok_work *w, const char *p, size_t n, lq_err *err);
bool lq_tok_wordlevel_word(lq_tok_work *w, const char *p, size_t n, lq_err *err);
// Of the unknown token, or the reason why there is none.
bool lq_tok_unk_add(lq_tok_work *w, lq_err *err);
// A stretch that is no token, as its bytes' tokens; *done false: one of them has none, nothing was added.
bool lq_tok_fallback_add(lq_tok_work *w, const char *p, size_t n, bool *done, lq_err *err);
bool lq_tok_ids_room(lq_ids *ids, size_t more, lq_err *err);
bool lq_tok_ids_add(lq_ids *ids, const int32_t *p, size_t n, lq_err *err);

bool lq_tok_dec_parse(const cJSON *json, lq_tokenizer *t, lq_err *err);
bool lq_tok_dec_index(lq_tokenizer *t, lq_err *err); // fills bytes
// sentencepiece's: `once`: the first token loses the mark it begins with; `all`: each one, while nothing is written.
bool lq_tok_dec_pieces(lq_tokenizer *t, bool bytes, bool once, bool all, lq_err *err);
// BOS and EOS: whether and which, unless tokenizer_config.json (may be NULL) says otherwise.
bool lq_tok_around(const cJSON *config, bool bos, bool eos, int32_t bos_id, int32_t eos_id, lq_tokenizer *t,
                   lq_err *err);
// A tokenizer.model of sentencepiece, but for its tables (lq_tok_vocab_index and the like). `added`: an array of what
// else is a token, which grows.
bool lq_tok_spm_parse(lq_bytes file, const cJSON *config, cJSON *added, lq_tokenizer *t, lq_err *err);
// Whether a file is a list of ranks, as tiktoken writes it; such a one by its name, tekken.json: the same.
bool lq_tok_ranks_are(lq_bytes file);
bool lq_tok_ranks_parse(lq_bytes file, const char *name, const char *class, const cJSON *config, cJSON *added,
                        lq_tokenizer *t, lq_err *err);
bool lq_tok_tekken_parse(const cJSON *json, const cJSON *config, cJSON *added, lq_tokenizer *t, lq_err *err);
extern const char lq_tok_words_gpt2[], lq_tok_words_qwen[]; // regular expressions of words
// Which token the files beside a tokenizer call eos_token; -1: none. Each may be NULL.
int32_t lq_tok_end(const lq_tokenizer *t, const cJSON *config, const cJSON *map);
// A tokenizer.json that was parsed; it may grow.
bool lq_tok_json_parse(cJSON *json, const cJSON *config, lq_tokenizer *t, lq_err *err);
bool lq_tok_post_parse(const cJSON *json, const cJSON *config, lq_tokenizer *t, lq_err *err);
#endif
