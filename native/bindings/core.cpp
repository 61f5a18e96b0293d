// core.cpp: the module weft._core.
#include <oneapi/dnnl/dnnl.h>

#include "bindings/python.h"

NB_MODULE(_core, m) {
  m.doc() = "weft's native core. Private: its Python faces are the modules of weft.";
  weft::bind_python(m);
  weft::bind_functions(m);
  weft::bind_engine(m);
  weft::bind_testing(m);
  m.def("dnnl_version", [] {
    const dnnl_version_t* v = dnnl_version();
    return nanobind::make_tuple(v->major, v->minor, v->patch);
  });
}
