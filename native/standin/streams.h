// Streams, events and contexts of the stand-in.
//
// A stream is a thread that runs its commands in order. With a seed it is late before some of them, so that
// streams and the host run in another order each time: what was not ordered by an event or a value in memory
// shows. The first fault of a context stays: later commands of its streams are dropped, and every call in it
// returns the error. Events are reached all the same, so that nobody waits for ever; values are not written.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "standin/blocks.h"

namespace standin {

// One for each device, for ever: its primary context.
struct Context {
  explicit Context(int number) : device(number) {}
  // Keeps the first fault.
  void fail(const Fault& fault);
  CUresult error() const { return error_; }
  std::string text();
  void clear();

  const int device;
  int retained = 0;  // under the driver's lock

 private:
  std::atomic<CUresult> error_{CUDA_SUCCESS};
  std::mutex mutex_;
  std::string text_;
};

struct Event {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t recorded = 0, reached = 0;  // numbers of cuEventRecord
  double reached_ms = 0;
  Context* context = nullptr;  // of the stream that recorded it last
};

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  using Command = std::function<Fault(Processor&, Random&)>;

  Stream(Context& context, Memory& memory, std::uint64_t seed);
  void start();
  void push(Command command, bool even_if_lost = false);
  void wait();
  bool is_idle();
  // Ends the thread after what was pushed.
  void stop();
  Context& context() { return context_; }

  void record(std::shared_ptr<Event> event);
  void wait_for(std::shared_ptr<Event> event);
  // Waits until is_reached(), which reads what other threads write.
  void poll(std::function<bool()> is_reached);

 private:
  void loop();
  void be_late();

  Context& context_;
  Memory& memory_;
  const std::uint64_t seed_;
  Random random_;
  std::mutex mutex_;
  std::condition_variable changed_;
  struct Queued {
    Command command;
    bool even_if_lost;
  };
  std::deque<Queued> queue_;
  bool busy_ = false, stopping_ = false;
};

// What a program refers to by address; an address that is not one of them is an invalid handle.
template <class T>
class Handles {
 public:
  T* add(std::shared_ptr<T> one) {
    std::lock_guard guard(mutex_);
    T* address = one.get();
    all_[address] = std::move(one);
    return address;
  }
  std::shared_ptr<T> find(const void* handle) {
    std::lock_guard guard(mutex_);
    const auto it = all_.find(const_cast<void*>(handle));
    return it == all_.end() ? nullptr : it->second;
  }
  std::shared_ptr<T> remove(const void* handle) {
    std::lock_guard guard(mutex_);
    const auto it = all_.find(const_cast<void*>(handle));
    if (it == all_.end()) return nullptr;
    std::shared_ptr<T> one = std::move(it->second);
    all_.erase(it);
    return one;
  }
  template <class F>
  std::vector<std::shared_ptr<T>> where(F&& holds) {
    std::lock_guard guard(mutex_);
    std::vector<std::shared_ptr<T>> found;
    for (const auto& [address, one] : all_)
      if (holds(*one)) found.push_back(one);
    return found;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<void*, std::shared_ptr<T>> all_;
};

}  // namespace standin
