// unroll.h: how the micro-kernels ask for loops that are unrolled (EACH), that are not (ROLLED), and for inlining.
// Under a sanitizer nothing is unrolled: clang 14 needs minutes for a file then.
#ifndef LQ_UNROLL_H
#define LQ_UNROLL_H

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LQ_SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LQ_SANITIZED
#endif
#if defined(LQ_SANITIZED)
#define EACH for
#define ROLLED
#elif defined(__clang__)
#define EACH _Pragma("clang loop unroll(full)") for
#define ROLLED _Pragma("nounroll")
#else
#define EACH _Pragma("GCC unroll 16") for
#define ROLLED _Pragma("GCC unroll 1")
#endif
#define INLINE static inline __attribute__((always_inline))
#endif
