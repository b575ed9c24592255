// meter.cu: the kernels of meter.cuh.
#include "kernels/cuda/meter.cuh"

LQ_KERNEL(lq_meter_read_bytes, LQ_METER_THREADS, 2, lq_meter_args) { meter::read(a); }
LQ_KERNEL(lq_meter_bf16, LQ_METER_THREADS, 1, lq_meter_args) { meter::multiply_bf16(a); }
LQ_KERNEL(lq_meter_s8, LQ_METER_THREADS, 1, lq_meter_args) { meter::multiply_s8(a); }
