// slots.h: the slots of a CPU that have a file of their own, by name; ref.c puts them into the table.
#ifndef LQ_SLOTS_H
#define LQ_SLOTS_H
#include "kernels/cpu/cpu.h"

void lq_attn_c(lq_dev *d, const lq_attn_args *a);
void lq_route_c(lq_dev *d, const lq_route_args *a);
void lq_mix_c(lq_dev *d, const lq_mix_args *a);
void lq_conv_c(lq_dev *d, const lq_conv_args *a);
void lq_scan_c(lq_dev *d, const lq_scan_args *a);
void lq_sample_c(lq_dev *d, const lq_sample_args *a);
void lq_gram_c(lq_dev *d, const lq_gram_args *a);
void lq_factor_c(lq_dev *d, const lq_factor_args *a);
#endif
