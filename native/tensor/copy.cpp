// copy.cpp: the loops behind copy and fill.
//
// Only loops over one dimension know about types (RowFunctions). Around them, once for all types: the
// dimensions are put into an order that suits the destination and merged; what is left is cut into units,
// each a piece of a row or a two-dimensional tile; units are walked like the digits of an odometer, by
// several threads if there are many bytes. Units write different elements, so their order does not matter.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "engine/team.h"
#include "storage/isa.h"
#include "storage/simd.h"
#include "tensor/convert.h"
#include "tensor/kernels.h"

namespace weft {
namespace {

constexpr int64_t kParallelBytes = 256 << 10;  // less is done on the calling thread
constexpr int64_t kPieceBytes = 128 << 10;     // what a thread takes at a time
constexpr int64_t kChunk = 16 << 10;           // elements in a unit that is a piece of a row
constexpr int64_t kShortRow = 16;              // rows below this are not worth a call each
constexpr int64_t kTile = 64;                  // sides of a tile: 64 lines of 64 bytes fit in the first cache
constexpr int64_t kLongTile = 1024;            // length of a tile of short rows

// --- rows
// ---------------------------------------------------------------------------------------------------

template <class To, class From>
[[gnu::always_inline]] inline void convert_contiguous(char* to, const char* from, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    store_as(to + i * static_cast<int64_t>(sizeof(To)),
             convert<To>(load_as<From>(from + i * static_cast<int64_t>(sizeof(From)))));
}

template <class To, class From>
void contiguous_row(char* to, int64_t, const char* from, int64_t, int64_t count) {
  convert_contiguous<To, From>(to, from, count);
}

template <class To, class From>
void strided_row(char* to, int64_t to_stride, const char* from, int64_t from_stride, int64_t count) {
  const int64_t to_step = to_stride * static_cast<int64_t>(sizeof(To));
  const int64_t from_step = from_stride * static_cast<int64_t>(sizeof(From));
  for (int64_t i = 0; i < count; ++i, to += to_step, from += from_step)
    store_as(to, convert<To>(load_as<From>(from)));
}

struct Words {  // of 16 bytes
  uint64_t words[2];
};

template <class Word>
void raw_row(char* to, int64_t, const char* from, int64_t, int64_t count) {
  std::memcpy(to, from, static_cast<size_t>(count) * sizeof(Word));
}

#ifdef WEFT_X86
// The same loops for AVX2, chosen at run time; not by ifunc, whose resolvers run before a sanitizer is ready.
// Only between float32 and what is no larger: there it is 1.3 to 2.3 times as fast (17 with float16, by
// F16C).
template <class To, class From>
constexpr bool kHasAvx2 =
    (std::same_as<To, float> && sizeof(From) <= 4) || (std::same_as<From, float> && sizeof(To) <= 4);

template <class To, class From>
[[gnu::target("avx2")]] void contiguous_row_avx2(char* to, int64_t, const char* from, int64_t,
                                                 int64_t count) {
  convert_contiguous<To, From>(to, from, count);
}

// convert.h rounds and quiets as these instructions do.
template <>
[[gnu::target("avx2,f16c")]] void contiguous_row_avx2<Float16, float>(char* to, int64_t, const char* from,
                                                                      int64_t, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 values = _mm256_loadu_ps(reinterpret_cast<const float*>(from + i * 4));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i * 2),
                     _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
  }
  convert_contiguous<Float16, float>(to + i * 2, from + i * 4, count - i);
}
template <>
[[gnu::target("avx2,f16c")]] void contiguous_row_avx2<float, Float16>(char* to, int64_t, const char* from,
                                                                      int64_t, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * 2));
    _mm256_storeu_ps(reinterpret_cast<float*>(to + i * 4), _mm256_cvtph_ps(values));
  }
  convert_contiguous<float, Float16>(to + i * 4, from + i * 2, count - i);
}
#endif

// Destinations whose functions are shared: what wraps does not care for the sign.
template <class To, class From>
constexpr bool kWraps =
    std::integral<To> && (std::integral<From> || std::same_as<From, Bool> || sizeof(To) <= 2);
template <class To, class From>
struct SharedType {
  using Type = To;
};
template <class To, class From>
  requires kWraps<To, From>
struct SharedType<To, From> {
  using Type = std::make_unsigned_t<To>;
};

template <class To, class From>
constexpr RowFunctions functions() {
  using Shared = typename SharedType<To, From>::Type;
  return {contiguous_row<Shared, From>, strided_row<Shared, From>};
}

#ifdef WEFT_X86
bool has_avx2() { return isa() >= Isa::avx2; }

// Null where the other loop is as good.
template <class To, class From>
constexpr RowFunction avx2_function() {
  using Shared = typename SharedType<To, From>::Type;
  if constexpr (kHasAvx2<Shared, From>) return contiguous_row_avx2<Shared, From>;
  return nullptr;
}
#endif

// A row per destination and a column per source.
template <class To, size_t... from>
constexpr auto table_row(std::index_sequence<from...>) {
  return std::array{functions<To, std::tuple_element_t<from, Elements>>()...};
}

using Sources = std::make_index_sequence<kDTypes>;
template <size_t... to>
constexpr auto make_table(std::index_sequence<to...>) {
  return std::array{table_row<std::tuple_element_t<to, Elements>>(Sources{})...};
}
constexpr auto kTable = make_table(Sources{});

#ifdef WEFT_X86
template <size_t... other>
constexpr auto avx2_row(std::index_sequence<other...>, auto make) {
  return std::array{make.template operator()<std::tuple_element_t<other, Elements>>()...};
}
constexpr auto kAvx2ToFloat = avx2_row(Sources{}, []<class From>() {
  return std::same_as<From, float> ? nullptr : avx2_function<float, From>();
});
constexpr auto kAvx2FromFloat = avx2_row(
    Sources{}, []<class To>() { return std::same_as<To, float> ? nullptr : avx2_function<To, float>(); });
#endif

constexpr RowFunctions kRaw[] = {{raw_row<uint8_t>, strided_row<uint8_t, uint8_t>},
                                 {raw_row<uint16_t>, strided_row<uint16_t, uint16_t>},
                                 {raw_row<uint32_t>, strided_row<uint32_t, uint32_t>},
                                 {raw_row<uint64_t>, strided_row<uint64_t, uint64_t>},
                                 {raw_row<Words>, strided_row<Words, Words>}};

bool same_bits(DType a, DType b) {
  return a == b || (is_integer(a) && is_integer(b) && size_of(a) == size_of(b));
}

// --- one value many times ---------------------------------------------------------------------------------

template <class Word>
void fill_words(char* to, const char* value, int64_t count) {
  const auto word = load_as<Word>(value);
  for (int64_t i = 0; i < count; ++i) store_as(to + i * static_cast<int64_t>(sizeof(Word)), word);
}

// `value` has the type of the destination already.
void fill_row(char* to, const char* value, int64_t count, size_t size) {
  if (std::all_of(value, value + size, [&](char byte) { return byte == *value; })) {
    std::memset(to, *value, static_cast<size_t>(count) * size);
  } else if (size == 2) {
    fill_words<uint16_t>(to, value, count);
  } else if (size == 4) {
    fill_words<uint32_t>(to, value, count);
  } else if (size == 8) {
    fill_words<uint64_t>(to, value, count);
  } else {
    fill_words<Words>(to, value, count);
  }
}

// --- transposed tiles of equal types
// ------------------------------------------------------------------------

// A square of as many words as a vector of 16 bytes has: to[r][c] = from[c][r].
template <class Word>
struct Square {
  static constexpr int kSide = 16 / sizeof(Word);
  typedef Word Vector __attribute__((vector_size(16)));

  // a[0] b[0] a[1] b[1] ... of the lower (first = 0) or the upper halves.
  template <int first, int... i>
  static Vector interleave(Vector a, Vector b, std::integer_sequence<int, i...>) {
    return __builtin_shufflevector(a, b, (first + i / 2 + (i % 2) * kSide)...);
  }

  // Each round moves a bit of the row's number to the column's: log2(kSide) rounds exchange the two.
  static void transpose(char* to, int64_t to_bytes, const char* from, int64_t from_bytes) {
    constexpr auto kIndices = std::make_integer_sequence<int, kSide>{};
    Vector rows[kSide], next[kSide];
    for (int i = 0; i < kSide; ++i) std::memcpy(&rows[i], from + i * from_bytes, 16);
    for (int round = 1; round < kSide; round *= 2) {
      for (int i = 0; i < kSide / 2; ++i) {
        next[2 * i] = interleave<0>(rows[i], rows[i + kSide / 2], kIndices);
        next[2 * i + 1] = interleave<kSide / 2>(rows[i], rows[i + kSide / 2], kIndices);
      }
      for (int i = 0; i < kSide; ++i) rows[i] = next[i];
    }
    for (int i = 0; i < kSide; ++i) std::memcpy(to + i * to_bytes, &rows[i], 16);
  }
};

// to[r * to_stride + c] = from[r + c * from_stride].
template <class Word>
void transpose_words(char* to, int64_t to_stride, const char* from, int64_t from_stride, int64_t rows,
                     int64_t columns) {
  constexpr int64_t kSize = sizeof(Word);
  int64_t full_rows = 0, full_columns = 0;
  if constexpr (kSize < 16) {
    constexpr int64_t kSide = Square<Word>::kSide;
    full_rows = rows / kSide * kSide, full_columns = columns / kSide * kSide;
    for (int64_t c = 0; c < full_columns; c += kSide)
      for (int64_t r = 0; r < full_rows; r += kSide)
        Square<Word>::transpose(to + (r * to_stride + c) * kSize, to_stride * kSize,
                                from + (r + c * from_stride) * kSize, from_stride * kSize);
  }
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = r < full_rows ? full_columns : 0; c < columns; ++c)
      store_as(to + (r * to_stride + c) * kSize, load_as<Word>(from + (r + c * from_stride) * kSize));
}

using TransposeFunction = void (*)(char*, int64_t, const char*, int64_t, int64_t, int64_t);
TransposeFunction transpose_function(size_t size) {
  return size == 1   ? transpose_words<uint8_t>
         : size == 2 ? transpose_words<uint16_t>
         : size == 4 ? transpose_words<uint32_t>
         : size == 8 ? transpose_words<uint64_t>
                     : transpose_words<Words>;
}

// --- dimensions -------------------------------------------------------------------------------------------

struct Dim {
  int64_t size, to, from;  // strides, in elements
};

// The dimensions of a copy, outermost first, and where it begins.
struct Space {
  char* to;
  const char* from;
  int ndim = 0;
  Dim dims[kMaxDims];
};

// Without dimensions of one index; destination strides positive and falling; what is contiguous for both is
// one dimension. A destination that repeats itself by a zero stride keeps the last value, as in row-major
// order. False if there are no elements.
bool normalise(Space& space, const View& to, const View& from) {
  space.to = to.data;
  space.from = from.data;
  for (int d = 0; d < to.ndim; ++d)
    if (to.shape[d] == 0) return false;
  for (int d = 0; d < to.ndim; ++d) {
    Dim dim{to.shape[d], to.strides[d], from.strides[d]};
    if (dim.size == 1) continue;
    if (dim.to <= 0) {
      space.to += (dim.size - 1) * dim.to * static_cast<int64_t>(size_of(to.dtype));
      space.from += (dim.size - 1) * dim.from * static_cast<int64_t>(size_of(from.dtype));
      dim.to = -dim.to;
      dim.from = -dim.from;
    }
    if (dim.to != 0) space.dims[space.ndim++] = dim;
  }
  std::stable_sort(space.dims, space.dims + space.ndim,
                   [](const Dim& a, const Dim& b) { return a.to > b.to; });
  int last = 0;
  for (int d = 1; d < space.ndim; ++d) {
    Dim& outer = space.dims[last];
    const Dim inner = space.dims[d];
    if (outer.to == inner.to * inner.size && outer.from == inner.from * inner.size) {
      outer = {outer.size * inner.size, inner.to, inner.from};
    } else {
      space.dims[++last] = inner;
    }
  }
  if (space.ndim == 0) space.dims[0] = {1, 1, 1};
  space.ndim = last + 1;
  return true;
}

// --- units ------------------------------------------------------------------------------------------------

class Copy {
 public:
  Copy(const Space& space, DType to, DType from)
      : space_(space),
        to_size_(static_cast<int64_t>(size_of(to))),
        from_size_(static_cast<int64_t>(size_of(from))),
        same_(same_bits(to, from)),
        rows_(row_functions(to, from)) {
    choose();
  }

  void run() {
    int64_t bytes = std::max(to_size_, from_size_), units = 1;
    for (int d = 0; d < space_.ndim; ++d) bytes *= space_.dims[d].size, units *= digits_[d];
    if (bytes < kParallelBytes) return run_units(0, units);
    const int64_t grain = std::max<int64_t>(1, units / (bytes / kPieceBytes));
    parallel_for(units, grain, [this](int64_t begin, int64_t end) { run_units(begin, end); });
  }

 private:
  Dim& inner() { return space_.dims[space_.ndim - 1]; }
  Dim& second() { return space_.dims[space_.ndim - 2]; }

  // Rows or tiles, and how large they are.
  void choose() {
    const int last = space_.ndim - 1;
    int partner = -1;  // the dimension that makes a tile with the inner one
    for (int d = 0; d < last; ++d) {
      const int64_t best = std::abs(partner < 0 ? inner().from : space_.dims[partner].from);
      const int64_t stride = std::abs(space_.dims[d].from);
      if (stride != 0 && stride < best && space_.dims[d].size > 3) partner = d;
    }
    if (partner < 0 && last > 0 && inner().size < kShortRow && second().size > inner().size)
      partner = last - 1;
    std::fill(step_, step_ + space_.ndim, 1);
    tiles_ = partner >= 0;
    if (tiles_) {
      std::rotate(space_.dims + partner, space_.dims + partner + 1, space_.dims + last);
      const bool flat = inner().size < kShortRow;
      step_[last - 1] = flat ? kLongTile : kTile;
      step_[last] = second().size < kShortRow ? kLongTile : kTile;
    } else {
      step_[last] = kChunk;
    }
    for (int d = 0; d <= last; ++d) digits_[d] = (space_.dims[d].size + step_[d] - 1) / step_[d];
  }

  void run_units(int64_t begin, int64_t end) const {
    int64_t index[kMaxDims];
    const char* from = space_.from;
    char* to = space_.to;
    auto move = [&](int d, int64_t digits) {
      to += digits * step_[d] * space_.dims[d].to * to_size_;
      from += digits * step_[d] * space_.dims[d].from * from_size_;
    };
    int64_t rest = begin;
    for (int d = space_.ndim - 1; d >= 0; --d) {
      index[d] = rest % digits_[d];
      rest /= digits_[d];
      move(d, index[d]);
    }
    for (int64_t unit = begin; unit < end; ++unit) {
      run_unit(to, from, index);
      if (unit + 1 == end) break;  // no pointer beyond the array
      for (int d = space_.ndim - 1; d >= 0; --d) {
        if (++index[d] < digits_[d]) {
          move(d, 1);
          break;
        }
        move(d, 1 - digits_[d]);
        index[d] = 0;
      }
    }
  }

  int64_t length(int d, const int64_t* index) const {
    return std::min(step_[d], space_.dims[d].size - index[d] * step_[d]);
  }

  void run_unit(char* to, const char* from, const int64_t* index) const {
    const int last = space_.ndim - 1;
    if (tiles_) {
      tile(to, from, length(last - 1, index), length(last, index));
    } else {
      row(to, from, space_.dims[last], length(last, index));
    }
  }

  void row(char* to, const char* from, const Dim& dim, int64_t count) const {
    if (dim.to == 1 && dim.from == 1) {
      rows_.contiguous(to, 1, from, 1, count);
    } else if (dim.to == 1 && dim.from == 0) {
      char value[16];
      rows_.strided(value, 1, from, 1, 1);
      fill_row(to, value, count, static_cast<size_t>(to_size_));
    } else {
      rows_.strided(to, dim.to, from, dim.from, count);
    }
  }

  void tile(char* to, const char* from, int64_t rows, int64_t columns) const {
    const Dim &across = space_.dims[space_.ndim - 2], &along = space_.dims[space_.ndim - 1];
    if (same_ && along.to == 1 && across.from == 1)
      return transpose_function(static_cast<size_t>(to_size_))(to, across.to, from, along.from, rows,
                                                               columns);
    if (rows > columns) {
      for (int64_t c = 0; c < columns; ++c)
        row(to + c * along.to * to_size_, from + c * along.from * from_size_, across, rows);
    } else {
      for (int64_t r = 0; r < rows; ++r)
        row(to + r * across.to * to_size_, from + r * across.from * from_size_, along, columns);
    }
  }

  Space space_;
  const int64_t to_size_, from_size_;
  const bool same_;
  const RowFunctions rows_;
  bool tiles_;
  int64_t step_[kMaxDims];    // indices in one unit
  int64_t digits_[kMaxDims];  // units along a dimension
};

}  // namespace

RowFunctions row_functions(DType to, DType from) noexcept {
  if (same_bits(to, from)) return kRaw[std::countr_zero(size_of(to))];
  RowFunctions functions = kTable[static_cast<size_t>(to)][static_cast<size_t>(from)];
#ifdef WEFT_X86
  RowFunction wider = nullptr;
  if (to == DType::float32) wider = kAvx2ToFloat[static_cast<size_t>(from)];
  if (from == DType::float32) wider = kAvx2FromFloat[static_cast<size_t>(to)];
  if (wider && has_avx2()) functions.contiguous = wider;
#endif
  return functions;
}

void copy(const View& to, const View& from) {
  Space space;
  if (!normalise(space, to, from)) return;
  if (to.data == from.data && same_bits(to.dtype, from.dtype) &&
      std::equal(to.strides, to.strides + to.ndim, from.strides))
    return;
  Copy(space, to.dtype, from.dtype).run();
}

}  // namespace weft
