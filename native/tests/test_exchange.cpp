// Memory in other libraries: loans, what is taken over, and the DLPack ABI.
#include "tensor/exchange.h"
#include "tests/array_support.h"

using namespace weft;
using namespace weft::testing;

namespace {

// A managed array of another library, which counts how often it was given back.
struct Lender {
  int64_t values[6] = {0, 1, 2, 3, 4, 5};
  int64_t shape[2] = {2, 3};
  int returned = 0;
  dlpack::Managed managed{};

  Lender() {
    managed.tensor = {values, {dlpack::kCpu, 0}, 2, to_dlpack(DType::int64), shape, nullptr, 0};
    managed.context = this;
  }
  Tensor take(bool read_only = false) {
    return take_over(managed.tensor, {}, give_back, &managed, read_only);
  }
  static void give_back(void* owner) noexcept {
    ++static_cast<Lender*>(static_cast<dlpack::Managed*>(owner)->context)->returned;
  }
};

}  // namespace

TEST(exchange_loan_counts_until_it_ends) {
  Arrays arrays;
  const Tensor x = counted({2, 3});
  for (const bool versioned : {false, true}) {
    Loan* const loan = Loan::make(x, true);
    CHECK_EQ(x.chunk->shares.load(), 1u);
    const dlpack::Tensor& tensor = versioned ? loan->versioned.tensor : loan->managed.tensor;
    CHECK(tensor.data == x.data && tensor.ndim == 2 && tensor.shape[1] == 3 && tensor.strides[0] == 3);
    CHECK(loan->versioned.flags == dlpack::ManagedVersioned::kCopied);
    if (versioned)
      loan->versioned.deleter(&loan->versioned);
    else
      loan->managed.deleter(&loan->managed);
    CHECK_EQ(x.chunk->shares.load(), 0u);
  }
  CHECK_EQ(x.chunk->exports.load(), 2u);
}

TEST(exchange_refuses_strides_that_reach_too_far) {
  Arrays arrays;
  const int64_t most = INT64_MAX;
  for (const int64_t stride : {int64_t{1} << 62, int64_t{1} << 54, -(int64_t{1} << 62), most, -most}) {
    Lender lender;
    lender.shape[0] = 2;
    lender.shape[1] = 2;
    int64_t strides[] = {stride, 1};
    lender.managed.tensor.strides = strides;
    CHECK_THROWS(lender.take(), BufferError);
    strides[0] = 3;
    strides[1] = stride;
    CHECK_THROWS(lender.take(), BufferError);
    lender.shape[1] = 1;  // with one element it does not matter
    CHECK_EQ(lender.take().size, int64_t{2});
  }
}

TEST(exchange_takes_over_and_gives_back) {
  Arrays arrays;
  Lender lender;
  {
    const Tensor x = lender.take(), part = x.window(1, Sizes{2}, Sizes{3});
    CHECK_EQ(values_of(x), counts(6));
    push_fill(part, integer(9));
    wait_for(x);
    CHECK(writable(x));
  }
  CHECK_EQ(lender.returned, 1);
  CHECK(lender.values[1] == 9 && lender.values[4] == 9);
  {
    const Tensor x = lender.take(true);
    CHECK(!writable(x));
    Loan* const loan = Loan::make(x, false);
    CHECK(loan->versioned.flags == dlpack::ManagedVersioned::kReadOnly);
    loan->end();
  }
  CHECK_EQ(lender.returned, 2);
}

TEST(exchange_refuses_and_keeps_nothing) {
  Arrays arrays;
  Lender lender;
  lender.managed.tensor.device.type = 2;
  CHECK_THROWS(lender.take(), DeviceError);
  lender.managed.tensor.device.type = dlpack::kCudaHost;
  lender.managed.tensor.ndim = kMaxDims + 1;
  CHECK_THROWS(lender.take(), ShapeError);
  lender.managed.tensor.ndim = 2;
  lender.managed.tensor.dtype.lanes = 2;
  CHECK_THROWS(lender.take(), DTypeError);
  lender.managed.tensor.dtype.lanes = 1;
  lender.managed.tensor.byte_offset = 4;
  CHECK_THROWS(lender.take(), BufferError);
  CHECK_EQ(lender.returned, 0);
  lender.shape[0] = 0;  // nothing of it is looked at
  CHECK(lender.take().size == 0);
  CHECK_EQ(lender.returned, 1);
}

TEST(exchange_types) {
  for (int k = 0; k < kDTypes; ++k) {
    const auto dtype = static_cast<DType>(k);
    CHECK(from_dlpack(to_dlpack(dtype)) == dtype);
    if (const char* format = info_of(dtype).format) CHECK(dtype_of_format(format, size_of(dtype)) == dtype);
  }
  CHECK(dtype_of_format(nullptr, 1) == DType::uint8);
  CHECK(dtype_of_format("<l", 8) == DType::int64);
  CHECK_THROWS(dtype_of_format("q", 4), DTypeError);
  CHECK_THROWS(dtype_of_format("T{}", 8), DTypeError);
}

TEST(exchange_extent_of_negative_strides) {
  Arrays arrays;
  static int64_t values[4] = {0, 1, 2, 3};
  Tensor x;
  x.dtype = DType::int64;
  x.ndim = 1;
  x.size = x.shape[0] = 4;
  x.strides[0] = -1;
  x.data = reinterpret_cast<char*>(values + 3);
  adopt(x, {}, [](void*) noexcept {}, nullptr, false, "test");
  CHECK(x.chunk->data == reinterpret_cast<char*>(values));
  CHECK_EQ(x.chunk->bytes, sizeof values);
  int64_t shape[1], strides[1];
  put_geometry(x, shape, strides);
  CHECK(shape[0] == 4 && strides[0] == -8);
}
