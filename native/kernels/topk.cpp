// topk.cpp: the k largest or smallest along an axis.
//
// A line is cut into pieces; each collects candidates that reach a bound, and whenever it has too many keeps
// the best k, whose last one is the new bound: an element behind it with an equal word has the higher index
// and loses. The first bound is the k-th best of a sample of the line, or of the largest words of kColumns
// disjoint sets of elements: k elements are known to reach it. Blocks whose largest word is below the bound
// are passed by in vectors. If k is a large part of the line, all of it is sorted.
#include <bit>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/team.h"
#include "kernels/kernels.h"
#include "kernels/rows.h"
#include "kernels/sort_rows.h"

namespace weft {
namespace {

constexpr int64_t kBlock = 1024;               // elements encoded at a time
constexpr int64_t kGroup = 64;                 // words looked at together
constexpr int64_t kPieceElements = 128 << 10;  // of a line
constexpr int64_t kSortShare = 16;             // from length / so many on, sorting everything is faster

// Larger words are better; then smaller indices.
template <class Word>
struct Candidate {
  Word word;
  int64_t index;
  bool operator<(const Candidate& o) const { return word != o.word ? word > o.word : index < o.index; }
};

template <class T>
struct Line {
  using Word = WordOf<T>;
  const char* data;
  int64_t step, count;
  Order<Word> order;

  const char* at(int64_t index) const { return data + index * step * static_cast<int64_t>(sizeof(T)); }
};

template <class Word>
using Candidates = std::vector<Candidate<Word>>;

template <class Word>
void keep_best(Candidates<Word>& candidates, int64_t k) {
  if (static_cast<int64_t>(candidates.size()) <= k) return;
  std::nth_element(candidates.begin(), candidates.begin() + (k - 1), candidates.end());
  candidates.resize(static_cast<size_t>(k));
}

template <class T>
WordOf<T> first_bound(const Line<T>& line, int64_t k) {
  const int64_t samples = std::max<int64_t>(8 * k, 1024), stride = line.count / samples;
  if (stride < 4) return 0;
  std::vector<WordOf<T>> words(static_cast<size_t>(samples));
  encode_line<T>(line.data, line.step * stride, samples, line.order, words.data());
  std::nth_element(words.begin(), words.begin() + (k - 1), words.end(), std::greater<>());
  return words[static_cast<size_t>(k - 1)];
}

template <class Word>
Word bound_of_block(const Word* words, int64_t count, int64_t k) {
  if (k > kColumns || count < 4 * kColumns) return 0;
  Word maxima[kColumns];
  column_maxima(words, count, maxima);
  std::nth_element(maxima, maxima + (k - 1), maxima + kColumns, std::greater<>());
  return maxima[k - 1];
}

// The best k of elements [begin, end) that reach the bound.
template <class T>
Candidates<WordOf<T>> collect(const Line<T>& line, int64_t begin, int64_t end, int64_t k, WordOf<T> bound) {
  using Word = WordOf<T>;
  Candidates<Word> candidates;
  const auto capacity = static_cast<size_t>(2 * k + kGroup);
  candidates.reserve(capacity + kGroup);
  Word words[kBlock];
  int64_t reaching[kGroup];
  for (; begin < end; begin += kBlock) {
    const int64_t count = std::min(kBlock, end - begin);
    encode_line<T>(line.at(begin), line.step, count, line.order, words);
    if (bound == 0) bound = bound_of_block(words, count, k);
    for (int64_t group = 0; group < count; group += kGroup) {
      const int64_t stop = std::min(group + kGroup, count);
      if (largest_word(words + group, stop - group, sizeof(Word)) < bound) continue;
      int64_t number = 0;
      for (int64_t i = group; i < stop; ++i) {
        reaching[number] = i;
        number += words[i] >= bound;
      }
      for (int64_t j = 0; j < number; ++j) candidates.push_back({words[reaching[j]], begin + reaching[j]});
      if (candidates.size() < capacity) continue;
      keep_best(candidates, k);
      const Word last = candidates.back().word;  // nth_element has put the k-th there
      if (last == static_cast<Word>(-1)) return candidates;
      bound = std::max(bound, static_cast<Word>(last + 1));
    }
  }
  keep_best(candidates, k);
  return candidates;
}

template <class T>
Candidates<WordOf<T>> best_of_line(const Line<T>& line, int64_t k) {
  using Word = WordOf<T>;
  const Word bound = first_bound(line, k);
  Candidates<Word> all;
  if (line.count <= kPieceElements) {
    all = collect(line, 0, line.count, k, bound);
  } else {
    std::mutex mutex;
    parallel_for(line.count, kPieceElements, [&](int64_t begin, int64_t end) {
      Candidates<Word> candidates = collect(line, begin, end, k, bound);
      const std::lock_guard guard(mutex);
      all.insert(all.end(), candidates.begin(), candidates.end());
    });
    keep_best(all, k);
  }
  std::sort(all.begin(), all.end());
  return all;
}

// The indices of the best k, in order.
template <class T>
void top_indices(const Line<T>& line, int64_t k, int64_t* positions) {
  if (k >= line.count / kSortShare) {
    using Word = WordOf<T>;
    const auto words = std::make_unique_for_overwrite<Word[]>(static_cast<size_t>(line.count));
    const auto all = std::make_unique_for_overwrite<int64_t[]>(static_cast<size_t>(line.count));
    // The other way round: sorting puts the smallest words first.
    const Order<Word> order{static_cast<Word>(~line.order.flip), static_cast<Word>(~line.order.nan), true};
    encode_line<T>(line.data, line.step, line.count, order, words.get());
    argsort_words(words.get(), line.count, all.get());
    std::copy_n(all.get(), k, positions);
  } else {
    for (const auto& candidate : best_of_line(line, k)) *positions++ = candidate.index;
  }
}

template <class T>
void run_topk(const View& x, const View& values, const View& indices, int axis, bool largest) {
  const Lines<3> lines({&x, &values, &indices}, axis);
  const int64_t k = lines.length[1];
  const auto order = Order<WordOf<T>>::make(!largest, largest, true);
  constexpr auto kSize = static_cast<int64_t>(sizeof(T));
  parallel_for(lines.count, lines_per_piece(lines.length[0]), [&](int64_t begin, int64_t end) {
    std::vector<int64_t> positions(static_cast<size_t>(k));
    for (int64_t line = begin; line < end; ++line) {
      const auto [from, value, index] = lines.at(line);
      const Line<T> elements{from, lines.step[0], lines.length[0], order};
      top_indices(elements, k, positions.data());
      for (int64_t i = 0; i < k; ++i) {
        const int64_t position = positions[static_cast<size_t>(i)];
        std::memcpy(value + i * lines.step[1] * kSize, elements.at(position), sizeof(T));
        store_as(index + i * lines.step[2] * 8, position);
      }
    }
  });
}

class TopK final : public Kernel {
 public:
  TopK(int axis, bool largest) : axis_(axis), largest_(largest) {}

  void run(const Call& call) const override {
    const View *x = call.operands, *values = x + 1, *indices = x + 2;
    if (count_of(*values) == 0) return;
    const int axis = axis_of(*x, axis_);
    if (size_along(*values, axis) > size_along(*x, axis))
      throw ValueError("topk: k = " + std::to_string(size_along(*values, axis)) + " of only " +
                       std::to_string(size_along(*x, axis)) + " elements along axis " + std::to_string(axis));
    with_ordered(x->dtype,
                 [&]<class T>(std::type_identity<T>) { run_topk<T>(*x, *values, *indices, axis, largest_); });
  }

 private:
  const int axis_;
  const bool largest_;
};

}  // namespace

Ref<Kernel> make_topk(int axis, bool largest) { return Ref<Kernel>(new TopK(axis, largest)); }

}  // namespace weft
