// reorder.cpp: between layouts and types.
#include "onednn/cache.h"
#include "onednn/recipe.h"

namespace weft::onednn {

KernelRef make_reorder(const Geometry& from, const Geometry& to, bool accumulate) {
  constexpr const char* kWhat = "onednn_reorder";
  if (from.any || to.any) throw ValueError(std::string(kWhat) + ": both sides need strides or a layout");
  return cached(Key(kWhat) << from << to << accumulate, kWhat, [&] {
    Recipe recipe;
    recipe.keep(from);
    recipe.keep(to);
    const memory::desc source = desc_of(from), target = desc_of(to);
    if (source.get_dims() != target.get_dims())
      throw ShapeError(std::string(kWhat) + ": the shapes differ: " + describe(from) + ", " + describe(to));
    const int x = recipe.next_operand(), y = recipe.next_operand();
    recipe.reorder(source, Recipe::operand(x), target, Recipe::operand(y), accumulate);
    if (from.layout) recipe.tell_layout(x, source);
    if (to.layout) recipe.tell_layout(y, target);
    return recipe.finish("reorder");
  });
}

}  // namespace weft::onednn
