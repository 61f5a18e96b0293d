/* A library of kernels for weft: example.hypot, sqrt(x^2 + y^2) times a number.
 *
 *     cc -shared -fPIC -O2 kernels.c $(python -m weft.info --cflags) -lm -o kernels.so
 *
 * docs/c.md has the operator in Python. */
#include <math.h>
#include <string.h>
#include <weft/kernel.h>

static int64_t elements(const weft_operand* x) {
  int64_t count = 1;
  for (int d = 0; d < x->ndim; ++d) count *= x->shape[d];
  return count;
}

static int hypotenuse(const weft_kernel_call* call, void* data) {
  (void)data;
  const weft_operand *x = &call->operands[0], *y = &call->operands[1], *z = &call->operands[2];
  const int64_t count = elements(z);
  const double scale = call->number_count > 0 ? call->numbers[0] : 1;
  if (elements(x) != count || elements(y) != count) return call->fail(call, "x and y differ in size");
  if (strcmp(z->dtype, "float32") == 0) {
    const float *a = x->data, *b = y->data;
    float* c = z->data;
    for (int64_t k = 0; k < count; ++k) c[k] = (float)scale * sqrtf(a[k] * a[k] + b[k] * b[k]);
  } else {
    const double *a = x->data, *b = y->data;
    double* c = z->data;
    for (int64_t k = 0; k < count; ++k) c[k] = scale * sqrt(a[k] * a[k] + b[k] * b[k]);
  }
  return 0;
}

int weft_kernels(weft_registry* registry) {
  const weft_kernel kernel = {.size = sizeof kernel,
                              .name = "example.hypot",
                              .device = "cpu",
                              .dtypes = "float32,float32->float32; float64,float64->float64",
                              .run = hypotenuse};
  return registry->add(registry, &kernel);
}
