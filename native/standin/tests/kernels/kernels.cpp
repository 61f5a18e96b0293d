// Kernels for the stand-in's own tests: compiled to an object file that the tests load as an image.
#include <cstdint>

extern "C" {

std::int64_t weft_thread();
std::int64_t weft_threads();
std::int64_t weft_block();
std::int64_t weft_blocks();
void weft_barrier(std::int32_t number);
std::uint32_t weft_shuffle_down_i32(std::uint32_t value, std::int32_t lanes);
std::uint32_t weft_shuffle_xor_i32(std::uint32_t value, std::int32_t mask);
std::uint64_t weft_shuffle_index_i64(std::uint64_t value, std::int32_t lane);
void* weft_shared();
void* weft_global(void* pointer);
}

struct Arguments {
  void *x, *y, *z;
  std::int64_t size;
};

// Global constants with a dot in their names, as the compiler for the stand-in writes them.
#define KERNEL(name)                                                            \
  extern "C" const std::uint64_t name##_bytes __asm__(#name ".argument_bytes"); \
  const std::uint64_t name##_bytes __attribute__((used)) = sizeof(Arguments);   \
  extern "C" void name(const Arguments* arguments)

namespace {
template <class T>
T* at(void* pointer) {
  return static_cast<T*>(weft_global(pointer));
}
}  // namespace

KERNEL(add) {
  const float *x = at<float>(arguments->x), *y = at<float>(arguments->y);
  float* z = at<float>(arguments->z);
  const std::int64_t first = weft_block() * weft_threads() + weft_thread();
  for (std::int64_t i = first; i < arguments->size; i += weft_blocks() * weft_threads()) z[i] = x[i] + y[i];
}

// y[block] = the sum of the block's 2 * threads numbers of x, through shared memory; `barriers`: with those
// it needs.
template <bool barriers>
static void block_sums(const Arguments* arguments) {
  const float* x = at<float>(arguments->x);
  auto* shared = static_cast<float*>(weft_shared());
  const std::int64_t thread = weft_thread(), threads = weft_threads();
  float total = 0;
  for (std::int64_t part = 0; part < 2; ++part) {
    shared[thread] = x[(weft_block() * 2 + part) * threads + thread];
    if (barriers) weft_barrier(0);
    for (std::int64_t k = 0; k < threads; ++k) total += shared[k];
    if (barriers) weft_barrier(0);
  }
  if (thread == 0) at<float>(arguments->y)[weft_block()] = total;
  if (!barriers) weft_barrier(0);
}
KERNEL(sums) { block_sums<true>(arguments); }
KERNEL(racing_sums) { block_sums<false>(arguments); }

// y[thread] = the warp's sum of x by xor; z[thread] = x of the next lane; then z of lane 5 to all of its
// warp's z.
KERNEL(shuffles) {
  const auto* x = at<std::uint32_t>(arguments->x);
  const std::int64_t thread = weft_thread();
  std::uint32_t sum = x[thread];
  for (int mask = 16; mask; mask /= 2) sum += weft_shuffle_xor_i32(sum, mask);
  at<std::uint32_t>(arguments->y)[thread] = sum;
  const std::uint32_t next = weft_shuffle_down_i32(x[thread], 1);
  at<std::uint64_t>(arguments->z)[thread] = weft_shuffle_index_i64((std::uint64_t{next} << 32) + next, 5);
}

KERNEL(half_barrier) {
  if (weft_thread() < arguments->size) weft_barrier(0);
}

KERNEL(two_barriers) {
  if (weft_thread() < arguments->size) {
    at<std::int64_t>(arguments->x)[weft_thread()] = 1;
    weft_barrier(1);
    at<std::int64_t>(arguments->x)[weft_thread()] = 2;
  } else {
    weft_barrier(0);
    at<std::int64_t>(arguments->x)[weft_thread()] = 3;
  }
}

KERNEL(half_shuffle) {
  if (weft_thread() < arguments->size) weft_shuffle_xor_i32(1, 1);
}

KERNEL(writes) { at<char>(arguments->x)[arguments->size] = 1; }

KERNEL(reads) { at<char>(arguments->y)[0] = at<char>(arguments->x)[arguments->size]; }

KERNEL(writes_shared) { static_cast<char*>(weft_shared())[arguments->size] = 1; }
