// storage.cpp: the process's engine for arrays, and the statistics of its memory.
#include "bindings/functions.h"
#include "storage/runtime.h"

namespace weft {

void bind_storage(nb::module_& m) {
  m.def("set_array_engine", [](PyEngine& engine) {
    Runtime::get().set_engine(engine.core);
    Runtime::get().set_check(engine.core->options().check);
  });
  m.def(
      "memory_stats",
      [](nb::handle device) {
        const PythonEntry entry;
        const PoolStats stats = Runtime::get().pool(as_device(device)).stats();
        nb::dict result;
        result["in_use_bytes"] = stats.in_use_bytes;
        result["reserved_bytes"] = stats.reserved_bytes;
        result["peak_in_use_bytes"] = stats.peak_in_use_bytes;
        result["peak_reserved_bytes"] = stats.peak_reserved_bytes;
        result["allocations"] = stats.allocations;
        result["reused"] = stats.reused;
        return result;
      },
      nb::arg("device").none() = nb::none());
  m.def(
      "trim_memory",
      [](nb::handle device) {
        const PythonEntry entry;
        return Runtime::get().pool(as_device(device)).trim();
      },
      nb::arg("device").none() = nb::none());
  m.def(
      "reset_memory_peaks",
      [](nb::handle device) {
        const PythonEntry entry;
        Runtime::get().pool(as_device(device)).reset_peaks();
      },
      nb::arg("device").none() = nb::none());
}

}  // namespace weft
