#include "calls/call_key.h"

#include "program/scratch.h"

namespace weft {
namespace {

// Which sizes are 0 or 1, and which are equal, eight to a word. False: too many different ones.
bool add_extents(std::span<const Tracked* const> arrays, uint64_t* key, size_t& length) {
  int64_t sizes[64];
  sizes[0] = 0, sizes[1] = 1;
  size_t count = 2, position = 0;
  for (const Tracked* tracked : arrays)
    for (const int64_t size : tracked->tensor.dims()) {
      size_t index = 0;
      while (index < count && sizes[index] != size) ++index;
      if (index == std::size(sizes)) return false;
      if (index == count) sizes[count++] = size;
      if (position % 8 == 0) key[length++] = 0;
      key[length - 1] |= static_cast<uint64_t>(index) << position++ % 8 * 8;
    }
  return true;
}

void add_sizes(std::span<const Tracked* const> arrays, uint64_t* key, size_t& length) {
  for (const Tracked* tracked : arrays) {
    for (const int64_t size : tracked->tensor.dims()) key[length++] = static_cast<uint64_t>(size);
    for (const int64_t stride : tracked->tensor.steps()) key[length++] = static_cast<uint64_t>(stride);
  }
}

}  // namespace

void CallKey::make_room(size_t words) {
  if (words <= std::max(kWords, many_.size())) return;
  if (many_.empty()) many_.assign(few_, few_ + length_);
  many_.resize(words);
  key_ = many_.data();
}

std::span<const uint64_t> CallKey::of(Scope scope, std::span<const Tracked* const> arrays) {
  size_t length = length_;
  if (scope != Scope::aligned) make_room(length_ + 2 * dims_);
  key_[0] = key_[0] << 2 >> 2 | static_cast<uint64_t>(scope) << 62;
  if (scope == Scope::extents && !add_extents(arrays, key_, length)) return {};
  if (scope == Scope::exact) add_sizes(arrays, key_, length);
  return {key_, length};
}

bool fits(const Plan& plan, std::span<const Tracked* const> arrays) {
  const Program& program = *plan.program;
  if (program.computes.empty()) return true;
  Scratch<const Tensor*, 8> inputs(arrays.size());
  for (size_t k = 0; k < arrays.size(); ++k) inputs[k] = &arrays[k]->tensor;
  return program.has_results({inputs.get(), arrays.size()});
}

void check_fits_in_place(const std::string& name, DType result, const Tensor& into) {
  const auto rank = [](DType t) {
    return t == DType::bool_ ? 0 : is_complex(t) ? 3 : is_floating(t) ? 2 : 1;
  };
  if (rank(result) > rank(into.dtype))
    throw DTypeError(name + ": the result, " + name_of(result) + ", cannot be written in place: x is " +
                     describe(into));
}

void check_fits_in_place(const std::string& name, const Program& program, const Tensor& into) {
  const int value = program.outputs[0].value - static_cast<int>(program.uses.size());
  if (value >= 0) check_fits_in_place(name, program.values[static_cast<size_t>(value)].dtype, into);
}

}  // namespace weft
