#include "engine/machine.h"

#include <sched.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

namespace weft {
namespace {

constexpr const char* kRoot = "/sys/fs/cgroup";

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return file ? text.str() : std::string();
}

// The folder of this process's group for a controller of version 1, or of version 2 for "": lines are
// "number:controllers:path".
std::string group_of(const std::string& membership, const std::string& controller) {
  std::stringstream lines(membership);
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers.find("," + controller + ",") != std::string::npos) return line.substr(second + 1);
  }
  return "/";
}

// Calls read(folder) for a group and all that it is part of: each of them bounds it. In a container the paths
// are often those of the host, and the mounted tree begins at the group itself, which is why the root is
// read, too.
void each_group(const std::string& root, std::string group,
                const std::function<void(const std::string&)>& read) {
  for (;;) {
    if (group.empty() || group == "/") break;
    read(root + group);
    group = group.substr(0, group.rfind('/'));
  }
  read(root);
}

int allowed_processors() noexcept {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  // More processors than the set has room for.
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int count_cores() noexcept {
  try {
    if (const char* setting = std::getenv("WEFT_NUM_THREADS"); setting && std::atoi(setting) > 0)
      return std::atoi(setting);
    const int allowed = allowed_processors();
    const double quota = quota_cores(kRoot, text_of("/proc/self/cgroup"));
    return quota > 0 ? std::clamp(static_cast<int>(std::ceil(quota)), 1, allowed) : allowed;
  } catch (...) {
    return 1;
  }
}

}  // namespace

double quota_cores(const std::string& root, const std::string& membership) {
  double least = 0;
  const auto bound = [&](double quota, double period) {
    if (quota > 0 && period > 0 && (least == 0 || quota / period < least)) least = quota / period;
  };
  each_group(root, group_of(membership, ""), [&](const std::string& folder) {
    std::stringstream text(text_of(folder + "/cpu.max"));  // "max 100000" or "150000 100000"
    std::string quota;
    double period = 0;
    if (text >> quota >> period) bound(std::atof(quota.c_str()), period);
  });
  each_group(root + "/cpu", group_of(membership, "cpu"), [&](const std::string& folder) {
    bound(std::atof(text_of(folder + "/cpu.cfs_quota_us").c_str()),  // -1: none
          std::atof(text_of(folder + "/cpu.cfs_period_us").c_str()));
  });
  return least;
}

uint64_t memory_bound(const std::string& root, const std::string& membership) {
  uint64_t least = 0;
  const auto bound = [&](const std::string& text) {
    const uint64_t bytes = std::strtoull(text.c_str(), nullptr, 10);  // "max": 0
    if (bytes && (least == 0 || bytes < least)) least = bytes;
  };
  each_group(root, group_of(membership, ""),
             [&](const std::string& folder) { bound(text_of(folder + "/memory.max")); });
  each_group(root + "/memory", group_of(membership, "memory"),
             [&](const std::string& folder) { bound(text_of(folder + "/memory.limit_in_bytes")); });
  return least;
}

int usable_cores() noexcept {
  static const int cores = count_cores();
  return cores;
}

MachineMemory usable_memory() noexcept {
  struct sysinfo info{};
  if (sysinfo(&info) != 0) return {uint64_t{1} << 40, 0};
  MachineMemory memory{uint64_t{info.totalram} * info.mem_unit, uint64_t{info.totalswap} * info.mem_unit};
  try {
    const uint64_t bound = memory_bound(kRoot, text_of("/proc/self/cgroup"));
    if (bound && bound < memory.memory) memory = {bound, 0};  // what the group may swap is not known
  } catch (...) {
  }
  return memory;
}

}  // namespace weft
