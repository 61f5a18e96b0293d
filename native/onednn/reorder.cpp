// reorder.cpp: between layouts and types.
#include <omp.h>

#include "onednn/cache.h"
#include "onednn/division.h"
#include "onednn/recipe.h"

namespace weft::onednn {

namespace {

// Weights of a grouped convolution have one more dimension in oneDNN's layouts: the first one, split.
memory::desc seen_as(const Geometry& x, const Geometry& other) {
  if (x.layout || !other.layout) return desc_of(x);
  const memory::dims dims = other.layout->desc.get_dims();
  if (dims.size() != x.shape.size() + 1 || dims[0] * dims[1] != x.shape[0]) return desc_of(x);
  Geometry split = x;
  split.shape[0] = dims[1];
  split.shape.insert(split.shape.begin(), dims[0]);
  split.strides.insert(split.strides.begin(), x.strides[0] * dims[1]);
  return desc_of(split);
}

}  // namespace

KernelRef make_reorder(const Geometry& from, const Geometry& to, bool accumulate) {
  constexpr const char* kWhat = "onednn_reorder";
  if (from.any || to.any) throw ValueError(std::string(kWhat) + ": both sides need strides or a layout");
  return cached(Key(kWhat) << from << to << accumulate, kWhat, [&] {
    const memory::desc source = seen_as(from, to), target = seen_as(to, from);
    if (source.get_dims() != target.get_dims())
      throw ShapeError(std::string(kWhat) + ": the shapes differ: " + describe(from) + ", " + describe(to));
    const double time = 2 * copying_ns(source.get_size() + target.get_size());  // not in its order
    return make_for_width(width_of(time, omp_get_max_threads()), [&] {
      Recipe recipe;
      recipe.hold_layout(from);
      recipe.hold_layout(to);
      const int x = recipe.next_operand(), y = recipe.next_operand();
      recipe.reorder(source, Recipe::operand(x), target, Recipe::operand(y), accumulate);
      if (from.layout) recipe.set_layout(x, source);
      if (to.layout) recipe.set_layout(y, target);
      return recipe.finish_steps("reorder");
    });
  });
}

LayoutRef layout_of(const Geometry& x) { return layout_of(desc_of(x)); }

}  // namespace weft::onednn
