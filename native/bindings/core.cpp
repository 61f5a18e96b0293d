// core.cpp: the module weft._core.
#include <oneapi/dnnl/dnnl.h>

#include <cstdlib>
#include <cstring>

#include "bindings/hooks.h"
#include "bindings/layers.h"

NB_MODULE(_core, m) {
  const char* debug = std::getenv("WEFT_DEBUG");
  // A program that ends with daemon threads leaks its globals whatever we do: not for every user's eyes.
  nanobind::set_leak_warnings(debug && *debug && std::strcmp(debug, "0") != 0);
  m.doc() = "weft's native core. Private: its Python faces are the modules of weft.";
  weft::bind_python(m);
  weft::bind_hooks(m);
  weft::bind_functions(m);
  weft::bind_engine(m);
  weft::bind_storage(m);
  weft::bind_tensor(m);
  weft::bind_creation(m);
  weft::bind_exchange(m);
  weft::bind_program(m);
  weft::bind_recorder(m);
  weft::bind_operator(m);
  weft::bind_layers(m);
  weft::bind_tape(m);
  weft::bind_launch_recorder(m);
  weft::bind_log(m);
  weft::bind_traced(m);
  weft::bind_onednn(m);
  weft::bind_ahead(m);
  weft::bind_kernels(m);
  weft::bind_python_kernel(m);
  weft::bind_data(m);
  weft::bind_testing(m);
  weft::def(
      m, "dnnl_version",
      [] {
        const dnnl_version_t* v = dnnl_version();
        return nanobind::make_tuple(v->major, v->minor, v->patch);
      },
      nanobind::sig("def dnnl_version() -> tuple[int, int, int]"));
  weft::bind_refusals(m);
}
