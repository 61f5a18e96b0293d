#include "bindings/operator.h"
#include "bindings/hooks.h"

#include "bindings/launch_recorder.h"

#include <algorithm>
#include <iterator>
#include <unordered_set>

#include "bindings/layers.h"
#include "tensor/scalar.h"

namespace weft {
namespace {

// What may stand in a Variant as it was given: nothing that can change, or that equals something of another
// type. Tuples are taken to the depth that attributes have; deeper ones are for the operator to refuse.
constexpr int kDeepest = 16;
bool lasting_value(PyObject* value, int depth = 0) {
  if (value == Py_None || PyBool_Check(value) || PyLong_CheckExact(value) || PyFloat_CheckExact(value) ||
      PyUnicode_CheckExact(value))
    return true;
  if (PyTuple_CheckExact(value)) {
    if (depth == kDeepest) return false;
    for (Py_ssize_t i = 0, n = PyTuple_Size(value); i < n; ++i)
      if (!lasting_value(PyTuple_GetItem(value, i), depth + 1)) return false;
    return true;
  }
  return Py_TYPE(value) == reinterpret_cast<PyTypeObject*>(hook(Hook::dtype_type)) ||
         Py_TYPE(value) == reinterpret_cast<PyTypeObject*>(hook(Hook::device_type));
}

bool same_value(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (Py_TYPE(a) != Py_TYPE(b)) return false;
  if (PyFloat_CheckExact(a)) {  // the sign of a zero counts, and NaN is NaN
    const double x = PyFloat_AsDouble(a), y = PyFloat_AsDouble(b);
    return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y);
  }
  if (PyTuple_CheckExact(a)) {
    const Py_ssize_t n = PyTuple_Size(a);
    if (n != PyTuple_Size(b)) return false;
    for (Py_ssize_t i = 0; i < n; ++i)
      if (!same_value(PyTuple_GetItem(a, i), PyTuple_GetItem(b, i))) return false;
    return true;
  }
  const int same = PyObject_RichCompareBool(a, b, Py_EQ);
  if (same < 0) throw nb::python_error();
  return same;
}

bool is_other_number(PyObject* object) noexcept {  // numpy.float32(2) and the like
  return !is_tensor(object) && type_has(object, "__array_priority__") && type_has(object, "item") &&
         !type_has(object, "__setitem__");
}

// As Python writes a float.
std::string shown(double value) { return to_utf8(nb::repr(nb::float_(value))); }

nb::object as_python_number(PyObject* object) { return nb::handle(object).attr("item")(); }

// numpy.ndarray: operators take it as the Tensor over its memory.
bool is_other_array(PyObject* object) noexcept {
  return object != Py_None && !PyUnicode_Check(object) && type_has(object, "__array_interface__");
}

// Where what is no array goes: to the first array beside it, or value of a graph; else to the current device.
nb::object device_beside(std::span<PyObject* const> operands) {
  for (PyObject* const x : operands) {
    if (x && is_tensor(x)) return device_object(self_of(x).device());
    if (x && type_has(x, "__weft_apply__") && type_has(x, "device")) return nb::handle(x).attr("device");
  }
  return nb::none();
}

nb::object as_array(PyObject* object, std::span<PyObject* const> operands) {
  return call_hook(Hook::asarray, nb::handle(object), "device"_a = device_beside(operands));
}

// A Python complex number as an array, of the precision of the arrays beside it.
nb::object complex_array(nb::handle number, std::span<PyObject* const> operands) {
  const bool is_wide = std::ranges::any_of(operands, [](PyObject* x) {
    return x && is_tensor(x) && (self_of(x).dtype == DType::float64 || self_of(x).dtype == DType::complex128);
  });
  const DType dtype = is_wide ? DType::complex128 : DType::complex64;
  return call_hook(Hook::asarray, number, "dtype"_a = dtype_object(dtype),
                   "device"_a = device_beside(operands));
}

// What complex numbers and NumPy's scalars and arrays stand for; null: the object is none of them.
nb::object from_numpy(PyObject* object, std::span<PyObject* const> operands) {
  if (is_tensor(object) || PyFloat_CheckExact(object) || PyLong_Check(object)) return {};
  nb::object number;
  if (is_other_number(object)) number = as_python_number(object);
  if (PyComplex_Check(number.is_valid() ? number.ptr() : object))
    return complex_array(number.is_valid() ? number : nb::borrow(object), operands);
  if (number.is_valid()) return number;
  return is_other_array(object) ? as_array(object, operands) : nb::object();
}

}  // namespace

// Values one behind the other, the first `kFew` of them without an allocation.
template <class T, size_t kFew>
struct Few {
  Few() = default;
  Few(const Few&) = delete;  // `data` may point into it
  Few& operator=(const Few&) = delete;

  std::vector<T> many;  // all of them, where they are more
  T few[kFew];          // up to `count` of them are set
  T* data = few;
  size_t count = 0;

  void add(const T& value) {
    if (count < kFew && many.empty()) {
      few[count++] = value;
      return;
    }
    if (many.empty()) many.assign(few, few + count);
    many.push_back(value);
    data = many.data();
    ++count;
  }
  T& operator[](size_t k) { return data[k]; }
  operator std::span<const T>() const { return {data, count}; }
};

// A call, read. References are borrowed from the caller, but for `owned`.
struct OperatorFunction::Arguments {
  static constexpr size_t kFew = 8;
  Few<PyObject*, kFew> inputs;
  PyObject* attributes[16];
  std::vector<nb::object> owned;

  // Filled by plan_for.
  Few<const Tracked*, kFew> tensors;
  Few<Scalar, 16> numbers;

  Scalar::Kind add_number(nb::handle number) {
    numbers.add(as_scalar(number));
    return numbers[numbers.count - 1].kind;
  }
};

namespace {

// The functions whose plans are not fixed. GIL; it lives as long as the process.
std::unordered_set<OperatorFunction*>& changeable() {
  static auto* const functions = new std::unordered_set<OperatorFunction*>;
  return *functions;
}

}  // namespace

OperatorFunction::OperatorFunction(nb::handle cls)
    : cls_(nb::borrow(cls).release().ptr()), fixed_(nb::cast<bool>(cls.attr("has_fixed_plans")())) {
  const auto intern = [](nb::handle text) {
    PyObject* name = nb::borrow(text).release().ptr();
    PyUnicode_InternInPlace(&name);
    return name;
  };
  name_ = nb::cast<std::string>(cls.attr("name"));
  for (nb::handle input : cls.attr("inputs"))
    inputs_.push_back({intern(input.attr("name")), nb::cast<bool>(input.attr("optional")),
                       nb::cast<bool>(input.attr("variadic"))});
  for (nb::handle attribute : cls.attr("attributes")) {
    nb::object standard = attribute.attr("default");
    const bool required = standard.is(attribute.attr("REQUIRED"));
    attributes_.push_back({intern(attribute.attr("name")), required ? nullptr : standard.release().ptr(),
                           nb::cast<bool>(attribute.attr("runtime")),
                           nb::cast<std::string>(attribute.attr("accepts"))});
  }
  for (auto [name, range] : nb::cast<nb::dict>(cls.attr("ranges"))) {
    Attribute& attribute = attributes_[static_cast<size_t>(attribute_named(name.ptr()))];
    attribute.ranged = true;
    attribute.low = nb::cast<double>(range[0]);
    attribute.high = nb::cast<double>(range[1]);
  }
  if (attributes_.size() > std::size(Arguments().attributes))
    throw ValueError(name_ + ": at most 16 attributes");
  for (nb::handle name : cls.attr("positional")) {
    const int attribute = attribute_named(intern(name));
    if (attribute < 0) {  // it names inputs, too: the whole order
      for (size_t k = 0; k < inputs_.size(); ++k)
        if (nb::cast<std::string>(name) == to_utf8(inputs_[k].name)) order_.push_back(static_cast<int>(k));
    } else {
      positional_.push_back(attribute);
      order_.push_back(-1 - attribute);
    }
  }
  if (positional_.size() == order_.size()) order_.clear();
  direct_ = direct_for(name_);
  plain_ = attributes_.empty() && inputs_.size() <= Arguments::kFew &&
           std::ranges::none_of(inputs_, [](const Input& i) { return i.optional || i.variadic; });
  for (nb::handle fitted : cls.attr("fitted")) {
    PyObject* name = intern(fitted);
    if (const int attribute = attribute_named(name); attribute >= 0)
      fitted_attributes_.push_back(static_cast<size_t>(attribute));
    for (size_t k = 0; k < inputs_.size(); ++k)
      if (inputs_[k].name == name) fitted_inputs_.push_back(k);
  }
  if (!cls.attr("prefix").is_none()) prefix_ = attribute_named(intern(cls.attr("prefix")));
  if (!fixed_) changeable().insert(this);
}

OperatorFunction::~OperatorFunction() {
  changeable().erase(this);
  for (std::deque<Variant>* variants : {&variants_, &variants_retired_}) release(*variants);
  for (const Input& input : inputs_) Py_DECREF(input.name);
  for (const Attribute& attribute : attributes_) {
    Py_DECREF(attribute.name);
    Py_XDECREF(attribute.standard);
  }
  Py_DECREF(cls_);
}

// The attributes of these operators are a shape or axes, and reshape's copy.
OperatorFunction::Direct OperatorFunction::direct_for(const std::string& name) {
  if (name == "reshape")
    return [](const Tensor& x, PyObject* const* attributes, Tensor& result) {
      const Shape sizes = as_shape(attributes[0], "reshape");
      Shape shape = sizes;
      resolve_shape(x, sizes, shape.sizes);
      if (attributes[1] != Py_True && reshape_view(x, shape, result)) return true;
      if (attributes[1] == Py_False && x.size)
        throw ValueError("reshape: copy=False, but this needs a copy: x is " + describe(x));
      return false;
    };
  if (name == "permute_dims")
    return [](const Tensor& x, PyObject* const* attributes, Tensor& result) {
      const Shape order = as_shape(attributes[0], "permute_dims");
      int axes[kMaxDims];
      for (int i = 0; i < order.ndim; ++i)
        axes[i] = static_cast<int>(std::clamp<int64_t>(order.sizes[i], -kMaxDims - 1, kMaxDims));
      result = permute(x, {axes, static_cast<size_t>(order.ndim)});
      return true;
    };
  if (name == "broadcast_to")
    return [](const Tensor& x, PyObject* const* attributes, Tensor& result) {
      result = broadcast_to(x, as_shape(attributes[0], "broadcast_to"));
      return true;
    };
  return nullptr;
}

int OperatorFunction::attribute_named(PyObject* name) const {
  for (size_t i = 0; i < attributes_.size(); ++i)
    if (attributes_[i].name == name) return static_cast<int>(i);
  for (size_t i = 0; i < attributes_.size(); ++i)
    if (PyUnicode_Compare(attributes_[i].name, name) == 0) return static_cast<int>(i);
  return -1;
}

bool OperatorFunction::is_named(int attribute, PyObject* names) const {
  for (Py_ssize_t i = 0, n = names ? PyTuple_Size(names) : 0; i < n; ++i)
    if (attribute_named(PyTuple_GetItem(names, i)) == attribute) return true;
  return false;
}

bool OperatorFunction::accepts_other(PyObject* object) noexcept {
  return is_tensor(object) || is_number(object) || is_other_number(object) || PyComplex_Check(object) ||
         is_other_array(object);
}

void OperatorFunction::parse(Arguments& a, PyObject* const* arguments, Py_ssize_t count,
                             PyObject* names) const {
  const auto refuse = [&](const std::string& fact) { throw type_error(name_ + ": " + fact); };
  for (size_t i = 0; i < attributes_.size(); ++i) a.attributes[i] = nullptr;
  Py_ssize_t next = 0;
  if (!order_.empty()) {
    for (size_t k = 0; k < inputs_.size(); ++k) a.inputs.add(nullptr);
    for (const int slot : order_) {
      if (next == count) break;
      (slot >= 0 ? a.inputs[slot] : a.attributes[-1 - slot]) = arguments[next++];
    }
  }
  if (prefix_ >= 0 && next < count && !is_named(prefix_, names)) a.attributes[prefix_] = arguments[next++];
  for (size_t k = 0; k < inputs_.size() && order_.empty(); ++k) {
    if (inputs_[k].variadic) {
      if (next < count && (PyList_Check(arguments[next]) || PyTuple_Check(arguments[next]))) {
        nb::object items = items_of(arguments[next++]);
        for (Py_ssize_t i = 0, n = PyTuple_Size(items.ptr()); i < n; ++i)
          a.inputs.add(PyTuple_GetItem(items.ptr(), i));
        a.owned.push_back(std::move(items));
      } else {
        while (next < count) a.inputs.add(arguments[next++]);
      }
      continue;
    }
    a.inputs.add(next < count ? arguments[next++] : nullptr);
  }
  for (const int position : positional_) {
    if (next == count || !order_.empty()) break;
    a.attributes[position] = arguments[next++];
  }
  if (next < count)
    refuse("takes at most " + std::to_string(inputs_.size() + positional_.size()) +
           " positional arguments, got " + std::to_string(count));
  const Py_ssize_t named = names ? PyTuple_Size(names) : 0;
  for (Py_ssize_t i = 0; i < named; ++i) {
    PyObject* name = PyTuple_GetItem(names, i);
    PyObject* value = arguments[count + i];
    if (const int attribute = attribute_named(name); attribute >= 0) {
      if (a.attributes[attribute]) refuse(to_utf8(name) + " is given twice");
      a.attributes[attribute] = value;
      continue;
    }
    bool taken = false;
    for (size_t k = 0; k < inputs_.size() && !taken; ++k) {
      if (inputs_[k].variadic || PyUnicode_Compare(inputs_[k].name, name) != 0) continue;
      if (a.inputs[k]) refuse(to_utf8(name) + " is given twice");
      a.inputs[k] = value;
      taken = true;
    }
    if (taken) continue;
    // NumPy's functions call methods so: np.sum(x) is x.sum(axis=None, dtype=None, out=None).
    if (value == Py_None && (PyUnicode_CompareWithASCIIString(name, "out") == 0 ||
                             PyUnicode_CompareWithASCIIString(name, "dtype") == 0))
      continue;
    std::string accepted;
    for (const Input& input : inputs_) accepted += (accepted.empty() ? "" : ", ") + to_utf8(input.name);
    for (const Attribute& attribute : attributes_)
      accepted += (accepted.empty() ? "" : ", ") + to_utf8(attribute.name);
    refuse("no argument " + to_utf8(name) + "; there are: " + accepted);
  }
  for (size_t k = 0; k < a.inputs.count; ++k) {
    if (a.inputs[k] && a.inputs[k] != Py_None) continue;
    if (k < inputs_.size() && !inputs_[k].variadic && !inputs_[k].optional)
      refuse(to_utf8(inputs_[k].name) + " must be given");
    a.inputs[k] = nullptr;
  }
  for (size_t i = 0; i < attributes_.size(); ++i) {
    if (a.attributes[i]) continue;
    if (!attributes_[i].standard) refuse(to_utf8(attributes_[i].name) + " must be given");
    a.attributes[i] = attributes_[i].standard;
  }
}

// The number of the call's static attributes among those met so far.
size_t OperatorFunction::variant_of(Arguments& a) {
  bool lasting_all = true;
  for (size_t i = 0; i < attributes_.size(); ++i)
    lasting_all &= attributes_[i].runtime || lasting_value(a.attributes[i]);
  if (lasting_all) {
    const uint64_t began = variants_cleared_;  // comparing may run Python, and other threads
    for (size_t v = 0; v < variants_.size(); ++v) {
      const Variant& variant = variants_[v];
      if (variant.attributes.empty() && !attributes_.empty()) continue;
      bool same = true;
      for (size_t i = 0; same && i < attributes_.size(); ++i)
        same = attributes_[i].runtime || same_value(variant.attributes[i], a.attributes[i]);
      if (began != variants_cleared_) return variant_of(a);
      if (same) return v;
    }
  }
  // The operator itself: checks the attributes and puts them into their normal form. Of those given at run
  // time it has the default, or for want of one this call's value, which the planner does not look at.
  nb::dict named;
  for (size_t i = 0; i < attributes_.size(); ++i)
    if (!attributes_[i].runtime || !attributes_[i].standard)
      named[nb::handle(attributes_[i].name)] = nb::handle(a.attributes[i]);
  nb::object op = nb::handle(cls_)(**named);
  if (!lasting_all) {
    const uint64_t began = variants_cleared_;
    for (size_t v = 0; v < variants_.size() && began == variants_cleared_; ++v) {
      const nb::object equal_op = nb::borrow(variants_[v].op);
      if (equal_op.equal(op) && began == variants_cleared_) return v;
    }
  }
  std::deque<Variant> dropped;
  if (variants_.size() >= 4096) dropped = forget();  // attributes that never come again: start over
  Variant variant;
  if (lasting_all)
    for (size_t i = 0; i < attributes_.size(); ++i)
      variant.attributes.push_back(attributes_[i].runtime ? nullptr
                                                          : nb::borrow(a.attributes[i]).release().ptr());
  variant.op = op.release().ptr();
  variants_.push_back(std::move(variant));
  const size_t number = variants_.size() - 1;
  release(dropped);
  return number;
}

// Returns variants to be released. Another thread may be comparing with those of now, hardly with these.
std::deque<OperatorFunction::Variant> OperatorFunction::forget() {
  ++variants_cleared_;
  plans_.clear();
  return std::exchange(variants_retired_, std::exchange(variants_, {}));
}

void OperatorFunction::release(std::deque<Variant>& variants) {
  for (const Variant& variant : std::exchange(variants, {})) {
    for (PyObject* value : variant.attributes) Py_XDECREF(value);
    Py_XDECREF(variant.op);
  }
}

void OperatorFunction::forget_users_plans() {
  std::deque<Variant> dropped;  // what is released last may run Python
  for (OperatorFunction* function : changeable())
    std::ranges::move(function->forget(), std::back_inserter(dropped));
  release(dropped);
}

// The error for a Runtime attribute that is no number.
nb::builtin_exception OperatorFunction::unfit(const Attribute& attribute, PyObject* value) const {
  std::string text = name_ + ": " + to_utf8(attribute.name) + " must be " + attribute.accepts + ", got ";
  text += to_utf8(nb::repr(nb::handle(value)));
  return type_error(text);
}

Ref<Plan> OperatorFunction::plan_for(Arguments& a, bool records) {
  const size_t variant = attributes_.empty() && !variants_.empty() ? 0 : variant_of(a);
  const uint64_t began = variants_cleared_;  // the planner runs Python, and other threads
  const nb::object op = nb::borrow(variants_[variant].op);
  CallKey key(variant, records, a.inputs.count);
  for (size_t k = 0; k < a.inputs.count; ++k) {
    PyObject* input = a.inputs[k];
    if (!input) {
      key.add_missing();
    } else if (Py_TYPE(input) == tensor_type) {
      const Tracked& tracked = tracked_of(input);
      a.tensors.add(&tracked);
      key.add_array(tracked.tensor);
    } else {
      key.add_number(a.add_number(input));
    }
  }
  for (size_t i = 0; i < attributes_.size(); ++i) {
    if (!attributes_[i].runtime) continue;
    PyObject* value = a.attributes[i];
    if (value == Py_None) {
      const Attribute& attribute = attributes_[i];
      if (attribute.standard != Py_None && attribute.accepts.find("None") == std::string::npos)
        throw unfit(attribute, value);
      key.add_none();
    } else {
      try {
        a.add_number(value);
      } catch (nb::python_error& thrown) {
        if (!thrown.matches(PyExc_TypeError) || is_tensor(value)) throw;
        throw unfit(attributes_[i], value);
      }
      if (const Attribute& attribute = attributes_[i]; attribute.ranged) {
        const double number = real_of(a.numbers[a.numbers.count - 1]);
        if (!(number >= attribute.low && number <= attribute.high))
          throw ValueError(name_ + ": " + to_utf8(attribute.name) + " must be in " + shown(attribute.low) +
                           ".." + shown(attribute.high) + ", got " + to_utf8(nb::repr(nb::handle(value))));
      }
      key.add_runtime(a.numbers[a.numbers.count - 1].kind);
    }
  }
  const std::span<const Tracked* const> tensors = a.tensors;
  bool is_miss = false;
  const auto ask = [&](Scope scope) {
    if (!std::exchange(is_miss, true)) ++misses;
    return ask_planner(a, op, scope, records);
  };
  // Whether the key's number stands for other attributes now.
  const auto is_stale = [&] { return began != variants_cleared_; };
  Ref<Plan> plan = find_plan(plans_, key, tensors, ask, is_stale);
  if (!is_miss) ++hits;
  return plan;
}

Ref<Plan> OperatorFunction::ask_planner(Arguments& a, nb::handle op, Scope scope, bool records) {
  const BelowLayers below;
  ++planner_calls;
  nb::list operands;
  for (size_t k = 0; k < a.inputs.count; ++k)
    operands.append(a.inputs[k] ? nb::handle(a.inputs[k]) : nb::none());
  nb::dict runtime;
  for (size_t i = 0; i < attributes_.size(); ++i)
    if (attributes_[i].runtime) runtime[nb::handle(attributes_[i].name)] = nb::handle(a.attributes[i]);
  static constexpr const char* kNames[] = {"aligned", "extents", "exact"};
  nb::object plan =
      call_hook(Hook::plan_call, op, operands, runtime, kNames[static_cast<int>(scope)], records);
  if (plan.is_none()) return {};
  return nb::cast<PyPlan&>(plan).plan;
}

namespace {

// Whether an object's type decides what operators make of it (weft.ops.foreign).
bool is_foreign(PyObject* object) noexcept { return type_has(object, "__weft_function__"); }

}  // namespace

// The argument that decides what a call means, if it is not about arrays: an object of a foreign type, else a
// value of a graph or a symbol. Looking may run Python (of a metaclass), so items of a list, which may be
// changed meanwhile, are owned while they are looked at.
nb::object OperatorFunction::interpreter_among(PyObject* const* arguments, Py_ssize_t count) {
  nb::object interpreter;
  const auto decides = [&](PyObject* argument) {
    if (is_foreign(argument)) return true;
    if (!interpreter.is_valid() && type_has(argument, "__weft_apply__")) interpreter = nb::borrow(argument);
    return false;
  };
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* argument = arguments[i];
    if (Py_TYPE(argument) == tensor_type || is_number(argument) || argument == Py_None ||
        PyUnicode_Check(argument))
      continue;
    if (PyList_Check(argument) || PyTuple_Check(argument)) {
      const bool list = PyList_Check(argument);
      for (Py_ssize_t k = 0; k < (list ? PyList_Size(argument) : PyTuple_Size(argument)); ++k) {
        PyObject* borrowed = list ? PyList_GetItem(argument, k) : PyTuple_GetItem(argument, k);
        if (Py_TYPE(borrowed) == tensor_type || is_number(borrowed)) continue;
        nb::object item = nb::borrow(borrowed);
        if (decides(borrowed)) return item;
      }
    } else if (decides(argument)) {
      return nb::borrow(argument);
    }
  }
  return interpreter;
}

// Numbers that are written to x have to fit its type, where that is one of integers.
void OperatorFunction::fit_numbers(Arguments& a) const {
  if ((fitted_inputs_.empty() && fitted_attributes_.empty()) || !is_tensor(a.inputs[0])) return;
  const DType dtype = self_of(a.inputs[0]).dtype;
  if (!is_integer(dtype)) return;
  const auto fit = [&](PyObject*& number) {
    if (!number || !is_number(number)) return;
    a.owned.push_back(to_number(as_scalar_for(number, dtype)));
    number = a.owned.back().ptr();
  };
  for (const size_t k : fitted_inputs_) fit(a.inputs[k]);
  for (const size_t k : fitted_attributes_) fit(a.attributes[k]);
}

// The operator of a call, with all its attributes.
nb::object OperatorFunction::operator_of(Arguments& a) {
  nb::object op = nb::borrow(variants_[variant_of(a)].op);
  nb::dict runtime;
  for (size_t i = 0; i < attributes_.size(); ++i)
    if (attributes_[i].runtime) runtime[nb::handle(attributes_[i].name)] = nb::handle(a.attributes[i]);
  return nb::len(runtime) ? op.attr("with_runtime")(runtime) : op;
}

// A call's inputs as rules have them: None for one that is missing.
nb::object OperatorFunction::inputs_of(Arguments& a) {
  for (size_t k = 0; k < a.inputs.count; ++k) {
    if (!a.inputs[k]) continue;
    if (nb::object array = from_numpy(a.inputs[k], {a.inputs.data, a.inputs.count}); array.is_valid()) {
      a.inputs[k] = array.ptr();
      a.owned.push_back(std::move(array));
    }
  }
  return tuple_of(static_cast<Py_ssize_t>(a.inputs.count),
                  [&](Py_ssize_t k) { return nb::borrow(a.inputs[k] ? a.inputs[k] : Py_None); });
}

// A call on objects of foreign types. They are outermost: what they do with the arrays that they hold goes
// through the thread's layers and is written down like any other call.
nb::object OperatorFunction::call_foreign(PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  Arguments a;
  parse(a, arguments, count, names);
  const nb::object inputs = inputs_of(a);
  return call_hook(Hook::call_foreign, operator_of(a), inputs);
}

// A call that goes to the thread's layers. They compute; what they give is written to the destination here,
// below all of them.
nb::object OperatorFunction::call_layers(PyObject* const* arguments, Py_ssize_t count, PyObject* names,
                                         PyObject* destination) {
  Arguments a;
  parse(a, arguments, count, names);
  const nb::object inputs = inputs_of(a);
  nb::object result = emit_to_layers(operator_of(a), inputs);
  if (!destination || result.is(destination)) return result;
  const Tensor& into = self_of(destination);
  check_fits_in_place(name_, tensor_of(result, name_.c_str()).dtype, into);
  static constinit OperatorFunction* cast = nullptr;
  if (!cast) cast = &OperatorFunction::named("cast");
  const nb::tuple cast_names = nb::make_tuple("dtype");
  nb::object dtype = dtype_object(into.dtype);
  PyObject* const astype_arguments[] = {result.ptr(), dtype.ptr()};
  const BelowLayers below;
  return cast->call(astype_arguments, 1, cast_names.ptr(), destination);
}

nb::object OperatorFunction::call(PyObject* const* arguments, Py_ssize_t count, PyObject* names,
                                  PyObject* destination) {
  const Py_ssize_t all = count + (names ? PyTuple_Size(names) : 0);
  nb::object interpreter = interpreter_among(arguments, all);
  if (interpreter.is_valid() && is_foreign(interpreter.ptr())) [[unlikely]] {
    if (destination)
      throw type_error(name_ + ": a " + type_of(interpreter) + " cannot be written to a Tensor in place");
    return call_foreign(arguments, count, names);
  }
  Context& here = context();
  if (here.layers.first && (!interpreter.is_valid() || here.layers.capture))
    return call_layers(arguments, count, names, destination);
  if (!interpreter.is_valid() && here.layers.capture) [[unlikely]]
    interpreter = nb::borrow(here.layers.capture);  // it happens each time that the function runs
  if (interpreter.is_valid()) {
    const auto as_operand = [&](PyObject* object) {
      const bool stays = object == Py_None || PyUnicode_Check(object) ||
                         (PyComplex_Check(object) && type_has(interpreter.ptr(), "takes_complex"));
      nb::object array = stays ? nb::object() : from_numpy(object, {arguments, static_cast<size_t>(count)});
      return array.is_valid() ? array : nb::borrow(object);
    };
    const nb::object positional = tuple_of(count, [&](Py_ssize_t i) { return as_operand(arguments[i]); });
    nb::dict named;
    for (Py_ssize_t i = count; i < all; ++i)
      named[nb::handle(PyTuple_GetItem(names, i - count))] = as_operand(arguments[i]);
    nb::object result = interpreter.attr("__weft_apply__")(nb::handle(cls_), positional, named);
    if (!destination || !here.layers.capture) return result;
    call_hook(Hook::assign, nb::handle(destination), nb::ellipsis(), result);
    return nb::borrow(destination);
  }
  Arguments a;
  if (plain_ && !names && static_cast<size_t>(count) == inputs_.size()) {  // nothing to read
    std::copy_n(arguments, count, a.inputs.data);
    a.inputs.count = static_cast<size_t>(count);
  } else {
    parse(a, arguments, count, names);
  }
  bool tracked = false;
  for (size_t k = 0; k < a.inputs.count; ++k) {
    PyObject* input = a.inputs[k];
    if (!input) continue;
    if (Py_TYPE(input) == tensor_type) {
      tracked |= static_cast<bool>(tracked_of(input).node);
      met(input);
      continue;
    }
    if (is_number(input)) continue;
    const std::span<PyObject* const> operands{a.inputs.data, a.inputs.count};
    nb::object array = PyList_CheckExact(input) ? as_array(input, operands) : from_numpy(input, operands);
    if (array.is_valid()) {
      a.owned.push_back(std::move(array));
      a.inputs[k] = input = a.owned.back().ptr();
      if (is_tensor(input)) met(input);
      continue;
    }
    // What has elements and is not NumPy's: a tensor of another library.
    const bool is_array = PyObject_HasAttrString(reinterpret_cast<PyObject*>(Py_TYPE(input)), "__dlpack__");
    throw type_error(name_ + ": expected a Tensor or a number, got " + type_of(nb::handle(input)) +
                     (is_array ? "; weft.asarray(x) shares its memory" : ""));
  }
  fit_numbers(a);
  const bool records = tracked && here.is_recording();
  // A view of what leaves the history of a program that is written down is noted by its plan.
  const bool noted = here.is_stopping() || here.noting ||
                     (here.stop_epoch && a.inputs.count && a.inputs[0] && is_tensor(a.inputs[0]) &&
                      is_stopped(tracked_of(a.inputs[0])));
  if (direct_ && !records && !noted && !destination && Py_TYPE(a.inputs[0]) == tensor_type) {
    Tensor result;
    if (direct_(self_of(a.inputs[0]), a.attributes, result)) return wrap(std::move(result));
  }
  const Ref<Plan> plan = plan_for(a, records);
  const std::span<const Tracked* const> tensors = a.tensors;
  const std::span<const Scalar> numbers = a.numbers;
  const size_t output_count = plan->program->outputs.size();
  if (output_count == 1 && !destination && !plan->as_tuple) {  // made where it stays
    NewTensor result;
    call_plan(plan, tensors, numbers, {}, {&result.tracked(), 1}, here);
    return result.take();
  }
  std::vector<Tracked> results(output_count);
  if (destination) {
    results[0].stopped = tracked_of(destination).stopped;
    const Tensor* into = &self_of(destination);
    check_fits_in_place(name_, *plan->program, *into);
    if (records && (into->chunk->faces != 1 || !into->covers_chunk()))
      throw ValueError(
          name_ + ": a recorded tensor that shares its memory with others cannot be written in place: x is " +
          describe(*into));
    call_plan(plan, tensors, numbers, {&into, 1}, results, here);
    note_overwriting(*into);
    if (records) {  // else it is what it was, with other content
      tracked_of(destination).node = std::move(results[0].node);
      tracked_of(destination).index = results[0].index;
      collect_through(destination);
    }
    return nb::borrow(destination);
  }
  call_plan(plan, tensors, numbers, {}, results, here);
  if (plan->visible == 1 && !plan->as_tuple) return wrap(std::move(results[0]));
  return tuple_of(plan->visible,
                  [&](Py_ssize_t i) { return wrap(std::move(results[static_cast<size_t>(i)])); });
}

}  // namespace weft
