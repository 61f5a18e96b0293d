/* word_count.c: counts the words of files side by side, and prints the counts in the order of the files.
 *
 *     cc -std=c11 word_count.c $(python -m weft.info --cflags --libs) -o word_count && ./word_count FILE...
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include <weft/engine.h>

typedef struct {
  const char* path;
  long words;
} file_count;

static int count_words(weft_context* context, void* data) {
  file_count* file = data;
  FILE* stream = fopen(file->path, "r");
  if (!stream) return weft_fail(context, "cannot be read");
  int c, inside = 0;
  while ((c = getc(stream)) != EOF) {
    if (!isspace(c) && !inside) ++file->words;
    inside = !isspace(c);
  }
  fclose(stream);
  return 0;
}

static int print_count(weft_context* context, void* data) {
  const file_count* file = data;
  const char* error = weft_inherited_error(context);
  if (error)
    printf("%s: %s\n", file->path, error);
  else
    printf("%s: %ld\n", file->path, file->words);
  return 0;
}

static void require(weft_status status) {
  if (status == WEFT_OK) return;
  fprintf(stderr, "word_count: %s\n", weft_last_error());
  exit(2);
}

int main(int count, char** paths) {
  weft_engine* engine;
  weft_variable* output; /* who has it may print */
  require(weft_engine_new(NULL, &engine));
  require(weft_variable_new(engine, &output));
  file_count* files = calloc((size_t)count, sizeof *files);
  for (int k = 1; k < count; ++k) {
    weft_variable* counted;
    require(weft_variable_new(engine, &counted));
    files[k].path = paths[k];
    weft_operation read = {.size = sizeof read, .run = count_words, .data = &files[k], .name = paths[k],
                           .writes = &counted, .write_count = 1, .queue = WEFT_IO};
    require(weft_push(engine, &read));
    weft_operation print = {.size = sizeof print, .run = print_count, .data = &files[k], .name = "print",
                            .reads = &counted, .read_count = 1, .overwrites = &output, .overwrite_count = 1,
                            .run_on_error = 1};
    require(weft_push(engine, &print));
    weft_variable_free(counted); /* what was pushed goes on to use it */
  }
  const int failed = weft_wait_for_all(engine, -1) != WEFT_OK;
  if (failed) fprintf(stderr, "word_count: %s\n", weft_last_error());
  weft_variable_free(output);
  weft_engine_free(engine);
  free(files);
  return failed;
}
