// traced.cpp: calls of traced functions: which program their arguments ask for, and running it.
//
// A Replays belongs to one traced function. Its key says all that a program depends on of the arguments: how
// they are nested; dtype, sizes, strides, device of arrays and which of them share memory; values of
// integers, flags, texts, slices, keys of dicts; the identity of others, which programs keep alive. Floats
// are inputs. What else has to hold is a guard. All of it is guarded by the GIL; running a program gives it
// up where launching one does, and so does all Python that is run to compare: guards, attributes of objects,
// destructors. So whoever may run Python holds what it looks at: a list of programs never changes once it is
// in the table (another takes its place), and items of containers are owned while they are read.
#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "bindings/call_arguments.h"
#include "bindings/hooks.h"
#include "bindings/launch_recorder.h"
#include "bindings/operator.h"
#include "bindings/replay.h"
#include "program/scratch.h"

namespace weft {
namespace {

// What a list or a dict had in it, by identity.
struct Contents {
  nb::object container;
  std::vector<nb::object> items;

  explicit Contents(nb::handle of) : container(nb::borrow(of)) { same(); }

  // Whether it has that still; remembers what it has now. Comparing runs no Python; releasing what it had
  // may, which may come back here.
  bool same() {
    bool is = true;
    size_t count = 0;
    for_each([&](PyObject* item) {
      is = is && count < items.size() && items[count].ptr() == item;
      ++count;
    });
    if (is && count == items.size()) return true;
    std::vector<nb::object> now;
    now.reserve(count);
    for_each([&](PyObject* item) { now.push_back(nb::borrow(item)); });
    items.swap(now);
    return false;
  }

 private:
  template <class F>
  void for_each(F&& f) const {
    if (PyList_Check(container.ptr())) {
      for (Py_ssize_t k = 0; k < PyList_Size(container.ptr()); ++k) f(PyList_GetItem(container.ptr(), k));
    } else {
      PyObject *key, *value;
      for (Py_ssize_t i = 0; PyDict_Next(container.ptr(), &i, &key, &value);) {
        f(key);
        f(value);
      }
    }
  }
};

// Whether some of the bytes from one array's first element to its last are also between those of the other.
bool lie_together(const Tensor& x, const Tensor& y) {
  const auto [x_first, x_end] = addresses_of(x.view());
  const auto [y_first, y_end] = addresses_of(y.view());
  return x_first < y_end && y_first < x_end;
}

// The answer for a call that no program has run.
struct NoProgram {
  enum class Reason : uint8_t {
    convert,  // some arguments are arrays of other libraries, which become Tensors first
    dense,    // the program would lose histories: it needs dense arguments that share no memory
    python,   // calls of this kind run as Python
    direct,   // and nothing is to be made of this one
    record,   // there is no program
    again,    // the program is doubted: the call is recorded again, and compared with it
  };
  static constexpr const char* kWords[] = {"convert", "dense", "python", "direct", "record", "again"};

  Reason reason;
  nb::object doubted = nb::none();  // the program; its owner

  static NoProgram named(const std::string& word) {
    const auto found = std::ranges::find(kWords, word);
    if (found == std::end(kWords)) throw ValueError("NoProgram: there is no reason " + word);
    return {static_cast<Reason>(found - std::begin(kWords))};
  }
  static nb::object answer(Reason reason, nb::object doubted = nb::none()) {
    return nb::cast(NoProgram{reason, std::move(doubted)});
  }
};
using Reason = NoProgram::Reason;

// One program of a traced function.
struct Replay : ReplaySpec {
  nb::object owner;          // weft.traces.traced.Traced; null: calls of this kind run as Python
  bool direct = false;       // and that nothing is to be made of
  bool has_windows = false;  // among its arrays
  std::vector<std::pair<size_t, size_t>>
      overlapping;  // arguments that lie in one memory, of FlatArguments::tensors
  int64_t runs = 0;
  uint64_t questions = 0;                // how often `watched` has been asked;
  uint64_t checked_changes = 0;          // what `changes` was when it was asked last,
  std::optional<bool> unchanged = true;  // and what came of that; none: another has to ask
  std::vector<Contents> contents;        // of the containers
  std::vector<nb::object> identities;    // of FlatArguments: their addresses stay theirs

  bool fits(const FlatArguments& a, nb::object& leaves) {
    if (!elsewhere.empty())
      for (PyObject* x : a.tensors)
        if (std::ranges::binary_search(elsewhere, self_of(x).chunk->serial)) return false;
    if (!std::ranges::all_of(environment, is_as_it_was)) return false;
    bool same_contents = true;
    for (Contents& each : contents) same_contents &= each.same();
    if (!watched.is_none()) {
      if (!same_contents || checked_changes != changes) unchanged.reset();
      if (!(unchanged ? *unchanged : ask_watched())) return false;
    }
    for (const auto& [find, had] : gradients) {
      PyObject* const x = find.kind == Find::Kind::leaf ? a.leaves[find.number].ptr() : find.object.ptr();
      if ((gradient_of(x) != nullptr) != had) return false;
    }
    return guard.is_none() || nb::cast<bool>(guard(as_list(a, leaves)));
  }

  // Another thread may ask meanwhile: what the one that began last gets is remembered.
  bool ask_watched() {
    const uint64_t question = ++questions, changes_before = changes;
    const bool answer = nb::cast<bool>(watched());
    if (question == questions) {
      unchanged = answer;
      checked_changes = changes_before;
    }
    return answer;
  }

  enum class History : uint8_t { unchanged, lost, lost_with_writes };

  // Whether the results would have the history that operations one by one give them. A window of an array has
  // none, and memory that several arrays share has only that of one of them.
  History history(const FlatArguments& a) const {
    if ((!has_windows && overlapping.empty() && shared.empty()) || !recording()) return History::unchanged;
    const Plan& form = plan->recorded ? *plan->recorded : *plan;
    if (!loses_windows(a, form) && !loses_shared(a)) return History::unchanged;
    return form.writes.empty() ? History::lost : History::lost_with_writes;
  }

  // Of what it writes rewrite_histories knows.
  bool loses_windows(const FlatArguments& a, const Plan& form) const {
    if (!has_windows) return false;
    for (size_t k = 0; k < arrays.size(); ++k) {
      const Find& find = arrays[k];
      if (!find.window || find.kind == Find::Kind::python) continue;
      PyObject* const x = find.kind == Find::Kind::leaf ? a.leaves[find.number].ptr() : find.object.ptr();
      const auto is_k = [&](const auto& write) { return static_cast<size_t>(write.second) == k; };
      if (tracked_of(x).node && std::ranges::none_of(form.writes, is_k)) return true;
    }
    return false;
  }
  bool loses_shared(const FlatArguments& a) const {
    const auto has_node = [](PyObject* x) { return static_cast<bool>(tracked_of(x).node); };
    const auto loses = [&](const auto& pair) {
      PyObject *const x = a.tensors[pair.first], *const y = a.tensors[pair.second];
      return x != y && (has_node(x) || has_node(y));
    };
    return std::ranges::any_of(overlapping, loses) ||
           std::ranges::any_of(shared, [&](const nb::object& x) { return has_node(x.ptr()); });
  }

  std::vector<PyObject*> all_references() const {
    std::vector<PyObject*> all = references();
    all.push_back(owner.ptr());
    for (const Contents& each : contents)
      for (const nb::object& item : each.items) all.push_back(item.ptr());
    for (const Contents& each : contents) all.push_back(each.container.ptr());
    for (const nb::object& identity : identities) all.push_back(identity.ptr());
    return all;
  }

  // That what it finds is there, in calls like this one.
  void check(const FlatArguments& a) const {
    const auto refuse = [](bool wrong, const char* what) {
      if (wrong) throw ValueError(std::string("Replays.add: the plan and its ") + what + " do not fit");
    };
    const auto check_places = [&](const std::vector<Find>& finds, const char* what) {
      for (const Find& find : finds)
        refuse((find.kind == Find::Kind::leaf && find.number >= a.leaves.size()) ||
                   (find.kind == Find::Kind::output && find.number >= plan->program->outputs.size()),
               what);
    };
    refuse(arrays.size() != plan->program->uses.size(), "arrays");
    refuse(numbers.size() < plan->program->numbers_taken(), "numbers");
    refuse(build.is_none() && results.empty(), "results");
    check_places(arrays, "arrays");
    check_places(numbers, "numbers");
    check_places(results, "results");
    for (const Find& find : arrays) {
      PyObject* const object = find.kind == Find::Kind::leaf     ? a.leaves[find.number].ptr()
                               : find.kind == Find::Kind::object ? find.object.ptr()
                                                                 : nullptr;
      refuse(find.kind == Find::Kind::output || (object && !is_tensor(object)), "arrays");
    }
    for (const auto& [find, had] : gradients) {
      refuse(find.kind == Find::Kind::leaf && find.number >= a.leaves.size(), "gradients");
      PyObject* const x = find.kind == Find::Kind::leaf ? a.leaves[find.number].ptr() : find.object.ptr();
      refuse(find.kind == Find::Kind::output || find.kind == Find::Kind::python || !x || !is_tensor(x),
             "gradients");
    }
    for (const Find& find : numbers)
      refuse(find.kind == Find::Kind::output || find.kind == Find::Kind::object, "numbers");
    for (const size_t k : stopped) refuse(k >= results.size(), "stopped");
    for (const nb::object& x : containers)
      refuse(!PyList_Check(x.ptr()) && !PyDict_Check(x.ptr()), "containers");
    for (const nb::object& x : shared) refuse(!is_tensor(x), "shared");
    refuse(!std::ranges::is_sorted(elsewhere), "elsewhere");
  }

  static nb::object as_list(const FlatArguments& a, nb::object& leaves) {
    if (!leaves.is_valid()) {
      nb::list list;
      for (const nb::object& leaf : a.leaves) list.append(leaf);
      leaves = list;
    }
    return leaves;
  }

  // What was written has the history of its new content.
  void rewrite_histories(PyObject* const* objects, std::span<const Tracked* const> inputs,
                         std::span<const Tracked> plan_results) const {
    const auto has_history = [](const Tracked* x) { return static_cast<bool>(x->node); };
    if (!recording() || !std::ranges::any_of(inputs, has_history)) return;
    const Plan& form = plan->recorded ? *plan->recorded : *plan;
    for (const auto& [output, input] : form.writes) {
      Tracked& x = tracked_of(objects[input]);
      if (!x.node && !plan_results[output].node) continue;
      if (arrays[input].window || x.tensor.chunk->faces != 1 || !x.tensor.covers_chunk())
        throw ValueError(
            plan->program->name +
            ": a recorded tensor that shares its memory with others cannot be written in place: x is " +
            describe(x.tensor));
      x.node = plan_results[output].node;
      x.index = plan_results[output].index;
    }
  }

  nb::object run(const FlatArguments& a, nb::object& leaves) const {
    std::vector<Tracked> windows;
    if (has_windows) windows.reserve(arrays.size());
    std::vector<nb::object> held;
    Scratch<PyObject*, 16> objects(arrays.size());
    Scratch<const Tracked*, 16> tracked(arrays.size());
    for (size_t k = 0; k < arrays.size(); ++k) {
      const Find& find = arrays[k];
      PyObject* object = find.kind == Find::Kind::leaf ? a.leaves[find.number].ptr() : find.object.ptr();
      if (find.kind == Find::Kind::python) {
        held.push_back(find.object(as_list(a, leaves)));
        object = held.back().ptr();
        tensor_of(object, "trace");
      }
      if (context().recorder) met(object);
      objects[k] = object;
      tracked[k] =
          find.window ? &windows.emplace_back(find.window->of(self_of(object))) : &tracked_of(object);
    }
    Scratch<Scalar, 8> values(numbers.size());
    for (size_t k = 0; k < numbers.size(); ++k) {
      const Find& find = numbers[k];
      values[k] = find.kind == Find::Kind::leaf ? as_scalar(a.leaves[find.number])
                                                : as_scalar(find.object(as_list(a, leaves)));
    }
    const std::span<const Tracked* const> inputs{tracked.get(), arrays.size()};
    const std::span<const Scalar> given_numbers{values.get(), numbers.size()};
    // One output is made where it stays.
    const size_t count = plan->program->outputs.size();
    std::optional<NewTensor> single;
    std::vector<Tracked> several(count == 1 ? 0 : count);
    if (count == 1) single.emplace();
    const std::span<Tracked> plan_results = single ? std::span(&single->tracked(), 1) : std::span(several);
    call_plan(plan, inputs, given_numbers, {}, plan_results);
    rewrite_histories(objects.get(), inputs, plan_results);
    nb::object first = single ? single->take() : nb::object();
    std::vector<nb::object> outputs(several.size());
    const auto output = [&](size_t j) {
      if (single) return first;
      if (!outputs[j].is_valid()) outputs[j] = wrap(std::move(plan_results[j]));
      return outputs[j];
    };
    const auto result = [&](size_t k) -> nb::object {
      const Find& find = results[k];
      nb::object source = find.kind == Find::Kind::leaf     ? a.leaves[find.number]
                          : find.kind == Find::Kind::object ? find.object
                          : find.kind == Find::Kind::output ? output(find.number)
                                                            : find.object(as_list(a, leaves));
      if (!find.window) return source;
      if (is_recorded(source.ptr()) && std::ranges::find(stopped, k) == stopped.end())
        return call_hook(Hook::window_of, source, to_tuple(*find.window));
      return wrap(find.window->of(self_of(source.ptr())));
    };
    if (!effect.is_none()) {
      nb::list all;
      for (size_t j = 0; j < plan_results.size(); ++j) all.append(output(j));
      effect(as_list(a, leaves), all);
    }
    if (build.is_none()) return result(0);
    nb::list list;
    for (size_t k = 0; k < results.size(); ++k) list.append(result(k));
    return build(list);
  }
};

class Replays {
 public:
  bool closed = false;  // finds nothing for a while

  // The result of a program, or of the function itself where calls of this kind are direct or the program
  // writes and would lose histories; else a NoProgram.
  nb::object run(nb::handle args, nb::handle kwargs, nb::handle function) {
    if (nb::object result = replay(args, kwargs); result.is_valid()) return result;
    return checked(PyObject_Call(function.ptr(), args.ptr(), kwargs.ptr()));
  }

  // Calls of this kind run the function, and nothing else.
  void call_directly(nb::handle args, nb::handle kwargs) {
    const CallArguments arguments;
    FlatArguments& a = *arguments;
    read(args, kwargs, a);
    if (const auto it = table_.find(a.key); it != table_.end())
      for (const std::shared_ptr<Replay>& replay : *it->second) replay->direct = !replay->owner.is_valid();
  }

  // owner: what made the program; None, without a spec: calls of this kind run as Python.
  // runs: of an equal program whose place it takes.
  void add(nb::handle args, nb::handle kwargs, nb::object owner, nb::handle spec, int64_t runs) {
    const CallArguments arguments;
    FlatArguments& a = *arguments;
    read(args, kwargs, a);
    auto replay = std::make_shared<Replay>();
    if (!owner.is_none()) {
      static_cast<ReplaySpec&>(*replay) = nb::cast<const ReplaySpec&>(spec);
      if (!replay->plan) throw ValueError("Replays.add: the spec has been cleared");
      replay->checked_changes = changes;
      replay->has_windows =
          std::ranges::any_of(replay->arrays, [](const Find& find) { return find.window.has_value(); });
      for (size_t j = 0; j < a.tensors.size(); ++j)
        for (size_t i = 0; i < j; ++i)
          if (lie_together(self_of(a.tensors[i]), self_of(a.tensors[j])))
            replay->overlapping.emplace_back(i, j);
      replay->owner = std::move(owner);
      replay->runs = runs;
      replay->check(a);
      for (const nb::object& container : replay->containers) replay->contents.emplace_back(container);
    } else if (++without_program_ >
               kMostWithoutProgram) {  // kinds that never come again: they are learnt anew
      drop_if([](const Replay& r) { return !r.owner.is_valid(); });
      without_program_ = 1;
    }
    replay->identities = std::move(a.identities);
    std::shared_ptr<const List>& entry = table_[a.key];
    auto several = entry ? std::make_shared<List>(*entry) : std::make_shared<List>();
    several->push_back(std::move(replay));
    entry = std::move(several);
  }

  // An object that holds its own traced function is a cycle that goes through what programs depend on.
  std::vector<PyObject*> references() const {
    std::vector<PyObject*> objects;
    for (const auto& [key, several] : table_)
      for (const std::shared_ptr<Replay>& replay : *several)
        for (PyObject* object : replay->all_references()) objects.push_back(object);
    return objects;
  }
  void clear() { const auto table = std::exchange(table_, {}); }

  // How many calls have run it.
  int64_t drop(nb::handle owner) {
    int64_t runs = 0;
    drop_if([&](const Replay& r) {
      const bool goes = r.owner.is_valid() && r.owner.is(owner);
      if (goes) runs += r.runs;
      return goes;
    });
    return runs;
  }

 private:
  static constexpr size_t kMostWithoutProgram = 256;
  using List = std::vector<std::shared_ptr<Replay>>;

  // What goes is released at the end: that may run Python, which may come back here.
  template <class F>
  void drop_if(F&& goes) {
    std::vector<std::shared_ptr<const List>> before;
    for (auto& [key, entry] : table_) {
      auto several = std::make_shared<List>();
      for (const std::shared_ptr<Replay>& replay : *entry)
        if (!goes(*replay)) several->push_back(replay);
      if (several->size() < entry->size()) before.push_back(std::exchange(entry, std::move(several)));
    }
    std::erase_if(table_, [](const auto& entry) { return entry.second->empty(); });
  }

  // As run; null: the function is to be called.
  nb::object replay(nb::handle args, nb::handle kwargs) {
    const PythonEntry entry;
    const CallArguments arguments;
    FlatArguments& a = *arguments;
    read(args, kwargs, a);
    if (a.foreign) return NoProgram::answer(Reason::convert);
    const auto it = table_.find(a.key);
    if (it == table_.end() || closed) return NoProgram::answer(Reason::record);
    const std::shared_ptr<const List> several = it->second;  // the table may change while they are compared
    nb::object leaves;
    for (const std::shared_ptr<Replay>& replay : *several) {
      if (!replay->owner.is_valid()) return replay->direct ? nb::object() : NoProgram::answer(Reason::python);
      if (!replay->fits(a, leaves)) continue;
      const Replay::History history = replay->history(a);
      if (history == Replay::History::lost_with_writes) return nb::object();
      if (history == Replay::History::lost) return NoProgram::answer(Reason::dense);
      ++replay->runs;
      if (replay->is_doubted && is_checked(replay->runs + 1))
        return NoProgram::answer(Reason::again, replay->owner);
      return replay->run(a, leaves);
    }
    return NoProgram::answer(Reason::record);
  }

  // Of the calls of a doubted program, the first of which recorded it, the 2nd, 8th, 64th, 512th and so on.
  static bool is_checked(int64_t call) noexcept {
    return call == 2 || (call > 1 && std::has_single_bit(static_cast<uint64_t>(call)) &&
                         std::countr_zero(static_cast<uint64_t>(call)) % 3 == 0);
  }

  void read(nb::handle args, nb::handle kwargs, FlatArguments& a) {
    ArgumentReader reader(a);
    reader.read(args.ptr());
    reader.read(kwargs.ptr());
  }

  size_t without_program_ = 0;
  std::unordered_map<std::vector<uint64_t>, std::shared_ptr<const List>, PlanKeyHash> table_;
};

}  // namespace

void bind_traced(nb::module_& m) {
  Class<NoProgram>(m, "NoProgram", "What Replays.run gives for a call that no program has run.")
      .def(
          "__init__",
          [](NoProgram* self, const std::string& reason) { new (self) NoProgram(NoProgram::named(reason)); },
          "reason"_a)
      .def_prop_ro(
          "reason",
          [](const NoProgram& answer) { return NoProgram::kWords[static_cast<size_t>(answer.reason)]; })
      .def_prop_ro(
          "doubted", [](const NoProgram& answer) { return answer.doubted; },
          nb::sig("def doubted(self) -> typing.Any"));
  Class<Replays>(m, "Replays", "The programs of a traced function, by the kind of its arguments.",
                 nb::type_slots(Collected<Replays>::slots))
      .def(nb::init<>())
      .def_prop_rw(
          "closed", [](const Replays& replays) { return replays.closed; },
          [](Replays& replays, nb::handle value) {
            const int is_true = PyObject_IsTrue(value.ptr());
            if (is_true < 0) throw nb::python_error();
            replays.closed = is_true;
          },
          nb::for_setter(nb::sig("def closed(self, value: bool, /) -> None")))
      .def("run", &Replays::run, "args"_a, "kwargs"_a, "function"_a = nb::none(),
           nb::sig(
               "def run(self, args: object, kwargs: object, function: object | None = None) -> typing.Any"))
      .def("call_directly", &Replays::call_directly, "args"_a, "kwargs"_a)
      .def("add", &Replays::add, "args"_a, "kwargs"_a, "owner"_a.none(), "spec"_a = nb::none(), "runs"_a = 0,
           nb::sig("def add(self, args: tuple, kwargs: dict, owner: object | None, spec: ReplaySpec | None = "
                   "None, runs: int = 0) -> None"))
      .def("drop", &Replays::drop, "owner"_a);
}

}  // namespace weft
