// thread_pieces.cpp: long rows on a GPU, of which there are too few for one block of threads each.
//
// They are folded and scanned in pieces, each of which is a block's work, and what pieces come to is joined
// row by row; elements are then stored by a launch over all of them. Pieces depend on the shape alone, so
// results do not depend on the device. What one launch hands to another is in the call's scratch memory.
#include <algorithm>
#include <deque>

#include "program/scratch.h"
#include "program/thread_loop.h"

namespace weft {
namespace {

// Rows are split where they are longer and come to fewer blocks; into at most so many pieces, of at least so
// many elements.
constexpr int64_t kLongestWhole = 8192, kFewBlocks = 32, kMostPieces = 512, kLeastPiece = 2048;

// Arrays of numbers that launches hand on.
struct Handed {
  char* at;
  DType dtype;
};

}  // namespace

// The views of a loop's operands, and of scratch, that the launches have. The loops outside of rows come
// first in each, then the pieces of a row where rows are in pieces, then elements.
class ThreadLoop::LongRows {
 public:
  class Run;
  // operands, scratch: null where only bytes are counted.
  LongRows(const LoopSpace& space, const View* operands, char* scratch, int64_t piece, bool is_reverse)
      : space_(space),
        operands_(operands),
        scratch_(scratch),
        piece_(piece),
        last_(space.rank - 1),
        row_(space.sizes[last_]),
        count_((row_ + piece - 1) / piece),
        is_reverse_(is_reverse) {
    for (int d = 0; d < last_; ++d) items_ *= space.sizes[d];
  }

  size_t bytes() const { return taken_; }

  // A number for each piece, or for each row.
  char* take_totals(DType dtype) { return take(items_ * count_ * bytes_of(dtype)); }
  char* take_numbers(DType dtype) { return take(items_ * bytes_of(dtype)); }

  // Operand k: all elements of its rows; its first ones.
  View rows(int k) { return of_rows(k, row_); }
  View firsts(int k) { return of_rows(k, 1); }

  // `pieces` pieces of `length` elements from one piece on.
  struct Piece {
    int64_t first, pieces, length;
  };
  View in_pieces(int k, const Piece& piece) {
    Geometry& g = begin_view(last_ + 2);
    const int64_t step = element_step(k);
    g.sizes[last_] = piece.pieces;
    g.sizes[last_ + 1] = piece.length;
    for (int d = 0; d < last_; ++d) g.strides[d] = space_.strides[k][d] / bytes_of(space_.dtypes[k]);
    g.strides[last_] = step * piece_;
    g.strides[last_ + 1] = step;
    char* at = operands_[k].data + piece.first * piece_ * step * bytes_of(space_.dtypes[k]);
    if (is_reverse_) at += (row_ - 1) * space_.strides[k][last_];
    return {at, space_.dtypes[k], last_ + 2, g.sizes, g.strides};
  }
  // What these pieces come to.
  View totals(char* at, DType dtype, const Piece& piece) {
    Geometry& g = begin_view(last_ + 2);
    g.sizes[last_] = piece.pieces;
    g.sizes[last_ + 1] = 1;
    set_outer_steps(g, count_);
    g.strides[last_] = g.strides[last_ + 1] = 1;
    return {at + piece.first * bytes_of(dtype), dtype, last_ + 2, g.sizes, g.strides};
  }
  // What all pieces come to, as rows.
  View totals(char* at, DType dtype) {
    Geometry& g = begin_view(last_ + 1);
    g.sizes[last_] = count_;
    set_outer_steps(g, count_);
    g.strides[last_] = 1;
    return {at, dtype, last_ + 1, g.sizes, g.strides};
  }
  // Numbers of rows, beside views of so many dimensions behind the outer ones.
  View numbers(char* at, DType dtype, int behind) {
    Geometry& g = begin_view(last_ + behind);
    set_outer_steps(g, 1);
    for (int d = last_; d < last_ + behind; ++d) g.sizes[d] = g.strides[d] = 1;
    return {at, dtype, last_ + behind, g.sizes, g.strides};
  }

  // Calls run for all whole pieces, then for what is left of each row.
  template <class Run>
  void for_pieces(const Run& run) const {
    const int64_t whole = row_ / piece_;
    if (whole > 0) run(Piece{0, whole, piece_});
    if (whole < count_) run(Piece{whole, 1, row_ - whole * piece_});
  }

 private:
  struct Geometry {
    int64_t sizes[kMaxDims + 1], strides[kMaxDims + 1];
  };
  static int64_t bytes_of(DType dtype) { return static_cast<int64_t>(size_of(dtype)); }

  char* take(int64_t bytes) {
    char* const at = scratch_ ? scratch_ + taken_ : nullptr;
    taken_ += in_lines(static_cast<size_t>(bytes));
    return at;
  }
  Geometry& begin_view(int rank) {
    Geometry& g = geometries_.emplace_back();
    std::copy_n(space_.sizes, std::min(rank, last_), g.sizes);
    return g;
  }
  int64_t element_step(int k) const {
    const int64_t step = space_.strides[k][last_] / bytes_of(space_.dtypes[k]);
    return is_reverse_ ? -step : step;
  }
  View of_rows(int k, int64_t size) {
    Geometry& g = begin_view(last_ + 1);
    g.sizes[last_] = size;
    for (int d = 0; d <= last_; ++d) g.strides[d] = space_.strides[k][d] / bytes_of(space_.dtypes[k]);
    return {operands_[k].data, space_.dtypes[k], last_ + 1, g.sizes, g.strides};
  }
  // Row by row, `step` numbers each.
  void set_outer_steps(Geometry& g, int64_t step) const {
    for (int d = last_; d-- > 0; step *= space_.sizes[d]) g.strides[d] = step;
  }

  const LoopSpace& space_;
  const View* const operands_;
  char* const scratch_;
  size_t taken_ = 0;  // of it
  const int64_t piece_;
  const int last_;
  const int64_t row_, count_;
  const bool is_reverse_;
  int64_t items_ = 1;
  std::deque<Geometry> geometries_;  // of views
};

const Loop::Stages& ThreadLoop::stages() const {
  static const Loop::Stages none;
  if (!make_stages_) return none;
  if (const Loop::Stages* cached = stages_.load(std::memory_order_acquire)) return *cached;
  auto stages = std::make_unique<const Loop::Stages>(make_stages_());  // outside the mutex, as code is
  const std::lock_guard guard(mutex_);
  if (!owned_stages_) owned_stages_ = std::move(stages);
  stages_.store(owned_stages_.get(), std::memory_order_release);
  return *owned_stages_;
}

int64_t ThreadLoop::piece_of(const Work& work) const {
  const LoopSpace& space = work.space;
  if ((!split_.part && !make_stages_) || form_.inputs == 0 || work.pattern.m_loops || space.rows != 1 ||
      space.rank > kMaxDims - 1)
    return 0;
  const int64_t row = space.sizes[space.rank - 1], rows_of_block = space.pattern.lanes ? 32 : 1;
  if (row <= kLongestWhole || work.items > kFewBlocks * rows_of_block) return 0;
  if (!split_.part && stages().empty()) return 0;
  int64_t piece = kLeastPiece;
  while ((row + piece - 1) / piece > kMostPieces) piece *= 2;
  return piece;
}

size_t ThreadLoop::scratch_bytes(const View* operands) const {
  Work work;
  if ((!split_.part && !make_stages_) || !prepare(operands, work)) return 0;
  const int64_t piece = piece_of(work);
  if (piece == 0) return 0;
  LongRows rows(work.space, nullptr, nullptr, piece, false);
  for (const DType dtype : split_.dtypes) rows.take_totals(dtype);
  if (!split_.part)
    for (const Loop::Stage& stage : stages()) {
      for (const DType dtype : stage.pieces)
        for (int k = stage.kind == Loop::Stage::Kind::scan ? 2 : 1; k-- > 0;) rows.take_totals(dtype);
      for (const DType dtype : stage.numbers) rows.take_numbers(dtype);
    }
  return rows.bytes();
}

// The launches of a call, one after the other.
class ThreadLoop::LongRows::Run {
 public:
  Run(const ThreadLoop& loop, const Call& call, LongRows& rows) : loop_(loop), call_(call), rows_(rows) {}

  void run_split() {
    fold_all(loop_.split_.part, {}, loop_.split_.dtypes);
    add_results([&](int k) { return rows_.firsts(k); });
    launch(loop_.split_.join);
  }
  void run_stage(const Loop::Stage& stage) {
    switch (stage.kind) {
      case Loop::Stage::Kind::fold:
        return run_fold(stage);
      case Loop::Stage::Kind::scan:
        return run_scan(stage);
      case Loop::Stage::Kind::each:
        return run_elements(stage, [&](int k) { return rows_.rows(k); });
      case Loop::Stage::Kind::once:
        return run_elements(stage, [&](int k) { return rows_.firsts(k); });
    }
  }

 private:
  void launch(const Ref<Kernel>& kernel) {
    kernel->run({views_.data(), call_.parameters, nullptr, call_.context});
    views_.clear();
  }
  template <class ViewOf>
  void add_read(const std::vector<int>& outputs, const ViewOf& view_of) {
    for (int k = 0; k < loop_.form_.inputs; ++k) views_.push_back(view_of(k));
    for (const int j : outputs) views_.push_back(view_of(loop_.form_.inputs + j));
  }
  template <class ViewOf>
  void add_results(const ViewOf& view_of) {
    for (int k = loop_.form_.inputs; k < loop_.form_.operands; ++k) views_.push_back(view_of(k));
  }
  void add_numbers(int behind) {
    for (const auto& [at, dtype] : numbers_) views_.push_back(rows_.numbers(at, dtype, behind));
  }
  std::vector<Handed> take_totals(const std::vector<DType>& dtypes) {
    std::vector<Handed> totals;
    for (const DType dtype : dtypes) totals.push_back({rows_.take_totals(dtype), dtype});
    return totals;
  }
  // What the pieces `from` come to, as those of the pieces `to`.
  void fold(const Ref<Kernel>& part, const std::vector<int>& outputs, const std::vector<Handed>& totals,
            const Piece& from, const Piece& to) {
    add_read(outputs, [&](int k) { return rows_.in_pieces(k, from); });
    add_numbers(2);
    for (const auto& [at, dtype] : totals) views_.push_back(rows_.totals(at, dtype, to));
    launch(part);
  }
  void fold_all(const Ref<Kernel>& part, const std::vector<int>& outputs, const std::vector<DType>& dtypes) {
    const std::vector<Handed> totals = take_totals(dtypes);
    rows_.for_pieces([&](const Piece& one) { fold(part, outputs, totals, one, one); });
    for (const auto& [at, dtype] : totals) views_.push_back(rows_.totals(at, dtype));
  }
  void run_fold(const Loop::Stage& stage) {
    fold_all(stage.loop, stage.outputs, stage.pieces);
    add_numbers(1);
    for (const DType dtype : stage.numbers) {
      numbers_.push_back({rows_.take_numbers(dtype), dtype});
      views_.push_back(rows_.numbers(numbers_.back().at, dtype, 1));
    }
    launch(stage.join);
  }
  void run_scan(const Loop::Stage& stage) {
    // What comes before each piece: nothing, before the first one.
    const std::vector<Handed> totals = take_totals(stage.pieces), before = take_totals(stage.pieces);
    fold(stage.part, {}, totals, {0, 1, 0}, {0, 1, 0});
    if (const int64_t others = rows_.count_ - 1; others > 0)
      fold(stage.part, {}, totals, {0, others, rows_.piece_}, {1, others, 0});
    for (const auto* const all : {&totals, &before})
      for (const auto& [at, dtype] : *all) views_.push_back(rows_.totals(at, dtype));
    launch(stage.join);
    rows_.for_pieces([&](const Piece& one) {
      const auto view_of = [&](int k) { return rows_.in_pieces(k, one); };
      add_read({}, view_of);
      for (const auto& [at, dtype] : before) views_.push_back(rows_.totals(at, dtype, one));
      add_results(view_of);
      launch(stage.loop);
    });
  }
  template <class ViewOf>
  void run_elements(const Loop::Stage& stage, const ViewOf& view_of) {
    add_read(stage.outputs, view_of);
    add_numbers(1);
    add_results(view_of);
    launch(stage.loop);
  }

  const ThreadLoop& loop_;
  const Call& call_;
  LongRows& rows_;
  std::vector<View> views_;      // of the next launch
  std::vector<Handed> numbers_;  // of rows, that earlier stages made
};

void ThreadLoop::run_pieces(const Call& call, const LoopSpace& space, int64_t piece) const {
  LongRows rows(space, call.operands, call.scratch, piece, !split_.part && stages().front().is_reverse);
  LongRows::Run run(*this, call, rows);
  if (split_.part) return run.run_split();
  for (const Loop::Stage& stage : stages()) run.run_stage(stage);
}

}  // namespace weft
