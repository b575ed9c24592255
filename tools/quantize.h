// quantize.h: lq quantize, between the file that asks for the work (lq_quantize.c) and the one that prints what it came
// to.
#ifndef LQ_QUANTIZE_TOOL_H
#define LQ_QUANTIZE_TOOL_H
#include "quant/quant.h"
#include "tools/verb.h"

// The tables and lines at the end; `report`: where that stands.
void lq_quantize_print(const lq_quant_result *r, const char *out, const char *report);
// One module, as it is finished.
void lq_quantize_print_module(FILE *f, const lq_quant_row *row);
#endif
