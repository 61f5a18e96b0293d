#include "tensor/operations.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "engine/device_kind.h"
#include "storage/runtime.h"
#include "tensor/array_recorder.h"
#include "tensor/captured_read.h"
#include "tensor/scalar.h"
#include "tensor/staging.h"

namespace weft {

namespace {

PushOptions options_for(const Tensor& to, const char* name) {
  PushOptions options;
  options.device = to.device();
  options.name = name;
  const int64_t bytes = to.size * static_cast<int64_t>(to.itemsize());
  if (bytes >= kWideBytes) options.queue = QueueKind::wide;
  options.size_bytes = static_cast<uint64_t>(bytes);
  return options;
}

// Pushes `kernel(to)` or `kernel(to, from)`; it owns its operands. is_enqueued: on a device, without a look
// at values there.
template <class F>
void push_kernel(const Tensor& to, const Tensor* from, PushOptions options, bool is_enqueued, F kernel) {
  Op* op = new_op(from ? 2 : 1);
  to.chunk->writes.fetch_add(1, std::memory_order_relaxed);
  op->add(to.chunk.get(), to.covers_chunk() ? Mode::overwrite : Mode::write);
  if (from && from->chunk == to.chunk)
    op->accesses()[0].mode = Mode::write;
  else if (from)
    op->add(from->chunk.get(), Mode::read);
  const int64_t bytes = to.size * static_cast<int64_t>(to.itemsize());
  op->cheap = is_enqueued || bytes <= kCheapBytes;
  op->only_enqueues = is_enqueued;
  op->brief = bytes <= kWideBytes && options.queue != QueueKind::copy;  // random numbers take long
  op->retain_variables();
  op->emplace(std::move(kernel), options.name);
  to.chunk->engine->submit(op, options);
  settle_shared({to.chunk.get(), from ? from->chunk.get() : nullptr});
}

// Fills an array whose elements are not read: by filling.write(view), or by a loop of the device with
// filling.parameters(), which the sizes follow.
template <class Filling>
void push_filling(const Tensor& to, const char* name, Filling filling) {
  push_kernel(to, nullptr, options_for(to, name), has_array_loops(to.device()), [to, filling](RunContext&) {
    if (hidden_memory_of(to.device())) [[unlikely]] {
      std::vector<uint64_t> parameters = filling.parameters();
      for (const int64_t size : to.dims()) parameters.push_back(static_cast<uint64_t>(size));
      const View view = to.view();
      if (run_by_loop(filling.loop(), {&view, 1}, to.device(), parameters.data())) return;
    }
    write_elements(to.view(), to.device(), [&](const View& view) { filling.write(view); });
  });
}

// to[...] = from, of equal shapes and of memory apart.
void enqueue_copy(const Tensor& to, const Tensor& from) {
  PushOptions options = options_for(to, "copy");
  if (to.device() != from.device()) options.queue = QueueKind::copy;
  const bool is_enqueued =
      has_array_loops(to.device()) && hidden_memory_of(to.device()) == hidden_memory_of(from.device());
  push_kernel(to, &from, options, is_enqueued, [to, from](RunContext&) {
    copy_elements(to.view(), to.device(), from.view(), from.device());
    count_copy(to.device(), from.device(), static_cast<uint64_t>(to.size) * to.itemsize());
  });
}

// The same elements in row-major memory.
Tensor row_major_copy(const Tensor& from, DType dtype, Device device) {
  const Tensor y = Tensor::empty(from.dims(), dtype, device);
  enqueue_copy(y, from);
  return y;
}

// Between devices bytes are copied: each brings its own side into order, and elements that are repeated go
// once.
void enqueue_transfer(const Tensor& to, const Tensor& source) {
  if (same_bytes(to.view(), source.view())) return enqueue_copy(to, source);
  int64_t shape[kMaxDims];
  for (int d = 0; d < source.ndim; ++d) shape[d] = source.strides[d] == 0 ? 1 : source.shape[d];
  Tensor from = source.as_strided(source.data, {shape, source.dims().size()}, source.steps());
  if (from.dtype != to.dtype || !from.contiguous()) from = row_major_copy(from, to.dtype, from.device());
  if (!to.contiguous() || from.size != to.size)
    from = broadcast_to(row_major_copy(from, to.dtype, to.device()), to.dims());
  enqueue_copy(to, from);
}

}  // namespace

void check_writable(const Tensor& to, const char* what) {
  if (to.chunk->read_only)
    throw ValueError(std::string(what) +
                     ": x shares read-only memory of another library; write to a copy(): x is " +
                     describe(to));
  if (may_overlap_itself(to.view()))
    throw ValueError(std::string(what) +
                     ": several indices of x refer to the same element (x was broadcast); write to a "
                     "copy(): x is " +
                     describe(to));
}

void settle_shared(std::initializer_list<Chunk*> chunks) {
  for (Chunk* chunk : chunks) {
    if (!chunk || chunk->shares.load(std::memory_order_seq_cst) == 0) continue;
    if (Engine::inside_function()) continue;  // the function that runs declares what it shares
    try {
      chunk->engine->wait_for_var(*chunk);
    } catch (const OperationFailed&) {  // raised where the elements are read
    }
  }
}

void push_copy(const Tensor& to, const Tensor& source) {
  check_writable(to, "copy");
  Tensor from = source;
  while (from.ndim > to.ndim && from.shape[0] == 1) {  // as NumPy: they add nothing
    std::copy(from.shape + 1, from.shape + from.ndim, from.shape);
    std::copy(from.strides + 1, from.strides + from.ndim, from.strides);
    --from.ndim;
  }
  from = broadcast_to(from, to.dims());
  if (to.size == 0) return;
  if (may_overlap(to.view(),
                  from.view())) {  // perhaps of two chunks: another library's memory may come in twice
    const bool same = to.data == from.data && std::equal(to.strides, to.strides + to.ndim, from.strides) &&
                      to.dtype == from.dtype;
    if (same) return;
    from = copy_of(from, to.dtype, to.device());
  }
  if (context().recorder && context().recorder->on_copy(to, from)) return;
  if (to.device() != from.device() && (has_array_loops(to.device()) || has_array_loops(from.device())))
      [[unlikely]]
    return enqueue_transfer(to, from);
  enqueue_copy(to, from);
}

void push_fill(const Tensor& to, Scalar value) {
  check_writable(to, "fill");
  if (to.size == 0) return;
  if (context().recorder && context().recorder->on_fill(to, value)) return;
  push_kernel(to, nullptr, options_for(to, "fill"), has_array_loops(to.device()),
              [to, value](RunContext&) { fill_elements(to.view(), to.device(), value); });
}

namespace {

uint64_t word_of(double value) noexcept { return std::bit_cast<uint64_t>(value); }
uint64_t word_of(int64_t value) noexcept { return static_cast<uint64_t>(value); }

struct Counting {
  Scalar start, step;
  bool is_real() const noexcept {
    return start.kind == Scalar::Kind::real || step.kind == Scalar::Kind::real;
  }
  void write(const View& view) const { fill_range(view, start, step); }
  const char* loop() const noexcept { return is_real() ? "range_of_reals" : "range"; }
  std::vector<uint64_t> parameters() const {
    if (is_real()) return {word_of(real_of(start)), word_of(real_of(step))};
    return {bits_of(start), bits_of(step)};
  }
};

// Numbers of a distribution with two parameters.
template <class Number, void (*fill)(const View&, const Reservation&, Number, Number)>
struct Drawing {
  Reservation from;
  Number first, second;
  const char* name;
  void write(const View& view) const { fill(view, from, first, second); }
  const char* loop() const noexcept { return name; }
  std::vector<uint64_t> parameters() const {
    return {from.key, from.stream, from.offset, word_of(first), word_of(second)};
  }
};

}  // namespace

void push_range(const Tensor& to, Scalar start, Scalar step) {
  check_writable(to, "range");
  if (to.size == 0) return;
  if (context().recorder && context().recorder->on_range(to, start, step)) return;
  push_filling(to, "range", Counting{start, step});
}

namespace {

Scalar real(double value) { return {.kind = Scalar::Kind::real, .real = value}; }
Scalar integer(int64_t value) { return {.kind = Scalar::Kind::integer, .integer = value}; }

Reservation reserve(const Tensor& to, Draw kind, int64_t count) {
  return Runtime::get().generator(to.device()).reserve(blocks_for(kind, to.dtype, count));
}

}  // namespace

void push_uniform(const Tensor& to, double low, double high) {
  if (to.size == 0) return;
  if (context().recorder && context().recorder->on_draw(to, Draw::uniform, real(low), real(high))) return;
  const Reservation from = reserve(to, Draw::uniform, to.size);
  push_filling(to, "uniform", Drawing<double, fill_uniform>{from, low, high, "uniform"});
}

void push_normal(const Tensor& to, double mean, double std) {
  if (to.size == 0) return;
  if (context().recorder && context().recorder->on_draw(to, Draw::normal, real(mean), real(std))) return;
  const Reservation from = reserve(to, Draw::normal, to.size);
  push_filling(to, "normal", Drawing<double, fill_normal>{from, mean, std, "normal"});
}

void push_integers(const Tensor& to, int64_t low, int64_t high) {
  if (to.size == 0) return;
  if (context().recorder && context().recorder->on_draw(to, Draw::integers, integer(low), integer(high)))
    return;
  const Reservation from = reserve(to, Draw::integers, to.size);
  push_filling(to, "randint", Drawing<int64_t, fill_integers>{from, low, high, "integers"});
}

void push_permutation(const Tensor& to, const Tensor& from) {
  if (to.size == 0) return;
  if (context().recorder && context().recorder->on_permute(to, from)) return;
  const Reservation reservation =
      Runtime::get().generator(to.device()).reserve(blocks_for(Draw::bits, DType::uint64, to.shape[0]));
  const bool is_enqueued = has_array_loops(to.device()) && to.device() == from.device();
  push_kernel(to, &from, options_for(to, "permutation"), is_enqueued, [to, from, reservation](RunContext&) {
    if (!hidden_memory_of(to.device())) return permute_rows(to.view(), from.view(), reservation);
    const View operands[] = {from.view(), to.view()};
    const uint64_t parameters[] = {reservation.key, reservation.stream, reservation.offset};
    if (to.device() == from.device() && run_by_loop("permutation", operands, to.device(), parameters)) return;
    const Stage source(from.view(), from.device(), true);
    write_elements(to.view(), to.device(),
                   [&](const View& view) { permute_rows(view, source.view(), reservation); });
  });
}

void permute_rows(const View& to, const View& from, const Reservation& reservation) {
  if (std::find(to.shape, to.shape + to.ndim, 0) != to.shape + to.ndim) return;  // rows of nothing
  const std::vector<int64_t> order = permutation(to.shape[0], reservation);
  const auto size = static_cast<int64_t>(size_of(to.dtype));
  for (int64_t i = 0; i < to.shape[0]; ++i) {
    const int64_t row = order[static_cast<size_t>(i)];
    copy({to.data + i * to.strides[0] * size, to.dtype, to.ndim - 1, to.shape + 1, to.strides + 1},
         {from.data + row * from.strides[0] * size, from.dtype, from.ndim - 1, from.shape + 1,
          from.strides + 1});
  }
}

Tensor copy_of(const Tensor& x, DType dtype, Device device) {
  const Tensor y = Tensor::empty(x.dims(), dtype, device);
  push_copy(y, x);
  return y;
}

Tensor ordered_for_copy(const Tensor& x, Device to) {
  const bool has_loops = has_array_loops(x.device()) || has_array_loops(to);
  if (!has_loops || x.contiguous() || Engine::inside_function()) return x;
  return row_major_copy(x, x.dtype, x.device());
}

bool writable(const Tensor& x) noexcept {
  return !x.chunk->read_only && !x.chunk->engine->read_only_here(*x.chunk) && !may_overlap_itself(x.view());
}

void (*check_captured_read)(const Tensor& x) = nullptr;

namespace {

void observe_read(const Tensor& x) {
  if (context().layers.capture && check_captured_read) [[unlikely]]
    check_captured_read(x);
  if (context().recorder) context().recorder->on_read(x);
}

}  // namespace

void wait_for(const Tensor& x, bool for_writing) {
  observe_read(x);
  wait_unobserved(x, for_writing);
}

void wait_until_enqueued(const Tensor& x, bool for_writing) {
  observe_read(x);
  x.chunk->engine->wait_until_enqueued(*x.chunk, !for_writing);
}

namespace {
thread_local std::span<const Tensor> no_wait_arrays;
}

NoWaitScope::NoWaitScope(std::span<const Tensor> arrays) : before_(std::exchange(no_wait_arrays, arrays)) {}
NoWaitScope::~NoWaitScope() { no_wait_arrays = before_; }

void wait_unobserved(const Tensor& x, bool for_writing) {
  if (std::ranges::any_of(no_wait_arrays,
                          [&](const Tensor& array) { return array.chunk.get() == x.chunk.get(); }))
    return;
  Engine& engine = *x.chunk->engine;
  if (Engine::inside_function()) engine.check_access(*x.chunk, for_writing);
  engine.wait_for_var(*x.chunk, !for_writing);
}

}  // namespace weft
