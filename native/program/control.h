// control.h: kernels that run programs: loops and branches as one step of another program.
//
// The programs are plans for exact sizes, whose inputs are arrays; they draw no random numbers and write no
// inputs. They run on the thread and in the scratch memory of the kernel; nothing is pushed.
//
// A state is a row-major array. Its first value is an operand; each run of a body reads one place and writes
// another, so a body never reads what it writes.
#pragma once

#include <vector>

#include "program/program.h"

namespace weft {

// For every slice of `sequences` along their first axis: body(slices, states, rest) -> states, items.
// Operands: [count: int64,] sequences, states, rest -> final states, stacked items, and of the states in
// `saved` the stacks of what each run began with. reverse: from the last slice to the first. counted: only
// the first `count` slices; the rest of what is stacked is zero.
struct ForeachForm {
  int sequences, states, rest, items;
  std::vector<bool> saved;  // for each state
  bool reverse, counted;
};
Ref<Kernel> make_foreach(Ref<const Program> body, ForeachForm form);

// While condition(states, rest), at most `limit` times (< 0: as often as it holds): body(states, rest) ->
// states. Operands: states, rest -> final states, [count: int64,] stacks of what each run began with, as
// above, of length `limit`.
struct WhileForm {
  int states, rest;
  int64_t limit;
  bool counted;
  std::vector<bool> saved;
};
Ref<Kernel> make_while(Ref<const Program> condition, Ref<const Program> body, WhileForm form);

// Operands: a bool, inputs -> outputs of the one program or the other, which both take all inputs.
Ref<Kernel> make_cond(Ref<const Program> then, Ref<const Program> otherwise, int inputs);

}  // namespace weft
