// tensor_exchange.cpp: the same memory in Python's other libraries (tensor/exchange.h): NumPy, the buffer
// protocol, DLPack's capsules; both ways, no copies.
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#include "tensor/exchange.h"

#include <numpy/arrayobject.h>

#include "bindings/hooks.h"
#include "bindings/tape.h"
#include "bindings/tensor.h"
#include "tensor/staging.h"

namespace weft {
namespace {

// NumPy.

bool import_numpy() {
  if (!PyArray_API) {
    if (_import_array() < 0) throw nb::python_error();
  }
  return true;
}

PyArray_Descr* descr_of(DType dtype) {
  static PyObject* table[kDTypes];  // GIL
  PyObject*& descr = table[static_cast<int>(dtype)];
  if (!descr) descr = nb::object(dtype_object(dtype).attr("numpy")).release().ptr();
  Py_INCREF(descr);  // the function below takes one over
  return reinterpret_cast<PyArray_Descr*>(descr);
}

// Elements of a recorded array are about to leave for readers that record nothing.
void tell_of_export(nb::handle self) {
  if (is_recorded(self.ptr())) call_hook(Hook::elements_exported, self);
}

}  // namespace

// A row-major copy in the host's memory, here and now, which nobody has to wait for.
Tensor fetched(const Tensor& x, bool for_writing = false) {
  const Tensor from = ordered_for_copy(x, {});
  wait_for(x, for_writing);
  if (from.chunk != x.chunk) wait_unobserved(from, false);
  Tensor y = Tensor::empty(x.dims(), x.dtype, {});
  const Blocking blocking;
  copy_elements(y.view(), {}, from.view(), from.device());
  return y;
}

nb::object to_numpy(nb::handle self) {
  tell_of_export(self);
  const Tensor& whole = self_of(self.ptr());
  const bool is_hidden = hidden_memory_of(whole.device());
  // As elsewhere, a function may look at what it writes.
  const Tensor x = is_hidden ? fetched(whole, Engine::inside_function() && writable(whole)) : whole;
  import_numpy();
  Share share(x);
  const bool may_write = writable(x) && !is_hidden;  // what is written to a copy would be lost
  if (!is_hidden) wait_for(x, may_write);            // readers must have finished, too
  int64_t shape[kMaxDims], strides[kMaxDims];
  put_geometry(x, shape, strides);
  const int flags = may_write ? NPY_ARRAY_WRITEABLE : 0;
  nb::object array = checked(PyArray_NewFromDescr(&PyArray_Type, descr_of(x.dtype), x.ndim, shape, strides,
                                                  address_of(x), flags, nullptr));
  Chunk* chunk = share.take();
  PyObject* owner = PyCapsule_New(chunk, "weft.memory", [](PyObject* capsule) {
    Share::end(static_cast<Chunk*>(PyCapsule_GetPointer(capsule, "weft.memory")));
  });
  if (!owner) {
    Share::end(chunk);
    throw nb::python_error();
  }
  if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(array.ptr()), owner) < 0)
    throw nb::python_error();
  return array;
}

// The buffer protocol.

namespace {

// Set while a buffer is taken that nobody will write: then readers need not be waited for.
thread_local bool only_reading = false;

struct Exported {
  int64_t shape[kMaxDims], strides[kMaxDims];
  Chunk* chunk;
};

}  // namespace

int get_buffer(PyObject* self, Py_buffer* buffer, int flags) noexcept {
  buffer->obj = nullptr;
  return guarded<int>(-1, [&] {
    tell_of_export(self);
    const Tensor& x = self_of(self);
    const bool may_write = writable(x) && !only_reading;
    auto need = [](bool condition, const char* what) {
      if (!condition) throw BufferError(what);
    };
    need(!hidden_memory_of(x.device()), "the tensor is on a GPU; use numpy(), which copies");
    need(info_of(x.dtype).format, "bfloat16 has no format in the buffer protocol; use numpy() or DLPack");
    need(!(flags & PyBUF_WRITABLE) || may_write, "the tensor's memory is read-only");
    need((flags & PyBUF_STRIDES) == PyBUF_STRIDES || x.contiguous(), "the tensor is not contiguous");
    const bool c = x.contiguous(), fortran = reversed(x).contiguous();
    auto asks = [flags](int bits) { return (flags & bits) == bits; };
    need(!asks(PyBUF_C_CONTIGUOUS) || c, "the tensor is not contiguous");
    need(!asks(PyBUF_F_CONTIGUOUS) || fortran, "the tensor is not contiguous in Fortran's order");
    need(!asks(PyBUF_ANY_CONTIGUOUS) || c || fortran, "the tensor is not contiguous");
    Share share(x);
    wait_for(x, may_write);
    auto* exported = new Exported;
    const auto itemsize = static_cast<Py_ssize_t>(x.itemsize());
    put_geometry(x, exported->shape, exported->strides);
    exported->chunk = share.take();
    buffer->obj = nb::borrow(self).release().ptr();
    buffer->buf = address_of(x);
    buffer->len = x.size * itemsize;
    buffer->itemsize = itemsize;
    buffer->readonly = !may_write;
    buffer->format = flags & PyBUF_FORMAT ? const_cast<char*>(info_of(x.dtype).format) : nullptr;
    buffer->ndim = x.ndim;
    buffer->shape = (flags & PyBUF_ND) == PyBUF_ND ? exported->shape : nullptr;
    buffer->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? exported->strides : nullptr;
    buffer->suboffsets = nullptr;
    buffer->internal = exported;
    return 0;
  });
}

void release_buffer(PyObject*, Py_buffer* buffer) noexcept {
  auto* exported = static_cast<Exported*>(buffer->internal);
  Share::end(exported->chunk);
  delete exported;
}

namespace {

void check_is_host(nb::handle device, const char* function) {
  const Device where = as_tensor_device(device);
  if (hidden_memory_of(where))
    throw DeviceError(std::string(function) + ": memory of the host cannot be an array on " +
                      to_string(where) + "; copy it there");
}

// Who ends a foreign array may need the GIL, and comes from any thread.
void release_foreign_buffer(void* owner) noexcept {
  auto* buffer = static_cast<Py_buffer*>(owner);
  if (!python_is_ending()) {
    const WithGil gil;
    PyBuffer_Release(buffer);
  }
  delete buffer;
}

// Releases it unless it has been taken over.
struct BufferGuard {
  Py_buffer* buffer;
  ~BufferGuard() {
    if (buffer) PyBuffer_Release(buffer);
  }
};

// A Tensor over the memory of an object with the buffer protocol. Raises BufferError if the strides are not
// whole elements.
nb::object from_buffer(nb::handle object, nb::handle device) {
  check_is_host(device, "from_buffer");
  auto buffer = std::make_unique<Py_buffer>();
  bool read_only = false;
  if (PyObject_GetBuffer(object.ptr(), buffer.get(), PyBUF_RECORDS) < 0) {
    PyErr_Clear();
    read_only = true;
    if (PyObject_GetBuffer(object.ptr(), buffer.get(), PyBUF_RECORDS_RO) < 0) throw nb::python_error();
  }
  BufferGuard guard{buffer.get()};
  Tensor x;
  x.dtype = dtype_of_format(buffer->format, static_cast<size_t>(buffer->itemsize));
  x.data = static_cast<char*>(buffer->buf);
  if (buffer->ndim > kMaxDims)
    throw ShapeError("asarray: at most " + std::to_string(kMaxDims) + " dimensions, got " +
                     std::to_string(buffer->ndim));
  x.ndim = buffer->ndim;
  x.size = 1;
  for (int i = 0; i < x.ndim; ++i) {
    x.shape[i] = buffer->shape[i];
    x.size *= x.shape[i];
    if (buffer->strides[i] % buffer->itemsize != 0 && x.shape[i] > 1)
      throw BufferError("asarray: strides are not whole elements");
    x.strides[i] = buffer->strides[i] / buffer->itemsize;
  }
  adopt(x, as_tensor_device(device), release_foreign_buffer, buffer.get(), read_only || buffer->readonly,
        "asarray");
  guard.buffer = nullptr;
  static_cast<void>(buffer.release());
  return wrap(std::move(x));
}

// A row-major Tensor over part of a writable buffer that nobody else uses, such as a private mapping of a
// file.
nb::object over_buffer(nb::handle object, Py_ssize_t offset, nb::handle shape, nb::handle dtype,
                       nb::handle device) {
  check_is_host(device, "tensor_from_buffer");
  const Shape sizes = as_shape(shape, "tensor_from_buffer");
  Tensor x;
  x.dtype = as_dtype(dtype);
  x.size = checked_size(sizes, x.itemsize());
  x.ndim = sizes.ndim;
  std::copy_n(sizes.sizes, sizes.ndim, x.shape);
  row_major(sizes, x.strides);
  auto buffer = std::make_unique<Py_buffer>();
  if (PyObject_GetBuffer(object.ptr(), buffer.get(), PyBUF_WRITABLE) < 0) throw nb::python_error();
  BufferGuard guard{buffer.get()};
  const auto bytes = static_cast<Py_ssize_t>(static_cast<size_t>(x.size) * x.itemsize());
  x.data = static_cast<char*>(buffer->buf) + offset;
  // Where no elements are, Python's empty buffers have any address.
  const bool is_aligned = bytes == 0 || reinterpret_cast<uintptr_t>(x.data) % x.itemsize() == 0;
  if (offset < 0 || bytes > buffer->len - offset || !is_aligned) {
    throw ValueError("tensor_from_buffer: " + std::to_string(bytes) + " bytes at " + std::to_string(offset) +
                     " do not lie in the buffer, or not aligned to the elements");
  }
  Chunk::Foreign foreign{x.data, static_cast<size_t>(bytes), release_foreign_buffer, buffer.get(), false,
                         false};
  x.chunk = Chunk::adopt(as_tensor_device(device), foreign);
  guard.buffer = nullptr;
  static_cast<void>(buffer.release());
  return wrap(std::move(x));
}

// The elements of a contiguous tensor as bytes; waits for writers.
nb::object memory(nb::handle object) {
  const Tensor& whole = tensor_of(object, "memory");
  if (!whole.contiguous()) throw ValueError("memory: x is not contiguous: x is " + describe(whole));
  const bool is_hidden = hidden_memory_of(whole.device());
  const Tensor x = is_hidden ? fetched(whole) : whole;
  if (!is_hidden) wait_for(x);
  Tensor bytes = x;
  bytes.dtype = DType::uint8;
  bytes.ndim = 1;
  bytes.size = bytes.shape[0] = x.size * static_cast<int64_t>(x.itemsize());
  bytes.strides[0] = 1;
  nb::object flat = wrap(std::move(bytes));
  only_reading = true;
  nb::object view = nb::steal(PyMemoryView_FromObject(flat.ptr()));
  only_reading = false;
  if (!view.is_valid()) throw nb::python_error();
  return view;
}

// x[...] = elements, row-major bytes of its type in a buffer of the host, here and now: for functions of the
// engine, in which an operation that is pushed would run too late.
void write_now(nb::handle object, nb::handle elements) {
  const Tensor& x = tensor_of(object, "write_now");
  check_writable(x, "write_now");
  Py_buffer buffer;
  if (PyObject_GetBuffer(elements.ptr(), &buffer, PyBUF_SIMPLE) < 0) throw nb::python_error();
  const BufferGuard guard{&buffer};
  const auto bytes = static_cast<Py_ssize_t>(static_cast<size_t>(x.size) * x.itemsize());
  if (buffer.len != bytes)
    throw ValueError("write_now: got " + std::to_string(buffer.len) + " bytes, x takes " +
                     std::to_string(bytes) + ": x is " + describe(x));
  wait_for(x, true);
  int64_t strides[kMaxDims];
  row_major(x.dims(), strides);
  const View from{static_cast<char*>(buffer.buf), x.dtype, x.ndim, x.shape, strides};
  const Blocking blocking;
  copy_elements(x.view(), x.device(), from, {});
}

// DLPack.

constexpr const char* kNames[2] = {"dltensor", "dltensor_versioned"};
constexpr const char* kUsedNames[2] = {"used_dltensor", "used_dltensor_versioned"};

nb::object to_capsule(Loan* loan, bool versioned) {
  void* pointer = versioned ? static_cast<void*>(&loan->versioned) : &loan->managed;
  PyObject* capsule = PyCapsule_New(pointer, kNames[versioned], [](PyObject* self) {
    // Under its used name the consumer has taken the tensor over.
    const auto end = [&]<class M>(const char* name, M*) {
      if (PyCapsule_IsValid(self, name))
        static_cast<Loan*>(static_cast<M*>(PyCapsule_GetPointer(self, name))->context)->end();
    };
    end(kNames[1], static_cast<dlpack::ManagedVersioned*>(nullptr));
    end(kNames[0], static_cast<dlpack::Managed*>(nullptr));
  });
  if (!capsule) {
    loan->end();
    throw nb::python_error();
  }
  return nb::steal(capsule);
}

// What reads first, by __dlpack__'s stream. Of CUDA: None is the default stream, in whose place the host
// waits; -1 nothing; 1 and 2 the default streams by the driver's names.
Reader reader_of(nb::handle stream, Device device) {
  if (!hidden_memory_of(device)) {
    if (!stream.is_none()) throw ValueError("__dlpack__: a cpu has no streams; stream must be None");
    return {};
  }
  if (stream.is_none()) return {};
  const auto number = nb::cast<int64_t>(stream);
  if (number == 0 || number < -1)
    throw ValueError("__dlpack__: stream is None, -1, 1, 2 or a stream's address; got " +
                     std::to_string(number));
  return {false, number == -1 ? nullptr : reinterpret_cast<void*>(number)};
}

nb::object dlpack_of(nb::handle self, nb::handle stream, nb::handle max_version, nb::handle dl_device,
                     nb::handle copy) {
  const Tensor& x = tensor_of(self, "__dlpack__");
  const dlpack::Device here = to_dlpack(x.device());
  const dlpack::Device asked =
      dl_device.is_none() ? here : dlpack::Device{nb::cast<int>(dl_device[0]), nb::cast<int>(dl_device[1])};
  const bool versioned = !max_version.is_none() && nb::cast<int>(max_version[0]) >= 1;
  const bool copied = copy.ptr() == Py_True;
  if (asked.type != here.type || (here.type != dlpack::kCpu && asked.index != here.index)) {
    if (here.type == dlpack::kCpu) throw BufferError("__dlpack__: only the cpu, (1, 0), can be asked for");
    if (asked.type != dlpack::kCpu || copy.ptr() == Py_False)
      throw BufferError("__dlpack__: x is on " + to_string(x.device()) + "; " +
                        (asked.type == dlpack::kCpu
                             ? "copy=False gives no copy on the cpu"
                             : "besides, a copy on the cpu, (1, 0), can be asked for"));
    return to_capsule(Loan::make(fetched(x), true), versioned);
  }
  const Reader reader = reader_of(stream, x.device());
  const Tensor from = copied ? copy_of(x, x.dtype, x.device()) : x;
  if (!versioned && !writable(from))
    throw BufferError("__dlpack__: read-only memory needs DLPack 1.0; pass max_version");
  return to_capsule(Loan::make(from, copied, reader), versioned);
}

// (type, index); raises BufferError for devices that DLPack has no name for.
nb::object dlpack_device_of(nb::handle self) {
  const dlpack::Device device = to_dlpack(tensor_of(self, "__dlpack_device__").device());
  return nb::make_tuple(device.type, device.index);
}

// The stream that an array of another library has to be ready for, by its device; None: of a cpu.
nb::object dlpack_stream(int type, int index) {
  const Device device = from_dlpack(dlpack::Device{type, index});
  DeviceBackend* const backend = hidden_memory_of(device);
  if (!backend) return nb::none();
  return nb::int_(reinterpret_cast<intptr_t>(backend->stream(index, QueueKind::compute)));
}

template <class M>
void return_foreign(void* owner) noexcept {
  auto* managed = static_cast<M*>(owner);
  if (!managed->deleter || python_is_ending()) return;
  const WithGil gil;  // some libraries' deleters rely on it
  managed->deleter(managed);
}

template <class M>
Tensor adopt_dlpack(M* managed, bool read_only, Device device) {
  return take_over(managed->tensor, device, return_foreign<M>, managed, read_only);
}

// Takes the tensor in the capsule over; on an error until then the capsule keeps it.
nb::object from_capsule(nb::handle capsule, nb::handle device) {
  const Device where = as_tensor_device(device);
  Tensor result;
  bool versioned = false;
  if (PyCapsule_IsValid(capsule.ptr(), kNames[1])) {
    versioned = true;
    auto* managed = static_cast<dlpack::ManagedVersioned*>(PyCapsule_GetPointer(capsule.ptr(), kNames[1]));
    if (managed->version.major > 1)
      throw BufferError("from_dlpack: the array comes with a version of DLPack above 1");
    result = adopt_dlpack(managed, managed->flags & dlpack::ManagedVersioned::kReadOnly, where);
  } else if (PyCapsule_IsValid(capsule.ptr(), kNames[0])) {
    result = adopt_dlpack(static_cast<dlpack::Managed*>(PyCapsule_GetPointer(capsule.ptr(), kNames[0])),
                          false, where);
  } else {
    throw nb::type_error("from_dlpack: expected a DLPack capsule that nobody has consumed yet");
  }
  PyCapsule_SetName(capsule.ptr(), kUsedNames[versioned]);
  return wrap(std::move(result));
}

// The C exchange API.

int api_allocate(dlpack::Tensor* prototype, dlpack::ManagedVersioned** result, void* error_context,
                 void (*set_error)(void*, const char*, const char*)) {
  try {
    const Dims shape{prototype->shape, static_cast<size_t>(prototype->ndim)};
    const Device device = from_dlpack(prototype->device);
    *result = &Loan::make(Tensor::empty(shape, from_dlpack(prototype->dtype), device), false)->versioned;
    return 0;
  } catch (const std::exception& error) {
    set_error(error_context, "MemoryError", error.what());
    return -1;
  }
}

int api_from_object(void* object, dlpack::ManagedVersioned** result) {
  return guarded<int>(-1, [&] {
    *result = &Loan::make(tensor_of(static_cast<PyObject*>(object), "DLPack"), false)->versioned;
    return 0;
  });
}

int api_to_object(dlpack::ManagedVersioned* tensor, void** object) {
  return guarded<int>(-1, [&] {
    *object =
        wrap(adopt_dlpack(tensor, tensor->flags & dlpack::ManagedVersioned::kReadOnly, {})).release().ptr();
    return 0;
  });
}

// Valid as long as the object is, and until its shape changes, which no Tensor's does.
int api_borrow(void* object, dlpack::Tensor* result) {
  return guarded<int>(-1, [&] {
    *result = lend(tensor_of(static_cast<PyObject*>(object), "DLPack"));
    return 0;
  });
}

int api_stream(int32_t type, int32_t index, void** result) {
  return guarded<int>(-1, [&] {
    const Device device = from_dlpack(dlpack::Device{type, index});
    DeviceBackend* const backend = hidden_memory_of(device);
    *result = backend ? backend->stream(index, QueueKind::compute) : nullptr;
    return 0;
  });
}

dlpack::ExchangeApi exchange_api{{{1, 3}, nullptr}, api_allocate, api_from_object,
                                 api_to_object,     api_borrow,   api_stream};

}  // namespace

void bind_exchange(nb::module_& m) {
  def(m, "from_buffer", from_buffer, "object"_a, "device"_a = nb::none());
  def(m, "tensor_from_buffer", over_buffer, "buffer"_a, "offset"_a, "shape"_a, "dtype"_a,
      "device"_a = nb::none());
  def(m, "memory", memory);
  def(m, "write_now", write_now);
  def(m, "dlpack_of", dlpack_of, "x"_a, "stream"_a.none(), "max_version"_a.none(), "dl_device"_a.none(),
      "copy"_a.none());
  def(m, "dlpack_device_of", dlpack_device_of);
  def(m, "dlpack_stream", dlpack_stream, "type"_a, "index"_a,
      "The address of the stream that an array of another library has to be ready for; None on a cpu.");
  def(m, "from_dlpack_capsule", from_capsule, "capsule"_a, "device"_a = nb::none());
  nb::object type = nb::borrow(reinterpret_cast<PyObject*>(tensor_type));
  type.attr("__dlpack_c_exchange_api__") =
      nb::steal(PyCapsule_New(&exchange_api, "dlpack_exchange_api", nullptr));
}

}  // namespace weft
