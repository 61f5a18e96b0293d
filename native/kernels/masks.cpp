// masks.cpp: counting, finding, reading and writing the elements where a mask is true, in row-major order.
//
// Each piece of the mask is counted first; sums of the counts say where the pieces' elements go; then pieces
// are independent. What is true is anything but 0. The mask may be memory that other code (NumPy, another
// process) writes between the two: no more elements are read or written than were counted.
#include <numeric>

#include "engine/team.h"
#include "kernels/first_set.h"
#include "kernels/kernels.h"
#include "kernels/rows.h"

namespace weft {
namespace {

constexpr int64_t kPiece = 16 << 10;
constexpr int64_t kBatch = 1024;

// Calls body(begin, count, bytes) for batches of the line at `from`; bytes that are not 0 are true.
template <class F>
void for_bytes(const char* from, DType dtype, int64_t step, int64_t count, F&& body) {
  const RowFunctions load = row_functions(DType::bool_, dtype);
  const bool as_they_are = step == 1 && size_of(dtype) == 1;
  char bytes[kBatch];
  for (int64_t begin = 0; begin < count; begin += kBatch) {
    const int64_t now = std::min(kBatch, count - begin);
    if (as_they_are) {
      body(begin, now, from + begin);
      continue;
    }
    (step == 1 ? load.contiguous : load.strided)(
        bytes, 1, from + begin * step * static_cast<int64_t>(size_of(dtype)), step, now);
    body(begin, now, bytes);
  }
}

}  // namespace
}  // namespace weft

#define WEFT_EACH_LEVEL "kernels/masks.inc"
#include "kernels/each_level.h"

namespace weft {
namespace {

// The numbers of true elements before each piece of the mask, and in all of it at the end.
template <size_t N>
std::vector<int64_t> starts_of(const Flat<N>& flat, size_t mask, DType dtype) {
  const int64_t pieces = (flat.count + kPiece - 1) / kPiece;
  std::vector<int64_t> starts(static_cast<size_t>(pieces) + 1);
  const auto count_true = WEFT_AT_LEVEL(count_true);
  parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      int64_t sum = 0;
      flat.for_runs(piece * kPiece, std::min((piece + 1) * kPiece, flat.count),
                    [&](const auto& pointers, int64_t, int64_t count) {
                      for_bytes(
                          pointers[mask], dtype, flat.step(mask), count,
                          [&](int64_t, int64_t now, const char* bytes) { sum += count_true(bytes, now); });
                    });
      starts[static_cast<size_t>(piece) + 1] = sum;
    }
  });
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  return starts;
}

// Calls body(pointers to the line, number of its first element, which of its elements are true, how many, the
// number of true ones before) for pieces of lines.
template <size_t N, class F>
void for_true(const Flat<N>& flat, size_t mask, DType dtype, const std::vector<int64_t>& starts, F&& body) {
  const auto find_true = WEFT_AT_LEVEL(find_true);
  parallel_for(static_cast<int64_t>(starts.size()) - 1, 1, [&](int64_t first, int64_t last) {
    int64_t which[kBatch + 8];
    for (int64_t piece = first; piece < last; ++piece) {
      int64_t before = starts[static_cast<size_t>(piece)];
      const int64_t end = starts[static_cast<size_t>(piece) + 1];
      flat.for_runs(piece * kPiece, std::min((piece + 1) * kPiece, flat.count),
                    [&](const auto& pointers, int64_t at, int64_t count) {
                      for_bytes(pointers[mask], dtype, flat.step(mask), count,
                                [&](int64_t begin, int64_t now, const char* bytes) {
                                  const int64_t true_count =
                                      std::min(find_true(bytes, begin, now, which), end - before);
                                  if (true_count) body(pointers, at, which, true_count, before);
                                  before += true_count;
                                });
                    });
    }
  });
}

void check_count(int64_t true_count, int64_t size, const char* function) {
  if (true_count == size) return;
  throw ValueError(std::string(function) + ": the mask has " + std::to_string(true_count) +
                   " true elements, the other operand " + std::to_string(size));
}

class CountNonzero final : public Kernel {
 public:
  void run(const Call& call) const override {
    const Flat<1> flat({&call.operands[0]});
    store(call.operands[1].data, call.operands[1].dtype,
          {Scalar::Kind::integer, {.integer = starts_of(flat, 0, call.operands[0].dtype).back()}});
  }
};

class Nonzero final : public Kernel {
 public:
  void run(const Call& call) const override {
    const View &x = call.operands[0], &y = call.operands[1];
    const Flat<1> flat({&x});
    const std::vector<int64_t> starts = starts_of(flat, 0, x.dtype);
    check_count(starts.back(), y.shape[0], "nonzero");
    auto* const to = reinterpret_cast<int64_t*>(y.data);
    for_true(flat, 0, x.dtype, starts,
             [&](const auto&, int64_t at, const int64_t* which, int64_t true_count, int64_t before) {
               if (x.ndim == 1) {
                 for (int64_t i = 0; i < true_count; ++i) to[(before + i) * y.strides[0]] = at + which[i];
                 return;
               }
               if (x.ndim == 0) return;
               // Elements of one line share all indices but the last, which are divided for once.
               const int64_t length = x.shape[x.ndim - 1];
               int64_t line = 0, line_end = 0, outer[kMaxDims];
               for (int64_t i = 0; i < true_count; ++i) {
                 const int64_t place = at + which[i];
                 if (place >= line_end) {
                   int64_t rest = place / length;
                   line = rest * length, line_end = line + length;
                   for (int d = x.ndim - 2; d >= 0; rest /= x.shape[d--]) outer[d] = rest % x.shape[d];
                 }
                 char* const row = y.data + (before + i) * y.strides[0] * 8;
                 for (int d = 0; d < x.ndim - 1; ++d) store_as(row + d * y.strides[1] * 8, outer[d]);
                 store_as(row + (x.ndim - 1) * y.strides[1] * 8, place - line);
               }
             });
  }
};

template <class Word>
void assign(char* to, int64_t step, const int64_t* which, int64_t count, const char* from,
            int64_t from_step) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(Word));
  for (int64_t i = 0; i < count; ++i)
    store_as(to + which[i] * step * kSize, load_as<Word>(from + i * from_step * kSize));
}

class MaskedSelect final : public Kernel {
 public:
  void run(const Call& call) const override {
    const View &x = call.operands[0], &mask = call.operands[1], &y = call.operands[2];
    const Flat<2> flat({&x, &mask});
    const std::vector<int64_t> starts = starts_of(flat, 1, mask.dtype);
    check_count(starts.back(), y.shape[0], "masked_select");
    const auto size = static_cast<int64_t>(size_of(y.dtype));
    with_word(x.dtype, [&]<class Word>(Word) {
      for_true(flat, 1, mask.dtype, starts,
               [&](const auto& pointers, int64_t, const int64_t* which, int64_t true_count, int64_t before) {
                 gather_words<Word>(pointers[0], flat.step(0), which, true_count,
                                    y.data + before * y.strides[0] * size, y.strides[0]);
               });
    });
  }
};

class MaskedAssign final : public Kernel {
 public:
  void run(const Call& call) const override {
    const View &x = call.operands[0], &mask = call.operands[1], &values = call.operands[2],
               &y = call.operands[3];
    const Flat<2> flat({&y, &mask});
    const std::vector<int64_t> starts = starts_of(flat, 1, mask.dtype);
    check_count(starts.back(), values.shape[0], "masked_assign");
    copy(y, x);
    const auto size = static_cast<int64_t>(size_of(y.dtype));
    with_word(y.dtype, [&]<class Word>(Word) {
      for_true(flat, 1, mask.dtype, starts,
               [&](const auto& pointers, int64_t, const int64_t* which, int64_t true_count, int64_t before) {
                 assign<Word>(pointers[0], flat.step(0), which, true_count,
                              values.data + before * values.strides[0] * size, values.strides[0]);
               });
    });
  }
};

}  // namespace

Ref<Kernel> make_count_nonzero() { return Ref<Kernel>(new CountNonzero); }
Ref<Kernel> make_nonzero() { return Ref<Kernel>(new Nonzero); }
Ref<Kernel> make_masked_select() { return Ref<Kernel>(new MaskedSelect); }
Ref<Kernel> make_masked_assign() { return Ref<Kernel>(new MaskedAssign); }

}  // namespace weft
