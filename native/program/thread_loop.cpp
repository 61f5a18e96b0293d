#include "program/thread_loop.h"

#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <tuple>

#include "engine/fork.h"
#include "storage/runtime.h"

namespace weft {
namespace {

constexpr int64_t kAccessBytes = 16;        // the widest access of a thread
constexpr size_t kGateWords = 2;            // the address of findings, their number
constexpr int64_t kBlocksOfProcessor = 16;  // more would wait; those that run stride over what is left
// Products of fewer rows, columns or elements would leave most of a tile empty.
constexpr int64_t kLeastSide = 16, kLeastDepth = 8;

// Orders the loops before rows so that products can be computed in tiles: first those that belong to neither
// side, then those of m, those of n, where every factor moves along m or along n but not along both. n is
// where neighbouring results are. False, and nothing changes, if they are no products, or small ones.
bool pair_up(LoopSpace& space, uint32_t factors, ThreadPattern& pattern) {
  const int outer = space.rank - space.rows, result = space.operands - 1;
  uint32_t moving[kMaxDims + 1] = {};
  int last = -1;
  for (int d = 0; d < outer; ++d) {
    for (int k = 0; k < space.operands; ++k)
      if ((factors >> k & 1) != 0 && space.strides[k][d] != 0) moving[d] |= uint32_t{1} << k;
    const auto step = [&](int loop) { return std::abs(space.strides[result][loop]); };
    if (moving[d] != 0 && space.sizes[d] > 1 && (last < 0 || step(d) < step(last))) last = d;
  }
  if (last < 0) return false;
  uint32_t firsts = 0, seconds = 0;
  for (int d = 0; d < outer; ++d)
    if ((moving[d] & moving[last]) == 0) firsts |= moving[d];
  int side[kMaxDims + 1] = {}, loops[3] = {};  // of neither side, of m, of n
  int64_t sizes[3] = {1, 1, 1}, depth = 1;
  for (int d = 0; d < outer; ++d) {
    side[d] = moving[d] == 0 ? 0 : (moving[d] & firsts) == 0 ? 2 : (moving[d] & moving[last]) == 0 ? 1 : 0;
    ++loops[side[d]];
    sizes[side[d]] *= space.sizes[d];
    if (side[d] == 2) seconds |= moving[d];
  }
  for (int d = outer; d < space.rank; ++d) depth *= space.sizes[d];
  if (sizes[1] < kLeastSide || sizes[2] < kLeastSide || depth < kLeastDepth) return false;

  const LoopSpace before = space;
  int next[3] = {0, loops[0], loops[0] + loops[1]};
  for (int d = 0; d < outer; ++d) {
    const int to = next[side[d]]++;
    space.sizes[to] = before.sizes[d];
    for (int k = 0; k < space.operands; ++k) space.strides[k][to] = before.strides[k][d];
  }
  pattern.m_loops = loops[1];
  pattern.n_loops = loops[2];
  pattern.seconds = seconds;
  space.pattern.lanes = false;
  space.set_inner(space.rank - 1);
  return true;
}

}  // namespace

ThreadPattern::Key ThreadPattern::key() const noexcept {
  // No loop has a tile, whose bits (11 to 15 of LoopPattern::key) are free.
  const auto schedule = static_cast<uint64_t>(is_narrow) |
                        static_cast<uint64_t>(std::bit_width(static_cast<unsigned>(width)) - 1) << 1;
  const uint64_t pairs = static_cast<uint64_t>(m_loops) | static_cast<uint64_t>(n_loops) << 8 |
                         static_cast<uint64_t>(seconds) << 16 | static_cast<uint64_t>(row_bits) << 48 |
                         static_cast<uint64_t>(is_gated) << 63;
  return {loop.key() | schedule << 11, pairs, device};
}

// False: there is nothing to do.
bool ThreadLoop::prepare(const View* operands, Work& work) const {
  LoopSpace& space = work.space;
  if (!space.arrange(form_, operands)) return false;
  const int outer = form_.row_axes ? space.rank - space.rows : space.rank;
  int64_t positions = 1, row = 1;
  work.items = 1;
  bool is_narrow = true;
  for (int d = 0; d < space.rank; ++d) {
    positions *= space.sizes[d];
    (d < outer ? work.items : row) *= space.sizes[d];
    for (int k = 0; k < space.operands; ++k)
      is_narrow &= std::abs(space.strides[k][d]) <= kNarrow / std::max<int64_t>(space.sizes[d], 1);
  }
  if (factors_ != 0 && !form_.fixed()) pair_up(space, factors_, work.pattern);
  work.pattern.loop = space.pattern;
  work.pattern.is_narrow = is_narrow && positions <= kNarrow;
  const int bits = std::bit_width(static_cast<uint64_t>(row - 1));
  work.pattern.row_bits = keeps_ ? std::max(bits, ThreadPattern::kFirstBits) : ThreadPattern::kShortBits;
  if (bits > (keeps_ ? ThreadPattern::kLastBits : ThreadPattern::kShortBits)) work.pattern.row_bits = 0;
  if (!may_join_) return true;
  int64_t item_bytes = kAccessBytes;
  for (int k = 0; k < space.operands; ++k) {
    if (space.pattern.inner[k] != LoopPattern::unit) continue;
    const auto bytes = static_cast<int64_t>(size_of(space.dtypes[k]));
    item_bytes = item_bytes == kAccessBytes ? bytes : std::max(item_bytes, bytes);
  }
  int64_t width = kAccessBytes / item_bytes;
  const auto fits = [&] {
    if (space.rank > 1 && space.sizes[space.rank - 1] % width != 0) return false;
    for (int k = 0; k < space.operands; ++k) {
      if (space.pattern.inner[k] != LoopPattern::unit) continue;
      for (int d = 0; d < space.rank - 1; ++d)
        if (space.strides[k][d] % (width * static_cast<int64_t>(size_of(space.dtypes[k]))) != 0) return false;
    }
    return true;
  };
  while (width > 1 && !fits()) width /= 2;
  work.most_width = width;
  return true;
}

void ThreadLoop::launch(const Work& work, char* const* data, std::span<const uint64_t> gathered,
                        const uint64_t* parameters, const RunContext& context) const {
  if (!backend_of(context.device.kind))
    throw std::logic_error("a loop for threads runs on " + to_string(context.device));
  const LoopSpace& space = work.space;
  ThreadPattern pattern = work.pattern;
  pattern.device = context.device.index;
  int64_t width = work.most_width;
  for (int k = 0; k < space.operands; ++k) {
    if (space.pattern.inner[k] != LoopPattern::unit) continue;
    const auto address = reinterpret_cast<uintptr_t>(data[k]);
    while (width > 1 &&
           address % static_cast<uintptr_t>(width * static_cast<int64_t>(size_of(space.dtypes[k]))) != 0)
      width /= 2;
  }
  pattern.width = static_cast<int>(width);
  pattern.is_gated = is_gated_now(context);
  const DeviceFunction& function = *codes_.find(pattern.key(), [&] { return compile_(pattern); });

  uint64_t words[DeviceFunction::kMostWords];
  const auto rank = static_cast<size_t>(space.rank), operands = static_cast<size_t>(space.operands);
  size_t count = 0;
  for (size_t k = 0; k < operands; ++k) words[count++] = reinterpret_cast<uint64_t>(data[k]);
  for (size_t d = 0; d < rank; ++d) words[count++] = static_cast<uint64_t>(space.sizes[d]);
  for (size_t k = 0; k < operands; ++k)
    for (size_t d = 0; d < rank; ++d) words[count++] = static_cast<uint64_t>(space.strides[k][d]);
  for (const uint64_t stride : gathered) words[count++] = stride;
  enqueue_launch(context, function, work.items, words, count, parameters, pattern.is_gated);
}

void ThreadLoop::run(const Call& call, std::span<const uint64_t> gathered) const {
  Work work;
  if (!prepare(call.operands, work)) return;
  if (const int64_t piece = piece_of(work)) return run_pieces(call, work.space, piece);
  char* data[LoopPattern::kOperands];
  for (int k = 0; k < form_.operands; ++k) data[k] = call.operands[k].data;
  launch(work, data, gathered, call.parameters, call.context);
}

class ThreadLoop::BoundLoop final : public Bound {
 public:
  BoundLoop(const ThreadLoop& loop, const View* operands)
      : loop_(loop), runs_(loop.prepare(operands, work_)) {}
  bool is_split() const { return runs_ && loop_.piece_of(work_); }
  void run(char* const* data, const uint64_t* parameters, const RunContext& context) const override {
    if (runs_) loop_.launch(work_, data, {}, parameters, context);
  }

 private:
  const ThreadLoop& loop_;
  Work work_;
  const bool runs_;
};

std::unique_ptr<Bound> ThreadLoop::bind(const View* operands) const {
  auto bound = std::make_unique<BoundLoop>(*this, operands);
  if (bound->is_split()) return nullptr;  // it needs scratch
  return bound;
}

void enqueue_launch(const RunContext& context, const DeviceFunction& function, int64_t items, uint64_t* words,
                    size_t count, const uint64_t* parameters, bool is_gated) {
  const size_t end = function.words - (is_gated ? kGateWords : 0);
  if (count > end) throw std::logic_error("a loop's code takes fewer words than its operands have");
  if (count < end) std::memcpy(words + count, parameters, (end - count) * sizeof *words);
  if (is_gated) {
    words[end] = reinterpret_cast<uint64_t>(context.findings->memory);
    words[end + 1] = context.findings->count;
  }
  DeviceBackend& backend = *backend_of(context.device.kind);
  const int64_t blocks = std::min((items + function.items - 1) / function.items,
                                  kBlocksOfProcessor * backend.processors(context.device.index));
  if (blocks > 0)
    backend.launch(context.device.index, context.stream, function, static_cast<unsigned>(blocks), words);
}

namespace {

using LoopKey = std::tuple<std::string, DType, DType, int>;

// The loop of a key, as long as the process; the given one if there was none. Null: there is none.
const Kernel* kept_loop(const LoopKey& key, Ref<Kernel> made = {}) {
  const std::lock_guard guard(lasting_fork_mutex<ThreadLoop>());
  static auto& loops = *new std::map<LoopKey, Ref<Kernel>>;
  if (made) return loops.try_emplace(key, std::move(made)).first->second.get();
  const auto found = loops.find(key);
  return found == loops.end() ? nullptr : found->second.get();
}

}  // namespace

const Kernel& array_loop(const char* what, DType to, DType from, int rank) {
  const LoopKey key{what, to, from, rank};
  if (const Kernel* const loop = kept_loop(key)) return *loop;
  auto* const make = make_array_loop.load(std::memory_order_acquire);
  if (!make) throw std::logic_error("nothing makes loops of arrays");
  return *kept_loop(key,
                    make(what, to, from, rank));  // without the lock: it takes those of the host language
}

void enqueue_array_loop(const char* what, std::span<const View> operands, const uint64_t* parameters,
                        const RunContext& context) {
  const View& to = operands.back();
  const bool counts = std::strcmp(what, "copy") != 0 && std::strcmp(what, "fill") != 0;
  const Kernel& loop = array_loop(what, to.dtype, operands.front().dtype, counts ? to.ndim : 0);
  const TempSpace scratch(context.device, loop.scratch_bytes(operands.data()), context.stream_number);
  loop.run({operands.data(), parameters, scratch.get(), context});
}

}  // namespace weft
