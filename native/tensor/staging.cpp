#include "tensor/staging.h"

#include <algorithm>
#include <cstring>

#include "engine/engine.h"

namespace weft {
namespace {

int64_t size_of_view(const View& x) noexcept {
  int64_t size = 1;
  for (int i = 0; i < x.ndim; ++i) size *= x.shape[i];
  return size;
}

size_t span_of(const View& x) noexcept {
  const auto [begin, end] = addresses_of(x);
  return end - begin;
}

// Whether the elements are all the bytes that the array spans, each once.
bool is_dense(const View& x) noexcept {
  return static_cast<size_t>(size_of_view(x)) * size_of(x.dtype) == span_of(x) && !may_overlap_itself(x);
}

char* first_byte(const View& x) noexcept { return reinterpret_cast<char*>(addresses_of(x).first); }

void copy_bytes(const View& to, Device to_device, const View& from, Device from_device) {
  DeviceBackend* const target = hidden_memory_of(to_device);
  DeviceBackend* const source = hidden_memory_of(from_device);
  const size_t bytes = span_of(to);
  char *const to_bytes = first_byte(to), *const from_bytes = first_byte(from);
  if (target == source)
    return target->copy_within(to_device.index, to_bytes, from_device.index, from_bytes, bytes);
  if (!source) return target->copy_in(to_device.index, to_bytes, from_bytes, bytes);
  if (!target) return source->copy_out(from_device.index, to_bytes, from_bytes, bytes);
  const auto memory = std::make_unique_for_overwrite<char[]>(bytes);  // two kinds, neither the host's
  source->copy_out(from_device.index, memory.get(), from_bytes, bytes);
  target->copy_in(to_device.index, to_bytes, memory.get(), bytes);
}

}  // namespace

bool same_bytes(const View& to, const View& from) noexcept {
  if (to.dtype != from.dtype || !is_dense(to) || !is_dense(from)) return false;
  for (int i = 0; i < to.ndim; ++i)
    if (to.shape[i] > 1 && to.strides[i] != from.strides[i]) return false;
  return true;
}

bool run_by_loop(const char* what, std::span<const View> operands, Device device,
                 const uint64_t* parameters) {
  const Running* const here = context().running;
  const Queue* const queue = here ? here->queue : nullptr;
  if (!queue || !queue->stream_number || queue->device->device != device || !has_array_loops(device))
    return false;
  RunContext stream = outside_engine;
  stream.engine = here->engine;
  stream.device = device;
  stream.queue = queue->kind;
  stream.stream = queue->stream;
  stream.op = here->op;
  stream.stream_number = queue->stream_number;
  run_array_loop.load(std::memory_order_acquire)(what, operands, parameters, stream);
  return true;
}

Stage::Stage(const View& x, Device device, bool reads)
    : backend_(hidden_memory_of(device)), index_(device.index), staged_(x) {
  const auto [begin, end] = addresses_of(x);
  bytes_ = end - begin;
  if (bytes_ == 0) return;
  backend_->staged.fetch_add(1, std::memory_order_relaxed);
  first_ = reinterpret_cast<char*>(begin);
  memory_ = std::make_unique_for_overwrite<char[]>(bytes_);
  if (reads || !is_dense(x)) backend_->copy_out(index_, memory_.get(), first_, bytes_);
  staged_.data = memory_.get() + (x.data - first_);
}

void Stage::store() {
  if (bytes_ != 0) backend_->copy_in(index_, first_, memory_.get(), bytes_);
}

void copy_elements(const View& to, Device to_device, const View& from, Device from_device) {
  const bool hides_to = hidden_memory_of(to_device), hides_from = hidden_memory_of(from_device);
  if (!hides_to && !hides_from) [[likely]]
    return copy(to, from);
  if (size_of_view(to) == 0) return;
  if (same_bytes(to, from)) return copy_bytes(to, to_device, from, from_device);
  if (const View operands[] = {from, to};
      to_device == from_device && run_by_loop("copy", operands, to_device, nullptr))
    return;
  if (!hides_to) return copy(to, Stage(from, from_device, true).view());
  write_elements(to, to_device, [&](const View& staged) {
    if (hides_from)
      copy(staged, Stage(from, from_device, true).view());
    else
      copy(staged, from);
  });
}

void fill_elements(const View& to, Device device, Scalar value) {
  DeviceBackend* const backend = hidden_memory_of(device);
  if (!backend) [[likely]]
    return fill(to, value);
  if (size_of_view(to) == 0) return;
  // Of 8 bytes: as two of 4, if they are the same.
  alignas(8) char element[16] = {};
  store(element, to.dtype, value);
  size_t size = size_of(to.dtype);
  while (size > 4 && std::memcmp(element, element + size / 2, size / 2) == 0) size /= 2;
  uint32_t word = 0;
  std::memcpy(&word, element, std::min<size_t>(size, sizeof word));
  if (size <= 4 && is_dense(to) &&
      backend->fill(device.index, first_byte(to), word, size, span_of(to) / size))
    return;
  uint64_t parameters[2] = {};  // of a complex number its parts
  const size_t part = size_of(to.dtype) / (info_of(to.dtype).kind == DTypeKind::complex_floating ? 2 : 1);
  std::memcpy(&parameters[0], element, part);
  if (part < size_of(to.dtype)) std::memcpy(&parameters[1], element + part, part);
  if (run_by_loop("fill", {&to, 1}, device, parameters)) return;
  write_elements(to, device, [&](const View& staged) { fill(staged, value); });
}

Scalar load_element(const char* element, DType dtype, Device device) {
  DeviceBackend* const backend = hidden_memory_of(device);
  if (!backend) [[likely]]
    return load(element, dtype);
  alignas(16) char memory[16];
  backend->copy_out(device.index, memory, element, size_of(dtype));
  return load(memory, dtype);
}

}  // namespace weft
