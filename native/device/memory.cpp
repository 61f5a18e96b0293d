// memory.cpp: a range of a GPU's addresses, with memory behind the pieces that are in use; see
// engine/pages.h.
#include <algorithm>
#include <bit>
#include <vector>

#include "device/backend.h"
#include "engine/pages.h"

namespace weft {
namespace {

constexpr uint64_t kPieceBytes = 2 << 20;
constexpr uint64_t kRangeFactor = 4;  // of the memory: room for holes that were given back
constexpr uint64_t kLeastRange = uint64_t{1} << 30;

class GpuPages final : public Pages {
 public:
  GpuPages(GpuBackend& backend, Gpu& gpu) : backend_(backend), table_(backend.table()), gpu_(gpu) {
    backend_.enter(gpu_);
    properties_.location.id = gpu.ordinal;
    size_t least = 0;
    backend_.check(table_.granularity(&least, &properties_, 0), "cuMemGetAllocationGranularity");
    piece_ = std::max<uint64_t>(kPieceBytes, std::bit_ceil(least));
    uint64_t bytes = std::max(std::bit_ceil(gpu.total_bytes * kRangeFactor), kLeastRange);
    driver::Address address = 0;
    driver::Result result;
    do {
      result = table_.reserve(&address, bytes, piece_, 0, 0);
    } while (result != driver::success && (bytes /= 2) >= gpu.total_bytes);
    backend_.check(result, "cuMemAddressReserve");
    base_ = reinterpret_cast<char*>(address);
    bytes_ = bytes;
    memory_.resize(bytes / piece_);
  }
  ~GpuPages() override { lose(); }
  void lose() noexcept override {
    if (bytes_ == 0 || !withdraw(0, bytes_)) return;  // a forked child
    table_.free_reserved(at(0), bytes_);
    bytes_ = 0;
  }

  bool on_host() const noexcept override { return false; }
  uint64_t granularity() const noexcept override { return piece_; }
  uint64_t total_bytes() const noexcept override { return gpu_.total_bytes; }

  bool commit(uint64_t from, uint64_t bytes) noexcept override { return bring_back(from, bytes); }
  bool withdraw(uint64_t from, uint64_t bytes) noexcept override { return give_back(from, bytes); }

  bool bring_back(uint64_t from, uint64_t bytes) noexcept override {
    if (!is_usable()) return false;
    std::vector<uint64_t> pieces;
    for (uint64_t piece = from / piece_; piece < (from + bytes) / piece_; ++piece) {
      if (memory_[piece].is_there) continue;
      if (!map(piece)) {
        for (const uint64_t added : pieces) unmap(added);
        return false;
      }
      pieces.push_back(piece);
    }
    return true;
  }

  // Nothing uses the memory: a block is released when what used it has finished.
  bool give_back(uint64_t from, uint64_t bytes) noexcept override {
    if (!is_usable()) return false;
    for (uint64_t piece = from / piece_; piece < (from + bytes) / piece_; ++piece)
      if (memory_[piece].is_there) unmap(piece);
    return true;
  }

 private:
  struct Piece {
    driver::Allocation memory = 0;
    bool is_there = false;
  };
  driver::Address at(uint64_t piece) const noexcept {
    return reinterpret_cast<driver::Address>(base_) + piece * piece_;
  }
  bool is_usable() const noexcept {
    try {
      backend_.gpu(gpu_.index);
      backend_.enter(gpu_);
      return true;
    } catch (...) {
      return false;
    }
  }
  bool map(uint64_t piece) noexcept {
    driver::Allocation memory = 0;
    if (table_.create(&memory, piece_, &properties_, 0) != driver::success) return false;
    if (table_.map(at(piece), piece_, 0, memory, 0) != driver::success) {
      table_.release(memory);
      return false;
    }
    driver::AccessDescription access;
    access.location.id = gpu_.ordinal;
    memory_[piece] = {memory, true};
    if (table_.set_access(at(piece), piece_, &access, 1) == driver::success) return true;
    unmap(piece);
    return false;
  }
  void unmap(uint64_t piece) noexcept {
    table_.unmap(at(piece), piece_);
    table_.release(memory_[piece].memory);
    memory_[piece] = {};
  }

  GpuBackend& backend_;
  const driver::Table& table_;
  Gpu& gpu_;
  driver::AllocationProperties properties_;
  uint64_t piece_ = 0;
  std::vector<Piece> memory_;  // behind each piece of the range
};

}  // namespace

std::unique_ptr<Pages> gpu_pages(GpuBackend& backend, Gpu& gpu) {
  return std::make_unique<GpuPages>(backend, gpu);
}

}  // namespace weft
