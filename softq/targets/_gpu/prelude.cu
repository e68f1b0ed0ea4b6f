// The words that kernels are written in, for CUDA. Nothing is included, so that NVRTC needs no headers.
typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef float f32;

#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
#define GLOBAL
#define SHARED __shared__
#define CONSTANT static __device__ const
#define TABLE const
#define FUNCTION [[maybe_unused]] static __device__ __forceinline__
#define RESTRICT __restrict__
#define THREAD ((i32)threadIdx.x)
#define GROUP ((i64)blockIdx.x)
#define BARRIER() __syncthreads()
#define UNROLL _Pragma("unroll")
#define UNROLL_4 _Pragma("unroll 4")

#define BITS(x) __float_as_uint(x)
#define FLOAT(bits) __uint_as_float(bits)
#define TWO(a, b) make_uint2(a, b)
#define FOUR(a, b, c, d) make_uint4(a, b, c, d)

// Rounded before it is added to anything.
#define PRODUCT(a, b) __fmul_rn(a, b)
#define QUOTIENT(a, b) __fdiv_rn(a, b)
#define ROOT(x) __fsqrt_rn(x)
#define ROUND(x) rintf(x)
#define LOG2(x) log2f(x)
// For operands of which the second is no NaN; the result is the second where the first is one.
#define LESSER(a, b) fminf(a, b)
#define GREATER(a, b) fmaxf(a, b)
#define ZEROS(x) __clz((i32)(x))
#define OF_LANE(x, by) __shfl_xor_sync(0xffffffffu, x, by)

// The nearest integer, half to even, of a number in [-2^22, 2^22]: 1.5 * 2^23 + x has it in its lowest bits.
FUNCTION i32 nearest(f32 x) { return (i32)(BITS(__fadd_rn(x, 12582912.0f)) - 0x4B400000u); }

// e^-d for d >= 0; expf is within one unit in the last place.
FUNCTION f32 exp_minus(f32 d) { return d <= EXP_LIMIT ? expf(-d) : 0.0f; }

FUNCTION f32 from_f16(u32 bits) {
    f32 x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((u16)bits));
    return x;
}
FUNCTION u32 to_f16(f32 x) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
FUNCTION f32 from_bf16(u32 bits) { return FLOAT(bits << 16); }
FUNCTION u32 to_bf16(f32 x) {
    const u32 bits = BITS(x);
    return x == x ? (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16 : 0x7fffu;
}
// Two numbers in a word, the first one low.
#if __CUDA_ARCH__ >= 800
FUNCTION u32 two_f16(f32 a, f32 b) {
    u32 word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(b), "f"(a));
    return word;
}
FUNCTION u32 two_bf16(f32 a, f32 b) {
    u32 word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(b), "f"(a));
    return word;
}
#else
FUNCTION u32 two_f16(f32 a, f32 b) { return to_f16(a) | to_f16(b) << 16; }
FUNCTION u32 two_bf16(f32 a, f32 b) { return to_bf16(a) | to_bf16(b) << 16; }
#endif
