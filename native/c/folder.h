// folder.h: an exported folder in memory: weights, machine code and the programs that share them.
//
// Weights are mapped, private to the process: what is written stays in memory, other pages come from the
// file. Everything is checked when the folder is loaded, so that runs need not look again.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "c/object_code.h"
#include "program/stored.h"
#include "weft/weft.h"

namespace weft::c {

// A file in memory: pages that are written are this process's own.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  char* data() const { return data_; }
  size_t size() const { return size_; }
  std::string_view bytes() const { return {data_, size_}; }
  // Gives back the pages that are within [data, data + bytes), none of which this process has written. They
  // are read from the file again when they are needed.
  static void release(char* data, size_t bytes) noexcept;

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
};

// Memory that its owner frees, as a tensor.
Tensor tensor_over(char* data, DType dtype, const std::vector<int64_t>& shape,
                   const std::vector<int64_t>& strides, bool is_read_only);
std::vector<int64_t> dense_strides(const std::vector<int64_t>& shape);
void start_engine();

struct Folder {
  explicit Folder(const std::string& path);

  ExportedHeader header;
  std::unique_ptr<MappedFile> file;  // of weights
  std::unique_ptr<ObjectCode> code;
  std::vector<Tensor> weights;
  std::vector<std::atomic<bool>> is_changed;  // weights whose pages differ from the file's, or may
  std::vector<std::unique_ptr<weft_program>> variants;
  // Held while a run that changes or returns weights is pushed, so that its copies of them are its own, and
  // where weights become changed.
  std::mutex order;
  bool has_state = false;

 private:
  void read(const std::string& folder, const std::string& level, std::string_view plan);
  void map_weights();
};

}  // namespace weft::c

// One program of a folder.
struct weft_program {
  weft_program(weft::c::Folder& folder, size_t number, weft::Ref<const weft::Program> program);

  weft::c::Folder& folder;
  const weft::ExportedHeader::Variant& variant;
  const weft::Ref<const weft::Program> program;
  std::vector<bool> is_used;    // of each argument: whether runs look at it
  std::vector<bool> is_direct;  // of each result: whether its step writes it to the caller's row-major memory
  std::once_flag is_prepared;

  // Prepares what depends on weights alone, once. Those that no run reads any more leave this process's
  // memory one by one, so that there is never more than one of them beside what has been made of them.
  void prepare();

 private:
  void check() const;
  void find_direct_results();
};
