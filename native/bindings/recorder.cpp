// recorder.cpp: what the Recorder (calls/recording.h) writes down, as weft/tools/recording.py reads it.
#include "calls/recording.h"

#include <nanobind/stl/vector.h>

#include "bindings/functions.h"
#include "bindings/tensor.h"
#include "engine/context.h"

namespace weft {
namespace {

template <class T>
nb::bytes bytes_of(const std::vector<T>& events) {
  return nb::bytes(reinterpret_cast<const char*>(events.data()), events.size() * sizeof(T));
}

nb::list texts_of(const std::vector<std::string>& texts) {
  nb::list list;
  for (const std::string& text : texts) list.append(from_utf8(text));
  return list;
}

// Of each operand (dtype, sizes), from dtypes, numbers of dimensions and sizes in a row.
nb::list operands_of(const std::vector<int64_t>& shape) {
  nb::list operands;
  for (size_t k = 0; k + 1 < shape.size();) {
    const char* dtype = short_name(static_cast<DType>(shape[k]));
    const auto ndim = static_cast<size_t>(shape[k + 1]);
    operands.append(nb::make_tuple(dtype, to_tuple({shape.data() + k + 2, ndim})));
    k += 2 + ndim;
  }
  return operands;
}

nb::object as_python(const std::optional<Recording>& recording) {
  if (!recording) return nb::none();
  nb::list sites, step_shapes;
  for (const auto& site : recording->sites) sites.append(from_utf8(site->text()));
  for (const std::vector<int64_t>& shape : recording->step_shapes) step_shapes.append(operands_of(shape));
  nb::dict result;
  result["operations"] = bytes_of(recording->operations);
  result["memory"] = bytes_of(recording->memory);
  result["held"] = bytes_of(recording->held);
  result["waits"] = bytes_of(recording->waits);
  result["steps"] = bytes_of(recording->steps);
  result["streams"] = bytes_of(recording->streams);
  nb::list stream_names;
  for (const auto& [number, name] : recording->stream_names)
    stream_names.append(nb::make_tuple(number, from_utf8(name)));
  result["stream_names"] = stream_names;
  result["names"] = texts_of(recording->names.texts());
  result["sites"] = sites;
  result["shapes"] = texts_of(recording->shapes.texts());
  result["step_names"] = texts_of(recording->step_names.texts());
  result["step_shapes"] = step_shapes;
  result["programs"] = texts_of(recording->programs);
  result["dropped"] = recording->dropped;
  return result;
}

}  // namespace

void bind_recorder(nb::module_& m) {
  def(
      m, "open_recorder",
      [](nb::list engines, bool memory, size_t limit) {
        std::vector<std::shared_ptr<Engine>> cores;
        for (nb::handle engine : engines) cores.push_back(nb::cast<PyEngine&>(engine).core);
        return Recorder::get().open(cores, memory, limit);
      },
      "engines"_a, "memory"_a = true, "limit"_a = size_t{4'000'000});
  def(m, "close_recorder", [] { return as_python(Recorder::get().close()); });
  def(m, "peek_recorder", [] { return as_python(Recorder::get().peek()); });
  // What this thread is at, for the events to come; returns what it was at.
  def(m, "set_recording_context", [](uint32_t module) { return std::exchange(context().module, module); });
  def(m, "recording_context", [] { return context().module; });
}

}  // namespace weft
