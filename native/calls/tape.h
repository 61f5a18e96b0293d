// tape.h: what is recorded of calls whose inputs want a gradient, and the way back.
//
// A node explains the outputs of one call: the plan that made them, the values its gradient needs, and where
// the inputs came from. Outputs own their node, nodes own those they came from; so results that are not kept
// free their history. Everything here is guarded by the lock of the language that calls (host.h).
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "calls/host.h"
#include "calls/plan.h"
#include "calls/tracked.h"
#include "engine/context.h"
#include "tensor/array_recorder.h"

namespace weft {

class TapeNode : public Counted<TapeNode> {
 public:
  enum class Kind : uint8_t {
    leaf,      // a tensor whose gradient is requested; its one input, if any, is what it was before
    plan,      // a call of a plan
    function,  // a call of a function of the language with a backward of its own
  } kind = Kind::leaf;
  struct Edge {
    Ref<TapeNode> node;
    uint32_t index = 0;
  };

  uint64_t number = 0;  // later ones depend on earlier ones only
  Ref<Plan> plan;
  Ref<Plan> backward;              // of `plan`, for the inputs that have edges
  _object* function = nullptr;     // Kind::function; owned
  std::vector<Edge> edges;         // for each input
  std::vector<Tensor> saved;       // inputs, then outputs; without memory where only the geometry is needed;
                                   // Kind::function: the geometry of the inputs
  std::vector<uint32_t> versions;  // of their chunks, for those that are read
  uint32_t epoch = 0;              // in which some of them had left the history (stop_epoch), and
  Bits stopped;                    // which
  std::vector<Scalar> numbers;
  std::vector<Tensor> outputs;  // geometry only, for gradients that are zero
  bool runs_python = false;     // it, or one that it came from, has a `function`
  std::vector<Device> devices;  // Kind::function: of the inputs, then of the outputs
  Site site;                    // the line of the call
  uint32_t context = 0;         // the module that it was in, as weft.recording.paths numbers them

  // Empty; with the room of an earlier one, if there is any.
  static Ref<TapeNode> make();
  ~TapeNode() { clear(); }
  void dispose() const noexcept;  // not recursive: histories are long
  // Visits the functions of the nodes that only `from` keeps; for the garbage collector. Of
  // nodes that something else keeps, too, the functions are kept from outside, as far as it can see.
  static int visit_functions(const Ref<TapeNode>& from, int (*visit)(_object* function, void* arg),
                             void* arg);

 private:
  void clear() noexcept;
};

inline bool recording() noexcept { return context().is_recording(); }
inline bool stopping() noexcept { return context().is_stopping(); }
// Whether it has left the history of what is being written down.
inline bool is_stopped(const Tracked& x) noexcept {
  const uint32_t epoch = context().stop_epoch;
  return epoch && x.stopped == epoch;
}

// Records what a thread does (tensor/array_recorder.h), launches included: for an object of the language. All
// recorders of calls are.
class LaunchRecorder : public ArrayRecorder {
 public:
  virtual _object* target() const noexcept = 0;  // borrowed
  // A tensor of the language is about to be used by this thread: the recorder may need the object.
  virtual void on_use(_object*) {}
  // Nothing more is reported to it, for now or for ever.
  virtual void leave() {}
  // A launch, with its results: after it, or, where launches are deferred, in its place; then whether it is
  // to be left out.
  virtual bool on_launch(const Plan& plan, std::span<const Tracked* const> inputs,
                         std::span<const Scalar> numbers, std::span<const Tracked> results) = 0;
};
// Whether a result of a plan is one of its inputs, seen otherwise.
bool is_alias(const Program& program, size_t output);

// What a planner has no rule for; a call raises NotImplementedError.
struct NotDerivable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What a region that is not recorded reads of recorded arrays is noted: their nodes, for each region that
// this thread is in, the innermost last.
struct UnrecordedRegion {
  uint64_t before;               // the number of the newest record as it began
  std::vector<TapeNode*> nodes;  // alive as long as the arrays that the region was given
};

// Runs a plan, and records it if an input requires a gradient. `results`: one for each output of the program.
// here: of the calling thread.
void call_plan(const Ref<Plan>& plan, std::span<const Tracked* const> inputs, std::span<const Scalar> numbers,
               std::span<const Tensor* const> destinations, std::span<Tracked> results,
               Context& here = context());
// For launches that were put off: how often arrays were written is counted when that is said, not when it is
// done, so that what gradients have saved meanwhile is not found overwritten. So what this thread counts
// within is taken back at the end; what other threads write meanwhile stays counted.
class KeptCounts {
 public:
  KeptCounts(std::span<const Tracked* const> inputs, std::span<const Tensor* const> destinations);
  KeptCounts(const KeptCounts&) = delete;
  ~KeptCounts();

 private:
  std::vector<Ref<Chunk>> chunks_;
  std::vector<Chunk*> counted_;
  std::vector<Chunk*>* const outer_;
};
// After an operation that changes x in place was pushed from Python: remembers the line, for check of saved
// values.
void note_overwriting(const Tensor& x);
// The line that was remembered last; null if none.
const Site* overwriting_of(const Chunk* chunk) noexcept;
// Raises ShapeError, DTypeError or DeviceError unless a gradient of an array is like the array. The other
// arguments are for the message: "function: what is f32[2]@cpu:0, its gradient f64[2]@cpu:0where".
void check_cotangent(const Tensor& cotangent, const Tensor& of, Device device, const std::string& function,
                     const std::string& what, const std::string& where = {});
// An array of like's shape and type, every element this number.
Tensor filled(const Tensor& like, Device device, int64_t value);
// The plan of the gradients of `plan`'s inputs in `needs_gradient`, from those of its outputs in
// `has_cotangent`; null if all are zero. May throw what a rule throws.
Ref<Plan> backward_of(const Ref<Plan>& plan, const Bits& needs_gradient,
                      const std::vector<bool>& has_cotangent);
// Whether a gradient comes in for an output as a rule: callers get it, or it is the new content of an input.
bool has_usual_cotangent(const Plan& plan, size_t output) noexcept;
std::vector<bool> usual_cotangents(const Plan& plan);
// The same plan with what its gradient reads of what it drew as more hidden outputs; itself if it draws
// nothing.
Ref<Plan> recorded_form(const Ref<Plan>& plan);
// Makes x a leaf; what it was before is the leaf's past. Raises DTypeError for types without gradients.
Ref<TapeNode> watch(Tracked& x);
// x is again what it was before the leaf; if it was written meanwhile and had a past, that goes on.
void unwatch(Tracked& x, const TapeNode& leaf);
// Remembers that outputs came from inputs by way of a function of the language, which is taken over. They are
// marked where they have gradients.
Ref<TapeNode> record_function(std::span<const Tracked* const> inputs, std::span<Tracked* const> outputs,
                              _object* function);
// A region of this thread begins that is not recorded; at its end: whether it read a recorded array that is
// none of these.
void begin_noting();
bool end_noting(std::span<const Tracked* const> arguments);
// call_plan for arrays and numbers that come from anywhere: raises ValueError or ShapeError where they do not
// fit. late: what the plan does has been seen before, as if it had been done then.
void call_checked(const Ref<Plan>& plan, std::span<const Tracked* const> inputs,
                  std::span<const Scalar> numbers, std::span<const Tensor* const> destinations,
                  std::span<Tracked> results, bool late);

// The gradients of the leaves, where there are any, from those of the roots, `cotangents`. With create_graph
// what is computed is recorded in turn, if the caller has recording on, and the history stays. on_final, if
// it is not empty, is called for each of the leaves that has a gradient, as soon as nothing more will be
// added to it.
using OnFinal = std::function<void(size_t leaf, const Tracked& gradient)>;
std::vector<std::optional<Tracked>> walk_back(std::span<const Tracked* const> roots,
                                              std::span<const Tracked* const> cotangents,
                                              std::span<TapeNode* const> leaves, bool create_graph,
                                              const OnFinal& on_final = {});

}  // namespace weft
