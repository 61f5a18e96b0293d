// context.h: what of a thread decides what its calls mean, and what its calls have at hand: one block, found
// by one look-up.
//
// What belongs to a thread is set by that thread alone; nothing here is seen by another, but `running` by
// Engine::track_user_thread, as an address. Objects of Python's are pointers that only the bindings look
// into; they own them. Other variables of threads are those that few calls look at, each beside its use.
#pragma once

#include <cstdint>
#include <vector>

struct _frame;
struct _object;

namespace weft {

class ArrayRecorder;
class Chunk;
class Engine;
class Generator;
class OpBlocks;
struct Bulk;
struct Running;
struct SpareChunks;
struct UnrecordedRegion;

// What sees calls of operators before they are planned (bindings/layers.h).
struct Layers {
  _object* first = nullptr;    // owned
  _object* capture = nullptr;  // owned: what writes down a body of control flow
};

// The latest line that was asked for within an entry, and the frame that it was found from: what a call
// pushes and records comes from one line, for which all frames between would be gone through again.
struct LatestSite {
  _frame* frame = nullptr;  // not owned, as is the code: the frame is there while the entry lasts
  _object* code = nullptr;
  int instruction = 0;
};

struct Context {
  Running* running = nullptr;   // the function that the thread executes, if any (engine.h)
  Engine* worker_of = nullptr;  // the engine whose worker it is, if any
  Bulk* bulk = nullptr;         // collects its pushes (submit.cpp)

  OpBlocks* op_blocks = nullptr;        // owned: memory of operations (op_pool.cpp)
  SpareChunks* spare_chunks = nullptr;  // owned: memory of chunks (chunk.cpp)
  bool has_closed_op_blocks = false;    // the thread's variables are being destroyed
  bool has_closed_spare_chunks = false;
  uint64_t last_serial = 0;  // of the chunks it has made

  bool holds_gil = false;  // as far as marks tell (bindings/python.h)
  LatestSite latest_site;
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

// The calling thread's. It stays where it is as long as the thread lives, so one look-up in a function is
// enough; there the compiler joins them.
[[gnu::const]] Context& context() noexcept;

}  // namespace weft
