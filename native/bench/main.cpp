// weft_native_bench [engine [SHAPE]] | regions TEAM MICROSECONDS | storage
#include <cstdlib>
#include <cstring>

#include "bench/bench.h"

int main(int count, char** arguments) {
  const std::string which = count > 1 ? arguments[1] : "engine";
  if (which == "engine") return weft::bench::engine(count > 2 ? arguments[2] : "");
  if (which == "regions" && count == 4) return weft::bench::regions(arguments[2], std::atof(arguments[3]));
  if (which == "storage") return weft::bench::storage();
  std::fprintf(stderr, "usage: weft_native_bench [engine [SHAPE]] | regions TEAM MICROSECONDS | storage\n");
  return 2;
}
