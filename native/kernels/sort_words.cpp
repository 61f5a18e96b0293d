// sort_words.cpp: quicksort in vectors (after Bramas 2017, "A novel hybrid quicksort algorithm vectorized
// using AVX-512", arXiv:1704.08579) where the level has them, radix sort at the baseline.
//
// A partition reads vectors from that end of its range with less free space, and writes each vector, its
// smaller elements first, whole at both ends: what is garbage on one side is overwritten later. Kept: after
// a read, both ends have room for all vectors just read. Ranges of up to kBase vectors are sorted by a
// bitonic network in registers. A recursion that becomes too deep goes on with the radix sort, so the time
// is O(n log n) for all inputs.
#include "kernels/sort_words.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "engine/team.h"
#include "kernels/first_set.h"

namespace weft {
namespace {

constexpr int64_t kParallelWords = 64 << 10;  // less is sorted on the calling thread
constexpr int kDigitBits = 11;
constexpr int64_t kRadixWords = 512;  // below, comparing is faster

template <class Word>
[[gnu::always_inline]] inline void exchange(Word& x, Word& y) {
  const Word low = std::min(x, y);
  y = std::max(x, y);
  x = low;
}

// Merge sort without branches on words. A merge runs from both ends at once, half of the result each, so
// neither of the two needs to look for the end of its input: of words + half, only the first half or less is
// read by the one, and the rest by the other.
template <class Word>
void merge_sort(Word* words, int64_t count, Word* spare) {
  if (count <= 4) {
    if (count == 2) exchange(words[0], words[1]);
    if (count < 3) return;
    if (count == 4) exchange(words[2], words[3]);
    exchange(words[0], words[1]);
    if (count == 3) {
      exchange(words[1], words[2]);
      return exchange(words[0], words[1]);
    }
    exchange(words[0], words[2]);
    exchange(words[1], words[3]);
    return exchange(words[1], words[2]);
  }
  const int64_t half = count / 2;
  merge_sort(words, half, spare);
  merge_sort(words + half, count - half, spare);
  const Word *left = words, *right = words + half;
  const Word *left_last = right - 1, *right_last = words + count - 1;
  Word *to = spare, *to_last = spare + count - 1;
  for (int64_t i = 0; i < half; ++i) {
    const bool from_right = *right < *left;
    *to++ = from_right ? *right : *left;
    right += from_right;
    left += !from_right;
    const bool from_left = *right_last < *left_last;
    *to_last-- = from_left ? *left_last : *right_last;
    left_last -= from_left;
    right_last -= !from_left;
  }
  if (count % 2) *to = left <= left_last ? *left : *right;
  std::copy_n(spare, count, words);
}

template <class Word>
void radix_sort(Word* words, int64_t count) {
  if (count < kRadixWords) {
    Word spare[kRadixWords];
    return merge_sort(words, count, spare);
  }
  constexpr int kDigits = (static_cast<int>(sizeof(Word)) * 8 + kDigitBits - 1) / kDigitBits;
  constexpr size_t kValues = size_t{1} << kDigitBits;
  const auto spare = std::make_unique_for_overwrite<Word[]>(static_cast<size_t>(count));
  std::vector<int64_t> counts(kDigits * kValues);
  for (int64_t i = 0; i < count; ++i)
    for (int d = 0; d < kDigits; ++d)
      ++counts[static_cast<size_t>(d) * kValues + ((words[i] >> (d * kDigitBits)) & (kValues - 1))];
  Word *from = words, *to = spare.get();
  for (int d = 0; d < kDigits; ++d) {
    int64_t* const next = &counts[static_cast<size_t>(d) * kValues];
    const int shift = d * kDigitBits;
    if (next[(from[0] >> shift) & (kValues - 1)] == count) continue;  // all have the same digit
    int64_t sum = 0;
    for (size_t v = 0; v < kValues; ++v) sum += std::exchange(next[v], sum);
    for (int64_t i = 0; i < count; ++i) to[next[(from[i] >> shift) & (kValues - 1)]++] = from[i];
    std::swap(from, to);
  }
  if (from != words) std::memcpy(words, from, static_cast<size_t>(count) * sizeof(Word));
}

template <class Word>
struct Quicksort {
  // Splits more than `base` words into those that are smaller than the others, and returns how many; if there
  // are none, into those that equal the smallest (`front_done`: they are in order) and the others.
  int64_t (*split)(Word* words, int64_t count, bool& front_done);
  void (*sort)(Word* words, int64_t count, int depth);  // null where there is none
  int64_t base;
};

}  // namespace
}  // namespace weft

#define WEFT_EACH_LEVEL "kernels/sort_words.inc"
#include "kernels/each_level.h"

namespace weft {
namespace {

int depth_for(int64_t count) { return 2 * std::bit_width(static_cast<uint64_t>(count)); }

template <class Word>
struct Part {
  Word* words;
  int64_t count;
};

// A few rounds of splitting give the team something to share; the parts of a round are split in parallel.
template <class Word>
void sort_on_team(Word* words, int64_t count) {
  const Quicksort<Word>& quick = *WEFT_AT_LEVEL(kQuicksort<Word>);
  if (!quick.sort) return radix_sort(words, count);
  const int threads = team_size();
  if (count < kParallelWords || threads == 1) return quick.sort(words, count, depth_for(count));
  std::vector<Part<Word>> parts{{words, count}};
  for (int part_count = 1; part_count < 2 * threads; part_count *= 2) {
    std::vector<Part<Word>> next(parts.size() * 2);
    parallel_for(static_cast<int64_t>(parts.size()), 1, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        const auto [from, size] = parts[i];
        if (size <= quick.base) {
          next[2 * i] = parts[i];
          next[2 * i + 1] = {from, 0};
          continue;
        }
        bool front_done;
        const int64_t front = quick.split(from, size, front_done);
        next[2 * i] = {from, front_done ? 0 : front};
        next[2 * i + 1] = {from + front, size - front};
      }
    });
    parts = std::move(next);
  }
  parallel_for(static_cast<int64_t>(parts.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto& part = parts[static_cast<size_t>(i)];
      quick.sort(part.words, part.count, depth_for(part.count));
    }
  });
}

}  // namespace

void sort_words(uint32_t* words, int64_t count) { sort_on_team(words, count); }
void sort_words(uint64_t* words, int64_t count) { sort_on_team(words, count); }

}  // namespace weft
