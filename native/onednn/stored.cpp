// stored.cpp: kernels from their recipes, the bytes that Key writes.
#include <algorithm>
#include <cstdlib>
#include <span>

#include "onednn/cache.h"
#include "onednn/recipe.h"

namespace weft::onednn {

constexpr int64_t kMostSteps = int64_t{1} << 31;  // of a window, and elements of one

constexpr int enumerators_like(Pooling::Kind) noexcept { return 3; }

namespace {

// Numbers with which sizes can be computed. Raises FormatError.
void check_numbers(std::span<const int64_t> numbers, int64_t most) {
  for (const int64_t number : numbers)
    if (number < -most || number > most)
      throw FormatError("a size of " + std::to_string(number) + " elements is out of range");
}

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
  if (x.shape.size() > DNNL_MAX_NDIMS ||
      (x.strides.size() != x.shape.size() && !(x.any && x.strides.empty())))
    throw FormatError("a geometry of " + std::to_string(x.shape.size()) + " sizes and " +
                      std::to_string(x.strides.size()) + " strides");
  int64_t left = int64_t{1} << 44;  // elements of an array
  check_numbers(x.strides, left);
  for (const int64_t size : x.shape) {
    check_numbers({{size}}, left);
    left /= std::max<int64_t>(std::abs(size), 1);
  }
}
void fields(Reader& reader, PostOp& op) {
  reader(op.kind, op.alpha, op.beta);
  if (op.has_operand()) reader(op.operand);
}
void fields(Reader& reader, Window& w) {
  reader(w.stride, w.dilation, w.padding_low, w.padding_high);
  for (const auto* numbers : {&w.stride, &w.dilation, &w.padding_low, &w.padding_high})
    check_numbers(*numbers, kMostSteps);
}

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
      check_numbers({{r.groups}}, kMostSteps);
      return done(make_convolution(r));
    }
  for (const bool backward : {false, true}) {
    if (name != name_of_pooling(backward)) continue;
    Pooling r;
    r.backward = backward;
    reader(r.kind, r.training, r.x, r.y, r.size, r.window);
    if (backward) reader(r.dx, r.dy);
    check_numbers(r.size, kMostSteps);
    return done(make_pooling(r));
  }
  if (name == "onednn_lstm") {
    Lstm r;
    reader(r.x, r.y, r.layers, r.bidirectional, r.training, r.backward);
    constexpr int64_t kMostLayers = 1 << 16;  // each has a part of the workspace
    if (r.layers < 1 || r.layers > kMostLayers)
      throw FormatError("an LSTM of " + std::to_string(r.layers) + " layers");
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
