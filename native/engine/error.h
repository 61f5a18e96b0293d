// error.h: what is known of a failed operation, and the exceptions of the engine's own functions.
//
// An Error is made once, where an operation fails, and then shared by everything that the failure poisons.
// It is immutable but for two flags. Errors may hold objects of a host language
// (a Python exception): the last reference is never dropped under the engine lock.
#pragma once

#include <atomic>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/ref.h"

namespace weft {

class Error : public Counted<Error> {
 public:
  explicit Error(std::string text, std::exception_ptr thrown = {})
      : message(std::move(text)), cause(thrown) {}
  virtual ~Error() = default;

  std::string operation;      // name of the operation that failed first
  std::string where;          // the line that pushed it, "" if unknown
  const std::string message;  // what it threw, as text
  const std::exception_ptr cause;
  bool handled = false;           // cleared explicitly: wait_for_all need not report it (engine lock)
  std::atomic<bool> seen{false};  // it has been reported
};

// Thrown by the body of a task that has made its Error already (the Python binding does).
struct TaskFailure {
  Ref<Error> error;
};

// Thrown by waits: the operation whose result was waited for failed.
class OperationFailed : public std::exception {
 public:
  explicit OperationFailed(std::vector<Ref<Error>> causes) : errors(std::move(causes)) {
    for (const Ref<Error>& error : errors) error->seen.store(true, std::memory_order_relaxed);
  }
  const char* what() const noexcept override { return errors.front()->message.c_str(); }
  const std::vector<Ref<Error>> errors;  // never empty; several only from wait_for_all
};

// Thrown by the engine's functions when the call itself is wrong; nothing has happened then.
class EngineMisuse : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class TimedOut : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A wait was broken off at the host's request (Ctrl-C). What was waited for goes on.
struct Interrupted {};

// A function that might have gone on for ever has been ended.
struct LoopEnded : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The exception that is being handled, as an Error.
Ref<Error> error_from_current_exception();

// Raised as the classes of these names in weft.base.errors.
struct ShapeError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct DTypeError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct DeviceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// Python's IndexError and ValueError.
struct IndexError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct ValueError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace weft
