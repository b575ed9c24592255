// lq_quantize.c: lq quantize: a checkpoint becomes a quantized .lq file. The work is lq_quantize's; here it is asked
// for; quantize_print.c says what it came to.
#include "tools/quantize.h"
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

typedef struct quantize_args {
    lq_common common;
    const char *method, *type, *group, *head, *embed, *layout, *report, *calib, *recipe, *range, *prune, *alpha;
    const char *device;
    const char *seed;     // as a text, which says whether it is there
    int64_t bits, threads, samples, seqlen;
    size_t max_ram, target_size;
    double target_bits, salient;
    bool asym, all_experts, kv_scales, force, fresh, keep_unknown, dry_run, verbose, eval, exact;
    const char *eval_text;
} quantize_args;

typedef struct progress {
    lq_bar bar;
    bool quiet, begun;
} progress;

static void tell_plan(void *arg, const char *line) {
    const progress *p = arg;
    if (!p->quiet) lq_say_line(stderr, "%s", line);
}

static bool tick(void *arg, double done, size_t blocks, const char *what) {
    progress *p = arg;
    if (!p->begun) lq_bar_begin(&p->bar, "quantize", "blocks", blocks, p->quiet), p->bar.from = done;
    p->begun = true;
    lq_bar_share(&p->bar, done, what);
    return !lq_input_stopped();
}

static void tell_module(void *arg, const lq_quant_row *row) {
    progress *p = arg;
    if (p->begun) lq_bar_end(&p->bar);
    lq_quantize_print_module(stderr, row);
}

// --bits, --group and --asym as the text that --type takes.
static int make_type(const quantize_args *a, char *type, size_t size) {
    const bool parts = a->bits || a->group || a->asym;
    if (!parts) return 0;
    if (a->type) return lq_say_usage("quantize", "--type %s says it all: --bits, --group and --asym do not go with it",
                                     a->type);
    const int64_t bits = a->bits ? a->bits : 4;
    const bool row = a->group ? !strcmp(a->group, "row") || !strcmp(a->group, "0") : bits == 8;
    if (row) snprintf(type, size, "int%lld row %s", (long long)bits, a->asym ? "asym" : "sym");
    else snprintf(type, size, "int%lld g%s %s", (long long)bits, a->group ? a->group : "128", a->asym ? "asym" : "sym");
    return 0;
}

// --json prints the report as it was written; of a dry run the numbers of the plan.
static void print_json(const lq_quant_result *r, bool dry_run) {
    if (dry_run)
        printf("{\"dry_run\": true, \"in_bytes\": %zu, \"out_bytes\": %zu, \"plan_bytes\": %zu, \"plan_seconds\": %.3g, "
               "\"blocks\": %zu}\n", r->in_bytes, r->out_bytes, r->plan_bytes, r->plan_seconds, r->blocks);
    else fputs(r->report, stdout);
}

// What --eval found goes into the report, and into its file where it has one.
static bool measure(const lq_quant_opts *o, const quantize_args *a, lq_quant_result *r, quantize_eval *e,
                    const char *report, lq_err *err) {
    lq_text member = {0};
    bool done = lq_quantize_eval_run(e, o->in, o->out, o->threads, a->common.quiet, err);
    if (done) {
        lq_quantize_eval_json(e, &member);
        done = (!member.failed || lq_fail(err, LQ_E_MEMORY, "no memory for the report")) &&
               lq_quant_report_add(r, report, member.p, err);
    }
    lq_text_free(&member);
    return done;
}

// Of a run that is done: what it came to. e NULL: nothing is to be measured.
static int tell_result(const lq_quant_opts *o, const quantize_args *a, lq_quant_result *r, quantize_eval *e,
                       const char *report) {
    const bool told = a->report && !strcmp(a->report, "-"), json = a->common.json || (told && !a->dry_run);
    const bool tables = !json && !a->dry_run && !a->common.quiet;
    lq_err err;
    int status = 0;
    if (tables) lq_quantize_print(r, o->out, report);
    if (e && !measure(o, a, r, e, told ? NULL : report, &err)) status = lq_say_error(&err);
    if (tables && e && !status) lq_quantize_eval_print(e);
    if (json) print_json(r, a->dry_run);
    return status;
}

// A recipe that is no object is the name of a file that holds one; *text is freed by the caller.
static bool read_recipe(const char **recipe, char **text, lq_err *err) {
    size_t n;
    *text = NULL;
    if (!*recipe || (*recipe)[strspn(*recipe, " \t\r\n")] == '{') return true;
    const bool done = lq_input_read(*recipe, 16 << 20, text, &n, err);
    *recipe = *text;
    return done;
}

static int run(void *args, int argc, char **argv) {
    quantize_args *a = args;
    char type[64] = "";
    lq_err err;
    lq_quant_result r;
    progress p = {.quiet = a->common.quiet};
    (void)argc;
    uint64_t seed = 0; // of those that JSON has exactly
    int status = make_type(a, type, sizeof type);
    if (!status && a->seed) status = lq_opts_seed("quantize", a->seed, (uint64_t)1 << 53, &seed);
    if (status) return status;
    const size_t room = strlen(argv[1]) + sizeof ".report.json";
    char *report = malloc(room);
    if (!report) return lq_say_error(&(lq_err){LQ_E_MEMORY, "out of memory"});
    char *recipe;
    quantize_eval eval = {0};
    const bool evals = (a->eval || a->eval_text) && !a->dry_run;
    if (!read_recipe(&a->recipe, &recipe, &err) ||
        (evals && !lq_quantize_eval_open(argv[0], a->eval_text, &eval, &err))) {
        lq_quantize_eval_close(&eval);
        free(recipe);
        free(report);
        return lq_say_error(&err);
    }
    snprintf(report, room, "%s.report.json", argv[1]);
    const lq_quant_opts o = {.in = argv[0], .out = argv[1], .method = a->method, .type = *type ? type : a->type,
                             .head = a->head, .embed = a->embed, .layout = a->layout, .device = a->device,
                             .exact = a->exact, .threads = (int)a->threads,
                             .max_ram = a->max_ram, .overwrite = a->force, .fresh = a->fresh,
                                 .keep_unknown = a->keep_unknown,
                             .target_bits = a->target_bits, .target_size = a->target_size,
                             .salient = a->salient, .range = a->range,
                             .dry_run = a->dry_run, .recipe = a->recipe, .prune = a->prune,
                             .alpha = a->alpha,
                             .calib = a->calib,
                             .samples = (size_t)a->samples, .seqlen = (int)a->seqlen,
                             .seeded = a->seed != NULL, .seed = seed,
                             .all_experts = a->all_experts, .kv_scales = a->kv_scales,
                             .report = a->report, .plan = tell_plan, .tick = tick,
                             .module = a->verbose ? tell_module : NULL, .arg = &p};
#ifdef __GLIBC__ // what is large and given back goes back to the system at once, as the plan and --max-ram count on it
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
    mallopt(M_TRIM_THRESHOLD, 256 << 10);
#endif
    lq_input_catch();
    const bool done = lq_quantize(&o, &r, &err);
    if (p.begun) lq_bar_end(&p.bar);
    if (!done) status = err.code == LQ_E_USAGE ? lq_say_usage("quantize", "%s", err.text) : lq_say_error(&err);
    else {
        status = tell_result(&o, a, &r, evals ? &eval : NULL, a->report ? a->report : report);
        lq_quant_result_free(&r);
    }
    lq_quantize_eval_close(&eval);
    free(report);
    free(recipe);
    return status;
}

#define FIELD(f) offsetof(quantize_args, f)
static const lq_opt opts[] = {
    {"method", 'm', LQ_OPT_CHOICE, FIELD(method), "NAME", "how codes are chosen (default: rtn, round to the nearest)",
     lq_method_name, 0, 0},
    {"type", 0, LQ_OPT_TEXT, FIELD(type), "TYPE",
     "of the decoder's matrices: \"int4 g128\" (default), \"int4 g32 asym\", \"int8 row\", \"nf4\", \"nf4 dq256\", \"mxfp4\", "
     "\"int8 act i8\", "
     "or keep (default of what GPTQ and its like packed)",
     NULL, 0, 0},
    {"bits", 'b', LQ_OPT_INT, FIELD(bits), "N", "the same in parts: bits of a code", NULL, 2, 8},
    {"group", 'g', LQ_OPT_TEXT, FIELD(group), "N",
     "weights that share a scale, a multiple of 16, or row (default: 128; 8 bits: row)",
     NULL, 0, 0},
    {"asym", 0, LQ_OPT_FLAG, FIELD(asym), NULL, "with zero points", NULL, 0, 0},
    {"head", 0, LQ_OPT_TEXT, FIELD(head), "TYPE", "type of the output head, or keep (default: int8 row)", NULL, 0, 0},
    {"lm-head", 0, LQ_OPT_TEXT, FIELD(head), "TYPE", "the same as --head", NULL, 0, 0},
    {"embed", 0, LQ_OPT_TEXT, FIELD(embed), "TYPE", "type of the embedding, or keep (default: int8 row)", NULL, 0, 0},
    {"layout", 0, LQ_OPT_CHOICE, FIELD(layout), "NAME",
     "where the codes lie: any (default) serves all devices, x86 and cuda are for one kind",
     lq_quant_layout, 0, 0},
    {"target-bits", 0, LQ_OPT_NUM, FIELD(target_bits), "X", "auto: bits a weight, over all matrices", NULL, 1, 16},
    {"target-size", 0, LQ_OPT_SIZE, FIELD(target_size), "SIZE", "auto: size of OUT", NULL, 0, 0},
    {"range", 0, LQ_OPT_CHOICE, FIELD(range), "HOW",
     "what scales span: full, all of a group; mse, the share of it with the least squares of errors; weighted, the same, columns counted by their inputs",
     lq_range_name, 0, 0},
    {"salient", 0, LQ_OPT_NUM, FIELD(salient), "SHARE",
     "of the columns, those with the largest inputs on calibration text, stay in 16 bits, with any method: 0.01", NULL, 0, 1},
    {"alpha", 0, LQ_OPT_TEXT, FIELD(alpha), "X",
     "smoothquant: how much of what is large goes into the weights, up to 1, or what is to share one that is searched: "
     "model (default), layer, input", NULL, 0, 0},
    {"recipe", 0, LQ_OPT_TEXT, FIELD(recipe), "JSON", "parts of the method that are to be others, or a file that says so", NULL, 0, 0},
    {"prune", 0, LQ_OPT_TEXT, FIELD(prune), "WHAT",
     "what goes before anything is quantized: depth:N, the N layers that are worth least (influence:N: found faster); "
     "mlp:X, heads:X, hidden:X keep that share of widths, width:X of all three; joined by commas; what is left is refitted "
     "on the text", NULL, 0, 0},
    {"calib", 0, LQ_OPT_FILE, FIELD(calib), "FILE",
     "text to calibrate on, a .txt, a .jsonl with \"text\", or a folder of them; self: what the model writes itself "
     "(default: built-in)", NULL, 0, 0},
    {"samples", 0, LQ_OPT_INT, FIELD(samples), "N", "sequences of it (default: 128)", NULL, 1, 1 << 20},
    {"seqlen", 0, LQ_OPT_INT, FIELD(seqlen), "N", "tokens of each (default: 512)", NULL, 2, 1 << 20},
    {"seed", 0, LQ_OPT_TEXT, FIELD(seed), "N", "which of its sequences are drawn (default: the recipe's, or 0)", NULL, 0, 0},
    {"all-experts", 0, LQ_OPT_FLAG, FIELD(all_experts), NULL,
     "what experts are given is measured on all of the text, not on what the router sends to each", NULL, 0, 0},
    {"kv-scales", 0, LQ_OPT_FLAG, FIELD(kv_scales), NULL,
     "measure what a KV cache in fp8 (--kv-dtype fp8) divides K and V by", NULL, 0, 0},
    {"device", 'd', LQ_OPT_TEXT, FIELD(device), "DEV",
     "where text goes through the model, and matrices are rounded and solved: cpu (default), cuda, cuda:1", NULL, 0, 0},
    {"exact", 0, LQ_OPT_FLAG, FIELD(exact), NULL,
     "on another device than a CPU the text goes through the model in f32, too (slow)", NULL, 0, 0},
    {"threads", 't', LQ_OPT_INT, FIELD(threads), "N",
     "CPU threads (default: one per core); the output does not depend on it", NULL, 1,
     1024},
    {"max-ram", 0, LQ_OPT_SIZE, FIELD(max_ram), "SIZE", "memory that is not to be passed; calibration lays aside in a file what does not fit", NULL, 0, 0},
    {"force", 'f', LQ_OPT_FLAG, FIELD(force), NULL, "replace OUT if it is there", NULL, 0, 0},
    {"overwrite", 0, LQ_OPT_FLAG, FIELD(force), NULL, "the same as --force", NULL, 0, 0},
    {"fresh", 0, LQ_OPT_FLAG, FIELD(fresh), NULL, "do not go on from what an interrupted run left", NULL, 0, 0},
    {"keep-unknown", 0, LQ_OPT_FLAG, FIELD(keep_unknown), NULL,
     "carry over tensors that the architecture does not know", NULL, 0, 0},
    {"report", 0, LQ_OPT_FILE, FIELD(report), "FILE",
     "where the report goes, - for standard output (default: OUT.report.json)", NULL, 0, 0},
    {"eval", 0, LQ_OPT_FLAG, FIELD(eval), NULL, "then measure perplexity and KL divergence on held-out text", NULL, 0, 0},
    {"eval-text", 0, LQ_OPT_FILE, FIELD(eval_text), "FILE", "the same on this text (default: 60 KB that are built in)", NULL,
     0, 0},
    {"verbose", 'v', LQ_OPT_FLAG, FIELD(verbose), NULL, "a line of each matrix as it is finished", NULL, 0, 0},
    {"dry-run", 'n', LQ_OPT_FLAG, FIELD(dry_run), NULL, "print the plan and stop", NULL, 0, 0},
};

static const char *const examples[] = {
    "lq quantize llama-2-7b llama-2-7b.lq", "int4 in groups of 128, embedding and head in int8",
    "lq quantize llama-2-7b out.lq --type \"int4 g32 asym\" --head keep",
    "smaller groups with zero points, the head as it was",
    "lq quantize llama-2-7b out.lq --bits 8", "one scale a row, 8 bits",
    "lq quantize llama-2-7b-gptq out.lq --layout x86", "the codes that GPTQ chose, where this machine reads them",
    "lq quantize llama-2-7b out.lq --prune depth:4 -m gptq", "without the four layers that are worth least",
    "lq quantize llama-2-7b out.lq -n", "what it would do, how much memory and disk it would take",
    "lq quantize llama-2-7b out.lq --layout x86 --max-ram 2G", "for one kind of machine, and within 2 GB",
    NULL};

const lq_verb lq_verb_quantize = {
    .name = "quantize", .synopsis = "MODEL OUT",
        .summary = "Turn a checkpoint into a quantized .lq file",
    .detail = "MODEL is a directory, a .safetensors file, an index of shards or a .lq file. OUT appears only when it is whole and\n"
              "was read back and checked.\n\n"
              "Ctrl-C (and kill -9, and a power cut) leaves the finished blocks in OUT.partial/: the same command goes on\n"
              "from there, and the output is the same to the byte. The report says of each matrix what it lost.",
    .examples = examples, .opts = opts, .opt_count = sizeof opts / sizeof *opts, .size = sizeof(quantize_args),
    .min_args = 2, .max_args = 2, .run = run};
