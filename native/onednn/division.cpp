#include "onednn/division.h"

#include <algorithm>

namespace weft::onednn {

namespace {

// About how fast one thread is: operations on float32, and bytes of operands, each nanosecond.
constexpr double kOperations = 100, kBytes = 20;
constexpr double kAlone_ns = 15e3;  // below, waking a thread takes longer than what it would save
constexpr double kPiece_ns = 10e3;  // what a piece takes at the least
constexpr double kRegion_ns = 2e6;  // above, waiting for a region is lost in the work
constexpr double kWorth_ns = 80e3;  // below, a region saves less than what it takes to wake a thread
constexpr int64_t kRows = 16;       // for which oneDNN's code is about as fast as for many
constexpr int64_t kLine = 16;       // indices in pieces begin at a multiple of this, where they can

int64_t elements(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  return n;
}

double bytes_of(const Geometry& x) {
  return static_cast<double>(elements(x.shape)) * static_cast<double>(size_of(x.dtype));
}

// Operations of one thread each nanosecond. Half types are twice as fast where oneDNN has code for them.
double speed_of(DType dtype) {
  const size_t size = is_half(dtype) && !has_code_for(type_of(dtype)) ? sizeof(float) : size_of(dtype);
  return kOperations * 4.0 / static_cast<double>(std::min<size_t>(size, 4));
}

// On one thread.
double time_ns(const Matmul& r) {
  const double operations = 2.0 * static_cast<double>(elements(r.c.shape) * r.a.shape.back());
  const double speed = speed_of(r.a.dtype);
  return operations / speed + (bytes_of(r.a) + bytes_of(r.b) + bytes_of(r.c)) / kBytes;
}

// The outermost dimension if it has something for every thread. Else rows, if they are enough for oneDNN's
// code: pieces of rows are dense results, which all of its implementations take. Else the longer of rows and
// columns.
size_t dimension(const Matmul& r, int threads) {
  const auto& shape = r.c.shape;
  const size_t columns = shape.size() - 1, rows = columns - 1;
  if (rows > 0 && shape[0] >= threads) return 0;
  return shape[rows] >= kRows * threads || shape[rows] > shape[columns] ? rows : columns;
}

// About what a convolution takes on one thread. Channels are computed by the vector.
double time_ns(const Convolution& r) {
  const auto whole = [](int64_t channels) { return static_cast<double>((channels + 15) / 16 * 16); };
  double operations = 2.0 * static_cast<double>(elements(r.y.shape)) * static_cast<double>(r.x.shape[1]);
  operations *= whole(r.y.shape[1]) / static_cast<double>(r.y.shape[1] * r.groups);
  for (size_t d = 2; d < r.w.shape.size() && !r.w.layout; ++d)
    operations *= static_cast<double>(r.w.shape[d]);
  const double speed = speed_of(r.x.dtype);
  return operations / speed + (bytes_of(r.x) + bytes_of(r.y)) / kBytes;
}

}  // namespace

Division::Width width_of(double time, int threads) {
  return threads == 1 || time < kWorth_ns ? Division::Width::alone : Division::Width::region;
}

double copying_ns(size_t bytes) { return static_cast<double>(bytes) / kBytes; }

Division divide(const Convolution& r, int threads) {
  using Width = Division::Width;
  if (r.w.layout) return {};
  const double time = time_ns(r);
  if (r.pass == Convolution::Pass::weights) return {.width = width_of(time, threads)};
  if (threads == 1 || time < kAlone_ns) return {.width = Width::alone};
  if (time > kRegion_ns) return {};
  const int64_t images = r.x.shape[0];
  const int64_t count =
      std::min({static_cast<int64_t>(threads), static_cast<int64_t>(time / kPiece_ns), images});
  // Pieces of different sizes might like weights in different layouts.
  if (count < 2 || (r.w.any && images % count != 0)) return {.width = width_of(time, threads)};
  const int64_t grain = (images + count - 1) / count;
  return {.width = Width::team, .dim = 0, .count = (images + grain - 1) / grain, .grain = grain};
}

Images cut(const Convolution& r, int64_t begin, int64_t size) {
  Images images{r, {}};
  const auto take = [&](Geometry& x) {
    const bool moves = x.shape[0] != 1;
    images.shifts.push_back(moves ? static_cast<size_t>(begin * x.strides[0]) * size_of(x.dtype) : 0);
    if (moves) x.shape[0] = size;
  };
  Convolution& c = images.convolution;
  const bool forward = r.pass == Convolution::Pass::forward;
  take(forward ? c.x : c.y);
  images.shifts.push_back(0);  // the weights
  if (c.bias) images.shifts.push_back(0);
  for (PostOp& op : c.post_ops)
    if (op.has_operand()) take(op.operand);
  take(forward ? c.y : c.x);
  return images;
}

Division divide(const Matmul& r, int threads) {
  using Width = Division::Width;
  const double time = time_ns(r);
  if (r.b.any || r.b.layout) return {};  // the order of its columns is known to oneDNN only
  if (threads == 1 || time < kAlone_ns) return {.width = Width::alone};
  if (time > kRegion_ns) return {};
  Division division{.width = Width::team, .dim = dimension(r, threads)};
  const int64_t size = r.c.shape[division.dim];
  division.count = std::min<int64_t>(threads, static_cast<int64_t>(time / kPiece_ns));
  division.grain = (size + division.count - 1) / division.count;
  if (division.dim + 2 >= r.c.shape.size() &&
      (size % division.count != 0 || division.grain % (kLine / 2) != 0))
    division.grain = (division.grain + kLine - 1) / kLine * kLine;
  division.count = (size + division.grain - 1) / division.grain;
  if (division.count == 1) return {.width = Width::alone};
  return division;
}

Piece cut(const Matmul& r, size_t dim, int64_t begin, int64_t size) {
  Piece piece{r, {}};
  const size_t last = r.c.shape.size() - 1;
  // The operand moves with c along this dimension of its own, unless it is the same for all indices.
  const auto take = [&](Geometry& x, bool moves, size_t at) {
    size_t shift = 0;
    if (moves && x.shape[at] != 1) {
      shift = static_cast<size_t>(begin * x.strides[at]) * size_of(x.dtype);
      x.shape[at] = size;
    }
    piece.shifts.push_back(shift);
  };
  Matmul& p = piece.product;
  take(p.a, dim != last, dim);
  take(p.b, dim + 1 != last, dim);
  if (p.bias) take(*p.bias, dim == last, p.bias->shape.size() - 1);
  for (PostOp& op : p.post_ops)
    if (op.has_operand()) take(op.operand, true, dim);
  take(p.c, true, dim);
  return piece;
}

}  // namespace weft::onednn
