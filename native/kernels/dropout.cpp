// dropout.cpp: dropout and Bernoulli numbers from reserved positions of a random stream.
//
// Element i, in row-major order, takes the 32-bit item i of the reservation (storage/random.cpp), whatever
// the strides and the threads. Pieces begin at multiples of the items that a group of blocks has.
#include "engine/team.h"
#include "kernels/kernels.h"
#include "kernels/rows.h"
#include "kernels/simd.h"
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

template <class T>
using Real = std::conditional_t<std::same_as<T, double>, double, float>;

template <class T>
[[gnu::always_inline]] inline void drop_all(const char* x, int64_t x_step, char* y, int64_t y_step,
                                            const uint32_t* items, uint32_t threshold, Real<T> factor,
                                            int64_t count) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(T));
  for (int64_t i = 0; i < count; ++i) {
    const Real<T> kept = detail::decode(load_as<T>(x + i * x_step * kSize)) * factor;
    store_as(y + i * y_step * kSize, convert<T>(items[i] >= threshold ? kept : Real<T>{0}));
  }
}

template <class T>
[[gnu::always_inline]] inline void drop_run(const char* x, int64_t x_step, char* y, int64_t y_step,
                                            const uint32_t* items, uint32_t threshold, Real<T> factor,
                                            int64_t count) {
  if (x_step == 1 && y_step == 1) return drop_all<T>(x, 1, y, 1, items, threshold, factor, count);
  drop_all<T>(x, x_step, y, y_step, items, threshold, factor, count);
}

#ifdef WEFT_X86
template <class T>
[[gnu::target("avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl")]] void drop_wide(
    const char* x, int64_t x_step, char* y, int64_t y_step, const uint32_t* items, uint32_t threshold,
    Real<T> factor, int64_t count) {
  drop_run<T>(x, x_step, y, y_step, items, threshold, factor, count);
}
#endif

template <class T>
void drop(const char* x, int64_t x_step, char* y, int64_t y_step, const uint32_t* items, uint32_t threshold,
          Real<T> factor, int64_t count) {
#ifdef WEFT_X86
  if (has_avx512()) return drop_wide<T>(x, x_step, y, y_step, items, threshold, factor, count);
#endif
  drop_run<T>(x, x_step, y, y_step, items, threshold, factor, count);
}

void write_mask(char* mask, int64_t step, const uint32_t* items, uint32_t threshold, int64_t count) {
  if (step == 1) {
    for (int64_t i = 0; i < count; ++i) mask[i] = items[i] >= threshold;
  } else {
    for (int64_t i = 0; i < count; ++i) mask[i * step] = items[i] >= threshold;
  }
}

class Dropout final : public Kernel {
 public:
  explicit Dropout(bool mask) : mask_(mask) {}

  void run(const Call& call) const override {
    const View &x = call.operands[0], &y = call.operands[1];
    const auto p = load_as<double>(call.parameters + 3);
    if (!(p >= 0 && p <= 1)) throw ValueError("dropout: p must be in [0, 1], got " + std::to_string(p));
    if (!is_float(x.dtype))
      throw DTypeError(std::string("dropout: floats are needed, got ") + name_of(x.dtype));
    if (p == 1) return drop_everything(call);
    with_element(x.dtype, [&]<class T>(std::type_identity<T>) {
      if constexpr (std::is_floating_point_v<T> || std::same_as<T, Float16> || std::same_as<T, BFloat16>)
        run_as<T>(x, y, mask_ ? call.operands[2] : y, p, reservation_of(call));
    });
  }

 private:
  // No item is above every threshold.
  void drop_everything(const Call& call) const {
    fill(call.operands[1], {Scalar::Kind::boolean, {.boolean = false}});
    if (mask_) fill(call.operands[2], {Scalar::Kind::boolean, {.boolean = false}});
  }

  template <class T>
  void run_as(const View& x, const View& y, const View& mask, double p, const Reservation& from) const {
    const Flat<3> flat({&x, &y, &mask});
    const auto threshold = static_cast<uint32_t>(std::min(p * 0x1p32, 0x1p32 - 1));
    const auto factor = static_cast<Real<T>>(1 / (1 - p));
    for_batches(flat.count, from, [&](int64_t begin, int64_t end, const uint32_t* items) {
      flat.for_runs(begin, end, [&](const auto& places, int64_t at, int64_t count) {
        const uint32_t* const own = items + (at - begin);
        drop<T>(places[0], flat.step(0), places[1], flat.step(1), own, threshold, factor, count);
        if (mask_) write_mask(places[2], flat.step(2), own, threshold, count);
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
      flat.for_runs(begin, end, [&](const auto& places, int64_t at, int64_t count) {
        load(reinterpret_cast<char*>(chances), 1, places[0], flat.step(0), count);
        for (int64_t i = 0; i < count; ++i) results[i] = items[at - begin + i] < chances[i] * 0x1p32;
        store(places[1], flat.step(1), results, 1, count);
      });
    });
  }
};

}  // namespace

Ref<Kernel> make_dropout(bool mask) { return Ref<Kernel>(new Dropout(mask)); }
Ref<Kernel> make_bernoulli() { return Ref<Kernel>(new Bernoulli); }

}  // namespace weft
