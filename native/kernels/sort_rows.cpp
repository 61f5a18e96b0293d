// sort_rows.cpp: lines as words, and stable orders of words.
//
// A word and its place packed into 64 bits are all different, so the fast unstable sort gives the stable
// order. Words of 64 bits are packed by their upper bits, counted from the highest that differs; what ties
// there is ordered by whole words afterwards.
#include "kernels/sort_rows.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <string>
#include <vector>

#include "engine/error.h"
#include "engine/team.h"
#include "kernels/rows.h"
#include "kernels/simd.h"
#include "kernels/sort_words.h"
#include "storage/isa.h"

namespace weft {
namespace {

constexpr int64_t kPiece = 32 << 10;
constexpr int64_t kCountingWords = 16 << 10;  // lines of 16-bit words from which counting values is faster

template <class T>
[[gnu::always_inline]] inline void encode_all(const char* from, int64_t step, int64_t count,
                                              Order<WordOf<T>> order, WordOf<T>* to) {
  if (step == 1) {
    for (int64_t i = 0; i < count; ++i)
      to[i] = detail::encode<T>(from + i * static_cast<int64_t>(sizeof(T)), order);
  } else {
    for (int64_t i = 0; i < count; ++i)
      to[i] = detail::encode<T>(from + i * step * static_cast<int64_t>(sizeof(T)), order);
  }
}

template <class T>
[[gnu::always_inline]] inline void decode_all(const WordOf<T>* words, int64_t count, WordOf<T> flip, char* to,
                                              int64_t step) {
  if (step == 1) {
    for (int64_t i = 0; i < count; ++i)
      store_as(to + i * static_cast<int64_t>(sizeof(T)), detail::decode<T>(words[i], flip));
  } else {
    for (int64_t i = 0; i < count; ++i)
      store_as(to + i * step * static_cast<int64_t>(sizeof(T)), detail::decode<T>(words[i], flip));
  }
}

template <class Word>
[[gnu::always_inline]] inline uint64_t largest(const void* words, int64_t count) {
  const auto* items = static_cast<const Word*>(words);
  Word most = 0;
  for (int64_t i = 0; i < count; ++i) most = std::max(most, items[i]);
  return most;
}

[[gnu::always_inline]] inline uint64_t largest_of(const void* words, int64_t count, size_t word_size) {
  if (word_size == 1) return largest<uint8_t>(words, count);
  if (word_size == 2) return largest<uint16_t>(words, count);
  if (word_size == 4) return largest<uint32_t>(words, count);
  return largest<uint64_t>(words, count);
}

#ifdef WEFT_X86
#define WEFT_WIDE [[gnu::target("avx2,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]]
template <class T>
WEFT_WIDE void encode_wide(const char* from, int64_t step, int64_t count, const Order<WordOf<T>>& order,
                           WordOf<T>* to) {
  encode_all<T>(from, step, count, order, to);
}
template <class T>
WEFT_WIDE void decode_wide(const WordOf<T>* words, int64_t count, WordOf<T> flip, char* to, int64_t step) {
  decode_all<T>(words, count, flip, to, step);
}
WEFT_WIDE uint64_t largest_wide(const void* words, int64_t count, size_t word_size) {
  return largest_of(words, count, word_size);
}
#endif

// Values that words of so many bits take, in their order: places by counting.
template <class Word>
void argsort_counting(const Word* words, int64_t count, int64_t* places) {
  std::vector<int64_t> next(size_t{1} << (sizeof(Word) * 8));
  for (int64_t i = 0; i < count; ++i) ++next[words[i]];
  int64_t sum = 0;
  for (int64_t& n : next) sum += std::exchange(n, sum);
  for (int64_t i = 0; i < count; ++i) places[next[words[i]]++] = i;
}

// `places` holds packed words meanwhile.
template <class Word>
uint64_t* argsort_packed(const Word* words, int64_t count, int64_t* places, Word least, int shift) {
  auto* packed = reinterpret_cast<uint64_t*>(places);
  parallel_for(count, kPiece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      packed[i] = static_cast<uint64_t>((words[i] - least) >> shift) << 32 | static_cast<uint64_t>(i);
  });
  sort_words(packed, count);
  return packed;
}

void unpack(uint64_t* packed, int64_t count) {
  for (int64_t i = 0; i < count; ++i) packed[i] &= 0xffffffff;
}

// Orders what has equal upper bits, unpacking on the way.
void order_ties(const uint64_t* words, uint64_t* packed, int64_t count) {
  for (int64_t begin = 0, end; begin < count; begin = end) {
    const uint64_t upper = packed[begin] >> 32;
    for (end = begin; end < count && packed[end] >> 32 == upper; ++end) packed[end] &= 0xffffffff;
    if (end - begin > 1)
      std::sort(packed + begin, packed + end, [words](uint64_t a, uint64_t b) {
        return words[a] != words[b] ? words[a] < words[b] : a < b;
      });
  }
}

}  // namespace

template <class T>
void encode_line(const char* from, int64_t step, int64_t count, const Order<WordOf<T>>& order,
                 WordOf<T>* to) {
#ifdef WEFT_X86
  if (isa() == Isa::avx512) return encode_wide<T>(from, step, count, order, to);
#endif
  encode_all<T>(from, step, count, order, to);
}

template <class T>
void decode_line(const WordOf<T>* words, int64_t count, WordOf<T> flip, char* to, int64_t step) {
#ifdef WEFT_X86
  if (isa() == Isa::avx512) return decode_wide<T>(words, count, flip, to, step);
#endif
  decode_all<T>(words, count, flip, to, step);
}

uint64_t largest_word(const void* words, int64_t count, size_t word_size) {
#ifdef WEFT_X86
  if (isa() == Isa::avx512) return largest_wide(words, count, word_size);
#endif
  return largest_of(words, count, word_size);
}

#define WEFT_LINES(T)                                                                               \
  template void encode_line<T>(const char*, int64_t, int64_t, const Order<WordOf<T>>&, WordOf<T>*); \
  template void decode_line<T>(const WordOf<T>*, int64_t, WordOf<T>, char*, int64_t);
WEFT_LINES(Bool)
WEFT_LINES(int8_t)
WEFT_LINES(int16_t)
WEFT_LINES(int32_t)
WEFT_LINES(int64_t)
WEFT_LINES(uint8_t)
WEFT_LINES(uint16_t)
WEFT_LINES(uint32_t)
WEFT_LINES(uint64_t)
WEFT_LINES(Float16)
WEFT_LINES(BFloat16)
WEFT_LINES(float)
WEFT_LINES(double)
#undef WEFT_LINES

namespace {

// The sorts below keep an element's index in 32 bits.
void check_count(int64_t count) {
  if (count >= int64_t{1} << 32)
    throw ValueError("sort: the order of at most 2^32 - 1 elements in a line can be found, got " +
                     std::to_string(count));
}

}  // namespace

void argsort_words(const uint8_t* words, int64_t count, int64_t* places) {
  argsort_counting(words, count, places);
}
void argsort_words(const uint16_t* words, int64_t count, int64_t* places) {
  check_count(count);
  if (count >= kCountingWords) return argsort_counting(words, count, places);
  unpack(argsort_packed<uint16_t>(words, count, places, 0, 0), count);
}
void argsort_words(const uint32_t* words, int64_t count, int64_t* places) {
  check_count(count);
  unpack(argsort_packed<uint32_t>(words, count, places, 0, 0), count);
}
void argsort_words(const uint64_t* words, int64_t count, int64_t* places) {
  check_count(count);
  if (count == 0) return;
  const auto [least, most] = std::minmax_element(words, words + count);
  const int shift = std::max(0, static_cast<int>(std::bit_width(*most - *least)) - 32);
  uint64_t* const packed = argsort_packed<uint64_t>(words, count, places, *least, shift);
  if (shift == 0) return unpack(packed, count);
  order_ties(words, packed, count);
}

}  // namespace weft
