// copies.cpp: bytes between the host and a GPU, and between GPUs.
//
// In an operation of the device they are enqueued on its stream; elsewhere the host waits for them. Memory of
// the host that is not pinned goes through a ring of pinned pieces, so that the driver's copy of one piece
// runs while the host fills or empties another. The ring's lock is held for a whole copy.
#include <algorithm>
#include <cstring>
#include <mutex>

#include "device/backend.h"
#include "engine/engine.h"

namespace weft {
namespace {

constexpr unsigned kPortable = 1;  // pinned for the contexts of all devices
constexpr unsigned kNoTimes = 2;   // an event without a clock
constexpr size_t kPiece = PinnedRing::kPieceBytes;
constexpr size_t kAligned = 64;  // where a copy begins in a piece

driver::Address address(const void* memory) { return reinterpret_cast<driver::Address>(memory); }

}  // namespace

PinnedRing::Piece& GpuBackend::free_piece(PinnedRing& ring, size_t k) const {
  PinnedRing::Piece& piece = ring.pieces[k % PinnedRing::kPieces];
  if (!piece.memory) {
    void* memory = nullptr;
    check(table_.allocate_host(&memory, kPiece, kPortable), "cuMemHostAlloc");
    piece.memory = static_cast<char*>(memory);
  }
  if (!piece.used) check(table_.create_event(&piece.used, kNoTimes), "cuEventCreate");
  if (std::exchange(piece.is_busy, false)) check(table_.synchronize_event(piece.used), "cuEventSynchronize");
  return piece;
}

GpuBackend::Way GpuBackend::way(Gpu& device, Gpu::LaneKind otherwise) {
  enter(device);
  const Running* const here = context().running;
  const Queue* const queue = here ? here->queue : nullptr;
  if (!queue || !queue->stream_number) return {device.lanes[otherwise], true};
  if (queue->device->device == Device{DeviceKind::gpu, device.index})
    return {lane(queue->stream_number), false};
  Lane& other = device.lanes[otherwise];
  order(other.number, record(queue->stream_number));
  enter(device);
  return {other, true};
}

// A copy of its own, which is no part of an operation's work on its stream.
WatchedWork GpuBackend::watch(const Way& way) {
  const Running* const here = context().running;
  return {way.waits ? way.lane.number : 0, here ? here->op : nullptr, here ? here->engine : nullptr};
}

void GpuBackend::leave(const Way& way) {
  if (way.waits) wait(record(way.lane.number), {});
}

void GpuBackend::copy_in(int index, char* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  Gpu& device = gpu(index);
  const Way way = this->way(device, Gpu::in);
  {
    const WatchedWork work = watch(way);
    PinnedRing& ring = device.ring_in;
    const std::lock_guard guard(ring.mutex);
    for (size_t at = 0; at < bytes;) {
      if (ring.end == kPiece || ring.pieces[ring.current % PinnedRing::kPieces].stream != way.lane.number) {
        free_piece(ring, ++ring.current).stream = way.lane.number;
        ring.end = 0;
      }
      PinnedRing::Piece& piece = ring.pieces[ring.current % PinnedRing::kPieces];
      const size_t part = std::min(kPiece - ring.end, bytes - at);
      char* const pinned = piece.memory + ring.end;
      std::memcpy(pinned, static_cast<const char*>(from) + at, part);
      check(table_.copy_in(address(to) + at, pinned, part, way.lane.stream), "copy to the device");
      at += part;
      ring.end = std::min(kPiece, (ring.end + part + kAligned - 1) / kAligned * kAligned);
      check(table_.record_event(piece.used, way.lane.stream), "cuEventRecord");
      piece.is_busy = true;
    }
  }
  leave(way);
}

void GpuBackend::copy_out(int index, void* to, const char* from, size_t bytes) {
  if (bytes == 0) return;
  const Blocking blocking;
  Gpu& device = gpu(index);
  const Way way = this->way(device, Gpu::out);
  waits.fetch_add(1, std::memory_order_relaxed);
  const WatchedWork work = watch(way);
  const std::lock_guard guard(device.ring_out.mutex);
  const size_t pieces = (bytes + kPiece - 1) / kPiece;
  const auto part = [&](size_t k) { return std::min(kPiece, bytes - k * kPiece); };
  // The copy of piece k is enqueued kPieces - 1 pieces before the host reads it.
  for (size_t k = 0; k < pieces + PinnedRing::kPieces - 1; ++k) {
    if (k >= PinnedRing::kPieces - 1) {
      const size_t ready = k - (PinnedRing::kPieces - 1);
      PinnedRing::Piece& piece = free_piece(device.ring_out, ready);  // waits for its copy
      std::memcpy(static_cast<char*>(to) + ready * kPiece, piece.memory, part(ready));
    }
    if (k >= pieces) continue;
    PinnedRing::Piece& piece = free_piece(device.ring_out, k);
    check(table_.copy_out(piece.memory, address(from) + k * kPiece, part(k), way.lane.stream),
          "copy to the host");
    check(table_.record_event(piece.used, way.lane.stream), "cuEventRecord");
    piece.is_busy = true;
  }
}

void GpuBackend::copy_within(int index, char* to, int from_index, const char* from, size_t bytes) {
  if (bytes == 0) return;
  Gpu& device = gpu(index);
  const Way way = this->way(device, Gpu::compute);
  if (const WatchedWork work = watch(way); index == from_index) {
    check(table_.copy_within(address(to), address(from), bytes, way.lane.stream), "copy within the device");
  } else {
    const Gpu& other = gpu(from_index);
    check(table_.copy_peer(address(to), device.context, address(from), other.context, bytes, way.lane.stream),
          "copy between devices");
  }
  leave(way);
}

const void* GpuBackend::fetch_later(int index, const char* from, size_t bytes) {
  Gpu& device = gpu(index);
  const Way way = this->way(device, Gpu::out);
  if (way.waits) return nullptr;  // outside of an operation of the device
  PinnedNotes& notes = device.notes;
  char* place;
  {
    const std::lock_guard guard(notes.mutex);
    if (!notes.memory) {
      void* memory = nullptr;
      check(table_.allocate_host(&memory, PinnedNotes::kMost * kFetched, kPortable), "cuMemHostAlloc");
      notes.memory = static_cast<char*>(memory);
      for (size_t k = PinnedNotes::kMost; k-- > 0;) notes.free.push_back(static_cast<uint16_t>(k));
    }
    if (notes.free.empty()) return nullptr;
    place = notes.memory + notes.free.back() * kFetched;
    notes.free.pop_back();
  }
  check(table_.copy_out(place, address(from), bytes, way.lane.stream), "copy to the host");
  return place;
}

void GpuBackend::forget(int index, const void* fetched) noexcept {
  PinnedNotes& notes = gpus_[static_cast<size_t>(index)].load(std::memory_order_acquire)->notes;
  const std::lock_guard guard(notes.mutex);
  const auto offset = static_cast<const char*>(fetched) - notes.memory;
  if (!notes.memory || offset < 0 || offset >= static_cast<ptrdiff_t>(PinnedNotes::kMost * kFetched))
    return;  // of an earlier context
  notes.free.push_back(static_cast<uint16_t>(static_cast<size_t>(offset) / kFetched));
}

void GpuBackend::copy_fetched(int index, char* to, const void* fetched, size_t bytes) {
  Gpu& device = gpu(index);
  const Way way = this->way(device, Gpu::in);
  check(table_.copy_in(address(to), fetched, bytes, way.lane.stream), "copy to the device");
  leave(way);
}

bool GpuBackend::fill(int index, char* to, uint32_t value, size_t size, size_t count) {
  Gpu& device = gpu(index);
  const Way way = this->way(device, Gpu::compute);
  const driver::Stream stream = way.lane.stream;
  switch (size) {
    case 1:
      check(table_.fill_8(address(to), static_cast<unsigned char>(value), count, stream), "cuMemsetD8");
      break;
    case 2:
      check(table_.fill_16(address(to), static_cast<unsigned short>(value), count, stream), "cuMemsetD16");
      break;
    case 4:
      check(table_.fill_32(address(to), value, count, stream), "cuMemsetD32");
      break;
    default:
      return false;
  }
  leave(way);
  return true;
}

}  // namespace weft
