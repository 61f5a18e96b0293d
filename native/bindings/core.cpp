// core.cpp: the module weft._core.
#include <oneapi/dnnl/dnnl.h>

#include <cstdlib>
#include <cstring>

#include "bindings/python.h"

NB_MODULE(_core, m) {
  const char* debug = std::getenv("WEFT_DEBUG");
  // A program that ends with daemon threads leaks its globals whatever we do: not for every user's eyes.
  nanobind::set_leak_warnings(debug && *debug && std::strcmp(debug, "0") != 0);
  m.doc() = "weft's native core. Private: its Python faces are the modules of weft.";
  weft::def(
      m, "dnnl_version",
      [] {
        const dnnl_version_t* v = dnnl_version();
        return nanobind::make_tuple(v->major, v->minor, v->patch);
      },
      nanobind::sig("def dnnl_version() -> tuple[int, int, int]"));
#define WEFT_PART(part) weft::bind_##part(m);
  WEFT_PARTS(WEFT_PART)
#undef WEFT_PART
}
