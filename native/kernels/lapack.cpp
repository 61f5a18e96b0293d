// lapack.cpp: the table of addresses; written once, under the interpreter's lock, before the first kernel.
#include "kernels/lapack.h"

#include <array>
#include <atomic>
#include <string>

#include "engine/error.h"

namespace weft::lapack {
namespace {

std::array<uintptr_t, 4 * kRoutines> table;
int bytes = 0;
// Released after the table is written; acquired by is_set(), which makers of kernels call before they hand a
// kernel to other threads. So these see the table.
std::atomic<bool> ready{false};

}  // namespace

void set(const std::vector<uintptr_t>& addresses, int integer_bytes) {
  if (addresses.size() != table.size() || (integer_bytes != 4 && integer_bytes != 8))
    throw ValueError("set_lapack: takes " + std::to_string(table.size()) +
                     " addresses and 4 or 8 bytes, got " + std::to_string(addresses.size()) + " and " +
                     std::to_string(integer_bytes));
  if (is_set()) return;
  std::copy(addresses.begin(), addresses.end(), table.begin());
  bytes = integer_bytes;
  ready.store(true, std::memory_order_release);
}

bool is_set() noexcept { return ready.load(std::memory_order_acquire); }

uintptr_t detail::address(size_t type, Routine routine) noexcept {
  return table[type * kRoutines + static_cast<size_t>(routine)];
}

int detail::integer_bytes() noexcept { return bytes; }

}  // namespace weft::lapack
