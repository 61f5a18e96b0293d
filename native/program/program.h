// program.h: a plan ready to run: kernels in order, on values whose geometry follows from the inputs'.
//
// Made once by the planner (weft/executor), then immutable and shared. Geometry is computed in registers:
// 64-bit integers loaded from constants and the inputs' sizes, combined by a few operations; a plan for exact
// sizes has only constants. `launch` allocates the outputs, pushes one operation on the engine that runs all
// kernels, and returns at once; cheap programs run on the pushing thread. What leaves a program are blocks of
// the pool; what stays inside is in temporary space of the thread that runs it.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "program/kernel.h"
#include "storage/random.h"
#include "tensor/operations.h"

namespace weft {

class Program final : public Counted<Program> {
 public:
  // Registers.
  struct Load {
    enum class From : uint8_t { size, extent, stride } from;
    int reg, input, dimension;  // of a size: counted from the last, over all inputs; input is not looked at
  };
  struct Compute {
    enum class What : uint8_t { add, sub, mul, div } what;
    int reg, a, b;
  };

  // Values. The inputs come first, as they are given; for the others:
  struct Value {
    enum class Kind : uint8_t {
      input,
      output,  // memory of its own, allocated by launch; `like`: of the shape of that input, in the order of
               // its strides
      temporary,  // inside the arena, at register `offset` in bytes
      view,       // of value `base`, from element `offset` (a register) on
      prepacked,  // made by the hoisted steps, and reused from run to run
    } kind;
    DType dtype;
    int base = -1;
    int offset = -1;
    int like = -1;
    std::vector<int> sizes, strides;  // registers
    Device device{};                  // of an output
  };
  // What of an input is looked at; aliased: nothing here, but an output is a view of its elements.
  enum class Use : uint8_t { nothing, geometry, aliased, data };

  // The line of the host language that launches, for messages; what its binding sets, once. `here` gives one
  // that is to be dropped.
  struct Site {
    void* code = nullptr;
    int detail = 0;
  };
  struct Host {
    Site (*here)() noexcept;
    std::string (*text)(const Site& site) noexcept;
    void (*drop)(const Site& site) noexcept;
  };
  static Host host;

  // Parameters of kernels, 8 bytes each, in the kernel's type: a number given at the call, a register, a
  // constant.
  struct Slot {
    enum class From : uint8_t { number, reg, constant, random } from;
    DType dtype;
    int index;  // of the number, the register
    double value = 0;
  };
  struct Step {
    Ref<Kernel> kernel;
    std::vector<int> operands;  // values
    int first_slot = 0;
    std::string name, where;  // the operators whose work it is; the user's line, "" if it is not known
    std::vector<std::pair<int, int>> in_place{};  // values it reads and writes that may be the same memory
    std::vector<int> written{};                   // which of the operands it writes
    bool is_copy = false;  // of operand 0 to operand 1: nothing to do where both are the same elements
  };
  // The values that one of the first steps reads and writes. These are run when an input that they depend on
  // was written since they ran last (prepacked.h).
  struct HoistedStep {
    std::vector<int> reads, writes;
  };
  // A block of the arena: the steps in which it is written first and read last.
  struct Span {
    int first, last;
    int64_t offset, bytes;
  };
  struct Output {
    int value;
    int writes = -1;  // the input whose memory it becomes: outputs of that kind are not given to the caller
    bool flexible = false;  // may be written with any strides
    // The state that an operator updates, such as weights: of a run that fails, it keeps the content that it
    // had.
    bool commits = false;

    int step = -1;          // the first one that writes it; filled by finish
    bool in_place = false;  // that step may read the very elements that it writes
    // Inputs that are still read after `step` has begun to write: those of later steps and, unless in_place,
    // those of that step itself. The value's memory must not overlap theirs.
    std::vector<int> read_late{};
    // The step copies the input that the output becomes the content of. Then a run in that input's memory
    // touches no more than what the other steps do, by these values: views of the output.
    bool keeps_content = false;
    std::vector<int> touched{};
  };
  // Positions of random numbers that a run takes, written to three slots: key, stream, offset.
  struct Random {
    Draw kind;
    DType dtype;
    int count;  // register
    int first_slot;
  };

  // A program of several devices: a program for each piece of one device, in an order in which each comes
  // after those whose results it reads. They are launched one after the other, and the engine runs those side
  // by side that share nothing; what one gives another is memory of its own. Such a program has no steps.
  // Wires are numbered: the inputs, then what parts make.
  struct Part {
    Ref<const Program> program;
    std::vector<int> inputs, numbers, outputs;  // wires; of the call's numbers
  };

  std::string name;
  int64_t serial = 0;  // of the Recipe that it was made with; 0: none
  int registers = 0;
  std::vector<std::pair<int, int64_t>> constants;
  std::vector<Load> loads;
  std::vector<Compute> computes;
  std::vector<Use> uses;      // of the inputs
  std::vector<Value> values;  // without the inputs
  std::vector<Output> outputs;
  std::vector<Slot> slots;
  std::vector<Step> steps;
  std::vector<HoistedStep> hoisted;  // of the first so many steps; exact programs only
  std::vector<Random> randoms;
  std::vector<Part> parts;
  std::vector<int> output_wires;  // with parts: the wire of each output
  int arena_bytes = -1;           // register
  Device device{};
  bool wide = false;     // opens parallel regions at all sizes
  bool is_copy = false;  // brings an array from another device: work of the copy queue
  bool exact = false;    // all registers are constants
  bool check = false;    // WEFT_CHECK: runs look for steps that touch what is not theirs; exact programs only
  std::vector<Span> spans;
  struct Input {
    DType dtype;
    std::vector<int64_t> shape, strides;
  };
  std::vector<Input> planned_inputs;  // of an exact program

  Program();
  ~Program();
  // To be called when all fields are there. Raises ValueError where one refers to something that is not
  // there, so that nothing need be checked when programs run.
  void finish();
  // How many numbers a launch has to give.
  size_t numbers_taken() const noexcept { return numbers_taken_; }

  // inputs: null where only numbers were given; numbers: those of the call. destinations: memory that outputs
  // are to be written to, null for fresh memory; may be empty. Fills `results`, one tensor for each output.
  void launch(std::span<const Tensor* const> inputs, std::span<const Scalar> numbers,
              std::span<const Tensor* const> destinations, Tensor* const* results) const;

  // The results that launch would give, with memory in which nothing happens; what is written in place counts
  // as written.
  void prepare(std::span<const Tensor* const> inputs, std::span<const Tensor* const> destinations,
               Tensor* const* results) const;
  // The device of output j.
  Device device_of(size_t j) const {
    const int value = outputs[j].value - static_cast<int>(uses.size());
    return value < 0 ? device : values[static_cast<size_t>(value)].device;
  }
  // Makes the prepacked values of an exact program ahead of the first run, and waits for them. inputs: as of
  // launch; those that no hoisted step reads may be empty. last_read(k): called, on a worker, when input k is
  // not read any more unless it is written. Raises what steps raise.
  void prepack(std::span<const Tensor* const> inputs, const std::function<void(size_t k)>& last_read) const;
  // Makes all code that runs may need, for exports: runs once, and in loops and branches everything
  // (control.h). Outputs are memory of its own, but for those that write inputs. Numbers are 0. Waits, and
  // raises what steps raise.
  void visit(std::span<const Tensor* const> inputs) const;
  // Whether all outputs have elements: sizes that are computed may be less than 1 where nothing fits.
  bool has_results(std::span<const Tensor* const> inputs) const;
  // Binds a step to its geometry, which makes its code: for threads that do so ahead of the first run. Does
  // nothing where the step has no code of its own. False: there is no such step.
  bool bind_ahead(size_t step) const;
  // Fills `registers` of them.
  void compute_registers(std::span<const Tensor* const> inputs, int64_t* registers) const;

  static inline std::atomic<uint64_t> launches{0}, kernels{0}, hoisted_kernels{0};  // the last: of `kernels`

 private:
  struct Copy;
  struct Run;
  struct QueuedRun;
  struct Layout;
  class Prepacker;
  static const TaskType kRunType, kQueuedType;
  Tensor make_output(const Value& value, std::span<const Tensor* const> inputs,
                     const int64_t* registers) const;
  int64_t bytes_in_place(const Output& output, const int64_t* registers) const;
  bool shape_fits(const Value& value, const Tensor& x, const int64_t* registers) const;
  struct LaunchState;
  void allocate_outputs(LaunchState& call) const;
  bool order_for_copy(std::span<const Tensor* const> inputs, std::vector<Tensor>& ordered) const;
  void fill_slots(std::span<const Scalar> numbers, const int64_t* registers, uint64_t* filled) const;
  void submit(const LaunchState& call, const uint64_t* filled) const;
  const Tensor* destination_of(size_t j, std::span<const Tensor* const> inputs,
                               std::span<const Tensor* const> destinations) const;
  bool may_write(const Output& output, const Tensor& destination, std::span<const Tensor* const> inputs,
                 const int64_t* registers, bool apart) const;
  void validate() const;
  void validate_parts() const;
  void finish_parts();
  // Parts of finish().
  void classify();
  void relate_outputs();
  void plan_checks();
  struct Touch {
    size_t step;
    bool writes;
  };
  using Touches = std::vector<std::vector<Touch>>;
  Touches find_touches() const;
  void mark_updates(const Touches& touches);
  bool gate_commits(const Touches& touches);
  void relate_checks();
  void compute_constants();
  void launch_parts(std::span<const Tensor* const> inputs, std::span<const Scalar> numbers,
                    std::span<const Tensor* const> destinations, Tensor* const* results) const;
  class StepFailures;
  class StepChecks;
  struct Gate;
  struct LateSteps;
  void execute(const Run& run, const RunContext& context) const;
  void execute_steps(const Run& run, const RunContext& context) const;
  template <class Outcome>
  void set_outcomes(const Run& run, const RunContext& context, const Outcome& outcome) const;
  void copy_result(const Run& run, size_t output, const Tensor& to) const;
  void run_steps(const Run& run, const RunContext& context, StepFailures& failures) const;
  // On a worker, while the inputs are only read, or those that outputs write are only this function's; waits.
  void run_apart(std::span<const Tensor* const> inputs, const std::function<void(RunContext&)>& run) const;
  void count_copy(const Run& run) const;
  void run_alone(const Run& run, const RunContext& context) const;
  void run_bound(const Run& run, const RunContext& context, StepFailures& failures) const;
  void run_unbound(const Run& run, const RunContext& context, StepFailures& failures) const;
  void compute_layout();
  const Bound* bind(size_t t) const;
  bool matches_layout(const Run& run) const;
  std::string name_of(const Step& step) const;
  Ref<Error> failure_of(const Step& step) const;
  bool is_allocated(const Output& output) const {
    return output.value >= inputs_ &&
           values[static_cast<size_t>(output.value - inputs_)].kind != Value::Kind::view;
  }
  static void persist(Op& op);

  int inputs_ = 0;
  size_t numbers_taken_ = 0;
  std::vector<bool> commits_;  // steps that make an output that commits
  // Where checks may be noted by steps: how many at most, whether some decide about other steps on the
  // device, and which steps these are; the outputs that may fail with a check.
  size_t late_checks_ = 0;
  bool gates_ = false;
  std::vector<bool> gated_, may_fail_late_;
  // Of each step that may note checks, the outputs that are not good if it fails.
  std::vector<std::vector<bool>> fails_;
  // Steps that write what a failed run keeps; whether code of all of them can look at checks of earlier
  // operations, and there are any.
  std::vector<bool> updates_;
  bool heeds_gate_ = false;
  std::vector<int> roots_;                   // of each value: itself, or what it is a view of
  bool needs_registers_ = true;              // false: shapes are the inputs'
  std::vector<int64_t> constant_registers_;  // of an exact program
  std::vector<uint64_t> constant_slots_;     // with zeros where they are not known
  std::vector<size_t> call_slots_;
  int64_t brief_bytes_ = -1;    // calls of at most so many bytes are brief
  bool is_enqueued_ = false;    // on a device with streams, and the host waits for nothing
  bool single_kernel_ = false;  // one kernel, whose operands are the inputs and outputs as they come
  bool pointwise_ = false;      // one kernel that reads an element only to write that of the same position
  size_t wires_ = 0;            // with parts
  std::vector<std::pair<int, int>> hazards_;  // an input that is written, one that a later part reads
  std::unique_ptr<Layout> layout_;            // of an exact program with several steps
  std::unique_ptr<Prepacker> prepacker_;      // of one with hoisted steps
};

}  // namespace weft
