// dropout.cpp: dropout and Bernoulli numbers from reserved positions of a random stream.
//
// Element i, in row-major order, takes the 32-bit item i of the reservation (storage/random.cpp), whatever
// the strides and the threads. Pieces begin at multiples of the items that a group of blocks has.
#include <bit>
#include <type_traits>

#include "engine/team.h"
#include "kernels/kernels.h"
#include "kernels/rows.h"
#include "storage/random.h"

namespace weft {
namespace {

constexpr int64_t kBatch = 2048;      // items made at a time; a multiple of a group's
constexpr int64_t kPiece = 16 << 10;  // a multiple of kBatch

Reservation reservation_of(const Call& call) {
  return {call.parameters[0], call.parameters[1], call.parameters[2]};
}

// Items [begin, begin + count), begin being a multiple of kBatch.
void draw(Reservation from, int64_t begin, int64_t count, uint32_t* items) {
  from.offset += blocks_for(Draw::bits, DType::uint32, begin);
  const int64_t one = 1;
  fill_bits({reinterpret_cast<char*>(items), DType::uint32, 1, &count, &one}, from);
}

// Calls body(begin, end, items) for batches of [0, count), by the team.
template <class F>
void for_batches(int64_t count, const Reservation& from, F&& body) {
  parallel_for(count, kPiece, [&](int64_t begin, int64_t end) {
    uint32_t items[kBatch];
    for (; begin < end; begin += kBatch) {
      const int64_t stop = std::min(begin + kBatch, end);
      draw(from, begin, stop - begin, items);
      body(begin, stop, items);
    }
  });
}

}  // namespace
}  // namespace weft

#define WEFT_EACH_LEVEL "kernels/dropout.inc"
#include "kernels/each_level.h"

namespace weft {
namespace {

// Elements as floats, and back: in vectors where the lines are consecutive.
void convert_line(DType to, char* out, int64_t out_step, DType from, const char* in, int64_t in_step,
                  int64_t count) {
  const RowFunctions functions = row_functions(to, from);
  (out_step == 1 && in_step == 1 ? functions.contiguous : functions.strided)(out, out_step, in, in_step,
                                                                             count);
}

class Dropout final : public Kernel {
 public:
  explicit Dropout(bool mask) : mask_(mask) {}

  void run(const Call& call) const override {
    const View &x = call.operands[0], &y = call.operands[1];
    const auto p = load_as<double>(call.parameters + 3);
    if (!(p >= 0 && p <= 1)) throw ValueError("dropout: p must be in [0, 1], got " + std::to_string(p));
    if (!is_floating(x.dtype))
      throw DTypeError(std::string("dropout: floats are needed, got ") + name_of(x.dtype));
    if (p == 1) return drop_everything(call);
    const View& mask = mask_ ? call.operands[2] : y;
    if (x.dtype == DType::float64) {
      run_as<double>(x, y, mask, p, reservation_of(call));
    } else {
      run_as<float>(x, y, mask, p, reservation_of(call));
    }
  }

 private:
  // No item is above every threshold.
  void drop_everything(const Call& call) const {
    fill(call.operands[1], {Scalar::Kind::boolean, {.boolean = false}});
    if (mask_) fill(call.operands[2], {Scalar::Kind::boolean, {.boolean = false}});
  }

  template <class Real>
  void run_as(const View& x, const View& y, const View& mask, double p, const Reservation& from) const {
    const auto drop = WEFT_AT_LEVEL(drop<Real>);
    const auto write_mask = WEFT_AT_LEVEL(write_mask);
    const Flat<3> flat({&x, &y, &mask});
    const auto threshold = static_cast<uint32_t>(std::min(p * 0x1p32, 0x1p32 - 1));
    const auto factor = static_cast<Real>(1 / (1 - p));
    for_batches(flat.count, from, [&](int64_t begin, int64_t end, const uint32_t* items) {
      flat.for_runs(begin, end, [&](const auto& pointers, int64_t at, int64_t count) {
        const uint32_t* const line_items = items + (at - begin);
        if (size_of(x.dtype) == sizeof(Real)) {
          drop(reinterpret_cast<const Real*>(pointers[0]), flat.step(0), reinterpret_cast<Real*>(pointers[1]),
               flat.step(1), line_items, threshold, factor, count);
        } else {
          Real line[kBatch];
          auto* const bytes = reinterpret_cast<char*>(line);
          convert_line(DType::float32, bytes, 1, x.dtype, pointers[0], flat.step(0), count);
          drop(line, 1, line, 1, line_items, threshold, factor, count);
          convert_line(y.dtype, pointers[1], flat.step(1), DType::float32, bytes, 1, count);
        }
        if (mask_) write_mask(pointers[2], flat.step(2), line_items, threshold, count);
      });
    });
  }

  const bool mask_;
};

class Bernoulli final : public Kernel {
 public:
  void run(const Call& call) const override {
    const View &p = call.operands[0], &y = call.operands[1];
    const Flat<2> flat({&p, &y});
    const RowFunction load = row_functions(DType::float64, p.dtype).strided;
    const RowFunction store = row_functions(y.dtype, DType::bool_).strided;
    for_batches(flat.count, reservation_of(call), [&](int64_t begin, int64_t end, const uint32_t* items) {
      double chances[kBatch];
      char results[kBatch];
      flat.for_runs(begin, end, [&](const auto& pointers, int64_t at, int64_t count) {
        load(reinterpret_cast<char*>(chances), 1, pointers[0], flat.step(0), count);
        for (int64_t i = 0; i < count; ++i) results[i] = items[at - begin + i] < chances[i] * 0x1p32;
        store(pointers[1], flat.step(1), results, 1, count);
      });
    });
  }
};

}  // namespace

Ref<Kernel> make_dropout(bool mask) { return Ref<Kernel>(new Dropout(mask)); }
Ref<Kernel> make_bernoulli() { return Ref<Kernel>(new Bernoulli); }

}  // namespace weft
