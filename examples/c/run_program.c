/* Runs an exported program: zeros, or the files that are named, as inputs; outputs to the standard output.
 *
 *     run_program FOLDER [INPUT_FILE ...]
 *
 * Files hold elements in row-major order, as numpy's tofile writes them. */
#include <stdio.h>
#include <stdlib.h>
#include <weft/weft.h>

static void require(weft_status status) {
  if (status == WEFT_OK) return;
  fprintf(stderr, "run_program: %s\n", weft_last_error());
  exit(1);
}

/* Fresh memory of an array, in all bytes 0. */
static void* memory_for(const weft_array_type* type, size_t* bytes) {
  *bytes = type->item_bytes;
  for (int d = 0; d < type->ndim; ++d) *bytes *= (size_t)type->shape[d];
  return calloc(*bytes ? *bytes : 1, 1);
}

static void read_file(const char* path, void* data, size_t bytes) {
  FILE* file = fopen(path, "rb");
  if (!file || fread(data, 1, bytes, file) != bytes) {
    fprintf(stderr, "run_program: %s: there are no %zu bytes to read\n", path, bytes);
    exit(1);
  }
  fclose(file);
}

int main(int count, char** arguments) {
  if (count < 2) {
    fprintf(stderr, "usage: run_program FOLDER [INPUT_FILE ...]\n");
    return 1;
  }
  weft_program* program;
  require(weft_program_load(arguments[1], &program));
  const int inputs = weft_program_input_count(program), outputs = weft_program_output_count(program);
  weft_array* in = calloc((size_t)inputs + 1, sizeof *in);
  weft_array* out = calloc((size_t)outputs + 1, sizeof *out);
  size_t* sizes = calloc((size_t)outputs + 1, sizeof *sizes);
  weft_array_type type = {.size = sizeof type};
  for (int k = 0; k < inputs; ++k) {
    size_t bytes;
    require(weft_program_input(program, k, &type));
    in[k].data = memory_for(&type, &bytes);
    if (2 + k < count) read_file(arguments[2 + k], in[k].data, bytes);
  }
  for (int k = 0; k < outputs; ++k) {
    require(weft_program_output(program, k, &type));
    out[k].data = memory_for(&type, &sizes[k]);
  }
  require(weft_program_run(program, in, out));
  for (int k = 0; k < outputs; ++k) fwrite(out[k].data, 1, sizes[k], stdout);
  for (int k = 0; k < inputs; ++k) free(in[k].data);
  for (int k = 0; k < outputs; ++k) free(out[k].data);
  free(in), free(out), free(sizes);
  weft_program_free(program);
  return 0;
}
