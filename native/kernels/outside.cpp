#include "kernels/outside.h"

#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>

#include "engine/fork.h"
#include "tensor/staging.h"
#include "tensor/tensor.h"

namespace weft {
namespace {

using Types = std::vector<DType>;
struct Signature {
  Types inputs, outputs;
};

std::invalid_argument wrong(const std::string& name, const std::string& fact) {
  return std::invalid_argument("kernel " + name + ": " + fact);
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == at)
      parts.emplace_back();
    else if (c != ' ' && c != '\n' && c != '\t')
      parts.back() += c;
  }
  return parts;
}

Types types_of(const std::string& name, const std::string& text) {
  Types types;
  if (text.empty()) return types;
  for (const std::string& word : split(text, ',')) {
    int number = 0;
    while (number < kDTypes && name_of(static_cast<DType>(number)) != word) ++number;
    if (number == kDTypes) throw wrong(name, "'" + word + "' is no dtype");
    types.push_back(static_cast<DType>(number));
  }
  return types;
}

Signature signature_of(const std::string& name, const std::string& text) {
  const size_t arrow = text.find("->");
  if (arrow == std::string::npos) throw wrong(name, "'" + text + "' has no -> between inputs and outputs");
  Signature signature{types_of(name, text.substr(0, arrow)), types_of(name, text.substr(arrow + 2))};
  if (signature.outputs.empty()) throw wrong(name, "'" + text + "' has no output");
  return signature;
}

// Kernels by name and alternative, as text without blanks.
struct Table {
  ForkMutex mutex;
  std::map<std::string, std::map<std::string, weft_kernel>> kernels;
};
Table& table() {
  static Table* const one = new Table;  // programs may outlive everything
  return *one;
}
[[maybe_unused]] const Table& kAtLoad = table();

class Outside final : public Kernel {
 public:
  Outside(std::string name, const std::string& signature, const weft_kernel& kernel, int numbers)
      : name_(std::move(name)),
        signature_(signature_of(name_, signature)),
        kernel_(kernel),
        numbers_(static_cast<size_t>(numbers)) {}

  int operand_count() const override { return static_cast<int>(count()); }
  bool wide() const override { return kernel_.is_wide != 0; }

  size_t scratch_bytes(const View* operands) const override {
    Frame frame(*this, operands, nullptr, nullptr, false);
    return frame.copied_bytes +
           (kernel_.scratch_bytes ? kernel_.scratch_bytes(&frame.call, kernel_.data) : 0);
  }

  void run(const Call& call) const override {
    Frame frame(*this, call.operands, call.parameters, call.scratch, true);
    for (size_t k = 0; k < count(); ++k)
      if (call.operands[k].dtype != type(k))
        throw std::logic_error("operand " + std::to_string(k) + " is " + name_of(call.operands[k].dtype));
    for (size_t k = 0; k < signature_.inputs.size(); ++k)
      if (frame.is_copied(k)) copy_elements(frame.views[k], {}, call.operands[k], {});
    const int answer = kernel_.run(&frame.call, kernel_.data);
    if (answer != 0 || !frame.failure.empty())
      throw std::runtime_error(frame.failure.empty() ? "it returned " + std::to_string(answer)
                                                     : frame.failure);
    for (size_t k = signature_.inputs.size(); k < count(); ++k)
      if (frame.is_copied(k)) copy_elements(call.operands[k], {}, frame.views[k], {});
  }

 private:
  // A call as the library sees it; has_data: else only its geometry.
  struct Frame {
    Frame(const Outside& kernel, const View* operands, const uint64_t* parameters, char* scratch,
          bool has_data)
        : given(operands), numbers(kernel.numbers_), strides(kernel.count() * kMaxDims) {
      for (size_t k = 0; k < numbers.size() && parameters; ++k)
        std::memcpy(&numbers[k], parameters + k, sizeof(double));
      for (size_t k = 0; k < kernel.count(); ++k)
        add(operands[k], strides.data() + k * kMaxDims, kernel, scratch, has_data);
      call = {sizeof call,
              all.data(),
              static_cast<int>(kernel.signature_.inputs.size()),
              static_cast<int>(kernel.signature_.outputs.size()),
              numbers.data(),
              static_cast<int>(numbers.size()),
              has_data ? scratch + copied_bytes : nullptr,
              [](const weft_kernel_call* self, const char* text) {
                static_cast<Frame*>(self->weft)->failure = text && *text ? text : "it failed";
                return 1;
              },
              this};
    }
    Frame(const Frame&) = delete;

    void add(const View& x, int64_t* row_major_strides, const Outside& kernel, char* scratch, bool has_data) {
      row_major({x.shape, static_cast<size_t>(x.ndim)}, row_major_strides);
      View view = x;
      bool is_dense = kernel.kernel_.takes_strides != 0;
      if (!is_dense) {
        is_dense = true;
        for (int d = 0; d < x.ndim; ++d)
          is_dense = is_dense && (x.shape[d] <= 1 || x.strides[d] == row_major_strides[d]);
        view.strides = row_major_strides;
      }
      if (!is_dense) {
        view.data = has_data ? scratch + copied_bytes : nullptr;
        size_t bytes = size_of(x.dtype);
        for (int d = 0; d < x.ndim; ++d) bytes *= static_cast<size_t>(x.shape[d]);
        copied_bytes += (bytes + 63) / 64 * 64;
      }
      views.push_back(view);
      all.push_back(
          {has_data ? view.data : nullptr, name_of(view.dtype), view.ndim, view.shape, view.strides});
    }
    bool is_copied(size_t k) const { return views[k].data != given[k].data; }

    const View* given;
    std::vector<double> numbers;
    std::vector<int64_t> strides;
    std::vector<View> views;
    std::vector<weft_operand> all;
    size_t copied_bytes = 0;
    weft_kernel_call call;
    std::string failure;
  };

  size_t count() const noexcept { return signature_.inputs.size() + signature_.outputs.size(); }
  DType type(size_t k) const noexcept {
    const size_t inputs = signature_.inputs.size();
    return k < inputs ? signature_.inputs[k] : signature_.outputs[k - inputs];
  }

  const std::string name_;
  const Signature signature_;
  const weft_kernel kernel_;
  const size_t numbers_;
};

}  // namespace

void add_kernel(const weft_kernel& kernel) {
  if (kernel.size < offsetof(weft_kernel, is_wide) + sizeof(int))
    throw std::invalid_argument("a kernel's size is " + std::to_string(kernel.size) +
                                ", not sizeof(weft_kernel)");
  const std::string name = kernel.name ? kernel.name : "";
  const auto is_letter = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.'; };
  if (name.empty() || !std::ranges::all_of(name, is_letter))
    throw wrong("'" + name + "'", "a name has letters, digits, _ and .");
  if (!kernel.device || std::string(kernel.device) != "cpu")
    throw wrong(name,
                "device is '" + std::string(kernel.device ? kernel.device : "") + "', supported is 'cpu'");
  if (!kernel.run) throw wrong(name, "run is NULL");
  if (!kernel.dtypes) throw wrong(name, "dtypes is NULL");
  std::map<std::string, weft_kernel> added;
  for (const std::string& text : split(kernel.dtypes, ';')) {
    if (text.empty()) continue;  // behind the last ;
    signature_of(name, text);
    weft_kernel copy{};
    std::memcpy(&copy, &kernel, std::min(kernel.size, sizeof copy));
    copy.name = copy.device = copy.dtypes = nullptr;  // the caller's
    added.emplace(text, copy);
  }
  const std::lock_guard lock(table().mutex);
  auto& known = table().kernels[name];
  for (const auto& [text, _] : added)
    if (known.contains(text)) throw wrong(name, "there is one for " + text + " already");
  known.merge(added);
}

std::vector<std::string> load_kernels(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw std::invalid_argument(path + ": " + dlerror());
  using Entry = int (*)(weft_registry*);
  const auto entry = reinterpret_cast<Entry>(dlsym(library, "weft_kernels"));
  struct Loading {
    std::vector<std::string> names;
    std::string failure;
  } loading;
  std::string problem;
  if (!entry) {
    problem = "it has no function weft_kernels: see weft/kernel.h";
  } else {
    weft_registry registry{sizeof registry, WEFT_KERNEL_VERSION,
                           [](weft_registry* self, const weft_kernel* kernel) {
                             auto& state = *static_cast<Loading*>(self->weft);
                             try {
                               if (!kernel) throw std::invalid_argument("a kernel is NULL");
                               add_kernel(*kernel);
                               state.names.emplace_back(kernel->name);
                               return 0;
                             } catch (const std::exception& error) {
                               if (state.failure.empty()) state.failure = error.what();
                               return 1;
                             }
                           },
                           &loading};
    const int answer = entry(&registry);
    if (!loading.failure.empty())
      problem = loading.failure;
    else if (answer != 0)
      problem = "its weft_kernels returned " + std::to_string(answer);
  }
  if (!problem.empty()) {  // what it has added before stays, and with it the library
    if (loading.names.empty()) dlclose(library);
    throw std::invalid_argument(path + ": " + problem);
  }
  return loading.names;
}

std::vector<std::string> alternatives_of(const std::string& name) {
  const std::lock_guard lock(table().mutex);
  std::vector<std::string> all;
  if (const auto it = table().kernels.find(name); it != table().kernels.end())
    for (const auto& [text, _] : it->second) all.push_back(text);
  return all;
}

Ref<Kernel> make_outside(const std::string& name, const std::string& signature, int numbers) {
  if (numbers < 0) throw wrong(name, std::to_string(numbers) + " numbers");
  const std::lock_guard lock(table().mutex);
  const auto it = table().kernels.find(name);
  if (it == table().kernels.end())
    throw wrong(
        name, "no library that has been loaded has it: load_kernels, or weft_kernels_load in C, comes first");
  const auto one = it->second.find(signature);
  if (one == it->second.end()) throw wrong(name, "it does not take " + signature);
  return Ref<Kernel>(new Outside(name, signature, one->second, numbers));
}

}  // namespace weft
