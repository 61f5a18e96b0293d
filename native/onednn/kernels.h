// kernels.h: kernels that oneDNN computes: the requests and functions, without oneDNN's headers.
//
// A request states exact geometry: sizes, strides in elements, types. The answer is a kernel for just that,
// from a bounded cache shared by all threads: equal requests give the same kernel while it is kept. A request
// that contradicts itself throws ShapeError, DTypeError or ValueError; one that is sound but that oneDNN
// cannot serve throws Unsupported, and the caller computes it some other way.
//
// The operands of each kernel are listed where it is made: inputs, then outputs.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/error.h"
#include "program/archive.h"
#include "program/kernel.h"

namespace weft::onednn {

struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A memory layout that oneDNN chose and only it understands: that of packed weights, or of a workspace. Its
// memory is a buffer of `bytes()`, aligned to 64.
class Layout;
using LayoutRef = std::shared_ptr<const Layout>;
size_t bytes_of(const Layout& layout);
bool is_plain(const Layout& layout);                                   // strides describe it
std::optional<std::vector<int64_t>> strides_of(const Layout& layout);  // none: it is not plain
uint64_t id_of(const Layout& layout);  // equal layouts have equal numbers while one of them lives
// The first request by which a kernel chose it, and for which operand; an empty recipe: none did.
struct LayoutOrigin {
  std::string recipe;
  int operand = 0;
};
LayoutOrigin origin_of(const Layout& layout);

struct Geometry {
  DType dtype = DType::float32;
  std::vector<int64_t> shape, strides;
  bool any = false;            // `strides` are not given: the kernel chooses a layout and returns it
  LayoutRef layout = nullptr;  // what another kernel chose; the rest is not looked at
};

// One step of what is done to a result before it is written.
struct PostOp {
  std::string kind;  // a name of post_op_names()
  float alpha = 0, beta = 0;
  Geometry operand;  // of add, mul, div, min: broadcast against the result; taken from one more input
  bool has_operand() const { return kind == "add" || kind == "mul" || kind == "div" || kind == "min"; }
};
std::string post_op_names();

class Steps;  // what to run, in oneDNN's terms

class OnednnKernel : public Kernel {
 public:
  // Steps whose primitives open OpenMP regions.
  explicit OnednnKernel(std::unique_ptr<Steps> steps);
  // Pieces for the threads of the team, of primitives made for one thread.
  explicit OnednnKernel(std::vector<std::unique_ptr<Steps>> pieces);
  ~OnednnKernel() override;
  void run(const Call& call) const override;
  size_t scratch_bytes(const View* operands) const override;
  // oneDNN's name for the code it chose.
  const std::string& implementation() const noexcept;
  bool is_reference() const override;
  // Whether half types are computed in float32, because oneDNN has no code for them.
  bool is_wide() const noexcept;
  int operands() const noexcept;
  int reorders() const override;
  // Of an operand given as `any`, or a workspace; null for those with strides.
  LayoutRef layout(int operand) const;
  // Into how many pieces the work is divided for the team; 0: oneDNN divides it.
  int pieces() const noexcept { return opens_region_ ? 0 : static_cast<int>(pieces_.size()); }

 private:
  void run_region(const Call& call) const;
  std::vector<std::unique_ptr<Steps>> pieces_;
  bool opens_region_ = false;
  size_t scratch_bytes_ = 0;
};
using KernelRef = Ref<OnednnKernel>;

// c = post(a @ b + bias), or c += that. a[*,m,k] or [k], b[*,k,n] or [k], c[*,m,n] without m or n where a or
// b is a vector, broadcast over the leading dimensions; bias[n]. b alone may be `any` or a layout, and has 2
// dimensions then.
// Operands: a, b, bias if there is one, those of post-ops; c.
// `alone`: it runs on the calling thread at any size; the caller has its own pieces for the team.
// `narrow`: the numbers of b are from -64 to 63, of bytes; see precision_of_product.
struct Matmul {
  Geometry a, b, c;
  std::optional<Geometry> bias = std::nullopt;
  std::vector<PostOp> post_ops = {};
  bool accumulate = false, alone = false, narrow = false;
};
KernelRef make_matmul(const Matmul& request);

// A product for all sizes: each call's operands (a, b, bias if there is one, c) have theirs. transposed: b is
// given as [n,k]. Throws Unsupported if oneDNN has no product of this type.
Ref<Kernel> make_product_of_any_size(DType dtype, bool transposed, bool bias);

// Sizes of a window over the spatial dimensions; each as long as there are such dimensions.
struct Window {
  std::vector<int64_t> stride, dilation, padding_low, padding_high;  // dilation 1: neighbours
};

// x[n,c,*spatial], w[o,c/groups,*window], y[n,o,*spatial'] (and their gradients).
// forward operands: x, w, bias if there is one, those of post-ops; y.
// data operands: dy, w; dx.
// weights operands: x, dy; dw, dbias if there is one.
// w may be `any` or a layout, dw `any`. `narrow`: as of Matmul, of the weights.
struct Convolution {
  enum class Pass { forward, data, weights } pass = Pass::forward;
  Geometry x, w, y;
  std::optional<Geometry> bias;
  Window window;
  int64_t groups = 1;
  std::vector<PostOp> post_ops;  // forward only
  bool accumulate = false;       // adds to the outputs
  bool narrow = false;
};
KernelRef make_convolution(const Convolution& request);

// A convolution, or one of its gradients, for all sizes; bias: of the forward pass. Throws Unsupported if
// oneDNN has none of this type.
Ref<Kernel> make_convolution_of_any_size(DType dtype, Convolution::Pass pass, const Window& window,
                                         int64_t groups, bool bias);

// Forward operands: x; y, with `training` and max a workspace.
// Backward operands: dy, for max a workspace; dx. x and y are what the forward kernel was made with.
struct Pooling {
  enum class Kind { max, average, average_with_padding } kind = Kind::max;
  bool backward = false, training = false;
  Geometry x, y;
  Geometry dx, dy;  // backward only
  std::vector<int64_t> size;
  Window window;
};
KernelRef make_pooling(const Pooling& request);

// Layers of long short-term memory. x[t,n,c], y[t,n,d*h], d = 2 if bidirectional, else 1; states[l*d,n,h].
// Weights for layer by layer, direction by direction: w_ih[4h,c'], w_hh[4h,h], b_ih[4h], b_hh[4h], with the
// gates in the order i, f, g, o; all operands are row-major and of x's type, float32 or bfloat16.
// Forward operands: x, h0, c0, the weights; y, hn, cn, with `training` a workspace of so many bytes.
// Backward operands: x, h0, c0, the weights, y, hn, cn, the workspace, dy, dhn, dcn;
//   dx, dh0, dc0, and for each of the weights its gradient.
struct Lstm {
  Geometry x, y;  // backward: of x and dx, of y and dy
  int64_t layers = 1;
  bool bidirectional = false, training = false, backward = false;
};
Ref<Kernel> make_lstm(const Lstm& request);
int64_t lstm_workspace_bytes(const Lstm& request);

// to = convert(from), or to += that. Operands: from; to. Equal shapes, but that weights[o, ...] go to and
// from a layout that a grouped convolution chose, which has dimensions [groups, o / groups, ...].
KernelRef make_reorder(const Geometry& from, const Geometry& to, bool accumulate);

// The layout of an array with strides; kernels that choose these return an equal one.
LayoutRef layout_of(const Geometry& x);

// Whether there are instructions, at the level in use, that add products of bytes in 32 bits.
bool adds_bytes();

// The kernel of a recipe whose name has been read (Kernel::recipe); null: the name is none of oneDNN's.
// Raises FormatError where the arguments do not fit.
Ref<Kernel> kernel_of_recipe(const std::string& name, Reader& arguments);
// The size of an operand in a layout that oneDNN chose; 0: the kernel or the operand is none such.
size_t layout_bytes(const Kernel& kernel, int operand);

// The cache of kernels.
struct Counters {
  uint64_t hits, misses, size, limit;
  uint64_t reorders;         // that have run
  uint64_t bytes_converted;  // read and written by copies to and from float32, where oneDNN has no half types
};
Counters counters();
void set_cache_limit(size_t kernels);  // drops the least recently used

}  // namespace weft::onednn
