// What generated CUDA needs of a GPU, on the host: a block's threads are fibers, scheduled warp by warp in random order.
//
// Copies to shared memory are as late and as early as they may be: their target is garbage from the moment they are
// issued, and holds the data only when the thread has waited for their group. So a missing wait or barrier, or a buffer
// filled again too soon, gives wrong results. Misaligned and outside accesses, and bank conflicts of ldmatrix, abort.
//
// This file is compiled with each kernel: what needs no template, and the standard library, is in device.cpp. A function
// that no kernel calls is `inline`, not only `static`, since the compiler makes code of the latter, which takes a millisecond.
#ifndef ATTNCC_DEVICE_HPP
#define ATTNCC_DEVICE_HPP
#ifdef ATTNCC_DEVICE_ITSELF
#include <cmath>
#include <cstdint>
#include <cstring>
#else
#include "libc.hpp"
#endif

#define __CUDA_ARCH__ 900  // asked for how many blocks there should be, which changes no result
#define __device__
#define __constant__ static const
#define __global__
#define __shared__ static  // of each library its own: they are compiled with -fno-gnu-unique
#define __forceinline__ inline
#define ATTNCC_INLINED inline __attribute__((always_inline))  // where it is called, though nothing is optimised
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__

template <class T>
static T max(T a, T b) { return a < b ? b : a; }
template <class T>
static T min(T a, T b) { return b < a ? b : a; }

struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static inline float2 make_float2(float x, float y) { return {x, y}; }

template <class To, class From>
static To bits_as(From from) {
    To to;
    static_assert(sizeof(To) == sizeof(From), "");
    memcpy(&to, &from, sizeof(To));
    return to;
}
static inline float __int_as_float(int x) { return bits_as<float>(x); }
static inline float __uint_as_float(unsigned x) { return bits_as<float>(x); }
static inline double __longlong_as_double(long long x) { return bits_as<double>(x); }
static inline int __float_as_int(float x) { return bits_as<int>(x); }
static inline unsigned __float_as_uint(float x) { return bits_as<unsigned>(x); }
static inline long long __float2ll_rd(float x) {  // saturates, as the instruction does
    const float low = floorf(x);
    return low >= 0x1p63f ? (1ull << 63) - 1 : low < -0x1p63f ? -(1ll << 62) * 2 : (long long)low;
}
static inline long long __float2ll_rn(float x) {
    return __float2ll_rd(nearbyintf(x));  // to even, as the rounding mode is by default
}
static inline float __frcp_rn(float x) { return 1 / x; }
static inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
    return (((uint64_t)high << 32 | low) << min(shift, 32u)) >> 32;
}
static inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
    return ((uint64_t)high << 32 | low) >> min(shift, 32u);
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return (((uint64_t)high << 32 | low) << (shift & 31)) >> 32;
}
static inline unsigned __umulhi(unsigned a, unsigned b) { return (uint64_t)a * b >> 32; }
static inline int __ffs(unsigned x) { return __builtin_ffs(x); }
static inline int __clz(unsigned x) { return x == 0 ? 32 : __builtin_clz(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
template <class T>
static T __ldg(const T* address) { return *address; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
template <class T>
static T __ldcs(const T* address) { return *address; }
template <class T>
static T __ldcg(const T* address) { return *address; }

[[noreturn]] void fail(const char* what);

// -------------------------------------------------------------------- threads

struct Warp { int arrived, generation; uint64_t slots[32][6]; };
struct Index { int x; };

extern Warp* warps;
extern int current;
extern Index blockIdx, gridDim;
extern int block_rank, block_threads;  // in its cluster; of one block
#define threadIdx (Index{current % block_threads})

void yield();
void await_change(const int& word, int seen);
unsigned dice();
void end_kernel_ahead();
void join(int& arrived, int& generation, int expected);
void meet(int& arrived, int& generation, int expected);
void meet_warp();
void __syncthreads();
bool __syncthreads_and(bool x);
static inline void __syncwarp() { meet_warp(); }

template <class T>
static void tell(int slot, T value) { memcpy(&warps[current / 32].slots[current % 32][slot], &value, sizeof(T)); }
template <class T>
static T ask(int lane, int slot) {
    T value;
    memcpy(&value, &warps[current / 32].slots[lane][slot], sizeof(T));
    return value;
}

/// What `read` finds in all lanes' values of one warp-wide instruction.
template <class T, class Read>
static auto exchange(T value, Read read) {
    tell(0, value);
    meet_warp();
    auto result = read();
    meet_warp();
    return result;
}

/// What a lane gives to a warp-wide instruction, where each lane may ask for another one's.
uint64_t take_from_lane(uint64_t given, int lane);
template <class T>
static T from_lane(T value, int lane) {
    static_assert(sizeof(T) <= sizeof(uint64_t), "");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(T));
    bits = take_from_lane(bits, lane);
    memcpy(&value, &bits, sizeof(T));
    return value;
}
template <class T>
static T __shfl_xor_sync(unsigned, T x, int mask) { return from_lane(x, current % 32 ^ mask); }
template <class T>
static T __shfl_up_sync(unsigned, T x, int distance) {
    return from_lane(x, max(current % 32 - distance, current % 32 < distance ? current % 32 : 0));
}
template <class T>
static T __shfl_sync(unsigned, T x, int lane, int width = 32) {
    return from_lane(x, current % 32 / width * width + lane % width);
}
unsigned __ballot_sync(unsigned mask, bool x);
static inline bool __all_sync(unsigned mask, bool x) { return __ballot_sync(mask, x) == ~0u; }
static inline bool __any_sync(unsigned mask, bool x) { return __ballot_sync(mask, x) != 0; }
int same_in_warp(int x);

static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    const uint64_t bytes = (uint64_t)b << 32 | a;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) {
        const unsigned choice = selector >> 4 * i & 15, byte = bytes >> 8 * (choice & 7) & 255;
        result |= (choice & 8 ? (byte & 128 ? 255 : 0) : byte) << 8 * i;
    }
    return result;
}

// -------------------------------------------------------------------- shared memory

extern unsigned char* shared_memory;
extern size_t shared_size;

static inline size_t __cvta_generic_to_shared(const void* pointer) { return (const unsigned char*)pointer - shared_memory; }

template <class T>
static T& shared_at(unsigned address, size_t alignment = sizeof(T)) {
    if (address % alignment || address + sizeof(T) > shared_size) fail("bad address in shared memory");
    return *(T*)(shared_memory + address);
}

/// Bytes that a kernel asked the L2 cache for by asynchronous copies and TMA, those that came to blocks of threads (more
/// where a load is for both of a cluster, where a box is filled with zeros, and by what blocks send each other), and
/// those that it added to memory by vectors or fragments.
struct Counts { long long read, arrived, added; };
extern Counts counts;

void issue_copy(unsigned target, const void* source, bool exists);
void close_group();
void wait_groups(size_t pending);
void check_banks(int slot);  // of the rows of four matrices, whose addresses stand in a slot
void read_matrices(unsigned (&x)[4], unsigned address, bool transposed);

template <class T>
static T atomicAdd(T* address, T x) {
    const T before = *address;
    *address += x;
    return before;
}
static inline unsigned atomicInc(unsigned* address, unsigned last) {
    const unsigned before = *address;
    *address = before >= last ? 0 : before + 1;
    return before;
}

// -------------------------------------------------------------------- arithmetic

static inline float half_to_float(uint16_t bits) { return (float)bits_as<_Float16>(bits); }
static inline uint16_t float_to_half(float x) { return bits_as<uint16_t>((_Float16)x); }
static inline float bf16_to_float(uint16_t bits) { return __uint_as_float((unsigned)bits << 16); }
static inline uint16_t float_to_bf16(float x) {
    const unsigned bits = __float_as_uint(x);
    return x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

/// e4m3: a sign, 4 bits of exponent (bias 7), 3 of mantissa; no infinities, NaN where all bits but the sign are set.
static inline float quarter_to_float(uint8_t bits) {
    const int exponent = bits >> 3 & 15, mantissa = bits & 7;
    if ((bits & 127) == 127) return NAN;
    const float size = exponent == 0 ? ldexpf(mantissa, -9) : ldexpf(8 + mantissa, exponent - 10);
    return bits & 128 ? -size : size;
}
/// Rounded to nearest, ties to even; what is too large becomes the largest (cvt.satfinite).
static inline uint8_t float_to_quarter(float x) {
    if (x != x) return 127;
    const uint8_t sign = __float_as_uint(x) >> 31 << 7;
    const float size = fminf(fabsf(x), 448.0f);
    const float unit = ldexpf(1, max(ilogbf(fmaxf(size, 0x1p-6f)), -6) - 3);
    const float rounded = nearbyintf(size / unit) * unit;
    if (rounded < 0x1p-6f) return sign | (int)(rounded * 512);
    const int exponent = ilogbf(rounded);
    return sign | (exponent + 7) << 3 | ((int)ldexpf(rounded, 3 - exponent) & 7);
}

enum class Type { HALF, BF16, QUARTER };
/// The device has functions of its own for them, which are inlined.
static inline Type type_of(float (*widen)(uint16_t)) { return widen == half_to_float ? Type::HALF : Type::BF16; }

/// mma.m16n8k16: d += a b.
void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, Type type);
static inline void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, float (*widen)(uint16_t)) {
    multiply(d, a, b0, b1, type_of(widen));
}

// -------------------------------------------------------------------- launches

extern void (*before_block)();  // what other parts of the device have to do
extern void (*between_turns)();

/// Runs `body` in all threads of all blocks, one block after the other; `seed` decides how warps take turns, and `order` says in
/// which order blocks run: 0 from the first, 1 from the last, others at random. Clusters run from the first.
void launch(void (*body)(), int blocks, int threads, size_t shared_bytes, unsigned seed, int cluster, unsigned order);

#endif
