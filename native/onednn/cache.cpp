#include "onednn/cache.h"

#include <omp.h>

#include <list>
#include <mutex>
#include <unordered_map>

#include "engine/fork.h"
#include "onednn/recipe.h"

namespace weft::onednn {

namespace {

struct Entry {
  std::string key;
  KernelRef kernel;
};

// All under the mutex; what leaves the list is let go outside it, because that frees code.
class Cache {
 public:
  static Cache& get() {
    static auto* const cache = new Cache;
    return *cache;
  }

  KernelRef find(const std::string& key) {
    const std::lock_guard guard(mutex_);
    const auto it = index_.find(key);
    if (it == index_.end()) {
      ++misses_;
      return {};
    }
    ++hits_;
    entries_.splice(entries_.begin(), entries_, it->second);
    return it->second->kernel;
  }

  KernelRef enter(std::string key, KernelRef kernel) {
    std::list<Entry> dropped;
    const std::lock_guard guard(mutex_);
    if (const auto it = index_.find(key); it != index_.end()) return it->second->kernel;
    entries_.push_front({std::move(key), kernel});
    index_.emplace(entries_.front().key, entries_.begin());
    shrink(dropped);
    return kernel;
  }

  void set_limit(size_t limit) {
    std::list<Entry> dropped;
    const std::lock_guard guard(mutex_);
    limit_ = limit;
    shrink(dropped);
  }

  Counters counters() {
    const std::lock_guard guard(mutex_);
    return {hits_,
            misses_,
            entries_.size(),
            limit_,
            Steps::reorders_run.load(std::memory_order_relaxed),
            Steps::bytes_converted.load(std::memory_order_relaxed)};
  }

 private:
  void shrink(std::list<Entry>& dropped) {
    while (entries_.size() > limit_) {
      index_.erase(entries_.back().key);
      dropped.splice(dropped.begin(), entries_, std::prev(entries_.end()));
    }
  }

  ForkMutex mutex_;
  std::list<Entry> entries_;                                                // the most recently used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> index_;  // keys are stored in the entries
  size_t limit_ = 1024;
  uint64_t hits_ = 0, misses_ = 0;
};
[[maybe_unused]] const Cache& kAtLoad = Cache::get();

}  // namespace

KernelRef cached(const Key& key, const char* what, const std::function<KernelRef()>& make) {
  const OpenMpScope entered;
  Key full = key;
  full << omp_get_max_threads();  // primitives divide their work when they are made
  if (KernelRef kernel = Cache::get().find(full.bytes())) return kernel;
  try {
    const KernelRef made = make();
    made->recipe = key.recipe();
    for (int operand = 0; operand < made->operands(); ++operand)
      if (const LayoutRef layout = made->layout(operand)) set_origin(*layout, made->recipe, operand);
    return Cache::get().enter(full.bytes(), made);
  } catch (const Unsupported& error) {
    throw Unsupported(std::string(what) + ": " + error.what());
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_out_of_memory) throw std::bad_alloc();
    // Requests are checked before, so what oneDNN still calls invalid is beyond it.
    if (error.status == dnnl_unimplemented || error.status == dnnl_invalid_arguments)
      throw Unsupported(std::string(what) + ": oneDNN: " + error.message);
    throw std::runtime_error(std::string(what) + ": oneDNN: " + error.message);
  }
}

Counters counters() { return Cache::get().counters(); }
void set_cache_limit(size_t kernels) { Cache::get().set_limit(kernels); }

}  // namespace weft::onednn
