// hooks.h: what native code asks of weft's Python side. Native code imports nothing of weft: each layer
// registers what it has (`_core.register`), as a function that gives it, so that nothing is imported before
// it is needed.
#pragma once

#include "bindings/python.h"

namespace weft {

// (name, what its loader gives). weft/_preload.py registers those of weft.base, the others the package that
// has them.
#define WEFT_HOOKS(H)                                                                                 \
  H(array_loop, "collections.abc.Callable[[str, str, str, int], Kernel]")                             \
  H(as_device, "collections.abc.Callable[[object], object]")                                          \
  H(as_dtype, "collections.abc.Callable[[object], object]")                                           \
  H(asarray, "collections.abc.Callable[..., object]")                                                 \
  H(assign, "collections.abc.Callable[[object, object, object], object]")                             \
  H(call_foreign, "collections.abc.Callable[[object, tuple], object]")                                \
  H(count_non_finite, "collections.abc.Callable[[str, int], Kernel]")                                 \
  H(current_device, "collections.abc.Callable[[], object]")                                           \
  H(device_error, "type[Exception]")                                                                  \
  H(device_type, "type")                                                                              \
  H(dtype_error, "type[Exception]")                                                                   \
  H(dtype_type, "type")                                                                               \
  H(dtypes, "collections.abc.Sequence[object]")                                                       \
  H(elements_exported, "collections.abc.Callable[[object], None]")                                    \
  H(engine_error, "type[Exception]")                                                                  \
  H(engine_error_group, "type[Exception]")                                                            \
  H(ever_scoped, "list[bool]")                                                                        \
  H(failure_class, "collections.abc.Callable[[type], type]")                                          \
  H(folder, "str")                                                                                    \
  H(traced_float_type, "type")                                                                        \
  H(module_here, "collections.abc.Callable[[], int]")                                                 \
  H(of_sizes, "collections.abc.Callable[[object, object, object, object], object]")                   \
  H(on_deleted, "collections.abc.Callable[[object], collections.abc.Callable[[object], None]]")       \
  H(operator_function, "collections.abc.Callable[[str], collections.abc.Callable[..., object]]")      \
  H(plan_backward, "collections.abc.Callable[[object, list[bool], list[bool]], Plan | None]")         \
  H(plan_call, "collections.abc.Callable[[object, list, dict[str, object], str, bool], Plan | None]") \
  H(plan_recording, "collections.abc.Callable[[object], tuple[Plan | None, list[tuple[int, int]]]]")  \
  H(refusal, "collections.abc.Callable[[object, list, dict], TypeError]")                             \
  H(shape_error, "type[Exception]")                                                                   \
  H(subscript, "collections.abc.Callable[[object, object], object]")                                  \
  H(window_of, "collections.abc.Callable[[object, list], object]")

enum class Hook : uint8_t {
#define WEFT_HOOK(name, type) name,
  WEFT_HOOKS(WEFT_HOOK)
#undef WEFT_HOOK
      count
};

// Filled at the first use of each, for as long as the module; GIL. Not to be read but by `hook`.
extern PyObject* hook_values[static_cast<size_t>(Hook::count)];
PyObject* load_hook(Hook which);

// What is registered, borrowed. Raises RuntimeError if there is nothing, and what its loader raises.
inline PyObject* hook(Hook which) {
  PyObject* const value = hook_values[static_cast<size_t>(which)];
  return value ? value : load_hook(which);
}

// The same, called.
template <class... Arguments>
nb::object call_hook(Hook which, Arguments&&... arguments) {
  return nb::handle(hook(which))(std::forward<Arguments>(arguments)...);
}

}  // namespace weft
