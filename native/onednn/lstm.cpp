// lstm.cpp: layers of long short-term memory, of products and of loops over gates (kernels/lstm_cell.h).
//
// What does not depend on the step before is done for all steps by one product: the inputs' part of the
// gates, and backward the gradients of the inputs and of all weights. A step is left with one product of a
// few rows and the recurrent weights, which are packed before the first one; it is one region of the team, in
// which every piece owns some units: its columns of the product, then its gates. oneDNN's own primitive adds
// a product of a few rows to the gradient of the weights in every step, which moves all of it each time.
//
// Gates and cells are float32 for every type of the layer. Nothing here changes once a kernel is made.
#include <algorithm>
#include <cstring>

#include "engine/team.h"
#include "kernels/lstm_cell.h"
#include "kernels/rows.h"
#include "onednn/cache.h"
#include "onednn/recipe.h"

namespace weft::onednn {

namespace {

constexpr int64_t kGates = 4;
constexpr int64_t kLine = 16;        // units of a piece begin at a multiple of this
constexpr double kOperations = 100;  // of one thread on float32, each nanosecond, about
constexpr double kPiece_ns = 10e3;   // what a piece of a step takes at the least

const char* name_of_request(const Lstm& r) { return r.backward ? "onednn_lstm_backward" : "onednn_lstm"; }

void check(const Lstm& r) {
  const std::string what = name_of_request(r);
  require_strided(r.x, what.c_str(), "src");
  require_strided(r.y, what.c_str(), "dst");
  const int64_t directions = r.bidirectional ? 2 : 1;
  if (r.x.shape.size() != 3 || r.y.shape.size() != 3 || r.x.shape[0] != r.y.shape[0] ||
      r.x.shape[1] != r.y.shape[1] || r.y.shape[2] % directions)
    throw ShapeError(what + ": src [t, n, c] and dst [t, n, directions * h] do not fit: " + describe(r.x) +
                     ", " + describe(r.y));
  if (r.x.dtype != r.y.dtype)
    throw DTypeError(what + ": src and dst need one type: " + describe(r.x) + ", " + describe(r.y));
  if (r.layers < 1) throw ValueError(what + ": at least 1 layer, got " + std::to_string(r.layers));
  for (const Geometry* x : {&r.x, &r.y})
    if (desc_of(*x) != row_major_desc(x->dtype, x->shape))
      throw ValueError(what + ": src and dst have to be row-major: " + describe(*x));
  if (r.x.dtype != DType::float32 && r.x.dtype != DType::bfloat16)
    throw Unsupported(std::string("no implementation for ") + name_of(r.x.dtype));
}

struct Sizes {
  explicit Sizes(const Lstm& r)
      : t(r.x.shape[0]),
        n(r.x.shape[1]),
        c(r.x.shape[2]),
        d(r.bidirectional ? 2 : 1),
        h(r.y.shape[2] / d),
        layers(r.layers),
        dtype(r.x.dtype),
        item(size_of(r.x.dtype)) {}
  int64_t t, n, c, d, h, layers;
  DType dtype;
  size_t item;

  int64_t inputs(int64_t layer) const { return layer == 0 ? c : d * h; }
  size_t state() const { return static_cast<size_t>(n * h); }
  size_t floats(int64_t count) const { return static_cast<size_t>(count) * sizeof(float); }
  size_t bytes(int64_t count) const { return static_cast<size_t>(count) * item; }
};

// Pieces of memory one after the other, each at the beginning of a cache line.
class ScratchLayout {
 public:
  size_t take(size_t bytes) {
    const size_t at = size_;
    size_ += in_lines(bytes);
    return at;
  }
  size_t size() const { return size_; }

 private:
  size_t size_ = 0;
};

// The contents of the workspace: of each layer and direction gates and cells, of each layer but the last
// its outputs.
struct Workspace {
  explicit Workspace(const Sizes& s) {
    ScratchLayout layout;
    for (int64_t k = 0; k < s.layers * s.d; ++k) {
      gates.push_back(layout.take(s.floats(s.t * s.n * kGates * s.h)));
      cells.push_back(layout.take(s.floats(s.t * s.n * s.h)));
    }
    for (int64_t l = 0; l + 1 < s.layers; ++l) outputs.push_back(layout.take(s.bytes(s.t * s.n * s.d * s.h)));
    size = layout.size();
  }
  std::vector<size_t> gates, cells, outputs;
  size_t size = 0;
};

Geometry matrix(DType dtype, int64_t rows, int64_t columns, int64_t row, int64_t column = 1) {
  return {dtype, {rows, columns}, {row, column}, false, nullptr};
}

void run(const OnednnKernel& kernel, std::initializer_list<const void*> data, char* scratch) {
  View views[4]{};
  size_t count = 0;
  for (const void* x : data) views[count++].data = static_cast<char*>(const_cast<void*>(x));
  kernel.run({views, nullptr, scratch});
}

// A product for one thread, whose second matrix is packed before.
struct Packed {
  Packed(const Geometry& a, const Geometry& b, const Geometry& c, ScratchLayout& layout) {
    Matmul request{a, b, c};
    request.b.any = true;
    request.alone = true;
    product = make_matmul(request);
    Geometry packed;
    packed.layout = product->layout(1);
    pack = make_reorder(b, packed, false);
    at = layout.take(bytes_of(*packed.layout));
  }
  KernelRef product, pack;
  size_t at;  // where in scratch memory it is packed
};

// Units [begin, end), and products for them: forward one for each gate, backward one.
struct Piece {
  int64_t begin, end;
  std::vector<Packed> products;
};

// What both directions have in common. Parameters: w_ih, w_hh, b_ih, b_hh of a layer's direction.
class Layers : public Kernel {
 public:
  int reorders() const override {
    size_t count = 0;
    for (const Piece& piece : pieces_) count += piece.products.size();
    return static_cast<int>(count) * static_cast<int>(s_.layers * s_.d);
  }
  size_t scratch_bytes(const View* operands) const override {
    static_cast<void>(operands);
    return layout_.size() + products_ * (1 + pieces_.size());
  }

 protected:
  explicit Layers(const Lstm& request) : s_(request), workspace_(s_) {
    const double step_ns = 2.0 * static_cast<double>(s_.n * kGates * s_.h * s_.h) / kOperations *
                           static_cast<double>(s_.item) / sizeof(float);
    const int64_t count = std::clamp<int64_t>(static_cast<int64_t>(step_ns / kPiece_ns), 1, team_size());
    const int64_t grain = ((s_.h + count - 1) / count + kLine - 1) / kLine * kLine;
    for (int64_t begin = 0; begin < s_.h; begin += grain)
      pieces_.push_back({begin, std::min(begin + grain, s_.h), {}});
  }

  const KernelRef& reserve_scratch(const KernelRef& kernel) {
    products_ = std::max(products_, kernel->scratch_bytes(nullptr));
    return kernel;
  }
  void add(Piece& piece, const Geometry& a, const Geometry& b, const Geometry& c) {
    piece.products.emplace_back(a, b, c, layout_);
    reserve_scratch(piece.products.back().product);
    reserve_scratch(piece.products.back().pack);
  }
  // Scratch memory of the products: what runs by itself, and each piece.
  char* alone(const Call& call) const { return call.scratch + layout_.size(); }
  char* of_piece(const Call& call, size_t piece) const { return alone(call) + products_ * (1 + piece); }

  // Step s of a direction: which time it is.
  int64_t time(int64_t direction, int64_t s) const { return direction == 0 ? s : s_.t - 1 - s; }

  // One direction of a layer's states in an operand that has those of all, of the layer's type.
  char* state(const Call& call, int operand, int64_t k) const {
    return call.operands[operand].data + s_.bytes(k * s_.n * s_.h);
  }
  void to_float(const char* from, float* to) const {
    row_functions(DType::float32, s_.dtype)
        .contiguous(reinterpret_cast<char*>(to), 1, from, 1, static_cast<int64_t>(s_.state()));
  }
  void from_float(const float* from, char* to) const {
    row_functions(s_.dtype, DType::float32)
        .contiguous(to, 1, reinterpret_cast<const char*>(from), 1, static_cast<int64_t>(s_.state()));
  }

  static float* floats(char* base, size_t at) { return reinterpret_cast<float*>(base + at); }

  const Sizes s_;
  const Workspace workspace_;
  ScratchLayout layout_;
  std::vector<Piece> pieces_;
  size_t products_ = 0;  // bytes of scratch memory that a product needs
};

class Forward final : public Layers {
 public:
  explicit Forward(const Lstm& request) : Layers(request), training_(request.training) {
    const int64_t rows = s_.t * s_.n, four = kGates * s_.h;
    for (int64_t l = 0; l < std::min<int64_t>(s_.layers, 2); ++l)
      inputs_.push_back(reserve_scratch(make_matmul(
          {matrix(s_.dtype, rows, s_.inputs(l), s_.inputs(l)),
           matrix(s_.dtype, s_.inputs(l), four, 1, s_.inputs(l)), matrix(DType::float32, rows, four, four),
           Geometry{DType::float32, {four}, {1}, false, nullptr}})));
    for (Piece& piece : pieces_)
      for (int64_t gate = 0; gate < kGates; ++gate)
        add(piece, matrix(s_.dtype, s_.n, s_.h, s_.d * s_.h),
            matrix(s_.dtype, s_.h, piece.end - piece.begin, 1, s_.h),
            matrix(DType::float32, s_.n, piece.end - piece.begin, four));
    recurrent_ = layout_.take(s_.floats(s_.n * four));
    bias_ = layout_.take(s_.floats(four));
    begin_ = layout_.take(s_.bytes(s_.n * s_.d * s_.h));
    cell_ = layout_.take(s_.floats(s_.n * s_.h));
    if (training_) return;
    gates_ = layout_.take(s_.floats(rows * four));
    for (int64_t l = 0; l + 1 < s_.layers && l < 2; ++l)
      outputs_.push_back(layout_.take(s_.bytes(rows * s_.d * s_.h)));
  }

  void run(const Call& call) const override {
    const char* x = call.operands[0].data;
    for (int64_t l = 0; l < s_.layers; ++l) {
      char* const y = l + 1 == s_.layers ? call.operands[last_parameter() + 1].data : output(call, l);
      for (int64_t k = l * s_.d; k < (l + 1) * s_.d; ++k) run_direction(call, k, x, y);
      x = y;
    }
  }

 private:
  int last_parameter() const { return static_cast<int>(2 + s_.layers * s_.d * 4); }
  char* workspace(const Call& call) const { return call.operands[last_parameter() + 4].data; }
  char* output(const Call& call, int64_t l) const {
    if (training_) return workspace(call) + workspace_.outputs[static_cast<size_t>(l)];
    return call.scratch + outputs_[static_cast<size_t>(l % 2)];
  }

  void run_direction(const Call& call, int64_t k, const char* x, char* y) const {
    const View* const parameters = call.operands + 3 + k * 4;
    const int64_t direction = k % s_.d, four = kGates * s_.h, row = s_.d * s_.h;
    const auto number = static_cast<size_t>(k);
    float* const gates =
        training_ ? floats(workspace(call), workspace_.gates[number]) : floats(call.scratch, gates_);
    float* const cells = training_ ? floats(workspace(call), workspace_.cells[number]) : nullptr;
    float* const cell = floats(call.scratch, cell_);
    add_biases(parameters, floats(call.scratch, bias_));
    onednn::run(*inputs_[k < s_.d ? 0 : 1], {x, parameters[0].data, call.scratch + bias_, gates},
                alone(call));
    for (const Piece& piece : pieces_)
      for (int64_t gate = 0; gate < kGates; ++gate) {
        const Packed& packed = piece.products[static_cast<size_t>(gate)];
        const char* const rows = parameters[1].data + s_.bytes((gate * s_.h + piece.begin) * s_.h);
        onednn::run(*packed.pack, {rows, call.scratch + packed.at}, alone(call));
      }
    char* const begin = call.scratch + begin_;
    const char* const h0 = state(call, 1, k);
    for (int64_t r = 0; r < s_.n; ++r)
      std::memcpy(begin + s_.bytes(r * row), h0 + s_.bytes(r * s_.h), s_.bytes(s_.h));
    to_float(state(call, 2, k), cell);

    char* const direction_y = y + s_.bytes(direction * s_.h);
    const char* h = begin;
    const float* before = cell;
    for (int64_t s = 0; s < s_.t; ++s) {
      const int64_t t = time(direction, s);
      LstmForward step{};
      step.rows = s_.n, step.units = s_.h, step.dtype = s_.dtype;
      step.gates = gates + t * s_.n * four;
      step.recurrent = floats(call.scratch, recurrent_);
      step.before = before;
      step.after = cells ? cells + t * s_.n * s_.h : cell;
      step.h = direction_y + s_.bytes(t * s_.n * row), step.h_row = row;
      run_step(call, step, h);
      h = step.h;
      before = step.after;
    }
    char* const hn = state(call, last_parameter() + 2, k);
    for (int64_t r = 0; r < s_.n; ++r)
      std::memcpy(hn + s_.bytes(r * s_.h), h + s_.bytes(r * row), s_.bytes(s_.h));
    from_float(before, state(call, last_parameter() + 3, k));
  }

  void run_step(const Call& call, const LstmForward& step, const char* h) const {
    parallel_for(static_cast<int64_t>(pieces_.size()), 1, [&](int64_t first, int64_t last) {
      for (; first < last; ++first) {
        const auto number = static_cast<size_t>(first);
        const Piece& piece = pieces_[number];
        for (int64_t gate = 0; gate < kGates; ++gate) {
          const Packed& packed = piece.products[static_cast<size_t>(gate)];
          onednn::run(
              *packed.product,
              {h, call.scratch + packed.at, floats(call.scratch, recurrent_) + gate * s_.h + piece.begin},
              of_piece(call, number));
        }
        lstm_forward(step, piece.begin, piece.end);
      }
    });
  }

  void add_biases(const View* parameters, float* to) const {
    constexpr int64_t kCount = 256;
    const int64_t four = kGates * s_.h;
    const RowFunction load = row_functions(DType::float32, s_.dtype).contiguous;
    load(reinterpret_cast<char*>(to), 1, parameters[2].data, 1, four);
    float more[kCount];
    for (int64_t begin = 0; begin < four; begin += kCount) {
      const int64_t count = std::min(kCount, four - begin);
      load(reinterpret_cast<char*>(more), 1, parameters[3].data + s_.bytes(begin), 1, count);
      for (int64_t j = 0; j < count; ++j) to[begin + j] += more[j];
    }
  }

  const bool training_;
  std::vector<KernelRef> inputs_;  // of the first layer, of the others
  size_t recurrent_ = 0, bias_ = 0, begin_ = 0, cell_ = 0, gates_ = 0;
  std::vector<size_t> outputs_;
};

class Backward final : public Layers {
 public:
  explicit Backward(const Lstm& request) : Layers(request) {
    const int64_t rows = s_.t * s_.n, four = kGates * s_.h, wide = s_.d * s_.h, rest = rows - s_.n;
    const auto dgates = [&](int64_t count) { return matrix(s_.dtype, four, count, 1, four); };
    for (int64_t l = 0; l < std::min<int64_t>(s_.layers, 2); ++l) {
      const int64_t c = s_.inputs(l);
      Matmul inputs{matrix(s_.dtype, rows, four, four), matrix(s_.dtype, four, c, c),
                    matrix(s_.dtype, rows, c, c)};
      Products products;
      products.inputs = reserve_scratch(make_matmul(inputs));
      inputs.accumulate = true;
      if (s_.d > 1) products.more_inputs = reserve_scratch(make_matmul(inputs));
      products.weights = reserve_scratch(
          make_matmul({dgates(rows), matrix(s_.dtype, rows, c, c), matrix(s_.dtype, four, c, c)}));
      by_layer_.push_back(std::move(products));
    }
    const Geometry recurrent = matrix(s_.dtype, four, s_.h, s_.h);
    from_begin_ = reserve_scratch(make_matmul({dgates(s_.n), matrix(s_.dtype, s_.n, s_.h, s_.h), recurrent}));
    if (rest > 0) {
      Matmul more{dgates(rest), matrix(s_.dtype, rest, s_.h, wide), recurrent};
      more.accumulate = true;
      from_steps_ = reserve_scratch(make_matmul(more));
    }
    for (Piece& piece : pieces_)
      add(piece, matrix(s_.dtype, s_.n, four, four), matrix(s_.dtype, four, piece.end - piece.begin, s_.h),
          matrix(DType::float32, s_.n, piece.end - piece.begin, s_.h));
    begin_ = layout_.take(s_.floats(s_.n * s_.h));
    dc_ = layout_.take(s_.floats(s_.n * s_.h));
    dh_ = layout_.take(s_.floats(s_.n * s_.h));
    dgates_ = layout_.take(s_.bytes(rows * four));
    for (int64_t l = 0; l + 1 < s_.layers && l < 2; ++l)
      below_.push_back(layout_.take(s_.bytes(rows * wide)));
  }

  void run(const Call& call) const override {
    const int end = parameters();
    const char* dy = call.operands[end + 4].data;
    for (int64_t l = s_.layers; l-- > 0;) {
      char* const dx =
          l == 0 ? call.operands[end + 7].data : call.scratch + below_[static_cast<size_t>((l - 1) % 2)];
      for (int64_t k = l * s_.d; k < (l + 1) * s_.d; ++k) {
        run_steps(call, k, dy);
        run_products(call, l, k, dx);
      }
      dy = dx;
    }
  }

 private:
  struct Products {
    KernelRef inputs, more_inputs, weights;
  };

  // Operands: x, h0, c0, parameters; from here y, hn, cn, workspace, dy, dhn, dcn; dx, dh0, dc0, gradients.
  int parameters() const { return static_cast<int>(3 + s_.layers * s_.d * 4); }
  char* workspace(const Call& call) const { return call.operands[parameters() + 3].data; }
  const char* output(const Call& call, int64_t l) const {
    if (l + 1 == s_.layers) return call.operands[parameters()].data;
    return workspace(call) + workspace_.outputs[static_cast<size_t>(l)];
  }

  // From the last step to the first: the gradients of what the products gave, and of h0 and c0.
  void run_steps(const Call& call, int64_t k, const char* dy) const {
    const int64_t direction = k % s_.d, four = kGates * s_.h, row = s_.d * s_.h;
    const auto number = static_cast<size_t>(k);
    const int end = parameters();
    const char* const weights = call.operands[3 + k * 4 + 1].data;
    for (const Piece& piece : pieces_)
      onednn::run(*piece.products[0].pack,
                  {weights + s_.bytes(piece.begin), call.scratch + piece.products[0].at}, alone(call));
    float *const begin = floats(call.scratch, begin_), *const dh = floats(call.scratch, dh_),
                 *const dc = floats(call.scratch, dc_);
    to_float(state(call, 2, k), begin);
    to_float(state(call, end + 5, k), dh);
    to_float(state(call, end + 6, k), dc);
    float* const gates = floats(workspace(call), workspace_.gates[number]);
    float* const cells = floats(workspace(call), workspace_.cells[number]);
    char* const dgates = call.scratch + dgates_;
    const char* later = nullptr;
    for (int64_t s = s_.t; s-- > 0;) {
      const int64_t t = time(direction, s);
      LstmBackward step{};
      step.rows = s_.n, step.units = s_.h, step.dtype = s_.dtype;
      step.gates = gates + t * s_.n * four;
      step.before = s == 0 ? begin : cells + time(direction, s - 1) * s_.n * s_.h;
      step.after = cells + t * s_.n * s_.h;
      step.dh = dh, step.dc = dc;
      step.dy = dy + s_.bytes(t * s_.n * row + direction * s_.h), step.dy_row = row;
      step.dgates = dgates + s_.bytes(t * s_.n * four);
      run_step(call, later, &step);
      later = step.dgates;
    }
    run_step(call, later, nullptr);
    from_float(dh, state(call, end + 8, k));
    from_float(dc, state(call, end + 9, k));
  }

  // What comes from the later step's gates, if there is one; then this step, if there is one.
  void run_step(const Call& call, const char* later, const LstmBackward* step) const {
    parallel_for(static_cast<int64_t>(pieces_.size()), 1, [&](int64_t first, int64_t last) {
      for (; first < last; ++first) {
        const auto number = static_cast<size_t>(first);
        const Piece& piece = pieces_[number];
        const Packed& packed = piece.products[0];
        if (later)
          onednn::run(*packed.product,
                      {later, call.scratch + packed.at, floats(call.scratch, dh_) + piece.begin},
                      of_piece(call, number));
        if (step) lstm_backward(*step, piece.begin, piece.end);
      }
    });
  }

  // Gradients of the layer's inputs and of a direction's parameters, from those of all its steps.
  void run_products(const Call& call, int64_t l, int64_t k, char* dx) const {
    const Products& products = by_layer_[l == 0 ? 0 : 1];
    const int64_t direction = k % s_.d, step = s_.n * kGates * s_.h, h_step = s_.n * s_.d * s_.h;
    const View* const weights = call.operands + 3 + k * 4;
    const View* const dweights = call.operands + parameters() + 10 + k * 4;
    const char* const dgates = call.scratch + dgates_;
    char* const space = alone(call);
    onednn::run(direction == 0 ? *products.inputs : *products.more_inputs, {dgates, weights[0].data, dx},
                space);
    const char* const x = l == 0 ? call.operands[0].data : output(call, l - 1);
    onednn::run(*products.weights, {dgates, x, dweights[0].data}, space);
    const char* const y = output(call, l) + s_.bytes(direction * s_.h);
    const int64_t first = time(direction, 0);
    onednn::run(*from_begin_, {dgates + s_.bytes(first * step), state(call, 1, k), dweights[1].data}, space);
    if (s_.t > 1)
      onednn::run(*from_steps_,
                  {dgates + (direction == 0 ? s_.bytes(step) : 0),
                   y + (direction == 0 ? 0 : s_.bytes(h_step)), dweights[1].data},
                  space);
    sum_dgates(dgates, dweights[2].data);
    std::memcpy(dweights[3].data, dweights[2].data, s_.bytes(kGates * s_.h));
  }

  void sum_dgates(const char* dgates, char* to) const {
    constexpr int64_t kColumns = 128;
    const int64_t four = kGates * s_.h;
    const RowFunction load = row_functions(DType::float32, s_.dtype).contiguous;
    const RowFunction store = row_functions(s_.dtype, DType::float64).contiguous;
    parallel_for(four, kColumns, [&](int64_t begin, int64_t end) {
      for (; begin < end; begin += kColumns) {
        const int64_t count = std::min(kColumns, end - begin);
        double sums[kColumns] = {};
        float row[kColumns];
        for (int64_t r = 0; r < s_.t * s_.n; ++r) {
          load(reinterpret_cast<char*>(row), 1, dgates + s_.bytes(r * four + begin), 1, count);
          for (int64_t j = 0; j < count; ++j) sums[j] += static_cast<double>(row[j]);
        }
        store(to + s_.bytes(begin), 1, reinterpret_cast<const char*>(sums), 1, count);
      }
    });
  }

  std::vector<Products> by_layer_;  // of the first layer, of the others
  KernelRef from_begin_, from_steps_;
  size_t begin_ = 0, dc_ = 0, dh_ = 0, dgates_ = 0;
  std::vector<size_t> below_;
};

}  // namespace

Ref<Kernel> make_lstm(const Lstm& r) {
  check(r);
  const Ref<Kernel> kernel(r.backward ? static_cast<Kernel*>(make_ref<Backward>(r).get())
                                      : static_cast<Kernel*>(make_ref<Forward>(r).get()));
  kernel->recipe =
      (Key("onednn_lstm") << r.x << r.y << r.layers << r.bidirectional << r.training << r.backward).recipe();
  return kernel;
}

int64_t lstm_workspace_bytes(const Lstm& r) {
  check(r);
  return static_cast<int64_t>(Workspace(Sizes(r)).size);
}

}  // namespace weft::onednn
