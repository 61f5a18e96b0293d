// lstm_cell.cpp: the cell of an LSTM at each instruction set level.
#include "kernels/lstm_cell.h"

#include <algorithm>

#include "kernels/rows.h"

namespace weft {
namespace {

constexpr int64_t kPiece = 128;  // elements that are worked on at once

}  // namespace
}  // namespace weft

#define WEFT_EACH_LEVEL "kernels/lstm_cell.inc"
#include "kernels/each_level.h"

namespace weft {
namespace {

// body(offset, count) for short pieces of units [begin, end) of every row, with the row's number.
template <class F>
void for_pieces(const LstmCell& step, int64_t begin, int64_t end, F&& body) {
  for (int64_t row = 0; row < step.rows; ++row)
    for (int64_t at = begin; at < end; at += kPiece) body(row, at, std::min(kPiece, end - at));
}

}  // namespace

void lstm_forward(const LstmForward& step, int64_t begin, int64_t end) {
  const auto cell = WEFT_AT_LEVEL(forward);
  const RowFunction store = row_functions(step.dtype, DType::float32).contiguous;
  const int64_t units = step.units, item = static_cast<int64_t>(size_of(step.dtype));
  float h[kPiece];
  for_pieces(step, begin, end, [&](int64_t row, int64_t at, int64_t count) {
    const int64_t index = row * units + at;
    const int64_t first = row * 4 * units + at;
    cell(count, units, step.gates + first, step.recurrent + first, step.before + index, step.after + index,
         h);
    store(step.h + (row * step.h_row + at) * item, 1, reinterpret_cast<const char*>(h), 1, count);
  });
}

void lstm_backward(const LstmBackward& step, int64_t begin, int64_t end) {
  const auto cell = WEFT_AT_LEVEL(backward);
  const RowFunction load = row_functions(DType::float32, step.dtype).contiguous;
  const RowFunction store = row_functions(step.dtype, DType::float32).contiguous;
  const int64_t units = step.units, item = static_cast<int64_t>(size_of(step.dtype));
  float dy[kPiece], dgates[4 * kPiece];
  for_pieces(step, begin, end, [&](int64_t row, int64_t at, int64_t count) {
    const int64_t index = row * units + at;
    load(reinterpret_cast<char*>(dy), 1, step.dy + (row * step.dy_row + at) * item, 1, count);
    cell(count, units, step.gates + row * 4 * units + at, step.before + index, step.after + index,
         step.dh + index, dy, step.dc + index, dgates);
    for (int64_t gate = 0; gate < 4; ++gate)
      store(step.dgates + ((row * 4 + gate) * units + at) * item, 1,
            reinterpret_cast<const char*>(dgates + gate * kPiece), 1, count);
  });
}

}  // namespace weft
