// storage.cpp: the process's engine for arrays, and the statistics of its memory.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings/convert.h"
#include "bindings/launch_recorder.h"
#include "bindings/layers.h"
#include "engine/device_kind.h"
#include "program/builder.h"
#include "storage/runtime.h"
#include "tensor/exchange.h"

namespace weft {

namespace {

// New tensors of random numbers.
Tensor new_like(nb::handle shape, DType dtype, nb::handle device, const char* function) {
  return Tensor::empty(as_shape(shape, function), dtype, as_tensor_device(device));
}

// A function of two parameters of a distribution that fills a new array; caller: the name in messages.
template <class T>
void def_random(nb::module_& m, const char* name, const char* caller, const char* first, const char* second,
                void (*fill)(const Tensor&, T, T)) {
  def(
      m, name,
      [caller, fill](T a, T b, nb::handle shape, DType dtype, nb::handle device) {
        Tensor x = new_like(shape, dtype, device, caller);
        fill(x, a, b);
        return wrap(std::move(x));
      },
      nb::arg(first), nb::arg(second), "shape"_a, "dtype"_a, "device"_a.none());
}

// `_core.RandomStream`: a generator of a thread's own. Its key and stream are the words that
// kernel_random_integers makes from what it takes of the generator in use.
constexpr int64_t kMostWord = int64_t{1} << 62;

struct PyRandomStream {
  explicit PyRandomStream(std::array<int64_t, 2> words)
      : generator(static_cast<uint64_t>(words[0]), static_cast<uint64_t>(words[1])) {}
  explicit PyRandomStream(const Generator::State& state) { generator.set_state(state); }
  Generator generator;
};

std::array<int64_t, 2> take_stream_words(Device device) {
  std::array<int64_t, 2> words{};
  const int64_t shape[] = {2}, strides[] = {1};
  Generator& parent = Runtime::get().generator(device);
  const Reservation from = parent.reserve(blocks_for(Draw::integers, DType::int64, 2));
  fill_integers({reinterpret_cast<char*>(words.data()), DType::int64, 1, shape, strides}, from, 0, kMostWord);
  return words;
}

nb::object set_random_stream(nb::object stream) {
  Generator* const generator = stream.is_none() ? nullptr : &nb::cast<PyRandomStream&>(stream).generator;
  drop_at_end_of_thread();
  nb::object before =
      nb::steal(context().stream_object ? context().stream_object : nb::none().release().ptr());
  context().stream = generator;
  context().stream_object = stream.is_none() ? nullptr : stream.release().ptr();
  return before;
}

void bind_random(nb::module_& m) {
  m.attr("MOST_WORD") = kMostWord;
  Class<PyRandomStream>(m, "RandomStream")
      .def("__init__",
           [](PyRandomStream* self, Device device) { new (self) PyRandomStream(take_stream_words(device)); })
      .def("__copy__", [](PyRandomStream& self) { return new PyRandomStream(self.generator.state()); });
  def(m, "random_stream",
      [] { return nb::borrow(context().stream_object ? context().stream_object : Py_None); });
  // What this thread draws from, of whatever device; None: the devices' streams. Gives what it was.
  def(m, "set_random_stream", &set_random_stream, "stream"_a.none());
  def(
      m, "random_blocks",
      [](const std::string& kind, DType dtype, int64_t count) {
        return blocks_for(draw_of(kind), dtype, count);
      },
      "kind"_a, "dtype"_a, "count"_a, "How many positions of a stream it takes.");
  def(m, "seed_all", [](uint64_t seed) {
    if (context().recorder) context().recorder->on_random_state();
    Runtime::get().seed_all(seed);
  });
  def(m, "seed_of_gpus", [] {
    if (context().recorder) context().recorder->on_random_state();
    return Runtime::get().seed();
  });
  def(m, "seed_gpus", [](uint64_t seed, const std::vector<int>& without) {
    if (context().recorder) context().recorder->on_random_state();
    Runtime::get().seed_kind(DeviceKind::gpu, seed, without);
  });
  def(m, "get_generator", [](Device device) {
    if (context().recorder) context().recorder->on_random_state();
    const Generator::State state = Runtime::get().devices_generator(device).state();
    return std::make_tuple(state.seed, state.stream, state.offset);
  });
  def(m, "set_generator", [](Device device, uint64_t seed, uint64_t stream, uint64_t offset) {
    if (context().recorder) context().recorder->on_random_state();
    Runtime::get().set_generator(device, {seed, stream, offset});
  });
  def_random(m, "random_uniform", "uniform", "low", "high", push_uniform);
  def_random(m, "random_normal", "normal", "mean", "std", push_normal);
  def_random(m, "random_integers", "randint", "low", "high", push_integers);
  def(m, "random_permutation", [](nb::handle x) {
    const Tensor& from = tensor_of(x, "permutation");
    if (from.ndim == 0) throw ShapeError("permutation: needs at least 1 dimension: x is " + describe(from));
    Tensor to = Tensor::empty(from.dims(), from.dtype, from.device());
    push_permutation(to, from);
    return wrap(std::move(to));
  });
}

// `_core.Memory`: a piece of a device's memory without a shape, seen through the buffer protocol.

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  PyMemory& memory = *nb::inst_ptr<PyMemory>(self);
  if (!memory.chunk) {
    PyErr_SetString(PyExc_BufferError, "Memory: it has been freed");
    view->obj = nullptr;
    return -1;
  }
  static char nothing;  // a pool has no block of 0 bytes
  if (hidden_memory_of(memory.device)) {
    const std::string text = "Memory: Python cannot touch the memory of " + to_string(memory.device);
    PyErr_SetString(PyExc_BufferError, text.c_str());
    view->obj = nullptr;
    return -1;
  }
  char* const data = memory.bytes ? memory.chunk->data : &nothing;
  if (PyBuffer_FillInfo(view, self, data, static_cast<Py_ssize_t>(memory.bytes), 0, flags) < 0) return -1;
  ++memory.exports;
  return 0;
}

void release_buffer(PyObject* self, Py_buffer*) { --nb::inst_ptr<PyMemory>(self)->exports; }

PyType_Slot memory_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                              {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                              {0, nullptr}};

void bind_memory(nb::module_& m) {
  Class<PyMemory>(
      m, "Memory", nb::type_slots(memory_slots), nb::is_weak_referenceable(),
      "Bytes of a device's pool: made by weft.storage.alloc(), given back by free() or with the "
      "last reference.\n\n"
      "size_bytes, device, address (0: freed, or of no bytes). Objects that read buffers take it: "
      "memoryview(m), numpy.frombuffer(m).\n"
      "The engine takes it where it takes variables; operations that use it keep the bytes until "
      "they have finished.")
      .def_prop_ro("size_bytes", [](const PyMemory& x) { return x.bytes; })
      .def_prop_ro(
          "device", [](const PyMemory& x) { return device_object(x.device); },
          nb::sig("def device(self) -> weft.base.device.Device"))
      .def_prop_ro("address",
                   [](const PyMemory& x) {
                     return x.chunk ? reinterpret_cast<uintptr_t>(x.chunk->data) : uintptr_t{0};
                   })
      .def_prop_ro("freed", [](const PyMemory& x) { return !x.chunk; })
      .def(
          "free",
          [](PyMemory& x) {
            if (!x.chunk) throw nb::value_error("free: the memory has been freed already");
            if (x.exports)
              throw BufferError("free: " + std::to_string(x.exports) + " buffers show the memory");
            x.chunk = {};
          },
          "Give the bytes back to the pool, after the operations that use them.\n\n"
          "Raises ValueError if that has been done, BufferError while memoryviews or arrays show them.")
      .def("__repr__", [](const PyMemory& x) {
        return "Memory(size_bytes=" + std::to_string(x.bytes) + ", device=" + to_string(x.device) +
               (x.chunk ? ")" : ", freed)");
      });
  def(
      m, "allocate_memory",
      [](size_t bytes, Device device) { return new PyMemory{Chunk::allocate(device, bytes), device, bytes}; },
      "bytes"_a, "device"_a.none());
}

}  // namespace

PyMemory::~PyMemory() {
  const PythonEntry entry;
  chunk = {};
}

void bind_storage(nb::module_& m) {
  bind_random(m);
  bind_memory(m);
  def(m, "set_array_engine", [](PyEngine& engine) {
    Runtime::get().set_engine(engine.core);
    Runtime::get().set_check(engine.core->options().check);
  });
  def(
      m, "memory_stats",
      [](Device device) {
        Pool& pool = Runtime::get().pool(device);
        Runtime::get().collect_retired();
        const PoolStats stats = pool.stats();
        return counts_of({{"in_use_bytes", stats.in_use_bytes},
                          {"reserved_bytes", stats.reserved_bytes},
                          {"peak_in_use_bytes", stats.peak_in_use_bytes},
                          {"peak_reserved_bytes", stats.peak_reserved_bytes},
                          {"allocations", stats.allocations},
                          {"reused", stats.reused},
                          {"live_blocks", stats.live_blocks},
                          {"largest_free_bytes", stats.largest_free_bytes}});
      },
      "device"_a = nb::none());
  def(
      m, "set_memory_limit",
      [](Device device, uint64_t bytes) {
        Pool& pool = Runtime::get().pool(device);
        if (bytes != 0 && pool.stats().reserved_bytes > bytes) Runtime::get().release_temporary(device);
        pool.set_limit(bytes);
      },
      "device"_a.none(), "bytes"_a);
  def(
      m, "hides_memory", [](Device device) { return hidden_memory_of(device) != nullptr; }, "device"_a.none(),
      "Whether the host cannot touch the memory of a device.");
  def(
      m, "used_devices",
      [] {
        std::vector<std::string> names;
        for (const Device device : Runtime::get().used_devices()) names.push_back(to_string(device));
        return names;
      },
      "The names of the devices whose memory has been used.");
  def(
      m, "check_memory", [](Device device) { return Runtime::get().pool(device).check_all(); },
      "device"_a = nb::none());
  def(
      m, "trim_memory",
      [](Device device) {
        Pool& pool = Runtime::get().pool(device);
        Runtime::get().release_temporary(device);
        return pool.trim();
      },
      "device"_a = nb::none());
  def(
      m, "reset_device", [](Device device) { Runtime::get().reset(device); }, "device"_a.none(),
      "Gives a GPU a new context and new memory; its arrays are lost. Raises DeviceError.");
  def(
      m, "reset_memory_peaks", [](Device device) { Runtime::get().pool(device).reset_peaks(); },
      "device"_a = nb::none());
}

}  // namespace weft
