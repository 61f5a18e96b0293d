// any_size.cpp: products and convolutions whose sizes and strides are known only when they run.
//
// One such kernel serves a plan for all sizes. It keeps the kernels of exact geometry that it has met; what
// those do not take, such as rows that are repeated or in reverse order, is copied to scratch memory first.
#include <omp.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <unordered_map>

#include "engine/fork.h"
#include "onednn/recipe.h"
#include "tensor/tensor.h"

namespace weft::onednn {

namespace {

constexpr size_t kMaxGeometries = 256;
constexpr int kMaxOperands = 4;  // operands: a, b, bias, c

// Whether oneDNN can describe its strides, except perhaps for matrices that are repeated.
bool is_plain(const View& x) {
  for (int d = 0; d < x.ndim; ++d)
    if (x.shape[d] > 1 && (x.strides[d] < 0 || (x.strides[d] == 0 && d + 2 >= x.ndim))) return false;
  return true;
}

bool repeats(const View& x) {
  for (int d = 0; d < x.ndim; ++d)
    if (x.shape[d] > 1 && x.strides[d] == 0) return true;
  return false;
}

Geometry geometry_of(const View& x) {
  return {x.dtype, {x.shape, x.shape + x.ndim}, {x.strides, x.strides + x.ndim}};
}

bool is_empty(const View& x) {
  return std::any_of(x.shape, x.shape + x.ndim, [](int64_t n) { return n == 0; });
}

// A sum of no products: zeros, or the bias, along `axis` of the result.
class EmptySum final : public Kernel {
 public:
  EmptySum(int operands, int axis) : operands_(operands), axis_(axis) {}
  void run(const Call& call) const override {
    const View& y = call.operands[operands_ - 1];
    if (is_empty(y)) return;
    if (operands_ < kMaxOperands) return fill(y, {Scalar::Kind::integer, {.integer = 0}});
    View bias = call.operands[2];
    int64_t strides[kMaxDims] = {};
    strides[axis_] = bias.strides[0];
    bias = {bias.data, bias.dtype, y.ndim, y.shape, strides};
    weft::copy(y, bias);
  }
  size_t scratch_bytes(const View*) const override { return 0; }

 private:
  const int operands_, axis_;
};

// What runs for one geometry.
struct SizedKernel {
  struct Copy {
    int operand;
    Geometry dense;
    size_t offset;  // in scratch memory, behind the kernel's own
  };
  KernelRef kernel;
  Ref<Kernel> empty_sum;  // where a size is 0: runs in its place
  std::vector<Copy> copies;
  size_t scratch_bytes = 0;

  void run(const Call& call, int operands) const {
    if (empty_sum) return empty_sum->run(call);
    if (copies.empty()) return kernel->run(call);
    View views[kMaxOperands];
    std::copy_n(call.operands, operands, views);
    for (const Copy& copy : copies) {
      View& x = views[copy.operand];
      const View dense{call.scratch + copy.offset, x.dtype, x.ndim, copy.dense.shape.data(),
                       copy.dense.strides.data()};
      weft::copy(dense, x);
      x = dense;
    }
    kernel->run({views, call.parameters, call.scratch, call.context});
  }
};

class AnySize final : public Kernel {
 public:
  // The kernel of exact geometry, of operands in the order of a call, the result last.
  using Make = std::function<KernelRef(const Geometry* operands)>;

  // bias_axis: the axis of the result along which a bias is added, from the end if negative.
  AnySize(int operands, int bias_axis, Make make)
      : operands_(operands), bias_axis_(bias_axis), make_(std::move(make)) {}

  void run(const Call& call) const override { find(call.operands)->run(call, operands_); }
  size_t scratch_bytes(const View* operands) const override { return find(operands)->scratch_bytes; }

 private:
  using SizedKernelRef = std::shared_ptr<const SizedKernel>;

  SizedKernelRef find(const View* operands) const {
    int64_t words[kMaxOperands * (2 * kMaxDims + 1) + 1];
    size_t length = 0;
    words[length++] = omp_get_max_threads();
    for (int k = 0; k < operands_; ++k) {
      const View& x = operands[k];
      words[length++] = x.ndim;
      for (int d = 0; d < x.ndim; ++d) words[length++] = x.shape[d];
      for (int d = 0; d < x.ndim; ++d) words[length++] = x.strides[d];
    }
    const std::string_view key(reinterpret_cast<const char*>(words), length * sizeof *words);
    {
      const std::lock_guard guard(mutex_);
      if (const auto it = kernels_.find(key); it != kernels_.end()) return it->second;
    }
    SizedKernelRef sized;  // not under the lock: this takes long
    try {
      sized = fit(operands, false);
    } catch (const Unsupported&) {  // such as a product with leading sizes that neither operand has
      sized = fit_densely(operands);
    }
    const std::lock_guard guard(mutex_);
    if (kernels_.size() >= kMaxGeometries) kernels_.clear();
    kernels_.emplace(std::string(key), sized);
    return sized;
  }

  SizedKernelRef fit_densely(const View* operands) const {
    try {
      return fit(operands, true);
    } catch (const Unsupported&) {
      std::string shapes;
      for (int k = 0; k < operands_; ++k) shapes += (k ? ", " : "") + describe(geometry_of(operands[k]));
      throw ValueError("oneDNN has no kernel for operands and result of the geometries " + shapes);
    }
  }

  // densely: copies also operands whose matrices or images are repeated.
  SizedKernelRef fit(const View* operands, bool densely) const {
    auto fitted = std::make_shared<SizedKernel>();
    if (std::any_of(operands, operands + operands_, is_empty)) {
      const int axis = bias_axis_ < 0 ? bias_axis_ + operands[operands_ - 1].ndim : bias_axis_;
      fitted->empty_sum = Ref<Kernel>(make_ref<EmptySum>(operands_, axis).get());
      return fitted;
    }
    Geometry geometries[kMaxOperands];
    size_t staged = 0;
    for (int k = 0; k < operands_; ++k) {
      geometries[k] = geometry_of(operands[k]);
      const bool is_supported = is_plain(operands[k]) && !(densely && repeats(operands[k]));
      if (k + 1 == operands_ || is_supported) continue;
      row_major(geometries[k].shape, geometries[k].strides.data());
      fitted->copies.push_back({k, geometries[k], staged});
      staged += in_lines(row_major_desc(geometries[k].dtype, geometries[k].shape).get_size());
    }
    fitted->kernel = make_(geometries);
    const size_t kernel_bytes = in_lines(fitted->kernel->scratch_bytes(nullptr));
    for (SizedKernel::Copy& copy : fitted->copies) copy.offset += kernel_bytes;
    fitted->scratch_bytes = kernel_bytes + staged;
    return fitted;
  }

  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view key) const noexcept { return std::hash<std::string_view>{}(key); }
  };

  const int operands_, bias_axis_;
  const Make make_;
  mutable ForkMutex mutex_;
  mutable std::unordered_map<std::string, SizedKernelRef, Hash, std::equal_to<>> kernels_;
};

}  // namespace

Ref<Kernel> make_product_of_any_size(DType dtype, bool transposed, bool bias) {
  if (dtype != DType::float32) {  // which all machines have
    const Geometry one{dtype, {1, 1}, {1, 1}};
    make_matmul({one, one, one, std::nullopt, {}, false});
  }
  const int operands = bias ? 4 : 3;
  const auto make = [=](const Geometry* geometries) {
    Matmul r{geometries[0], geometries[1], geometries[operands - 1], std::nullopt, {}, false};
    if (transposed) {
      std::swap(r.b.shape[0], r.b.shape[1]);
      std::swap(r.b.strides[0], r.b.strides[1]);
    }
    if (bias) r.bias = geometries[2];
    return make_matmul(r);
  };
  return Ref<Kernel>(make_ref<AnySize>(operands, -1, make).get());
}

Ref<Kernel> make_convolution_of_any_size(DType dtype, Convolution::Pass pass, const Window& window,
                                         int64_t groups, bool bias) {
  using Pass = Convolution::Pass;
  const int operands = bias ? 4 : 3;
  const auto make = [=](const Geometry* geometries) {
    Convolution r{pass, geometries[0], geometries[1], geometries[operands - 1], std::nullopt, window, groups,
                  {},   false};
    if (pass == Pass::data) std::swap(r.x, r.y);
    if (pass == Pass::weights) std::swap(r.w, r.y);
    if (bias) r.bias = geometries[2];
    return make_convolution(r);
  };
  if (dtype != DType::float32) {
    const size_t spatial = window.stride.size();
    std::vector<int64_t> ones(spatial + 2, 1), sizes = ones;
    sizes[1] = groups;
    const Geometry image{dtype, sizes, ones};
    std::swap(sizes[0], sizes[1]);
    const Geometry weights{dtype, sizes, ones};
    ones.resize(spatial);
    const Window plain{ones, ones, std::vector<int64_t>(spatial), std::vector<int64_t>(spatial)};
    make_convolution({pass, image, weights, image, std::nullopt, plain, groups, {}, false});
  }
  return Ref<Kernel>(make_ref<AnySize>(operands, 1, make).get());
}

}  // namespace weft::onednn
