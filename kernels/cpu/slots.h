// slots.h: the slots of a CPU by name: the portable ones, one file's each or ref.c's, and what an ISA does better.
// cpu.c makes tables of them.
#ifndef LQ_SLOTS_H
#define LQ_SLOTS_H
#include "kernels/cpu/cpu.h"

void lq_cpu_c_slots(lq_ops *o);      // all slots but memory and control, portable (ref.c)
void lq_cpu_avx2_slots(lq_ops *o);   // x86/ops_avx2.c
void lq_cpu_avx512_slots(lq_ops *o); // x86/ops_avx512.c
void lq_cpu_amx_slots(lq_ops *o);    // x86/gram_amx.c

// Of every ISA: they find what differs in lq_cpu.
void lq_quant_cpu(lq_dev *d, const lq_quant_args *a);
void lq_matmul_cpu(lq_dev *d, const lq_matmul_args *a);
void lq_moe_cpu(lq_dev *d, const lq_moe_args *a);
size_t lq_moe_work(const lq_dev_limits *l, int threads);   // bytes of scratch
size_t lq_rough_work(const lq_dev_limits *l, int threads);

void lq_attn_c(lq_dev *d, const lq_attn_args *a);
void lq_route_c(lq_dev *d, const lq_route_args *a);
void lq_mix_c(lq_dev *d, const lq_mix_args *a);
void lq_conv_c(lq_dev *d, const lq_conv_args *a);
void lq_scan_c(lq_dev *d, const lq_scan_args *a);
void lq_tally_c(lq_dev *d, const lq_tally_args *a);
void lq_gram_c(lq_dev *d, const lq_gram_args *a);
bool lq_solver_c(lq_dev *d, char *out, size_t size, lq_err *err);
void lq_factor_c(lq_dev *d, const lq_factor_args *a);
void lq_refine_c(lq_dev *d, const lq_round_args *a);
void lq_solve_c(lq_dev *d, const lq_solve_args *a);
void lq_round_c(lq_dev *d, const lq_round_args *a);
void lq_choose_c(lq_dev *d, const lq_choose_args *a);
void lq_arrange_c(lq_dev *d, const lq_arrange_args *a);
void lq_tries_cpu(lq_dev *d, const lq_tries_args *a); // of every ISA: by its round, quant and matmul
void lq_attn_avx2(lq_dev *d, const lq_attn_args *a);
void lq_attn_avx512(lq_dev *d, const lq_attn_args *a);
void lq_attn_avx512bf16(lq_dev *d, const lq_attn_args *a);
void lq_attn_amx(lq_dev *d, const lq_attn_args *a);
#endif
