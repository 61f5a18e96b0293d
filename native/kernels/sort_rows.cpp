// sort_rows.cpp: lines as words, and stable orders of words.
//
// A word and its index packed into 64 bits are all different, so the fast unstable sort gives the stable
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
#include "kernels/sort_words.h"

namespace weft {
namespace {

constexpr int64_t kPiece = 32 << 10;
constexpr int64_t kCountingWords = 16 << 10;  // lines of 16-bit words from which counting values is faster
constexpr int64_t kRadixWords = 192;          // the same, and counting their halves

struct WordRange {
  uint64_t least, most;
};

}  // namespace
}  // namespace weft

#define WEFT_EACH_LEVEL "kernels/sort_rows.inc"
#include "kernels/each_level.h"

namespace weft {
namespace {

// Values that words of so many bits take, in their order: the permutation by counting.
template <class Word>
void argsort_counting(const Word* words, int64_t count, int64_t* permutation) {
  std::vector<int64_t> next(size_t{1} << (sizeof(Word) * 8));
  for (int64_t i = 0; i < count; ++i) ++next[words[i]];
  int64_t sum = 0;
  for (int64_t& n : next) sum += std::exchange(n, sum);
  for (int64_t i = 0; i < count; ++i) permutation[next[words[i]]++] = i;
}

// The same for the lower half of 16-bit words, then for the upper.
void argsort_halves(const uint16_t* words, int64_t count, int64_t* permutation) {
  uint32_t next[2][256] = {};
  for (int64_t i = 0; i < count; ++i) ++next[0][words[i] & 255], ++next[1][words[i] >> 8];
  for (auto& counts : next) {
    uint32_t sum = 0;
    for (uint32_t& n : counts) sum += std::exchange(n, sum);
  }
  const auto by_lower = std::make_unique_for_overwrite<uint32_t[]>(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) by_lower[next[0][words[i] & 255]++] = static_cast<uint32_t>(i);
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t index = by_lower[static_cast<size_t>(i)];
    permutation[next[1][words[index] >> 8]++] = index;
  }
}

// `permutation` holds packed words meanwhile.
template <class Word>
uint64_t* argsort_packed(const Word* words, int64_t count, int64_t* permutation, Word least, int shift) {
  auto* packed = reinterpret_cast<uint64_t*>(permutation);
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

// Orders what has equal upper bits, unpacking on the way. Few have: pieces without are passed by in vectors.
void order_ties(const uint64_t* words, uint64_t* packed, int64_t count) {
  constexpr int64_t kTogether = 256;
  const auto has_ties = WEFT_AT_LEVEL(has_ties);
  for (int64_t begin = 0; begin < count;) {
    const int64_t end = std::min(begin + kTogether, count);
    // The last of them may equal what follows.
    if (!has_ties(packed + begin, std::min(end + 1, count) - begin)) {
      unpack(packed + begin, end - begin);
      begin = end;
    }
    for (int64_t stop; begin < end; begin = stop) {
      const uint64_t upper = packed[begin] >> 32;
      for (stop = begin; stop < count && packed[stop] >> 32 == upper; ++stop) packed[stop] &= 0xffffffff;
      if (stop - begin > 1)
        std::sort(packed + begin, packed + stop, [words](uint64_t i, uint64_t j) {
          return words[i] != words[j] ? words[i] < words[j] : i < j;
        });
    }
  }
}

}  // namespace

template <class T>
void encode_line(const char* from, int64_t step, int64_t count, const Order<WordOf<T>>& order,
                 WordOf<T>* to) {
  WEFT_AT_LEVEL(encode<T>)(from, step, count, order, to);
}

template <class T>
void decode_line(const WordOf<T>* words, int64_t count, WordOf<T> flip, char* to, int64_t step) {
  WEFT_AT_LEVEL(decode<T>)(words, count, flip, to, step);
}

template <class Word>
void column_maxima(const Word* words, int64_t count, Word* to) {
  WEFT_AT_LEVEL(maxima<Word>)(words, count, to);
}
template void column_maxima(const uint8_t*, int64_t, uint8_t*);
template void column_maxima(const uint16_t*, int64_t, uint16_t*);
template void column_maxima(const uint32_t*, int64_t, uint32_t*);
template void column_maxima(const uint64_t*, int64_t, uint64_t*);

uint64_t largest_word(const void* words, int64_t count, size_t word_size) {
  return WEFT_AT_LEVEL(largest)(words, count, word_size);
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

void argsort_words(const uint8_t* words, int64_t count, int64_t* permutation) {
  argsort_counting(words, count, permutation);
}
void argsort_words(const uint16_t* words, int64_t count, int64_t* permutation) {
  check_count(count);
  if (count >= kCountingWords) return argsort_counting(words, count, permutation);
  if (count >= kRadixWords) return argsort_halves(words, count, permutation);
  uint32_t packed[kRadixWords];
  for (int64_t i = 0; i < count; ++i) packed[i] = uint32_t{words[i]} << 16 | static_cast<uint32_t>(i);
  sort_words(packed, count);
  std::transform(packed, packed + count, permutation, [](uint32_t word) { return word & 0xffff; });
}
void argsort_words(const uint32_t* words, int64_t count, int64_t* permutation) {
  check_count(count);
  unpack(argsort_packed<uint32_t>(words, count, permutation, 0, 0), count);
}
void argsort_words(const uint64_t* words, int64_t count, int64_t* permutation) {
  check_count(count);
  if (count == 0) return;
  const auto [least, most] = WEFT_AT_LEVEL(range_of)(words, count);
  const int shift = std::max(0, static_cast<int>(std::bit_width(most - least)) - 32);
  uint64_t* const packed = argsort_packed<uint64_t>(words, count, permutation, least, shift);
  if (shift == 0) return unpack(packed, count);
  order_ties(words, packed, count);
}

}  // namespace weft
