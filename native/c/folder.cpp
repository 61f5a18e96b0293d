#include "c/folder.h"

#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "kernels/named.h"
#include "onednn/kernels.h"
#include "storage/isa.h"
#include "storage/runtime.h"

namespace weft::c {

MappedFile::MappedFile(const std::string& path) {
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

MappedFile::~MappedFile() {
  if (data_) munmap(data_, size_);
}

void MappedFile::release(char* data, size_t bytes) noexcept {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t first = (reinterpret_cast<uintptr_t>(data) + page - 1) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) / page * page;
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

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

namespace {

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

// Gives back the pages of oneDNN's code that loading has used, more than half of it: what runs use comes in
// again, from the file that all processes share.
void release_library_code() noexcept {
  const auto release = [](dl_phdr_info* library, size_t, void*) {
    if (std::string_view(library->dlpi_name).find("libdnnl") == std::string_view::npos) return 0;
    for (size_t k = 0; k < library->dlpi_phnum; ++k) {
      const ElfW(Phdr) & part = library->dlpi_phdr[k];
      if (part.p_type == PT_LOAD && (part.p_flags & PF_X) && !(part.p_flags & PF_W))
        MappedFile::release(reinterpret_cast<char*>(library->dlpi_addr + part.p_vaddr), part.p_filesz);
    }
    return 0;
  };
  dl_iterate_phdr(release, nullptr);
}

// Raises FormatError for a shape of more elements than a process has addresses for.
void check_shape(const ExportedHeader::Array& array) {
  int64_t left = (int64_t{1} << 47) / static_cast<int64_t>(size_of(array.dtype));
  bool fits = array.shape.size() <= kMaxDims;
  for (const int64_t size : array.shape) {
    fits = fits && size >= 0 && size <= left;
    left /= std::max<int64_t>(size, 1);
  }
  if (!fits) throw FormatError(array.name + " has a shape that is out of range");
}

bool same_strides(const std::vector<int64_t>& shape, const std::vector<int64_t>& a,
                  const std::vector<int64_t>& b) {
  bool is_same = a.size() == shape.size() && b.size() == shape.size();
  for (size_t d = 0; is_same && d < shape.size(); ++d) is_same = shape[d] <= 1 || a[d] == b[d];
  return is_same;
}

}  // namespace

Folder::Folder(const std::string& folder) {
  start_engine();
  const std::string level = best_level(folder), path = folder + "/plan." + level;
  try {
    const MappedFile plan(path);
    read(folder, level, plan.bytes());
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw std::runtime_error(path + ": " + error.what());
  }
  if (variants.size() == 1) variants[0]->prepare();
}

void Folder::read(const std::string& folder, const std::string& level, std::string_view plan) {
  Reader reader(unsealed(plan));
  header = read_header(reader);
  if (header.version != exported_version())
    throw FormatError("weft " + header.version + " wrote it, this is " + exported_version() +
                      ": export it again");
  if (header.variants.empty()) throw FormatError("it has no program");
  file = std::make_unique<MappedFile>(folder + "/weights.safetensors");
  if (file->size() != header.weights_bytes)
    throw FormatError("weights.safetensors has " + std::to_string(file->size()) + " bytes instead of " +
                      std::to_string(header.weights_bytes));
  const MappedFile object(folder + "/code." + level + ".o");
  if (digest_of(object.bytes()) != header.code_digest)
    throw FormatError("code." + level + ".o is damaged, or of another export");
  code = std::make_unique<ObjectCode>(object.bytes());
  map_weights();
  const AddressOf address_of = [&](const std::string& symbol) {
    return reinterpret_cast<Loop::Code>(code->find(symbol));
  };
  for (size_t k = 0; k < header.variants.size(); ++k)
    variants.push_back(std::make_unique<weft_program>(
        *this, k, read_program(reader, address_of, make_kernel, onednn::layout_bytes)));
}

void Folder::map_weights() {
  is_changed = std::vector<std::atomic<bool>>(header.weights.size());
  for (size_t k = 0; k < header.weights.size(); ++k) {
    const auto& [array, strides, offset, is_written] = header.weights[k];
    if (array.shape.size() > kMaxDims || strides.size() != array.shape.size())
      throw FormatError("weight " + array.name + " has " + std::to_string(array.shape.size()) +
                        " dimensions and " + std::to_string(strides.size()) + " strides");
    const auto size = static_cast<int64_t>(file->size());
    const bool is_empty = std::ranges::find(array.shape, 0) != array.shape.end();
    int64_t elements = 1, part = 0, bytes = 0;
    bool fits = offset >= 0 && offset <= size;
    for (size_t d = 0; d < array.shape.size(); ++d) {
      if (array.shape[d] < 0 || strides[d] < 0)
        throw FormatError("weight " + array.name + " has a negative size");
      fits = fits && (is_empty || (!__builtin_mul_overflow(array.shape[d] - 1, strides[d], &part) &&
                                   !__builtin_add_overflow(elements, part, &elements)));
    }
    fits = fits && (is_empty ||
                    !__builtin_mul_overflow(elements, static_cast<int64_t>(size_of(array.dtype)), &bytes));
    if (!fits || bytes > size - offset)
      throw FormatError("weight " + array.name + " is outside of the file of weights");
    weights.push_back(tensor_over(file->data() + offset, array.dtype, array.shape, strides, false));
    is_changed[k] = is_written;
    has_state |= is_written;
  }
}

}  // namespace weft::c

using namespace weft;
using namespace weft::c;

weft_program::weft_program(Folder& owner, size_t number, Ref<const Program> read)
    : folder(owner),
      variant(owner.header.variants[number]),
      program(std::move(read)),
      is_used(variant.arguments.size()) {
  check();
  for (const int input : variant.inputs)
    if (input >= 0) is_used[static_cast<size_t>(input)] = true;
  for (const int argument : variant.numbers) is_used[static_cast<size_t>(argument)] = true;
  find_direct_results();
}

void weft_program::check() const {
  const ExportedHeader& header = folder.header;
  if (program->planned_inputs.size() != variant.inputs.size() ||
      program->numbers_taken() > variant.numbers.size())
    throw FormatError("its inputs are not those of its program");
  const auto arguments = static_cast<int>(variant.arguments.size());
  for (const auto& [array, is_written] : variant.arguments) check_shape(array);
  for (const auto& [array, is_input, number] : variant.results) check_shape(array);
  for (size_t k = 0; k < variant.inputs.size(); ++k) {
    const int input = variant.inputs[k];
    const Program::Input& planned = program->planned_inputs[k];
    const bool is_weight = input < 0;
    if (is_weight ? static_cast<size_t>(-1 - input) >= header.weights.size() : input >= arguments)
      throw FormatError("an input of its program is not there");
    const ExportedHeader::Array& array = is_weight ? header.weights[static_cast<size_t>(-1 - input)].array
                                                   : variant.arguments[static_cast<size_t>(input)].array;
    if (planned.shape.size() > kMaxDims || planned.strides.size() != planned.shape.size() ||
        planned.dtype != array.dtype || planned.shape != array.shape ||
        (is_weight && !same_strides(array.shape, planned.strides,
                                    header.weights[static_cast<size_t>(-1 - input)].strides)))
      throw FormatError("input " + array.name + " is not that of its program");
  }
  for (const int argument : variant.numbers)
    if (argument < 0 || argument >= arguments ||
        !variant.arguments[static_cast<size_t>(argument)].array.shape.empty() ||
        variant.arguments[static_cast<size_t>(argument)].array.dtype != DType::float64)
      throw FormatError("a number of its program is not there");
  for (const auto& [array, is_input, number] : variant.results)
    if (number < 0 ||
        static_cast<size_t>(number) >= (is_input ? variant.inputs.size() : program->outputs.size()))
      throw FormatError("result " + array.name + " is not of its program");
}

// An output is written in place where its step would give it just this geometry, and once: others are copied.
void weft_program::find_direct_results() {
  std::vector<int64_t> registers(static_cast<size_t>(program->registers) + 1);
  program->compute_registers({}, registers.data());
  std::vector<bool> is_taken(program->outputs.size());
  for (const auto& [array, is_input, number] : variant.results) {
    const auto output = static_cast<size_t>(number);
    const int value_number =
        is_input ? -1 : program->outputs[output].value - static_cast<int>(program->uses.size());
    bool fits = value_number >= 0 && program->outputs[output].writes < 0 && !is_taken[output];
    if (fits) {
      const Program::Value& value = program->values[static_cast<size_t>(value_number)];
      std::vector<int64_t> sizes, strides;
      for (const int size : value.sizes) sizes.push_back(registers[static_cast<size_t>(size)]);
      for (const int stride : value.strides) strides.push_back(registers[static_cast<size_t>(stride)]);
      const std::vector<int64_t> dense = dense_strides(array.shape);
      fits = value.kind == Program::Value::Kind::output && value.like < 0 && value.dtype == array.dtype &&
             sizes == array.shape && (strides.empty() || same_strides(sizes, strides, dense));
    }
    if (fits) is_taken[output] = true;
    is_direct.push_back(fits);
  }
}

void weft_program::prepare() {
  std::call_once(is_prepared, [&] {
    const Tensor nothing{};
    std::vector<const Tensor*> inputs;
    for (const int input : variant.inputs)
      inputs.push_back(input < 0 ? &folder.weights[static_cast<size_t>(-1 - input)] : &nothing);
    std::vector<size_t> released;
    const auto release = [&](size_t k) {
      const int input = variant.inputs[k];
      if (input >= 0 || folder.is_changed[static_cast<size_t>(-1 - input)]) return;
      MappedFile::release(inputs[k]->chunk->data, inputs[k]->chunk->bytes);
    };
    program->prepack(inputs, [&](size_t k) {
      release(k);
      released.push_back(k);
    });
    const std::lock_guard lock(folder.order);    // nothing becomes changed meanwhile
    for (const size_t k : released) release(k);  // pages that came in with those of their neighbours
    release_library_code();
  });
}
