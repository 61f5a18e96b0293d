// log.cpp: what lazy evaluation (calls/lazy_log.h) asks of Python: weft/traces/lazy.py makes its
// programs.
#include "calls/lazy_log.h"

#include <nanobind/stl/vector.h>

#include "bindings/launch_recorder.h"
#include "program/builder.h"

namespace weft {
namespace {

// An array as a recorder's methods get it.
nb::object told(const LoggedArray& array) {
  const Tensor& x = array.x;
  if (!array.serial) return sizes_of(x, array.device);
  return geometry_of(x, array.serial, array.device, x.chunk ? hold(x) : nb::none());
}

// (method, arguments) of a ArrayRecorder.
nb::object told(const LoggedOperation& operation) {
  nb::list arrays, numbers, results;
  for (const LoggedArray& x : operation.arrays) arrays.append(told(x));
  for (const Scalar& value : operation.numbers) numbers.append(number_of(value));
  for (const auto& x : operation.results) results.append(x ? told(*x) : nb::none());
  using Kind = LoggedOperation::Kind;
  switch (operation.kind) {
    case Kind::launch: {
      PyObject* const info = operation.plan->info;
      return nb::make_tuple("launched", nb::handle(info ? info : Py_None), arrays, numbers, results,
                            operation.site->text());
    }
    case Kind::fill:
      return nb::make_tuple("filled", results[0], numbers[0]);
    case Kind::copy:
      return nb::make_tuple("copied", results[0], arrays[0]);
    case Kind::range:
      return nb::make_tuple("counted", results[0], numbers[0], numbers[1]);
    case Kind::draw:
      return nb::make_tuple("drawn", results[0], word_of(operation.draw), numbers[0], numbers[1],
                            operation.site->text());
    case Kind::permute:
      break;
  }
  return nb::make_tuple("permuted", results[0], arrays[0], operation.site->text());
}

}  // namespace

LoggedProgram host::program_of(const LoggedSegment& segment) {
  nb::list operations;
  for (const LoggedOperation& operation : segment.operations) operations.append(told(operation));
  const nb::object parts =
      nb::handle(segment.target).attr("program_of")(operations, nb::cast(segment.live_serials), segment.mark);
  LoggedProgram program;
  if (parts.is_none()) return program;
  program.plan = nb::cast<PyPlan&>(nb::object(parts[0])).plan;
  for (nb::handle tensor : parts[1]) program.inputs.push_back(tensor_of(tensor, "lazy"));
  program.numbers = nb::cast<std::vector<size_t>>(nb::object(parts[2]));
  return program;
}

void host::note_break(_object* target) { nb::handle(target).attr("note_break")(); }

void bind_log(nb::module_& m) {
  Class<Log>(m, "Log", "What lazy evaluation has put off; for an object that makes programs of it.")
      .def(
          "__init__",
          [](Log* self, nb::handle target, bool watched) { new (self) Log(target.ptr(), watched); },
          "target"_a, "watched"_a = false)
      .def("flush", &Log::flush)
      .def_prop_ro("segments", &Log::segments, "How many programs were run.")
      .def_prop_ro("unseen_bytes", &Log::unseen_bytes,
                   "Memory of results that nobody could see any more, so that they were not written.");
  def(m, "log_counters", [] {
    return counts_of({{"put_off", Log::put_off},
                      {"segments", Log::segments_run},
                      {"segment_misses", Log::segment_misses}});
  });
}

}  // namespace weft
