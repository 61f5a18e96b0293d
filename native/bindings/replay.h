// replay.h: what a program of a traced function finds where at a call, and what has to hold for it.
#pragma once

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/program.h"

namespace weft {

// Part of an array: its elements from `offset` on, so many, so far apart.
struct Window {
  int64_t offset = 0;
  Shape shape, strides;
  Tensor of(const Tensor& x) const {
    return x.as_strided(x.data + offset * static_cast<int64_t>(x.itemsize()), shape, strides);
  }
};

// `_core.Find`: where something is found at a call.
struct Find {
  enum class Kind : uint8_t { leaf, object, output, python } kind = Kind::object;
  size_t number = 0;  // of the leaf, the output
  nb::object object;  // or a function of the leaves
  std::optional<Window> window;

  std::vector<PyObject*> references() const { return {object.ptr()}; }
  void clear() { const Find old = std::exchange(*this, {}); }
};

// (offset, shape, strides)
nb::tuple to_tuple(const Window& window);

// Something that a function found outside of its arguments: where; by which name (of a cell: none; else a key
// of a dict, an index of a list, or an attribute); the value (NotImplemented: there was nothing). Under the
// name Ellipsis: all that a container has in it, as a tuple.
using Outside = std::tuple<nb::object, nb::object, nb::object>;
bool is_as_it_was(const Outside& outside);

// `_core.ReplaySpec`: a program, and how calls use it.
struct ReplaySpec {
  Ref<Plan> plan;
  std::vector<Find> arrays, numbers, results;
  std::vector<size_t> stopped;  // results that have no history, whatever the array has that they are seen in
  std::vector<Outside> environment;
  bool is_doubted = false;  // whether the function may read what is not in the environment
  nb::object watched =
      nb::none();  // whether things that `changes` counts are as they were; None: there are none
  std::vector<nb::object> containers;  // lists and dicts that belong to those things
  std::vector<std::pair<Find, bool>>
      gradients;                    // leaves and objects: whether they have a gradient, as they had
  nb::object guard = nb::none();    // of the leaves, None: nothing else has to hold
  nb::object build = nb::none();    // of the list of results, None: the one result is all
  nb::object effect = nb::none();   // of leaves and outputs, None: there are none
  std::vector<uint64_t> elsewhere;  // serials of memory that arguments may not share, ascending
  std::vector<nb::object>
      shared;  // tensors found outside of the arguments that lie in one memory with others

  std::vector<PyObject*> references() const;
  void clear() { const ReplaySpec old = std::exchange(*this, {}); }
};

}  // namespace weft
