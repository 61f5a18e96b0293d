// host_pages.cpp: pages of the system behind one range of its addresses; see pages.h.
#include <sys/mman.h>

#include <algorithm>
#include <bit>

#include "engine/machine.h"
#include "engine/pages.h"
#include "storage/block_index.h"

namespace weft {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr uint64_t kMostRange = uint64_t{64} << 30;  // ThreadSanitizer leaves 1.5 TiB of addresses to all
#else
constexpr uint64_t kMostRange = uint64_t{1} << 40;
#endif
constexpr uint64_t kRangeFactor = 16;  // of physical memory: room for holes that were given back
constexpr uint64_t kHugePage = 2 << 20;
constexpr uint64_t kGranularity = 64 << 10;

class HostPages final : public Pages {
 public:
  // Takes addresses, no memory. Without any range (a process at its limit of addresses) each allocation
  // fails.
  HostPages() noexcept {
    const uint64_t most =
        std::clamp(std::bit_ceil(usable_memory().memory * kRangeFactor), kHugePage, kMostRange);
    uint64_t bytes = most;
    char* memory = nullptr;
    for (; bytes >= 2 * kHugePage && !memory; bytes /= 2) memory = reserve(bytes);
    if (!memory) return;
    bytes *= 2;
    char* base = reinterpret_cast<char*>(round_up(reinterpret_cast<uint64_t>(memory), kHugePage));
    char* end = memory + bytes;
    // Where addresses are scarce, the rest of the process needs some, too: threads' stacks, libraries.
    if (bytes < most) end -= bytes / 4;
    end = reinterpret_cast<char*>(round_down(reinterpret_cast<uint64_t>(end), kHugePage));
    if (base > memory) munmap(memory, static_cast<size_t>(base - memory));
    if (end < memory + bytes) munmap(end, static_cast<size_t>(memory + bytes - end));
    // For the whole range, so that it stays one mapping; the system uses huge pages where they fit.
    madvise(base, static_cast<size_t>(end - base), MADV_HUGEPAGE);
    base_ = base;
    bytes_ = static_cast<uint64_t>(end - base);
  }
  ~HostPages() override {
    if (base_) munmap(base_, bytes_);
  }

  bool on_host() const noexcept override { return true; }
  uint64_t granularity() const noexcept override { return kGranularity; }
  uint64_t total_bytes() const noexcept override {
    const MachineMemory machine = usable_memory();
    return machine.memory + machine.swap;
  }

  bool commit(uint64_t from, uint64_t bytes) noexcept override {
    return mprotect(base_ + from, bytes, PROT_READ | PROT_WRITE) == 0;
  }
  bool withdraw(uint64_t from, uint64_t bytes) noexcept override {
    if (!give_back(from, bytes)) return false;
    mprotect(base_ + from, bytes, PROT_NONE);  // if it fails, it stays usable, which does no harm
    return true;
  }
  bool give_back(uint64_t from, uint64_t bytes) noexcept override {
    return madvise(base_ + from, bytes, MADV_DONTNEED) == 0;
  }
  bool bring_back(uint64_t, uint64_t) noexcept override { return true; }  // when it is touched

 private:
  static char* reserve(uint64_t bytes) noexcept {
    void* memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? nullptr : static_cast<char*>(memory);
  }
};

}  // namespace

std::unique_ptr<Pages> host_pages() { return std::make_unique<HostPages>(); }

}  // namespace weft
