// fill.cpp: one value or an arithmetic sequence into an array, and single elements. Filling is copying from
// an array of one element whose strides are all zero; the sequence is made in small pieces that are then
// converted.
#include <algorithm>
#include <array>
#include <utility>

#include "engine/team.h"
#include "tensor/convert.h"
#include "tensor/kernels.h"
#include "tensor/row_major.h"
#include "tensor/scalar.h"

namespace weft {

double real_of(Scalar value) noexcept {
  switch (value.kind) {
    case Scalar::Kind::boolean:
      return value.boolean;
    case Scalar::Kind::integer:
      return static_cast<double>(value.integer);
    case Scalar::Kind::unsigned_integer:
      return static_cast<double>(value.unsigned_integer);
    case Scalar::Kind::real:
      break;
  }
  return value.real;
}

uint64_t bits_of(Scalar value) noexcept {
  switch (value.kind) {
    case Scalar::Kind::boolean:
      return value.boolean;
    case Scalar::Kind::integer:
      return static_cast<uint64_t>(value.integer);
    case Scalar::Kind::unsigned_integer:
      return value.unsigned_integer;
    case Scalar::Kind::real:
      break;
  }
  return convert<uint64_t>(value.real);
}

bool fits(Scalar value, DType dtype) noexcept {
  if (!is_integer(dtype)) return true;
  const int bits = static_cast<int>(size_of(dtype)) * 8;
  if (value.kind == Scalar::Kind::unsigned_integer) return dtype == DType::uint64;
  if (value.kind != Scalar::Kind::integer) return true;
  if (is_unsigned(dtype)) return value.integer >= 0 && (bits == 64 || value.integer < (int64_t{1} << bits));
  return bits == 64 ||
         (value.integer >= -(int64_t{1} << (bits - 1)) && value.integer < (int64_t{1} << (bits - 1)));
}

namespace {

constexpr int64_t kBuffer = 256;                 // elements of a sequence made at a time
constexpr int64_t kParallelElements = 64 << 10;  // shorter sequences are made on the calling thread
constexpr int64_t kPieceElements = 32 << 10;

bool is_real(Scalar value) { return value.kind == Scalar::Kind::real; }

template <class Item>
struct Sequence {
  // uint64 stands for int64: it wraps without undefined behaviour.
  static constexpr DType kType = std::same_as<Item, double> ? DType::float64 : DType::int64;
  Item start, step;
  Item operator()(int64_t i) const { return start + static_cast<Item>(i) * step; }
};

template <class Item>
void write_sequence(const RowMajor& rows, Sequence<Item> sequence, int64_t begin, int64_t end) {
  Item buffer[kBuffer];
  for (; begin < end; begin += kBuffer) {
    const int64_t count = std::min(kBuffer, end - begin);
    for (int64_t i = 0; i < count; ++i) buffer[i] = sequence(begin + i);
    rows.write(begin, count, buffer, Sequence<Item>::kType);
  }
}

template <class Item>
void fill_sequence(const View& to, Sequence<Item> sequence) {
  const RowMajor rows(to);
  const int64_t count = rows.count();
  if (count < kParallelElements || rows.repeats()) return write_sequence(rows, sequence, 0, count);
  parallel_for(count, kPieceElements,
               [&](int64_t begin, int64_t end) { write_sequence(rows, sequence, begin, end); });
}

template <class T>
Scalar scalar_of(T value) {
  Scalar scalar{Scalar::Kind::integer, {.integer = 0}};
  if constexpr (std::floating_point<T>) {
    scalar.kind = Scalar::Kind::real;
    scalar.real = value;
  } else {
    scalar.integer = static_cast<int64_t>(value);
    if (std::same_as<T, uint64_t> && scalar.integer < 0) {
      scalar.kind = Scalar::Kind::unsigned_integer;
      scalar.unsigned_integer = static_cast<uint64_t>(value);
    }
  }
  return scalar;
}

template <class T>
Scalar load_element(const char* element) {
  return scalar_of(detail::decode(load_as<T>(element)));
}
template <size_t... i>
constexpr auto make_loaders(std::index_sequence<i...>) {
  return std::array{load_element<std::tuple_element_t<i, Elements>>...};
}
constexpr auto kLoaders = make_loaders(std::make_index_sequence<kDTypes>{});

}  // namespace

Scalar load(const char* element, DType dtype) noexcept {
  Scalar scalar = kLoaders[static_cast<size_t>(dtype)](element);
  if (dtype == DType::bool_) scalar = {Scalar::Kind::boolean, {.boolean = scalar.integer != 0}};
  return scalar;
}

void store(char* element, DType dtype, Scalar value) noexcept {
  // The members of the union are at its beginning, each in the representation of its element type.
  constexpr DType kTypes[] = {DType::uint8, DType::int64, DType::uint64, DType::float64};
  const uint8_t boolean = value.kind == Scalar::Kind::boolean && value.boolean;
  const uint64_t integer = is_real(value) ? 0 : bits_of(value);
  const double real = is_real(value) ? value.real : 0;
  const char* from =
      is_real(value) ? reinterpret_cast<const char*>(&real) : reinterpret_cast<const char*>(&integer);
  if (value.kind == Scalar::Kind::boolean) from = reinterpret_cast<const char*>(&boolean);
  row_functions(dtype, kTypes[static_cast<int>(value.kind)]).strided(element, 1, from, 1, 1);
}

void fill(const View& to, Scalar value) {
  char element[16] = {};
  constexpr int64_t kZeros[kMaxDims] = {};
  store(element, to.dtype, value);
  copy(to, {element, to.dtype, to.ndim, to.shape, kZeros});
}

void fill_range(const View& to, Scalar start, Scalar step) {
  if (is_real(start) || is_real(step)) {
    fill_sequence(to, Sequence<double>{real_of(start), real_of(step)});
  } else {
    fill_sequence(to, Sequence<uint64_t>{bits_of(start), bits_of(step)});
  }
}

}  // namespace weft
