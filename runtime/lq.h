// lq.h: the public API of lq: open a model, generate, or run the engine that serves many requests at once.
//
// An engine works on one model and a model serves one engine at a time. An engine has one thread: the one that calls
// lq_engine_step, lq_engine_hold, lq_engine_warm, lq_generate, lq_logits, lq_perplexity and lq_engine_close. lq_submit,
// lq_cancel, lq_engine_wake, lq_engine_describe and what only reads a model (tokens, lq_model_describe) may be called
// from any.
// Functions return true when done; else *err says in one line what, where and what was expected. The library never
// prints, exits or reads the environment. Structs of options are read as they are when zero-initialised: zero always
// means the default. Installed as <lq.h>, which needs no other header of lq.
#ifndef LQ_H
#define LQ_H
#include "formats/err.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LQ_VERSION "0.1.0"
const char *lq_version(void); // of the library that runs; structs of this header may grow with the second number

// --- model ---

typedef struct lq_model lq_model;

typedef struct lq_model_opts {
    const char *device;  // "cpu" (default), "cuda", "cuda:1"
    const char *isa;     // cpu: "auto" (default), "c", "avx2", "avxvnni", "avx512", "avx512bf16", "amx"
    int threads;         // cpu: 0 = one per core this process may use
    int ctx;             // longest sequence; 0 = what the model was made for
    const char *kv;      // of the KV cache: "auto" (default: f16, or bf16 where attention computes with it; exact
                         // f32), "f32", "f16", "bf16", "int8", "fp8"
    bool exact;          // f32 activations and residual, and KV unless it is said
    bool fast;           // a GPU: a request's bits may depend on what is computed beside it; a CPU: nothing
    bool rough;          // with exact: products of f32 may be 2^-15 off where that is faster (calibration); as `mapped`
    bool mapped;         // cpu: weights that are numbers are read where the file has them, without packed copies
    lq_model *beside;    // share this one's device (device, isa, threads, rough are not read): one steps at a time
} lq_model_opts;

// The words that isa and kv may be, and what exact and fast are, one by one; NULL past the last.
const char *lq_isa_name(size_t i);
const char *lq_numerics_name(size_t i); // "default", "exact", "fast"
const char *lq_kv_name(size_t i);

bool lq_model_open(const char *path, const lq_model_opts *o, lq_model **out, lq_err *err);
void lq_model_close(lq_model *m);

typedef struct lq_model_info {
    char arch[64], quant[64], device[96]; // "LlamaForCausalLM", "int4 g128 sym f16", "cpu avx512 vnni, 2 threads"
    int64_t params;
    size_t weight_bytes;  // of the matrices that make a token; of a mixture with all experts
    size_t file_bytes;    // of the checkpoint on disk
    size_t kv_token_bytes;
    int vocab, dim, layers, heads, kv_heads, ctx;
    int trained;          // positions that it knows; a ctx beyond them was asked for
    int embedding;        // numbers of one
    int threads;          // 0: the device has none
    bool exact, fast;
} lq_model_info;
void lq_model_describe(const lq_model *m, lq_model_info *out);

// A side file of its checkpoint, "generation_config.json" say, allocated (lq_free) and NUL-terminated; *text is NULL
// where there is none.
bool lq_model_file(const lq_model *m, const char *name, char **text, size_t *n, lq_err *err);

// How the states of a prompt's tokens, behind the model's last norm, become one vector: that of the last or the first
// token, their mean, a mean in which token i (from 1) weighs i, the sum over the root of their number, the largest.
typedef enum lq_pooling { LQ_POOL_NONE, LQ_POOL_LAST, LQ_POOL_MEAN, LQ_POOL_FIRST, LQ_POOL_WEIGHTED, LQ_POOL_ROOT,
                         LQ_POOL_MAX } lq_pooling;
// What its makers say of that in sentence-transformers' files beside it; else the last, of length 1 (*raw: as it is).
// LQ_E_UNSUPPORTED: its embeddings are something else.
bool lq_model_pooling(const lq_model *m, lq_pooling *pool, bool *raw, lq_err *err);

// The shapes of its matrices, [n][k], each once; false past the last.
bool lq_model_shape(const lq_model *m, size_t i, int64_t *n, int64_t *k);

// --- how fast it could be ---

// Bytes that are read, multiply-adds of int8 dot products, of bf16 ones, and others in floating point.
typedef struct lq_work { double bytes, dots, halves, fmas; } lq_work;
// What `seqs` sequences ask for that have `at` tokens in the cache and are fed `rows` each in one step: every matrix
// once, the K and V that are seen, the products of matrices and of attention, the logits of a sequence's last row. Of
// experts those that so many rows choose if they choose evenly.
void lq_model_work(const lq_model *m, int seqs, int at, int rows, lq_work *out);
// Bytes of memory that its device has left for it.
size_t lq_model_room(lq_model *m);
// What the model's threads do in a second, measured now: a plain read of the matrices, which also brings them into
// memory, and the bare instructions. 0: not known of this device. Not beside a running engine step.
void lq_model_ceiling(lq_model *m, lq_work *out);

// --- tokens ---

enum { LQ_TOK_SPECIAL = 1 /* add BOS and the like as the tokenizer says */,
      LQ_TOK_PARSE = 2 /* "<|end|>" in the text is that token */ };
// *ids is allocated (lq_free).
bool lq_tokenize(const lq_model *m, const char *text, size_t n, int flags, int32_t **ids, size_t *count, lq_err *err);
// Text of a sequence of tokens, allocated and NUL-terminated; `special`: print special tokens too.
bool lq_detokenize(const lq_model *m, const int32_t *ids, size_t count, bool special, char **text, size_t *n,
                   lq_err *err);
// The bytes of one token, which may be part of a character; returns how many there are (more than `cap`: cut).
size_t lq_token_bytes(const lq_model *m, int32_t id, char *buf, size_t cap);
bool lq_token_is_end(const lq_model *m, int32_t id);
int32_t lq_token_id(const lq_model *m, const char *token, size_t n); // by its content, "<|end|>"; -1: there is none
int32_t lq_token_bos(const lq_model *m); // what LQ_TOK_SPECIAL puts first; -1: nothing
void lq_free(void *p);

// A tokenizer without its model: of a model as lq_model_open takes one, of a folder, or of a file that holds one
// (tokenizer.json, tokenizer.model, *.tiktoken, vocab.json ...), with what lies beside it. For any thread.
typedef struct lq_tokenizer lq_tokenizer;
bool lq_tokenizer_load(const char *path, lq_tokenizer **out, lq_err *err);
void lq_tokenizer_close(lq_tokenizer *t);
bool lq_tokenizer_ids(const lq_tokenizer *t, const char *text, size_t n, int flags, int32_t **ids, size_t *count,
                      lq_err *err);
bool lq_tokenizer_text(const lq_tokenizer *t, const int32_t *ids, size_t count, bool special, char **text, size_t *n,
                       lq_err *err);
// A token as the vocabulary writes it, NUL-terminated, while the tokenizer is open; NULL: there is none of this id.
const char *lq_tokenizer_piece(const lq_tokenizer *t, int32_t id, size_t *n);

// --- chat templates ---
//
// A conversation becomes the text that a model was trained on, by the template that came with it: Jinja as transformers
// renders it. A template is bounded in steps, depth and memory, and has no way to touch anything. Any number of threads
// may render one at once.

typedef struct lq_template lq_template;

// Of what lq_model_open opens. Where there are several, `name` says which; NULL: "tool_use" for a
// render with tools, else "default". Errors of renders name the file, but those of an open model's template: whoever
// reads them need not know where it lies.
bool lq_template_open(const char *path, const char *name, lq_template **out, lq_err *err);
bool lq_template_of(const lq_model *m, const char *name, lq_template **out, lq_err *err);
// From its text; `what` begins its errors.
bool lq_template_parse(const char *text, size_t n, const char *what, lq_template **out, lq_err *err);
void lq_template_close(lq_template *t);

// What a template may ask for, as JSON. "messages": a list of objects, of which keys that are null are dropped and
// reasoning is found under each of its names; "tools" and "documents": lists of objects, or null;
// "add_generation_prompt" (false where it is not given); any other. Of a checkpoint also bos_token, eos_token and the
// like, which may be given as well.
typedef struct lq_template_var { const char *name, *json; size_t n; } lq_template_var;
// *text is allocated (lq_free) and NUL-terminated. An error names the line of the template,
// and what raise_exception said.
bool lq_template_render(const lq_template *t, const lq_template_var *vars, size_t count, char **text, size_t *n,
                        lq_err *err);

// --- requests ---

typedef struct lq_sampling {
    float temperature;           // 0 = greedy
    float top_p, min_p, typical; // 0 = off
    int top_k;                   // 0 = off
    float repetition, presence, frequency; // 0 = off (repetition: 1 too)
    int biases;
    bool seeded;                 // else the seed is drawn
    uint64_t seed;
    const int32_t *bias_id;      // [biases]
    const float *bias;
} lq_sampling;

typedef enum lq_finish { LQ_RUNNING, LQ_STOP /* end token or stop string */, LQ_LENGTH,
                        LQ_LATE /* deadline_ms passed */, LQ_ABORTED, LQ_FAILED } lq_finish;

typedef struct lq_top { int32_t id; float logprob; } lq_top;

// What a step has to say about a request. Everything is valid during the call only.
typedef struct lq_event {
    uint64_t id;            // of lq_submit
    int choice;
    // New text: whole UTF-8 characters, stop strings cut off, not NUL-terminated, may be empty. All of it together is
    // the text of prompt and answer less the prompt's.
    const char *text;
    size_t text_len;
    const int32_t *tokens;  // the tokens sampled (or, `prompt`, prompt tokens) in this event
    const float *logprobs;  // [count], where logprobs were asked for
    const lq_top *top;      // [count][top_n]
    const int *offsets;     // [count] where each begins, in characters of the answer's text (`prompt`: of the prompt's)
    int count, top_n;
    bool prompt;            // about prompt tokens: logprobs[0] of a prompt is NaN
    lq_finish finish;       // anything but LQ_RUNNING: the last event of this choice
    int stop_index;         // which stop string, or -1
    const char *error;      // LQ_FAILED: the line
    const float *embedding; // [dims] in the last event of a request that asked for one; else NULL
    int dims;
    int prompt_tokens, cached_tokens, sampled_tokens; // usage so far
} lq_event;
// Called by lq_engine_step on its thread. Must not block; may call lq_submit and lq_cancel, but none of the functions
// that are that thread's. Returning false cancels the request; each choice still has its last event.
typedef bool lq_on_event(void *arg, const lq_event *e);

enum { LQ_BEAMS = 16 }; // of a search, at most
typedef struct lq_request {
    const int32_t *prompt;  // copied
    size_t prompt_len;
    int max_tokens;         // 0 = up to the context's end
    int min_tokens;
    int n;                  // choices; 0 = 1
    lq_sampling sampling;
    const char *const *stop; // with `stops` entries, copied
    int stops;
    const int32_t *stop_ids; // more end tokens
    int stop_id_count;
    bool ignore_eos, keep_stop; // keep_stop: a matched stop string or end token stays in the text, unless it is special
    bool logprobs, prompt_logprobs;
    int prompt_from;        // prompt_logprobs: of the tokens from this one on; offsets are counted from there
    bool score_only;        // ends after the prompt: nothing is sampled
    lq_pooling pool;        // it ends with an embedding of the prompt, and nothing is sampled
    int pool_dims;          // of which the first so many numbers are told; 0: all
    bool pool_raw;          // as they are; else times what makes their length 1
    int top_n;              // 0..32 alternatives per token
    int beams;              // beginnings to search for the n likeliest answers, up to LQ_BEAMS; 0: answers are drawn
    float length_penalty;   // of beams: an answer is worth the sum of its logprobs / its length to this; 0 = 1
    int priority;           // lower first
    int deadline_ms;        // after which it ends with what it has, wherever it is; 0: never
    uint64_t client;        // whose it is: clients take turns; 0: nobody's but its own
    uint64_t salt;          // what stands in the cache is shared with requests of the same salt alone; 0: like others
    bool beside;            // part of what was submitted last: counts in the queue with that
    lq_on_event *on_event;
    void *arg;
} lq_request;

// --- engine ---

typedef struct lq_engine lq_engine;

typedef struct lq_engine_opts {
    int max_seqs;       // sequences in one step; 0 = 64
    int max_batch;      // tokens in one step (the chunk of a prefill); 0 = 512
    int max_prefill;    // of these, of prompts; 0 = what decoding leaves, on a CPU 128 at most while anyone decodes
    int max_queue;      // requests that wait though no place is free; 0 = 1024
    int age_ms;         // who has waited so long goes before all priorities; 0 = 10,000
    size_t kv_bytes;    // 0 = for max_seqs contexts, but at most 4096 blocks or four contexts, and a quarter of memory
    size_t swap_bytes;  // of the host, for what preempted sequences have in the KV cache, which else is computed again;
                        // 0 = 4 GiB where a device has memory of its own, else none
    bool no_swap;       // none in any case
    int kv_page;        // tokens in a block: 16, 32 (default) or 64
    bool no_prefix;     // each prompt is computed whole; else what the KV cache holds of its beginning is not computed
                        // again, whoever brought it there, and stays there until its blocks are needed
} lq_engine_opts;

bool lq_engine_open(lq_model *m, const lq_engine_opts *o, lq_engine **out, lq_err *err);
void lq_engine_close(lq_engine *e); // open requests get a last event with LQ_ABORTED

bool lq_submit(lq_engine *e, const lq_request *r, uint64_t *id, lq_err *err);
void lq_cancel(lq_engine *e, uint64_t id);
// Prompts are fed up to `at` tokens and no further until this is called again; 0: as far as they go. What is measured
// from there on is measured with `at` tokens in the cache. On the thread of lq_engine_step.
void lq_engine_hold(lq_engine *e, int at);
// Makes ready what steps of up to max_seqs sequences do, so that none of them waits for it later: a GPU's recordings
// (seconds); a CPU has nothing to make ready. On the thread of lq_engine_step, before requests are submitted.
bool lq_engine_warm(lq_engine *e, lq_err *err);
// One step over whatever is waiting or running. *busy (may be NULL): there is more to do.
bool lq_engine_step(lq_engine *e, bool *busy, lq_err *err);
// Blocks until there is work, lq_engine_wake was called, or `ms` passed (negative: no limit).
void lq_engine_wait(lq_engine *e, int ms);
void lq_engine_wake(lq_engine *e);

typedef struct lq_engine_stats {
    int waiting, running;               // sequences; waiting: submitted requests and preempted sequences
    int ctx;                            // longest sequence: the model's, or what the KV cache holds
    int kv_blocks, kv_free, kv_page;    // of the layers without a window; of the first ones where all have one
    int kv_cached;      // of those that are free: what they hold may still be asked for
    uint64_t prefix_queries, prefix_hits; // prompt tokens that were looked up, and found; prompt_tokens: computed
    uint64_t steps, prompt_tokens, sampled_tokens, finished, aborted, failed, preempted;
    uint64_t swapped;   // of the preempted, those that came back as they had been
    int swap_used;      // blocks, of all layers' groups, of sequences that are put aside
    double step_seconds;  // in steps, in all
} lq_engine_stats;
void lq_engine_describe(lq_engine *e, lq_engine_stats *out); // any thread

// What each block of the KV cache is for; of the same layers as kv_blocks.
typedef enum lq_block_use { LQ_BLOCK_FREE, LQ_BLOCK_CACHED /* by the prefix cache alone */,
                           LQ_BLOCK_HELD /* by one sequence */, LQ_BLOCK_SHARED /* by several */,
                           LQ_BLOCK_USES } lq_block_use;
enum { LQ_BLOCK_CELLS = 1024 };
typedef struct lq_block_map {
    int blocks, page, each;     // each: neighbours that are told as one cell; 1 where there are not too many
    int count[LQ_BLOCK_USES];   // blocks of each use
    int cells;
    uint8_t cell[LQ_BLOCK_CELLS]; // [cells] the highest use of its blocks
} lq_block_map;
// Any thread. Waits for a moment in which no step moves blocks, 10 ms at most: then it is as it was told last.
void lq_engine_blocks(lq_engine *e, lq_block_map *out);

// One request, run to its end on an engine that nobody else steps. False also when the request failed.
bool lq_generate(lq_engine *e, const lq_request *r, lq_err *err);

// --- evaluation ---

// Runs `count` tokens from an empty cache and hands the logits of each position [first, count) to `on`, in order.
typedef bool lq_on_logits(void *arg, size_t position, const float *logits /* [vocab] */);
bool lq_logits(lq_engine *e, const int32_t *ids, size_t count, size_t first, lq_on_logits *on, void *arg, lq_err *err);

typedef enum lq_ppl_protocol { LQ_PPL_GPTQ2048, LQ_PPL_LLAMACPP512 } lq_ppl_protocol;
const char *lq_ppl_name(size_t protocol); // "gptq2048"; NULL past the last

// Logits of a reference in a file: what lq_evaluate saved, or a base file of llama.cpp's perplexity tool
// (--kl-divergence-base), whose values are rounded to 16 bits and cut off at a probability of about exp(-16).
typedef struct lq_saved lq_saved;
typedef struct lq_saved_info {
    lq_ppl_protocol protocol;
    int window, vocab;
    size_t windows;
    bool rounded;           // llama.cpp's
    char arithmetic[16];    // "exact", "default", "fast"; of llama.cpp's: ""
    char model[256];        // what they are of
} lq_saved_info;
// *out is NULL, and true returned, where there is no such file, or it is something else (a model, say).
bool lq_saved_open(const char *path, lq_saved **out, lq_err *err);
void lq_saved_describe(const lq_saved *s, lq_saved_info *out);
void lq_saved_close(lq_saved *s);

typedef struct lq_ppl_opts {
    lq_ppl_protocol protocol;
    int window;          // 0 = 2048 or 512, no more than the context
    size_t max_windows;  // 0 = all
    bool (*tick)(void *arg, size_t done, size_t total, double ppl); // false stops
    void *arg;
    lq_engine *against;  // the reference; NULL: none
    const lq_saved *saved; // or its logits from a file; protocol, window and text are then the file's
    const char *save;    // a .safetensors file that gets the logits of the first engine; NULL: none
    bool force;          // which may be there
    // Told of each window: its tokens and the mean of -ln p over those that are scored. What two models find hard in
    // the same windows cancels where they are compared window by window. May be NULL.
    void (*on_window)(void *windows, size_t engine, const int32_t *ids, size_t count, double nll);
    void *windows;
} lq_ppl_opts;
typedef struct lq_ppl {
    double ppl, error, nll; // error: the standard error of ppl, from the means of windows; NaN of less than two
    size_t tokens, windows;
    int window;
    double seconds;
} lq_ppl;

// How far a model is from a reference, over all scored positions: the KL divergence KL(reference || model) in nats,
// and what llama.cpp says besides. Each _error is the standard error of the mean before it, from the means of windows.
enum { LQ_KLD_BINS = 32 };
typedef struct lq_kld {
    double mean, error, min, median, p90, p95, p99, p999, max;
    double same_top, same_top_error;           // share of positions where both have the same likeliest token
    double diff, diff_error, diff_rms, diff_rms_error; // of the following token's probability, model - reference
    double ref_ppl, ref_error;                 // perplexity of the reference
    double ln_ratio, ln_ratio_error;           // ln(perplexity / that of the reference)
    double at[LQ_KLD_BINS];                    // mean of each of as many equal parts of a window; NaN: nothing is in it
} lq_kld;

bool lq_perplexity(lq_engine *e, const char *text, size_t n, const lq_ppl_opts *o, lq_ppl *out, lq_err *err);
// The same of several engines, window by window, so that a reference runs once; one works at a time. All must have one
// vocabulary and read the text as the same tokens. text may be NULL where o->saved is not: the file knows its tokens.
// kld may be NULL where there is no reference.
bool lq_evaluate(lq_engine *const *e, size_t count, const char *text, size_t n, const lq_ppl_opts *o,
                 lq_ppl *out /* [count] */, lq_kld *kld /* [count] */, lq_err *err);

// --- tasks: questions whose answers are scored ---

// What the lines of a file are: {"query", "choices", "gold"}; {"context_options", "continuation",
// "gold"}; {"context", "continuation"}.
typedef enum lq_task_kind { LQ_TASK_CHOICES, LQ_TASK_CONTEXTS, LQ_TASK_LAST_WORD } lq_task_kind;
typedef struct lq_task_opts {
    size_t limit;         // the first so many questions; 0: all
    bool no_bos;          // no BOS before the text, also where the tokenizer would put one
    bool (*tick)(void *arg, size_t done, size_t total, double acc); // questions; false stops
    void *arg;
} lq_task_opts;
typedef struct lq_task_score {
    lq_task_kind kind;
    size_t questions, cut;           // cut: texts that lost their beginning because the context is too short
    double acc, acc_error;           // share of right answers; of a last word: of those that are the likeliest
    double acc_norm, acc_norm_error; // by ln p for each character of the answer; LQ_TASK_CHOICES alone
    double ppl, ppl_error;           // of the last word, LQ_TASK_LAST_WORD alone
    double seconds;
} lq_task_score;
// Scores the lines of a JSONL file as lm-evaluation-harness counts them, many at once, on an engine that nobody else
// steps. `name` begins the errors.
bool lq_task_run(lq_engine *e, const char *name, const char *text, size_t n, const lq_task_opts *o, lq_task_score *out,
             lq_err *err);

// --- server ---

typedef struct lq_serve_opts {
    const char *host;     // NULL: 127.0.0.1
    int port;             // 0: 8080; -1: any free one (told to `ready`)
    const char *name;     // what clients call the model; NULL: its architecture
    const char *const *keys; // [key_count] clients must send one of them as a bearer token. Never logged
    int key_count;        // 0: whoever reaches the server may use it
    const char *const *admin_keys; // [admin_key_count] who has one may drain it; nobody else can
    int admin_key_count;
    int rate;             // requests a minute that each key may ask for (all together, where there is none); 0: any
    const char *tls_cert, *tls_key; // PEM files; NULL: no TLS
    const char *const *hosts;   // [host_count] more names by which it may be called where there is no key
    const char *const *origins; // [origin_count] whose pages may read its answers; "*": any
    int host_count, origin_count;
    int max_connections;  // 0: 1024
    int max_per_address;  // of these, from one address; 0: any number
    size_t max_body;      // bytes of a request; 0: 4 MiB
    bool priorities;      // requests may have a priority; else one that does is refused
    int deadline_seconds; // how long any request may take; 0: as long as it says, or for ever
    bool no_page;         // no page at /
    const char *chat_template; // the text of one, in place of the model's own; NULL: that, if there is one
    int drain_seconds;    // how long running requests may go on after lq_serve_stop; 0: 30; negative: not at all
    void (*ready)(void *arg, const char *host, int port);
    void (*log)(void *arg, const char *line); // from any thread: a line a request, of time, route, status and counts
    bool log_json;        // each line is a JSON object
    void *arg;
} lq_serve_opts;
// Whether lq_serve could listen there now: a port that is taken is told before a model is opened.
bool lq_serve_try(const lq_serve_opts *o, lq_err *err);
// Serves until lq_serve_stop; steps the engine on a thread of its own. One server a process at a time.
bool lq_serve(lq_model *m, lq_engine *e, const lq_serve_opts *o, lq_err *err);
// From any thread or a signal handler, also before lq_serve begins. Once: refuses what is new
// and drains; again: ends at once.
void lq_serve_stop(void);

// --- batches: requests from a file, answers into another ---
//
// Lines as OpenAI's batches have them: {"custom_id", "method": "POST", "url": "/v1/chat/completions", "body": {...}},
// of every path that lq_serve answers at with what the model makes; {"id", "custom_id", "response": {"status_code",
// "request_id", "body"}, "error"} in the order in which they end.

typedef struct lq_batch_opts {
    const char *in, *out; // "-": descriptors 0 and 1
    bool resume;          // what `out` has answers to is not asked again; a line that was cut off goes
    bool force;           // an `out` that has answers begins anew; without either it is refused
    const char *name;     // what the requests call the model; NULL: its architecture
    const char *chat_template; // as lq_serve_opts has it
    size_t max_body;      // bytes of a request; 0: 4 MiB
} lq_batch_opts;

typedef struct lq_batch_state {
    uint64_t total;       // requests of `in`; 0: not known, where it can be read only once
    uint64_t before, before_failed; // that `out` had answers to; answers there that tell of a failure
    uint64_t done, failed;          // answered by this run, and what of these failed
    uint64_t prompt_tokens, cached_tokens, sampled_tokens; // of them
    uint64_t running_tokens;        // sampled, also for those that are not through
    double seconds;
    char failure[256];    // the first one: its line, and what was said
} lq_batch_state;
typedef bool lq_batch_tick(void *arg, const lq_batch_state *now); // false stops

typedef struct lq_batch lq_batch;
// Opens both files and checks what can be checked without a model: nobody waits for one in vain. Strings are copied.
bool lq_batch_open(const lq_batch_opts *o, lq_batch **out, lq_err *err);
// Asks until all is answered; steps the engine, on a thread of its own, which nobody else may do. Requests that fail
// are answered too: false means that the run broke off, and can be gone on with. Once for each lq_batch.
bool lq_batch_run(lq_batch *b, lq_model *m, lq_engine *e, lq_batch_tick *tick, void *arg, lq_err *err);
void lq_batch_describe(const lq_batch *b, lq_batch_state *out);
void lq_batch_close(lq_batch *b);

#ifdef __cplusplus
}
#endif
#endif
