// stored.cpp: kernels from their recipes, the bytes that Key writes.
#include "onednn/cache.h"
#include "onednn/recipe.h"

namespace weft::onednn {

namespace {

LayoutRef read_layout(Reader& reader) {
  const auto recipe = reader.next<std::string>();
  const auto operand = reader.next<int>();
  Reader arguments(recipe);
  const auto name = arguments.next<std::string>();
  const Ref<Kernel> kernel = kernel_of_recipe(name, arguments);
  const auto* const chosen = dynamic_cast<const OnednnKernel*>(kernel.get());
  if (!chosen || operand < 0 || operand >= chosen->operands()) throw FormatError(name + " chooses no layout");
  LayoutRef layout = chosen->layout(operand);
  if (!layout) throw FormatError(name + ": oneDNN chooses no layout here");
  return layout;
}

}  // namespace

void fields(Reader& reader, Geometry& x) {
  const auto kind = reader.next<char>();
  if (kind == 'l') {
    x.layout = read_layout(reader);
    return;
  }
  if (kind != 'a' && kind != 's') throw FormatError("a geometry of no known kind");
  x.any = kind == 'a';
  reader(x.dtype, x.shape, x.strides);
}
void fields(Reader& reader, PostOp& op) {
  reader(op.kind, op.alpha, op.beta);
  if (op.has_operand()) reader(op.operand);
}
void fields(Reader& reader, Window& w) { reader(w.stride, w.dilation, w.padding_low, w.padding_high); }

Ref<Kernel> kernel_of_recipe(const std::string& name, Reader& reader) {
  const auto done = [](const KernelRef& kernel) { return Ref<Kernel>(kernel.get()); };
  if (name == "onednn_matmul") {
    Matmul r;
    reader(r.a, r.b, r.c, r.bias, r.post_ops, r.accumulate, r.alone, r.narrow);
    return done(make_matmul(r));
  }
  if (name == "onednn_reorder") {
    Geometry from, to;
    bool accumulate = false;
    reader(from, to, accumulate);
    return done(make_reorder(from, to, accumulate));
  }
  for (const auto pass : {Convolution::Pass::forward, Convolution::Pass::data, Convolution::Pass::weights})
    if (name == name_of_pass(pass)) {
      Convolution r;
      r.pass = pass;
      reader(r.x, r.w, r.y, r.bias, r.window, r.groups, r.post_ops, r.accumulate, r.narrow);
      return done(make_convolution(r));
    }
  for (const bool backward : {false, true}) {
    if (name != name_of_pooling(backward)) continue;
    Pooling r;
    r.backward = backward;
    reader(r.kind, r.training, r.x, r.y, r.size, r.window);
    if (backward) reader(r.dx, r.dy);
    return done(make_pooling(r));
  }
  if (name == "onednn_lstm") {
    Lstm r;
    reader(r.x, r.y, r.layers, r.bidirectional, r.training, r.backward);
    return make_lstm(r);
  }
  return {};
}

size_t layout_bytes(const Kernel& kernel, int operand) {
  const auto* const made = dynamic_cast<const OnednnKernel*>(&kernel);
  const LayoutRef layout = made && operand < made->operands() ? made->layout(operand) : nullptr;
  return layout ? bytes_of(*layout) : 0;
}

}  // namespace weft::onednn
