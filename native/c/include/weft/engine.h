/* weft/engine.h: the dependency engine, for C and for all that can call C.
 *
 * The engine runs functions. A push says which variables a function reads and which it changes; functions of
 * which one changes what the other uses run in the order in which they were pushed, all others may run at the
 * same time. docs/engine.md explains the ideas, which are the same in Python; docs/c.md this interface.
 *
 * Calls return a weft_status; weft_last_error() is the text of the latest call of the thread that did not
 * return WEFT_OK. Every function may be called by every thread at any time, but for the functions that free a
 * handle, after which it must not be used. Functions that run inside of the engine may push, and must not
 * wait.
 *
 * Version 1. Later versions add functions, and members at the ends of the structures whose first member is
 * their size; programs that were compiled with this header go on to run with the libraries of them.
 *
 *     cc program.c $(python -m weft.info --cflags --libs)
 */
#ifndef WEFT_ENGINE_H
#define WEFT_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#define WEFT_ENGINE_VERSION 1

#if defined(__GNUC__)
#define WEFT_API __attribute__((visibility("default")))
#else
#define WEFT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_engine weft_engine;
typedef struct weft_variable weft_variable; /* a token for any resource; it has no data */
typedef struct weft_operator weft_operator; /* a function with its variables, made once and pushed often */
typedef struct weft_context weft_context;   /* what a function gets while it runs; valid until it returns */
typedef struct weft_completion weft_completion; /* with which an asynchronous operation ends */

typedef enum {
  WEFT_OK = 0,
  WEFT_FAILED = 1,    /* what was waited for, or what it depends on, has failed: see weft_last_operation */
  WEFT_TIMED_OUT = 2, /* the work goes on */
  WEFT_MISUSE = 3,    /* the call is wrong, and nothing has happened */
  WEFT_NO_MEMORY = 4  /* nothing has happened */
} weft_status;

/* Threads of their own, so that none waits behind another. */
typedef enum {
  WEFT_COMPUTE = 0, /* functions that keep one core busy */
  WEFT_WIDE = 1,    /* functions that use all cores themselves; compute work waits meanwhile */
  WEFT_COPY = 2,    /* moving data */
  WEFT_IO = 3,      /* functions that block */
  WEFT_PRIORITY = 4 /* short and urgent functions */
} weft_queue;

typedef enum {
  WEFT_THREADED = 0,
  WEFT_NAIVE = 1, /* a function runs at its push, on the pushing thread: for debuggers */
  WEFT_EXPLORE =
      2 /* one function at a time, in an order that the rule allows, drawn from `seed`: for tests */
} weft_engine_kind;

typedef struct {
  size_t size;                /* sizeof(weft_engine_options) */
  int kind;                   /* a weft_engine_kind */
  int workers;                /* threads of the compute queue of each device; 0: as many as there are cores */
  int io_workers;             /* 0: 4 */
  int check;                  /* not 0: weft_check_access finds accesses that were not declared */
  uint64_t seed;              /* of WEFT_EXPLORE */
  uint64_t max_pending;       /* pushes wait while more operations are pending; 0: 2048 */
  uint64_t max_pending_bytes; /* the same for the sum of their size_bytes; 0: 64 MiB */
} weft_engine_options;

/* Returns 0 if it succeeded, anything else if it failed: weft_fail says why. */
typedef int (*weft_function)(weft_context* context, void* data);

/* All that is not set is 0: weft_operation work = {.size = sizeof work, .run = f, ...}. The arrays are read,
 * and the name is copied, before the push returns. A variable that is listed twice, or as read and as
 * written, is written. */
typedef struct {
  size_t size; /* sizeof(weft_operation) */
  weft_function run;
  void* data;
  void (*release)(void* data); /* if given, called once, when data is used no more, also if the push fails */
  /* If given, called when the operation has finished, failed or been skipped, after its effects are visible.
   * error: NULL, or what went wrong; valid during the call. It must not wait. */
  void (*done)(void* data, const char* error);
  const char* name; /* for errors; NULL: none */
  weft_variable* const* reads;
  size_t read_count;
  weft_variable* const* writes; /* what it changes; reading it as well is fine */
  size_t write_count;
  weft_variable* const*
      overwrites; /* what it writes without reading: runs although they are poisoned, cures them */
  size_t overwrite_count;
  int device;       /* cpu:0, cpu:1, ...: groups of threads, which share all variables */
  int queue;        /* a weft_queue */
  int priority;     /* of the ready operations of a queue the highest starts first */
  int asynchronous; /* not 0: it lasts until its completion is given back, see weft_completion_of */
  int run_on_error; /* not 0: it runs although something that it uses has failed, see weft_inherited_error */
  uint64_t size_bytes; /* memory that it holds while it is pending */
} weft_operation;

/* The version of the library that is loaded. */
WEFT_API int weft_engine_version(void);
/* The text of the thread's latest call that did not return WEFT_OK, "" if there was none; valid until the
 * next. */
WEFT_API const char* weft_last_error(void);
/* If that was WEFT_FAILED: the name of the operation that failed first; else "". */
WEFT_API const char* weft_last_operation(void);

/* options: NULL for those of zeros. */
WEFT_API weft_status weft_engine_new(const weft_engine_options* options, weft_engine** engine);
/* Waits until all that was pushed has finished, and ends the threads. Handles of variables and operators may
 * be freed before or afterwards. NULL is allowed, as for the other functions that free. */
WEFT_API void weft_engine_free(weft_engine* engine);

WEFT_API weft_status weft_variable_new(weft_engine* engine, weft_variable** variable);
/* What was pushed on it before goes on to use it. */
WEFT_API void weft_variable_free(weft_variable* variable);
/* Frees the handle, and calls deleted(data) when everything that was pushed on the variable has ended. After
 * an error the handle is still there. */
WEFT_API weft_status weft_variable_delete(weft_variable* variable, void (*deleted)(void* data), void* data);
/* How many operations have written it. */
WEFT_API uint64_t weft_variable_version(const weft_variable* variable);
/* 1 if nothing that was pushed has still to write it (to_write: or to read it) and it is not poisoned; else
 * 0. */
WEFT_API int weft_variable_is_ready(weft_variable* variable, int to_write);

WEFT_API weft_status weft_push(weft_engine* engine, const weft_operation* operation);
WEFT_API weft_status weft_operator_new(weft_engine* engine, const weft_operation* operation,
                                       weft_operator** made);
WEFT_API weft_status weft_operator_push(weft_operator* pushed, int device, int priority);
/* After the runs that were pushed before. */
WEFT_API void weft_operator_free(weft_operator* freed);

/* Inside of a function. */
WEFT_API int weft_context_device(const weft_context* context);
WEFT_API weft_queue weft_context_queue(const weft_context* context);
WEFT_API int weft_context_worker(
    const weft_context* context); /* index in the queue; -1: the pushing thread */
/* Gives the failure's text and returns 1: `return weft_fail(context, "no such file");` */
WEFT_API int weft_fail(weft_context* context, const char* text);
/* Of an operation with run_on_error: why something that it uses is poisoned, or NULL. */
WEFT_API const char* weft_inherited_error(const weft_context* context);
/* Of an asynchronous operation, once; NULL elsewhere, and without memory. */
WEFT_API weft_completion* weft_completion_of(weft_context* context);

/* Ends the operation, from any thread, and frees the handle. error: NULL, or what went wrong. WEFT_MISUSE: it
 * had ended already, because its function failed, or with the engine. */
WEFT_API weft_status weft_complete(weft_completion* completion, const char* error);

/* timeout_s: seconds, below 0 for ever. A variable is waited for until all that was pushed on it has run, or,
 * with writes_only, what produces its value. weft_wait_for_all reports each failure once. */
WEFT_API weft_status weft_wait_for_variable(weft_variable* variable, int writes_only, double timeout_s);
WEFT_API weft_status weft_wait_for_all(weft_engine* engine, double timeout_s);
/* WEFT_FAILED if the variable is poisoned now; waits for nothing. */
WEFT_API weft_status weft_check_variable(weft_variable* variable);
/* Forgets the error, in the order of pushes. */
WEFT_API weft_status weft_clear_error(weft_variable* variable);
/* With options.check: WEFT_MISUSE if the running function did not declare the access. */
WEFT_API weft_status weft_check_access(weft_variable* variable, int write);
/* The thread's pushes are collected, and submitted `count` at a time, until weft_end_bulk. */
WEFT_API weft_status weft_begin_bulk(weft_engine* engine, int count);
WEFT_API weft_status weft_end_bulk(weft_engine* engine);

#ifdef __cplusplus
}
#endif
#endif
