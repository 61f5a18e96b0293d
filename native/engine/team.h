// team.h: splitting one function's work over the cores. One team per process, whichever thread calls it.
//
// The caller takes part; helpers join while there are chunks left. A helper that the system has not scheduled
// yet is not waited for: the others do its share. That is what an OpenMP region cannot do (its end is a
// barrier for the whole team), and what keeps a region near its time when another thread needs a core;
// docs/design/threads.md has the numbers.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "engine/parking.h"

namespace weft {

// Cores that a parallel region may use: set_team_size, else usable_cores() (machine.h).
int team_size() noexcept;
void set_team_size(int threads);

// Lends the calling thread, which has to wait until `until` is set, to the team: it takes pieces of regions
// like a helper. Returns when `until` is set, at the deadline, or when no region has been open for a while.
void lend_to_team(const std::atomic<bool>& until, Deadline deadline = kNever);

// Whether this thread runs pieces of a region that several threads share. Nothing that waits for another
// thread may happen there, and so nothing that takes the GIL: its holder may be the thread that waits for the
// pieces.
bool inside_region() noexcept;

namespace detail {
using TeamBody = void (*)(void* state, int64_t begin, int64_t end);
void run_on_team(int64_t count, int64_t grain, TeamBody body, void* state);
}  // namespace detail

// Calls body(begin, end) for pieces of [0, count) of about `grain` elements, each of which begins at a
// multiple of that, in any order, on several threads; returns when all are done. The first exception that a
// piece throws is thrown here, after the others have finished. Inside a piece, and while another thread uses
// the team, everything runs on the calling thread.
template <class F>
void parallel_for(int64_t count, int64_t grain, F&& body) {
  detail::run_on_team(
      count, grain,
      [](void* state, int64_t begin, int64_t end) {
        (*static_cast<std::remove_reference_t<F>*>(state))(begin, end);
      },
      const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace weft
