// program.cpp: weft/weft.h: exported folders, loaded and run. A run wraps the caller's memory in tensors,
// launches, and waits.
#include "weft/weft.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "c/errors.h"
#include "c/folder.h"
#include "kernels/outside.h"
#include "storage/runtime.h"
#include "tensor/staging.h"

using namespace weft;
using namespace weft::c;

namespace {

std::vector<int64_t> strides_of(const weft_array& array, const std::vector<int64_t>& shape) {
  return array.strides ? std::vector<int64_t>(array.strides, array.strides + shape.size())
                       : dense_strides(shape);
}

// The caller's memory. Raises EngineMisuse where it cannot be used.
Tensor tensor_of(const weft_array& memory, const ExportedHeader::Array& array, bool is_read_only) {
  const std::vector<int64_t> strides = strides_of(memory, array.shape);
  const bool is_empty = std::ranges::find(array.shape, 0) != array.shape.end();
  if (!memory.data && !is_empty) throw EngineMisuse(array.name + ": data is NULL");
  if (reinterpret_cast<uintptr_t>(memory.data) % std::min<size_t>(size_of(array.dtype), 8) != 0)
    throw EngineMisuse(array.name + ": data is not aligned to its elements of " +
                       std::to_string(size_of(array.dtype)) + " bytes");
  for (const int64_t stride : strides)
    if (stride < 0) throw EngineMisuse(array.name + ": strides are negative, which is not supported");
  return tensor_over(static_cast<char*>(memory.data), array.dtype, array.shape, strides, is_read_only);
}

// Uninitialised memory with these strides.
Tensor empty_with(DType dtype, const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
  int64_t elements = 1;
  for (size_t d = 0; d < shape.size(); ++d) elements += (shape[d] - 1) * strides[d];
  const Tensor memory = Tensor::empty(std::array{std::max<int64_t>(elements, 0)}, dtype, {});
  return memory.as_strided(memory.data, shape, strides);
}

// What a run takes: arguments as they were planned, weights, numbers.
struct Operands {
  struct Back {  // a written argument of other strides: its planned copy
    Tensor to, from;
  };
  std::vector<Tensor> arguments;
  std::vector<const Tensor*> inputs;
  std::vector<Scalar> numbers;
  std::vector<Back> back;

  Operands(const weft_program& p, const weft_array* given) {
    const ExportedHeader::Variant& variant = p.variant;
    for (size_t k = 0; k < variant.arguments.size(); ++k) {
      const auto& [array, is_written] = variant.arguments[k];
      arguments.push_back(p.is_used[k] ? tensor_of(given[k], array, !is_written) : Tensor());
    }
    std::vector<bool> is_planned(arguments.size());
    for (size_t k = 0; k < variant.inputs.size(); ++k) {
      const int input = variant.inputs[k];
      if (input < 0) {
        inputs.push_back(&p.folder.weights[static_cast<size_t>(-1 - input)]);
        continue;
      }
      const auto number = static_cast<size_t>(input);
      if (!is_planned[number])
        plan(number, p.program->planned_inputs[k], variant.arguments[number].is_written);
      is_planned[number] = true;
      inputs.push_back(&arguments[number]);
    }
    for (const int argument : variant.numbers) {
      Scalar number{.kind = Scalar::Kind::real, .real = 0};
      std::memcpy(&number.real, arguments[static_cast<size_t>(argument)].data, sizeof number.real);
      numbers.push_back(number);
    }
  }

  // Copies an argument whose strides are not the planned ones.
  void plan(size_t number, const Program::Input& planned, bool is_written) {
    Tensor& x = arguments[number];
    bool fits = true;
    for (int d = 0; d < x.ndim; ++d)
      fits = fits && (x.shape[d] <= 1 || x.strides[d] == planned.strides[static_cast<size_t>(d)]);
    if (fits) return;
    const Tensor copy = empty_with(planned.dtype, planned.shape, planned.strides);
    copy_elements(copy.view(), {}, x.view(), {});
    if (is_written) back.push_back({x, copy});
    x = copy;
  }
};

void run(weft_program& p, const weft_array* given, const weft_array* wanted) {
  const ExportedHeader::Variant& variant = p.variant;
  if (!given && !variant.arguments.empty()) throw EngineMisuse("inputs is NULL");
  if (!wanted && !variant.results.empty()) throw EngineMisuse("outputs is NULL");
  p.prepare();
  const Operands operands(p, given);
  std::vector<Tensor> places, outputs(p.program->outputs.size());
  places.reserve(variant.results.size());
  std::vector<const Tensor*> destinations(outputs.size());
  std::vector<Tensor*> output_pointers;
  for (Tensor& x : outputs) output_pointers.push_back(&x);
  for (size_t j = 0; j < variant.results.size(); ++j) {
    places.push_back(tensor_of(wanted[j], variant.results[j].array, false));
    if (p.is_direct[j] && places[j].contiguous())
      destinations[static_cast<size_t>(variant.results[j].number)] = &places[j];
  }
  {
    std::unique_lock lock(p.folder.order, std::defer_lock);
    if (p.folder.has_state) lock.lock();
    p.program->launch(operands.inputs, operands.numbers, destinations, output_pointers.data());
    for (size_t j = 0; j < variant.results.size(); ++j) {
      const auto& [array, is_input, number] = variant.results[j];
      const auto k = static_cast<size_t>(number);
      if (is_input || destinations[k] != &places[j])
        push_copy(places[j], is_input ? *operands.inputs[k] : outputs[k]);
    }
  }
  for (const Tensor& x : outputs)
    if (x.chunk) wait_for(x);
  for (const Tensor& x : places) wait_for(x);
  for (const auto& [to, from] : operands.back) copy_elements(to.view(), {}, from.view(), {});
}

void describe_array(weft_array_type* type, const ExportedHeader::Array& array, bool is_written) {
  const size_t size = existing(type, "type").size;
  if (size < offsetof(weft_array_type, is_written))
    throw EngineMisuse("type->size is " + std::to_string(size) + ", not sizeof(weft_array_type)");
  const weft_array_type described{size,
                                  array.name.c_str(),
                                  weft::name_of(array.dtype),
                                  size_of(array.dtype),
                                  static_cast<int>(array.shape.size()),
                                  array.shape.data(),
                                  is_written};
  std::memcpy(type, &described, std::min(size, sizeof described));
}

// Item k of a list of inputs, outputs, ...; raises EngineMisuse.
template <class T>
const T& item(const std::vector<T>& items, int number, const char* what) {
  if (number < 0 || static_cast<size_t>(number) >= items.size())
    throw EngineMisuse("there is no " + std::string(what) + " " + std::to_string(number) + " of " +
                       std::to_string(items.size()));
  return items[static_cast<size_t>(number)];
}

std::string described_shapes(const std::vector<std::pair<std::string, std::vector<int64_t>>>& shapes) {
  std::string text;
  for (const auto& [name, shape] : shapes) {
    text += (text.empty() ? "" : ", ") + name + "[";
    for (size_t d = 0; d < shape.size(); ++d) text += (d ? "," : "") + std::to_string(shape[d]);
    text += "]";
  }
  return text.empty() ? "no inputs" : text;
}

weft_program& variant_for(weft_program& p, const weft_shape* shapes) {
  std::string there;
  for (const auto& one : p.folder.variants) {
    const auto& arguments = one->variant.arguments;
    bool fits = true;
    std::vector<std::pair<std::string, std::vector<int64_t>>> described;
    for (size_t k = 0; k < arguments.size(); ++k) {
      const ExportedHeader::Array& array = arguments[k].array;
      fits = fits &&
             std::ranges::equal(array.shape, std::span(shapes[k].sizes, static_cast<size_t>(shapes[k].ndim)));
      described.emplace_back(array.name, array.shape);
    }
    if (fits) return *one;
    there += (there.empty() ? "" : "; ") + described_shapes(described);
  }
  std::vector<std::pair<std::string, std::vector<int64_t>>> given;
  for (size_t k = 0; k < p.variant.arguments.size(); ++k)
    given.emplace_back(p.variant.arguments[k].array.name,
                       std::vector<int64_t>(shapes[k].sizes, shapes[k].sizes + shapes[k].ndim));
  throw EngineMisuse("there is no program for " + described_shapes(given) + "; there are " + there);
}

}  // namespace

weft_status weft_program_load(const char* folder, weft_program** program) {
  return guarded([&] {
    existing(program, "program") = nullptr;
    auto loaded = std::make_unique<Folder>(std::string(&existing(folder, "folder")));
    *program = loaded.release()->variants[0].get();
  });
}

void weft_program_free(weft_program* program) {
  if (program && program->folder.variants[0].get() == program) delete &program->folder;
}

int weft_program_variant_count(const weft_program* program) {
  return program ? static_cast<int>(program->folder.variants.size()) : 0;
}

weft_status weft_program_variant(weft_program* program, int number, weft_program** variant) {
  return guarded([&] {
    existing(variant, "variant") = nullptr;
    *variant = item(existing(program, "program").folder.variants, number, "variant").get();
  });
}

weft_status weft_program_for_shapes(weft_program* program, const weft_shape* shapes, weft_program** variant) {
  return guarded([&] {
    existing(variant, "variant") = nullptr;
    const size_t count = existing(program, "program").variant.arguments.size();
    if (!shapes && count) throw EngineMisuse("shapes is NULL");
    for (size_t k = 0; k < count; ++k)
      if (shapes[k].ndim < 0 || (shapes[k].ndim && !shapes[k].sizes))
        throw EngineMisuse("shape " + std::to_string(k) + " has no sizes");
    *variant = &variant_for(*program, shapes);
  });
}

int weft_program_input_count(const weft_program* program) {
  return program ? static_cast<int>(program->variant.arguments.size()) : 0;
}
int weft_program_output_count(const weft_program* program) {
  return program ? static_cast<int>(program->variant.results.size()) : 0;
}
int weft_program_weight_count(const weft_program* program) {
  return program ? static_cast<int>(program->folder.weights.size()) : 0;
}

weft_status weft_program_input(const weft_program* program, int number, weft_array_type* type) {
  return guarded([&] {
    const auto& x = item(existing(program, "program").variant.arguments, number, "input");
    describe_array(type, x.array, x.is_written);
  });
}

weft_status weft_program_output(const weft_program* program, int number, weft_array_type* type) {
  return guarded([&] {
    describe_array(type, item(existing(program, "program").variant.results, number, "output").array, false);
  });
}

weft_status weft_program_weight(const weft_program* program, int number, weft_array_type* type) {
  return guarded([&] {
    const auto& x = item(existing(program, "program").folder.header.weights, number, "weight");
    describe_array(type, x.array, x.is_written);
  });
}

weft_status weft_program_run(weft_program* program, const weft_array* inputs, const weft_array* outputs) {
  return guarded([&] { run(existing(program, "program"), inputs, outputs); });
}

weft_status weft_program_read_weight(weft_program* program, int number, const weft_array* to) {
  return guarded([&] {
    const Folder& folder = existing(program, "program").folder;
    const Tensor place =
        tensor_of(existing(to, "to"), item(folder.header.weights, number, "weight").array, false);
    push_copy(place, folder.weights[static_cast<size_t>(number)]);
    wait_for(place);
  });
}

weft_status weft_program_write_weight(weft_program* program, int number, const weft_array* from) {
  return guarded([&] {
    Folder& folder = existing(program, "program").folder;
    const Tensor source =
        tensor_of(existing(from, "from"), item(folder.header.weights, number, "weight").array, true);
    const Tensor& weight = folder.weights[static_cast<size_t>(number)];
    {
      const std::lock_guard lock(folder.order);
      folder.is_changed[static_cast<size_t>(number)] = true;
      push_copy(weight, source);
    }
    wait_for(weight);
  });
}

weft_status weft_kernels_load(const char* library) {
  return guarded([&] { load_kernels(std::string(&existing(library, "library"))); });
}

weft_status weft_kernel_add(const weft_kernel* kernel) {
  return guarded([&] { add_kernel(existing(kernel, "kernel")); });
}

weft_status weft_seed(uint64_t seed) {
  return guarded([&] {
    start_engine();
    Runtime::get().seed_all(seed);
  });
}
