// What CUDA has and a C++ compiler for this computer lacks, for prelude.cu and kernels of blocks without shuffles.
// Nothing is included, so that `asm` in the preprocessed text is prelude.cu's only (tests/cuda_host.py takes it away).
#define __global__ __attribute__((visibility("default")))
#define __launch_bounds__(...)
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define __syncthreads()
// An address in shared memory has 32 bits there: here it stands for the last one that was asked for.
static void *last_shared;
#define __cvta_generic_to_shared(p) (last_shared = (void *)(p), 0ul)

struct Place { unsigned x; };
static Place threadIdx, blockIdx;
extern "C" __global__ void at_thread(unsigned thread) { threadIdx.x = thread; }

struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

extern "C" float rintf(float), truncf(float), log2f(float), expf(float), sqrtf(float), fminf(float, float), fmaxf(float, float);

static inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
static inline float __uint_as_float(unsigned bits) { return __builtin_bit_cast(float, bits); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
template <class T> T __shfl_xor_sync(unsigned, T x, int) { return x; }

// The compiler may join a product and a sum, as nvcc does; these it may not.
static float kept(float x) {
    volatile float held = x;
    return held;
}
static inline float __fmul_rn(float a, float b) { return kept(a * b); }
static inline float __fadd_rn(float a, float b) { return kept(kept(a) + b); }
static inline float __fdiv_rn(float a, float b) { return kept(a / b); }
static inline float __fsqrt_rn(float x) { return kept(sqrtf(x)); }
// To zero, for who takes the wrong words: of sums and products exactly, with a double that holds them.
static float to_zero(double exact) {
    const float x = (float)exact;
    const double mine = x < 0 ? -(double)x : (double)x, its = exact < 0 ? -exact : exact;
    return mine > its ? __uint_as_float(__float_as_uint(x) - 1) : x;
}
static inline float __fmul_rz(float a, float b) { return to_zero((double)a * b); }
static inline float __fadd_rz(float a, float b) { return to_zero((double)a + b); }
static inline float __fdividef(float a, float b) { return kept(a * kept(1.0f / b)); }

// PTX instructions by their names, `.` as `_`; operands in the order of PTX.
typedef unsigned short half_bits;
static inline half_bits bits_of_half(float x) { return x == x ? __builtin_bit_cast(half_bits, (_Float16)x) : 0x7fff; }
static half_bits bits_of_half_to_zero(float x) {
    const half_bits bits = bits_of_half(x);
    const float back = (float)__builtin_bit_cast(_Float16, bits);
    return __builtin_fabsf(back) > __builtin_fabsf(x) ? bits - 1 : bits;
}
static half_bits bits_of_bfloat(float x) {
    const unsigned bits = __float_as_uint(x), cut = bits & 0xffffu, high = bits >> 16;
    if (x != x) return 0x7fff;
    return (half_bits)(cut > 0x8000u || (cut == 0x8000u && high % 2) ? high + 1 : high);
}
static inline void ptx_cvt_f32_f16(float &to, half_bits x) { to = (float)__builtin_bit_cast(_Float16, x); }
static inline void ptx_cvt_rn_f16_f32(half_bits &to, float x) { to = bits_of_half(x); }
static inline void ptx_cvt_rz_f16_f32(half_bits &to, float x) { to = bits_of_half_to_zero(x); }
static inline void ptx_cvt_rn_f16x2_f32(unsigned &to, float high, float low) {
    to = (unsigned)bits_of_half(high) << 16 | bits_of_half(low);
}
static inline void ptx_cvt_rz_f16x2_f32(unsigned &to, float high, float low) {
    to = (unsigned)bits_of_half_to_zero(high) << 16 | bits_of_half_to_zero(low);
}
static inline void ptx_cvt_rn_bf16x2_f32(unsigned &to, float high, float low) {
    to = (unsigned)bits_of_bfloat(high) << 16 | bits_of_bfloat(low);
}
static inline void ptx_cvt_rz_bf16x2_f32(unsigned &to, float high, float low) {
    to = (high == high ? __float_as_uint(high) >> 16 : 0x7fffu) << 16 | (low == low ? __float_as_uint(low) >> 16 : 0x7fffu);
}
static inline void ptx_max_f32(float &to, float a, float b) { to = fmaxf(a, b); }
static inline void ptx_max_NaN_f32(float &to, float a, float b) {
    to = a == a && b == b ? fmaxf(a, b) : __uint_as_float(0x7fffffffu);
}
template <class A, class B> int dot(unsigned a, unsigned b, int sum) {
    for (int i = 0; i < 4; i++) sum = (int)((unsigned)sum + (unsigned)((int)(A)(a >> 8 * i) * (int)(B)(b >> 8 * i)));
    return sum;
}
static inline void ptx_dp4a_s32_s32(int &to, unsigned a, unsigned b, int sum) { to = dot<signed char, signed char>(a, b, sum); }
static inline void ptx_dp4a_s32_u32(int &to, unsigned a, unsigned b, int sum) { to = dot<signed char, unsigned char>(a, b, sum); }
static inline void ptx_dp4a_u32_s32(int &to, unsigned a, unsigned b, int sum) { to = dot<unsigned char, signed char>(a, b, sum); }
static inline void ptx_dp4a_u32_u32(int &to, unsigned a, unsigned b, int sum) { to = dot<unsigned char, unsigned char>(a, b, sum); }
static void ptx_cp_async_cg_shared_global(unsigned, const void *from, int, int bytes) {
    for (int i = 0; i < 16; i++) ((unsigned char *)last_shared)[i] = i < bytes ? ((const unsigned char *)from)[i] : 0;
}
