// queue.h: the ready operations and the threads of one queue of one device. All of it under the engine lock,
// except what is atomic.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "engine/operation.h"
#include "engine/parking.h"

namespace weft {

// Ready operations: highest priority first, first in first out among equals.
class ReadyList {
 public:
  bool empty() const noexcept { return size_ == 0; }
  size_t size() const noexcept { return size_; }
  void push(Op* op);
  Op* pop() noexcept;
  int top_priority() const noexcept;  // of a list that is not empty

 private:
  struct Fifo {
    Op* head = nullptr;
    Op* tail = nullptr;
  };
  static void append(Fifo& fifo, Op* op) noexcept;
  static Op* shift(Fifo& fifo) noexcept;
  Fifo ordinary_;                               // priority 0: nearly everything
  std::map<int, Fifo, std::greater<>> others_;  // holds no empty list
  size_t size_ = 0;
};

struct Worker {
  Queue* queue = nullptr;
  int index = 0;
  Op* current = nullptr;      // what it runs
  bool idle = false;          // on the queue's idle list
  bool on_standby = false;    // woken to stand by, not to work
  bool long_running = false;  // a narrow function that wide work no longer waits for
  Parker parker;
  Op* assigned = nullptr;  // exploration: what to run next
  std::atomic<bool> exited{false};
  std::thread thread;
};

struct DeviceState;

struct Queue {
  alignas(64) std::atomic<int> available{0};  // threads that a push may wake or start; read at each push
  alignas(64) DeviceState* device = nullptr;
  QueueKind kind = QueueKind::compute;
  int limit = 1;           // most threads
  void* stream = nullptr;  // RunContext::stream of what runs here
  int stream_number = 0;   // of tickets; 0: what runs here is finished when its function returns
  ReadyList ready;
  std::vector<std::unique_ptr<Worker>> workers;  // started on demand
  std::vector<Worker*> idle;                     // sleeping, most recent last
  bool waking = false;                           // a woken worker has not arrived yet
  bool spinning = false;                         // a worker looks for work before it sleeps
  bool standby = false;                // a worker leaves tiny functions to the others, see Engine::stand_by
  uint64_t standby_progress = 0;       // how many operations the others must take while it sleeps
  uint64_t taken = 0;                  // operations ever
  std::atomic<bool> has_ready{false};  // a hint for the spinning worker

  int active() const noexcept { return static_cast<int>(workers.size() - idle.size()) - (standby ? 1 : 0); }
  bool left_to_others() const noexcept { return standby && active() > 0; }
};

// The gate between wide and narrow work. Wide work goes first among equals, but after a wide operation of
// length T narrow work that waited gets a window of T / kNarrowShare, so neither starves. Beside a wide
// operation a few cheap kernels may still run on pushing threads, so that a program that reads small results
// stays quick; after kInlineBesideWide of them they queue like other narrow work, and back-pressure holds
// back a thread that floods the engine.
struct DeviceState {
  static constexpr int kNarrowShare = 16;
  static constexpr int kInlineBesideWide = 64;

  Device device;
  Queue queues[kQueueKinds];
  int narrow_running = 0;
  int brief_running = 0;  // on pushing threads; wide work waits for them as for narrow functions
  bool wide_running = false;
  int inlined_beside_wide = 0;
  Clock::time_point wide_started{};
  Clock::time_point narrow_until{};

  Queue& queue(QueueKind kind) noexcept { return queues[static_cast<int>(kind)]; }
  bool narrow_turn();  // while both wait: is it the narrow ones' turn?
};

}  // namespace weft
