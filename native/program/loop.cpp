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
constexpr int64_t kShort = 8, kMany = 512;   // elements of a short row; rows that are many
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

// Operands that jump in the innermost loop and are contiguous in another one: these two run in
// tiles.
void find_tiles(LoopSpace& space, const View* views) noexcept {
  constexpr int64_t kWorthwhile = kShort + 1;  // of either loop
  constexpr int64_t kElements =
      32 << 10;  // below, everything is in the first caches, and such code takes long to make
  const int rank = space.rank;
  LoopPattern& pattern = space.pattern;
  int64_t elements = 1;
  for (int d = 0; d < rank; ++d) elements *= space.sizes[d];
  if (space.sizes[rank - 1] < kWorthwhile || elements < kElements) return;
  for (int k = 0; k < space.operands; ++k) {
    if (pattern.inner[k] != LoopPattern::any) continue;
    const auto item = static_cast<int64_t>(size_of(views[k].dtype));
    for (int d = 0; d < rank - 1; ++d) {
      if (space.strides[k][d] != item || space.sizes[d] < kWorthwhile ||
          (pattern.tile >= 0 && d != pattern.tile))
        continue;
      pattern.tile = d;
      pattern.inner[k] = LoopPattern::other;
    }
  }
}

// Operands that go backward, one element before the other, in a loop that does not run in tiles.
void find_reversed(LoopSpace& space) noexcept {
  const LoopPattern& pattern = space.pattern;
  const int loop = pattern.lanes ? pattern.rank - pattern.row_rank - 1 : pattern.rank - 1;
  for (int k = 0; k < space.operands; ++k)
    if (space.strides[k][loop] == -static_cast<int64_t>(size_of(space.dtypes[k])))
      space.pattern.inner[k] = LoopPattern::other;
}

bool is_short(int64_t size) noexcept { return size > 1 && size <= kShort; }

// Which loop short rows lie along: the innermost one, or the one before it where long rows of elements that
// are apart are, together, without gaps (the channels of an image's pixels). -1: there are none.
int short_loop(const LoopSpace& space, const LoopForm& form) noexcept {
  const int last = space.rank - 1;
  if (is_short(space.sizes[last])) return last;
  if (form.row_axes || !is_short(space.sizes[last - 1])) return -1;
  for (int k = 0; k < space.operands; ++k)
    if (space.strides[k][last - 1] == static_cast<int64_t>(size_of(space.dtypes[k])) &&
        space.pattern.inner[k] == LoopPattern::any)
      return last - 1;
  return -1;
}

// Many short rows, one behind the other: the loop over them becomes vectors, which are taken apart and put
// together with constant steps, instead of a loop of a few turns for each.
void find_short_rows(LoopSpace& space, const LoopForm& form) noexcept {
  LoopPattern& pattern = space.pattern;
  if (form.position_axes || pattern.lanes || space.rank < 2 || pattern.row_rank != 1 || pattern.tile >= 0 ||
      space.operands > LoopPattern::kShortOperands)
    return;
  const int row = short_loop(space, form);
  if (row < 0) return;
  int best = -1;
  for (int d = 0; d < space.rank; ++d)
    if (d != row && space.sizes[d] >= kMany && (best < 0 || space.sizes[d] > space.sizes[best])) best = d;
  if (best < 0) return;
  const int64_t length = space.sizes[row];
  uint8_t steps[LoopPattern::kShortOperands]{};
  LoopPattern::Stride along[LoopPattern::kShortOperands]{};
  for (int k = 0; k < space.operands; ++k) {
    const auto item = static_cast<int64_t>(size_of(space.dtypes[k]));
    const int64_t stride = space.strides[k][best], move = space.strides[k][row];
    if (stride < 0 || stride % item != 0 || stride / item > LoopPattern::kLongestStep) return;
    steps[k] = static_cast<uint8_t>(stride / item);
    along[k] = move == 0                               ? LoopPattern::zero
               : move == item                          ? LoopPattern::unit
               : stride > 0 && stride == length * move ? LoopPattern::other
                                                       : LoopPattern::any;
  }
  for (int d = row; d < space.rank - 1; ++d) space.swap(d, d + 1);
  for (int d = best - (best > row); d < space.rank - 2; ++d) space.swap(d, d + 1);
  pattern.lanes = true;
  pattern.length = static_cast<int>(length);
  space.set_inner(space.rank - 2);
  std::copy_n(steps, space.operands, pattern.step);
  std::copy_n(along, space.operands, pattern.along);
}

// How much of rows that are side by side a thread takes at a time, if threads share rows; 0: they do not.
// It does not depend on the number of threads, and so neither do sums.
int64_t shared_grain(const LoopSpace& space, int64_t bytes) noexcept {
  if (!space.pattern.lanes || space.rank != 2 || bytes < kSplitBytes) return 0;
  const int64_t rows = space.sizes[0], size = space.sizes[1];
  if (rows >= kFewRows && bytes / rows * kLanes < kNearBytes) return 0;
  const int64_t fair = std::max(size / kMostPieces, kPieceBytes * size / bytes);
  const int64_t grain = std::max<int64_t>((fair + kRowBlock - 1) / kRowBlock, 1) * kRowBlock;
  return grain * kFewestPieces <= size ? grain : 0;
}

}  // namespace

bool Loop::arrange(const View* views, Space& space) const {
  if (!space.arrange(form_, views)) return false;
  if (checks_loops) [[unlikely]]
    for (int k = 0; k < form_.operands; ++k) space.reach[k] = LoopReach::of(views[k]);
  if (!form_.row_axes && form_.elementwise() && space.rank > 1) find_tiles(space, views);
  find_short_rows(space, form_);
  if (space.pattern.tile < 0) find_reversed(space);
  return true;
}

Loop::Code Loop::find(const LoopPattern& pattern) const {
  return codes_.find(pattern.key(), [&] {
    const Code code = compile_(pattern);
    const std::lock_guard guard(mutex_);
    patterns_.push_back(pattern);
    return code;
  });
}

std::vector<LoopPattern> Loop::patterns() const {
  const std::lock_guard guard(mutex_);
  return patterns_;
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
    for (int k = 0; checks_loops && k < operands; ++k)
      check_piece(k, LoopReach::of(call.operands[k]), data[k], moved[k], 1, &count, strides + k, strides[k]);
    code(moved, &count, strides, call.parameters);
  });
}

// One row, whose elements are evenly spaced.
void Loop::run_split_row(char* const* data, const uint64_t* parameters, const Work& work) const {
  const int64_t size = work.sizes[0], count = (size + kFoldElements - 1) / kFoldElements;
  const int inputs = form_.inputs, reductions = static_cast<int>(split_.dtypes.size());
  constexpr int64_t kWords = 2;  // of each partial result: as many as the widest type, complex128, has
  std::vector<int64_t> partials(static_cast<size_t>(kWords * count * reductions));
  static constexpr int64_t kOne = 1;
  const auto set_pointers = [&](int64_t piece, char** at) {
    for (int k = 0; k < inputs; ++k) at[k] = data[k] + piece * kFoldElements * work.strides[k];
    for (int r = 0; r < reductions; ++r)
      at[inputs + r] = reinterpret_cast<char*>(partials.data() + kWords * r * count) +
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
      const int64_t length = piece == count - 1 ? size - piece * kFoldElements : kFoldElements;
      for (int k = 0; work.reach && k < inputs; ++k)
        check_piece(k, work.reach[k], data[k], at[k], 1, &length, work.strides + k,
                    static_cast<int64_t>(size_of(work.dtypes[k])));
      (piece == count - 1 ? last : whole)->run(at, parameters, outside_engine);
    }
  });
  View views[2 * LoopPattern::kOperands];
  for (int r = 0; r < reductions; ++r)
    views[r] = {reinterpret_cast<char*>(partials.data() + kWords * r * count),
                split_.dtypes[static_cast<size_t>(r)], 1, &count, &kOne};
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
            .pattern = space.pattern,
            .reach = checks_loops ? space.reach : nullptr};
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
  // Tiles see to it themselves; short rows are stored in pieces of a line.
  work.large = stored >= kStreamingBytes && space.pattern.tile < 0 && !space.pattern.length;
  if (const int64_t grain = shared_grain(space, bytes); grain && !stages().empty()) {
    work.kind = Work::Kind::stages;
    work.grain = grain;
    return work;
  }

  // Pieces of the longest loop that is not part of a row.
  const int loops = form_.row_axes ? rank - space.rows : space.pattern.length ? rank - 1 : rank;
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
      work.check(data, data, work.sizes);
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
        work.check(data, moved, sizes);
        code(moved, sizes, work.strides, parameters);
      });
    }
  }
}

void Loop::run(const Call& call) const {
  if (!form_.row_axes && form_.elementwise()) {
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
        reach_(space.reach, space.reach + (checks_loops ? space.operands : 0)),
        work_(loop.split(space)) {
    for (int k = 0; k < space.operands; ++k)
      strides_.insert(strides_.end(), space.strides[k], space.strides[k] + space.rank);
    work_.sizes = sizes_.data();
    work_.strides = strides_.data();
    work_.dtypes = dtypes_.data();
    work_.reach = checks_loops ? reach_.data() : nullptr;
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
  const std::vector<LoopReach> reach_;
  std::vector<int64_t> strides_;
  Work work_;
};

std::unique_ptr<Bound> Loop::bind(const View* operands) const {
  Space space;
  if (!arrange(operands, space)) return std::make_unique<BoundLoop>(*this);
  return std::make_unique<BoundLoop>(*this, space);
}

}  // namespace weft
