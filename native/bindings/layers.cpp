#include "bindings/layers.h"

#include "tensor/captured_read.h"

namespace weft {

nb::object emit_to_layers(nb::handle op, nb::handle args) {
  const nb::object layers = nb::borrow(context().layers.first);
  const nb::handle emit = PyTuple_GetItem(layers.ptr(), 0);
  PyObject* below = PyTuple_GetItem(layers.ptr(), 1);
  const WithLayers next({below == Py_None ? nullptr : below, context().layers.capture});
  nb::object result = emit(op, args);
  PyObject* const object = result.ptr();
  if (result.is_none() || PyLong_Check(object) || PyFloat_Check(object) || PyUnicode_Check(object) ||
      PyList_Check(object) || PyDict_Check(object)) {
    std::string text = to_utf8(nb::str(emit.attr("__qualname__")));
    text += ": gave ";
    text += result.is_none() ? "None" : type_of(result);
    text += " for " + to_utf8(nb::repr(op)) + "; it must return what op(*args) returns";
    throw type_error(text);
  }
  return result;
}

void drop_at_end_of_thread() {
  struct Drop {
    ~Drop() {  // Python no longer knows the thread
      Context& c = context();
      release_later(std::exchange(c.layers.first, nullptr));
      release_later(std::exchange(c.layers.capture, nullptr));
      release_later(std::exchange(c.stream_object, nullptr));
      c.stream = nullptr;
    }
  };
  thread_local const Drop drop;
  static_cast<void>(drop);
}

void bind_layers(nb::module_& m) {
  check_captured_read = [](const Tensor& x) {
    if (x.chunk) nb::handle(context().layers.capture).attr("check_read")(x.chunk->serial);
  };
  // This thread's layers: (emit, those below), or None.
  def(m, "layers", [] { return nb::borrow(context().layers.first ? context().layers.first : Py_None); });
  def(
      m, "set_layers",
      [](nb::object layers) {
        if (!layers.is_none() && !(PyTuple_Check(layers.ptr()) && PyTuple_Size(layers.ptr()) == 2))
          throw nb::type_error("set_layers: expected None or a tuple (emit, the layers below)");
        drop_at_end_of_thread();
        PyObject* before = context().layers.first;
        context().layers.first = layers.is_none() ? nullptr : layers.release().ptr();
        Py_XDECREF(before);
      },
      "layers"_a.none());
  // What writes down a body of control flow on this thread, or None.
  // What the first layer makes of op(*args); only while there is one.
  def(
      m, "emit",
      [](nb::handle op, nb::handle args) {
        if (!layers_active()) throw nb::value_error("emit: this thread has no layers");
        return emit_to_layers(op, args);
      },
      nb::sig("def emit(op: object, args: tuple[object, ...]) -> typing.Any"));
  def(m, "capture", [] { return nb::borrow(context().layers.capture ? context().layers.capture : Py_None); });
  def(
      m, "set_capture",
      [](nb::object capture) {
        drop_at_end_of_thread();
        PyObject* before = context().layers.capture;
        context().layers.capture = capture.is_none() ? nullptr : capture.release().ptr();
        Py_XDECREF(before);
      },
      "capture"_a.none());
  // function(*args) below all layers.
  def(
      m, "below_layers",
      [](nb::handle function, nb::args args) {
        const BelowLayers below;
        return function(*args);
      },
      nb::sig(
          "def below_layers(function: collections.abc.Callable[..., object], *args: object) -> typing.Any"));
}

}  // namespace weft
