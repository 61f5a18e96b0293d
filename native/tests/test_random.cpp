// Random numbers: the published vectors, that nothing but the counter matters, and that the distributions are
// what they should be. All seeds are fixed, so the statistical bounds either hold always or never.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <thread>
#include <vector>

#include "engine/team.h"
#include "storage/random.h"
#include "tests/check.h"
#include "tests/support.h"

using namespace weft;
using namespace weft::testing;

namespace {

constexpr Reservation kFrom{12345, 7, 1000};

// A contiguous array of `count` elements, filled by `fill`, as doubles.
template <class Fill>
std::vector<double> draw(DType dtype, int64_t count, Fill&& fill) {
  const auto size = static_cast<int64_t>(size_of(dtype));
  const int64_t one = 1;
  std::vector<char> memory(static_cast<size_t>(count * size));
  fill(View{memory.data(), dtype, 1, &count, &one});
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) {
    const Scalar value = load(memory.data() + i * size, dtype);
    values.push_back(value.kind == Scalar::Kind::real      ? value.real
                     : value.kind == Scalar::Kind::integer ? static_cast<double>(value.integer)
                                                           : static_cast<double>(value.unsigned_integer));
  }
  return values;
}

std::vector<double> draw_uniform(DType dtype, int64_t count, double low, double high) {
  return draw(dtype, count, [&](const View& view) { fill_uniform(view, kFrom, low, high); });
}
std::vector<double> draw_normal(DType dtype, int64_t count) {
  return draw(dtype, count, [&](const View& view) { fill_normal(view, kFrom, 0, 1); });
}

// The mean of f over the values.
template <class F>
double average(const std::vector<double>& values, F&& f) {
  double sum = 0;
  for (const double x : values) sum += f(x);
  return sum / static_cast<double>(values.size());
}

// Chi-square of the counts of `cells` equally likely cells, in standard deviations from its mean.
template <class Cell>
double chi_square(const std::vector<double>& values, int cells, Cell&& cell) {
  std::vector<double> counts(static_cast<size_t>(cells));
  for (const double x : values) ++counts.at(static_cast<size_t>(cell(x)));
  const double expected = static_cast<double>(values.size()) / cells;
  double sum = 0;
  for (const double n : counts) sum += (n - expected) * (n - expected) / expected;
  return (sum - (cells - 1)) / std::sqrt(2.0 * (cells - 1));
}

constexpr DType kFloats[] = {DType::float16, DType::bfloat16, DType::float32, DType::float64};

}  // namespace

TEST(random_philox_known_answers) {
  using Block = std::array<uint32_t, 4>;
  CHECK_EQ(philox({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  CHECK_EQ(philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
           (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  CHECK_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
           (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// The layout that random.cpp describes, whatever instructions made it; also where the position carries.
TEST(random_bits_are_the_blocks) {
  constexpr int64_t kCount = 1000;
  for (const uint64_t offset : {uint64_t{0}, uint64_t{0xfffffff0}, ~uint64_t{0} - 20}) {
    const Reservation from{0x123456789abcdef0, 0xfedcba9876543210, offset};
    std::vector<uint64_t> wide(kCount);
    std::vector<uint32_t> narrow(kCount);
    const int64_t one = 1, count = kCount;
    fill_bits({reinterpret_cast<char*>(wide.data()), DType::uint64, 1, &count, &one}, from);
    fill_bits({reinterpret_cast<char*>(narrow.data()), DType::uint32, 1, &count, &one}, from);
    for (uint64_t i = 0; i < kCount; ++i) {
      const uint64_t position = offset + i / 32 * 16 + i % 16;
      const auto block =
          philox({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
                  static_cast<uint32_t>(from.stream), static_cast<uint32_t>(from.stream >> 32)},
                 {static_cast<uint32_t>(from.key), static_cast<uint32_t>(from.key >> 32)});
      const size_t half = i % 32 / 16 * 2;
      CHECK_EQ(wide[i], block[half] | static_cast<uint64_t>(block[half + 1]) << 32);
      CHECK_EQ(narrow[i], static_cast<uint32_t>(wide[i / 2] >> (i % 2 * 32)));
    }
  }
}

TEST(random_does_not_depend_on_threads_or_strides) {
  const int64_t shape[] = {3, 251, 307}, strides[] = {-1, 3, -3 * 251}, count = 3 * 251 * 307, one = 1;
  using Fill = void (*)(const View&);
  const Fill fills[] = {[](const View& view) {
                          is_floating(view.dtype) ? fill_uniform(view, kFrom, -1, 3) : fill_bits(view, kFrom);
                        },
                        [](const View& view) {
                          is_floating(view.dtype) ? fill_normal(view, kFrom, 1, 2)
                                                  : fill_integers(view, kFrom, -5, 100);
                        }};
  for (int d = 0; d < kDTypes; ++d) {
    const auto dtype = static_cast<DType>(d);
    const auto size = static_cast<int64_t>(size_of(dtype));
    for (const Fill fill : fills) {
      std::vector<char> straight(static_cast<size_t>(count * size)), other(straight.size());
      set_team_size(1);
      fill({straight.data(), dtype, 1, &count, &one});
      set_team_size(4);
      char* const first = other.data() + (2 + 3 * 251 * 306) * size;
      fill({first, dtype, 3, shape, strides});
      for (int64_t i = 0; i < count; ++i) {
        const int64_t z = i % 307, y = i / 307 % 251, x = i / 307 / 251;
        const char* const at = first + (x * strides[0] + y * strides[1] + z * strides[2]) * size;
        CHECK(std::equal(at, at + size, straight.data() + i * size));
      }
    }
  }
}

TEST(random_a_longer_array_begins_like_a_shorter_one) {
  for (const DType dtype : kFloats) {
    const std::vector<double> longer = draw_normal(dtype, 999), shorter = draw_normal(dtype, 37);
    CHECK(std::equal(shorter.begin(), shorter.end(), longer.begin()));
  }
}

TEST(random_uniform_moments) {
  for (const DType dtype : kFloats) {
    const int64_t count = scaled(400000);
    const std::vector<double> values = draw_uniform(dtype, count, 0, 1);
    const double root = std::sqrt(static_cast<double>(count)),
                 coarse = dtype == DType::bfloat16 ? 2e-3 : 3e-4;
    CHECK(std::fabs(average(values, [](double x) { return x; }) - 0.5) < 4 * 0.289 / root + coarse);
    CHECK(std::fabs(average(values, [](double x) { return x * x; }) - 1.0 / 3) < 4 * 0.299 / root + coarse);
    for (const double x : values) CHECK(x >= 0 && x < 1);
    if (size_of(dtype) > 2) CHECK(std::fabs(chi_square(values, 1024, [](double x) { return x * 1024; })) < 4);
  }
}

TEST(random_uniform_stays_within_limits) {
  const double largest = std::numeric_limits<float>::max();
  for (const DType dtype : kFloats) {
    for (const double x : draw_uniform(dtype, 50000, -3, -2.96875)) CHECK(x >= -3 && x < -2.96875);
    for (const double x : draw_uniform(dtype, 50000, -1, 0)) CHECK(x >= -1 && x < 0);
    for (const double x : draw_uniform(dtype, 100, 5, 5)) CHECK_EQ(x, 5.0);
    // Nothing lies between two neighbours.
    const double step = dtype == DType::float16    ? 0x1p-10
                        : dtype == DType::bfloat16 ? 0x1p-7
                        : dtype == DType::float32  ? 0x1p-23
                                                   : 0x1p-52;
    for (const double x : draw_uniform(dtype, 1000, 1, 1 + step)) CHECK_EQ(x, 1.0);
  }
  for (const double x : draw_uniform(DType::float32, 10000, -largest, largest))
    CHECK(std::fabs(x) < largest * 1.0001);
}

TEST(random_normal_moments) {
  for (const DType dtype : kFloats) {
    const int64_t count = scaled(400000);
    const std::vector<double> values = draw_normal(dtype, count);
    const double root = std::sqrt(static_cast<double>(count)), coarse = size_of(dtype) == 2 ? 2e-3 : 1e-6;
    CHECK(std::fabs(average(values, [](double x) { return x; })) < 4 / root + coarse);
    CHECK(std::fabs(average(values, [](double x) { return x * x; }) - 1) < 4 * 1.42 / root + coarse);
    CHECK(std::fabs(average(values, [](double x) { return x * x * x; })) < 4 * 3.9 / root + coarse);
    CHECK(std::fabs(average(values, [](double x) { return x * x * x * x; }) - 3) <
          4 * 9.8 / root + 5 * coarse);
    for (const double x : values) CHECK(std::fabs(x) < 8.7);
    if (size_of(dtype) > 2) {
      const auto cell = [](double x) { return std::min(255.0, std::erfc(-x / std::sqrt(2)) / 2 * 256); };
      CHECK(std::fabs(chi_square(values, 256, cell)) < 4);
    }
  }
}

// Against the formula in float64, from the same bits.
TEST(random_normal_of_float32_is_accurate) {
  constexpr int64_t kCount = 65536;
  const std::vector<double> bits =
      draw(DType::uint32, kCount, [](const View& view) { fill_bits(view, kFrom); });
  const std::vector<double> values = draw_normal(DType::float32, kCount);
  for (size_t i = 0; i < kCount; ++i) {
    const size_t group = i / 64 * 64, pair = i % 32;
    const double u = (std::floor(bits[group + pair] / 2) + 0.5) * 0x1p-31;
    const double angle = bits[group + 32 + pair] * 0x1p-32 * 2 * M_PI, radius = std::sqrt(-2 * std::log(u));
    const double expected = radius * (i % 64 < 32 ? std::cos(angle) : std::sin(angle));
    // u is rounded to 24 bits, which near 1 moves a small radius.
    CHECK(std::fabs(values[i] - expected) < 1.5e-6 + std::min(4e-4, 1e-7 / radius));
  }
}

TEST(random_integers) {
  auto integers = [](DType dtype, int64_t count, int64_t low, int64_t high) {
    return draw(dtype, count, [=](const View& view) { fill_integers(view, kFrom, low, high); });
  };
  const std::vector<double> values = integers(DType::int32, scaled(200000), -7, 93);
  CHECK(std::fabs(chi_square(values, 100, [](double x) { return x + 7; })) < 4);
  for (const double x : integers(DType::int8, 1000, 5, 6)) CHECK_EQ(x, 5.0);
  for (const double x : integers(DType::int64, 1000, 5, 5)) CHECK_EQ(x, 5.0);
  const std::vector<double> all =
      integers(DType::int64, 10000, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
  CHECK(std::fabs(average(all, [](double x) { return x * 0x1p-63; })) < 4 * 0.578 / 100);
}

TEST(random_blocks_suffice_and_do_not_meet) {
  // 64 items of 32 bits in 16 blocks, or 32 of 64 bits.
  CHECK_EQ(blocks_for(Draw::uniform, DType::float32, 0), uint64_t{0});
  CHECK_EQ(blocks_for(Draw::uniform, DType::float32, 1), uint64_t{16});
  CHECK_EQ(blocks_for(Draw::normal, DType::float16, 65), uint64_t{32});
  CHECK_EQ(blocks_for(Draw::normal, DType::float64, 33), uint64_t{32});
  CHECK_EQ(blocks_for(Draw::integers, DType::int8, 64), uint64_t{32});
  CHECK_EQ(blocks_for(Draw::bits, DType::uint32, 64), uint64_t{16});
  // Two arrays from consecutive reservations are one array from the first.
  Generator generator(5, 0);
  const Reservation first = generator.reserve(blocks_for(Draw::bits, DType::uint64, 64));
  const Reservation second = generator.reserve(blocks_for(Draw::bits, DType::uint64, 64));
  const auto a = draw(DType::uint64, 128, [&](const View& view) { fill_bits(view, first); });
  const auto b = draw(DType::uint64, 64, [&](const View& view) { fill_bits(view, second); });
  CHECK(std::equal(b.begin(), b.end(), a.begin() + 64));
}

TEST(random_reservations_are_disjoint) {
  Generator generator(1, 2);
  constexpr uint64_t kEach = 5000;
  std::vector<std::vector<uint64_t>> offsets(4);
  {
    std::vector<std::jthread> threads;
    for (auto& own : offsets)
      threads.emplace_back([&] {
        for (uint64_t i = 0; i < kEach; ++i) own.push_back(generator.reserve(3).offset);
      });
  }
  std::set<uint64_t> all;
  for (const auto& own : offsets) {
    CHECK(std::is_sorted(own.begin(), own.end()));
    all.insert(own.begin(), own.end());
  }
  CHECK_EQ(all.size(), size_t{4 * kEach});
  for (const uint64_t offset : all) CHECK_EQ(offset % 3, uint64_t{0});
  CHECK_EQ(generator.state().offset, 3 * 4 * kEach);
}

TEST(random_state_round_trip) {
  Generator generator(9, 4);
  generator.reserve(100);
  const Generator::State state = generator.state();
  const Reservation next = generator.reserve(10);
  generator.seed(10);
  CHECK((generator.state() == Generator::State{10, 4, 0}));
  generator.set_state(state);
  const Reservation again = generator.reserve(10);
  CHECK_EQ(next.offset, again.offset);
  CHECK_EQ(next.key, again.key);
  CHECK_EQ(next.stream, again.stream);
}
