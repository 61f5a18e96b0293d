// scatter.cpp: writing at computed indices: along an axis, and by general advanced indexing; what meets in
// one element is combined in the order of the updates.
//
// Every element of the destination belongs to one thread, which applies all of its updates in their order: so
// the result does not depend on the number of threads, to the last bit. Threads share the destination by
// lanes that do not meet, by columns, or, where there are neither, by ranges of offsets: then each looks at
// all indices and takes its own. Where many updates meet in few elements, index_put combines runs of them in
// tables of their own, as many as the sizes say, and then the tables, in order.
#include <cstring>
#include <limits>
#include <vector>

#include "engine/team.h"
#include "kernels/indices.h"
#include "kernels/kernels.h"
#include "kernels/keys.h"
#include "tensor/tensor.h"

namespace weft {
namespace {

constexpr int64_t kParallelElements = 16 << 10;  // less is done on the calling thread
constexpr int kThreadsForRanges = 4;
constexpr int64_t kColumns = 64;    // a thread's share of columns at least
constexpr int64_t kRowBytes = 128;  // a row that is dearer than the look at its index

template <class T, Combine mode>
[[gnu::always_inline]] inline T combined(T old, T update) {
  if constexpr (mode == Combine::set) {
    return update;
  } else if constexpr (is_pair<T>) {  // added: functions_of refuses what needs an order
    return {old.re + update.re, old.im + update.im};
  } else {
    const auto a = detail::decode(old), b = detail::decode(update);
    if constexpr (mode == Combine::max) return b > a || b != b ? update : old;
    if constexpr (mode == Combine::min) return b < a || b != b ? update : old;
    if constexpr (std::integral<T>) {
      using Unsigned = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Unsigned>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b)));
    } else if constexpr (std::same_as<T, Bool>) {
      return {static_cast<uint8_t>(a | b)};
    } else {
      return convert<T>(a + b);
    }
  }
}

template <class T, Combine mode>
[[gnu::always_inline]] inline void combine_at(char* to, const char* update) {
  store_as(to, combined<T, mode>(load_as<T>(to), load_as<T>(update)));
}

// to[k * step + offsets[k]] with updates[k] (steps and offsets in bytes).
template <class T, Combine mode>
void scatter_line(char* to, int64_t step, const int64_t* offsets, const char* updates, int64_t update_step,
                  int64_t count) {
  for (int64_t k = 0; k < count; ++k)
    combine_at<T, mode>(to + k * step + offsets[k], updates + k * update_step);
}

// to[offsets[i]] with updates[which[i]].
template <class T, Combine mode>
void scatter_some(char* to, const int64_t* offsets, const int64_t* which, const char* updates,
                  int64_t update_step, int64_t count) {
  for (int64_t i = 0; i < count; ++i) combine_at<T, mode>(to + offsets[i], updates + which[i] * update_step);
}

// to[k * step] with updates[k].
template <class T, Combine mode>
void combine_line(char* to, int64_t step, const char* updates, int64_t update_step, int64_t count) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(T));
  if (step == kSize && update_step == kSize) {
    for (int64_t k = 0; k < count; ++k) combine_at<T, mode>(to + k * kSize, updates + k * kSize);
  } else {
    for (int64_t k = 0; k < count; ++k) combine_at<T, mode>(to + k * step, updates + k * update_step);
  }
}

}  // namespace
}  // namespace weft

#define WEFT_EACH_LEVEL "kernels/scatter_rows.inc"
#include "kernels/each_level.h"

namespace weft {
namespace {

// Consecutive elements, as many as a vector of the baseline has: wider ones are compared element by element
// there.
constexpr int64_t kBlockBytes = 16;
template <class T, Combine mode>
[[gnu::always_inline]] inline void combine_block(char* to, const char* updates) {
  if constexpr (std::is_arithmetic_v<T> && mode != Combine::set) {
    using Unsigned = WordOf<T>;
    using Lane = std::conditional_t<std::integral<T> && mode == Combine::add, Unsigned, T>;
    using Vector [[gnu::vector_size(kBlockBytes)]] = Lane;
    Vector old, update;
    std::memcpy(&old, to, sizeof old);
    std::memcpy(&update, updates, sizeof update);
    if constexpr (mode == Combine::add) old += update;
    if constexpr (mode == Combine::max) old = (update > old) | (update != update) ? update : old;
    if constexpr (mode == Combine::min) old = (update < old) | (update != update) ? update : old;
    std::memcpy(to, &old, sizeof old);
  } else {
    for (int64_t k = 0; k < kBlockBytes; k += sizeof(T)) combine_at<T, mode>(to + k, updates + k);
  }
}

// Rows of consecutive elements: to[offsets[i], c] with updates[which[i], c] for c < columns; without `which`
// updates[i, c].
template <class T, Combine mode>
void combine_rows(char* to, const int64_t* offsets, const int64_t* which, const char* updates,
                  int64_t update_step, int64_t count, int64_t columns) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(T));
  for (int64_t i = 0; i < count; ++i) {
    char* const row = to + offsets[i];
    const char* const update = updates + (which ? which[i] : i) * update_step;
    int64_t c = 0;
    for (; c + kBlockBytes <= columns * kSize; c += kBlockBytes) combine_block<T, mode>(row + c, update + c);
    for (; c < columns * kSize; c += kSize) combine_at<T, mode>(row + c, update + c);
  }
}

struct Functions {
  void (*scatter)(char*, int64_t, const int64_t*, const char*, int64_t, int64_t);
  void (*scatter_some)(char*, const int64_t*, const int64_t*, const char*, int64_t, int64_t);
  void (*combine)(char*, int64_t, const char*, int64_t, int64_t);
  void (*combine_rows)(char*, const int64_t*, const int64_t*, const char*, int64_t, int64_t, int64_t);
};

template <class T, Combine mode>
constexpr Functions kFunctions{scatter_line<T, mode>, scatter_some<T, mode>, combine_line<T, mode>,
                               combine_rows<T, mode>};

template <class T>
Functions functions_for(Combine mode) {
  switch (mode) {
    case Combine::add:
      return kFunctions<T, Combine::add>;
    case Combine::max:
      return kFunctions<T, Combine::max>;
    case Combine::min:
      return kFunctions<T, Combine::min>;
    default:
      return kFunctions<T, Combine::set>;
  }
}

Functions functions_of(DType dtype, Combine mode) {
  if (is_complex(dtype) && (mode == Combine::max || mode == Combine::min))
    throw DTypeError(std::string(name_of(dtype)) + " has no order");
  Functions functions =
      with_element(dtype, [mode]<class T>(std::type_identity<T>) { return functions_for<T>(mode); });
  if (const auto rows = WEFT_AT_LEVEL(float_rows)(dtype, mode)) functions.combine_rows = rows;
  return functions;
}

// The updates as elements of the destination's type, at most kIndexChunk at a time.
class Updates {
 public:
  Updates(DType to, DType from)
      : convert_(to == from ? nullptr : row_functions(to, from).strided),
        to_size_(static_cast<int64_t>(size_of(to))),
        from_size_(static_cast<int64_t>(size_of(from))) {}

  // Where they are; `step` in bytes becomes the step there.
  const char* get(const char* from, int64_t& step, int64_t count) {
    if (!convert_) return from;
    convert_(buffer_, 1, from, step / from_size_, count);
    step = to_size_;
    return buffer_;
  }

 private:
  const RowFunction convert_;
  const int64_t to_size_, from_size_;
  char buffer_[kIndexChunk * 16];
};

// What changes nothing that it is combined with.
template <class T>
T neutral(Combine mode) {
  if constexpr (is_pair<T>) {
    return {neutral<decltype(T::re)>(mode), neutral<decltype(T::im)>(mode)};
  } else if constexpr (std::integral<T>) {
    using Limits = std::numeric_limits<T>;
    return mode == Combine::add ? T{} : mode == Combine::max ? Limits::min() : Limits::max();
  } else {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    return convert<T>(mode == Combine::add ? -0.0f : mode == Combine::max ? -kInfinity : kInfinity);
  }
}

void fill_neutral(char* to, DType dtype, int64_t count, Combine mode) {
  with_element(dtype, [=]<class T>(std::type_identity<T>) {
    const T value = neutral<T>(mode);
    for (int64_t k = 0; k < count; ++k) store_as(to + k * static_cast<int64_t>(sizeof(T)), value);
  });
}

// The offsets that a thread owns: [low, high).
struct OffsetRange {
  int64_t low = std::numeric_limits<int64_t>::min(), high = std::numeric_limits<int64_t>::max();
  bool all() const { return low == OffsetRange{}.low && high == OffsetRange{}.high; }
  bool has(int64_t offset) const { return offset >= low && offset < high; }
};

// What writing at indices moves: the updates, what they are combined with, and all of x where y is not in its
// place.
int64_t put_bytes(const View& x, const View& updates, const View& y, int64_t count, Combine mode) {
  const int64_t written = count * static_cast<int64_t>(size_of(y.dtype)) * (mode == Combine::set ? 1 : 2);
  return distinct_bytes(updates) + written + (x.data == y.data ? 0 : distinct_bytes(x) + distinct_bytes(y));
}

// Which of at most kIndexChunk offsets are owned, and how many. Without branches, whose outcome could not be
// predicted.
int64_t owned(const OffsetRange& range, const int64_t* offsets, int64_t count, int64_t* own_offsets,
              int64_t* which) {
  int64_t size = 0;
  for (int64_t k = 0; k < count; ++k) {
    own_offsets[size] = offsets[k];
    which[size] = k;
    size += range.has(offsets[k]);
  }
  return size;
}

// At most kIndexChunk updates of one line that meet each other: those that are owned.
void scatter_in_range(const Functions& functions, const OffsetRange& range, char* to, const int64_t* offsets,
                      const char* updates, int64_t update_step, int64_t count) {
  if (range.all()) return functions.scatter(to, 0, offsets, updates, update_step, count);
  int64_t own_offsets[kIndexChunk], which[kIndexChunk];
  const int64_t size = owned(range, offsets, count, own_offsets, which);
  functions.scatter_some(to, own_offsets, which, updates, update_step, size);
}

// The same for rows of consecutive elements.
void rows_in_range(const Functions& functions, const OffsetRange& range, char* to, const int64_t* offsets,
                   const char* updates, int64_t update_step, int64_t count, int64_t columns) {
  if (range.all()) return functions.combine_rows(to, offsets, nullptr, updates, update_step, count, columns);
  int64_t own_offsets[kIndexChunk], which[kIndexChunk];
  const int64_t size = owned(range, offsets, count, own_offsets, which);
  functions.combine_rows(to, own_offsets, which, updates, update_step, size, columns);
}

// Part i of n of a range of offsets.
OffsetRange part_of(int64_t low, int64_t high, int64_t i, int64_t n) {
  const auto edge = [=](int64_t k) {
    return low + static_cast<int64_t>(static_cast<double>(high - low) * static_cast<double>(k) /
                                      static_cast<double>(n));
  };
  OffsetRange range;
  if (i > 0) range.low = edge(i);
  if (i < n - 1) range.high = edge(i + 1);
  return range;
}

// Parts for the team, of columns or of owned offsets. Looking at all indices for one's own is as much work as
// an update of a single element, so that pays only for several threads or for rows (`by_rows`).
int64_t parts_for(int64_t elements, int64_t units, bool by_columns, bool by_rows = false) {
  const int threads = team_size();
  if (elements < kParallelElements || units >= 2 * threads) return 1;
  return by_columns || by_rows || threads >= kThreadsForRanges ? threads : 1;
}

class Scatter final : public Kernel {
 public:
  Scatter(int axis, Combine mode) : axis_(axis), mode_(mode) {}

  int64_t moved_bytes(const View* x) const override {
    return distinct_bytes(x[1]) + put_bytes(x[0], x[2], x[3], count_of(x[1]), mode_);
  }

  void run(const Call& call) const override {
    const View &x = call.operands[0], &indices = call.operands[1], &updates = call.operands[2],
               &y = call.operands[3];
    const int axis = axis_of(y, axis_);
    const int64_t size = size_along(y, axis);
    check_indices(indices, size, axis, "scatter");
    copy(y, x);
    const int64_t elements = count_of(indices);
    if (elements == 0) return;
    const auto y_size = static_cast<int64_t>(size_of(y.dtype));
    Plan plan(indices, updates, y, axis);
    plan.size = size;
    plan.stride = stride_along(y, axis) * y_size;
    plan.functions = functions_of(y.dtype, mode_);
    const int64_t parts = parts_for(elements, plan.lanes.count, !plan.meet);
    parallel_for(plan.lanes.count * parts, lines_per_piece(plan.rows.size * plan.columns.size / parts),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t unit = begin; unit < end; ++unit)
                     run_lane(plan, unit / parts, unit % parts, parts);
                 });
  }

 private:
  // One loop of the two inside of a lane; steps in bytes, of indices, updates and y.
  struct Loop {
    int64_t size = 1, index = 0, update = 0, y = 0;
  };

  static Loop loop_along(const View& indices, const View& updates, const View& y, int d, bool moves_y) {
    if (indices.ndim == 0) return {};
    const auto bytes = [d](const View& view) {
      return view.strides[d] * static_cast<int64_t>(size_of(view.dtype));
    };
    return {indices.shape[d], bytes(indices), bytes(updates), moves_y ? bytes(y) : 0};
  }

  // The inner loop is the last dimension. Where that is not the axis, the axis is the loop around it, and
  // columns do not meet.
  struct Plan {
    Plan(const View& indices, const View& updates, const View& y, int axis)
        : index_type(indices.dtype),
          update_type(updates.dtype),
          y_type(y.dtype),
          meet(indices.ndim == 0 || axis == indices.ndim - 1),
          lanes(lanes_of(indices, updates, y, axis)) {
      const int last = std::max(indices.ndim - 1, 0);
      columns = loop_along(indices, updates, y, last, !meet);
      if (!meet) rows = loop_along(indices, updates, y, axis, false);
    }

    static Lines<3> lanes_of(const View& indices, const View& updates, const View& y, int axis) {
      OwnView editable[3] = {OwnView(indices), OwnView(updates), OwnView(y)};
      for (OwnView& view : editable) {
        std::copy_n(indices.shape, indices.ndim, view.shape);
        if (view.ndim) view.shape[view.ndim - 1] = 1;
      }
      const View views[3] = {editable[0].view(), editable[1].view(), editable[2].view()};
      return Lines<3>({&views[0], &views[1], &views[2]}, axis);
    }

    DType index_type, update_type, y_type;
    bool meet;
    Lines<3> lanes;
    Loop rows, columns;
    int64_t size = 0, stride = 0;
    Functions functions{};
  };

  static void run_lane(const Plan& plan, int64_t lane, int64_t part, int64_t parts) {
    const auto [index, update, to] = plan.lanes.at(lane);
    const int64_t reach = (plan.size - 1) * plan.stride;
    const OffsetRange range =
        plan.meet ? part_of(std::min<int64_t>(reach, 0), std::max<int64_t>(reach, 0) + 1, part, parts)
                  : OffsetRange{};
    const int64_t first = plan.meet ? 0 : plan.columns.size * part / parts;
    const int64_t last = plan.meet ? plan.columns.size : plan.columns.size * (part + 1) / parts;
    const auto item = static_cast<int64_t>(size_of(plan.index_type));
    Updates updates(plan.y_type, plan.update_type);
    int64_t offsets[kIndexChunk];
    for (int64_t start = first; start < last; start += kIndexChunk) {
      const int64_t count = std::min(kIndexChunk, last - start);
      for (int64_t row = 0; row < plan.rows.size; ++row) {
        load_indices(index + row * plan.rows.index + start * plan.columns.index, plan.index_type,
                     plan.columns.index / item, count, plan.size, plan.stride, offsets);
        int64_t step = plan.columns.update;
        const char* from = updates.get(update + row * plan.rows.update + start * step, step, count);
        if (plan.meet)
          scatter_in_range(plan.functions, range, to, offsets, from, step, count);
        else
          plan.functions.scatter(to + start * plan.columns.y, plan.columns.y, offsets, from, step, count);
      }
    }
  }

  const int axis_;
  const Combine mode_;
};

class IndexPut final : public Kernel {
 public:
  IndexPut(std::vector<int> dims, int position, Combine mode)
      : dims_(std::move(dims)), position_(position), mode_(mode) {}

  size_t scratch_bytes(const View* operands) const override {
    const View& y = operands[2 + dims_.size()];
    const int64_t others = tables_of(operands[1 + dims_.size()], y) - 1;
    return offset_bytes(operands) + static_cast<size_t>(others * bytes_of(y));
  }

  int64_t moved_bytes(const View* x) const override {
    const View &values = x[1 + dims_.size()], &y = x[2 + dims_.size()];
    int64_t bytes = put_bytes(x[0], values, y, count_of(values), mode_);
    for (size_t k = 1; k <= dims_.size(); ++k) bytes += distinct_bytes(x[k]);
    return bytes;
  }

  void run(const Call& call) const override {
    const View &x = call.operands[0], *indices = call.operands + 1;
    const View &values = call.operands[1 + dims_.size()], &y = call.operands[2 + dims_.size()];
    check_indexed(y, indices, dims_, "index_put");
    copy(y, x);
    if (count_of(values) == 0) return;
    Indexed plan(y, indices, dims_, position_, values);
    plan.find_offsets(y, indices, dims_, call.scratch, true);
    if (const int64_t tables = tables_of(values, y); tables > 1)
      put_in_tables(plan, values, y, call.scratch + offset_bytes(call.operands), tables);
    else
      put(plan, values, y);
  }

 private:
  static constexpr int64_t kMostTables = 8;
  static constexpr int64_t kMeetings = 8;  // of updates in an element of a table, at least

  // Which of the points: some of their lines, and of each the elements from `first` to `last`.
  struct Points {
    int64_t first_line, last_line, first, last;
  };

  static int64_t bytes_of(const View& y) { return count_of(y) * static_cast<int64_t>(size_of(y.dtype)); }

  size_t offset_bytes(const View* operands) const {
    constexpr size_t kAlignment = 64;
    const size_t bytes = Indexed::scratch_bytes(operands[0], operands + 1, dims_, true);
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  // How many tables are filled apart; the first one is y.
  int64_t tables_of(const View& values, const View& y) const {
    const int64_t updates = count_of(values), elements = count_of(y);
    if (mode_ == Combine::set || updates < kParallelElements || size_of(y.dtype) == 1) return 1;
    int64_t dense[kMaxDims];
    row_major(Dims(y.shape, static_cast<size_t>(y.ndim)), dense);
    for (int d = 0; d < y.ndim; ++d)
      if (y.shape[d] > 1 && y.strides[d] != dense[d]) return 1;
    return std::clamp<int64_t>(updates / (kMeetings * (elements + 1)), 1, kMostTables);
  }

  void put_in_tables(Indexed& plan, const View& values, const View& y, char* others, int64_t tables) const {
    const Pair::Dim inner = plan.after.take_last(), along = plan.point_dims.take_last();
    const int64_t lines = plan.point_dims.count(), units = plan.before.count(), elements = count_of(y);
    const auto size = static_cast<int64_t>(size_of(y.dtype));
    const Functions functions = functions_of(y.dtype, mode_);
    const auto table = [&](int64_t k) { return k == 0 ? y.data : others + (k - 1) * elements * size; };
    parallel_for(tables, 1, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        const auto edge = [=](int64_t count, int64_t i) { return count * i / tables; };
        const Points points = lines > along.size
                                  ? Points{edge(lines, k), edge(lines, k + 1), 0, along.size}
                                  : Points{0, lines, edge(along.size, k), edge(along.size, k + 1)};
        if (k > 0) fill_neutral(table(k), y.dtype, elements, mode_);
        for (int64_t unit = 0; unit < units; ++unit) {
          const auto [y_base, v_base] = plan.before.at(unit);
          put_part(plan, along, points, inner, {}, functions, values.data + v_base, values.dtype,
                   table(k) + y_base, y.dtype);
        }
      }
    });
    constexpr int64_t kRun = 2048, kOffset = 0;
    parallel_for(elements, kRun, [&](int64_t begin, int64_t end) {
      for (int64_t start = begin; start < end; start += kRun)
        for (int64_t k = 1; k < tables; ++k)
          functions.combine_rows(y.data + start * size, &kOffset, nullptr, table(k) + start * size, 0, 1,
                                 std::min(kRun, end - start));
    });
  }

  void put(Indexed& plan, const View& values, const View& y) const {
    const Pair::Dim inner = plan.after.take_last();
    const int64_t units = plan.before.count();
    const bool by_columns = inner.size >= team_size() * kColumns;
    const bool by_rows = inner.size * static_cast<int64_t>(size_of(y.dtype)) >= kRowBytes;
    const int64_t parts = parts_for(count_of(values), units, by_columns, by_rows);
    const bool by_ranges = parts > 1 && !by_columns;
    const auto bounds = by_ranges ? plan.bounds() : std::pair<int64_t, int64_t>{};
    const Pair::Dim along = plan.point_dims.take_last();
    const Functions functions = functions_of(y.dtype, mode_);
    parallel_for(units * parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t part = unit % parts;
        Pair::Dim columns = inner;
        auto [y_base, v_base] = plan.before.at(unit / parts);
        OffsetRange range;
        if (by_columns) {
          const int64_t first = inner.size * part / parts;
          columns.size = inner.size * (part + 1) / parts - first;
          y_base += first * inner.first;
          v_base += first * inner.second;
        } else if (by_ranges) {
          range = part_of(bounds.first, bounds.second, part, parts);
        }
        put_part(plan, along, {0, plan.point_dims.count(), 0, along.size}, columns, range, functions,
                 values.data + v_base, values.dtype, y.data + y_base, y.dtype);
      }
    });
  }

  static void put_part(const Indexed& plan, const Pair::Dim& along, const Points& points,
                       const Pair::Dim& columns, const OffsetRange& range, const Functions& functions,
                       const char* values, DType value_type, char* y, DType y_type) {
    Updates updates(y_type, value_type);
    const int64_t rows = plan.after.count();
    const auto y_size = static_cast<int64_t>(size_of(y_type));
    int64_t buffer[kIndexChunk];
    for (int64_t line = points.first_line; line < points.last_line; ++line) {
      const auto [first, v_line] = plan.point_dims.at(line);
      for (int64_t start = points.first; start < points.last; start += kIndexChunk) {
        const int64_t count = std::min(kIndexChunk, points.last - start);
        const int64_t* offsets =
            plan.offsets(first / static_cast<int64_t>(sizeof(int64_t)) + start, count, buffer);
        const char* now = values + v_line + start * along.second;
        if (rows == 1 && columns.size == 1) {
          int64_t step = along.second;
          const char* from = updates.get(now, step, count);
          scatter_in_range(functions, range, y, offsets, from, step, count);
          continue;
        }
        if (rows == 1 && value_type == y_type && columns.first == y_size && columns.second == y_size) {
          rows_in_range(functions, range, y, offsets, now, along.second, count, columns.size);
          continue;
        }
        for (int64_t p = 0; p < count; ++p) {
          if (!range.has(offsets[p])) continue;
          for (int64_t row = 0; row < rows; ++row) {
            const auto [y_row, v_row] = plan.after.at(row);
            put_run(updates, columns, functions, now + p * along.second + v_row, y + offsets[p] + y_row);
          }
        }
      }
    }
  }

  static void put_run(Updates& updates, const Pair::Dim& columns, const Functions& functions,
                      const char* values, char* y) {
    for (int64_t start = 0; start < columns.size; start += kIndexChunk) {
      const int64_t count = std::min(kIndexChunk, columns.size - start);
      int64_t step = columns.second;
      const char* from = updates.get(values + start * step, step, count);
      functions.combine(y + start * columns.first, columns.first, from, step, count);
    }
  }

  const std::vector<int> dims_;
  const int position_;
  const Combine mode_;
};

// Threads count apart, in tables of their own; in a small table the same numbers follow each other soon, and
// an addition would wait for the one before, so several are used in turn.
class Bincount final : public Kernel {
 public:
  void run(const Call& call) const override {
    const View &x = call.operands[0], &y = call.operands[1];
    const int64_t count = x.shape[0], length = y.shape[0];
    check_indices(x, length, 0, "bincount", /*wraps=*/false);
    const int64_t parts =
        count < kParallelElements ? 1 : std::clamp<int64_t>(count / (4 * (length + 1)), 1, team_size());
    const int64_t tables = length <= kSmallTable && count >= kTurns * length ? kTurns : 1;
    std::vector<int64_t> counts(static_cast<size_t>(parts * tables * length));
    parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part)
        count_part(x, count * part / parts, count * (part + 1) / parts, length, tables,
                   counts.data() + part * tables * length);
    });
    for (int64_t i = 0; i < length; ++i) {
      int64_t sum = 0;
      for (int64_t table = 0; table < parts * tables; ++table)
        sum += counts[static_cast<size_t>(table * length + i)];
      store_as(y.data + i * y.strides[0] * 8, sum);
    }
  }

 private:
  static constexpr int64_t kSmallTable = 4 << 10, kTurns = 4;

  static void count_part(const View& x, int64_t begin, int64_t end, int64_t length, int64_t tables,
                         int64_t* counts) {
    const int64_t item = x.strides[0] * static_cast<int64_t>(size_of(x.dtype));
    const int64_t second = tables > 1 ? length : 0;
    int64_t numbers[kIndexChunk];
    for (int64_t start = begin; start < end; start += kIndexChunk) {
      const int64_t now = std::min(kIndexChunk, end - start);
      load_indices(x.data + start * item, x.dtype, x.strides[0], now, length, 1, numbers);
      int64_t i = 0;
      for (; i + kTurns <= now; i += kTurns)
        for (int64_t k = 0; k < kTurns; ++k) ++counts[k * second + numbers[i + k]];
      for (; i < now; ++i) ++counts[numbers[i]];
    }
  }
};

}  // namespace

Ref<Kernel> make_bincount() { return Ref<Kernel>(new Bincount); }
Ref<Kernel> make_scatter(int axis, Combine mode) { return Ref<Kernel>(new Scatter(axis, mode)); }
Ref<Kernel> make_index_put(std::vector<int> dims, int position, Combine mode) {
  if (dims.empty()) throw ValueError("index_put: no dimension is indexed");
  return Ref<Kernel>(new IndexPut(std::move(dims), position, mode));
}

}  // namespace weft
