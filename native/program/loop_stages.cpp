// loop_stages.cpp: runs stages one by one over rows that are side by side, such as the channels of images.
//
// Each thread works on all rows, and on a piece of their length: memory is read in the order of its
// addresses, and few long rows are enough for any number of threads. Pieces have a fixed size, so that
// results do not depend on that number. Sums of pieces and what is made of them are in an array of the thread
// that runs the Loop.
#include <algorithm>

#include "engine/team.h"
#include "program/loop_work.h"
#include "program/scratch.h"

namespace weft {
namespace {

constexpr int64_t kLineBytes = 64;

int64_t bytes_of(DType dtype) noexcept { return static_cast<int64_t>(size_of(dtype)); }

// Memory of this thread, until the next call; it grows, and stays.
char* thread_buffer(int64_t bytes) {
  thread_local std::vector<char> memory;
  const auto size = static_cast<size_t>(bytes + kLineBytes);
  if (memory.size() < size) memory.resize(size);
  const auto at = reinterpret_cast<uintptr_t>(memory.data());
  return memory.data() + (kLineBytes - at % kLineBytes) % kLineBytes;
}

}  // namespace

// The operands of one stage, in two loops: rows, and the elements of a row.
struct Loop::StageOperands {
  StageOperands() { pattern.rank = 2, pattern.lanes = true; }
  LoopPattern pattern;
  char* data[LoopPattern::kOperands];
  int64_t strides[2 * LoopPattern::kOperands];
  int64_t moves[LoopPattern::kOperands];  // from one piece to the next
  int64_t items[LoopPattern::kOperands];
  LoopReach reach[LoopPattern::kOperands];  // of all pieces; where they are checked

  void add(char* at, int64_t row, int64_t element, int64_t move, LoopPattern::Stride inner, DType dtype,
           const LoopReach& all) {
    const int k = pattern.operands++;
    data[k] = at, strides[2 * k] = row, strides[2 * k + 1] = element, moves[k] = move;
    pattern.inner[k] = inner, items[k] = bytes_of(dtype), reach[k] = all;
  }
  // Numbers of the Loop's own, in `bytes` bytes.
  void add_numbers(char* at, DType dtype, int64_t bytes, int64_t element = 0, int64_t move = 0) {
    add(at, bytes_of(dtype), element, move, LoopPattern::unit, dtype, {0, bytes});
  }
  // The piece of this number, `length` elements of each of so many rows.
  void run(Code code, const uint64_t* parameters, int64_t piece, int64_t rows, int64_t length) const {
    char* moved[LoopPattern::kOperands];
    for (int k = 0; k < pattern.operands; ++k) moved[k] = data[k] + piece * moves[k];
    const int64_t sizes[2] = {rows, length};
    for (int k = 0; checks_loops && k < pattern.operands; ++k)
      check_piece(k, reach[k], data[k], moved[k], 2, sizes, strides + 2 * k, items[k]);
    code(moved, sizes, strides, parameters);
  }
};

const Loop::Stages& Loop::stages() const {
  static const Stages none;
  if (!make_stages_) return none;
  if (const Stages* cached = stages_.load(std::memory_order_acquire)) return *cached;
  auto stages = std::make_unique<const Stages>(make_stages_());  // outside the mutex, as code is
  const std::lock_guard guard(mutex_);
  if (!owned_stages_) owned_stages_ = std::move(stages);
  stages_.store(owned_stages_.get(), std::memory_order_release);
  return *owned_stages_;
}

void Loop::run_stages(char* const* data, const uint64_t* parameters, const Work& work) const {
  const int64_t rows = work.sizes[0], size = work.sizes[1], grain = work.grain;
  const int64_t count = (size + grain - 1) / grain;
  const auto in_lines = [](int64_t bytes) {
    return static_cast<int64_t>(weft::in_lines(static_cast<size_t>(bytes)));
  };
  int64_t needed = 0;
  for (const Stage& stage : stages()) {
    for (const DType dtype : stage.pieces) needed += in_lines(bytes_of(dtype) * rows * count);
    for (const DType dtype : stage.numbers) needed += in_lines(bytes_of(dtype) * rows);
  }
  char* free = thread_buffer(needed);
  const auto take = [&](int64_t bytes) {
    char* const at = free;
    free += in_lines(bytes);
    return at;
  };
  const auto add_operands = [&](StageOperands& operands, int begin, int end) {
    for (int k = begin; k < end; ++k) {
      const int64_t element = work.strides[2 * k + 1];
      operands.add(data[k], work.strides[2 * k], element, grain * element, work.pattern.inner[k],
                   work.dtypes[k], work.reach ? work.reach[k] : LoopReach{});
    }
  };
  const auto code_of = [](const Ref<Kernel>& loop, const StageOperands& operands) {
    return static_cast<const Loop&>(*loop).find(operands.pattern);
  };

  StageOperands inputs;  // the inputs, and the numbers of rows of earlier stages
  add_operands(inputs, 0, form_.inputs);
  std::vector<std::pair<char*, DType>> numbers;
  for (const Stage& stage : stages()) {
    StageOperands operands = inputs, join;
    for (const DType dtype : stage.pieces) {
      const int64_t width = bytes_of(dtype) * rows;
      char* const at = take(width * count);
      operands.add_numbers(at, dtype, width * count, 0, width);
      join.add_numbers(at, dtype, width * count, width);
    }
    if (stage.kind != Stage::Kind::fold) add_operands(operands, form_.inputs, form_.operands);
    const int results = form_.operands - form_.inputs;
    operands.pattern.streaming =
        stage.kind == Stage::Kind::each && work.large &&
        may_stream(operands.pattern, operands.pattern.operands - results, operands.data, operands.strides);
    const Code code = code_of(stage.loop, operands);
    if (stage.kind == Stage::Kind::once) {
      operands.run(code, parameters, 0, rows, 1);
      continue;
    }
    parallel_for(count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t piece = begin; piece < end; ++piece)
        operands.run(code, parameters, piece, rows, std::min(grain, size - piece * grain));
    });
    if (stage.kind != Stage::Kind::fold) continue;
    for (const auto& [at, dtype] : numbers) join.add_numbers(at, dtype, bytes_of(dtype) * rows);
    for (const DType dtype : stage.numbers) {
      const int64_t bytes = bytes_of(dtype) * rows;
      char* const at = take(bytes);
      join.add_numbers(at, dtype, bytes);
      inputs.add_numbers(at, dtype, bytes);
      numbers.emplace_back(at, dtype);
    }
    join.run(code_of(stage.join, join), parameters, 0, rows, count);
  }
}

}  // namespace weft
