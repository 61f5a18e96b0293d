// describe.cpp: arrays and attributes in oneDNN's terms.
#include <algorithm>

#include "onednn/recipe.h"

namespace weft::onednn {

namespace {

std::string text_of(const std::vector<int64_t>& numbers) {
  std::string text = "(";
  for (size_t i = 0; i < numbers.size(); ++i) text += (i ? ", " : "") + std::to_string(numbers[i]);
  return text + (numbers.size() == 1 ? ",)" : ")");
}

std::vector<int64_t> dense(const std::vector<int64_t>& shape, const std::vector<size_t>& inner_first) {
  std::vector<int64_t> strides(shape.size());
  int64_t next = 1;
  for (const size_t d : inner_first) {
    strides[d] = next;
    next *= shape[d];
  }
  return strides;
}

// Dimensions from the innermost outwards.
std::vector<size_t> channels_last(size_t ndim) {
  std::vector<size_t> order{1};
  for (size_t d = ndim; d-- > 2;) order.push_back(d);
  order.push_back(0);
  return order;
}
std::vector<size_t> row_major(size_t ndim) {
  std::vector<size_t> order(ndim);
  for (size_t d = 0; d < ndim; ++d) order[d] = ndim - 1 - d;
  return order;
}

bool fits(const Geometry& x, const std::vector<int64_t>& strides) {
  for (size_t d = 0; d < x.shape.size(); ++d) {
    if (x.shape[d] != 1 && x.strides[d] != strides[d]) return false;
  }
  return true;
}

memory::dims dims_of(const std::vector<int64_t>& numbers) { return {numbers.begin(), numbers.end()}; }

void check_sizes(const std::vector<int64_t>& shape) {
  if (shape.empty() || shape.size() > DNNL_MAX_NDIMS)
    throw Unsupported("an array of " + std::to_string(shape.size()) + " dimensions");
  for (const int64_t size : shape) {
    if (size < 0) throw ShapeError("negative size in the shape " + text_of(shape));
    if (size == 0) throw Unsupported("an empty array of shape " + text_of(shape));
  }
}

}  // namespace

bool is_half(DType dtype) { return dtype == DType::bfloat16 || dtype == DType::float16; }
bool is_byte(DType dtype) { return dtype == DType::int8 || dtype == DType::uint8; }

namespace {

bool uses(dnnl::cpu_isa level) {
  engine();  // caps the level
  const auto effective = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  return (effective & static_cast<unsigned>(level)) == static_cast<unsigned>(level);
}

}  // namespace

bool has_code_for(memory::data_type type) {
  if (type == memory::data_type::bf16) return uses(dnnl::cpu_isa::avx512_core);
  return type != memory::data_type::f16 || uses(dnnl::cpu_isa::avx512_core_fp16);
}

DType computed_in(DType dtype, Precision precision) {
  const bool wide = is_half(dtype) || is_byte(dtype) || dtype == DType::int32;
  return precision == Precision::wide && wide ? DType::float32 : dtype;
}

Geometry computed_in(Geometry x, Precision precision) {
  x.dtype = computed_in(x.dtype, precision);
  return x;
}

Precision precision_of(std::initializer_list<DType> dtypes) {
  const auto lacks_code = [](DType dtype) { return is_half(dtype) && !has_code_for(type_of(dtype)); };
  return std::ranges::any_of(dtypes, lacks_code) ? Precision::wide : Precision::native;
}

bool adds_bytes() { return uses(dnnl::cpu_isa::avx2_vnni) || uses(dnnl::cpu_isa::avx512_core_vnni); }

Precision precision_of_product(DType a, DType b, DType c, int64_t products, bool exact, bool adds_integers,
                               bool narrow) {
  if (!is_byte(a) && !is_byte(b)) return precision_of({a, b, c});
  if (adds_bytes()) return precision_of({c});
  if (narrow && a == DType::uint8 && b == DType::int8 && uses(dnnl::cpu_isa::avx2)) return precision_of({c});
  const auto largest = [](DType dtype) { return dtype == DType::uint8 ? 255 : 128; };
  const int64_t most = (1 << 24) / (largest(a) * largest(b));  // so many products have a sum in float32
  if (exact && (products > most || adds_integers))
    throw Unsupported("sums of " + std::to_string(products) +
                      " products of bytes need instructions that the level has not");
  return Precision::wide;
}

namespace {

constexpr std::pair<DType, memory::data_type> kTypes[] = {
    {DType::float32, memory::data_type::f32}, {DType::bfloat16, memory::data_type::bf16},
    {DType::float16, memory::data_type::f16}, {DType::float64, memory::data_type::f64},
    {DType::int8, memory::data_type::s8},     {DType::uint8, memory::data_type::u8},
    {DType::int32, memory::data_type::s32}};

}  // namespace

memory::data_type type_of(DType dtype) {
  for (const auto& [ours, type] : kTypes)
    if (ours == dtype) return type;
  throw Unsupported(std::string("oneDNN has no type ") + name_of(dtype));
}

DType dtype_of(memory::data_type type) {
  for (const auto& [dtype, theirs] : kTypes)
    if (theirs == type && dtype != DType::float64) return dtype;
  throw Unsupported("a copy of a type that only oneDNN has");
}

memory::desc desc_of(DType dtype, const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
  check_sizes(shape);
  std::vector<int64_t> valid = strides;
  for (size_t d = shape.size(); d-- > 0;) {
    if (shape[d] == 1)
      valid[d] = d + 1 < shape.size() ? shape[d + 1] * valid[d + 1] : 1;
    else if (strides[d] <= 0)
      throw Unsupported("an array of strides " + text_of(strides));
  }
  return {dims_of(shape), type_of(dtype), dims_of(valid)};
}

memory::desc desc_of(const Geometry& x) {
  if (x.layout) return x.layout->desc;
  return x.any ? any_desc(x.dtype, x.shape) : desc_of(x.dtype, x.shape, x.strides);
}

memory::desc row_major_desc(DType dtype, const std::vector<int64_t>& shape) {
  check_sizes(shape);
  return {dims_of(shape), type_of(dtype), dims_of(dense(shape, row_major(shape.size())))};
}

memory::desc any_desc(DType dtype, const std::vector<int64_t>& shape) {
  check_sizes(shape);
  return {dims_of(shape), type_of(dtype), memory::format_tag::any};
}

memory::desc channels_last_desc(const Geometry& x) {
  check_sizes(x.shape);
  return {dims_of(x.shape), type_of(x.dtype), dims_of(dense(x.shape, channels_last(x.shape.size())))};
}

memory::desc activation_desc(const Geometry& x) {
  check_sizes(x.shape);
  for (const auto& order : {channels_last(x.shape.size()), row_major(x.shape.size())}) {
    const std::vector<int64_t> strides = dense(x.shape, order);
    if (fits(x, strides)) return {dims_of(x.shape), type_of(x.dtype), dims_of(strides)};
  }
  return desc_of(x);
}

std::string describe(const Geometry& x) {
  if (x.layout) return "a chosen layout";
  return std::string(short_name(x.dtype)) + text_of(x.shape) +
         (x.any ? " any" : " strides " + text_of(x.strides));
}

void require_strided(const Geometry& x, const char* what, const char* name) {
  if (x.any || x.layout)
    throw ValueError(std::string(what) + ": " + name +
                     " needs strides; only weights may have a chosen layout");
}

// -- windows --

DnnlWindow as_dnnl(const Window& window) {
  DnnlWindow result{window.stride, window.dilation, window.padding_low, window.padding_high};
  for (auto& d : result.dilation) --d;  // oneDNN counts the elements between
  return result;
}

void check_window(const Window& window, size_t spatial, const char* what) {
  const auto require = [&](const std::vector<int64_t>& numbers, int64_t least, const char* name) {
    if (numbers.size() != spatial ||
        std::any_of(numbers.begin(), numbers.end(), [&](int64_t n) { return n < least; }))
      throw ValueError(std::string(what) + ": " + name + " needs " + std::to_string(spatial) +
                       " numbers of at least " + std::to_string(least) + ", it is " + text_of(numbers));
  };
  require(window.stride, 1, "stride");
  require(window.dilation, 1, "dilation");
  require(window.padding_low, 0, "padding");
  require(window.padding_high, 0, "padding");
}

int64_t windows(const Window& window, size_t d, int64_t extent, int64_t size) {
  const int64_t room =
      extent + window.padding_low[d] + window.padding_high[d] - ((size - 1) * window.dilation[d] + 1);
  return room < 0 ? 0 : room / window.stride[d] + 1;
}

// -- post-ops --

namespace {

struct Named {
  const char* name;
  dnnl::algorithm algorithm;
};
constexpr Named kEltwise[] = {
    {"relu", dnnl::algorithm::eltwise_relu},           {"gelu_tanh", dnnl::algorithm::eltwise_gelu_tanh},
    {"gelu_erf", dnnl::algorithm::eltwise_gelu_erf},   {"sigmoid", dnnl::algorithm::eltwise_logistic},
    {"tanh", dnnl::algorithm::eltwise_tanh},           {"swish", dnnl::algorithm::eltwise_swish},
    {"hardswish", dnnl::algorithm::eltwise_hardswish}, {"clip", dnnl::algorithm::eltwise_clip},
    {"linear", dnnl::algorithm::eltwise_linear},       {"round", dnnl::algorithm::eltwise_round}};

dnnl::algorithm algorithm_of_binary(const std::string& kind) {
  if (kind == "add") return dnnl::algorithm::binary_add;
  if (kind == "min") return dnnl::algorithm::binary_min;
  return kind == "mul" ? dnnl::algorithm::binary_mul : dnnl::algorithm::binary_div;
}

const Named* find_eltwise(const std::string& kind) {
  const auto* entry = std::find_if(std::begin(kEltwise), std::end(kEltwise),
                                   [&](const Named& named) { return kind == named.name; });
  return entry == std::end(kEltwise) ? nullptr : entry;
}

// The operand of a binary post-op with the result's number of dimensions; one that is repeated along a
// dimension (stride 0) has size 1 there.
Geometry padded(Geometry x, size_t ndim) {
  if (x.shape.size() < ndim) {
    x.shape.insert(x.shape.begin(), ndim - x.shape.size(), 1);
    x.strides.insert(x.strides.begin(), ndim - x.strides.size(), 0);
  }
  for (size_t d = 0; d < x.shape.size(); ++d)
    if (x.strides[d] == 0) x.shape[d] = 1;
  return x;
}

}  // namespace

std::string post_op_names() {
  std::string names;
  for (const Named& entry : kEltwise) names += std::string(entry.name) + ", ";
  return names + "add, mul, div, min, sum";
}

bool is_by_channel(const Geometry& x, const Geometry& y) {
  for (size_t d = 0; d < x.shape.size(); ++d)
    if (x.shape[d] != 1 && (d != 1 || x.shape[d] != y.shape[1])) return false;
  return x.dtype == DType::float32;
}

bool reads_result(const std::vector<PostOp>& ops) {
  return std::any_of(ops.begin(), ops.end(), [](const PostOp& op) { return op.kind == "sum"; });
}

int count_operands(const std::vector<PostOp>& ops) {
  return static_cast<int>(std::ranges::count_if(ops, &PostOp::has_operand));
}

void check_post_ops(const std::vector<PostOp>& ops, const std::vector<int64_t>& result, const char* what) {
  for (const PostOp& op : ops) {
    if (!op.has_operand()) {
      if (op.kind != "sum" && !find_eltwise(op.kind))
        throw ValueError(std::string(what) + ": no post-op '" + op.kind + "'; there are " + post_op_names());
      continue;
    }
    require_strided(op.operand, what, "an operand of a post-op");
    const Geometry x = padded(op.operand, result.size());
    bool broadcasts = x.shape.size() == result.size();
    for (size_t d = 0; broadcasts && d < result.size(); ++d)
      broadcasts = x.shape[d] == result[d] || x.shape[d] == 1;
    if (!broadcasts)
      throw ShapeError(std::string(what) + ": post-op " + op.kind + ": " + describe(op.operand) +
                       " does not broadcast to " + text_of(result));
  }
}

std::vector<PostOp> padded_post_ops(std::vector<PostOp> ops, size_t ndim) {
  for (PostOp& op : ops)
    if (op.has_operand()) op.operand = padded(op.operand, ndim);
  return ops;
}

void refuse_post_ops(const std::vector<PostOp>& ops, const std::vector<int64_t>& result) {
  std::string text;
  for (const PostOp& op : ops) {
    if (!text.empty()) text += ", ";
    text += op.kind;
    if (op.has_operand()) text.append(" ").append(describe(op.operand));
  }
  throw Unsupported("only slow code for a result " + text_of(result) + " with the post-ops " + text);
}

dnnl::primitive_attr plain_attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

PostOps::PostOps(const std::vector<PostOp>& ops, const memory::desc& dst, bool accumulate,
                 Precision precision)
    : attributes(plain_attributes()) {
  dnnl::post_ops list;
  for (const PostOp& op : ops) {
    if (const Named* eltwise = find_eltwise(op.kind)) {
      list.append_eltwise(eltwise->algorithm, op.alpha, op.beta);
    } else if (op.kind == "sum") {
      list.append_sum(op.alpha);
    } else {
      const Geometry x = padded(op.operand, static_cast<size_t>(dst.get_ndims()));
      // The generated code walks a full operand as it walks the result.
      const bool full = memory::dims(x.shape.begin(), x.shape.end()) == dst.get_dims();
      const DType dtype = computed_in(x.dtype, precision);
      const memory::desc required = full ? memory::desc(dst.get_dims(), type_of(dtype), dst.get_strides())
                                         : row_major_desc(dtype, x.shape);
      binaries.push_back({list.len(), desc_of(x), required});
      list.append_binary(algorithm_of_binary(op.kind), required);
    }
  }
  if (accumulate) list.append_sum(1.0F);
  attributes.set_post_ops(list);
}

void PostOps::add_arguments(Recipe& recipe, int first_operand, std::vector<Argument>& arguments) const {
  for (const Binary& binary : binaries) {
    const Location location = recipe.input(first_operand++, binary.stored, binary.required);
    arguments.push_back(
        {DNNL_ARG_ATTR_MULTIPLE_POST_OP(binary.index) | DNNL_ARG_SRC_1, binary.required, location});
  }
}

}  // namespace weft::onednn
