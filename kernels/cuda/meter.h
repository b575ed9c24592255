// meter.h: what a GPU does at most: bytes that it reads, multiply-adds of its tensor cores. Plain C, for the host that
// launches and for the kernels alike.
#ifndef LQ_CUDA_METER_H
#define LQ_CUDA_METER_H
#include <stddef.h>
#include <stdint.h>

enum { LQ_METER_THREADS = 512, LQ_METER_LOADS = 8, LQ_METER_PIECE = LQ_METER_THREADS * LQ_METER_LOADS,
       LQ_METER_MMAS = 8, LQ_METER_BF16_MACS = 16 * 8 * 16, LQ_METER_S8_MACS = 16 * 8 * 32 };

// Of memory that is read: LQ_METER_PIECE times 16 bytes at most.
typedef struct lq_meter_piece { const void *p; size_t vectors; } lq_meter_piece;

typedef struct lq_meter_args {
    const lq_meter_piece *pieces;
    int count;
    int loops;       // of LQ_METER_MMAS multiply-adds of tiles a warp
    uint32_t *out;   // [blocks * 16] what came out, of each warp
} lq_meter_args;
#endif
