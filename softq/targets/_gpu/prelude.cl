// The words that kernels are written in, for OpenCL C 1.2.
#pragma OPENCL FP_CONTRACT OFF
typedef char i8;
typedef uchar u8;
typedef short i16;
typedef ushort u16;
typedef int i32;
typedef uint u32;
typedef long i64;
typedef ulong u64;
typedef float f32;

#define KERNEL(threads) __kernel __attribute__((reqd_work_group_size(threads, 1, 1))) void
#define GLOBAL __global
#define SHARED __local
#define CONSTANT __constant
#define TABLE __constant
#define FUNCTION static inline
#define RESTRICT restrict
#define THREAD ((i32)get_local_id(0))
#define GROUP ((i64)get_group_id(0))
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#define UNROLL _Pragma("unroll")
#define UNROLL_4 _Pragma("unroll 4")

#define BITS(x) as_uint(x)
#define FLOAT(bits) as_float(bits)
#define TWO(a, b) ((uint2)(a, b))
#define FOUR(a, b, c, d) ((uint4)(a, b, c, d))

// The option -cl-fp32-correctly-rounded-divide-sqrt makes quotients and roots what their names say.
#define PRODUCT(a, b) ((a) * (b))
#define QUOTIENT(a, b) ((a) / (b))
#define ROOT(x) sqrt(x)
#define ROUND(x) rint(x)
#define LOG2(x) log2(x)
#define LESSER(a, b) fmin(a, b)
#define GREATER(a, b) fmax(a, b)
#define ZEROS(x) ((i32)clz((u32)(x)))

FUNCTION i32 nearest(f32 x) { return (i32)(BITS(x + 12582912.0f) - 0x4B400000u); }

// OpenCL promises 3 units in the last place; what a device has more is for a test to say.
FUNCTION f32 exp_minus(f32 d) { return d <= EXP_LIMIT ? exp(-d) : 0.0f; }

FUNCTION f32 from_f16(u32 bits) {
    const u16 held = (u16)bits;
    return vload_half(0, (const __private half *)&held);
}
FUNCTION u32 to_f16(f32 x) {
    u16 held;
    vstore_half_rte(x, 0, (__private half *)&held);
    return held;
}
FUNCTION f32 from_bf16(u32 bits) { return FLOAT(bits << 16); }
FUNCTION u32 to_bf16(f32 x) {
    const u32 bits = BITS(x);
    return x == x ? (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16 : 0x7fffu;
}
FUNCTION u32 two_f16(f32 a, f32 b) { return to_f16(a) | to_f16(b) << 16; }
FUNCTION u32 two_bf16(f32 a, f32 b) { return to_bf16(a) | to_bf16(b) << 16; }
