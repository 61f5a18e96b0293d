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

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_program weft_program;

/* An input or output of a program. What it points to lives as long as the program. */
typedef struct {
  size_t size;       /* sizeof(weft_array_type) */
  const char* name;  /* the argument's name in Python; of outputs "y0", "y1", ... */
  const char* dtype; /* as in Python: "float32", "bfloat16", "int64", "bool", ... */
  size_t item_bytes; /* of one element */
  int ndim;
  const int64_t* shape; /* ndim sizes */
} weft_array_type;

/* Memory of the caller's. It is not used after the call that takes it. */
typedef struct {
  void* data;             /* aligned to its elements; may be NULL if there are none; inputs are only read */
  const int64_t* strides; /* in elements, ndim of them; NULL: row-major */
} weft_array;

/* The folder's program for the highest level of instructions that this processor has. */
WEFT_API weft_status weft_program_load(const char* folder, weft_program** program);
WEFT_API void weft_program_free(weft_program* program);

WEFT_API int weft_program_input_count(const weft_program* program);
WEFT_API int weft_program_output_count(const weft_program* program);
/* Sets size itself; WEFT_MISUSE if there is no input or output of this number. */
WEFT_API weft_status weft_program_input(const weft_program* program, int number, weft_array_type* type);
WEFT_API weft_status weft_program_output(const weft_program* program, int number, weft_array_type* type);

/* Runs it, and returns when all outputs are written. As many inputs and outputs as the program has, in order;
 * outputs overlap neither inputs nor each other. After WEFT_FAILED the content of outputs is undefined. */
WEFT_API weft_status weft_program_run(weft_program* program, const weft_array* inputs,
                                      const weft_array* outputs);

#ifdef __cplusplus
}
#endif

#endif
