// kernel.h: one computation on memory: what a program is made of.
//
// A kernel owns what it needs to run (code, a oneDNN primitive), never arrays. It is called from one thread
// at a time per call, from several for different calls, so `run` is const and keeps nothing; it may use the
// team (team.h) and OpenMP. What it has to know of the device that it runs on is in the call's context; it
// does not call the engine, and what it reads and writes was ordered before.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "engine/operation.h"
#include "tensor/kernels.h"

namespace weft {

struct LoopForm;
struct ControlForm;

// What a kernel is called with. Outputs never overlap inputs, unless they are the same elements at the same
// places and the kernel was made to work in place.
struct Call {
  const View* operands;  // inputs, then outputs, in the order the kernel was made for
  const uint64_t*
      parameters;  // slots of 8 bytes: numbers in the type that the kernel takes, at the slot's beginning
  char* scratch;   // scratch_bytes() of them, aligned to 64; undefined content
  // Where and for which operation it runs: the device, its stream, the queue. A kernel that calls another one
  // hands it on. Without one, the kernel runs on cpu:0, on a thread outside of the engine.
  const RunContext& context = outside_engine;
};

// A kernel on operands of known geometry: what `run` computes again at each call has been computed once.
// Immutable; called like the kernel, which must outlive it.
class Bound {
 public:
  virtual ~Bound() = default;
  // data: of the operands; context: as a Call's.
  virtual void run(char* const* data, const uint64_t* parameters, const RunContext& context) const = 0;
};

// Of the elements of an operand, those that share memory once.
inline int64_t distinct_bytes(const View& x) noexcept {
  auto bytes = static_cast<int64_t>(size_of(x.dtype));
  for (int d = 0; d < x.ndim; ++d)
    if (x.strides[d] != 0 || x.shape[d] == 0) bytes *= x.shape[d];
  return bytes;
}

// Called where a kernel has failed in a loop or branch of a program, before the memory of what ran before it
// is given back: other threads may still be at work in it. Null: nothing is called.
inline std::atomic<void (*)() noexcept> abandoned{nullptr};

class Kernel : public Counted<Kernel> {
 public:
  virtual ~Kernel() = default;
  virtual void run(const Call& call) const = 0;
  // Of a loop of the expression compiler, else null.
  virtual const LoopForm* loop_form() const { return nullptr; }
  // Of a loop or branch over programs (control.h), else null.
  virtual const ControlForm* control_form() const { return nullptr; }
  // For operands of this geometry, whose data is not looked at; null: there is nothing to be computed.
  virtual std::unique_ptr<Bound> bind(const View* operands) const {
    static_cast<void>(operands);
    return nullptr;
  }
  virtual size_t scratch_bytes(const View* operands) const {
    static_cast<void>(operands);
    return 0;
  }
  // How many operands a call has; -1: what was made says nothing of it, so nothing can be checked.
  virtual int operand_count() const { return -1; }
  // How many copies into other layouts a run makes.
  virtual int reorders() const { return 0; }
  // How many bytes a run on these operands reads and writes, for the profiler; -1: each operand once.
  virtual int64_t moved_bytes(const View* operands) const {
    static_cast<void>(operands);
    return -1;
  }
  // Whether it runs a library's reference code, which is many times slower than its other code.
  virtual bool is_reference() const { return false; }
  // Whether it may run on a device whose memory the host cannot touch.
  virtual bool reaches_devices() const { return false; }
  // The device of its input if that is another one than that of its output, which the host may not touch.
  virtual const Device* source_device() const { return nullptr; }
  // Whether `run` only enqueues work on the context's stream, and the host waits for nothing.
  virtual bool enqueues() const { return false; }
  // How many checks `run` notes, where it may (late_checks.h), instead of waiting for them.
  virtual size_t late_checks() const { return 0; }
  // Whether what `run` enqueues does nothing in vain where its context is gated.
  virtual bool heeds_gate() const { return false; }
  // Whether it opens parallel regions, or takes long, at any size.
  virtual bool wide() const { return false; }

  // The name of the function that made it and its arguments (archive.h), by which another process makes the
  // same; empty: it cannot. Set before others see the kernel.
  std::string recipe;
};

}  // namespace weft
