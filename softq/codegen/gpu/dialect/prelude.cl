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
#define KERNEL_OF_TWO(threads) KERNEL(threads)
#define KERNEL_OF_STAGES(threads) KERNEL(threads)
#define GLOBAL __global
#define SHARED __local
#define LOCAL __local
// Words of which the launch says how many there are: more than other shared memory may have. Here the text says it, too.
#define SHARED_OF_LAUNCH(name, words) __local __attribute__((aligned(16))) u32 name[words]
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

FUNCTION u32 nearest_bits(f32 x) { return BITS(x + 12582912.0f); }
FUNCTION i32 nearest(f32 x) { return (i32)(nearest_bits(x) - 0x4B400000u); }

// OpenCL promises 3 units in the last place; what a device has more is for a test to say.
FUNCTION f32 exp_minus(f32 d) { return exp(-d); }
FUNCTION f32 greater_or_nan(f32 a, f32 b) { return a == a && b == b ? fmax(a, b) : FLOAT(0x7fc00000u); }

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

FUNCTION void load_words(u32 *into, const GLOBAL void *from, bool wanted) {
    const uint4 held = wanted ? *(const GLOBAL uint4 *)from : (uint4)(0);
    into[0] = held.x, into[1] = held.y, into[2] = held.z, into[3] = held.w;
}
FUNCTION u32 bytes_4(const GLOBAL u8 *from, i64 count) {
    u32 word = 0u;
    for (i32 i = 0; i < 4; i++) word |= (count > i ? (u32)from[i] : 0u) << (i * 8);
    return word;
}
FUNCTION u32 halves_2(const GLOBAL u16 *from, i64 count) {
    return (count > 0 ? (u32)from[0] : 0u) | (count > 1 ? (u32)from[1] : 0u) << 16;
}
#define DOT4(a_kind, b_kind, a, b, sum) dot4(a, b, sum, SIGN_##a_kind, SIGN_##b_kind)
#define SIGN_i8 128
#define SIGN_u8 0
FUNCTION i32 dot4(u32 a, u32 b, i32 sum, i32 a_sign, i32 b_sign) {
    for (i32 i = 0; i < 4; i++) {
        // A byte with its sign: flipping the highest bit adds 128 to the signed number that it is.
        const i32 x = (i32)((a >> (i * 8) & 255u) ^ (u32)a_sign) - a_sign;
        const i32 y = (i32)((b >> (i * 8) & 255u) ^ (u32)b_sign) - b_sign;
        sum += x * y;
    }
    return sum;
}

// What CUDA has of tensor cores, by plain multiply-adds: threads exchange their fragments through shared memory, laid out
// as PTX has them, so that what is computed from the layout is the same text. All threads of a block have to be there.
#define EXCHANGE(threads) SHARED u32 exchanged[(threads) * 6]
#define OF_NEIGHBOUR(x, by) of_neighbour(exchanged, x, by)
#define MULTIPLY_ADD(kind, c, a, b0, b1) multiply_add(exchanged, c, a, b0, b1, FRAGMENTS_##kind)
#define FRAGMENTS_f16 0
#define FRAGMENTS_bf16 1
FUNCTION f32 of_neighbour(SHARED u32 *exchanged, f32 x, i32 by) {
    exchanged[THREAD] = BITS(x);
    BARRIER();
    const f32 other = FLOAT(exchanged[THREAD ^ by]);
    BARRIER();
    return other;
}
FUNCTION f32 half_of(u32 word, i32 high, i32 kind) {
    const u32 bits = high ? word >> 16 : word & 0xffffu;
    return kind ? from_bf16(bits) : from_f16(bits);
}
FUNCTION void multiply_add(SHARED u32 *exchanged, f32 *c, const u32 *a, u32 b0, u32 b1, i32 kind) {
    SHARED u32 *mine = exchanged + THREAD * 6;
    mine[0] = a[0], mine[1] = a[1], mine[2] = a[2], mine[3] = a[3], mine[4] = b0, mine[5] = b1;
    BARRIER();
    const SHARED u32 *warp = exchanged + THREAD / 32 * 32 * 6;
    const i32 lane = THREAD % 32;
    for (i32 i = 0; i < 4; i++) {
        const i32 row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        for (i32 k = 0; k < 16; k++) {
            // Element (row, k) of the left operand, and (k, column) of the right one.
            const u32 x = warp[(row % 8 * 4 + k % 8 / 2) * 6 + row / 8 + k / 8 * 2];
            const u32 y = warp[(column * 4 + k % 8 / 2) * 6 + 4 + k / 8];
            c[i] = fma(half_of(x, k % 2, kind), half_of(y, k % 2, kind), c[i]);
        }
    }
    BARRIER();
}
#define COPY_16(shared, global, wanted) *(SHARED uint4 *)(shared) = (wanted) ? *(const GLOBAL uint4 *)(global) : (uint4)(0)
#define COPIES_END()
#define COPIES_ARRIVED_BUT(n)
#define LOAD_4(into, tile, at) load_4(exchanged, into, tile, at, 0)
#define LOAD_4_TURNED(into, tile, at) load_4(exchanged, into, tile, at, 1)
FUNCTION void load_4(SHARED u32 *exchanged, u32 *into, const SHARED u16 *tile, i32 at, i32 turned) {
    exchanged[THREAD] = (u32)at;
    BARRIER();
    const i32 lane = THREAD % 32;
    for (i32 i = 0; i < 4; i++) {
        const SHARED u32 *rows = exchanged + THREAD / 32 * 32 + i * 8;
        const i32 pair = lane % 4 * 2, other = lane / 4;
        const u32 low = turned ? tile[rows[pair] + other] : tile[rows[other] + pair];
        const u32 high = turned ? tile[rows[pair + 1] + other] : tile[rows[other] + pair + 1];
        into[i] = low | high << 16;
    }
    BARRIER();
}
