// Copies, conversions, fills and overlap against slow references: element by element, by index, by brute
// force.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <type_traits>
#include <vector>

#include "engine/team.h"
#include "tensor/convert.h"
#include "tensor/kernels.h"
#include "tests/check.h"
#include "tests/support.h"

using namespace weft;
using namespace weft::testing;

namespace {

using Wide = long double;  // 64 bits of fraction: holds every value of every type

template <class F, size_t... i>
void for_each_element(F&& f, std::index_sequence<i...>) {
  (f(static_cast<DType>(i), std::type_identity<std::tuple_element_t<i, Elements>>()), ...);
}
template <class F>
void for_each_element(F&& f) {
  for_each_element(f, std::make_index_sequence<static_cast<size_t>(DType::complex64)>{});  // the real ones
}

Scalar integer(int64_t value) { return {Scalar::Kind::integer, {.integer = value}}; }
Scalar unsigned_integer(uint64_t value) {
  return {Scalar::Kind::unsigned_integer, {.unsigned_integer = value}};
}
Scalar real(double value) { return {Scalar::Kind::real, {.real = value}}; }
Scalar boolean(bool value) { return {Scalar::Kind::boolean, {.boolean = value}}; }

// --- the reference
// ------------------------------------------------------------------------------------------

// The value of a small float, from its definition.
Wide decode_slowly(uint16_t bits, int exponent_bits) {
  const int fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits & 0x7fff) >> fraction_bits, fraction = bits & ((1 << fraction_bits) - 1);
  const Wide sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1)
    return fraction ? std::numeric_limits<Wide>::quiet_NaN() : sign * std::numeric_limits<Wide>::infinity();
  if (exponent == 0) return sign * std::ldexp(static_cast<Wide>(fraction), 1 - bias - fraction_bits);
  return sign *
         std::ldexp(static_cast<Wide>(fraction + (1 << fraction_bits)), exponent - bias - fraction_bits);
}

// The nearest small float by rounding to a multiple of its unit in the last place. Not for NaN.
uint16_t encode_slowly(Wide value, int exponent_bits) {
  const int fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const auto infinity = static_cast<uint16_t>(((1 << exponent_bits) - 1) << fraction_bits);
  value = std::fabs(value);
  if (std::isinf(value)) return sign | infinity;
  int exponent = value == 0 ? 1 - bias : std::max(1 - bias, std::ilogb(value));
  const auto units = static_cast<int64_t>(std::nearbyint(std::ldexp(value, fraction_bits - exponent)));
  // A carry out of the fraction, and the implicit bit, are additions to the exponent's field.
  const int64_t bits = units + (static_cast<int64_t>(exponent + bias - 1) << fraction_bits);
  return sign | static_cast<uint16_t>(std::min<int64_t>(bits, infinity));
}

template <class T>
Wide wide(T value) {
  if constexpr (std::same_as<T, Bool>) {
    return value.byte != 0;
  } else if constexpr (std::same_as<T, Float16>) {
    return decode_slowly(value.bits, 5);
  } else if constexpr (std::same_as<T, BFloat16>) {
    return decode_slowly(value.bits, 8);
  } else {
    return static_cast<Wide>(value);
  }
}

// Float to integer by the rules of convert.h.
template <class To>
To integer_slowly(Wide value) {
  constexpr bool kUpper = std::same_as<To, uint64_t>;
  constexpr bool kLong = sizeof(To) == 8 || std::same_as<To, uint32_t>;
  const Wide limit = std::ldexp(Wide(1), kLong ? 63 : 31), cut = std::trunc(value);
  if (kUpper && cut >= limit) return cut < 2 * limit ? static_cast<To>(cut) : 0;
  const bool fits = cut >= -limit && cut < limit;  // false for NaN
  return static_cast<To>(static_cast<int64_t>(fits ? cut : -limit));
}

template <class To, class From>
bool agrees(To result, From from) {
  const Wide value = wide(from);
  constexpr bool kFloating =
      std::same_as<From, Float16> || std::same_as<From, BFloat16> || std::floating_point<From>;
  if constexpr (std::same_as<To, From>) {
    return std::memcmp(&result, &from, sizeof result) == 0;
  } else if constexpr (std::same_as<To, Bool>) {
    return result.byte == (value != 0);
  } else if constexpr (std::integral<To>) {
    if constexpr (kFloating) return result == integer_slowly<To>(value);
    if constexpr (std::integral<From>) return result == static_cast<To>(from);
    return result == static_cast<To>(value);
  } else if (std::isnan(value)) {
    return std::isnan(wide(result)) &&
           std::signbit(static_cast<double>(value)) == std::signbit(static_cast<double>(value));
  } else if constexpr (std::same_as<To, Float16>) {
    return result.bits == encode_slowly(value, 5);
  } else if constexpr (std::same_as<To, BFloat16>) {
    const auto near = static_cast<float>(value);
    const bool lost = std::fpclassify(near) == FP_SUBNORMAL;
    return result.bits == encode_slowly(lost ? std::copysign(0.0F, near) : near, 8);
  } else {
    return wide(result) == static_cast<Wide>(static_cast<To>(value)) &&
           std::signbit(result) == std::signbit(value);
  }
}

// --- values
// -------------------------------------------------------------------------------------------------

template <class T>
std::vector<T> bit_patterns(std::mt19937_64& random) {
  std::vector<T> values;
  auto add = [&](uint64_t bits) { values.push_back(load_as<T>(&bits)); };
  if (sizeof(T) <= 2) {
    const int count = std::same_as<T, Bool> ? 4 : 1 << (8 * sizeof(T));
    for (int i = 0; i < count; ++i) add(static_cast<uint64_t>(i));
    return values;
  }
  for (int i = 0; i < 500; ++i) add(random());
  return values;
}

template <class T>
std::vector<T> special_values(std::mt19937_64& random) {
  std::vector<T> values = bit_patterns<T>(random);
  auto add = [&](double x) {
    if constexpr (std::floating_point<T>) {
      for (const T y : {static_cast<T>(x), static_cast<T>(-x)})
        for (const T z : {y, std::nextafter(y, T(0)), std::nextafter(y, T(2) * y)}) values.push_back(z);
    } else if constexpr (std::integral<T>) {
      if (std::fabs(x) < 9e18 && x == std::trunc(x))
        for (int64_t d = -1; d <= 1; ++d)
          for (const int64_t sign : {-1, 1})
            values.push_back(static_cast<T>(sign * static_cast<int64_t>(x) + d));
    }
  };
  for (int e = -150; e <= 130; ++e)
    for (const double fraction : {1.0, 1.5, 1.75, 2047 / 1024.0, 2049 / 1024.0 / 2, 1 + 3.0 / 2048,
                                  1 + 1.0 / 2048, 1 + 1.0 / 256, 1 + 3.0 / 256})
      add(std::ldexp(fraction, e));
  for (const double x : {0.0, 65504., 65519., 65520., 65536., 2147483647.5, 2147483648.5, 1e300, 1e-320})
    add(x);
  if constexpr (std::floating_point<T>) {
    using Limits = std::numeric_limits<T>;
    for (const T x : {Limits::infinity(), Limits::quiet_NaN(), Limits::denorm_min(), Limits::max()})
      values.push_back(x), values.push_back(-x);
  } else if constexpr (std::integral<T>) {
    values.push_back(std::numeric_limits<T>::min());
    values.push_back(std::numeric_limits<T>::max());
  }
  return values;
}

// --- arrays
// -------------------------------------------------------------------------------------------------

// A view and the memory that it lies in, with a margin on both sides that must not change.
struct Array {
  std::vector<int64_t> shape, strides;
  std::vector<char> memory;
  int64_t first = 0;  // offset of the element with all indices 0
  DType dtype;

  int64_t size() const { return static_cast<int64_t>(size_of(dtype)); }
  View view() {
    return {memory.data() + first * size(), dtype, static_cast<int>(shape.size()), shape.data(),
            strides.data()};
  }
  int64_t count() const {
    int64_t product = 1;
    for (const int64_t n : shape) product *= n;
    return product;
  }
  char* at(int64_t index) {
    int64_t offset = first;
    for (size_t d = shape.size(); d-- > 0;) {
      offset += index % shape[d] * strides[d];
      index /= shape[d];
    }
    return memory.data() + offset * size();
  }
};

Array make_array(DType dtype, std::vector<int64_t> shape, std::vector<int64_t> strides,
                 std::mt19937_64& random) {
  Array array;
  array.dtype = dtype;
  int64_t low = 0, high = 0;
  for (size_t d = 0; d < shape.size(); ++d)
    (strides[d] < 0 ? low : high) += std::max<int64_t>(0, shape[d] - 1) * strides[d];
  constexpr int64_t kMargin = 3;
  array.first = kMargin - low;
  array.memory.resize(static_cast<size_t>((high - low + 1 + 2 * kMargin) * array.size()));
  for (char& byte : array.memory) byte = static_cast<char>(dtype == DType::bool_ ? random() % 2 : random());
  array.shape = std::move(shape);
  array.strides = std::move(strides);
  return array;
}

// Strides of an array whose dimensions lie in a random order, some reversed, some with gaps.
std::vector<int64_t> random_strides(const std::vector<int64_t>& shape, bool zeros, Random& random) {
  std::vector<size_t> order(shape.size());
  for (size_t d = 0; d < order.size(); ++d) order[d] = d;
  if (!random.chance(40))
    for (size_t d = order.size(); d > 1; --d)
      std::swap(order[d - 1], order[static_cast<size_t>(random.below(static_cast<int>(d)))]);
  std::vector<int64_t> strides(shape.size());
  int64_t step = random.chance(70) ? 1 : random.between(2, 3);
  for (size_t i = order.size(); i-- > 0;) {
    const size_t d = order[i];
    strides[d] = random.chance(25) ? -step : step;
    if (zeros && random.chance(15)) {
      strides[d] = 0;
    } else {
      step *= std::max<int64_t>(1, shape[d]);
      if (random.chance(20)) step += random.between(1, 3);
    }
  }
  return strides;
}

std::vector<int64_t> random_shape(Random& random) {
  std::vector<int64_t> shape(static_cast<size_t>(random.below(6)));
  const int most = shape.size() < 3 ? 90 : 9;
  for (int64_t& n : shape) n = random.chance(2) ? 0 : random.chance(15) ? 1 : random.between(1, most);
  return shape;
}

void check_copy(Array& to, Array& from) {
  Array expected = to;
  for (int64_t i = 0; i < to.count(); ++i) {
    const RowFunctions functions = row_functions(to.dtype, from.dtype);
    functions.strided(expected.at(i), 1, from.at(i), 1, 1);
  }
  copy(to.view(), from.view());
  CHECK(to.memory == expected.memory);
}

}  // namespace

TEST(kernels_convert_every_pair) {
  std::mt19937_64 random(seed());
  for_each_element([&]<class From>(DType from, std::type_identity<From>) {
    const std::vector<From> values = special_values<From>(random);
    const auto count = static_cast<int64_t>(values.size());
    for_each_element([&]<class To>(DType to, std::type_identity<To>) {
      std::vector<To> results(values.size()), strided(2 * values.size());
      const int64_t one = 1, two = 2;
      auto* const data = reinterpret_cast<char*>(const_cast<From*>(values.data()));
      copy({reinterpret_cast<char*>(results.data()), to, 1, &count, &one}, {data, from, 1, &count, &one});
      copy({reinterpret_cast<char*>(strided.data()), to, 1, &count, &two}, {data, from, 1, &count, &one});
      for (size_t i = 0; i < values.size(); ++i) {
        const bool right = agrees(results[i], values[i]);
        if (!right)
          std::cerr << name_of(from) << " to " << name_of(to) << ", value " << wide(values[i]) << ", got "
                    << wide(results[i]) << '\n';
        CHECK(right);
        // Both loops give the same bits, NaN included: what a value becomes does not depend on its place.
        CHECK_EQ(std::memcmp(&results[i], &strided[2 * i], sizeof(To)), 0);
      }
    });
  });
}

// A complex number is its real part for real types, and true where a part is not 0; a real one has the part
// 0.
TEST(kernels_convert_complex_numbers) {
  std::mt19937_64 random(seed());
  for_each_element([&]<class Real>(DType, std::type_identity<Real>) {
    for (const Real x : special_values<Real>(random)) {
      const auto z = convert<Complex<double>>(x);
      const auto re = convert<double>(x);
      CHECK_EQ(std::memcmp(&z.re, &re, sizeof re), 0);
      CHECK(z.im == 0 && !std::signbit(z.im));
      const Complex<double> pair{re, 3};
      const auto back = convert<Real>(pair), direct = convert<Real>(re);
      if constexpr (std::same_as<Real, Bool>)
        CHECK_EQ(back.byte, uint8_t{1});
      else
        CHECK_EQ(std::memcmp(&back, &direct, sizeof back), 0);
      const auto narrow = convert<Complex<float>>(pair);
      const auto part = convert<float>(re);
      CHECK_EQ(std::memcmp(&narrow.re, &part, sizeof part), 0);
      CHECK_EQ(narrow.im, 3.0f);
    }
  });
}

TEST(kernels_float_to_integer_out_of_range) {
  const double nan = std::numeric_limits<double>::quiet_NaN(),
               infinity = std::numeric_limits<double>::infinity();
  CHECK_EQ(convert<int8_t>(nan), int8_t{0});
  CHECK_EQ(convert<uint8_t>(-1.5), uint8_t{255});
  CHECK_EQ(convert<uint8_t>(300.7), uint8_t{44});
  CHECK_EQ(convert<int16_t>(70000.0f), int16_t{4464});
  CHECK_EQ(convert<int32_t>(-2147483648.9), std::numeric_limits<int32_t>::min());
  CHECK_EQ(convert<int32_t>(2147483647.9), std::numeric_limits<int32_t>::max());
  CHECK_EQ(convert<int32_t>(3e9), std::numeric_limits<int32_t>::min());
  CHECK_EQ(convert<uint32_t>(3e9), uint32_t{3000000000});
  CHECK_EQ(convert<uint32_t>(nan), uint32_t{0});
  CHECK_EQ(convert<uint32_t>(-1.5f), uint32_t{4294967295});
  CHECK_EQ(convert<int64_t>(1e19), std::numeric_limits<int64_t>::min());
  CHECK_EQ(convert<uint64_t>(1e19), uint64_t{10000000000000000000u});
  CHECK_EQ(convert<uint64_t>(infinity), uint64_t{0});
  CHECK_EQ(convert<uint64_t>(nan), uint64_t{1} << 63);
}

TEST(kernels_copy_same_type_keeps_every_bit) {
  std::vector<uint16_t> halves(65536), copied(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  const int64_t count = 65536, one = 1;
  for (const DType dtype : {DType::float16, DType::bfloat16}) {
    copy({reinterpret_cast<char*>(copied.data()), dtype, 1, &count, &one},
         {reinterpret_cast<char*>(halves.data()), dtype, 1, &count, &one});
    CHECK(halves == copied);
  }
}

TEST(kernels_copy_any_strides) {
  Random random(seed());
  std::mt19937_64 bytes(seed());
  constexpr DType kTypes[] = {DType::bool_, DType::int8,    DType::uint16, DType::float16,
                              DType::int32, DType::float32, DType::int64,  DType::float64};
  for (int i = 0; i < scaled(3000); ++i) {
    const std::vector<int64_t> shape = random_shape(random);
    const DType to = kTypes[random.below(8)];
    const DType from = random.chance(60) ? to : kTypes[random.below(8)];
    Array a = make_array(to, shape, random_strides(shape, false, random), bytes);
    Array b = make_array(from, shape, random_strides(shape, true, random), bytes);
    check_copy(a, b);
  }
}

TEST(kernels_copy_transposed) {
  std::mt19937_64 bytes(seed());
  for (const DType dtype : {DType::int8, DType::int16, DType::float32, DType::float64}) {
    for (const auto& [n, m] : std::vector<std::pair<int64_t, int64_t>>{{1, 7},
                                                                       {7, 8},
                                                                       {8, 8},
                                                                       {16, 16},
                                                                       {17, 33},
                                                                       {64, 64},
                                                                       {63, 129},
                                                                       {200, 3},
                                                                       {3, 200},
                                                                       {4, 1100},
                                                                       {391, 577}}) {
      for (const DType to : {dtype, DType::float16}) {
        Array a = make_array(to, {n, m}, {m, 1}, bytes), b = make_array(dtype, {n, m}, {1, n}, bytes);
        check_copy(a, b);
        Array c = make_array(to, {2, n, m}, {1, 2 * m, 2}, bytes);
        Array d = make_array(dtype, {2, n, m}, {n * m, -1, n}, bytes);
        check_copy(c, d);
      }
    }
  }
}

TEST(kernels_copy_large_on_several_threads) {
  std::mt19937_64 bytes(seed());
  for (const int threads : {1, 3}) {
    set_team_size(threads);
    Array a = make_array(DType::float32, {300001}, {1}, bytes),
          b = make_array(DType::float32, {300001}, {1}, bytes);
    check_copy(a, b);
    Array c = make_array(DType::int16, {20, 90, 100}, {9000, 1, 90}, bytes);
    Array d = make_array(DType::float64, {20, 90, 100}, {100, 2000, 1}, bytes);
    check_copy(c, d);
    Array e = make_array(DType::int64, {70000, 3}, {3, 1}, bytes),
          f = make_array(DType::int64, {70000, 3}, {4, 1}, bytes);
    check_copy(e, f);
    Array g = make_array(DType::int64, {70000, 20}, {20, 1}, bytes),
          h = make_array(DType::int64, {70000, 20}, {0, -1}, bytes);
    check_copy(g, h);
  }
}

TEST(kernels_copy_in_place) {
  float values[] = {1.5f, -2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const int64_t count = 11, one = 1;
  char* const data = reinterpret_cast<char*>(values);
  copy({data, DType::float32, 1, &count, &one}, {data, DType::float32, 1, &count, &one});
  copy({data, DType::int32, 1, &count, &one}, {data, DType::float32, 1, &count, &one});
  for (int i = 1; i < 11; ++i) CHECK_EQ(load_as<int32_t>(values + i), i == 1 ? -2 : i + 1);
}

TEST(kernels_load_and_store_exactly) {
  char element[8];
  const int64_t odd = (int64_t{1} << 53) + 1;
  store(element, DType::int64, integer(odd));
  CHECK_EQ(load(element, DType::int64).integer, odd);
  store(element, DType::uint64, unsigned_integer(~uint64_t{0}));
  CHECK(load(element, DType::uint64).kind == Scalar::Kind::unsigned_integer);
  CHECK_EQ(load(element, DType::uint64).unsigned_integer, ~uint64_t{0});
  store(element, DType::uint64, integer(odd));
  CHECK(load(element, DType::uint64).kind == Scalar::Kind::integer);
  CHECK_EQ(load(element, DType::uint64).integer, odd);
  store(element, DType::float64, unsigned_integer(uint64_t{1} << 63));
  CHECK_EQ(load(element, DType::float64).real, std::ldexp(1.0, 63));
  store(element, DType::float16, real(1 + std::ldexp(1.0, -11) + std::ldexp(1.0, -40)));  // once rounded
  CHECK_EQ(load(element, DType::float16).real, 1 + std::ldexp(1.0, -10));
  store(element, DType::bool_, real(0.25));
  CHECK(load(element, DType::bool_).kind == Scalar::Kind::boolean);
  CHECK_EQ(load(element, DType::bool_).boolean, true);
  store(element, DType::int8, boolean(true));
  CHECK_EQ(load(element, DType::int8).integer, int64_t{1});
}

TEST(kernels_fill) {
  Random random(seed());
  std::mt19937_64 bytes(seed());
  for (int i = 0; i < scaled(1000); ++i) {
    const auto dtype = static_cast<DType>(random.below(kDTypes));
    const std::vector<int64_t> shape =
        random.chance(3) ? std::vector<int64_t>{300, 701} : random_shape(random);
    Array a = make_array(dtype, shape, random_strides(shape, random.chance(20), random), bytes);
    const Scalar value = random.chance(30)   ? integer(0)
                         : random.chance(50) ? integer(random.between(-9, 99))
                                             : real(random.below(99) / 8.0);
    Array expected = a;
    for (int64_t j = 0; j < a.count(); ++j) store(expected.at(j), dtype, value);
    fill(a.view(), value);
    CHECK(a.memory == expected.memory);
  }
}

TEST(kernels_fill_range) {
  Random random(seed());
  std::mt19937_64 bytes(seed());
  for (int i = 0; i < scaled(500); ++i) {
    const auto dtype = static_cast<DType>(random.below(kDTypes));
    const std::vector<int64_t> shape =
        random.chance(3) ? std::vector<int64_t>{300, 701} : random_shape(random);
    Array a = make_array(dtype, shape, random_strides(shape, random.chance(10), random), bytes);
    const bool integers = random.chance(50);
    const int64_t start = random.between(-50, 50), step = random.between(-3, 3);
    Array expected = a;
    for (int64_t j = 0; j < a.count(); ++j)
      store(expected.at(j), dtype,
            integers ? integer(start + j * step)
                     : real(static_cast<double>(start) + static_cast<double>(j) * 0.25));
    fill_range(a.view(), integer(start), integers ? integer(step) : real(0.25));
    CHECK(a.memory == expected.memory);
  }
}

TEST(kernels_fill_range_beyond_the_doubles) {
  int64_t values[3];
  const int64_t count = 3, one = 1;
  fill_range({reinterpret_cast<char*>(values), DType::int64, 1, &count, &one},
             integer((int64_t{1} << 53) + 1), integer(1));
  CHECK_EQ(values[2], (int64_t{1} << 53) + 3);
}

TEST(kernels_may_overlap_is_never_wrongly_false) {
  Random random(seed());
  int exact = 0, disjoint = 0;
  std::vector<char> memory(4096);
  constexpr DType kTypes[] = {DType::int8, DType::int16, DType::int32};
  struct Small {
    std::vector<int64_t> shape, strides;
    View view;
  };
  auto make = [&](Small& small, DType dtype) {
    const int ndim = random.below(4);
    for (int d = 0; d < ndim; ++d) {
      small.shape.push_back(random.chance(3) ? 0 : random.between(1, 4));
      small.strides.push_back(random.between(-9, 9));
    }
    small.view = {memory.data() + 2048 + random.between(-20, 20), dtype, ndim, small.shape.data(),
                  small.strides.data()};
  };
  auto bytes_of = [&](const View& view, bool& twice) {
    std::set<const char*> bytes;
    int64_t count = 1;
    for (int d = 0; d < view.ndim; ++d) count *= view.shape[d];
    for (int64_t i = 0; i < count; ++i) {
      int64_t offset = 0, rest = i;
      for (int d = view.ndim; d-- > 0; rest /= view.shape[d])
        offset += rest % view.shape[d] * view.strides[d];
      const auto size = static_cast<int64_t>(size_of(view.dtype));
      for (int64_t k = 0; k < size; ++k) twice |= !bytes.insert(view.data + offset * size + k).second;
    }
    return bytes;
  };
  for (int i = 0; i < scaled(20000); ++i) {
    Small a, b;
    make(a, kTypes[random.below(3)]);
    make(b, kTypes[random.below(3)]);
    bool itself = false, ignored = false;
    const auto x = bytes_of(a.view, itself), y = bytes_of(b.view, ignored);
    const bool meet = std::any_of(x.begin(), x.end(), [&](const char* p) { return y.contains(p); });
    // In so small a space the search never gives up, so the answer is exact.
    CHECK_EQ(may_overlap(a.view, b.view), meet);
    CHECK_EQ(may_overlap(b.view, a.view), meet);
    if (itself) CHECK(may_overlap_itself(a.view));
    exact += may_overlap_itself(a.view) == itself;
    disjoint += !meet;
  }
  CHECK(exact > scaled(20000) / 2);
  CHECK(disjoint > scaled(20000) / 10);
}

TEST(kernels_overlap_of_slices) {
  std::vector<float> memory(64);
  char* const data = reinterpret_cast<char*>(memory.data());
  const int64_t n = 16, two = 2, halves[] = {8, 4}, rows[] = {8, 1}, square[] = {8, 8}, columns[] = {1, 8};
  const View even{data, DType::float32, 1, &n, &two}, odd{data + 4, DType::float32, 1, &n, &two};
  CHECK(!may_overlap(even, odd));
  CHECK(may_overlap(even, even));
  const View left{data, DType::float32, 2, halves, rows}, right{data + 16, DType::float32, 2, halves, rows};
  CHECK(!may_overlap(left, right));
  CHECK(!may_overlap_itself(left));
  CHECK(!may_overlap_itself({data, DType::float32, 2, square, columns}));
  const int64_t zeros[] = {0, 1};
  CHECK(may_overlap_itself({data, DType::float32, 2, square, zeros}));
}
