// machine.h: what of the machine this process may use: its processors, and its memory.
//
// Containers bound both by control groups, and users by affinity masks; the kernel's plain counts ignore
// either.
#pragma once

#include <cstdint>
#include <string>

namespace weft {

// $WEFT_NUM_THREADS; else the processors of this process's affinity mask, at most as many as the quota of its
// control group is worth, rounded up. At least 1. Asked for when the process begins to use it, and after that
// kept.
int usable_cores() noexcept;

struct MachineMemory {
  uint64_t memory, swap;
};
// Physical memory and swap; memory at most what the control group allows.
MachineMemory usable_memory() noexcept;

// The same for a file tree instead of /sys/fs/cgroup and the text of /proc/self/cgroup; for tests. 0: no
// bound.
double quota_cores(const std::string& root, const std::string& membership);
uint64_t memory_bound(const std::string& root, const std::string& membership);

}  // namespace weft
