// methods.c: lq_methods[], one of the four tables of lq: what can be done to a model, each row a composition of parts.
// To add a method: add its row, and where it needs a statistic, transform or rounding that is not there yet, a file for
// it.
#include "quant/quant.h"
#include <string.h>

const char *const lq_stat_names[] = {"absmax", "absmean", "hessian", "kv", "square"};
const char *const lq_rounding_names[] = {"nearest", "gptq"};
const char *const lq_salient_names[] = {"none", "outlier", "columns"};

#define INT4 {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 4, .group = 128, .rows = 1, .scale = LQ_F16}
#define INT8 {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 8, .rows = 1, .scale = LQ_F32, .act = {.elem = LQ_I8}}
#define FP8 {.kind = LQ_W_FLOAT, .elem = LQ_E4M3, .bits = 8, .rows = 1, .scale = LQ_F32, .act = {.elem = LQ_E4M3}}
#define INT4_ASYM {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 4, .group = 128, .rows = 1, .scale = LQ_F16, .asym = true}
#define GPTQ .order = LQ_ORDER_GROUPS, .range = LQ_RANGE_WEIGHTED, .repay = 1, .refine = 4 // docs/QUANT.md has the table
const lq_method lq_methods[] = {
    {"rtn", "round to the nearest code, no calibration: fast, and what the others are measured against",
     {.type = INT4}},
    {"gptq", "spread each column's error over those behind it, by what the inputs were on calibration text",
     {.rounding = LQ_ROUND_GPTQ, .type = INT4, GPTQ}},
    {"auto", "give each matrix the type that serves --target-bits or --target-size best, by what its errors cost, then as gptq",
     {.rounding = LQ_ROUND_GPTQ, .type = INT4, GPTQ}},
    {"llmint8", "8 bits, activations too, but for the columns that the text makes large, which stay in 16 bits",
     {.salient = LQ_SALIENT_OUTLIER, .type = INT8}},
    {"smoothquant", "8 bits, activations too, when their large columns have handed some of their size to the weights",
     {.transform = LQ_T_SMOOTH, .type = INT8}},
    {"fp8", "8-bit floats, activations too: a scale for each row of both, or what --type says",
     {.type = FP8}},
    {"awq", "multiply columns whose inputs are large before they are rounded, by factors that calibration text chooses",
     {.transform = LQ_T_AWQ | LQ_T_CLIP, .type = INT4_ASYM}},
    {"awq+gptq", "factors as awq has them, then codes as gptq has them",
     {.transform = LQ_T_AWQ, .rounding = LQ_ROUND_GPTQ, .type = INT4, GPTQ}},
    {"hadamard", "turn the model's inner bases by Hadamard matrices, so that no channel stands out, then as rtn",
     {.transform = LQ_T_ROTATE, .type = INT4}},
};
const size_t lq_method_count = sizeof lq_methods / sizeof *lq_methods;

const lq_method *lq_method_find(const char *name) {
    for (size_t i = 0; i < lq_method_count; i++)
        if (!strcmp(lq_methods[i].name, name)) return &lq_methods[i];
    return NULL;
}

const char *lq_method_name(size_t i) { return i < lq_method_count ? lq_methods[i].name : NULL; }

const char *lq_range_name(size_t i) {
    static const char *const names[LQ_RANGES] = {"full", "mse", "weighted"};
    return i < LQ_RANGES ? names[i] : NULL;
}

const char *lq_quant_layout(size_t i) {
    lq_wtype type;
    lq_weight_size size;
    if (!lq_wtype_parse("int4 g128", &type, NULL)) return NULL;
    for (int l = LQ_ANY; l < LQ_LAYOUTS; l++)
        if (lq_layout_sizes((lq_layout)l, &type, 128, 128, &size) && !i--) return lq_layout_names[l];
    return NULL;
}
