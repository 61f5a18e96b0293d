#include "program/control.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "engine/engine.h"
#include "program/inner.h"
#include "tensor/staging.h"

namespace weft {
namespace {

View at(const View& x, char* data) noexcept { return {data, x.dtype, x.ndim, x.shape, x.strides}; }
// x[p]
View slice(const View& x, int64_t p) noexcept {
  return {x.data + p * x.strides[0] * static_cast<int64_t>(size_of(x.dtype)), x.dtype, x.ndim - 1,
          x.shape + 1, x.strides + 1};
}
void clear(const View& x, const RunContext& context) {
  Scalar zero{Scalar::Kind::integer, {}};
  zero.integer = 0;
  fill_elements(x, context.device, zero);
}
// An element that decides what runs: on a device with memory of its own, the host waits for it here.
Scalar read(const View& x, const RunContext& context) {
  return load_element(x.data, x.dtype, context.device);
}

void check_interrupts(const char* loop, int64_t turns, const RunContext& context) {
  if (!context.engine) return;
  try {
    context.engine->check_interrupts(context);
  } catch (const LoopEnded& ended) {
    throw LoopEnded(std::string(loop) + " after " + std::to_string(turns) + " turns: " + ended.what());
  }
}

// Where each run of a body finds the states: slices of a stack, or two buffers in turn.
class States {
 public:
  // first: geometry of one state; stacks: null data where it is not saved.
  States(const View* first, std::vector<View> stacks, char* scratch)
      : first_(first), stacks_(std::move(stacks)) {
    for (size_t k = 0; k < stacks_.size(); ++k) {
      buffers_.push_back(scratch);
      scratch += 2 * aligned(bytes_of(first[k]));
    }
  }
  static size_t bytes(const View* first, size_t count) noexcept {
    size_t sum = 0;
    for (size_t k = 0; k < count; ++k) sum += 2 * aligned(bytes_of(first[k]));
    return sum;
  }
  // What run `t` reads, whose position in the stacks is `p`; p < 0: in no stack.
  View in(size_t k, int64_t t, int64_t p) const noexcept {
    if (p >= 0 && stacks_[k].data) return slice(stacks_[k], p);
    return at(first_[k], buffers_[k] + (t % 2 ? aligned(bytes_of(first_[k])) : 0));
  }

 private:
  const View* const first_;
  const std::vector<View> stacks_;
  std::vector<char*> buffers_;
};

// The geometries of row-major arrays like some others.
class RowMajor {
 public:
  RowMajor(const View* like, size_t count) {
    strides_.resize(count * kMaxDims);
    for (size_t k = 0; k < count; ++k) {
      int64_t* strides = strides_.data() + k * kMaxDims;
      row_major({like[k].shape, static_cast<size_t>(like[k].ndim)}, strides);
      views_.push_back({nullptr, like[k].dtype, like[k].ndim, like[k].shape, strides});
    }
  }
  const View* get() const noexcept { return views_.data(); }

 private:
  std::vector<int64_t> strides_;
  std::vector<View> views_;
};

// The stacks of saved states among outputs, null where a state is not saved.
std::vector<View> stacks_of(const std::vector<bool>& saved, const View* outputs) {
  std::vector<View> stacks;
  for (const bool is : saved) stacks.push_back(is ? *outputs++ : View{});
  return stacks;
}

class Foreach final : public Kernel {
 public:
  explicit Foreach(ControlForm control)
      : control_(std::move(control)),
        form_(std::get<ForeachForm>(control_.form)),
        body_(control_.programs[0]) {}

  const ControlForm* control_form() const override { return &control_; }
  bool wide() const override { return body_.wide(); }
  bool reaches_devices() const override { return true; }
  int64_t moved_bytes(const View*) const override { return 0; }  // its steps say what they move

  size_t scratch_bytes(const View* operands) const override {
    const RowMajor states(first_states(operands), count(form_.states));
    std::vector<View> all;
    gather(all, operands, 0, states.get());
    return States::bytes(states.get(), count(form_.states)) + body_.scratch_bytes(all.data());
  }

  void run(const Call& call) const override {
    const View* first = first_states(call.operands);
    const View* finals = first + form_.states + form_.rest;
    const View* items = finals + form_.states;
    const View* stacks = items + form_.items;
    const RowMajor shapes(first, count(form_.states));
    const States states(shapes.get(), stacks_of(form_.saved, stacks), call.scratch);
    char* scratch = call.scratch + States::bytes(shapes.get(), count(form_.states));
    const int64_t length = sequences(call.operands)[0].shape[0];
    int64_t steps = length;
    if (form_.counted && !visits_all)
      steps = std::clamp<int64_t>(read(call.operands[0], call.context).integer, 0, length);
    const auto position = [&](int64_t t) { return form_.reverse ? steps - 1 - t : t; };
    for (size_t k = 0; k < count(form_.states); ++k)
      copy_here(steps ? states.in(k, 0, position(0)) : finals[k], first[k], call.context);
    Inner::Frame frame;
    std::vector<View> all, outputs(count(form_.states + form_.items)), now(count(form_.states));
    for (int64_t t = 0; t < steps; ++t) {
      check_interrupts("foreach", t, call.context);
      for (size_t k = 0; k < now.size(); ++k) {
        now[k] = states.in(k, t, position(t));
        outputs[k] = t + 1 == steps ? finals[k] : states.in(k, t + 1, position(t + 1));
      }
      for (size_t m = 0; m < count(form_.items); ++m) outputs[now.size() + m] = slice(items[m], position(t));
      gather(all, call.operands, position(t), now.data());
      body_.run(frame, all.data(), outputs.data(), scratch, call.context);
    }
    const auto stacked = count(form_.items) + static_cast<size_t>(std::ranges::count(form_.saved, true));
    for (int64_t p = steps; p < length; ++p)
      for (size_t m = 0; m < stacked; ++m) clear(slice(items[m], p), call.context);
  }

 private:
  static size_t count(int n) noexcept { return static_cast<size_t>(n); }
  const View* sequences(const View* operands) const noexcept { return operands + form_.counted; }
  const View* first_states(const View* operands) const noexcept {
    return sequences(operands) + form_.sequences;
  }
  // What the body reads at position p.
  void gather(std::vector<View>& all, const View* operands, int64_t p, const View* states) const {
    all.clear();
    for (int s = 0; s < form_.sequences; ++s) all.push_back(slice(sequences(operands)[s], p));
    all.insert(all.end(), states, states + form_.states);
    const View* rest = first_states(operands) + form_.states;
    all.insert(all.end(), rest, rest + form_.rest);
  }

  const ControlForm control_;
  const ForeachForm& form_;
  const Inner body_;
};

class While final : public Kernel {
 public:
  explicit While(ControlForm control)
      : control_(std::move(control)),
        form_(std::get<WhileForm>(control_.form)),
        condition_(control_.programs[0]),
        body_(control_.programs[1]) {}

  const ControlForm* control_form() const override { return &control_; }
  bool wide() const override { return true; }  // its duration is not known
  bool reaches_devices() const override { return true; }
  int64_t moved_bytes(const View*) const override { return 0; }

  size_t scratch_bytes(const View* operands) const override {
    const RowMajor states(operands, count(form_.states));
    std::vector<View> all;
    gather(all, operands, states.get());
    return States::bytes(states.get(), count(form_.states)) + kInnerAlign +
           std::max(condition_.scratch_bytes(all.data()), body_.scratch_bytes(all.data()));
  }

  void run(const Call& call) const override {
    const View* finals = call.operands + form_.states + form_.rest;
    const View* stacks = finals + form_.states + form_.counted;
    const RowMajor shapes(call.operands, count(form_.states));
    const States states(shapes.get(), stacks_of(form_.saved, stacks), call.scratch);
    char* flag = call.scratch + States::bytes(shapes.get(), count(form_.states));
    char* scratch = flag + kInnerAlign;
    const View holds{flag, DType::bool_, 0, nullptr, nullptr};
    const auto position = [&](int64_t t) { return t < form_.limit ? t : -1; };
    for (size_t k = 0; k < count(form_.states); ++k)
      copy_here(states.in(k, 0, position(0)), call.operands[k], call.context);
    Inner::Frame holding, frame;
    std::vector<View> all, now(count(form_.states)), outputs(count(form_.states));
    int64_t t = 0;
    for (;; ++t) {
      for (size_t k = 0; k < now.size(); ++k) now[k] = states.in(k, t, position(t));
      if (t == form_.limit) break;
      check_interrupts("while_loop", t, call.context);
      gather(all, call.operands, now.data());
      condition_.run(holding, all.data(), &holds, scratch, call.context);
      const bool is_visit = visits_all && t < kVisits;
      if (!is_visit && (visits_all || !read(holds, call.context).boolean)) break;
      for (size_t k = 0; k < now.size(); ++k) outputs[k] = states.in(k, t + 1, position(t + 1));
      body_.run(frame, all.data(), outputs.data(), scratch, call.context);
    }
    for (size_t k = 0; k < now.size(); ++k) copy_here(finals[k], now[k], call.context);
    if (form_.counted) {
      Scalar turns{Scalar::Kind::integer, {}};
      turns.integer = t;
      fill_elements(finals[form_.states], call.context.device, turns);
    }
    const auto stacked = static_cast<size_t>(std::ranges::count(form_.saved, true));
    for (int64_t p = t; p < form_.limit; ++p)
      for (size_t m = 0; m < stacked; ++m) clear(slice(stacks[m], p), call.context);
  }

 private:
  static size_t count(int n) noexcept { return static_cast<size_t>(n); }
  void gather(std::vector<View>& all, const View* operands, const View* states) const {
    all.assign(states, states + form_.states);
    const View* rest = operands + form_.states;
    all.insert(all.end(), rest, rest + form_.rest);
  }

  static constexpr int64_t kVisits = 2;  // from operands to the one place, and from that to the other
  const ControlForm control_;
  const WhileForm& form_;
  const Inner condition_, body_;
};

class Cond final : public Kernel {
 public:
  explicit Cond(ControlForm control)
      : control_(std::move(control)),
        inputs_(std::get<CondForm>(control_.form).inputs),
        then_(control_.programs[0]),
        otherwise_(control_.programs[1]) {}

  const ControlForm* control_form() const override { return &control_; }
  bool wide() const override { return then_.wide() || otherwise_.wide(); }
  bool reaches_devices() const override { return true; }
  int64_t moved_bytes(const View*) const override { return 0; }

  size_t scratch_bytes(const View* operands) const override {
    return std::max(then_.scratch_bytes(operands + 1), otherwise_.scratch_bytes(operands + 1));
  }

  void run(const Call& call) const override {
    const bool holds = read(call.operands[0], call.context).boolean;
    const auto run_branch = [&](const Inner& branch) {
      Inner::Frame frame;
      branch.run(frame, call.operands + 1, call.operands + 1 + inputs_, call.scratch, call.context);
    };
    if (visits_all) run_branch(holds ? otherwise_ : then_);
    run_branch(holds ? then_ : otherwise_);
  }

 private:
  const ControlForm control_;
  const int inputs_;
  const Inner then_, otherwise_;
};

}  // namespace

Ref<Kernel> make_control(ControlForm control) {
  const std::vector<Ref<const Program>>& programs = control.programs;
  // Whether program k takes and gives so many arrays.
  const auto check = [&](size_t k, const std::vector<int>& taken, const std::vector<int>& given) {
    const auto sum = [](const std::vector<int>& counts) {
      for (const int count : counts)
        if (count < 0) return int64_t{-1};
      return std::accumulate(counts.begin(), counts.end(), int64_t{0});
    };
    const Program& program = *programs[k];
    if (!program.exact || static_cast<int64_t>(program.uses.size()) != sum(taken) ||
        static_cast<int64_t>(program.outputs.size()) != sum(given))
      throw std::invalid_argument("control flow: " + program.name + " takes " +
                                  std::to_string(program.uses.size()) + " arrays and gives " +
                                  std::to_string(program.outputs.size()) + ", expected " +
                                  std::to_string(sum(taken)) + " and " + std::to_string(sum(given)));
  };
  const size_t expected = std::holds_alternative<ForeachForm>(control.form) ? 1 : 2;
  if (programs.size() != expected)
    throw std::invalid_argument("control flow: takes " + std::to_string(expected) + " programs, got " +
                                std::to_string(programs.size()));
  if (const auto* const form = std::get_if<ForeachForm>(&control.form)) {
    if (form->sequences < 1 || form->saved.size() != static_cast<size_t>(form->states))
      throw std::invalid_argument("foreach: takes one sequence or more, and a flag for each state");
    check(0, {form->sequences, form->states, form->rest}, {form->states, form->items});
    return Ref<Kernel>(new Foreach(std::move(control)));
  }
  if (const auto* const form = std::get_if<WhileForm>(&control.form)) {
    if (form->saved.size() != static_cast<size_t>(form->states))
      throw std::invalid_argument("while: takes a flag for each state");
    check(0, {form->states, form->rest}, {1});
    check(1, {form->states, form->rest}, {form->states});
    return Ref<Kernel>(new While(std::move(control)));
  }
  const int inputs = std::get<CondForm>(control.form).inputs;
  check(0, {inputs}, {static_cast<int>(programs[1]->outputs.size())});
  check(1, {inputs}, {static_cast<int>(programs[0]->outputs.size())});
  return Ref<Kernel>(new Cond(std::move(control)));
}

}  // namespace weft
