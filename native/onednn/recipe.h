// recipe.h: builds a kernel: primitives in a row, and where their arguments are stored.
//
// An argument is in an operand or in scratch memory, at a fixed offset; only base addresses change from run
// to run. What oneDNN needs in another layout than the caller has goes through scratch: `input` reorders it
// before the primitive, `output` after it. One area after all others serves as every primitive's own
// scratchpad.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>

#include "engine/team.h"
#include "onednn/kernels.h"
#include "program/scratch.h"

namespace weft::onednn {

using dnnl::memory;

// One engine for the process; never destroyed, because kernels may outlive everything.
const dnnl::engine& engine();

// The calling thread, ready for oneDNN: its OpenMP regions are no wider than `threads`, nor than
// OMP_NUM_THREADS allows.
class OpenMpScope {
 public:
  OpenMpScope() : OpenMpScope(team_size()) {}
  explicit OpenMpScope(int threads);
  ~OpenMpScope();
  OpenMpScope(const OpenMpScope&) = delete;

 private:
  int before_ = 0;
};

class Layout {
 public:
  Layout(memory::desc chosen, uint64_t number) : desc(std::move(chosen)), id(number) {}
  const memory::desc desc;
  const uint64_t id;
  mutable LayoutOrigin origin;  // set once; both ways under the lock of layouts
};
LayoutRef layout_of(const memory::desc& desc);
// Notes what chose a layout, unless it is known.
void set_origin(const Layout& layout, const std::string& recipe, int operand);

struct Location {
  enum class Base : uint8_t { operand, scratch } base = Base::operand;
  int operand = 0;
  size_t offset = 0;
};

struct Argument {
  int name;  // DNNL_ARG_...
  memory::desc desc;
  Location location;
};

// native: oneDNN computes in the types of the arrays. wide: it is given float32, converted before and rounded
// once after, where it has no code for half types, or none that is right for bytes.
enum class Precision : uint8_t { native, wide };

struct Step {
  // None: copy the first argument to the second; if it is alone, fill it with zeros.
  dnnl::primitive primitive;
  std::vector<Argument> arguments;
  std::vector<Geometry> copied;  // of a copy: from, to
  // Our own code instead of a primitive, called with the arguments' addresses.
  std::function<void(char* const*)> code = nullptr;
};

// The memory objects of one run; kept for the next.
struct Frame;

class Steps {
 public:
  Steps() = default;
  ~Steps();
  void run(const Call& call) const;
  // The same on operands that begin so many bytes later, by operand. `scratch`: of the scratch memory.
  std::unique_ptr<Steps> shifted(const std::vector<size_t>& operands, size_t scratch = 0) const;

  std::vector<Step> steps;
  std::vector<LayoutRef> layouts;    // by operand
  std::vector<LayoutRef> requested;  // layouts in the request, so that their numbers stay theirs
  size_t scratch_bytes = 0;
  std::string implementation;
  int reorders = 0;  // among the steps
  Precision precision = Precision::native;
  static inline std::atomic<uint64_t> reorders_run{0}, bytes_converted{0};

 private:
  std::unique_ptr<Frame> make_frame() const;
  static void copy(const Call& call, const Step& step);
  mutable std::atomic<Frame*> spare_{nullptr};
};

class Recipe {
 public:
  Recipe() : steps_(std::make_unique<Steps>()) {}

  int next_operand() { return operands_++; }  // in the order of the calls
  static Location operand(int index) { return {Location::Base::operand, index, 0}; }
  Location scratch(size_t bytes);
  Location scratch(const memory::desc& desc) { return scratch(desc.get_size()); }

  template <class Primitive>
  void add(const typename Primitive::primitive_desc& pd, std::vector<Argument> arguments) {
    add_step(Primitive(pd), pd.scratchpad_desc(), std::move(arguments));
  }
  void add_code(std::function<void(char* const*)> code, std::vector<Argument> arguments) {
    steps_->steps.push_back({{}, std::move(arguments), {}, std::move(code)});
  }
  void reorder(const memory::desc& from, Location source, const memory::desc& to, Location target,
               bool add = false);
  void set_precision(Precision precision) { steps_->precision = precision; }
  // The operand in the layout that a primitive needs.
  Location input(int operand, const memory::desc& stored, const memory::desc& required);
  // Where a primitive leaves what is the operand's in the end; `accumulate` adds it to what is there, `load`
  // means that the primitive itself reads what is there.
  Location output(int operand, const memory::desc& stored, const memory::desc& required,
                  bool accumulate = false, bool load = false);
  // The operand is a buffer in this layout.
  void set_layout(int operand, const memory::desc& desc);
  void hold_layout(const Geometry& x) {
    if (x.layout) steps_->requested.push_back(x.layout);
  }
  std::unique_ptr<Steps> finish_steps(std::string implementation);

 private:
  struct FinalReorder {
    memory::desc from;
    Location source;
    memory::desc to;
    Location target;
    bool add;
  };
  void add_step(dnnl::primitive primitive, const memory::desc& scratchpad, std::vector<Argument> arguments);
  void convert(const memory::desc& from, Location source, const memory::desc& to, Location target, bool add);
  void copy(const memory::desc& from, Location source, const memory::desc& to, Location target);
  std::unique_ptr<Steps> steps_;
  std::vector<FinalReorder> final_reorders_;
  int operands_ = 0;
  size_t staged_bytes_ = 0, scratchpad_bytes_ = 0;
};

// The names of requests, in errors and recipes.
const char* name_of_pass(Convolution::Pass pass);
const char* name_of_pooling(bool backward);

// -- types --

bool is_half(DType dtype);
bool is_byte(DType dtype);
// Whether oneDNN has code for the type at the level of instructions that it uses. Where it has none for a
// half type, it converts it by slow code, too.
bool has_code_for(memory::data_type type);
// What oneDNN is given for arrays of a type.
DType computed_in(DType dtype, Precision precision);
Geometry computed_in(Geometry x, Precision precision);
Precision precision_of(std::initializer_list<DType> dtypes);
// Of sums of so many products a * b. Without VNNI, oneDNN adds products of bytes by pairs in 16 bits, where
// they overflow: such sums are computed in float32. `exact`: throws Unsupported where that has not all their
// digits. `narrow`: those of uint8 with numbers from -64 to 63 do not overflow, 2 * 255 * 64 being 32640.
Precision precision_of_product(DType a, DType b, DType c, int64_t products, bool exact, bool adds_integers,
                               bool narrow);

// -- descriptions --

memory::data_type type_of(DType dtype);  // throws Unsupported
// Throws Unsupported, for float64, too: a copy would round it twice on its way through float32.
DType dtype_of(memory::data_type type);
// With strides that oneDNN takes: those of sizes 1 are replaced. Throws Unsupported for an empty array, and
// for strides that are negative, or 0 where a size is not 1.
memory::desc desc_of(DType dtype, const std::vector<int64_t>& shape, const std::vector<int64_t>& strides);
memory::desc desc_of(const Geometry& x);
memory::desc row_major_desc(DType dtype, const std::vector<int64_t>& shape);
memory::desc any_desc(DType dtype, const std::vector<int64_t>& shape);
// [n,c,*spatial]; strides that could mean several layouts are read as channels last, then as channels first.
memory::desc activation_desc(const Geometry& x);
memory::desc channels_last_desc(const Geometry& x);

std::string describe(const Geometry& x);
void require_strided(const Geometry& x, const char* what, const char* name);

// -- windows --

struct DnnlWindow {
  memory::dims stride, dilation, low, high;
};
DnnlWindow as_dnnl(const Window& window);
void check_window(const Window& window, size_t spatial, const char* what);
// How many windows of `size` there are along spatial dimension d of `extent`.
int64_t windows(const Window& window, size_t d, int64_t extent, int64_t size);

// The product of matrices that computes a convolution, of the same operands, if its windows are single
// elements and its arrays have such strides.
std::optional<Matmul> as_product(const Convolution& convolution);

// -- attributes --

dnnl::primitive_attr plain_attributes();  // scratchpads are the caller's

// Post-ops in oneDNN's terms, for a result described by `dst`. Inputs of add, mul and div are operands from
// `first_operand` on. `accumulate` appends one that adds to what is in the result.
struct PostOps {
  PostOps(const std::vector<PostOp>& ops, const memory::desc& dst, bool accumulate,
          Precision precision = Precision::native);
  dnnl::primitive_attr attributes;
  struct Binary {
    int index;  // among the post-ops
    memory::desc stored, required;
  };
  std::vector<Binary> binaries;
  void add_arguments(Recipe& recipe, int first_operand, std::vector<Argument>& arguments) const;
};
// Whether the operand of a post-op is a float32 for all channels of y, or one for each.
bool is_by_channel(const Geometry& x, const Geometry& y);
bool reads_result(const std::vector<PostOp>& ops);  // one is a sum
int count_operands(const std::vector<PostOp>& ops);
// With operands of the result's number of dimensions. Whatever divides a kernel's work among threads cuts
// operands along the result's dimensions, so no kernel is built of other post-ops.
std::vector<PostOp> padded_post_ops(std::vector<PostOp> ops, size_t ndim);
void check_post_ops(const std::vector<PostOp>& ops, const std::vector<int64_t>& result, const char* what);
// Throws Unsupported: oneDNN has only slow code for a result of these sizes with them.
[[noreturn]] void refuse_post_ops(const std::vector<PostOp>& ops, const std::vector<int64_t>& result);

bool is_reference_code(const std::string& implementation);

}  // namespace weft::onednn
