// onednn.cpp: oneDNN's kernels for Python. Geometry is a tuple (dtype, shape, strides): strides in elements,
// None for row-major, or "any" where the kernel may choose; or a Layout that a kernel chose. A function that
// makes kernels returns None for what oneDNN cannot do.
#include "onednn/kernels.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include "bindings/convert.h"

namespace weft {
namespace {

using namespace onednn;
using Numbers = std::vector<int64_t>;

struct PyOnednnKernel : PyKernel {
  const OnednnKernel& core() const { return static_cast<const OnednnKernel&>(*kernel); }
};
struct PyLayout {
  LayoutRef core;
};

Geometry as_geometry(nb::handle object) {
  Geometry x;
  if (const auto* layout = as<PyLayout>(object)) {
    x.layout = layout->core;
    return x;
  }
  if (!PyTuple_Check(object.ptr()) || PyTuple_Size(object.ptr()) != 3)
    throw type_error("geometry is (dtype, shape, strides) or a Layout, got " + to_utf8(nb::repr(object)));
  x.dtype = as_dtype(object[0]);
  const Shape shape = as_shape(object[1], "geometry");
  const Dims sizes = shape;
  x.shape.assign(sizes.begin(), sizes.end());
  x.strides.resize(x.shape.size());
  const nb::object strides = object[2];
  if (strides.is_none()) {
    row_major(x.shape, x.strides.data());
  } else if (PyUnicode_Check(strides.ptr())) {
    if (to_utf8(strides) != "any") throw ValueError("geometry: strides are numbers, None or 'any'");
    x.any = true;
  } else {
    x.strides = nb::cast<Numbers>(strides);
    if (x.strides.size() != x.shape.size())
      throw ShapeError("geometry: " + std::to_string(x.shape.size()) + " sizes, but " +
                       std::to_string(x.strides.size()) + " strides");
  }
  return x;
}

std::optional<Geometry> as_optional(nb::handle object) {
  return object.is_none() ? std::nullopt : std::optional(as_geometry(object));
}

// The first number of each kind where it is not given, and the second.
std::pair<float, float> defaults_of(const std::string& kind) {
  if (kind == "hardswish") return {1.0F / 6, 0.5F};
  if (kind == "swish" || kind == "linear" || kind == "sum") return {1, 0};
  return {0, 0};
}

// "relu", ("linear", 2.0, 1.0), ("add", geometry).
PostOp as_post_op(nb::handle object) {
  PostOp op;
  if (PyUnicode_Check(object.ptr())) return as_post_op(nb::make_tuple(nb::borrow(object)));
  if (!PyTuple_Check(object.ptr()) || PyTuple_Size(object.ptr()) < 1)
    throw type_error("a post-op is a name or (name, ...), got " + to_utf8(nb::repr(object)));
  const auto size = PyTuple_Size(object.ptr());
  op.kind = nb::cast<std::string>(object[0]);
  std::tie(op.alpha, op.beta) = defaults_of(op.kind);
  if (op.has_operand()) {
    if (size != 2) throw ValueError("post-op " + op.kind + " needs the geometry of its operand");
    op.operand = as_geometry(object[1]);
    return op;
  }
  if (size > 3) throw ValueError("post-op " + op.kind + " has at most 2 numbers");
  if (size > 1) op.alpha = nb::cast<float>(object[1]);
  if (size > 2) op.beta = nb::cast<float>(object[2]);
  return op;
}

std::vector<PostOp> as_post_ops(nb::handle list) {
  std::vector<PostOp> ops;
  for (nb::handle item : list) ops.push_back(as_post_op(item));
  return ops;
}

Window as_window(const Numbers& stride, const std::vector<std::pair<int64_t, int64_t>>& padding,
                 const Numbers& dilation) {
  Window window{stride, dilation, {}, {}};
  for (const auto& [low, high] : padding) {
    window.padding_low.push_back(low);
    window.padding_high.push_back(high);
  }
  return window;
}

Pooling::Kind as_pooling_kind(const std::string& kind) {
  if (kind == "max") return Pooling::Kind::max;
  if (kind == "average") return Pooling::Kind::average;
  if (kind == "average_with_padding") return Pooling::Kind::average_with_padding;
  throw ValueError("pooling: no kind '" + kind + "'; there are max, average, average_with_padding");
}

// The kernel that `make` gives; NotImplementedError, with the reason, if oneDNN has none.
template <class F>
auto supported(F&& make) {
  try {
    return make();
  } catch (const Unsupported& error) {
    raise_error(PyExc_NotImplementedError, error.what());
  }
}

template <class F>
PyOnednnKernel kernel_of(F&& make) {
  return {{Ref<Kernel>(supported(make).get())}};
}

Convolution::Pass as_pass(const std::string& of) {
  if (of == "dst") return Convolution::Pass::forward;
  if (of == "src") return Convolution::Pass::data;
  if (of == "weights") return Convolution::Pass::weights;
  throw ValueError("convolution: of must be dst, src or weights, got '" + of + "'");
}

using Padding = std::vector<std::pair<int64_t, int64_t>>;
using MaybeGeometry = std::optional<Geometry>;

}  // namespace
}  // namespace weft

namespace nanobind::detail {
template <>
struct type_caster<weft::onednn::Geometry> : LateCaster<weft::onednn::Geometry, weft::as_geometry> {};
template <>
struct type_caster<std::optional<weft::onednn::Geometry>>
    : LateCaster<std::optional<weft::onednn::Geometry>, weft::as_optional> {};
template <>
struct type_caster<std::vector<weft::onednn::PostOp>>
    : LateCaster<std::vector<weft::onednn::PostOp>, weft::as_post_ops> {};
}  // namespace nanobind::detail

namespace weft {
namespace {

void bind_matmul(nb::module_& m) {
  def(
      m, "onednn_matmul",
      [](Geometry a, Geometry b, Geometry c, MaybeGeometry bias, bool accumulate,
         std::vector<PostOp> post_ops, bool narrow) {
        return kernel_of([&] { return make_matmul({a, b, c, bias, post_ops, accumulate, false, narrow}); });
      },
      "a"_a, "b"_a, "c"_a, nb::kw_only(), "bias"_a = nb::none(), "accumulate"_a = false,
      "post_ops"_a = nb::tuple(), "narrow"_a = false,
      "c = post(a @ b + bias), or c += that. Operands: a, b, [bias], [those of post-ops]; c. narrow: the "
      "numbers "
      "of b are from -64 to 63, of bytes.");
  def(
      m, "onednn_product_of_any_size",
      [](DType dtype, bool transposed, bool bias) {
        return supported([&] { return make_product_of_any_size(dtype, transposed, bias); });
      },
      "dtype"_a, nb::kw_only(), "transposed"_a = false, "bias"_a = false,
      "A product for all sizes. Operands: a, b (transposed: as [n, k]), [bias]; c.");
  def(
      m, "onednn_reorder",
      [](Geometry src, Geometry dst, bool accumulate) {
        return kernel_of([&] { return make_reorder(src, dst, accumulate); });
      },
      "src"_a, "dst"_a, nb::kw_only(), "accumulate"_a = false,
      "dst = convert(src), or dst += that. Operands: src; dst.");
  def(m, "onednn_adds_bytes", &adds_bytes,
      "Whether there are instructions, at the level in use, that add products of bytes in 32 bits.");
  def(
      m, "onednn_layout", [](Geometry x) { return PyLayout{layout_of(x)}; }, "x"_a,
      "The layout of an array with strides; kernels that choose these tell an equal one.");
}

void bind_convolution(nb::module_& m) {
  def(
      m, "onednn_convolution",
      [](Geometry src, Geometry weights, Geometry dst, const Numbers& stride, const Padding& padding,
         const Numbers& dilation, int64_t groups, MaybeGeometry bias, bool accumulate,
         std::vector<PostOp> post_ops, bool narrow) {
        return kernel_of([&] {
          return make_convolution({Convolution::Pass::forward, src, weights, dst, bias,
                                   as_window(stride, padding, dilation), groups, post_ops, accumulate,
                                   narrow});
        });
      },
      "src"_a, "weights"_a, "dst"_a, nb::kw_only(), "stride"_a, "padding"_a, "dilation"_a, "groups"_a = 1,
      "bias"_a = nb::none(), "accumulate"_a = false, "post_ops"_a = nb::tuple(), "narrow"_a = false,
      "Operands: src, weights, [bias], [those of post-ops]; dst. narrow: the weights are from -64 to 63, of "
      "bytes.");
  def(
      m, "onednn_convolution_backward_data",
      [](Geometry ddst, Geometry weights, Geometry dsrc, const Numbers& stride, const Padding& padding,
         const Numbers& dilation, int64_t groups, bool accumulate) {
        return kernel_of([&] {
          return make_convolution({Convolution::Pass::data,
                                   dsrc,
                                   weights,
                                   ddst,
                                   std::nullopt,
                                   as_window(stride, padding, dilation),
                                   groups,
                                   {},
                                   accumulate});
        });
      },
      "ddst"_a, "weights"_a, "dsrc"_a, nb::kw_only(), "stride"_a, "padding"_a, "dilation"_a, "groups"_a = 1,
      "accumulate"_a = false, "Operands: ddst, weights; dsrc.");
  def(
      m, "onednn_convolution_backward_weights",
      [](Geometry src, Geometry ddst, Geometry dweights, const Numbers& stride, const Padding& padding,
         const Numbers& dilation, int64_t groups, MaybeGeometry dbias, bool accumulate) {
        return kernel_of([&] {
          return make_convolution({Convolution::Pass::weights,
                                   src,
                                   dweights,
                                   ddst,
                                   dbias,
                                   as_window(stride, padding, dilation),
                                   groups,
                                   {},
                                   accumulate});
        });
      },
      "src"_a, "ddst"_a, "dweights"_a, nb::kw_only(), "stride"_a, "padding"_a, "dilation"_a, "groups"_a = 1,
      "dbias"_a = nb::none(), "accumulate"_a = false, "Operands: src, ddst; dweights, [dbias].");
  def(
      m, "onednn_convolution_of_any_size",
      [](DType dtype, const std::string& of, const Numbers& stride, const Padding& padding,
         const Numbers& dilation, int64_t groups, bool bias) {
        return supported([&] {
          return make_convolution_of_any_size(dtype, as_pass(of), as_window(stride, padding, dilation),
                                              groups, bias);
        });
      },
      "dtype"_a, nb::kw_only(), "of"_a, "stride"_a, "padding"_a, "dilation"_a, "groups"_a = 1,
      "bias"_a = false,
      "For all sizes. Operands of 'dst': src, weights, [bias]; dst. Of 'src': ddst, weights; dsrc.\n"
      "Of 'weights': src, ddst; dweights.");
}

void bind_pooling(nb::module_& m) {
  def(
      m, "onednn_pooling",
      [](Geometry src, Geometry dst, const std::string& kind, const Numbers& window, const Numbers& stride,
         const Padding& padding, const Numbers& dilation, bool training) {
        return kernel_of([&] {
          return make_pooling({as_pooling_kind(kind),
                               false,
                               training,
                               src,
                               dst,
                               {},
                               {},
                               window,
                               as_window(stride, padding, dilation)});
        });
      },
      "src"_a, "dst"_a, nb::kw_only(), "kind"_a, "window"_a, "stride"_a, "padding"_a, "dilation"_a,
      "training"_a = false,
      "kind: max, average, average_with_padding. Operands: src; dst, [workspace of max if training].");
  def(
      m, "onednn_pooling_backward",
      [](Geometry src, Geometry dst, Geometry ddst, Geometry dsrc, const std::string& kind,
         const Numbers& window, const Numbers& stride, const Padding& padding, const Numbers& dilation) {
        return kernel_of([&] {
          return make_pooling({as_pooling_kind(kind), true, true, src, dst, dsrc, ddst, window,
                               as_window(stride, padding, dilation)});
        });
      },
      "src"_a, "dst"_a, "ddst"_a, "dsrc"_a, nb::kw_only(), "kind"_a, "window"_a, "stride"_a, "padding"_a,
      "dilation"_a,
      "src, dst: as the forward kernel was given them. Operands: ddst, [workspace of max]; dsrc.");
}

void bind_lstm(nb::module_& m) {
  const auto lstm_kernel = [](const Lstm& request) { return supported([&] { return make_lstm(request); }); };
  def(
      m, "onednn_lstm",
      [lstm_kernel](Geometry src, Geometry dst, int64_t layers, bool bidirectional, bool training) {
        return lstm_kernel({src, dst, layers, bidirectional, training, false});
      },
      "src"_a, "dst"_a, nb::kw_only(), "layers"_a = 1, "bidirectional"_a = false, "training"_a = false,
      "src[t,n,c], dst[t,n,d*h]. Operands: src, h0, c0, for each layer and direction w_ih, w_hh, b_ih, b_hh; "
      "dst,\n"
      "hn, cn, [workspace if training]. All are row-major and of one type, float32 or bfloat16.");
  def(
      m, "onednn_lstm_backward",
      [lstm_kernel](Geometry src, Geometry dst, int64_t layers, bool bidirectional) {
        return lstm_kernel({src, dst, layers, bidirectional, true, true});
      },
      "src"_a, "dst"_a, nb::kw_only(), "layers"_a = 1, "bidirectional"_a = false,
      "Operands: src, h0, c0, the parameters, dst, hn, cn, workspace, ddst, dhn, dcn; dsrc, dh0, dc0, and "
      "the\n"
      "gradient of each parameter.");
  def(
      m, "onednn_lstm_workspace",
      [](Geometry src, Geometry dst, int64_t layers, bool bidirectional) {
        return lstm_workspace_bytes({src, dst, layers, bidirectional, true, false});
      },
      "src"_a, "dst"_a, nb::kw_only(), "layers"_a = 1, "bidirectional"_a = false, "Bytes of the workspace.");
}

void bind_cache(nb::module_& m) {
  def(m, "onednn_counters", [] {
    const Counters now = counters();
    return counts_of({{"hits", now.hits},
                      {"misses", now.misses},
                      {"size", now.size},
                      {"limit", now.limit},
                      {"reorders", now.reorders},
                      {"bytes_converted", now.bytes_converted}});
  });
  def(m, "set_onednn_cache_limit", [](size_t kernels) { set_cache_limit(kernels); }, "kernels"_a);
}

}  // namespace

void bind_onednn(nb::module_& m) {
  Class<PyLayout>(m, "Layout", "A memory layout that a kernel chose: of packed weights, or of a workspace.")
      .def_prop_ro("bytes", [](const PyLayout& layout) { return bytes_of(*layout.core); })
      .def_prop_ro(
          "is_plain", [](const PyLayout& layout) { return is_plain(*layout.core); },
          "Whether strides describe it, so that nothing is gained by a copy that has it.")
      .def_prop_ro(
          "strides", [](const PyLayout& layout) { return strides_of(*layout.core); },
          "In elements; None if it is not plain.")
      .def(
          "__eq__",
          [](const PyLayout& a, nb::handle b) {
            const auto* other = as<PyLayout>(b);
            return other && id_of(*a.core) == id_of(*other->core);
          },
          nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", [](const PyLayout& layout) { return static_cast<Py_hash_t>(id_of(*layout.core)); });
  Class<PyOnednnKernel, PyKernel>(m, "OnednnKernel", "A kernel that oneDNN computes.")
      .def_prop_ro("scratch_bytes", [](const PyOnednnKernel& k) { return k.core().scratch_bytes(nullptr); })
      .def_prop_ro("implementation", [](const PyOnednnKernel& k) { return k.core().implementation(); })
      .def_prop_ro(
          "is_wide", [](const PyOnednnKernel& k) { return k.core().is_wide(); },
          "Whether half types are computed in float32, because oneDNN has no code for them.")
      .def_prop_ro("operands", [](const PyOnednnKernel& k) { return k.core().operands(); })
      .def_prop_ro(
          "pieces", [](const PyOnednnKernel& k) { return k.core().pieces(); },
          "How many pieces the threads of the team share out; 0: oneDNN opens regions of its own.")
      .def_prop_ro(
          "id", [](const PyOnednnKernel& k) { return reinterpret_cast<uintptr_t>(k.kernel.get()); },
          "Equal for equal requests while the kernel is kept.")
      .def(
          "layout",
          [](const PyOnednnKernel& k, int operand) -> std::optional<PyLayout> {
            LayoutRef layout = k.core().layout(operand);
            return layout ? std::optional(PyLayout{std::move(layout)}) : std::nullopt;
          },
          "operand"_a, "Of an operand given as 'any', or a workspace; else None.");
  bind_matmul(m);
  bind_convolution(m);
  bind_pooling(m);
  bind_lstm(m);
  bind_cache(m);
}

}  // namespace weft
