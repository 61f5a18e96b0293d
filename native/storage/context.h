// context.h: what of a thread decides what its calls mean: one block, read by every call without a function
// call.
//
// What belongs to a thread is set by that thread alone; nothing here is seen by another. Objects of Python's
// are pointers that only the bindings look into; they own them.
#pragma once

#include <cstdint>
#include <vector>

struct _object;

namespace weft {

class Generator;
class ArrayRecorder;
class Chunk;
struct UnrecordedRegion;

// What sees calls of operators before they are planned (bindings/layers.h).
struct Layers {
  _object* first = nullptr;    // owned
  _object* capture = nullptr;  // owned: what writes down a body of control flow
};

struct Context {
  Layers layers;
  ArrayRecorder* recorder = nullptr;  // records what the thread does (tensor/array_recorder.h)
  Generator* stream = nullptr;        // what it draws from, of any device; null: the devices' streams
  _object* stream_object = nullptr;   // owned: what holds `stream`

  // Recording for gradients (bindings/tape.h).
  int recording_off = 0;  // > 0: inside no_grad
  // While a program is written down (an epoch, > 0), no tensor need have a history: the program's gradient is
  // requested later. So what leaves the history is noted: in what `no_grad` keeps out, everything; of other
  // tensors, those whose epoch this is.
  uint32_t stop_epoch = 0;
  int no_grads = 0;         // users' no_grad that the thread is in
  int no_grads_before = 0;  // of these, entered before the epoch began
  std::vector<UnrecordedRegion>* noting =
      nullptr;  // regions that are not recorded, the innermost last; null: in none

  // While a launch runs that was put off: the chunks whose writes this thread has counted, see KeptCounts.
  std::vector<Chunk*>* counted_writes = nullptr;

  // The module that the thread is in, as weft.recording.paths numbers them, while that is noted; 0: none.
  // Set by Python around calls of modules, and by the way back to that of the call whose gradient it
  // computes.
  uint32_t module = 0;

  bool is_recording() const noexcept { return recording_off == 0; }
  bool is_stopping() const noexcept { return stop_epoch && no_grads > no_grads_before; }
};

extern constinit thread_local Context context_of_thread __attribute__((tls_model("initial-exec")));

// The calling thread's.
inline Context& context() noexcept { return context_of_thread; }

}  // namespace weft
