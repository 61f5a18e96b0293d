// operator_entry.cpp: how Python reaches an operator's function: as a function, as a method of tensors, as x
// + y.
#include "bindings/hooks.h"
#include "bindings/layers.h"
#include "bindings/operator.h"

namespace weft {

OperatorFunction& OperatorFunction::of(nb::handle function) {
  nb::object self = function.attr("__self__");
  void* pointer = PyCapsule_GetPointer(self.ptr(), nullptr);
  if (!pointer) throw nb::python_error();
  return *static_cast<OperatorFunction*>(pointer);
}

OperatorFunction& OperatorFunction::named(const char* name) {
  nb::object function = call_hook(Hook::operator_function, name);
  return of(function.release());  // as long as the process
}

namespace {

// With what its object of Python's points to.
struct EntryFunction : OperatorFunction {
  using OperatorFunction::OperatorFunction;
  std::string documentation;
  PyMethodDef definition{};
};

void drop_function(PyObject* capsule) {
  delete static_cast<EntryFunction*>(static_cast<OperatorFunction*>(PyCapsule_GetPointer(capsule, nullptr)));
}

PyObject* call_function(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  return guarded_object([&] {
    return static_cast<OperatorFunction*>(PyCapsule_GetPointer(self, nullptr))->call(arguments, count, names);
  });
}

// Methods of tensors: a method has no room for its function, so each of these has its own entry.
constexpr size_t kMethods = 512;
struct MethodFunction {
  PyObject* object = nullptr;  // Python's, owned; null until the first call
  OperatorFunction* function = nullptr;
};
MethodFunction method_functions[kMethods];
std::array<std::string, 2> method_texts[kMethods];
size_t methods_made = 0;

PyObject* call_method_at(size_t k, PyObject* self, PyObject* const* arguments, Py_ssize_t count,
                         PyObject* names) {
  return guarded_object([&] {
    if (!method_functions[k].object) {
      nb::object method = call_hook(Hook::operator_function, method_texts[k][0]);
      OperatorFunction& function = OperatorFunction::of(method);
      if (!method_functions[k].object) method_functions[k] = {method.release().ptr(), &function};
    }
    const auto [object, function] = method_functions[k];
    const nb::object held = nb::borrow(object);  // another may take its place meanwhile
    constexpr size_t kFew = 8;
    PyObject* few[kFew];
    std::vector<PyObject*> many;
    const auto all = static_cast<size_t>(count + (names ? PyTuple_Size(names) : 0));
    PyObject** with_self = few;
    if (all + 1 > kFew) {
      many.resize(all + 1);
      with_self = many.data();
    }
    with_self[0] = self;
    std::copy_n(arguments, all, with_self + 1);
    return function->call(with_self, count + 1, names);
  });
}

template <size_t K>
PyObject* call_method(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  return call_method_at(K, self, arguments, count, names);
}

template <size_t... K>
constexpr auto method_table(std::index_sequence<K...>) {
  return std::array<_PyCFunctionFastWithKeywords, sizeof...(K)>{call_method<K>...};
}

PyCFunction as_function(_PyCFunctionFastWithKeywords function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

#define WEFT_SLOT(name) #name,
constexpr const char* slot_names[] = {WEFT_SLOTS(WEFT_SLOT)};
#undef WEFT_SLOT
OperatorFunction* slot_functions[static_cast<size_t>(Slot::count)];

OperatorFunction& function_for(Slot slot) {
  OperatorFunction*& function = slot_functions[static_cast<size_t>(slot)];
  if (!function) function = &OperatorFunction::named(slot_names[static_cast<size_t>(slot)]);
  return *function;
}

// Written down, a symbolic size (weft.ops.sizes) is a number of the graph.
bool takes_part(PyObject* operand) noexcept {
  return OperatorFunction::accepts(operand) ||
         (context().layers.capture && type_has(operand, "__weft_number__"));
}
bool has_rules(PyObject* operand) noexcept {  // weft.ops.foreign
  return type_has(operand, "__weft_function__");
}

}  // namespace

PyObject* call_slot(Slot slot, PyObject* a, PyObject* b) noexcept {
  if (!(takes_part(a) || has_rules(a)) || (b && !(takes_part(b) || has_rules(b)))) {
    Py_INCREF(Py_NotImplemented);
    return Py_NotImplemented;
  }
  return guarded_object([&] {
    PyObject* const arguments[] = {a, b};
    return function_for(slot).call(arguments, b ? 2 : 1, nullptr);
  });
}

PyObject* call_slot_in_place(Slot slot, PyObject* a, PyObject* b) noexcept {
  // Written down, the value of a graph is written to the tensor, too.
  if (!takes_part(b) && !(context().layers.capture && type_has(b, "__weft_apply__"))) {
    Py_INCREF(Py_NotImplemented);
    return Py_NotImplemented;
  }
  return guarded_object([&] {
    PyObject* const arguments[] = {a, b};
    return function_for(slot).call(arguments, 2, nullptr, a);
  });
}

void bind_operator(nb::module_& m) {
  // The function of an operator's class. Its name, documentation and signature are the class's.
  def(m, "operator_function", [](nb::handle cls) {
    auto function = std::make_unique<EntryFunction>(cls);
    function->documentation = nb::cast<std::string>(cls.attr("documentation")());
    PyMethodDef* const definition = &function->definition;
    definition->ml_name = function->name().c_str();
    definition->ml_doc = function->documentation.c_str();
    definition->ml_meth = as_function(call_function);
    definition->ml_flags = METH_FASTCALL | METH_KEYWORDS;
    // Of a capsule's pointer the base class is what is read back.
    const nb::object self =
        checked(PyCapsule_New(static_cast<OperatorFunction*>(function.get()), nullptr, drop_function));
    function.release();
    nb::str module("weft.functional");
    nb::object method = checked(PyCFunction_NewEx(definition, self.ptr(), module.ptr()));
    return method;
  });
  // A method of tensors: the function of the operator of that name, found at the first call. Added again, it
  // is found again: the name stands for another operator now.
  def(m, "add_method", [](const std::string& name, const std::string& signature) {
    static constexpr auto table = method_table(std::make_index_sequence<kMethods>());
    for (size_t k = 0; k < methods_made; ++k) {
      if (method_texts[k][0] != name) continue;
      Py_XDECREF(std::exchange(method_functions[k], {}).object);
      return;
    }
    if (methods_made == kMethods) throw ValueError("add_method: too many methods");
    auto& [own_name, text] = method_texts[methods_made];
    own_name = name;
    text = signature + "\n--\n\nSee weft.functional." + name + ".";
    auto* definition = new PyMethodDef{};
    definition->ml_name = own_name.c_str();
    definition->ml_doc = text.c_str();
    definition->ml_meth = as_function(table[methods_made++]);
    definition->ml_flags = METH_FASTCALL | METH_KEYWORDS;
    nb::object method = nb::steal(PyDescr_NewMethod(tensor_type, definition));
    if (PyObject_SetAttrString(reinterpret_cast<PyObject*>(tensor_type), own_name.c_str(), method.ptr()))
      throw nb::python_error();
  });
  // function(*args, **kwargs), written to x.
  def(m, "call_into", [](nb::handle function, nb::handle x, nb::tuple args, nb::dict kwargs) {
    tensor_of(x, "call_into");
    std::vector<PyObject*> arguments;
    for (nb::handle argument : args) arguments.push_back(argument.ptr());
    nb::list names;
    for (auto [name, value] : kwargs) {
      names.append(name);
      arguments.push_back(value.ptr());
    }
    nb::tuple named(names);
    return OperatorFunction::of(function).call(arguments.data(), static_cast<Py_ssize_t>(nb::len(args)),
                                               named.ptr(), x.ptr());
  });
  def(m, "operator_counters", [] {
    using F = OperatorFunction;
    return counts_of({{"hits", F::hits}, {"misses", F::misses}, {"planner_calls", F::planner_calls}});
  });
  def(m, "forget_users_plans", [] { OperatorFunction::forget_users_plans(); });
  def(m, "plan_count", [](nb::handle function) { return OperatorFunction::of(function).plans(); });
}

}  // namespace weft
