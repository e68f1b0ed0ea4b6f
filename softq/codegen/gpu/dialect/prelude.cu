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
// With as many registers as two blocks on a multiprocessor leave each thread.
#define KERNEL_OF_TWO(threads) extern "C" __global__ void __launch_bounds__(threads, 2)
// Of tiles in stages: before sm_80 there is shared memory for one block of the largest, and copies go through registers.
#if __CUDA_ARCH__ >= 800
#define KERNEL_OF_STAGES(threads) KERNEL_OF_TWO(threads)
#else
#define KERNEL_OF_STAGES(threads) KERNEL(threads)
#endif
#define GLOBAL
#define SHARED __shared__
#define LOCAL
// Words of which the launch says how many there are: more than other shared memory may have.
#define SHARED_OF_LAUNCH(name, words) extern __shared__ __align__(16) u32 name[]
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
FUNCTION u32 nearest_bits(f32 x) { return BITS(__fadd_rn(x, 12582912.0f)); }
FUNCTION i32 nearest(f32 x) { return (i32)(nearest_bits(x) - 0x4B400000u); }

// e^-d for d >= 0; expf is within one unit in the last place. No choice of 0 beyond a limit, which would be a branch.
FUNCTION f32 exp_minus(f32 d) { return expf(-d); }

// The greater one, NaN if either is.
#if __CUDA_ARCH__ >= 800
FUNCTION f32 greater_or_nan(f32 a, f32 b) {
    f32 x;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
    return x;
}
#else
FUNCTION f32 greater_or_nan(f32 a, f32 b) { return a == a && b == b ? fmaxf(a, b) : FLOAT(0x7fc00000u); }
#endif

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

// Four words of memory, of which the first is at a multiple of 16 bytes; zeros where they are not wanted.
FUNCTION void load_words(u32 *into, const void *from, bool wanted) {
    const uint4 held = wanted ? *(const uint4 *)from : make_uint4(0, 0, 0, 0);
    into[0] = held.x, into[1] = held.y, into[2] = held.z, into[3] = held.w;
}
// The first bytes or halves of so many, one after the other; zeros where there are no more.
FUNCTION u32 bytes_4(const u8 *from, i64 count) {
    u32 word = count > 0 ? from[0] : 0u;
    word |= (count > 1 ? (u32)from[1] : 0u) << 8;
    word |= (count > 2 ? (u32)from[2] : 0u) << 16;
    return word | (count > 3 ? (u32)from[3] : 0u) << 24;
}
FUNCTION u32 halves_2(const u16 *from, i64 count) {
    return (count > 0 ? (u32)from[0] : 0u) | (count > 1 ? (u32)from[1] : 0u) << 16;
}

// The sum of the products of four bytes with four bytes, of either type, and a number.
#define DOT4(a_kind, b_kind, a, b, sum) dot4_##a_kind##_##b_kind(a, b, sum)
#define DOT4_OF(a_kind, b_kind, a_type, b_type)                                                            \
    FUNCTION i32 dot4_##a_kind##_##b_kind(u32 a, u32 b, i32 sum) {                                         \
        i32 result;                                                                                        \
        asm("dp4a." #a_type "." #b_type " %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(sum));     \
        return result;                                                                                     \
    }
DOT4_OF(i8, i8, s32, s32)
DOT4_OF(i8, u8, s32, u32)
DOT4_OF(u8, i8, u32, s32)
DOT4_OF(u8, u8, u32, u32)

// Tensor cores: a warp's product of 16 x 16 and 16 x 8 halves, added to 16 x 8 floats; fragments as PTX lays them out.
#define EXCHANGE(threads)
#define MULTIPLY_ADD(kind, c, a, b0, b1) multiply_add_##kind(c, a, b0, b1)
#define OF_NEIGHBOUR(x, by) OF_LANE(x, by)
#if __CUDA_ARCH__ >= 800
FUNCTION void multiply_add_f16(f32 *c, const u32 *a, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
FUNCTION void multiply_add_bf16(f32 *c, const u32 *a, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Copies of 16 bytes into shared memory that go on meanwhile; a copy that is not wanted leaves zeros.
FUNCTION void copy_16(void *shared, const void *global, bool wanted) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"((u32)__cvta_generic_to_shared(shared)), "l"(global), "r"(wanted ? 16 : 0) : "memory");
}
#define COPIES_END() asm volatile("cp.async.commit_group;" ::: "memory")
#define COPIES_ARRIVED_BUT(n) asm volatile("cp.async.wait_group %0;" :: "n"(n) : "memory")
#else
FUNCTION void multiply_add_f16(f32 *c, const u32 *a, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(b0));
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[2]), "r"(a[3]), "r"(b1));
}
FUNCTION void copy_16(void *shared, const void *global, bool wanted) {
    *(uint4 *)shared = wanted ? *(const uint4 *)global : make_uint4(0, 0, 0, 0);
}
#define COPIES_END()
#define COPIES_ARRIVED_BUT(n)
#endif
#define COPY_16(shared, global, wanted) copy_16(shared, global, wanted)

// Four matrices of 8 x 8 halves, of which each thread names a row; _TURNED gives them transposed.
#define LOAD_4(into, tile, at) load_4(into, (tile) + (at))
#define LOAD_4_TURNED(into, tile, at) load_4_turned(into, (tile) + (at))
FUNCTION void load_4(u32 *into, const u16 *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(into[0]), "=r"(into[1]), "=r"(into[2]), "=r"(into[3])
                 : "r"((u32)__cvta_generic_to_shared(row)) : "memory");
}
FUNCTION void load_4_turned(u32 *into, const u16 *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(into[0]), "=r"(into[1]), "=r"(into[2]), "=r"(into[3])
                 : "r"((u32)__cvta_generic_to_shared(row)) : "memory");
}
