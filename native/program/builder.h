// builder.h: how a planner describes a program, one thing at a time.
//
// Kinds are given by method or by word; a word that is none of those accepted raises ValueError,
// and so does anything that refers to what is not there, at the latest in `finish`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "program/program.h"

namespace weft {

// What a random operator draws, by its word: uniform, normal, integers, bits.
Draw draw_of(std::string_view word);
const char* word_of(Draw kind) noexcept;

class ProgramBuilder {
 public:
  // inputs: how many arrays it takes. is_exact: of exact sizes; is_wide: opens parallel regions at all
  // sizes; is_copy: brings an array from another device; is_checked: runs look for steps that touch what is
  // not theirs.
  struct Options {
    bool is_exact = false, is_wide = false, is_copy = false, is_checked = false;
  };
  ProgramBuilder(std::string name, Device device, int inputs, Options options);

  // An input is looked at, as Program::Use has it from 0 on; the most that is said of it counts.
  void use(int input, int how);
  // What an input of an exact program is, in order.
  void add_input(DType dtype, std::vector<int64_t> shape, std::vector<int64_t> strides);

  // Registers; the number of them is what is named.
  void add_constant(int reg, int64_t value);
  void add_load(std::string_view from, int reg, int input, int dimension);  // size, extent, stride
  void add_compute(std::string_view what, int reg, int a, int b);           // add, sub, mul, div

  // Values; each gives the number of the new one. sizes and strides are registers.
  int add_output(DType dtype, int like, std::vector<int> sizes, std::vector<int> strides);
  int add_temporary(DType dtype, int offset, std::vector<int> sizes, std::vector<int> strides);
  int add_kept(DType dtype, std::vector<int> sizes, std::vector<int> strides);
  int add_view(DType dtype, int base, int offset, std::vector<int> sizes, std::vector<int> strides);

  // A value leaves. into: the input whose memory it becomes, -1: none.
  void add_result(int value, int into, bool is_flexible, bool commits);

  // Parameters of kernels: a number of the call, the value of a register, positions of random numbers.
  void add_number(DType dtype, int number);
  void add_register(DType dtype, int reg);
  void add_number_known(DType dtype, double value);
  void add_random_word(DType dtype);
  // Its three words are the parameters from first_slot on. count: a register.
  void add_draw(std::string_view kind, DType dtype, int count, int first_slot);

  void add_step(Ref<Kernel> kernel, std::vector<int> operands, int first_slot, std::string name,
                std::string where, std::vector<std::pair<int, int>> in_place, std::vector<int> written,
                bool is_copy = false);
  // Of the first steps, in order: what each reads and writes to be kept.
  void add_hoisted(std::vector<int> reads, std::vector<int> writes);
  // The arena's size is in a register; of a block in it, the steps between which it is in use.
  void set_arena(int reg);
  void add_span(int first, int last, int64_t offset, int64_t bytes);

  // A program of several devices: a part, and where results are (Program::parts).
  void add_part(Ref<const Program> program, std::vector<int> inputs, std::vector<int> numbers,
                std::vector<int> outputs);
  void add_wire(int wire, int into, DType dtype, Device device, const std::vector<int64_t>& shape,
                const std::vector<int64_t>& strides);

  // The program; nothing can be added to it afterwards. serial: of the Recipe that it is made with, 0: none.
  Ref<const Program> finish(int64_t serial);

 private:
  Program& program();
  int add_value(Program::Value value);
  int new_constant(int64_t value);
  void name_register(int reg);

  Ref<Program> program_;  // null: finished
};

}  // namespace weft
