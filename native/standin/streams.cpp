#include "standin/streams.h"

#include <chrono>
#include <thread>

namespace standin {

using namespace std::chrono_literals;

void Context::fail(const Fault& fault) {
  std::lock_guard guard(mutex_);
  if (error_ != CUDA_SUCCESS) return;
  text_ = fault.text;
  error_ = fault.error;
}

std::string Context::text() {
  std::lock_guard guard(mutex_);
  return text_;
}

void Context::clear() {
  std::lock_guard guard(mutex_);
  text_.clear();
  error_ = CUDA_SUCCESS;
}

Stream::Stream(Context& context, Memory& memory, std::uint64_t seed)
    : context_(context), memory_(memory), seed_(seed), random_(seed) {}

void Stream::start() {
  std::thread([self = shared_from_this()] { self->loop(); }).detach();
}

void Stream::push(Command command, bool even_if_lost) {
  std::lock_guard guard(mutex_);
  queue_.push_back({std::move(command), even_if_lost});
  changed_.notify_all();
}

void Stream::wait() {
  std::unique_lock guard(mutex_);
  changed_.wait(guard, [&] { return queue_.empty() && !busy_; });
}

bool Stream::is_idle() {
  std::lock_guard guard(mutex_);
  return queue_.empty() && !busy_;
}

void Stream::stop() {
  std::lock_guard guard(mutex_);
  stopping_ = true;
  changed_.notify_all();
}

// Half of the commands at once, most others a little late, a few so late that other streams overtake by far.
void Stream::be_late() {
  if (!seed_) return;
  const std::uint64_t draw = random_() % 16, us = random_() % 2000;
  if (draw >= 8) std::this_thread::sleep_for(std::chrono::microseconds(draw == 15 ? us : us / 20));
}

void Stream::loop() {
  Processor processor(memory_, seed_);
  std::unique_lock guard(mutex_);
  for (;;) {
    changed_.wait(guard, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Queued next = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    guard.unlock();
    be_late();
    if (next.even_if_lost || context_.error() == CUDA_SUCCESS) {
      const Fault fault = next.command(processor, random_);
      if (fault.error != CUDA_SUCCESS) context_.fail(fault);
    }
    next.command = nullptr;  // what it owns goes before it counts as done
    guard.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void Stream::record(std::shared_ptr<Event> event) {
  std::uint64_t number;
  {
    std::lock_guard guard(event->mutex);
    number = ++event->recorded;
    event->context = &context_;
  }
  push(
      [event, number](Processor&, Random&) {
        std::lock_guard guard(event->mutex);
        event->reached = std::max(event->reached, number);
        const auto now = std::chrono::steady_clock::now().time_since_epoch();
        event->reached_ms = std::chrono::duration<double, std::milli>(now).count();
        event->changed.notify_all();
        return Fault();
      },
      true);
}

void Stream::wait_for(std::shared_ptr<Event> event) {
  std::uint64_t number;
  {
    std::lock_guard guard(event->mutex);
    number = event->recorded;
  }
  push([event, number](Processor&, Random&) {
    std::unique_lock guard(event->mutex);
    event->changed.wait(guard, [&] { return event->reached >= number; });
    return Fault();
  });
}

void Stream::poll(std::function<bool()> is_reached) {
  push([this, is_reached](Processor&, Random&) {
    while (!is_reached() && context_.error() == CUDA_SUCCESS) std::this_thread::sleep_for(20us);
    return Fault();
  });
}

}  // namespace standin
