// What tests of arrays on the engine share: an engine for them, short forms of making and reading arrays.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "storage/runtime.h"
#include "tensor/operations.h"
#include "tests/support.h"

namespace weft::testing {

using Sizes = std::vector<int64_t>;
using Values = std::vector<int64_t>;

// An engine for arrays, for as long as it lives; the arrays have to go before it does. Declare gates first.
class Arrays {
 public:
  explicit Arrays(EngineKind kind = EngineKind::threaded, int workers = 2)
      : engine(testing::make_engine(workers, kind)) {
    Runtime::get().set_engine(engine);
  }
  ~Arrays() {
    if (!engine->running()) engine->start();
    engine->wait_until_idle();
    Runtime::get().set_engine({});
  }
  Arrays(const Arrays&) = delete;
  Engine* operator->() const { return engine.get(); }
  Engine& operator*() const { return *engine; }

  const std::shared_ptr<Engine> engine;
};

inline Scalar integer(int64_t value) { return {Scalar::Kind::integer, {.integer = value}}; }
inline Tensor empty(const Sizes& shape, DType dtype = DType::int64) {
  return Tensor::empty(shape, dtype, {});
}
inline Tensor counted(const Sizes& shape, int64_t start = 0, int64_t step = 1) {
  const Tensor x = empty(shape);
  push_range(x, integer(start), integer(step));
  return x;
}

// Where each element lies, in elements from the beginning of the chunk, in row-major order.
inline Values places_of(const Tensor& x) {
  Values places;
  std::vector<int64_t> i(static_cast<size_t>(x.ndim), 0);
  for (int64_t left = x.size; left > 0; --left) {
    int64_t place = (x.data - x.chunk->data) / static_cast<int64_t>(x.itemsize());
    for (int d = 0; d < x.ndim; ++d) place += i[static_cast<size_t>(d)] * x.strides[d];
    places.push_back(place);
    for (int d = x.ndim; d-- > 0;) {
      if (++i[static_cast<size_t>(d)] < x.shape[d]) break;
      i[static_cast<size_t>(d)] = 0;
    }
  }
  return places;
}

// The elements, once they are there.
inline Values values_of(const Tensor& x) {
  wait_for(x);
  Values values;
  for (const int64_t place : places_of(x))
    values.push_back(reinterpret_cast<const int64_t*>(x.chunk->data)[place]);
  return values;
}

inline Values counts(int64_t count, int64_t start = 0, int64_t step = 1) {
  Values values(static_cast<size_t>(count));
  for (int64_t& value : values) value = std::exchange(start, start + step);
  return values;
}

// The name of the operation whose failure reading x raises; "" if it does not.
inline std::string failure_of(const Tensor& x) {
  try {
    wait_for(x);
  } catch (const OperationFailed& failed) {
    return failed.errors.front()->operation;
  }
  return {};
}

}  // namespace weft::testing
