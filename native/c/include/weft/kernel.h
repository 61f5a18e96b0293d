/* weft/kernel.h: kernels in a library of one's own, for operators in Python and for exported programs.
 *
 * A library exports `weft_kernels`, which adds what it has. It includes this header alone, and is linked with
 * nothing of weft. docs/c.md explains the use:
 *
 *     cc -shared -fPIC kernels.c $(python -m weft.info --cflags) -o kernels.so
 *
 * Version 1. Later versions add members to the ends of structures that begin with their size; a library that
 * was compiled with this header goes on to work.
 */
#ifndef WEFT_KERNEL_H
#define WEFT_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#define WEFT_KERNEL_VERSION 1

#ifdef __cplusplus
extern "C" {
#endif

/* An array that a kernel reads or writes. */
typedef struct {
  void* data;        /* aligned to its elements; undefined where there are none */
  const char* dtype; /* "float32", "bfloat16", "int64", "bool", ... */
  int ndim;
  const int64_t* shape;   /* ndim sizes */
  const int64_t* strides; /* in elements */
} weft_operand;

typedef struct weft_kernel_call {
  size_t size;                  /* sizeof(weft_kernel_call), of weft */
  const weft_operand* operands; /* inputs, then outputs */
  int input_count, output_count;
  const double* numbers; /* the operator's attributes that are numbers, as Python says */
  int number_count;
  void* scratch; /* as many bytes as scratch_bytes gave, aligned to 64 */
  /* Of this call: notes why it fails; returns 1. The text is copied. */
  int (*fail)(const struct weft_kernel_call* call, const char* text);
  void* weft; /* weft's own */
} weft_kernel_call;

/* All that is not set is 0. The structure and its texts are copied; data has to live as long as the process.
 */
typedef struct {
  size_t size;        /* sizeof(weft_kernel) */
  const char* name;   /* of letters, digits, _ and ., such as "acme.hypot" */
  const char* device; /* "cpu"; there are no others yet */
  /* What its operands may be, one alternative after the other: "float32,float32->float32;
   * float64,float64->float64". Kernels of one name that are added later have other alternatives. */
  const char* dtypes;
  /* Returns 0 if it succeeded, else anything else: call->fail says why. Called by several threads at a time,
   * for different calls. Outputs overlap no input. */
  int (*run)(const weft_kernel_call* call, void* data);
  /* How much scratch memory a call takes; data of its operands and scratch are NULL. If it is not set, none.
   */
  size_t (*scratch_bytes)(const weft_kernel_call* call, void* data);
  void* data;
  int takes_strides; /* not 0: operands come with any strides; 0: row-major, others are copied */
  int is_wide;       /* not 0: it uses several threads by itself, or takes milliseconds at any size */
} weft_kernel;

/* Where kernels are added. */
typedef struct weft_registry {
  size_t size; /* sizeof(weft_registry), of weft */
  int version; /* WEFT_KERNEL_VERSION, of weft */
  /* Returns 0, or 1 if the kernel is not as it has to be: then loading fails, with the reason. */
  int (*add)(struct weft_registry* registry, const weft_kernel* kernel);
  void* weft; /* weft's own */
} weft_registry;

#if defined(__GNUC__)
#define WEFT_KERNEL_API __attribute__((visibility("default")))
#else
#define WEFT_KERNEL_API
#endif

/* To be defined by the library. Returns 0 if all is added; anything else is an error. */
WEFT_KERNEL_API int weft_kernels(weft_registry* registry);

#ifdef __cplusplus
}
#endif

#endif
