#include "bindings/push.h"

#include "bindings/tensor.h"
#include "tensor/array_recorder.h"

namespace weft {

Var* as_var(nb::handle object, const char* argument) {
  if (PyVariable* variable = as<PyVariable>(object)) return variable->var.get();
  if (PyMemory* memory = as<PyMemory>(object)) {
    if (!memory->chunk) throw nb::value_error("the memory has been freed");
    return memory->chunk.get();
  }
  if (is_tensor(object)) {
    if (context().recorder) context().recorder->on_await(self_of(object.ptr()));
    return self_of(object.ptr()).chunk.get();
  }
  throw type_error(std::string(argument) +
                   ": expected a Variable made by new_variable(), a Tensor or a Memory, got " +
                   type_of(object));
}

VarList::VarList(nb::handle argument, const char* name) : name_(name) {
  if (PyTuple_Check(argument.ptr())) {
    tuple_ = nb::borrow(argument);
  } else {
    const bool single =
        nb::isinstance<PyVariable>(argument) || nb::isinstance<PyMemory>(argument) || is_tensor(argument);
    PyObject* tuple = single ? nullptr : PySequence_Tuple(argument.ptr());
    if (!tuple && PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError)) throw nb::python_error();
    if (!tuple) {
      PyErr_Clear();
      throw type_error(std::string(name) + " must be a sequence of Variables and Tensors, got " +
                       type_of(argument));
    }
    tuple_ = nb::steal(tuple);
  }
  size_ = static_cast<size_t>(PyTuple_Size(tuple_.ptr()));
}

void VarList::add_to(Op& op, Mode mode) const {
  for (size_t i = 0; i < size_; ++i) op.add(as_var(item(i), name_), mode);
}

bool VarList::any_tensor() const {
  for (size_t i = 0; i < size_; ++i)
    if (is_tensor(item(i)) || nb::isinstance<PyMemory>(item(i))) return true;
  return false;
}

QueueKind as_queue(nb::handle object) {
  if (PyUnicode_Check(object.ptr())) {
    const char* text = PyUnicode_AsUTF8AndSize(object.ptr(), nullptr);
    for (int i = 0; text && i < kQueueKinds; ++i)
      if (std::strcmp(text, queue_name(static_cast<QueueKind>(i))) == 0) return static_cast<QueueKind>(i);
  }
  throw value_error("queue must be 'compute', 'wide', 'copy', 'io' or 'priority', not " +
                    to_utf8(nb::repr(object)));
}

Deadline as_deadline(nb::handle timeout_s) {
  if (timeout_s.is_none()) return kNever;
  double seconds = -1;
  if (!nb::try_cast(timeout_s, seconds))
    throw nb::type_error("timeout_s must be a number of seconds or None");
  if (!(seconds >= 0)) throw nb::value_error("timeout_s must be a number of seconds, at least 0, or None");
  if (seconds > 1e9) return kNever;
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

OwnedOp build_op(nb::handle fn, const Variables& variables, const Description& description, bool is_async) {
  const auto& [reads, writes, overwrites] = variables;
  OwnedOp op(new_op(reads.size() + writes.size() + overwrites.size()));
  writes.add_to(*op, Mode::write);
  overwrites.add_to(*op, Mode::overwrite);
  reads.add_to(*op, Mode::read);
  set_function(*op, fn, description, is_async);
  if (reads.any_tensor() || writes.any_tensor() || overwrites.any_tensor()) op->retain_variables();
  return op;
}

}  // namespace weft
