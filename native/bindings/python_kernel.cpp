// python_kernel.cpp: a kernel that calls a Python function: a custom operator as one step of a program.
//
// The function gets tensors of its own, copies of the operands, so that whatever it keeps of them stays valid
// when the program's memory has become something else's; what it wrote is copied back. It runs under the GIL,
// on whatever thread runs the program, and sees nothing of what that thread's caller is doing.
#include <utility>
#include <vector>

#include "bindings/convert.h"
#include "bindings/functions.h"
#include "bindings/layers.h"
#include "tensor/array_recorder.h"
#include "tensor/operations.h"

namespace weft {
namespace {

Tensor copied(const View& x, Device device) {
  Tensor dense = Tensor::empty({x.shape, static_cast<size_t>(x.ndim)}, x.dtype, device);
  copy(dense.view(), x);
  return dense;
}

// An output that begins as an input: the function gets one tensor for both. always: it is given the input's
// elements to add to; else only where the program has put the two into the same memory.
struct Shared {
  int input, output;
  bool always;
};

nb::object context_object(const RunContext& context) {
  return nb::cast(PyRunContext{context.device, context.queue, context.worker, context.stream,
                               nb::str(context.op ? context.op->name().c_str() : "kernel")});
}

class CallsPython final : public Kernel {
 public:
  CallsPython(nb::object function, int inputs, int outputs, bool context, std::vector<Shared> shared)
      : function_(function.release().ptr()),
        inputs_(inputs),
        outputs_(outputs),
        context_(context),
        shared_(std::move(shared)) {}
  ~CallsPython() override { release_later(function_); }

  bool wide() const override { return true; }  // nobody knows how long it takes

  void run(const Call& call) const override {
    if (python_is_ending()) return;
    std::vector<Tensor> arrays;
    std::vector<size_t> places;  // of each operand, in arrays
    for (int k = 0; k < inputs_; ++k) {
      places.push_back(arrays.size());
      arrays.push_back(copied(call.operands[k], call.context.device));
    }
    for (int k = 0; k < outputs_; ++k) {
      const View& y = call.operands[inputs_ + k];
      const int input = shared_input(call, k);
      places.push_back(input < 0 ? arrays.size() : places[static_cast<size_t>(input)]);
      if (input < 0)
        arrays.push_back(Tensor::empty({y.shape, static_cast<size_t>(y.ndim)}, y.dtype, call.context.device));
    }
    apply(arrays, places, call.context);
    for (const Tensor& array : arrays)
      if (array.chunk->writes.load(std::memory_order_relaxed))
        throw ValueError(
            "a function inside of a program writes through numpy(): operations of weft would come later");
    for (int k = 0; k < outputs_; ++k)
      copy(call.operands[inputs_ + k], arrays[places[static_cast<size_t>(inputs_ + k)]].view());
  }

 private:
  // The input whose tensor is output k's, too; -1: it has its own.
  int shared_input(const Call& call, int k) const {
    for (const Shared& each : shared_)
      if (each.output == k &&
          (each.always || call.operands[each.input].data == call.operands[inputs_ + k].data))
        return each.input;
    return -1;
  }

  void apply(const std::vector<Tensor>& arrays, const std::vector<size_t>& places,
             const RunContext& context) const {
    const WithGil gil;
    const BelowLayers below;
    const Unobserved unobserved;
    const NoWaitScope lent(arrays);
    try {
      std::vector<nb::object> tensors;
      for (const Tensor& array : arrays) tensors.push_back(wrap(Tensor(array)));
      nb::list inputs, outputs;
      for (size_t k = 0; k < places.size(); ++k)
        (k < static_cast<size_t>(inputs_) ? inputs : outputs).append(tensors[places[k]]);
      const nb::handle function(function_);
      if (context_)
        function(inputs, outputs, context_object(context));
      else
        function(inputs, outputs);
    } catch (nb::python_error& thrown) {
      throw TaskFailure{error_from_python(thrown)};
    }
  }

  PyObject* const function_;
  const int inputs_, outputs_;
  const bool context_;
  const std::vector<Shared> shared_;
};

// Calls a Python function with the operands themselves, each as (address, dtype, shape, strides in bytes):
// nothing is copied, and the function keeps none of it, as the program's memory becomes something else's.
class CallsPythonOnMemory final : public Kernel {
 public:
  CallsPythonOnMemory(nb::object function, int inputs, int outputs)
      : function_(function.release().ptr()), inputs_(inputs), outputs_(outputs) {}
  ~CallsPythonOnMemory() override { release_later(function_); }

  bool wide() const override { return true; }

  void run(const Call& call) const override {
    if (python_is_ending()) return;
    const WithGil gil;
    const BelowLayers below;
    const Unobserved unobserved;
    try {
      nb::list inputs, outputs;
      for (int k = 0; k < inputs_ + outputs_; ++k) {
        const View& x = call.operands[k];
        const auto ndim = static_cast<size_t>(x.ndim);
        (k < inputs_ ? inputs : outputs)
            .append(nb::make_tuple(reinterpret_cast<uintptr_t>(x.data), name_of(x.dtype),
                                   to_tuple({x.shape, ndim}),
                                   to_tuple({x.strides, ndim}, static_cast<int64_t>(size_of(x.dtype)))));
      }
      const nb::handle function(function_);
      function(inputs, outputs);
    } catch (nb::python_error& thrown) {
      throw TaskFailure{error_from_python(thrown)};
    }
  }

 private:
  PyObject* const function_;
  const int inputs_, outputs_;
};

PyObject* when_abandoned = nullptr;

void call_when_abandoned() noexcept {
  if (python_is_ending()) return;
  const WithGil gil;
  if (PyObject* const answer = PyObject_CallNoArgs(when_abandoned))
    Py_DECREF(answer);
  else
    PyErr_WriteUnraisable(when_abandoned);
}

}  // namespace

void bind_python_kernel(nb::module_& m) {
  // function() is called where a step has failed inside of a loop or branch, before its memory is given back.
  def(m, "on_abandoned", [](nb::object function) {
    PyObject* const before = std::exchange(when_abandoned, function.release().ptr());
    abandoned.store(&call_when_abandoned, std::memory_order_release);
    Py_XDECREF(before);
  });
  def(
      m, "kernel_python",
      [](nb::object function, int inputs, int outputs, bool memory, bool context, nb::handle shared) {
        if (memory && context)
          throw ValueError("kernel_python: a function of memory gets no context; give memory or context");
        if (memory) return Ref<Kernel>(new CallsPythonOnMemory(std::move(function), inputs, outputs));
        std::vector<Shared> pairs;
        for (nb::handle each : shared) {
          const Shared pair{nb::cast<int>(each[0]), nb::cast<int>(each[1]), nb::cast<bool>(each[2])};
          if (pair.input < 0 || pair.input >= inputs || pair.output < 0 || pair.output >= outputs)
            throw nb::value_error("kernel_python: shared names an operand that there is not");
          pairs.push_back(pair);
        }
        return Ref<Kernel>(new CallsPython(std::move(function), inputs, outputs, context, std::move(pairs)));
      },
      "function"_a, "inputs"_a, "outputs"_a, "memory"_a = false, "context"_a = false,
      "shared"_a = nb::make_tuple(),
      "inputs -> outputs: function(inputs, outputs), lists of tensors, writes the outputs; memory: lists of "
      "(address, dtype, shape, strides in bytes). context: function gets the RunContext, too. shared: "
      "(input, output, always): one tensor for both, "
      "always or "
      "where they are the same memory.");
}

}  // namespace weft
