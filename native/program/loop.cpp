#include "program/loop.h"

#include <algorithm>
#include <cstdlib>

#include "engine/team.h"
#include "program/loop_work.h"

namespace weft {
namespace {

constexpr int64_t kSplitBytes = 768 << 10;   // of all operands; work on less stays on one thread
constexpr int64_t kPieceBytes = 256 << 10;   // of all operands, that a thread takes at a time
constexpr int64_t kFoldElements = 32 << 10;  // of a long row, that are folded at a time
constexpr int64_t kTile = 64, kBlock = 512;  // of the schedule of tiles, src/weft/expr/llvm_tiles.py
constexpr int64_t kLanes = 64;               // rows side by side that one thread takes at the least
// Rows side by side are shared by threads if there are fewer than these, or if so many of them as a thread
// takes at the least are too long to stay in its cache.
constexpr int64_t kFewRows = 4 * kLanes, kNearBytes = 512 << 10;
constexpr int64_t kFewestPieces = 4, kMostPieces = 128;  // of shared rows
constexpr int64_t kRowBlock = 32;  // elements that are summed before the sum is widened, llvm_lanes.py
constexpr int64_t kLineBytes = 64;
constexpr int64_t kStreamingBytes = 16 << 20;  // results of so many go past the cache

// How many of `count` equal parts a thread takes at a time, if all come to `bytes`: two turns for each
// thread.
int64_t parts_at_a_time(int64_t count, int64_t bytes) noexcept {
  const int64_t piece = std::min(kPieceBytes, bytes / (2 * team_size()) + 1);
  return std::max<int64_t>(1, piece * count / std::max<int64_t>(bytes, 1));
}

// Pieces of neighbouring elements begin at cache lines; results that go past the cache have to.
int64_t whole_lines(int64_t elements) noexcept { return (elements + kLanes - 1) / kLanes * kLanes; }

}  // namespace

uint64_t LoopPattern::key() const noexcept {
  uint64_t key = static_cast<uint64_t>(rank) | static_cast<uint64_t>(row_rank) << 5 |
                 static_cast<uint64_t>(lanes) << 10 | static_cast<uint64_t>(tile + 1) << 11;
  for (int k = 0; k < operands; ++k) key |= static_cast<uint64_t>(inner[k]) << (16 + 2 * k);
  static_assert(16 + 2 * kOperands < 63);
  return key | static_cast<uint64_t>(streaming) << 63;
}

// The loops: sizes, and every operand's strides in bytes.
struct Loop::Space {
  int rank = 0, rows = 0;  // loops; those of them, at the end, that make up a row
  int operands = 0;
  int64_t sizes[kMaxDims + 1];
  int64_t strides[LoopPattern::kOperands][kMaxDims + 1];
  DType dtypes[LoopPattern::kOperands];
  LoopPattern pattern;

  void swap(int a, int b) noexcept {
    std::swap(sizes[a], sizes[b]);
    for (int k = 0; k < operands; ++k) std::swap(strides[k][a], strides[k][b]);
  }
  void drop(int d) noexcept {
    std::move(sizes + d + 1, sizes + rank, sizes + d);
    for (int k = 0; k < operands; ++k) std::move(strides[k] + d + 1, strides[k] + rank, strides[k] + d);
    --rank;
  }
  // A loop of one turn, at the end.
  void append(const View* views) noexcept {
    sizes[rank] = 1;
    for (int k = 0; k < operands; ++k) strides[k][rank] = static_cast<int64_t>(size_of(views[k].dtype));
    ++rank;
  }
  // Loops [begin, end) so that the operand that decides moves the furthest in the first of them. Stable.
  void order(int begin, int end, int decides) noexcept {
    for (int i = begin + 1; i < end; ++i)
      for (int j = i; j > begin && before(j, j - 1, decides); --j) swap(j, j - 1);
  }
  bool before(int a, int b, int decides) const noexcept {
    if (const int64_t by = std::abs(strides[decides][a]) - std::abs(strides[decides][b])) return by > 0;
    for (int k = 0; k < operands; ++k) {  // equal steps of `decides`: the others decide
      if (k == decides) continue;
      if (const int64_t by = std::abs(strides[k][a]) - std::abs(strides[k][b])) return by > 0;
    }
    return false;
  }
  // How many elements an operand has here: repeated ones count once.
  int64_t elements_of(int k) const noexcept {
    int64_t elements = 1;
    for (int d = 0; d < rank; ++d)
      if (strides[k][d] != 0) elements *= sizes[d];
    return elements;
  }
  // The operand with the most elements, the first of equals: how it is stored decides about the order of
  // loops.
  int widest() const noexcept {
    int best = 0;
    for (int k = 1; k < operands; ++k)
      if (elements_of(k) > elements_of(best)) best = k;
    return best;
  }
  // How many elements of all operands are not neighbours along a loop, if that one becomes vectors.
  int64_t scattered(const View* views, int loop) const noexcept {
    int64_t count = 0;
    for (int k = 0; k < operands; ++k) {
      const int64_t stride = strides[k][loop];
      if (stride != 0 && stride != static_cast<int64_t>(size_of(views[k].dtype))) count += elements_of(k);
    }
    return count;
  }
  // The outer loop that becomes vectors instead of the innermost loop of rows; -1: none. It is one in which
  // fewer elements are scattered: an operand that repeats along rows (a number for each of them) says nothing
  // about those that have rows. Where both have as many, the first operand decides, if it has rows.
  int lane_loop(const View* views, int outer) const noexcept {
    const auto item = static_cast<int64_t>(size_of(views[0].dtype));
    const int64_t along_rows = scattered(views, rank - 1);
    if (along_rows == 0) return -1;
    int best = -1;
    int64_t least = along_rows;
    for (int d = outer; d-- > 0;) {
      const int64_t here = scattered(views, d);
      const bool first_decides =
          strides[0][d] == item && strides[0][rank - 1] != 0 && strides[0][rank - 1] != item;
      if (here < least || (best < 0 && here == along_rows && first_decides)) best = d, least = here;
    }
    return best;
  }
  // Operands that jump in the innermost loop and are contiguous in another one: these two run in
  // tiles.
  void find_tiles(const View* views) noexcept {
    constexpr int64_t kWorthwhile = 8;  // of either loop
    constexpr int64_t kElements =
        32 << 10;  // below, everything is in the first caches, and such code takes long to make
    int64_t elements = 1;
    for (int d = 0; d < rank; ++d) elements *= sizes[d];
    if (sizes[rank - 1] < kWorthwhile || elements < kElements) return;
    for (int k = 0; k < operands; ++k) {
      if (pattern.inner[k] != LoopPattern::any) continue;
      const auto item = static_cast<int64_t>(size_of(views[k].dtype));
      for (int d = 0; d < rank - 1; ++d) {
        if (strides[k][d] != item || sizes[d] < kWorthwhile || (pattern.tile >= 0 && d != pattern.tile))
          continue;
        pattern.tile = d;
        pattern.inner[k] = LoopPattern::cross;
      }
    }
  }
  // How much of rows that are side by side a thread takes at a time, if threads share rows; 0: they do not.
  // It does not depend on the number of threads, and so neither do sums.
  int64_t shared_grain(int64_t bytes) const noexcept {
    if (!pattern.lanes || rank != 2 || bytes < kSplitBytes) return 0;
    if (sizes[0] >= kFewRows && bytes / sizes[0] * kLanes < kNearBytes) return 0;
    const int64_t size = sizes[1], fair = std::max(size / kMostPieces, kPieceBytes * size / bytes);
    const int64_t grain = std::max<int64_t>((fair + kRowBlock - 1) / kRowBlock, 1) * kRowBlock;
    return grain * kFewestPieces <= size ? grain : 0;
  }
  // Joins loops of [begin, end) that are one for every operand; returns the new end.
  int join(int begin, int end) noexcept {
    for (int d = end - 1; d > begin; --d) {
      bool one = true;
      for (int k = 0; one && k < operands; ++k) one = strides[k][d - 1] == strides[k][d] * sizes[d];
      if (!one) continue;
      sizes[d] *= sizes[d - 1];
      drop(d - 1);
      --end;
    }
    return end;
  }
};

// False: there is nothing to do.
bool Loop::arrange(const View* views, Space& space) const {
  const int operands = form_.operands;
  space.operands = operands;
  for (int k = 0; k < operands; ++k) space.dtypes[k] = views[k].dtype;
  int ndim = 0;
  for (int k = 0; k < operands; ++k) ndim = std::max(ndim, views[k].ndim);

  // The space, loops of rows behind the others; what has size 1 is left out.
  bool rows_empty = false;
  const uint32_t row_axes = form_.row_axes;
  for (const bool row : {false, true}) {
    if (row && !row_axes) break;
    for (int d = ndim; d-- > 0;) {
      if ((row_axes >> d & 1) != row) continue;
      int64_t size = 1;
      for (int k = 0; k < operands && size == 1; ++k)
        if (d < views[k].ndim) size = views[k].shape[views[k].ndim - 1 - d];
      if (size == 0) {
        if (!row) return false;
        rows_empty = true;
      }
      if (size == 1 && !form_.fixed()) continue;
      for (int k = 0; k < operands; ++k) {
        const View& view = views[k];
        const int at = view.ndim - 1 - d;
        space.strides[k][space.rank] =
            at >= 0 && view.shape[at] != 1 ? view.strides[at] * static_cast<int64_t>(size_of(view.dtype)) : 0;
      }
      space.sizes[space.rank++] = size;
      space.rows += row;
    }
  }
  int outer = space.rank - space.rows;
  if (!form_.fixed()) {
    const int last = operands - 1;
    if (rows_empty) {  // what is stored once a row is stored all the same
      while (space.rows > 1) space.drop(space.rank - 1), --space.rows;
      space.sizes[space.rank - 1] = 0;
    } else if (space.rows > 1) {
      const int outer_now = outer;
      if (!form_.ordered) space.order(outer_now, space.rank, space.widest());
      space.rows = space.join(outer_now, space.rank) - outer_now;
    }
    if (outer > 1) {
      space.order(0, outer, last);
      outer = space.join(0, outer);
    }
  }
  if (row_axes && space.rows == 0) {
    space.append(views);
    space.rows = 1;
  }
  if (space.rank == 0) space.append(views);

  LoopPattern& pattern = space.pattern;
  // Rows whose elements are far apart, while those of neighbouring rows are side by side.
  if (row_axes && outer > 0 && !form_.fixed() && !rows_empty) {
    if (int d = space.lane_loop(views, outer); d >= 0) {
      for (; d < outer - 1; ++d) space.swap(d, d + 1);
      pattern.lanes = true;
    }
  }
  pattern.rank = space.rank;
  pattern.row_rank = row_axes ? space.rows : 1;
  pattern.operands = operands;
  const int vector_loop = pattern.lanes ? outer - 1 : space.rank - 1;
  for (int k = 0; k < operands; ++k) {
    const auto item = static_cast<int64_t>(size_of(views[k].dtype));
    int64_t& stride = space.strides[k][vector_loop];
    if (space.sizes[vector_loop] == 1) stride = item;  // it does not matter: one pattern for all
    pattern.inner[k] = stride == item ? LoopPattern::unit
                       : stride == 0  ? LoopPattern::zero
                                      : LoopPattern::any;
  }
  if (!row_axes && !form_.fixed() && space.rank > 1) space.find_tiles(views);
  return true;
}

Loop::Code Loop::find(const LoopPattern& pattern) const {
  const uint64_t key = pattern.key();
  const auto search = [key](const Table* table) -> Code {
    if (table)
      for (const Entry& entry : *table)
        if (entry.key == key) return entry.code;
    return nullptr;
  };
  if (Code code = search(table_.load(std::memory_order_acquire))) return code;
  const Code compiled =
      compile_(pattern);  // outside the mutex: it may need the GIL, whose holder may want the mutex
  const std::lock_guard guard(mutex_);
  const Table* current = table_.load(std::memory_order_relaxed);
  if (Code code = search(current)) return code;
  misses.fetch_add(1, std::memory_order_relaxed);
  auto table = current ? std::make_unique<Table>(*current) : std::make_unique<Table>();
  table->push_back({key, compiled});
  table_.store(table.get(), std::memory_order_release);
  tables_.push_back(std::move(table));
  return compiled;
}

namespace {

// The number of elements, if all operands have the same shape and are contiguous; else -1.
int64_t contiguous_size(const View* views, int count) noexcept {
  const View& last = views[count - 1];
  int64_t size = 1;
  for (int d = last.ndim; d-- > 0;) {
    const int64_t n = last.shape[d];
    if (n != 1) {
      for (int k = 0; k < count; ++k)
        if (views[k].ndim != last.ndim || views[k].shape[d] != n || views[k].strides[d] != size) return -1;
    } else {
      for (int k = 0; k < count; ++k)
        if (views[k].ndim != last.ndim || views[k].shape[d] != 1) return -1;
    }
    size *= n;
  }
  return last.ndim == 0 ? -1 : size;
}

// The pattern of those.
LoopPattern contiguous_pattern(int operands) noexcept {
  LoopPattern pattern;
  pattern.operands = operands;
  std::fill_n(pattern.inner, operands, LoopPattern::unit);
  return pattern;
}

}  // namespace

bool may_stream(const LoopPattern& pattern, int inputs, char* const* data, const int64_t* strides) noexcept {
  const int rank = pattern.rank, vector_loop = pattern.lanes ? rank - pattern.row_rank - 1 : rank - 1;
  for (int k = inputs; k < pattern.operands; ++k) {
    if (pattern.inner[k] != LoopPattern::unit) continue;
    auto addresses = reinterpret_cast<uintptr_t>(data[k]);
    for (int d = 0; d < rank; ++d)
      if (d != vector_loop) addresses |= static_cast<uintptr_t>(strides[k * rank + d]);
    if (addresses % kLineBytes || std::find(data, data + inputs, data[k]) != data + inputs) return false;
  }
  return true;
}

Loop::Code Loop::code_for(char* const* data, const Work& work) const {
  if (!work.large || !may_stream(work.pattern, form_.inputs, data, work.strides)) return work.code;
  LoopPattern pattern = work.pattern;
  pattern.streaming = true;
  return find(pattern);
}

// What `run` comes to for `size` elements in one line.
void Loop::run_contiguous(const Call& call, int64_t size) const {
  if (size == 0) return;
  const int operands = form_.operands;
  Code code = contiguous_code_.load(std::memory_order_acquire);
  if (!code) {
    code = find(contiguous_pattern(operands));
    contiguous_code_.store(code, std::memory_order_release);
  }
  char* data[LoopPattern::kOperands];
  int64_t strides[LoopPattern::kOperands];
  int64_t bytes = 0, stored = 0;
  for (int k = 0; k < operands; ++k) {
    data[k] = call.operands[k].data;
    strides[k] = static_cast<int64_t>(size_of(call.operands[k].dtype));
    bytes += size * strides[k];
    if (k >= form_.inputs) stored += size * strides[k];
  }
  if (bytes < kSplitBytes) {
    code(data, &size, strides, call.parameters);
    return;
  }
  if (stored >= kStreamingBytes)
    code = code_for(
        data, {.code = code, .strides = strides, .pattern = contiguous_pattern(operands), .large = true});
  parallel_for(size, whole_lines(parts_at_a_time(size, bytes)), [&](int64_t begin, int64_t end) {
    char* moved[LoopPattern::kOperands];
    for (int k = 0; k < operands; ++k) moved[k] = data[k] + begin * strides[k];
    const int64_t count = end - begin;
    code(moved, &count, strides, call.parameters);
  });
}

// One row, whose elements are evenly spaced.
void Loop::run_split_row(char* const* data, const uint64_t* parameters, const Work& work) const {
  const int64_t size = work.sizes[0], count = (size + kFoldElements - 1) / kFoldElements;
  const int inputs = form_.inputs, reductions = static_cast<int>(split_.dtypes.size());
  std::vector<int64_t> partials(static_cast<size_t>(count * reductions));  // eight bytes for each
  static constexpr int64_t kOne = 1;
  const auto set_pointers = [&](int64_t piece, char** at) {
    for (int k = 0; k < inputs; ++k) at[k] = data[k] + piece * kFoldElements * work.strides[k];
    for (int r = 0; r < reductions; ++r)
      at[inputs + r] = reinterpret_cast<char*>(partials.data() + r * count) +
                       piece * static_cast<int64_t>(size_of(split_.dtypes[static_cast<size_t>(r)]));
  };
  // The code of pieces is found before they run: making it may need the GIL, whose holder may wait for them.
  const auto bound = [&](int64_t length) {
    int64_t strides[LoopPattern::kOperands];
    View views[LoopPattern::kOperands];
    for (int k = 0; k < inputs; ++k) {
      strides[k] = work.strides[k] / static_cast<int64_t>(size_of(work.dtypes[k]));
      views[k] = {data[k], work.dtypes[k], 1, &length, strides + k};
    }
    for (int r = 0; r < reductions; ++r)
      views[inputs + r] = {reinterpret_cast<char*>(partials.data()), split_.dtypes[static_cast<size_t>(r)], 1,
                           &kOne, &kOne};
    return split_.part->bind(views);
  };
  const std::unique_ptr<Bound> whole = bound(kFoldElements);
  const std::unique_ptr<Bound> last = bound(size - (count - 1) * kFoldElements);
  parallel_for(count, 1, [&](int64_t begin, int64_t end) {
    char* at[LoopPattern::kOperands];
    for (int64_t piece = begin; piece < end; ++piece) {
      set_pointers(piece, at);
      (piece == count - 1 ? last : whole)->run(at, parameters, outside_engine);
    }
  });
  View views[2 * LoopPattern::kOperands];
  for (int r = 0; r < reductions; ++r)
    views[r] = {reinterpret_cast<char*>(partials.data() + r * count), split_.dtypes[static_cast<size_t>(r)],
                1, &count, &kOne};
  for (int k = inputs; k < form_.operands; ++k)
    views[reductions + k - inputs] = {data[k], work.dtypes[k], 1, &kOne, &kOne};
  split_.join->run({views, parameters, nullptr});
}

// Whether pieces of a loop outside the rows are right: code that reads its position counts from its piece.
bool Loop::may_split(const Space& space, int loop) const noexcept {
  if (!form_.fixed()) return true;
  for (int d = space.rank; d-- > 0;) {  // the dimensions outside the rows, as `arrange` goes through them
    if (form_.row_axes >> d & 1) continue;
    if (loop-- == 0) return (form_.position_axes >> d & 1) == 0;
  }
  return false;
}

// How the work is split up, and its code. Fills everything but the strides.
Loop::Work Loop::split(const Space& space) const {
  Work work = partition(space);
  if (work.kind != Work::Kind::stages) work.code = find(space.pattern);  // stages have code of their own
  return work;
}

Loop::Work Loop::partition(const Space& space) const {
  const int rank = space.rank, operands = space.operands;
  Work work{.rank = rank,
            .operands = operands,
            .sizes = space.sizes,
            .dtypes = space.dtypes,
            .pattern = space.pattern};
  if (split_.part && rank == 1 && space.sizes[0] > kFoldElements) {
    work.kind = Work::Kind::parts;
    return work;
  }
  int64_t bytes = 0, stored = 0;
  for (int k = 0; k < operands; ++k) {
    auto operand_bytes = static_cast<int64_t>(size_of(space.dtypes[k]));
    for (int d = 0; d < rank; ++d)
      if (space.strides[k][d] != 0) operand_bytes *= space.sizes[d];
    bytes += operand_bytes;
    if (k >= form_.inputs && space.pattern.inner[k] == LoopPattern::unit) stored += operand_bytes;
  }
  work.large = stored >= kStreamingBytes && space.pattern.tile < 0;  // tiles see to it themselves
  if (const int64_t grain = space.shared_grain(bytes); grain && !stages().empty()) {
    work.kind = Work::Kind::stages;
    work.grain = grain;
    return work;
  }

  // Pieces of the longest loop that is not part of a row.
  const int loops = form_.row_axes ? rank - space.rows : rank;
  int split = -1;
  if (bytes >= kSplitBytes) {
    for (int d = 0; d < loops; ++d)
      if (may_split(space, d) &&
          (split < 0 || (space.sizes[split] < 4 * team_size() && space.sizes[d] > space.sizes[split])))
        split = d;
  }
  if (split < 0 || space.sizes[split] < 2) return work;
  const int64_t size = space.sizes[split];
  int64_t grain = parts_at_a_time(size, bytes);
  if (split == (space.pattern.lanes ? loops : rank) - 1) grain = whole_lines(grain);
  if (space.pattern.tile >= 0 && (split == space.pattern.tile || split == rank - 1)) {
    const int64_t fair = size / (2 * team_size()) / kTile * kTile;  // for every thread to have some
    grain = std::max(grain, std::clamp<int64_t>(fair, kTile, kBlock));
  }
  work.kind = Work::Kind::pieces;
  work.loop = split;
  work.grain = grain;
  return work;
}

void Loop::run_work(char* const* data, const uint64_t* parameters, const Work& work) const {
  switch (work.kind) {
    case Work::Kind::once:
      code_for(data, work)(data, work.sizes, work.strides, parameters);
      return;
    case Work::Kind::parts:
      run_split_row(data, parameters, work);
      return;
    case Work::Kind::stages:
      run_stages(data, parameters, work);
      return;
    case Work::Kind::pieces: {
      const Code code = code_for(data, work);
      parallel_for(work.sizes[work.loop], work.grain, [&](int64_t begin, int64_t end) {
        char* moved[LoopPattern::kOperands];
        for (int k = 0; k < work.operands; ++k)
          moved[k] = data[k] + begin * work.strides[k * work.rank + work.loop];
        int64_t sizes[kMaxDims + 1];
        std::copy_n(work.sizes, work.rank, sizes);
        sizes[work.loop] = end - begin;
        code(moved, sizes, work.strides, parameters);
      });
    }
  }
}

void Loop::run(const Call& call) const {
  if (!form_.row_axes && !form_.fixed()) {
    if (const int64_t size = contiguous_size(call.operands, form_.operands); size >= 0) {
      run_contiguous(call, size);
      return;
    }
  }
  Space space;
  if (!arrange(call.operands, space)) return;
  Work work = split(space);
  char* data[LoopPattern::kOperands];
  int64_t strides[LoopPattern::kOperands * (kMaxDims + 1)];
  for (int k = 0; k < space.operands; ++k) {
    data[k] = call.operands[k].data;
    std::copy_n(space.strides[k], space.rank, strides + k * space.rank);
  }
  work.strides = strides;
  run_work(data, call.parameters, work);
}

class Loop::BoundLoop final : public Bound {
 public:
  explicit BoundLoop(const Loop& loop) : loop_(loop) {}  // does nothing
  BoundLoop(const Loop& loop, const Space& space)
      : loop_(loop),
        runs_(true),
        sizes_(space.sizes, space.sizes + space.rank),
        dtypes_(space.dtypes, space.dtypes + space.operands),
        work_(loop.split(space)) {
    for (int k = 0; k < space.operands; ++k)
      strides_.insert(strides_.end(), space.strides[k], space.strides[k] + space.rank);
    work_.sizes = sizes_.data();
    work_.strides = strides_.data();
    work_.dtypes = dtypes_.data();
  }
  BoundLoop(const BoundLoop&) = delete;

  void run(char* const* data, const uint64_t* parameters, const RunContext&) const override {
    if (runs_) loop_.run_work(data, parameters, work_);
  }

 private:
  const Loop& loop_;
  const bool runs_ = false;
  const std::vector<int64_t> sizes_;
  const std::vector<DType> dtypes_;
  std::vector<int64_t> strides_;
  Work work_;
};

std::unique_ptr<Bound> Loop::bind(const View* operands) const {
  Space space;
  if (!arrange(operands, space)) return std::make_unique<BoundLoop>(*this);
  return std::make_unique<BoundLoop>(*this, space);
}

}  // namespace weft
