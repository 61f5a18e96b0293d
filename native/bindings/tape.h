// tape.h: what is recorded of calls whose inputs want a gradient, and the way back.
//
// A node explains the outputs of one call: the plan that made them, the values its gradient needs, and where
// the inputs came from. Outputs own their node, nodes own those they came from; so results that nobody keeps
// free their history. Everything here is guarded by the GIL.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "bindings/layers.h"
#include "bindings/program.h"

namespace weft {

class TapeNode : public Counted<TapeNode> {
 public:
  enum class Kind : uint8_t {
    leaf,      // a tensor that somebody wants the gradient of; its one input, if any, is what it was before
    plan,      // a call of a plan
    function,  // a call of a Python function with a backward of its own
  } kind = Kind::leaf;
  struct Edge {
    Ref<TapeNode> node;
    uint32_t index = 0;
  };

  uint64_t number = 0;  // later ones depend on earlier ones only
  Ref<Plan> plan;
  Ref<Plan> backward;              // of `plan`, for the inputs that have edges
  PyObject* function = nullptr;    // Kind::function
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
  uint32_t context = 0;         // the module that it was in, as weft.imperative.paths numbers them

  // Empty; with the room of an earlier one, if there is any.
  static Ref<TapeNode> make();
  ~TapeNode() { clear(); }
  void dispose() const noexcept;  // not recursive: histories are long
  // Visits the Python functions of the nodes that only `from` keeps; for the garbage collector. Of
  // nodes that something else keeps, too, the functions are kept from outside, as far as it can see.
  static int visit_functions(const Ref<TapeNode>& from, visitproc visit, void* arg);

 private:
  void clear() noexcept;
};

// The module that this thread is in, as weft.imperative.paths numbers them, while that is noted; 0: none. Set
// by Python around calls of modules, and by the way back to that of the call whose gradient it computes.
extern thread_local uint32_t context_here;

extern thread_local int recording_off;  // > 0: inside no_grad
inline bool recording() noexcept { return recording_off == 0; }

// While a program is written down (an epoch, > 0), no tensor need have a history: the program's gradient is
// asked for later. So what leaves the history is noted here: in what `no_grad` keeps out, everything; of
// other tensors, those whose epoch this is. GIL.
extern thread_local uint32_t stop_epoch;
extern thread_local int no_grads;         // users' no_grad that this thread is in
extern thread_local int no_grads_before;  // of these, entered before the epoch began
inline bool stopping() noexcept { return stop_epoch && no_grads > no_grads_before; }
inline bool is_stopped(const Tracked& x) noexcept { return stop_epoch && x.stopped == stop_epoch; }

// What a region that is not recorded reads of recorded arrays is noted: their nodes, for each region that
// this thread is in, the innermost last.
struct Noted {
  uint64_t before;               // the number of the newest record as it began
  std::vector<TapeNode*> nodes;  // alive as long as the arrays that the region was given
};
extern thread_local std::vector<Noted>* noting;  // null: in none

// Whether what happens to this tensor must be recorded.
inline bool is_recorded(PyObject* tensor) noexcept { return tracked_of(tensor).node && recording(); }
// Whether only operators may do it: somebody wants to know.
inline bool by_operators(PyObject* tensor) noexcept {
  return layers_active() || layers_here.capture || is_recorded(tensor) || stopping() ||
         is_stopped(tracked_of(tensor)) || (noting && tracked_of(tensor).node);
}

// Runs a plan, and records it if an input wants a gradient. `results`: one for each output of the program.
void call_plan(const Ref<Plan>& plan, std::span<const Tracked* const> inputs, std::span<const Scalar> numbers,
               std::span<const Tensor* const> destinations, std::span<Tracked> results);
// For launches that were put off: how often arrays were written is counted when that is said, not when it is
// done, so that what gradients have saved meanwhile is not found overwritten.
class KeptCounts {
 public:
  KeptCounts(std::span<const Tracked* const> inputs, std::span<const Tensor* const> destinations);
  KeptCounts(const KeptCounts&) = delete;
  ~KeptCounts();

 private:
  void keep(const Tensor& x);
  std::vector<std::pair<Ref<Chunk>, uint32_t>> counts_;
};
// After an operation that changes x in place was pushed from Python: remembers the line, for check of saved
// values.
void note_overwriting(const Tensor& x);
// The line that was remembered last; null if none.
const Site* overwriting_of(const Chunk* chunk) noexcept;
// Raises ShapeError, DTypeError or DeviceError unless a gradient of an array is like the array. The other
// arguments are for the message: "function: what is f32[2]@cpu:0, its gradient f64[2]@cpu:0where".
void check_slope(const Tensor& slope, const Tensor& of, Device device, const std::string& function,
                 const std::string& what, const std::string& where = {});
// An array of like's shape and type, every element this number.
Tensor filled(const Tensor& like, Device device, int64_t value);
// The plan of the gradients of `plan`'s inputs in `wanted`, from those of its outputs in `given`; null if all
// are zero. May throw what a rule throws.
Ref<Plan> backward_of(const Ref<Plan>& plan, const Bits& wanted, const std::vector<bool>& given);
// The outputs that gradients come in for, as a rule: those that callers get, and new contents of inputs.
std::vector<bool> usual_slopes(const Plan& plan);
// The same plan with what its gradient reads of what it drew as more hidden outputs; itself if it draws
// nothing.
Ref<Plan> recorded_form(const Ref<Plan>& plan);
// The gradients of the leaves, where there are any, from those of the roots, `slopes`. With create_graph what
// is computed is recorded in turn, if the caller has recording on, and the history stays. on_final, if it is
// not empty, is called for each of the leaves that has a gradient, as soon as nothing more will be added to
// it.
using OnFinal = std::function<void(size_t leaf, const Tracked& gradient)>;
std::vector<std::optional<Tracked>> walk_back(std::span<const Tracked* const> roots,
                                              std::span<const Tracked* const> slopes,
                                              std::span<TapeNode* const> leaves, bool create_graph,
                                              const OnFinal& on_final = {});

}  // namespace weft
