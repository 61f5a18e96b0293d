// code_table.h: the codes of a loop, by what each was made for.
//
// `find` may be called from any thread. A table is never changed once others can see it: one with a code more
// takes its place, and stays as long as the object, since threads may still be reading it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/fork.h"

namespace weft {

// How often code was requested that was not there, over all loops.
inline std::atomic<uint64_t> loop_misses{0};

template <class Key, class Code>
class CodeTable {
 public:
  // The code of a key; make() makes it on the first use, by the thread that uses it. Code tests true.
  template <class Make>
  Code find(const Key& key, Make&& make) const {
    if (Code code = search(current_.load(std::memory_order_acquire), key)) return code;
    const Code made = make();  // outside the mutex: it may need the GIL, whose holder may want the mutex
    const std::lock_guard guard(mutex_);
    const Entries* current = current_.load(std::memory_order_relaxed);
    if (Code code = search(current, key)) return code;
    loop_misses.fetch_add(1, std::memory_order_relaxed);
    auto entries = current ? std::make_unique<Entries>(*current) : std::make_unique<Entries>();
    entries->push_back({key, made});
    current_.store(entries.get(), std::memory_order_release);
    all_.push_back(std::move(entries));
    return made;
  }

 private:
  struct Entry {
    Key key;
    Code code;
  };
  using Entries = std::vector<Entry>;

  static Code search(const Entries* entries, const Key& key) {
    if (entries)
      for (const Entry& entry : *entries)
        if (entry.key == key) return entry.code;
    return Code{};
  }

  mutable std::atomic<const Entries*> current_{nullptr};
  mutable ForkMutex mutex_;                                  // of what is added
  mutable std::vector<std::unique_ptr<const Entries>> all_;  // the last is current_
};

}  // namespace weft
