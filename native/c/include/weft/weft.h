/* weft/weft.h: programs that weft has exported, for C and for all that can call C.
 *
 * `step.export(folder, target="native")` in Python writes a traced step as a folder: weights, plan and
 * machine code. These functions load and run it without Python. docs/c.md explains the use.
 *
 * Calls return a weft_status, as those of engine.h do; weft_last_error() is the text of the thread's latest
 * failure. A program may be run by any number of threads at a time; weft_program_free is its last use.
 * A folder holds machine code: load only what you would link.
 *
 * Version 1, as engine.h has it: structures begin with their size, and later versions add to their ends.
 *
 *     cc program.c $(python -m weft.info --cflags --program-libs)
 */
#ifndef WEFT_WEFT_H
#define WEFT_WEFT_H

#include <weft/engine.h>
#include <weft/kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_program weft_program;

/* An input, output or weight of a program. What it points to lives as long as the program. */
typedef struct {
  size_t size;       /* sizeof(weft_array_type), set by the caller */
  const char* name;  /* the argument's name in Python; of outputs "y0", "y1", ... */
  const char* dtype; /* as in Python: "float32", "bfloat16", "int64", "bool", ... */
  size_t item_bytes; /* of one element */
  int ndim;
  const int64_t* shape; /* ndim sizes */
  int is_written;       /* of an input or weight: a run changes it */
} weft_array_type;

/* Memory of the caller's. It is not used after the call that takes it. */
typedef struct {
  void* data;             /* aligned to its elements; may be NULL if there are none */
  const int64_t* strides; /* in elements, ndim of them; NULL: row-major */
} weft_array;

typedef struct {
  int ndim;
  const int64_t* sizes;
} weft_shape;

/* The folder's program for the highest level of instructions that this processor has; if it has several, for
 * inputs of different shapes, the first. */
WEFT_API weft_status weft_program_load(const char* folder, weft_program** program);
/* With all variants. */
WEFT_API void weft_program_free(weft_program* program);

/* The variants of a program are those for inputs of different shapes, itself included. They share weights,
 * and go with the program that was loaded: weft_program_free of one of the others does nothing. */
WEFT_API int weft_program_variant_count(const weft_program* program);
WEFT_API weft_status weft_program_variant(weft_program* program, int number, weft_program** variant);
/* The variant for inputs of these shapes, one for each input; WEFT_MISUSE, with the shapes that there are, if
 * there is none. */
WEFT_API weft_status weft_program_for_shapes(weft_program* program, const weft_shape* shapes,
                                             weft_program** variant);

WEFT_API int weft_program_input_count(const weft_program* program);
WEFT_API int weft_program_output_count(const weft_program* program);
/* Fills the members that are within type->size; WEFT_MISUSE if there is no input or output of this number. */
WEFT_API weft_status weft_program_input(const weft_program* program, int number, weft_array_type* type);
WEFT_API weft_status weft_program_output(const weft_program* program, int number, weft_array_type* type);

/* Runs it, and returns when all outputs are written. As many inputs and outputs as the program has, in order;
 * outputs, and inputs that are written, overlap no other array. After WEFT_FAILED their content is undefined.
 * Runs of several threads that change weights happen one after the other. */
WEFT_API weft_status weft_program_run(weft_program* program, const weft_array* inputs,
                                      const weft_array* outputs);

/* The arrays that the function found outside of its arguments. A run may change them, and later runs find
 * them changed. A program that is loaded again begins with those of the folder. */
WEFT_API int weft_program_weight_count(const weft_program* program);
WEFT_API weft_status weft_program_weight(const weft_program* program, int number, weft_array_type* type);
/* Copies a weight to the caller's memory, as runs that have returned left it, or from there. */
WEFT_API weft_status weft_program_read_weight(weft_program* program, int number, const weft_array* to);
WEFT_API weft_status weft_program_write_weight(weft_program* program, int number, const weft_array* from);

/* Kernels of libraries of one's own (kernel.h), for programs that have been exported with them: before they
 * are loaded. WEFT_MISUSE, with the reason, if the library or a kernel is not as it has to be. */
WEFT_API weft_status weft_kernels_load(const char* library);
WEFT_API weft_status weft_kernel_add(const weft_kernel* kernel);

/* Starts the random numbers of all programs of this process over: those of weft.random.seed(seed). Without it
 * they begin at a random place. */
WEFT_API weft_status weft_seed(uint64_t seed);

#ifdef __cplusplus
}
#endif

#endif
