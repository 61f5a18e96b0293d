// copies.cpp: bytes between the host and a GPU, and between GPUs. Each has run when its function returns.
//
// Memory of the host that is not pinned goes through a ring of pinned pieces, so that the driver's copy of
// one piece runs while the host fills or empties another. The ring's lock is held for a whole copy.
#include <algorithm>
#include <cstring>
#include <mutex>

#include "device/backend.h"

namespace weft {
namespace {

constexpr unsigned kPortable = 1;  // pinned for the contexts of all devices
constexpr unsigned kNoTimes = 2;   // an event without a clock
constexpr size_t kPiece = PinnedRing::kPieceBytes;

driver::Address address(const void* memory) { return reinterpret_cast<driver::Address>(memory); }

}  // namespace

PinnedRing::Piece& GpuBackend::next_piece(PinnedRing& ring, size_t k) const {
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

void GpuBackend::finish(driver::Stream stream, const char* call) {
  waits.fetch_add(1, std::memory_order_relaxed);
  check(table_.synchronize(stream), call);
}

void GpuBackend::copy_in(int index, char* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  Gpu& device = gpu(index);
  enter(device);
  const std::lock_guard guard(device.ring_in.mutex);
  for (size_t at = 0, k = 0; at < bytes; at += kPiece, ++k) {
    const size_t part = std::min(kPiece, bytes - at);
    PinnedRing::Piece& piece = next_piece(device.ring_in, k);
    std::memcpy(piece.memory, static_cast<const char*>(from) + at, part);
    check(table_.copy_in(address(to) + at, piece.memory, part, device.in), "copy to the device");
    check(table_.record_event(piece.used, device.in), "cuEventRecord");
    piece.is_busy = true;
  }
  finish(device.in, "copy to the device");
}

void GpuBackend::copy_out(int index, void* to, const char* from, size_t bytes) {
  if (bytes == 0) return;
  Gpu& device = gpu(index);
  enter(device);
  const std::lock_guard guard(device.ring_out.mutex);
  const size_t pieces = (bytes + kPiece - 1) / kPiece;
  const auto part = [&](size_t k) { return std::min(kPiece, bytes - k * kPiece); };
  // The copy of piece k is enqueued kPieces - 1 pieces before the host reads it.
  for (size_t k = 0; k < pieces + PinnedRing::kPieces - 1; ++k) {
    if (k >= PinnedRing::kPieces - 1) {
      const size_t ready = k - (PinnedRing::kPieces - 1);
      PinnedRing::Piece& piece = next_piece(device.ring_out, ready);  // waits for its copy
      std::memcpy(static_cast<char*>(to) + ready * kPiece, piece.memory, part(ready));
    }
    if (k >= pieces) continue;
    PinnedRing::Piece& piece = next_piece(device.ring_out, k);
    check(table_.copy_out(piece.memory, address(from) + k * kPiece, part(k), device.out), "copy to the host");
    check(table_.record_event(piece.used, device.out), "cuEventRecord");
    piece.is_busy = true;
  }
}

void GpuBackend::copy_within(int index, char* to, int from_index, const char* from, size_t bytes) {
  if (bytes == 0) return;
  Gpu& device = gpu(index);
  enter(device);
  if (index == from_index) {
    check(table_.copy_within(address(to), address(from), bytes, device.compute), "copy within the device");
  } else {
    const Gpu& other = gpu(from_index);
    check(table_.copy_peer(address(to), device.context, address(from), other.context, bytes, device.compute),
          "copy between devices");
  }
  finish(device.compute, "copy between devices");
}

bool GpuBackend::fill(int index, char* to, uint32_t value, size_t size, size_t count) {
  Gpu& device = gpu(index);
  enter(device);
  switch (size) {
    case 1:
      check(table_.fill_8(address(to), static_cast<unsigned char>(value), count, device.compute),
            "cuMemsetD8");
      break;
    case 2:
      check(table_.fill_16(address(to), static_cast<unsigned short>(value), count, device.compute),
            "cuMemsetD16");
      break;
    case 4:
      check(table_.fill_32(address(to), value, count, device.compute), "cuMemsetD32");
      break;
    default:
      return false;
  }
  finish(device.compute, "fill");
  return true;
}

}  // namespace weft
