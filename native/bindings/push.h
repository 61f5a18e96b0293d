// push.h: arguments from Python that say what an operation reads, writes and waits for.
#pragma once

#include "bindings/functions.h"

namespace weft {

// A Variable or a Tensor, given as `argument`; raises TypeError for anything else.
Var* as_var(nb::handle object, const char* argument);
QueueKind as_queue(nb::handle object);
// None: never.
Deadline as_deadline(nb::handle timeout_s);

// The variables of an argument: a tuple or list, or anything else that can be iterated.
class VarList {
 public:
  VarList(nb::handle argument, const char* name);
  size_t size() const { return size_; }
  const nb::object& tuple() const { return tuple_; }
  void add_to(Op& op, Mode mode) const;
  bool any_tensor() const;

 private:
  nb::handle item(size_t i) const { return PyTuple_GetItem(tuple_.ptr(), static_cast<Py_ssize_t>(i)); }

  nb::object tuple_;
  const char* name_;
  size_t size_;
};

// The variables of a push; they must outlive it, because until it is submitted nothing else holds them.
struct Variables {
  const VarList reads, writes, overwrites;
  Variables(nb::handle const_vars, nb::handle mutate_vars, nb::handle overwrite_vars)
      : reads(const_vars, "const_vars"),
        writes(mutate_vars, "mutate_vars"),
        overwrites(overwrite_vars, "overwrite_vars") {}
  nb::object objects() const { return nb::make_tuple(reads.tuple(), writes.tuple(), overwrites.tuple()); }
};

// Ends an operation that was not submitted.
struct DropOp {
  void operator()(Op* op) const noexcept {
    drop_state(op);
    free_op(op);
  }
};
using OwnedOp = std::unique_ptr<Op, DropOp>;

OwnedOp build_op(nb::handle fn, const Variables& variables, const Description& description, bool is_async);

}  // namespace weft
