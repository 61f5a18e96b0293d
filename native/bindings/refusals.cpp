// refusals.cpp: errors for arguments that do not fit are weft's own.
//
// nanobind answers a call that fits no signature with all signatures, as C++ sees them. Every bound function
// is called by a pointer that its object holds (PEP 590). Here each of them is replaced by one that calls the
// old one, and, where that has failed so, lets weft.base.arguments say which argument is wrong. A call that
// succeeds costs one jump more.
#include <array>
#include <cstring>

#include "bindings/hooks.h"

namespace weft {
namespace {

using Call = PyObject* (*)(PyObject*, PyObject* const*, size_t, PyObject*);

constexpr int kMost = 16;  // nanobind has six
Call originals[kMost];     // GIL; filled while the module is made, then read only
constexpr const char* kSign = "incompatible function arguments";

// Replaces the error that is set, if it is nanobind's.
void explain(PyObject* function, PyObject* const* arguments, size_t flags, PyObject* names) noexcept {
  if (!PyErr_ExceptionMatches(PyExc_TypeError)) return;
  nb::python_error thrown;
  try {
    if (!std::strstr(to_utf8(nb::str(thrown.value())).c_str(), kSign)) {
      thrown.restore();
      return;
    }
    // The highest bit is Python's, the next one nanobind's, for constructors.
    const size_t count = flags & (~size_t{0} >> 2);
    nb::list positional;
    for (size_t k = 0; k < count; ++k) positional.append(nb::borrow(arguments[k]));
    nb::dict named;
    const Py_ssize_t more = names ? PyTuple_Size(names) : 0;
    for (Py_ssize_t k = 0; k < more; ++k)
      named[nb::borrow(PyTuple_GetItem(names, k))] = nb::borrow(arguments[count + static_cast<size_t>(k)]);
    nb::object error = call_hook(Hook::refusal, nb::borrow(function), positional, named);
    PyErr_SetObject(PyExc_TypeError, error.ptr());
  } catch (...) {
    raise_current_exception();
  }
}

template <int k>
PyObject* called(PyObject* self, PyObject* const* arguments, size_t flags, PyObject* names) {
  PyObject* const result = originals[k](self, arguments, flags, names);
  if (!result) [[unlikely]]
    explain(self, arguments, flags, names);
  return result;
}

template <int... k>
constexpr std::array<Call, sizeof...(k)> all_calls(std::integer_sequence<int, k...>) {
  return {called<k>...};
}
constexpr auto kCalls = all_calls(std::make_integer_sequence<int, kMost>());

// Where a function's pointer is: behind the head that all objects of a variable size have. The type has a
// member for it, whose value is the pointer; where the two differ, nanobind has changed, and its errors stay.
Call* call_of(nb::handle object) {
  auto* const call = reinterpret_cast<Call*>(reinterpret_cast<char*>(object.ptr()) + sizeof(PyVarObject));
  nb::object told = nb::steal(PyObject_GetAttrString(object.ptr(), "__vectorcalloffset__"));
  if (!told.is_valid()) PyErr_Clear();
  return told.is_valid() && nb::cast<intptr_t>(told) == reinterpret_cast<intptr_t>(*call) ? call : nullptr;
}

void replace_in(nb::handle object) {
  Call* const call = call_of(object);
  if (!call) return;
  for (size_t k = 0; k < kCalls.size(); ++k) {
    if (*call == kCalls[k]) return;
    if (!originals[k]) originals[k] = *call;
    if (originals[k] == *call) {
      *call = kCalls[k];
      return;
    }
  }
}

bool is_bound(nb::handle object) {
  const std::string name = type_of(object);
  return name.find("nb_func") != std::string::npos || name.find("nb_method") != std::string::npos;
}

}  // namespace

void bind_refusals(nb::module_& m) {
  for (auto [name, object] : nb::cast<nb::dict>(m.attr("__dict__"))) {
    if (is_bound(object)) replace_in(object);
    if (PyModule_Check(object.ptr())) {
      nb::module_ inner = nb::borrow<nb::module_>(object);
      bind_refusals(inner);
    }
    if (!PyType_Check(object.ptr())) continue;
    for (nb::handle member : nb::steal<nb::list>(PyMapping_Values(object.attr("__dict__").ptr()))) {
      if (is_bound(member)) replace_in(member);
      if (!PyObject_TypeCheck(member.ptr(), &PyProperty_Type)) continue;
      for (const char* accessor : {"fget", "fset"})
        if (nb::object function = member.attr(accessor); is_bound(function)) replace_in(function);
    }
  }
}

}  // namespace weft
