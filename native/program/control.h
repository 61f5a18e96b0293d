// control.h: kernels that run programs: loops and branches as one step of another program.
//
// The programs are plans for exact sizes, whose inputs are arrays; they draw no random numbers and write no
// inputs. They run on the thread and in the scratch memory of the kernel; nothing is pushed.
//
// A state is a row-major array. Its first value is an operand; each run of a body reads one place and writes
// another, so a body never reads what it writes.
#pragma once

#include <variant>
#include <vector>

#include "program/program.h"

namespace weft {

// Programs: body. For every slice of `sequences` along their first axis: body(slices, states, rest) ->
// states, items. Operands: [count: int64,] sequences, states, rest -> final states, stacked items, and of the
// states in `saved` the stacks of what each run began with. reverse: from the last slice to the first.
// counted: only the first `count` slices; the rest of what is stacked is zero.
struct ForeachForm {
  int sequences, states, rest, items;
  std::vector<bool> saved;  // for each state
  bool reverse, counted;
};

// Programs: condition, body. While condition(states, rest), at most `limit` times (< 0: as often as it
// holds): body(states, rest) -> states. Operands: states, rest -> final states, [count: int64,] stacks of
// what each run began with, as above, of length `limit`.
struct WhileForm {
  int states, rest;
  int64_t limit;
  bool counted;
  std::vector<bool> saved;
};

// Programs: then, otherwise. Operands: a bool, inputs -> outputs of the one program or the other, which both
// take all inputs.
struct CondForm {
  int inputs;
};

// What such a kernel is made of, which it gives back (Kernel::control_form).
struct ControlForm {
  std::vector<Ref<const Program>> programs;
  std::variant<ForeachForm, WhileForm, CondForm> form;
};
// Raises ValueError if the programs do not take or give what the form says.
Ref<Kernel> make_control(ControlForm control);

// While a thread has set it, what it runs visits all code: branches that are not taken and bodies of loops
// that end at once run as well, before what they write is written again or cleared, and loops end after two
// turns.
inline thread_local bool visits_all = false;
struct Visit {
  Visit() { visits_all = true; }
  ~Visit() { visits_all = false; }
  Visit(const Visit&) = delete;
};

}  // namespace weft
