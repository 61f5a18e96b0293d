// operator.h: the functions of operators as Python calls them.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "bindings/tape.h"
#include "calls/call_key.h"

namespace weft {

// One operator's function: how its arguments are read, and the plans it has met. GIL.
class OperatorFunction {
 public:
  explicit OperatorFunction(nb::handle cls);
  ~OperatorFunction();
  OperatorFunction(const OperatorFunction&) = delete;

  // A call as METH_FASTCALL | METH_KEYWORDS has it. `destination`: the tensor that an in-place operator
  // writes.
  nb::object call(PyObject* const* arguments, Py_ssize_t count, PyObject* names,
                  PyObject* destination = nullptr);

  // Of the function of an operator, which owns it; of the name of one of the package's, for ever.
  static OperatorFunction& of(nb::handle function);
  static OperatorFunction& named(const char* name);

  const std::string& name() const noexcept { return name_; }
  static inline uint64_t hits = 0, misses = 0, planner_calls = 0;
  size_t plans() const noexcept { return plans_.size(); }
  // Forget the plans of all functions that may depend on what names of users' operators mean.
  static void forget_users_plans();
  // Whether a call could take this as an operand.
  static bool accepts(PyObject* object) noexcept {
    return Py_TYPE(object) == tensor_type || accepts_other(object);
  }

 private:
  struct Arguments;
  struct Input {
    PyObject* name;
    bool optional, variadic;
  };
  struct Attribute {
    PyObject* name;
    PyObject* standard;  // null: must be given
    bool runtime;
    std::string accepts;  // as its annotation has it
    bool ranged = false;
    double low = 0, high = 0;
  };
  // Static attributes as they were given, and the operator that they make.
  struct Variant {
    std::vector<PyObject*> attributes;
    PyObject* op = nullptr;
  };

  nb::builtin_exception unfit(const Attribute& attribute, PyObject* value) const;
  void parse(Arguments& a, PyObject* const* arguments, Py_ssize_t count, PyObject* names) const;
  int attribute_named(PyObject* name) const;
  bool is_named(int attribute, PyObject* names) const;
  static bool accepts_other(PyObject* object) noexcept;
  static nb::object interpreter_among(PyObject* const* arguments, Py_ssize_t count);
  size_t variant_of(Arguments& a);
  [[nodiscard]] std::deque<Variant> forget();
  static void release(std::deque<Variant>& variants);
  nb::object call_layers(PyObject* const* arguments, Py_ssize_t count, PyObject* names,
                         PyObject* destination);
  nb::object call_foreign(PyObject* const* arguments, Py_ssize_t count, PyObject* names);
  nb::object operator_of(Arguments& a);
  static nb::object inputs_of(Arguments& a);
  void fit_numbers(Arguments& a) const;
  Ref<Plan> plan_for(Arguments& a, bool recording);
  Ref<Plan> ask_planner(Arguments& a, nb::handle op, Scope scope, bool recording);

  PyObject* const cls_;
  std::string name_;
  std::vector<Input> inputs_;
  std::vector<Attribute> attributes_;
  std::vector<int> positional_;  // attributes given by position, behind the inputs
  std::vector<int> order_;       // or all that is: inputs, and attributes as -1 - number
  int prefix_ = -1;              // the attribute given before the inputs
  // For views: makes the result at once, without a plan, while nothing is recorded; false if it is no view.
  // Raises what the operator would.
  using Direct = bool (*)(const Tensor& x, PyObject* const* attributes, Tensor& result);
  static Direct direct_for(const std::string& name);

  Direct direct_ = nullptr;
  bool plain_ = false;  // only tensors, all of them needed
  std::vector<size_t> fitted_inputs_,
      fitted_attributes_;                 // whose numbers have to fit the type of the first input
  std::deque<Variant> variants_;          // a reference to one holds while others are added
  std::deque<Variant> variants_retired_;  // those of before the last time that they were cleared
  uint64_t variants_cleared_ = 0;         // how often
  PlanTable plans_;
  bool fixed_;  // a user's operator that is made again changes no plan
};

// Python's operators on tensors; the functions are found on first use.
// clang-format off: it goes back and forth between two forms of this
#define WEFT_SLOTS(S)                                                                             \
  S(add) S(subtract) S(multiply) S(divide) S(floor_divide) S(remainder) S(pow)                    \
  S(bitwise_and) S(bitwise_or) S(bitwise_xor) S(bitwise_left_shift) S(bitwise_right_shift)        \
  S(matmul) S(negative) S(positive) S(abs) S(bitwise_invert)                                      \
  S(less) S(less_equal) S(equal) S(not_equal) S(greater) S(greater_equal)
// clang-format on
#define WEFT_SLOT(name) name,
enum class Slot : uint8_t { WEFT_SLOTS(WEFT_SLOT) count };
#undef WEFT_SLOT
PyObject* call_slot(Slot slot, PyObject* a, PyObject* b) noexcept;  // b null: unary
PyObject* call_slot_in_place(Slot slot, PyObject* a, PyObject* b) noexcept;

}  // namespace weft
