// array_recorder.h: recorders of what a thread does to arrays, for traces and lazy evaluation.
//
// Every operation that is pushed on arrays is either the launch of a plan, which the bindings report, or one
// of operations.h, reported here before it is pushed. Views are not reported: what they alias follows from
// their geometry. A recorder belongs to the thread that set it.
#pragma once

#include "engine/context.h"
#include "storage/random.h"
#include "tensor/tensor.h"

namespace weft {

class ArrayRecorder {
 public:
  virtual ~ArrayRecorder() = default;
  // Each of these: whether the operation is to be left out, because the recorder performs it.
  virtual bool on_fill(const Tensor& to, Scalar value) = 0;
  virtual bool on_copy(const Tensor& to, const Tensor& from) = 0;
  virtual bool on_range(const Tensor& to, Scalar start, Scalar step) = 0;
  virtual bool on_draw(const Tensor& to, Draw kind, Scalar a, Scalar b) = 0;
  virtual bool on_permute(const Tensor& to, const Tensor& from) = 0;
  // The host is about to look at elements, or to change them. May throw.
  virtual void on_read(const Tensor& x) = 0;
  // The host waits for elements, or hands them to the engine.
  virtual void on_await(const Tensor& x) = 0;
  // The host reads the state of random numbers, or sets it.
  virtual void on_random_state() = 0;
  // Whether launches are left out, too.
  virtual bool defers() const noexcept = 0;
};

// Nothing is written down while one of these lives.
class Unobserved {
 public:
  Unobserved() noexcept : before_(context().recorder) { context().recorder = nullptr; }
  ~Unobserved() { context().recorder = before_; }
  Unobserved(const Unobserved&) = delete;

 private:
  ArrayRecorder* const before_;
};

}  // namespace weft
