// operation.h: an operation in flight: a function, the variables it reads and writes, and its place in their
// queues.
//
// Who owns: an Op belongs to the thread that builds it until it is submitted, then to the engine; the worker
// that finishes it gives it back to the pool of blocks (op_pool.cpp). Everything but `state` is guarded by
// the engine lock once submitted. One block holds the operation, a small function object and its accesses, so
// that pushing allocates nothing in the steady state.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/error.h"
#include "engine/ref.h"

namespace weft {

class Completion;
class Engine;
class LateCheck;
class Operator;
class Waiter;
struct Access;
struct Epoch;
struct Findings;
struct Op;
struct Queue;
struct Var;

// The others are added while the process runs (device_kind.h).
enum class DeviceKind : uint8_t { cpu, gpu };
inline constexpr int kDeviceKinds = 8;
inline constexpr int kDevicesOfKind = 64;
struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};
const char* kind_name(DeviceKind kind) noexcept;  // cpu
std::string to_string(Device device);             // cpu:0

// Each queue of a device has threads of its own, so that none waits behind another.
//   compute   functions that use one core; as many workers as Options::workers
//   wide      functions that open a parallel region; one thread; narrow compute work waits meanwhile
//   copy, io, priority   transfers; blocking work; short urgent work
enum class QueueKind : uint8_t { compute, wide, copy, io, priority };
inline constexpr int kQueueKinds = 5;
const char* queue_name(QueueKind kind) noexcept;

// What is known at run time only. Lives for the call.
struct RunContext {
  Engine* engine;
  Device device;
  QueueKind queue;
  int worker;    // index of the thread within its queue; -1 on the pushing thread
  void* stream;  // what the device's backend gave for this queue (device_kind.h); null on a cpu
  const Op* op;
  Completion* completion;   // of an asynchronous operation, else null
  Error* error = nullptr;   // what an operation inherited that runs all the same (Op::run_on_error)
  uint64_t interrupts = 0;  // of the engine, when the function began: see Engine::check_interrupts
  int stream_number = 0;    // of the stream, for tickets (tickets.h); 0: none
  std::vector<Ref<LateCheck>>* late =
      nullptr;                   // where checks may be noted (late_checks.h); null: they are waited for
  Findings* findings = nullptr;  // where those store what they find; null: where the kernel likes
  bool is_gated = false;         // what is enqueued does nothing if one of these is a failure
};
// Of what runs outside of any operation, on cpu:0.
inline constexpr RunContext outside_engine{nullptr, {}, QueueKind::compute, -1, nullptr, nullptr, nullptr};

// Something a thread must hold while it runs functions of one kind (for Python: the GIL). A worker keeps it
// from one such function to the next; never held or waited for under the engine lock.
class Domain {
 public:
  virtual ~Domain() = default;
  virtual void thread_begin() {}  // on a worker, before its first `enter`
  virtual void thread_end() {}
  virtual void enter() = 0;
  virtual void leave() = 0;
};

// How to run, drop and describe a function object: a hand-made vtable, so that the object can be stored in
// the Op. Only `run` is called with the domain held; the others see to it themselves if they need it.
struct TaskType {
  void (*run)(void* state, RunContext& context);  // may throw anything
  void (*drop)(void* state) noexcept;
  // After the operation's effects are visible; may be null.
  void (*finished)(void* state, Error* error) noexcept;
  std::string (*name)(const void* state) noexcept;
  std::string (*where)(const void* state) noexcept;
  Domain* domain;  // may be null
  // If `state` is on the pusher's stack: moves it to where it can stay, before the operation is queued. May
  // throw.
  void (*persist)(Op& op) = nullptr;
};

enum class Mode : uint8_t {
  read,
  write,      // reads and writes ("mutate")
  overwrite,  // writes without reading: runs although the variable is poisoned, and cures it
};

// What becomes of a variable that an operation was to write, if the operation fails or is skipped.
enum class OnFailure : uint8_t {
  poison,
  keep,  // it is as it was before, and stays good: an update that is done wholly or not at all
  done,  // it has its new content: only other parts of the operation failed
};

// One use of a variable by an operation; a node of the variable's queue while it waits. 24 bytes: operations
// travel from the pushing core to the working one, and every cache line of theirs costs some 30 ns.
struct Access {
  Access* next;
  Var* var;
  uint32_t index;  // within the operation, see `op`
  Mode mode;
  bool is_duplicate;  // a second mention of the variable in the same operation; takes no part
  OnFailure on_failure = OnFailure::poison;

  Op* op() noexcept;
};

// Of one operation: twice as many numbers rank what it inherits errors from.
inline constexpr uint32_t kMostAccesses = 0x7ffffffe;

enum class OpKind : uint8_t {
  task,
  async,
  bulk,     // a chain of tasks run as one
  destroy,  // deletes its variable, then runs a function
  wait,     // the rest are markers, done by the scheduler when their turn comes: signals a waiter
  clear,    // removes the variable's error
  erase,    // deletes its variable
};

struct Op {
  static constexpr size_t kInlineState = 48;

  const TaskType* type = nullptr;  // null for markers
  void* state = nullptr;           // `storage`, or the function object of `origin`; of a bulk: its variables
  Op* next = nullptr;              // in the ready list, the chain of a bulk, or a free list
  Queue* queue = nullptr;
  Epoch* epoch = nullptr;
  Ref<Error> error;            // inherited or own
  Operator* origin = nullptr;  // which it is a run of
  union {
    Waiter* waiter = nullptr;  // of a wait marker; counted
    Completion* completion;    // of an asynchronous operation that has not started; counted
    Op* parts;                 // of a bulk
  };
  uint64_t size_bytes = 0;
  uint64_t trace_id = 0;  // for observers; given only while there are some
  int32_t priority = 0;
  uint32_t waiting = 0;                  // accesses not granted yet, plus one while being scheduled
  uint32_t inherited_rank = UINT32_MAX;  // of the access that gave `error`: the first read, else write
  uint32_t access_count = 0;
  uint32_t access_room;
  OpKind kind = OpKind::task;
  bool cheap = false;          // a native kernel that may run on the pushing thread
  bool brief = false;          // one that takes longer, and may do so while its device is idle
  bool only_enqueues = false;  // work of its stream, without a look at a value
  bool heeds_gate =
      false;            // it keeps content if it fails, and its code can look at checks before it does not
  bool direct = false;  // did not come through the inbox
  bool skipped = false;
  bool run_on_error = false;        // it runs although a variable that it reads or changes is poisoned
  bool retains = false;             // holds a reference to each of its variables, see retain_variables
  bool is_reused = false;           // belongs to its Operator, which uses it for one run after the other
  uint8_t block_class;              // of the pool of blocks
  std::atomic<uint8_t> holders{1};  // an asynchronous op is also held by its running function
  alignas(16) unsigned char storage[kInlineState];

  Access* accesses() noexcept { return reinterpret_cast<Access*>(this + 1); }
  const Access* accesses() const noexcept { return reinterpret_cast<const Access*>(this + 1); }

  // Order matters to the scheduler: writes first, then overwrites, then reads ("the write wins").
  void add(Var* var, Mode mode, OnFailure on_failure = OnFailure::poison) noexcept {
    accesses()[access_count] = Access{nullptr, var, access_count, mode, false, on_failure};
    ++access_count;
  }
  // For the parts of a bulk, which the scheduler never sees: what it does for other operations.
  void merge_duplicates() noexcept {
    for (uint32_t i = 1; i < access_count; ++i) {
      Access& access = accesses()[i];
      Access& first = const_cast<Access&>(*find(access.var));
      if (&first == &access) continue;
      access.is_duplicate = true;
      if (first.mode == Mode::overwrite && access.mode == Mode::read) first.mode = Mode::write;
    }
  }
  // For variables that are not deleted through the engine, but end with their last reference. Given back when
  // the operation is freed, after it has released them.
  void retain_variables() noexcept;
  const Access* find(const Var* var) const noexcept {
    for (uint32_t i = 0; i < access_count; ++i)
      if (accesses()[i].var == var) return &accesses()[i];
    return nullptr;
  }
  std::string name() const { return type ? type->name(state) : std::string(); }
  std::string where() const { return type ? type->where(state) : std::string(); }

  // Puts a C++ callable `fn(RunContext&)` into the operation.
  template <class F>
  void emplace(F&& fn, const char* name);

 private:
  friend Op* new_op(size_t accesses);
  Op(uint32_t room, uint8_t size_class) : access_room(room), block_class(size_class) {}
};
static_assert(std::is_trivially_destructible_v<Access> && sizeof(Access) == 24);

inline Op* Access::op() noexcept { return reinterpret_cast<Op*>(this - index) - 1; }

Op* new_op(size_t accesses);
void free_op(Op* op) noexcept;  // drops nothing: `type->drop` has been called or is not due
// Ends the function object, unless that has been done, or a reusable Operator owns it.
void drop_state(Op* op) noexcept;

// A function with its variables, made once and pushed many times. It lives until its handle has gone and its
// runs have finished. Runs are counted in two places, so that the pushing and the working core do not share a
// line for it.
struct Operator {
  ~Operator();
  Engine* engine = nullptr;
  Op* plan = nullptr;  // never submitted: function object, accesses, kind and queue to copy
  QueueKind queue = QueueKind::compute;
  std::atomic<bool> deleted{false};
  std::atomic<uint64_t> pushed{0};
  alignas(64) std::atomic<uint64_t> finished{0};  // written under the engine lock
  std::vector<Ref<Var>> vars;                     // keeps them readable; they may be deleted all the same
  bool retired = false;                           // no handle any more; engine lock
  Operator* next_retired = nullptr;
  Op* spare = nullptr;  // engine lock

  Op* copy_plan();  // an operation for one more run; may throw std::bad_alloc
  // The same from those that earlier runs used, if there is one. Engine lock.
  Op* take_spare();
  void give_spare(Op* op) noexcept {
    op->next = spare;
    spare = op;
  }
  bool idle() const noexcept {
    return finished.load(std::memory_order_acquire) == pushed.load(std::memory_order_relaxed);
  }
};

namespace detail {

template <class F>
struct Native {
  F fn;
  const char* name;
};

template <class F>
struct NativeType {
  static F& get(void* state) {
    if constexpr (sizeof(Native<F>) <= Op::kInlineState)
      return static_cast<Native<F>*>(state)->fn;
    else
      return (*static_cast<Native<F>**>(state))->fn;
  }
  static const Native<F>& whole(const void* state) {
    if constexpr (sizeof(Native<F>) <= Op::kInlineState)
      return *static_cast<const Native<F>*>(state);
    else
      return **static_cast<const Native<F>* const*>(state);
  }
  static void run(void* state, RunContext& context) { get(state)(context); }
  static void drop(void* state) noexcept {
    if constexpr (sizeof(Native<F>) <= Op::kInlineState)
      static_cast<Native<F>*>(state)->~Native<F>();
    else
      delete *static_cast<Native<F>**>(state);
  }
  static std::string name(const void* state) noexcept { return whole(state).name; }
  static std::string where(const void*) noexcept { return {}; }
  static constexpr TaskType type{run, drop, nullptr, name, where, nullptr};
};

}  // namespace detail

template <class F>
void Op::emplace(F&& fn, const char* name) {
  using Fn = std::decay_t<F>;
  using N = detail::Native<Fn>;
  static_assert(alignof(N) <= 16);
  if constexpr (sizeof(N) <= kInlineState)
    new (storage) N{std::forward<F>(fn), name};
  else
    *reinterpret_cast<N**>(storage) = new N{std::forward<F>(fn), name};
  type = &detail::NativeType<Fn>::type;
  state = storage;
}

}  // namespace weft
