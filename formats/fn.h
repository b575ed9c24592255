// fn.h: how small functions and tables are declared that C files and CUDA kernels share, so that both have one
// definition of them.
#ifndef LQ_FN_H
#define LQ_FN_H
#ifdef __CUDACC__
#define LQ_FN static __device__ __forceinline__
#define LQ_FN_DATA static __device__ const
#else
#define LQ_FN static inline
#define LQ_FN_DATA static const
#endif
#endif
