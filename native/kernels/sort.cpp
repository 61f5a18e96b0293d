// sort.cpp: sort and argsort along an axis. Lines go over the team; a single long one is shared by it inside
// of sort_words. Words are made in the output where it is contiguous, else in memory of the piece.
#include <memory>

#include "engine/team.h"
#include "kernels/kernels.h"
#include "kernels/rows.h"
#include "kernels/sort_rows.h"
#include "kernels/sort_words.h"

namespace weft {
namespace {

// Memory for one line after another, made when first used.
template <class Item>
class Buffer {
 public:
  Item* get(int64_t count) {
    if (!items_) items_ = std::make_unique_for_overwrite<Item[]>(static_cast<size_t>(count));
    return items_.get();
  }

 private:
  std::unique_ptr<Item[]> items_;
};

bool aligned(const void* data, size_t size) { return reinterpret_cast<uintptr_t>(data) % size == 0; }

constexpr int64_t kCountingWords = 8 << 10;

template <class Word>
void sort_counting(Word* words, int64_t count) {
  std::vector<int64_t> counts(size_t{1} << (sizeof(Word) * 8));
  for (int64_t i = 0; i < count; ++i) ++counts[words[i]];
  for (size_t value = 0; value < counts.size(); ++value)
    words = std::fill_n(words, counts[value], static_cast<Word>(value));
}

template <class Word>
void sort_narrow(Word* words, int64_t count, Buffer<uint32_t>& wide) {
  if constexpr (sizeof(Word) >= 4) {
    static_cast<void>(wide);
    sort_words(words, count);
  } else if (sizeof(Word) == 1 || count >= kCountingWords) {
    sort_counting(words, count);
  } else {
    uint32_t* const wider = wide.get(count);
    std::copy_n(words, count, wider);
    sort_words(wider, count);
    std::transform(wider, wider + count, words, [](uint32_t word) { return static_cast<Word>(word); });
  }
}

template <class T>
void sort_values(const View& x, const View& values, int axis, bool descending) {
  using Word = WordOf<T>;
  const Lines<2> lines({&x, &values}, axis);
  const int64_t length = lines.length[0];
  const auto order = Order<Word>::make(descending, true, false);
  parallel_for(lines.count, lines_per_piece(length), [&](int64_t begin, int64_t end) {
    Buffer<Word> buffer;
    Buffer<uint32_t> wide;
    for (int64_t line = begin; line < end; ++line) {
      const auto [from, to] = lines.at(line);
      const bool in_place = lines.step[1] == 1 && aligned(to, sizeof(Word));
      Word* const words = in_place ? reinterpret_cast<Word*>(to) : buffer.get(length);
      encode_line<T>(from, lines.step[0], length, order, words);
      sort_narrow(words, length, wide);
      decode_line<T>(words, length, order.flip, to, lines.step[1]);
    }
  });
}

template <class T>
void sort_indices(const View& x, const View* values, const View& indices, int axis, bool descending) {
  using Word = WordOf<T>;
  const Lines<3> lines({&x, values ? values : &x, &indices}, axis);
  const int64_t length = lines.length[0];
  const auto order = Order<Word>::make(descending, true, true);
  parallel_for(lines.count, lines_per_piece(length), [&](int64_t begin, int64_t end) {
    Buffer<Word> words;
    Buffer<int64_t> buffer;
    for (int64_t line = begin; line < end; ++line) {
      const auto [from, to, at] = lines.at(line);
      const bool in_place = lines.step[2] == 1 && aligned(at, sizeof(int64_t));
      int64_t* const permutation = in_place ? reinterpret_cast<int64_t*>(at) : buffer.get(length);
      encode_line<T>(from, lines.step[0], length, order, words.get(length));
      argsort_words(words.get(length), length, permutation);
      if (values) gather_words<Word>(from, lines.step[0], permutation, length, to, lines.step[1]);
      if (!in_place)
        for (int64_t i = 0; i < length; ++i) store_as(at + i * lines.step[2] * 8, permutation[i]);
    }
  });
}

class Sort final : public Kernel {
 public:
  Sort(int axis, bool descending, bool values, bool indices)
      : axis_(axis), descending_(descending), values_(values), indices_(indices) {}

  void run(const Call& call) const override {
    const View* operands = call.operands;
    if (count_of(operands[0]) == 0) return;
    const int axis = axis_of(operands[0], axis_);
    with_ordered(operands[0].dtype, [&]<class T>(std::type_identity<T>) {
      if (indices_) {
        const View* values = values_ ? operands + 1 : nullptr;
        sort_indices<T>(operands[0], values, operands[values_ ? 2 : 1], axis, descending_);
      } else {
        sort_values<T>(operands[0], operands[1], axis, descending_);
      }
    });
  }

 private:
  const int axis_;
  const bool descending_, values_, indices_;
};

}  // namespace

Ref<Kernel> make_sort(int axis, bool descending, bool values, bool indices) {
  if (!values && !indices) throw ValueError("sort: neither values nor indices are requested");
  return Ref<Kernel>(new Sort(axis, descending, values, indices));
}

}  // namespace weft
