// sort_words.cpp: quicksort in vectors with AVX-512 (after Bramas 2017, "A novel hybrid quicksort algorithm
// vectorized using AVX-512", arXiv:1704.08579), radix sort elsewhere.
//
// A partition reads vectors from that end of its range with less free space, and writes each vector, its
// smaller elements first, whole at both ends: what is garbage on one side is overwritten later. Kept: after
// a read, both ends have room for all vectors just read. Ranges of up to kBase vectors are sorted by a
// bitonic network in registers. A recursion that becomes too deep goes on with the radix sort, so the time
// is O(n log n) whatever the input.
#include "kernels/sort_words.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "engine/team.h"
#include "kernels/simd.h"
#include "storage/isa.h"

namespace weft {
namespace {

constexpr int64_t kParallelWords = 64 << 10;  // less is sorted on the calling thread
constexpr int kDigitBits = 11;
constexpr int64_t kRadixWords = 512;  // below, comparing is faster

template <class Word>
void radix_sort(Word* words, int64_t count) {
  if (count < kRadixWords) return std::sort(words, words + count);
  constexpr int kDigits = (static_cast<int>(sizeof(Word)) * 8 + kDigitBits - 1) / kDigitBits;
  constexpr size_t kValues = size_t{1} << kDigitBits;
  const auto spare = std::make_unique_for_overwrite<Word[]>(static_cast<size_t>(count));
  std::vector<int64_t> places(kDigits * kValues);
  for (int64_t i = 0; i < count; ++i)
    for (int d = 0; d < kDigits; ++d)
      ++places[static_cast<size_t>(d) * kValues + ((words[i] >> (d * kDigitBits)) & (kValues - 1))];
  Word *from = words, *to = spare.get();
  for (int d = 0; d < kDigits; ++d) {
    int64_t* const place = &places[static_cast<size_t>(d) * kValues];
    const int shift = d * kDigitBits;
    if (place[(from[0] >> shift) & (kValues - 1)] == count) continue;  // all have the same digit
    int64_t sum = 0;
    for (size_t v = 0; v < kValues; ++v) sum += std::exchange(place[v], sum);
    for (int64_t i = 0; i < count; ++i) to[place[(from[i] >> shift) & (kValues - 1)]++] = from[i];
    std::swap(from, to);
  }
  if (from != words) std::memcpy(words, from, static_cast<size_t>(count) * sizeof(Word));
}

}  // namespace

#ifdef WEFT_X86
WEFT_AVX512_BEGIN
namespace {

template <class Word>
struct Lanes;

template <>
struct Lanes<uint32_t> {
  static constexpr int kCount = 16;
  using Mask = __mmask16;
  static __m512i all(uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }
  static __m512i ids() { return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }
  static __m512i permute(__m512i index, __m512i x) { return _mm512_permutexvar_epi32(index, x); }
  static __m512i min(__m512i x, __m512i y) { return _mm512_min_epu32(x, y); }
  static __m512i max(__m512i x, __m512i y) { return _mm512_max_epu32(x, y); }
  static __m512i max_in(__m512i other, Mask mask, __m512i x, __m512i y) {
    return _mm512_mask_max_epu32(other, mask, x, y);
  }
  static Mask below(__m512i x, __m512i y) { return _mm512_cmplt_epu32_mask(x, y); }
  static __m512i compress(Mask mask, __m512i x) { return _mm512_maskz_compress_epi32(mask, x); }
  static __m512i expand(__m512i other, Mask mask, __m512i x) {
    return _mm512_mask_expand_epi32(other, mask, x);
  }
  static __m512i load(Mask mask, const uint32_t* from) {
    return _mm512_mask_loadu_epi32(_mm512_set1_epi32(-1), mask, from);
  }
  static void store(uint32_t* to, Mask mask, __m512i x) { _mm512_mask_storeu_epi32(to, mask, x); }
};

template <>
struct Lanes<uint64_t> {
  static constexpr int kCount = 8;
  using Mask = __mmask8;
  static __m512i all(uint64_t x) { return _mm512_set1_epi64(static_cast<long long>(x)); }
  static __m512i ids() { return _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7); }
  static __m512i permute(__m512i index, __m512i x) { return _mm512_permutexvar_epi64(index, x); }
  static __m512i min(__m512i x, __m512i y) { return _mm512_min_epu64(x, y); }
  static __m512i max(__m512i x, __m512i y) { return _mm512_max_epu64(x, y); }
  static __m512i max_in(__m512i other, Mask mask, __m512i x, __m512i y) {
    return _mm512_mask_max_epu64(other, mask, x, y);
  }
  static Mask below(__m512i x, __m512i y) { return _mm512_cmplt_epu64_mask(x, y); }
  static __m512i compress(Mask mask, __m512i x) { return _mm512_maskz_compress_epi64(mask, x); }
  static __m512i expand(__m512i other, Mask mask, __m512i x) {
    return _mm512_mask_expand_epi64(other, mask, x);
  }
  static __m512i load(Mask mask, const uint64_t* from) {
    return _mm512_mask_loadu_epi64(_mm512_set1_epi32(-1), mask, from);
  }
  static void store(uint64_t* to, Mask mask, __m512i x) { _mm512_mask_storeu_epi64(to, mask, x); }
};

constexpr int kBase = 16;   // vectors sorted in registers
constexpr int kUnroll = 4;  // vectors that a partition reads at a time

// Lanes [0, count).
template <class L>
typename L::Mask first_lanes(int64_t count) {
  return static_cast<typename L::Mask>(
      _bzhi_u32(0xffffffff, static_cast<unsigned>(std::max<int64_t>(count, 0))));
}

// --- networks ---------------------------------------------------------------------------------------------

// Lane i meets lane i ^ distance; the one with the upper number gets the larger element.
template <class L, int distance>
[[gnu::always_inline]] inline void exchange_lanes(__m512i& x) {
  constexpr auto upper = [] {
    constexpr unsigned top = std::bit_floor(static_cast<unsigned>(distance));
    unsigned mask = 0;
    for (unsigned i = 0; i < L::kCount; ++i) mask |= (i & top ? 1u : 0u) << i;
    return static_cast<typename L::Mask>(mask);
  }();
  const __m512i other = L::permute(_mm512_xor_si512(L::ids(), L::all(distance)), x);
  x = L::max_in(L::min(x, other), upper, x, other);
}

// From a bitonic sequence to a sorted one, within each vector.
template <class L, int distance = L::kCount / 2>
[[gnu::always_inline]] inline void merge_lanes(__m512i& x) {
  exchange_lanes<L, distance>(x);
  if constexpr (distance > 1) merge_lanes<L, distance / 2>(x);
}

template <class L, int size = 2>
[[gnu::always_inline]] inline void sort_lanes(__m512i& x) {
  exchange_lanes<L, size - 1>(x);
  if constexpr (size > 2) merge_lanes<L, size / 4>(x);
  if constexpr (size < L::kCount) sort_lanes<L, size * 2>(x);
}

template <class L>
[[gnu::always_inline]] inline void exchange(__m512i& x, __m512i& y) {
  const __m512i low = L::min(x, y);
  y = L::max(x, y);
  x = low;
}

template <class L, int vectors>
[[gnu::always_inline]] inline void merge_vectors(__m512i* x) {
  if constexpr (vectors == 1) {
    merge_lanes<L>(x[0]);
  } else {
#pragma GCC unroll 8
    for (int i = 0; i < vectors / 2; ++i) exchange<L>(x[i], x[i + vectors / 2]);
    merge_vectors<L, vectors / 2>(x);
    merge_vectors<L, vectors / 2>(x + vectors / 2);
  }
}

template <class L, int vectors>
[[gnu::always_inline]] inline void sort_vectors(__m512i* x) {
  if constexpr (vectors == 1) {
    sort_lanes<L>(x[0]);
  } else {
    constexpr int half = vectors / 2;
    sort_vectors<L, half>(x);
    sort_vectors<L, half>(x + half);
    const __m512i backwards = _mm512_xor_si512(L::ids(), L::all(L::kCount - 1));
#pragma GCC unroll 8
    for (int i = 0; i < half; ++i) {
      const __m512i low = x[i], high = L::permute(backwards, x[vectors - 1 - i]);
      x[i] = L::min(low, high);
      x[vectors - 1 - i] = L::max(low, high);
    }
    merge_vectors<L, half>(x);
    merge_vectors<L, half>(x + half);
  }
}

template <class Word, int vectors>
void sort_small(Word* words, int64_t count) {
  using L = Lanes<Word>;
  __m512i x[vectors];
#pragma GCC unroll 16
  for (int i = 0; i < vectors; ++i)
    x[i] =
        L::load(first_lanes<L>(std::min<int64_t>(count - i * L::kCount, L::kCount)), words + i * L::kCount);
  sort_vectors<L, vectors>(x);
#pragma GCC unroll 16
  for (int i = 0; i < vectors; ++i)
    L::store(words + i * L::kCount, first_lanes<L>(std::min<int64_t>(count - i * L::kCount, L::kCount)),
             x[i]);
}

template <class Word>
void sort_base(Word* words, int64_t count) {
  constexpr int kLanes = Lanes<Word>::kCount;
  if (count <= kLanes) return sort_small<Word, 1>(words, count);
  if (count <= 2 * kLanes) return sort_small<Word, 2>(words, count);
  if (count <= 4 * kLanes) return sort_small<Word, 4>(words, count);
  if (count <= 8 * kLanes) return sort_small<Word, 8>(words, count);
  sort_small<Word, 16>(words, count);
}

// --- partition --------------------------------------------------------------------------------------------

// Moves the words below the pivot to the front and returns how many; at least 3 * kUnroll vectors.
template <class Word>
int64_t partition_words(Word* words, int64_t count, Word pivot) {
  using L = Lanes<Word>;
  constexpr int64_t kLanes = L::kCount, kStep = kLanes * kUnroll;
  const __m512i pivots = L::all(pivot);
  // Set aside: a step from the beginning, and from the end a step and what is more than whole steps.
  __m512i aside[3 * kUnroll + 1];
  const int64_t odd = count % kStep, odd_vectors = (odd + kLanes - 1) / kLanes;
  for (int i = 0; i < kUnroll; ++i) {
    aside[i] = _mm512_loadu_si512(words + i * kLanes);
    aside[kUnroll + i] = _mm512_loadu_si512(words + count - odd - kStep + i * kLanes);
  }
  for (int64_t i = 0; i < odd_vectors; ++i)
    aside[2 * kUnroll + i] =
        L::load(first_lanes<L>(std::min(odd - i * kLanes, kLanes)), words + count - odd + i * kLanes);
  Word *read = words + kStep, *read_end = words + count - odd - kStep;
  Word *write = words, *write_end = words + count;
  while (read < read_end) {
    const bool left = read - write <= write_end - read_end;
    const Word* from = left ? read : read_end - kStep;
    read += left ? kStep : 0;
    read_end -= left ? 0 : kStep;
    __m512i x[kUnroll];
#pragma GCC unroll 4
    for (int i = 0; i < kUnroll; ++i) x[i] = _mm512_loadu_si512(from + i * kLanes);
#pragma GCC unroll 4
    for (int i = 0; i < kUnroll; ++i) {
      const auto low = L::below(x[i], pivots);
      const int lows = __builtin_popcount(low);
      const auto high = static_cast<typename L::Mask>(~low);
      const auto upper = static_cast<typename L::Mask>(~_bzhi_u32(0xffffffff, static_cast<unsigned>(lows)));
      const __m512i ordered = L::expand(L::compress(low, x[i]), upper, L::compress(high, x[i]));
      _mm512_storeu_si512(write, ordered);
      _mm512_storeu_si512(write_end - kLanes, ordered);
      write += lows;
      write_end -= kLanes - lows;
    }
  }
  for (int64_t i = 0; i < 2 * kUnroll + odd_vectors; ++i) {
    const int64_t used = i < 2 * kUnroll ? kLanes : std::min(odd - (i - 2 * kUnroll) * kLanes, kLanes);
    const auto valid = first_lanes<L>(used);
    const auto low = static_cast<typename L::Mask>(L::below(aside[i], pivots) & valid);
    const auto high = static_cast<typename L::Mask>(~low & valid);
    const int lows = __builtin_popcount(low), highs = __builtin_popcount(high);
    L::store(write, first_lanes<L>(lows), L::compress(low, aside[i]));
    write += lows;
    write_end -= highs;
    L::store(write_end, first_lanes<L>(highs), L::compress(high, aside[i]));
  }
  return write - words;
}

// About the median: of words spread over the range.
template <class Word>
Word choose_pivot(const Word* words, int64_t count) {
  constexpr int kLanes = Lanes<Word>::kCount;
  const int64_t samples = count < 4096 ? kLanes : kLanes * 4;
  Word sample[kLanes * 4];
  for (int64_t i = 0; i < samples; ++i) sample[i] = words[(i * 2 + 1) * (count / (2 * samples))];
  sort_base(sample, samples);
  return sample[samples / 2];
}

// Splits into words that are smaller than those of the other part; if the front cannot be smaller, into
// those that equal the smallest (`front_done`: they are in order) and the others.
template <class Word>
int64_t split(Word* words, int64_t count, bool& front_done) {
  const Word pivot = choose_pivot(words, count);
  front_done = false;
  const int64_t below = partition_words(words, count, pivot);
  if (below) return below;
  front_done = true;
  return pivot == static_cast<Word>(-1) ? count : partition_words(words, count, static_cast<Word>(pivot + 1));
}

template <class Word>
void quicksort(Word* words, int64_t count, int depth) {
  while (count > kBase * Lanes<Word>::kCount) {
    if (depth-- == 0) return radix_sort(words, count);
    bool front_done;
    const int64_t front = split(words, count, front_done);
    if (!front_done) quicksort(words, front, depth);
    words += front;
    count -= front;
  }
  sort_base(words, count);
}

template <class Word>
int depth_for(int64_t count) {
  return 2 * std::bit_width(static_cast<uint64_t>(count));
}

template <class Word>
struct Part {
  Word* words;
  int64_t count;
};

// A few rounds of splitting give the team something to share; the parts of a round are split in parallel.
template <class Word>
void quicksort_on_team(Word* words, int64_t count) {
  const int threads = team_size();
  if (count < kParallelWords || threads == 1) return quicksort(words, count, depth_for<Word>(count));
  std::vector<Part<Word>> parts{{words, count}};
  for (int wanted = 1; wanted < 2 * threads; wanted *= 2) {
    std::vector<Part<Word>> next(parts.size() * 2);
    parallel_for(static_cast<int64_t>(parts.size()), 1, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        const auto [from, size] = parts[i];
        if (size <= kBase * Lanes<Word>::kCount) {
          next[2 * i] = parts[i];
          next[2 * i + 1] = {from, 0};
          continue;
        }
        bool front_done;
        const int64_t front = split(from, size, front_done);
        next[2 * i] = {from, front_done ? 0 : front};
        next[2 * i + 1] = {from + front, size - front};
      }
    });
    parts = std::move(next);
  }
  parallel_for(static_cast<int64_t>(parts.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto& part = parts[static_cast<size_t>(i)];
      quicksort(part.words, part.count, depth_for<Word>(part.count));
    }
  });
}

void sort_avx512(uint32_t* words, int64_t count) { quicksort_on_team(words, count); }
void sort_avx512(uint64_t* words, int64_t count) { quicksort_on_team(words, count); }

}  // namespace
WEFT_AVX512_END
#endif

namespace {

template <class Word>
void sort_any(Word* words, int64_t count) {
#ifdef WEFT_X86
  if (isa() == Isa::avx512) return sort_avx512(words, count);
#endif
  radix_sort(words, count);
}

}  // namespace

void sort_words(uint32_t* words, int64_t count) { sort_any(words, count); }
void sort_words(uint64_t* words, int64_t count) { sort_any(words, count); }
void sort_words_radix(uint32_t* words, int64_t count) { radix_sort(words, count); }
void sort_words_radix(uint64_t* words, int64_t count) { radix_sort(words, count); }

}  // namespace weft
