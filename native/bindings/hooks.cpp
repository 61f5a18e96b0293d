#include "bindings/hooks.h"

#include <array>

#include "bindings/launch_recorder.h"

namespace weft {

PyObject* hook_values[static_cast<size_t>(Hook::count)];

namespace {

constexpr auto kHooks = static_cast<size_t>(Hook::count);
PyObject* loaders[kHooks];  // owned; GIL

constexpr std::array<const char*, kHooks> kNames{
#define WEFT_HOOK(name, type) #name,
    WEFT_HOOKS(WEFT_HOOK)
#undef WEFT_HOOK
};

size_t number_of(nb::handle name) {
  for (size_t k = 0; k < kHooks; ++k)
    if (PyUnicode_CompareWithASCIIString(name.ptr(), kNames[k]) == 0) return k;
  std::string accepted;
  for (const char* each : kNames) {
    if (!accepted.empty()) accepted += ", ";
    accepted += each;
  }
  throw type_error("register: no hook " + to_utf8(name) + "; there are: " + accepted);
}

// Each of them a loader: what it gives is kept, where it was in use it stays in use.
void register_hooks(const nb::kwargs& hooks) {
  for (auto [name, loader] : hooks) {
    const size_t k = number_of(name);
    if (!PyCallable_Check(loader.ptr()))
      throw type_error("register: " + to_utf8(name) + " must be a function that gives it, got " +
                       type_of(loader));
    PyObject* const before = std::exchange(loaders[k], nb::borrow(loader).release().ptr());
    hook_values[k] = nullptr;  // calls that are under way may still use it, so it is never released
    Py_XDECREF(before);
    if (k == static_cast<size_t>(Hook::traced_float_type))
      traced_float_type = reinterpret_cast<PyTypeObject*>(load_hook(Hook::traced_float_type));
  }
}

}  // namespace

PyObject* load_hook(Hook which) {
  const auto k = static_cast<size_t>(which);
  if (!loaders[k]) {
    raise_error(PyExc_RuntimeError, "weft._core: no hook " + std::string(kNames[k]) +
                                        " is registered; the module of weft that has it is not imported");
  }
  const nb::object loader = nb::borrow(loaders[k]);  // it may run Python, and other threads
  nb::object value = loader();
  if (!hook_values[k]) hook_values[k] = value.release().ptr();
  return hook_values[k];
}

void bind_hooks(nb::module_& m) {
  // A function keeps the globals of its module, and all that they lead to: the hooks go with this module's
  // own.
  m.attr("_hooks") = nb::capsule(hook_values, [](void*) noexcept {
    traced_float_type = nullptr;
    for (size_t k = 0; k < kHooks; ++k) {
      Py_CLEAR(loaders[k]);
      Py_CLEAR(hook_values[k]);
    }
  });
#define WEFT_HOOK(name, type) ", " #name ": collections.abc.Callable[[], " type "] = ..."
  def(
      m, "register", [](nb::kwargs hooks) { register_hooks(hooks); },
      nb::sig("def register(*" WEFT_HOOKS(WEFT_HOOK) ") -> None"),
      "Give native code what it asks of weft's Python side.\n\n"
      "Each is a function that gives what is meant; it is called once, when that is first needed.\n"
      "Raises TypeError for other names.");
#undef WEFT_HOOK
}

}  // namespace weft
