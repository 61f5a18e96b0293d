#include "bindings/launch_recorder.h"

#include "calls/lazy_log.h"
#include "program/builder.h"

namespace weft {

PyTypeObject* traced_float_type = nullptr;
uint64_t changes = 0;

namespace {

// Memory that a lazy program met, without being a tensor of Python's that shows it. Once let go it is kept
// only as long as somebody else does.
class Held {
 public:
  explicit Held(const Tensor& x) : tensor_(x), serial_(x.chunk->serial) {}
  bool alone() const {
    if (tensor_.chunk) return tensor_.chunk->references() == 1;
    return !Chunk::is_alive(serial_);
  }
  bool has_faces() const {
    const Ref<Chunk> live_chunk = tensor_.chunk ? Ref<Chunk>() : Chunk::find(serial_);
    const Chunk* chunk = tensor_.chunk ? tensor_.chunk.get() : live_chunk.get();
    return chunk && chunk->faces != 0;
  }
  Tensor tensor() const {
    Tensor x(tensor_);
    if (!x.chunk) x.chunk = Chunk::find(serial_);
    if (!x.chunk) throw std::logic_error("memory was let go, and nobody kept it");
    return x;
  }
  void let_go() {
    if (tensor_.chunk) tensor_.chunk->watch();
    tensor_.chunk = {};
  }

 private:
  Tensor tensor_;
  uint64_t serial_;
};

}  // namespace

nb::object geometry_of(const Tensor& x, nb::object held, bool is_stopped) {
  return geometry_of(x, x.chunk->serial, x.device(), std::move(held), is_stopped);
}

nb::object geometry_of(const Tensor& x, uint64_t serial, Device device, nb::object held, bool is_stopped) {
  return nb::make_tuple(serial, reinterpret_cast<uintptr_t>(x.data), to_tuple(x.dims()), to_tuple(x.steps()),
                        dtype_object(x.dtype), device_object(device), held, is_stopped);
}

nb::object sizes_of(const Tensor& x, Device device) {
  return nb::make_tuple(nb::none(), 0, to_tuple(x.dims()), to_tuple(x.steps()), dtype_object(x.dtype),
                        device_object(device), nb::none());
}

nb::object number_of(const Scalar& value) { return nb::make_tuple(to_number(value), value.origin); }

nb::object hold(const Tensor& x) { return nb::cast(Held{x}); }

namespace {

// Tells the object at once.
class PyLaunchRecorder final : public LaunchRecorder {
 public:
  PyLaunchRecorder(nb::object target, bool defers) : target_(target.release().ptr()), defers_(defers) {}
  ~PyLaunchRecorder() override { release_later(target_); }
  PyObject* target() const noexcept override { return target_; }
  void leave() override { delete this; }

  template <class... Args>
  bool tell(const char* method, Args&&... args) const {
    const Unobserved quiet;
    return nb::handle(target_).attr(method)(std::forward<Args>(args)...).is(nb::bool_(true));
  }

  nb::object geometry(const Tensor& x, bool is_stopped = false) const {
    // Who writes down wants to know which arrays made meanwhile are kept.
    if (!defers_ && x.chunk->serial > mark_ && x.chunk->serial >> 40 == mark_ >> 40) x.chunk->watch();
    return geometry_of(x, defers_ ? hold(x) : nb::none(), is_stopped);
  }

  bool on_fill(const Tensor& to, Scalar value) override {
    return left_out(to, tell("filled", geometry(to), number_of(value)));
  }
  bool on_copy(const Tensor& to, const Tensor& from) override {
    return left_out(to, tell("copied", geometry(to), geometry(from)));
  }
  bool on_range(const Tensor& to, Scalar start, Scalar step) override {
    return left_out(to, tell("counted", geometry(to), number_of(start), number_of(step)));
  }
  bool on_draw(const Tensor& to, Draw kind, Scalar a, Scalar b) override {
    return left_out(to, tell("drawn", geometry(to), word_of(kind), number_of(a), number_of(b)));
  }
  bool on_permute(const Tensor& to, const Tensor& from) override {
    return left_out(to, tell("permuted", geometry(to), geometry(from)));
  }
  void on_read(const Tensor& x) override { tell("read", geometry(x)); }
  void on_await(const Tensor& x) override { tell("awaited", geometry(x)); }
  void on_random_state() override { tell("random_state"); }
  void on_use(PyObject* tensor) override { tell("met", nb::handle(tensor), geometry(self_of(tensor))); }
  bool on_launch(const Plan& plan, std::span<const Tracked* const> inputs, std::span<const Scalar> numbers,
                 std::span<const Tracked> results) override {
    const Program& program = *plan.program;
    nb::list arrays, values, outputs;
    for (const Tracked* x : inputs)
      arrays.append(x->tensor.chunk ? geometry(x->tensor, is_stopped(*x))
                                    : sizes_of(x->tensor, program.device));
    for (const Scalar& value : numbers) values.append(number_of(value));
    for (size_t j = 0; j < results.size(); ++j)
      outputs.append(is_alias(program, j) ? nb::none() : geometry(results[j].tensor, is_stopped(results[j])));
    nb::handle info(plan.info ? plan.info : Py_None);
    return tell("launched", info, arrays, values, outputs, Site::here().text());
  }
  bool defers() const noexcept override { return defers_; }

 private:
  // What gradients have saved is overwritten as seen from Python, whenever it will happen.
  static bool left_out(const Tensor& to, bool is) {
    if (is) to.chunk->writes.fetch_add(1, std::memory_order_relaxed);
    return is;
  }

  PyObject* const target_;
  const bool defers_;
  const uint64_t mark_ = Chunk::last_serial();
};

// What this thread's recorder writes for, or None.
nb::object recorder_target() { return context().recorder ? nb::borrow(current().target()) : nb::none(); }

}  // namespace

void bind_launch_recorder(nb::module_& m) {
  // Sets who is told of what this thread does, None: nobody; gives who was told before. One with a `log` is
  // not told; it is written there.
  def(
      m, "set_recorder",
      [](nb::object target) {
        const nb::object before = recorder_target();
        if (context().recorder) current().leave();
        context().recorder = nullptr;
        if (target.is_none()) return before;
        if (nb::object log = nb::getattr(target, "log", nb::none()); !log.is_none())
          context().recorder = &nb::cast<Log&>(log);
        else
          context().recorder = new PyLaunchRecorder(target, nb::cast<bool>(target.attr("defers")));
        return before;
      },
      "target"_a.none());
  // Whoever writes down what this thread does is told that it used an object with __weft_state__.
  def(m, "depends_on", [](nb::handle thing) {
    if (context().recorder) recorder_target().attr("depends_on")(thing);
  });
  def(m, "get_recorder", &recorder_target);
  Class<Held>(m, "Held", "Memory of an array that lazy evaluation keeps.")
      .def_prop_ro("alone", &Held::alone)
      .def_prop_ro("has_faces", &Held::has_faces, "Whether a Tensor of Python has this memory.")
      .def("tensor", [](const Held& held) { return wrap(held.tensor()); })
      .def("let_go", &Held::let_go);
  def(m, "note_change", [] { ++changes; });
  def(m, "is_alive", [](uint64_t serial) { return Chunk::is_alive(serial); });
  // Whether a Tensor of Python has the memory of this serial, which was watched.
  def(m, "has_faces", [](uint64_t serial) {
    const Ref<Chunk> chunk = Chunk::find(serial);
    return chunk && chunk->faces != 0;
  });
  def(m, "last_serial", [] { return Chunk::last_serial(); });
  def(m, "geometry",
      [](nb::handle object) { return geometry_of(tensor_of(object, "geometry"), nb::none()); });
  // A view of the memory that x lies in: from `offset` elements behind the address of x on.
  def(m, "window", [](nb::handle object, int64_t offset, nb::handle shape, nb::handle strides) {
    const Tensor& x = tensor_of(object, "window");
    const Shape sizes = as_shape(shape, "window");
    std::vector<int64_t> steps;
    for (nb::handle stride : strides) steps.push_back(nb::cast<int64_t>(stride));
    return wrap(x.window(offset, sizes, steps));
  });
}

}  // namespace weft
