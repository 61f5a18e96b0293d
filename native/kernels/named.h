// named.h: kernels that are made by a name and arguments: those of this folder that exported programs may
// have, and with them those of libraries from outside (outside.h).
//
// Described<&make_x>::call is make_x, and gives the kernel the recipe (kernel.h) by which named_kernel makes
// the same one in another process.
#pragma once

#include <tuple>

#include "kernels/kernels.h"
#include "kernels/linalg.h"
#include "kernels/outside.h"
#include "program/archive.h"

namespace weft {

template <auto make>
struct Named {
  const char* name;
};

inline constexpr std::tuple kNamedKernels{
    Named<&make_sort>{"sort"},
    Named<&make_topk>{"topk"},
    Named<&make_take_along_axis>{"take_along_axis"},
    Named<&make_scatter>{"scatter"},
    Named<&make_index_get>{"index_get"},
    Named<&make_index_put>{"index_put"},
    Named<&make_bincount>{"bincount"},
    Named<&make_attention>{"attention"},
    Named<&make_dropout>{"dropout"},
    Named<&make_bernoulli>{"bernoulli"},
    Named<&make_permutation>{"permutation"},
    Named<&make_random_fill>{"random_fill"},
    Named<&make_distribution>{"distribution"},
    Named<&make_position>{"position"},
    Named<&make_count_nonzero>{"count_nonzero"},
    Named<&make_check_indices>{"check_indices"},
    Named<&make_check_labels>{"check_labels"},
    Named<&make_searchsorted>{"searchsorted"},
    Named<&make_grouped_linear>{"grouped_linear"},
    Named<&make_unique_kernel>{"unique"},
    Named<&make_fourier>{"fourier"},
    Named<&make_real_fourier>{"real_fourier"},
    Named<&make_outside>{"outside"},
};

constexpr int enumerators_like(Combine) noexcept { return 4; }
constexpr int enumerators_like(Distribution) noexcept { return 5; }

template <class A>
void fields(A& archive, AttentionForm& form) {
  archive(form.mask, form.ranges, form.slopes, form.dropout);
}

template <auto make>
struct Described;
template <class... A, Ref<Kernel> (*make)(A...)>
struct Described<make> {
  static Ref<Kernel> call(A... arguments) {
    Writer recipe;
    recipe(std::string(std::get<Named<make>>(kNamedKernels).name), arguments...);
    const Ref<Kernel> kernel = make(arguments...);
    kernel->recipe = std::move(recipe.bytes);
    return kernel;
  }
  static Ref<Kernel> read(Reader& reader) {
    std::tuple<std::remove_cvref_t<A>...> arguments;
    std::apply([&](auto&... each) { reader(each...); }, arguments);
    return std::apply(call, arguments);
  }
};

// The kernel of a recipe whose name has been read; null: there is none of this name. Raises FormatError.
inline Ref<Kernel> named_kernel(const std::string& name, Reader& arguments) {
  Ref<Kernel> kernel;
  const auto try_one = [&]<auto make>(const Named<make>& one) {
    if (!kernel && name == one.name) kernel = Described<make>::read(arguments);
  };
  std::apply([&](const auto&... each) { (try_one(each), ...); }, kNamedKernels);
  if (name == kDrawn) {
    const auto recipe = arguments.next<std::string>();
    Reader inner(recipe);
    const auto inner_name = inner.next<std::string>();
    const Ref<Kernel> drawing = inner_name == kDrawn ? Ref<Kernel>() : named_kernel(inner_name, inner);
    if (!drawing) throw FormatError("there is no random kernel '" + inner_name + "'");
    int inputs = 0, outputs = 0, parameters = 0;
    int64_t offset = 0;
    arguments(inputs, outputs, parameters, offset);
    kernel = make_drawn(drawing, inputs, outputs, parameters, offset);
  }
  return kernel;
}

}  // namespace weft
