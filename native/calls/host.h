// host.h: what calls need of the language that makes them, without knowing it. The bindings define it for
// Python (python.cpp, host.cpp), native tests have a stand-in.
//
// All of it is called under the language's lock, but for release_later.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/ref.h"

struct _object;  // of the language; whole only there

namespace weft {

class TapeNode;
struct LoggedProgram;
struct LoggedSegment;
struct Plan;
struct Tracked;

// Drops a reference with or without the lock, on any thread, and runs nothing of the language: the last one
// is kept until the next call from it. Null: none.
void release_later(_object* object) noexcept;
// Drops it at once.
void release_now(_object* object) noexcept;

// Where code of the language pushes: cheap to take, decoded only when it is shown. Owns its code object,
// which it releases by release_later, on any thread.
class Site {
 public:
  Site() noexcept = default;
  Site(_object* code, int instruction) noexcept
      : code_(code), instruction_(instruction) {}  // takes code over
  Site(Site&& other) noexcept
      : code_(std::exchange(other.code_, nullptr)), instruction_(other.instruction_) {}
  Site& operator=(Site other) noexcept {
    std::swap(code_, other.code_);
    std::swap(instruction_, other.instruction_);
    return *this;
  }
  ~Site() { release_later(code_); }

  static Site here();                               // of the innermost frame of user code
  static Site here_if_locked() noexcept;            // none where this thread does not hold the lock
  std::string text() const noexcept;                // "file.py:41"
  _object* code() const noexcept { return code_; }  // borrowed; null: no frame
  int instruction() const noexcept { return instruction_; }
  _object* release() noexcept { return std::exchange(code_, nullptr); }  // the caller owns it now

 private:
  _object* code_ = nullptr;
  int instruction_ = 0;
};

namespace host {

// The planner: the plan of a plan's gradients, null if all are zero; and what a program of many operators
// needs that is recorded: its plan for that, null: itself, and its writes, (output, input). May throw what a
// rule throws.
Ref<Plan> plan_backward(const Plan& plan, const std::vector<bool>& needs_gradient,
                        const std::vector<bool>& has_cotangent);
std::pair<Ref<Plan>, std::vector<std::pair<size_t, size_t>>> plan_recording(const Plan& plan);

// The sum of two gradients, as the operator has it: recorded where recording is on.
Tracked sum(Tracked&& a, Tracked&& b);
// What the function of a node (TapeNode::function) makes of the gradients of its outputs: for each input one,
// or none.
std::vector<std::optional<Tracked>> call_backward(const TapeNode& node, std::vector<Tracked>&& cotangents);
// The module of a call that is made, as Context::module; for calls that are written down.
uint32_t module_of_call();

// The program of a segment that is new (lazy_log.h); and the notice that its target's segment ends because an
// array is read.
LoggedProgram program_of(const LoggedSegment& segment);
void note_break(_object* target);

}  // namespace host

}  // namespace weft
