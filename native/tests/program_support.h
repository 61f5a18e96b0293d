// What tests of programs share: plain functions in place of the code that the expression compiler makes, and
// a short form of writing programs down. All numbers are int64, so that results are exact in any order.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "program/loop.h"
#include "program/program.h"
#include "tensor/convert.h"
#include "tests/array_support.h"

namespace weft::testing {

// --- stand-ins for compiled code

// Goes through `loops` loops of operands that move in `rank`: f(places) for each element.
template <int operands, int loops, class F>
void each_element(char* const* data, const int64_t* sizes, const int64_t* strides, int rank, const F& f) {
  if constexpr (loops == 0) {
    f(data);
  } else {
    char* at[operands];
    std::copy_n(data, operands, at);
    for (int64_t i = 0; i < sizes[0]; ++i) {
      each_element<operands, loops - 1>(at, sizes + 1, strides + 1, rank, f);
      for (int k = 0; k < operands; ++k) at[k] += strides[k * rank];
    }
  }
}

inline constexpr int kMostLoops = 5;

// f.template operator()<n>() of a number from 1 to kMostLoops.
template <class F>
Loop::Code for_loops(int number, const F& f) {
  Loop::Code code = nullptr;
  [&]<int... n>(std::integer_sequence<int, n...>) {
    ((number == n + 1 ? void(code = f.template operator()<n + 1>()) : void()), ...);
  }(std::make_integer_sequence<int, kMostLoops>());
  if (!code) throw std::logic_error("the stand-in compiler has no code of so many loops");
  return code;
}

// Code of a Body that computes one element: Body::run(places, parameters).
template <class Body, int rank>
void element_code(char* const* data, const int64_t* sizes, const int64_t* strides, const void* parameters) {
  each_element<Body::operands, rank>(data, sizes, strides, rank,
                                     [&](char* const* at) { Body::run(at, parameters); });
}

// Code of a Body that computes a row: Body::run(places, for_each), for_each(f) for its elements.
template <class Body, int rank, int row_rank>
void row_code(char* const* data, const int64_t* sizes, const int64_t* strides, const void*) {
  constexpr int outer = rank - row_rank;
  each_element<Body::operands, outer>(data, sizes, strides, rank, [&](char* const* row) {
    Body::run(row, [&](const auto& f) {
      each_element<Body::operands, row_rank>(row, sizes + outer, strides + outer, rank, f);
    });
  });
}

template <class Body>
Loop::Code compile_elements(const LoopPattern& pattern) {
  return for_loops(pattern.rank, []<int rank>() { return Loop::Code{&element_code<Body, rank>}; });
}
template <class Body>
Loop::Code compile_rows(const LoopPattern& pattern) {
  return for_loops(pattern.rank, [&]<int rank>() {
    return for_loops(pattern.row_rank, [&]<int row_rank>() {
      if constexpr (row_rank <= rank)
        return Loop::Code{&row_code<Body, rank, row_rank>};
      else
        return Loop::Code{nullptr};
    });
  });
}

inline uint64_t number(const char* at) { return load_as<uint64_t>(at); }

struct Add {  // a, b -> a + b
  static constexpr int operands = 3;
  static void run(char* const* at, const void*) { store_as(at[2], number(at[0]) + number(at[1])); }
};
struct MultiplyAdd {  // a, b, c -> a * b + c
  static constexpr int operands = 4;
  static void run(char* const* at, const void*) {
    store_as(at[3], number(at[0]) * number(at[1]) + number(at[2]));
  }
};
struct Both {  // a, b -> a + 2 b, a - b
  static constexpr int operands = 4;
  static void run(char* const* at, const void*) {
    const uint64_t a = number(at[0]), b = number(at[1]);
    store_as(at[2], a + 2 * b);
    store_as(at[3], a - b);
  }
};
struct Scale {  // a -> a * the first parameter
  static constexpr int operands = 2;
  static void run(char* const* at, const void* parameters) {
    store_as(at[1], number(at[0]) * load_as<uint64_t>(parameters));
  }
};
struct Less {  // a, b -> a < b, a bool
  static constexpr int operands = 3;
  static void run(char* const* at, const void*) {
    store_as(at[2], Bool{static_cast<uint8_t>(load_as<int64_t>(at[0]) < load_as<int64_t>(at[1]))});
  }
};
struct RowSum {  // a -> the sum of the row
  static constexpr int operands = 2;
  static void run(char* const* row, const auto& for_each) {
    uint64_t total = 0;
    for_each([&](char* const* at) { total += number(at[0]); });
    store_as(row[1], total);
  }
};
struct LessSum {  // a -> a less the sum of the row
  static constexpr int operands = 2;
  static void run(char* const*, const auto& for_each) {
    uint64_t total = 0;
    for_each([&](char* const* at) { total += number(at[0]); });
    for_each([&](char* const* at) { store_as(at[1], number(at[0]) - total); });
  }
};
struct Subtract {  // a, b -> a - b
  static constexpr int operands = 3;
  static void run(char* const* at, const void*) { store_as(at[2], number(at[0]) - number(at[1])); }
};

template <class Body>
Ref<Kernel> elements(int outputs = 1, Loop::Compile compile = compile_elements<Body>) {
  return Ref<Kernel>(
      new Loop({.operands = Body::operands, .inputs = Body::operands - outputs}, std::move(compile)));
}
template <class Body>
Ref<Kernel> rows(uint32_t row_axes, Loop::Split split = {}, Loop::MakeStages make_stages = {}) {
  return Ref<Kernel>(
      new Loop({.operands = Body::operands, .inputs = Body::operands - 1, .row_axes = row_axes},
               compile_rows<Body>, std::move(split), std::move(make_stages)));
}
// Sums that threads share: one long row in pieces.
inline Ref<Kernel> row_sum(uint32_t row_axes) {
  return rows<RowSum>(row_axes, {.part = rows<RowSum>(1), .join = rows<RowSum>(1), .dtypes = {DType::int64}});
}
// a less the sum of its row, whose stages are a sum of pieces, and what is made of that.
inline Ref<Kernel> less_sum(uint32_t row_axes) {
  return rows<LessSum>(row_axes, {}, [] {
    using Stage = Loop::Stage;
    Loop::Stages stages;
    stages.push_back({.kind = Stage::Kind::fold,
                      .loop = rows<RowSum>(1),
                      .join = rows<RowSum>(1),
                      .part = {},
                      .pieces = {DType::int64},
                      .numbers = {DType::int64}});
    stages.push_back({.kind = Stage::Kind::each,
                      .loop = elements<Subtract>(),
                      .join = {},
                      .part = {},
                      .pieces = {},
                      .numbers = {}});
    return stages;
  });
}

// Fails as often as it runs.
class Failing final : public Kernel {
 public:
  explicit Failing(int operands) : operands_(operands) {}
  void run(const Call&) const override { throw IndexError("planned"); }
  int operand_count() const override { return operands_; }

 private:
  const int operands_;
};

// --- programs

// Writes a program of known sizes; values are named by the numbers that the functions return.
class Draft {
 public:
  explicit Draft(std::string name = "test") { program->name = std::move(name); }

  int reg(int64_t constant) {
    const auto [it, added] = registers_.try_emplace(constant, program->registers);
    if (added) {
      program->constants.emplace_back(program->registers, constant);
      ++program->registers;
    }
    return it->second;
  }
  // All inputs come before other values.
  int input(const Sizes& shape, DType dtype = DType::int64, Sizes strides = {}) {
    if (strides.empty()) strides = dense(shape);
    program->planned_inputs.push_back({dtype, shape, strides});
    program->uses.push_back(Program::Use::data);
    return static_cast<int>(program->uses.size()) - 1;
  }
  int output(const Sizes& shape, DType dtype = DType::int64) {
    const int value = add({Program::Value::Kind::output, dtype, -1, -1, -1, regs(shape), regs(dense(shape))});
    Program::Output leaves{};
    leaves.value = value;
    leaves.flexible = true;
    program->outputs.push_back(leaves);
    return value;
  }
  // An output that is the new content of an input; commits: a state that an update leaves whole.
  int write(int input, const Sizes& shape, bool commits = false) {
    const int value = output(shape, program->planned_inputs[static_cast<size_t>(input)].dtype);
    program->outputs.back().writes = input;
    program->outputs.back().commits = commits;
    return value;
  }
  int temporary(const Sizes& shape, DType dtype = DType::int64) {
    int64_t bytes = static_cast<int64_t>(size_of(dtype));
    for (const int64_t size : shape) bytes *= size;
    const int value =
        add({Program::Value::Kind::temporary, dtype, -1, reg(arena_), -1, regs(shape), regs(dense(shape))});
    arena_ += (bytes + 63) / 64 * 64;
    return value;
  }
  int view(int base, const Sizes& shape, const Sizes& strides, int64_t offset = 0) {
    return add({Program::Value::Kind::view, DType::int64, base, reg(offset), -1, regs(shape), regs(strides)});
  }
  int kept(const Sizes& shape) {
    return add({Program::Value::Kind::prepacked, DType::int64, -1, -1, -1, regs(shape), regs(dense(shape))});
  }
  void step(Ref<Kernel> kernel, std::vector<int> operands, const char* name = "step", int first_slot = 0) {
    program->steps.push_back({std::move(kernel), std::move(operands), first_slot, name, "line 1"});
  }
  Ref<const Program> finish(bool exact = true) {
    if (arena_) program->arena_bytes = reg(arena_);
    program->exact = exact;
    program->finish();
    return Ref<const Program>(program.get());
  }

  static Sizes dense(const Sizes& shape) {
    Sizes strides(shape.size());
    int64_t step = 1;
    for (size_t d = shape.size(); d-- > 0;) {
      strides[d] = step;
      step *= std::max<int64_t>(shape[d], 1);
    }
    return strides;
  }

  const Ref<Program> program = make_ref<Program>();

 private:
  std::vector<int> regs(const Sizes& numbers) {
    std::vector<int> found;
    for (const int64_t constant : numbers) found.push_back(reg(constant));
    return found;
  }
  int add(Program::Value value) {
    program->values.push_back(std::move(value));
    return static_cast<int>(program->uses.size() + program->values.size()) - 1;
  }

  std::map<int64_t, int> registers_;
  int64_t arena_ = 0;
};

inline std::vector<Tensor> launch(const Program& program, const std::vector<Tensor>& inputs,
                                  const std::vector<Scalar>& numbers = {},
                                  const std::vector<const Tensor*>& destinations = {}) {
  std::vector<const Tensor*> given;
  for (const Tensor& x : inputs) given.push_back(&x);
  std::vector<Tensor> results(program.outputs.size());
  std::vector<Tensor*> places;
  for (Tensor& x : results) places.push_back(&x);
  program.launch(given, numbers, destinations, places.data());
  return results;
}

// y = a * b + c, z = y + a, of int64 [n].
inline Ref<const Program> two_steps(int64_t n, bool exact = true) {
  Draft draft("two_steps");
  const int a = draft.input({n}), b = draft.input({n}), c = draft.input({n});
  const int y = draft.temporary({n}), z = draft.output({n});
  draft.step(elements<MultiplyAdd>(), {a, b, c, y}, "multiply_add");
  draft.step(elements<Add>(), {y, a, z}, "add");
  return draft.finish(exact);
}

// Runs the body in threads of their own, with their numbers; fails with what they throw.
inline void in_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  Log<std::string> failures;
  for (int t = 0; t < count; ++t)
    threads.emplace_back([&, t] {
      try {
        body(t);
      } catch (const std::exception& error) {
        failures.add(error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(failures.items(), std::vector<std::string>{});
}

}  // namespace weft::testing
