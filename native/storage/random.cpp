// random.cpp: Philox in lanes, and the distributions.
//
// Numbers are made in groups of 16 consecutive blocks. A block has two halves of 64 bits; a group is stored
// as the lower halves of its blocks, then their upper halves (each little endian: a half is two words). So
// 64-bit item i of an array is half (i % 32) / 16 of block i / 32 * 16 + i % 16, and the 32-bit items are the
// words of that in order. Box and Muller's pairs are the two halves of a block: all lanes do the same. Any
// array takes whole groups; positions are plentiful.
#include "storage/random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "engine/team.h"
#include "storage/isa.h"
#include "storage/simd.h"
#include "tensor/convert.h"
#include "tensor/row_major.h"

namespace weft {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr int kRounds = 10;
constexpr uint32_t kMultiply0 = 0xd2511f53,
                   kMultiply1 = 0xcd9e8d57;  // and the key's steps: the paper's table 2
constexpr uint32_t kStep0 = 0x9e3779b9, kStep1 = 0xbb67ae85;

constexpr int kLanes = 16;                 // blocks in a group
constexpr int kHalves = 2 * kLanes;        // 64-bit items in a group
constexpr int kBatch = 8;                  // groups made at a time: 2 KiB
constexpr int64_t kParallelGroups = 1024;  // fewer are made on the calling thread
constexpr int64_t kPieceGroups = 256;

// --- blocks -----------------------------------------------------------------------------------------------

using MakeGroups = void (*)(const Reservation& from, uint64_t group, int groups, uint64_t* halves);

void make_groups(const Reservation& from, uint64_t group, int groups, uint64_t* halves) {
  auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
  auto high = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
  for (uint64_t block = 0; block < static_cast<uint64_t>(groups) * kLanes; ++block) {
    const uint64_t position = from.offset + group * kLanes + block;
    const auto x = philox({low(position), high(position), low(from.stream), high(from.stream)},
                          {low(from.key), high(from.key)});
    uint64_t* const to = halves + block / kLanes * kHalves + block % kLanes;
    to[0] = x[0] | static_cast<uint64_t>(x[1]) << 32;
    to[kLanes] = x[2] | static_cast<uint64_t>(x[3]) << 32;
  }
}

#ifdef WEFT_X86
using Vector4 [[gnu::vector_size(32)]] = uint64_t;
using Vector8 [[gnu::vector_size(64)]] = uint64_t;

constexpr int kChains = 2;  // vectors at a time, for the latency of the multiplications

// Each 32-bit word in a lane of 64: a multiplication then gives both of its halves in place, and what the
// upper half of a lane holds does not matter, because the multiplication does not look at it. Written twice:
// a template inlined into both has its vectors cut into SSE2's before that (GCC 12), which halves the speed.
[[gnu::target("avx2")]] void make_groups_avx2(const Reservation& from, uint64_t group, int groups,
                                              uint64_t* halves) {
  constexpr int kWidth = 4;
  const Vector4 zero = {}, lanes = {0, 1, 2, 3};
  const auto multiply0 = reinterpret_cast<__m256i>(zero + kMultiply0);
  const auto multiply1 = reinterpret_cast<__m256i>(zero + kMultiply1);
  for (int start = 0; start < groups * kLanes; start += kWidth * kChains) {
    Vector4 x0[kChains], x1[kChains], x2[kChains], x3[kChains];
    for (int v = 0; v < kChains; ++v) {
      x0[v] = lanes + (from.offset + group * kLanes + static_cast<uint64_t>(start + v * kWidth));
      x1[v] = x0[v] >> 32;
      x2[v] = zero + from.stream;
      x3[v] = zero + (from.stream >> 32);
    }
    auto key0 = static_cast<uint32_t>(from.key), key1 = static_cast<uint32_t>(from.key >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < kRounds; ++round, key0 += kStep0, key1 += kStep1) {
#pragma GCC unroll 2
      for (int v = 0; v < kChains; ++v) {
        const auto p0 =
            reinterpret_cast<Vector4>(_mm256_mul_epu32(reinterpret_cast<__m256i>(x0[v]), multiply0));
        const auto p1 =
            reinterpret_cast<Vector4>(_mm256_mul_epu32(reinterpret_cast<__m256i>(x2[v]), multiply1));
        x0[v] = (p1 >> 32) ^ x1[v] ^ static_cast<uint64_t>(key0);
        x2[v] = (p0 >> 32) ^ x3[v] ^ static_cast<uint64_t>(key1);
        x1[v] = p1;
        x3[v] = p0;
      }
    }
    uint64_t* const to = halves + start / kLanes * kHalves + start % kLanes;
    for (int v = 0; v < kChains; ++v) {
      const Vector4 lower = (x0[v] & 0xffffffff) | x1[v] << 32, upper = (x2[v] & 0xffffffff) | x3[v] << 32;
      std::memcpy(to + v * kWidth, &lower, sizeof lower);
      std::memcpy(to + kLanes + v * kWidth, &upper, sizeof upper);
    }
  }
}

[[gnu::target("avx512f")]] void make_groups_avx512(const Reservation& from, uint64_t group, int groups,
                                                   uint64_t* halves) {
  constexpr int kWidth = 8;
  const Vector8 zero = {}, lanes = {0, 1, 2, 3, 4, 5, 6, 7};
  const auto multiply0 = reinterpret_cast<__m512i>(zero + kMultiply0);
  const auto multiply1 = reinterpret_cast<__m512i>(zero + kMultiply1);
  for (int start = 0; start < groups * kLanes; start += kWidth * kChains) {
    Vector8 x0[kChains], x1[kChains], x2[kChains], x3[kChains];
    for (int v = 0; v < kChains; ++v) {
      x0[v] = lanes + (from.offset + group * kLanes + static_cast<uint64_t>(start + v * kWidth));
      x1[v] = x0[v] >> 32;
      x2[v] = zero + from.stream;
      x3[v] = zero + (from.stream >> 32);
    }
    auto key0 = static_cast<uint32_t>(from.key), key1 = static_cast<uint32_t>(from.key >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < kRounds; ++round, key0 += kStep0, key1 += kStep1) {
#pragma GCC unroll 2
      for (int v = 0; v < kChains; ++v) {
        const auto p0 = reinterpret_cast<Vector8>(
            _mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(x0[v]), multiply0));
        const auto p1 = reinterpret_cast<Vector8>(
            _mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(x2[v]), multiply1));
        x0[v] = (p1 >> 32) ^ x1[v] ^ static_cast<uint64_t>(key0);
        x2[v] = (p0 >> 32) ^ x3[v] ^ static_cast<uint64_t>(key1);
        x1[v] = p1;
        x3[v] = p0;
      }
    }
    uint64_t* const to = halves + start / kLanes * kHalves + start % kLanes;
    for (int v = 0; v < kChains; ++v) {
      const Vector8 lower = (x0[v] & 0xffffffff) | x1[v] << 32, upper = (x2[v] & 0xffffffff) | x3[v] << 32;
      std::memcpy(to + v * kWidth, &lower, sizeof lower);
      std::memcpy(to + kLanes + v * kWidth, &upper, sizeof upper);
    }
  }
}
#endif

MakeGroups fastest_groups() {
#ifdef WEFT_X86
  if (isa() >= Isa::avx512) return make_groups_avx512;
  if (isa() >= Isa::avx2) return make_groups_avx2;
#endif
  return make_groups;
}

// --- arrays -----------------------------------------------------------------------------------------------

// Items of a group as they come out of it.
template <class Bits>
struct Group {
  static constexpr int kItems = static_cast<int>(kHalves * sizeof(uint64_t) / sizeof(Bits));
  Bits items[kItems];
};

const MakeGroups groups_of = fastest_groups();

// Fills the array with what `make(group, items)` turns groups into, one Item for each Bits; `type` is Item's.
template <class Bits, class Item, class Make>
void generate(const View& to, const Reservation& from, DType type, Make make) {
  static_assert(sizeof(Bits) == sizeof(Item));
  constexpr int64_t kItems = Group<Bits>::kItems;
  const RowMajor rows(to);
  auto run = [&](int64_t begin, int64_t end) {
    uint64_t halves[kBatch * kHalves];
    Item items[kBatch * kItems];
    for (; begin < end; begin += kBatch) {
      const auto groups = static_cast<int>(std::min<int64_t>(kBatch, end - begin));
      groups_of(from, static_cast<uint64_t>(begin), groups, halves);
      for (int g = 0; g < groups; ++g) make(load_as<Group<Bits>>(halves + g * kHalves), items + g * kItems);
      rows.write(begin * kItems, std::min(groups * kItems, rows.count() - begin * kItems), items, type);
    }
  };
  const int64_t groups = (rows.count() + kItems - 1) / kItems;
  if (groups < kParallelGroups || rows.repeats()) return run(0, groups);
  parallel_for(groups, kPieceGroups, run);
}

// Calls f with a float or a double: what numbers of the type are computed in.
template <class F>
void in_precision_of(DType dtype, F&& f) {
  if (dtype == DType::float64) {
    f(double{}, uint64_t{}, DType::float64);
  } else {
    f(float{}, uint32_t{}, DType::float32);
  }
}

// --- uniform ----------------------------------------------------------------------------------------------

// x, rounded to the type.
template <class Real>
Real rounded(double x, DType dtype) {
  char element[8];
  store(element, dtype, {Scalar::Kind::real, {.real = x}});
  return static_cast<Real>(load(element, dtype).real);
}

// The largest number of the type below x, which is one of them and not -infinity.
template <class Real>
Real below(Real x, DType dtype) {
  if (dtype == DType::float64 || dtype == DType::float32)
    return std::nextafter(x, -std::numeric_limits<Real>::infinity());
  char element[8];
  store(element, dtype, {Scalar::Kind::real, {.real = x}});
  auto bits = load_as<uint16_t>(element);
  bits = (bits & 0x7fff) == 0 ? 0x8001 : bits & 0x8000 ? bits + 1 : bits - 1;
  store_as(element, bits);
  return static_cast<Real>(load(element, dtype).real);
}

// In [0, 1).
inline float unit(uint32_t bits) { return static_cast<float>(static_cast<int32_t>(bits >> 8)) * 0x1p-24f; }
inline double unit(uint64_t bits) {
  // The bits as the fraction of a number in [1, 2), where 52 fit, plus the 53rd. Integer and exact operations
  // only, and unlike a conversion of 64-bit integers they vectorise.
  const double upper = std::bit_cast<double>(bits >> 12 | 0x3ff0000000000000) - 1;
  const double last = std::bit_cast<double>((bits >> 11 & 1) * 0x3ca0000000000000);  // 2^-53
  return upper + last;
}

// --- normal -----------------------------------------------------------------------------------------------

// ln(x) for positive normal x, with an error below 1e-7 of it or of 1 (Cephes, logf), as loops without calls.
inline float log_of(float x) {
  constexpr uint32_t kRootOfHalf = 0x3f3504f3;
  const uint32_t shifted = std::bit_cast<uint32_t>(x) - kRootOfHalf;
  const auto exponent = static_cast<float>(static_cast<int32_t>(shifted) >> 23);
  const float y =
      std::bit_cast<float>((shifted & 0x7fffff) + kRootOfHalf) - 1;  // in [sqrt(1/2), sqrt(2)) - 1
  const float z = y * y;
  float p = 7.0376836292e-2f;
  for (const float c : {-1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f,
                        -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f})
    p = p * y + c;
  p = p * y * z + exponent * -2.12194440e-4f - 0.5f * z;
  return y + p + exponent * 0.693359375f;
}

struct Turn {
  float cos, sin;
};

// Of bits / 2^32 turns (Cephes, sinf and cosf): the nearest quarter turn is exact in integers.
inline Turn turn(uint32_t bits) {
  const uint32_t quarter = (bits + (1u << 29)) >> 30;
  const auto rest = static_cast<int32_t>(bits - (quarter << 30));
  const float x = static_cast<float>(rest) * static_cast<float>(2 * std::numbers::pi * 0x1p-32);
  const float z = x * x;
  const float sine = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * x + x;
  const float cosine =
      ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z - 0.5f * z +
      1;
  const auto s = std::bit_cast<uint32_t>(sine), c = std::bit_cast<uint32_t>(cosine);
  const uint32_t swap = (s ^ c) & (0u - (quarter & 1));
  return {std::bit_cast<float>(c ^ swap ^ (((quarter + 1) & 2) << 30)),
          std::bit_cast<float>(s ^ swap ^ ((quarter & 2) << 30))};
}

// Square roots in place. By hand, as the compiler keeps a call that sets errno for negative numbers.
void square_roots(float* x, int count) {
#ifdef WEFT_X86
  for (int i = 0; i < count; i += 4) _mm_storeu_ps(x + i, _mm_sqrt_ps(_mm_loadu_ps(x + i)));
#else
  for (int i = 0; i < count; ++i) x[i] = std::sqrt(x[i]);
#endif
}

void normals(const Group<uint32_t>& group, float mean, float std, float* items) {
  constexpr int kPairs = Group<uint32_t>::kItems / 2;
  float radius[kPairs];
  for (int i = 0; i < kPairs; ++i) {
    // In (0, 1]: 31 bits and a half, so that the logarithm is finite.
    const float u = (static_cast<float>(static_cast<int32_t>(group.items[i] >> 1)) + 0.5f) * 0x1p-31f;
    radius[i] = std::max(-2 * log_of(u), 0.0f);
  }
  square_roots(radius, kPairs);
  for (int i = 0; i < kPairs; ++i) {
    const Turn angle = turn(group.items[kPairs + i]);
    items[i] = mean + std * (radius[i] * angle.cos);
    items[kPairs + i] = mean + std * (radius[i] * angle.sin);
  }
}

void normals(const Group<uint64_t>& group, double mean, double std, double* items) {
  constexpr int kPairs = Group<uint64_t>::kItems / 2;
  for (int i = 0; i < kPairs; ++i) {
    const double u = unit(group.items[i]) + 0x1p-54;
    const double radius = std::sqrt(std::max(-2 * std::log(u), 0.0));
    const double angle = unit(group.items[kPairs + i]) * (2 * std::numbers::pi);
    items[i] = mean + std * (radius * std::cos(angle));
    items[kPairs + i] = mean + std * (radius * std::sin(angle));
  }
}

uint64_t multiply_high(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>(static_cast<Wide>(a) * b >> 64);
}

}  // namespace

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) noexcept {
  auto [x0, x1, x2, x3] = counter;
  auto [k0, k1] = key;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(x0) * kMultiply0, p1 = static_cast<uint64_t>(x2) * kMultiply1;
    x0 = static_cast<uint32_t>(p1 >> 32) ^ x1 ^ k0;
    x1 = static_cast<uint32_t>(p1);
    x2 = static_cast<uint32_t>(p0 >> 32) ^ x3 ^ k1;
    x3 = static_cast<uint32_t>(p0);
    k0 += kStep0;
    k1 += kStep1;
  }
  return {x0, x1, x2, x3};
}

uint64_t blocks_for(Draw kind, DType dtype, int64_t count) noexcept {
  const bool wide = kind == Draw::integers || size_of(dtype) == 8;
  const auto items = static_cast<uint64_t>(wide ? Group<uint64_t>::kItems : Group<uint32_t>::kItems);
  return (static_cast<uint64_t>(count) + items - 1) / items * kLanes;
}

void fill_uniform(const View& to, const Reservation& from, double low, double high) {
  in_precision_of(to.dtype, [&](auto real, auto bits, DType type) {
    using Real = decltype(real);
    using Bits = decltype(bits);
    const auto first = rounded<Real>(low, to.dtype), end = rounded<Real>(high, to.dtype);
    const Real last = first < end ? below(end, to.dtype) : first;
    generate<Bits, Real>(to, from, type, [=](const Group<Bits>& group, Real* items) {
      for (int i = 0; i < Group<Bits>::kItems; ++i) {
        const Real u = unit(group.items[i]);
        // Not low + u * (high - low), whose difference may be infinite.
        const Real x = first * (1 - u) + end * u;
        items[i] = std::min(std::max(x, first), last);
      }
    });
  });
}

void fill_normal(const View& to, const Reservation& from, double mean, double std) {
  in_precision_of(to.dtype, [&](auto real, auto bits, DType type) {
    using Real = decltype(real);
    using Bits = decltype(bits);
    generate<Bits, Real>(to, from, type,
                         [mean = static_cast<Real>(mean), std = static_cast<Real>(std)](
                             const Group<Bits>& group, Real* items) { normals(group, mean, std, items); });
  });
}

void fill_integers(const View& to, const Reservation& from, int64_t low, int64_t high) {
  const auto first = static_cast<uint64_t>(low);
  const uint64_t range = high > low ? static_cast<uint64_t>(high) - first : 1;
  generate<uint64_t, uint64_t>(to, from, DType::uint64, [=](const Group<uint64_t>& group, uint64_t* items) {
    for (int i = 0; i < kHalves; ++i) items[i] = first + multiply_high(group.items[i], range);
  });
}

void fill_bits(const View& to, const Reservation& from) {
  auto copy_items = [](const auto& group, auto* items) {
    std::copy(std::begin(group.items), std::end(group.items), items);
  };
  if (size_of(to.dtype) == 8) {
    generate<uint64_t, uint64_t>(to, from, DType::uint64, copy_items);
  } else {
    generate<uint32_t, uint32_t>(to, from, DType::uint32, copy_items);
  }
}

std::vector<int64_t> permutation(int64_t count, const Reservation& from) {
  std::vector<int64_t> order(static_cast<size_t>(count)), draws(order.size());
  const int64_t one = 1;
  fill_bits({reinterpret_cast<char*>(draws.data()), DType::uint64, 1, &count, &one}, from);
  std::iota(order.begin(), order.end(), int64_t{0});
  for (size_t i = order.size(); i > 1; --i) {
    const auto draw = static_cast<unsigned __int128>(static_cast<uint64_t>(draws[i - 1]));
    std::swap(order[i - 1], order[static_cast<size_t>(draw * i >> 64)]);
  }
  return order;
}

}  // namespace weft
