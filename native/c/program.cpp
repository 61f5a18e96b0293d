// program.cpp: exported programs behind weft/weft.h. Files are mapped; a run wraps the caller's memory in
// tensors, launches, and waits.
#include "weft/weft.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "c/errors.h"
#include "c/object_code.h"
#include "kernels/named.h"
#include "onednn/kernels.h"
#include "program/stored.h"
#include "storage/isa.h"
#include "storage/runtime.h"
#include "tensor/staging.h"

using namespace weft;
using namespace weft::c;

namespace {

// A file in memory: pages that are written are this process's own.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat facts{};
    if (file < 0 || fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode)) {
      if (file >= 0) close(file);
      throw std::runtime_error(path + ": there is no such file that can be read");
    }
    size_ = static_cast<size_t>(facts.st_size);
    void* const memory = size_ ? mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0) : nullptr;
    close(file);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<char*>(memory);
  }
  ~MappedFile() {
    if (data_) munmap(data_, size_);
  }
  MappedFile(const MappedFile&) = delete;
  char* data() const { return data_; }
  size_t size() const { return size_; }
  std::string_view bytes() const { return {data_, size_}; }
  // Gives back the pages that are within [data, data + bytes), none of which this process has written. They
  // are read from the file again when they are needed.
  static void release(char* data, size_t bytes) noexcept {
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const uintptr_t first = (reinterpret_cast<uintptr_t>(data) + page - 1) / page * page;
    const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) / page * page;
    if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
  }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
};

// Memory that somebody else frees, as a tensor.
Tensor tensor_over(char* data, DType dtype, const std::vector<int64_t>& shape,
                   const std::vector<int64_t>& strides, bool is_read_only) {
  Tensor x;
  x.dtype = dtype;
  x.ndim = static_cast<int>(shape.size());
  x.size = checked_size(shape, size_of(dtype));
  std::ranges::copy(shape, x.shape);
  std::ranges::copy(strides, x.strides);
  x.data = data;
  int64_t elements = x.size ? 1 : 0;
  for (int d = 0; x.size && d < x.ndim; ++d) elements += (x.shape[d] - 1) * x.strides[d];
  x.chunk = Chunk::adopt({}, {data, static_cast<size_t>(elements) * size_of(dtype), [](void*) noexcept {},
                              nullptr, is_read_only, false});
  return x;
}

std::vector<int64_t> dense_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  row_major(shape, strides.data());
  return strides;
}

void start_engine() {
  static std::once_flag once;
  std::call_once(once, [] { Runtime::get().set_engine(Engine::create({})); });
}

Ref<Kernel> make_kernel(const std::string& name, Reader& arguments) {
  Ref<Kernel> kernel = onednn::kernel_of_recipe(name, arguments);
  if (!kernel) kernel = named_kernel(name, arguments);
  if (!kernel) throw FormatError("there is no kernel '" + name + "'");
  return kernel;
}

// The plan's file for this processor.
std::string best_level(const std::string& folder) {
  std::string there;
  for (const Isa level : {Isa::avx512, Isa::avx2, Isa::baseline}) {
    const std::string name = name_of(level);
    if (access((folder + "/plan." + name).c_str(), R_OK) != 0) continue;
    if (level <= isa()) return name;
    there += (there.empty() ? "" : ", ") + name;
  }
  throw std::runtime_error(folder + ": " + (there.empty() ? "it has no plan" : "its levels are " + there) +
                           "; this processor is " + name_of(isa()));
}

}  // namespace

struct weft_program {
  ExportedHeader header;
  std::unique_ptr<MappedFile> weights;
  std::unique_ptr<ObjectCode> code;
  Ref<const Program> program;
  std::vector<size_t> arguments;  // the inputs that a run gives
  std::vector<Tensor> inputs;     // the weights; empty for arguments
  // Of each result: whether its output is written to the caller's memory when that is row-major.
  std::vector<bool> is_direct;
};

namespace {

void check_header(const weft_program& p) {
  const ExportedHeader& header = p.header;
  if (p.program->planned_inputs.size() != header.inputs.size() || p.program->numbers_taken() != 0)
    throw FormatError("its inputs are not those of its program");
  for (size_t k = 0; k < header.inputs.size(); ++k) {
    const auto& [name, dtype, shape, strides, offset] = header.inputs[k];
    const Program::Input& planned = p.program->planned_inputs[k];
    if (shape.size() > kMaxDims || strides.size() != shape.size() || planned.dtype != dtype ||
        planned.shape != shape || planned.strides != strides)
      throw FormatError("input " + name + " is not that of its program");
  }
  for (const ExportedHeader::Result& result : header.results)
    if (result.output < 0 || static_cast<size_t>(result.output) >= p.program->outputs.size() ||
        result.shape.size() > kMaxDims)
      throw FormatError("result " + result.name + " is not of its program");
}

// The weight at its place in the file.
Tensor weight_of(const MappedFile& file, const ExportedHeader::Input& x) {
  int64_t elements = 1;
  for (size_t d = 0; d < x.shape.size(); ++d) {
    if (x.shape[d] < 0 || x.strides[d] < 0) throw FormatError("weight " + x.name + " has a negative size");
    elements += (x.shape[d] - 1) * x.strides[d];
  }
  const int64_t bytes =
      std::ranges::find(x.shape, 0) != x.shape.end() ? 0 : elements * static_cast<int64_t>(size_of(x.dtype));
  const auto size = static_cast<int64_t>(file.size());
  if (bytes < 0 || x.offset > size || bytes > size - x.offset)
    throw FormatError("weight " + x.name + " is outside of the file of weights");
  return tensor_over(file.data() + x.offset, x.dtype, x.shape, x.strides, false);
}

// An output is written in place where its step would give it just this geometry, and once: others are copied.
void find_direct_results(weft_program& p) {
  const Program& program = *p.program;
  std::vector<int64_t> registers(static_cast<size_t>(program.registers) + 1);
  program.compute_registers({}, registers.data());
  std::vector<bool> is_taken(program.outputs.size());
  for (const ExportedHeader::Result& result : p.header.results) {
    const auto output = static_cast<size_t>(result.output);
    const int number = program.outputs[output].value - static_cast<int>(program.uses.size());
    bool is_direct = number >= 0 && program.outputs[output].writes < 0 && !is_taken[output];
    if (is_direct) {
      const Program::Value& value = program.values[static_cast<size_t>(number)];
      is_direct = value.kind == Program::Value::Kind::output && value.like < 0 &&
                  value.dtype == result.dtype && value.sizes.size() == result.shape.size();
      const std::vector<int64_t> dense = dense_strides(result.shape);
      for (size_t d = 0; is_direct && d < dense.size(); ++d)
        is_direct = registers[static_cast<size_t>(value.sizes[d])] == result.shape[d] &&
                    (value.strides.empty() || result.shape[d] == 1 ||
                     registers[static_cast<size_t>(value.strides[d])] == dense[d]);
    }
    if (is_direct) is_taken[output] = true;
    p.is_direct.push_back(is_direct);
  }
}

// Prepares what depends on weights alone. Those that no run reads any more leave this process's memory one by
// one, so that there is never more than one of them beside what has been made of them.
void prepack(const weft_program& p) {
  std::vector<const Tensor*> inputs;
  for (const Tensor& x : p.inputs) inputs.push_back(&x);
  std::vector<size_t> released;
  const auto release = [&](size_t k) {
    if (p.inputs[k].chunk) MappedFile::release(p.inputs[k].chunk->data, p.inputs[k].chunk->bytes);
  };
  p.program->prepack(inputs, [&](size_t k) {
    release(k);
    released.push_back(k);
  });
  for (const size_t k : released) release(k);  // pages that came in with those of their neighbours
}

std::unique_ptr<weft_program> load(const std::string& folder) {
  start_engine();
  const std::string level = best_level(folder), path = folder + "/plan." + level;
  auto loaded = std::make_unique<weft_program>();
  try {
    const MappedFile file(path);
    Reader reader(unsealed(file.bytes()));
    loaded->header = read_header(reader);
    const ExportedHeader& header = loaded->header;
    if (header.version != exported_version())
      throw FormatError("weft " + header.version + " wrote it, this is " + exported_version() +
                        ": export it again");
    loaded->weights = std::make_unique<MappedFile>(folder + "/weights.safetensors");
    if (loaded->weights->size() != header.weights_bytes)
      throw FormatError("weights.safetensors has " + std::to_string(loaded->weights->size()) +
                        " bytes instead of " + std::to_string(header.weights_bytes));
    const MappedFile object(folder + "/code." + level + ".o");
    if (digest_of(object.bytes()) != header.code_digest)
      throw FormatError("code." + level + ".o is damaged, or of another export");
    loaded->code = std::make_unique<ObjectCode>(object.bytes());
    loaded->program = read_program(
        reader,
        [&](const std::string& symbol) { return reinterpret_cast<Loop::Code>(loaded->code->find(symbol)); },
        make_kernel);
    check_header(*loaded);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw std::runtime_error(path + ": " + error.what());
  }
  for (size_t k = 0; k < loaded->header.inputs.size(); ++k) {
    const ExportedHeader::Input& input = loaded->header.inputs[k];
    if (input.offset < 0) loaded->arguments.push_back(k);
    loaded->inputs.push_back(input.offset < 0 ? Tensor() : weight_of(*loaded->weights, input));
  }
  find_direct_results(*loaded);
  prepack(*loaded);
  return loaded;
}

std::vector<int64_t> strides_of(const weft_array& array, const std::vector<int64_t>& shape) {
  return array.strides ? std::vector<int64_t>(array.strides, array.strides + shape.size())
                       : dense_strides(shape);
}

void check_memory(const weft_array& array, const std::string& name, DType dtype,
                  const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
  const bool is_empty = std::ranges::find(shape, 0) != shape.end();
  if (!array.data && !is_empty) throw EngineMisuse(name + ": data is NULL");
  if (reinterpret_cast<uintptr_t>(array.data) % std::min<size_t>(size_of(dtype), 8) != 0)
    throw EngineMisuse(name + ": data is not aligned to its elements of " + std::to_string(size_of(dtype)) +
                       " bytes");
  for (const int64_t stride : strides)
    if (stride < 0) throw EngineMisuse(name + ": strides are negative, which is not supported");
}

void run(weft_program& p, const weft_array* given, const weft_array* wanted) {
  const ExportedHeader& header = p.header;
  if (!given && !p.arguments.empty()) throw EngineMisuse("inputs is NULL");
  if (!wanted && !header.results.empty()) throw EngineMisuse("outputs is NULL");
  std::vector<Tensor> inputs = p.inputs;
  for (size_t k = 0; k < p.arguments.size(); ++k) {
    const ExportedHeader::Input& input = header.inputs[p.arguments[k]];
    const std::vector<int64_t> strides = strides_of(given[k], input.shape);
    check_memory(given[k], input.name, input.dtype, input.shape, strides);
    Tensor x = tensor_over(static_cast<char*>(given[k].data), input.dtype, input.shape, strides, true);
    if (strides != input.strides) {  // as it was planned
      int64_t elements = 1;
      for (size_t d = 0; d < input.shape.size(); ++d) elements += (input.shape[d] - 1) * input.strides[d];
      const Tensor memory = Tensor::empty(std::array{std::max<int64_t>(elements, 0)}, input.dtype, {});
      const Tensor planned = memory.as_strided(memory.data, input.shape, input.strides);
      copy_elements(planned.view(), {}, x.view(), {});
      x = planned;
    }
    inputs[p.arguments[k]] = x;
  }
  std::vector<Tensor> places, results(p.program->outputs.size());
  places.reserve(header.results.size());
  std::vector<const Tensor*> input_pointers, destinations(results.size());
  std::vector<Tensor*> result_pointers;
  for (const Tensor& x : inputs) input_pointers.push_back(&x);
  for (Tensor& x : results) result_pointers.push_back(&x);
  for (size_t j = 0; j < header.results.size(); ++j) {
    const ExportedHeader::Result& result = header.results[j];
    const std::vector<int64_t> strides = strides_of(wanted[j], result.shape);
    check_memory(wanted[j], result.name, result.dtype, result.shape, strides);
    places.push_back(
        tensor_over(static_cast<char*>(wanted[j].data), result.dtype, result.shape, strides, false));
    if (p.is_direct[j] && places[j].contiguous())
      destinations[static_cast<size_t>(result.output)] = &places[j];
  }
  p.program->launch(input_pointers, {}, destinations, result_pointers.data());
  for (const Tensor& x : results)
    if (x.chunk) wait_for(x);
  for (size_t j = 0; j < header.results.size(); ++j) {
    const auto output = static_cast<size_t>(header.results[j].output);
    if (destinations[output] != &places[j]) copy_elements(places[j].view(), {}, results[output].view(), {});
  }
}

weft_status describe_array(weft_array_type* type, const std::string& name, DType dtype,
                           const std::vector<int64_t>& shape) {
  return guarded([&] {
    existing(type, "type") = {sizeof(weft_array_type),        name.c_str(),
                              weft::name_of(dtype),           size_of(dtype),
                              static_cast<int>(shape.size()), shape.data()};
  });
}

}  // namespace

weft_status weft_program_load(const char* folder, weft_program** program) {
  return guarded([&] {
    existing(program, "program") = nullptr;
    *program = load(std::string(&existing(folder, "folder"))).release();
  });
}

void weft_program_free(weft_program* program) { delete program; }

int weft_program_input_count(const weft_program* program) {
  return program ? static_cast<int>(program->arguments.size()) : 0;
}
int weft_program_output_count(const weft_program* program) {
  return program ? static_cast<int>(program->header.results.size()) : 0;
}

weft_status weft_program_input(const weft_program* program, int number, weft_array_type* type) {
  if (!program || number < 0 || number >= weft_program_input_count(program))
    return report(WEFT_MISUSE, "there is no input " + std::to_string(number) + " of " +
                                   std::to_string(weft_program_input_count(program)));
  const auto& x = program->header.inputs[program->arguments[static_cast<size_t>(number)]];
  return describe_array(type, x.name, x.dtype, x.shape);
}

weft_status weft_program_output(const weft_program* program, int number, weft_array_type* type) {
  if (!program || number < 0 || number >= weft_program_output_count(program))
    return report(WEFT_MISUSE, "there is no output " + std::to_string(number) + " of " +
                                   std::to_string(weft_program_output_count(program)));
  const auto& x = program->header.results[static_cast<size_t>(number)];
  return describe_array(type, x.name, x.dtype, x.shape);
}

weft_status weft_program_run(weft_program* program, const weft_array* inputs, const weft_array* outputs) {
  return guarded([&] { run(existing(program, "program"), inputs, outputs); });
}
