// search.cpp: insertion indices in sorted lines, and the different elements of an array. Elements are
// compared as words (keys.h): NaN equals NaN and is the largest, -0 equals 0.
#include <memory>

#include "engine/team.h"
#include "kernels/kernels.h"
#include "kernels/rows.h"
#include "kernels/sort_rows.h"

namespace weft {
namespace {

constexpr int64_t kPiece = 4 << 10;
constexpr int64_t kTogether = 16;  // searches

class SearchSorted final : public Kernel {
 public:
  explicit SearchSorted(bool right) : right_(right) {}

  void run(const Call& call) const override {
    const View &sorted = call.operands[0], &values = call.operands[1], &y = call.operands[2];
    if (count_of(y) == 0) return;
    const Lines<3> lines({&y, &values, &sorted}, std::max(y.ndim - 1, 0));
    with_ordered(values.dtype, [&]<class T>(std::type_identity<T>) { search<T>(lines); });
  }

 private:
  template <class T>
  void search(const Lines<3>& lines) const {
    constexpr auto kSize = static_cast<int64_t>(sizeof(T));
    const int64_t pieces = (lines.length[0] + kPiece - 1) / kPiece;
    parallel_for(lines.count * pieces, lines_per_piece(std::min(lines.length[0], kPiece), kPiece),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t unit = begin; unit < end; ++unit) {
                     const auto [to, from, sorted] = lines.at(unit / pieces);
                     const Sorted line{sorted, lines.step[2] * kSize, lines.length[2]};
                     const int64_t first = unit % pieces * kPiece;
                     const int64_t last = std::min(first + kPiece, lines.length[0]);
                     for (int64_t i = first; i < last; i += kTogether) {
                       const int64_t count = std::min(kTogether, last - i);
                       T values[kTogether] = {};
                       for (int64_t k = 0; k < count; ++k)
                         values[k] = load_as<T>(from + (i + k) * lines.step[1] * kSize);
                       int64_t indices[kTogether];
                       if (right_)
                         search_together<T, true>(line, values, indices);
                       else
                         search_together<T, false>(line, values, indices);
                       for (int64_t k = 0; k < count; ++k)
                         store_as(to + (i + k) * lines.step[0] * 8, indices[k]);
                     }
                   }
                 });
  }

  struct Sorted {
    const char* data;
    int64_t step, count;  // step in bytes
  };

  // How many elements are smaller than each value; or, from the right, not larger. The searches take the same
  // steps and no branches, so the processor waits for the elements of all of them at the same time.
  template <class T, bool right>
  static void search_together(const Sorted& line, const T* values, int64_t* indices) {
    for (int64_t k = 0; k < kTogether; ++k) indices[k] = 0;
    const auto step_over = [&](int64_t k, int64_t size) {  // `size` elements, if the last of them is in front
      const auto last = load_as<T>(line.data + (indices[k] + size - 1) * line.step);
      indices[k] += -static_cast<int64_t>(is_in_front<T, right>(last, values[k])) & size;
    };
    int64_t rest = line.count;
    for (; rest > 1; rest -= rest / 2)
      for (int64_t k = 0; k < kTogether; ++k) step_over(k, rest / 2);
    if (rest == 1)
      for (int64_t k = 0; k < kTogether; ++k) step_over(k, 1);
  }

  // Whether a value is inserted behind the element. NaN equals NaN and is the largest.
  template <class T, bool right>
  [[gnu::always_inline]] static bool is_in_front(T element, T value) {
    const auto a = detail::decode(element), b = detail::decode(value);
    const bool ordered = right ? a <= b : a < b;
    if constexpr (!detail::kIsFloat<T>) return ordered;
    return ordered | ((b != b) & (right | (a == a)));
  }

  const bool right_;
};

struct Outputs {
  explicit Outputs(const View* views)
      : values(views[0]), first(views[1]), inverse(views[2]), counts(views[3]) {}
  static void store_at(const View& view, int64_t i, int64_t number) {
    store_as(view.data + i * view.strides[0] * 8, number);
  }
  const View &values, &first, &inverse, &counts;
};

class Unique final : public Kernel {
 public:
  void run(const Call& call) const override {
    const View& x = call.operands[0];
    const int64_t unique_count = with_ordered(
        x.dtype, [&]<class T>(std::type_identity<T>) { return find<T>(x, Outputs(call.operands + 1)); });
    store(call.operands[5].data, call.operands[5].dtype, {Scalar::Kind::integer, {.integer = unique_count}});
  }

 private:
  template <class T>
  static int64_t find(const View& x, const Outputs& to) {
    using Word = WordOf<T>;
    constexpr auto kSize = static_cast<int64_t>(sizeof(T));
    const int64_t count = x.shape[0];
    const auto words = std::make_unique_for_overwrite<Word[]>(static_cast<size_t>(count));
    const auto permutation = std::make_unique_for_overwrite<int64_t[]>(static_cast<size_t>(count));
    encode_line<T>(x.data, x.strides[0], count, Order<Word>::make(false, true, true), words.get());
    argsort_words(words.get(), count, permutation.get());
    int64_t unique_count = 0;
    for (int64_t begin = 0, end; begin < count; begin = end, ++unique_count) {
      const int64_t first = permutation[begin];  // the order is stable
      for (end = begin; end < count && words[permutation[end]] == words[first]; ++end)
        Outputs::store_at(to.inverse, permutation[end], unique_count);
      Outputs::store_at(to.first, unique_count, first);
      Outputs::store_at(to.counts, unique_count, end - begin);
      store_as(to.values.data + unique_count * to.values.strides[0] * kSize,
               load_as<Word>(x.data + first * x.strides[0] * kSize));
    }
    return unique_count;
  }
};

}  // namespace

Ref<Kernel> make_searchsorted(bool right) { return Ref<Kernel>(new SearchSorted(right)); }
Ref<Kernel> make_unique_kernel() { return Ref<Kernel>(new Unique); }

}  // namespace weft
