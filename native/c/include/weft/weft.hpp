// weft/weft.hpp: exported programs for C++17, on top of weft/weft.h: handles that free themselves, vectors,
// exceptions (EngineError).
//
//     weft::Program program("resnet50");
//     std::vector<float> image(program.inputs()[0].elements()), scores(program.outputs()[0].elements());
//     program.run({weft::in(image)}, {weft::out(scores)});
#ifndef WEFT_WEFT_HPP
#define WEFT_WEFT_HPP

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "weft/engine.hpp"
#include "weft/weft.h"

namespace weft {

// An input, output or weight of a program.
struct ArrayType {
  std::string name, dtype;
  size_t item_bytes;
  std::vector<int64_t> shape;
  bool is_written;

  size_t elements() const noexcept {
    size_t count = 1;
    for (const int64_t n : shape) count *= static_cast<size_t>(n);
    return count;
  }
};

// Row-major memory of the caller's: a pointer or a container, which has to live until the run has returned.
inline weft_array in(const void* data) noexcept { return {const_cast<void*>(data), nullptr}; }
template <class Container>
auto in(const Container& x) noexcept -> decltype(in(x.data())) {
  return in(x.data());
}
inline weft_array out(void* data) noexcept { return {data, nullptr}; }
template <class Container>
auto out(Container& x) noexcept -> decltype(out(x.data())) {
  return out(x.data());
}

// A program and its variants, which share the folder: it is freed with the last of them.
class Program {
 public:
  // Raises EngineError, with the reason, if the folder cannot be loaded.
  explicit Program(const std::string& folder) {
    detail::check(weft_program_load(folder.c_str(), &handle_));
    folder_.reset(handle_, weft_program_free);
  }

  std::vector<ArrayType> inputs() const { return types<weft_program_input_count, weft_program_input>(); }
  std::vector<ArrayType> outputs() const { return types<weft_program_output_count, weft_program_output>(); }
  std::vector<ArrayType> weights() const { return types<weft_program_weight_count, weft_program_weight>(); }

  std::vector<Program> variants() const {
    std::vector<Program> all;
    for (int k = 0; k < weft_program_variant_count(handle_); ++k) {
      all.push_back(*this);
      detail::check(weft_program_variant(handle_, k, &all.back().handle_));
    }
    return all;
  }
  // The variant for inputs of these shapes, one for each input.
  Program for_shapes(const std::vector<std::vector<int64_t>>& shapes) const {
    if (shapes.size() != static_cast<size_t>(weft_program_input_count(handle_)))
      throw EngineError(WEFT_MISUSE,
                        "there are " + std::to_string(weft_program_input_count(handle_)) + " inputs, got " +
                            std::to_string(shapes.size()) + " shapes",
                        "");
    std::vector<weft_shape> all;
    for (const std::vector<int64_t>& shape : shapes)
      all.push_back({static_cast<int>(shape.size()), shape.data()});
    Program variant = *this;
    detail::check(weft_program_for_shapes(handle_, all.data(), &variant.handle_));
    return variant;
  }

  // Returns when outputs are written. Raises EngineError, also for other numbers of arrays than the program
  // has.
  void run(const std::vector<weft_array>& inputs, const std::vector<weft_array>& outputs) {
    check_count("inputs", inputs.size(), weft_program_input_count(handle_));
    check_count("outputs", outputs.size(), weft_program_output_count(handle_));
    detail::check(weft_program_run(handle_, inputs.data(), outputs.data()));
  }
  void read_weight(int number, weft_array to) {
    detail::check(weft_program_read_weight(handle_, number, &to));
  }
  void write_weight(int number, weft_array from) {
    detail::check(weft_program_write_weight(handle_, number, &from));
  }
  weft_program* get() const noexcept { return handle_; }

 private:
  template <auto count, auto describe>
  std::vector<ArrayType> types() const {
    std::vector<ArrayType> all;
    for (int k = 0; k < count(handle_); ++k) {
      weft_array_type type{};
      type.size = sizeof type;
      detail::check(describe(handle_, k, &type));
      all.push_back({type.name,
                     type.dtype,
                     type.item_bytes,
                     {type.shape, type.shape + type.ndim},
                     type.is_written != 0});
    }
    return all;
  }
  static void check_count(const char* what, size_t given, int expected) {
    if (given != static_cast<size_t>(expected))
      throw EngineError(
          WEFT_MISUSE,
          "there are " + std::to_string(expected) + " " + what + ", got " + std::to_string(given), "");
  }

  weft_program* handle_ = nullptr;
  std::shared_ptr<weft_program> folder_;
};

}  // namespace weft

#endif
