#include "onednn/recipe.h"

#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "engine/fork.h"
#include "engine/team.h"
#include "storage/isa.h"

namespace weft::onednn {

namespace {

// libgomp's team belongs to the thread that opened the first region, and does not live through a fork: in the
// child a region on that same thread would wait for ever. Such a thread runs kernels on another one.
thread_local bool has_team = false;
thread_local bool lost_team = false;

[[maybe_unused]] const bool kAtLoad = [] {
  after_fork([](bool in_child) { lost_team = lost_team || (in_child && has_team); });
  return true;
}();

const dnnl::stream& stream() {
  thread_local const dnnl::stream mine(engine());
  return mine;
}

void check(dnnl_status_t status) {
  if (status != dnnl_success) throw std::runtime_error("oneDNN failed, status " + std::to_string(status));
}

// oneDNN uses no instructions beyond the level used, unless the user has chosen for oneDNN alone.
void cap_isa() {
  if (!isa_is_capped() || std::getenv("ONEDNN_MAX_CPU_ISA") || std::getenv("DNNL_MAX_CPU_ISA")) return;
  const dnnl::cpu_isa most = isa() >= Isa::avx512 ? dnnl::cpu_isa::avx512_core
                             : isa() >= Isa::avx2 ? dnnl::cpu_isa::avx2
                                                  : dnnl::cpu_isa::sse41;
  if (dnnl::set_max_cpu_isa(most) != dnnl::status::success && dnnl::get_effective_cpu_isa() != most)
    throw std::runtime_error(std::string("WEFT_ISA=") + name_of(isa()) +
                             ": oneDNN was used before, so its instructions cannot be chosen; set "
                             "ONEDNN_MAX_CPU_ISA, too");
}

}  // namespace

const dnnl::engine& engine() {
  static std::atomic<const dnnl::engine*> engine{nullptr};
  if (const auto* made = engine.load(std::memory_order_acquire)) return *made;
  const std::lock_guard guard(lasting_fork_mutex<dnnl::engine>());
  if (!engine) {
    cap_isa();
    // Ours is the cache of kernels; this is for what several of them have in common, such as a weight's copy.
    dnnl::set_primitive_cache_capacity(64);
    engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  }
  return *engine.load(std::memory_order_relaxed);
}

OpenMpScope::OpenMpScope(int threads) {
  engine();  // oneDNN calls OpenMP by itself when it starts
  before_ = omp_get_max_threads();
  if (threads < before_) omp_set_num_threads(threads);
}

OpenMpScope::~OpenMpScope() {
  if (omp_get_max_threads() != before_) omp_set_num_threads(before_);
}

// -- layouts --

size_t bytes_of(const Layout& layout) { return layout.desc.get_size(); }
uint64_t id_of(const Layout& layout) { return layout.id; }
bool is_plain(const Layout& layout) {
  return layout.desc.get_format_kind() == memory::format_kind::blocked && !layout.desc.get_inner_nblks();
}

std::optional<std::vector<int64_t>> strides_of(const Layout& layout) {
  return is_plain(layout) ? std::optional(layout.desc.get_strides()) : std::nullopt;
}

LayoutRef layout_of(const memory::desc& desc) {
  const std::lock_guard guard(lasting_fork_mutex<Layout>());
  static auto* layouts = new std::vector<std::weak_ptr<const Layout>>;
  static uint64_t last = 0;
  std::erase_if(*layouts, [](const auto& layout) { return layout.expired(); });
  for (const auto& candidate : *layouts) {
    if (LayoutRef layout = candidate.lock(); layout && layout->desc == desc) return layout;
  }
  auto layout = std::make_shared<const Layout>(desc, ++last);
  layouts->push_back(layout);
  return layout;
}

LayoutOrigin origin_of(const Layout& layout) {
  const std::lock_guard guard(lasting_fork_mutex<Layout>());
  return layout.origin;
}

void set_origin(const Layout& layout, const std::string& recipe, int operand) {
  const std::lock_guard guard(lasting_fork_mutex<Layout>());
  if (layout.origin.recipe.empty()) layout.origin = {recipe, operand};
}

// -- running --

struct Frame {
  std::vector<dnnl::memory> memories;                   // of all steps, in order
  std::vector<std::vector<dnnl_exec_arg_t>> arguments;  // by step
};

Steps::~Steps() { delete spare_.load(std::memory_order_acquire); }

std::unique_ptr<Frame> Steps::make_frame() const {
  auto frame = std::make_unique<Frame>();
  for (const Step& step : steps) {
    auto& arguments = frame->arguments.emplace_back();
    for (const Argument& argument : step.arguments) {
      frame->memories.emplace_back(argument.desc, engine(), nullptr);
      arguments.push_back({argument.name, frame->memories.back().get()});
    }
  }
  return frame;
}

namespace {

char* address_of(const Location& location, const Call& call) {
  const bool is_scratch = location.base == Location::Base::scratch;
  return (is_scratch ? call.scratch : call.operands[location.operand].data) + location.offset;
}

View view_of(const Geometry& x, char* data) {
  return {data, x.dtype, static_cast<int>(x.shape.size()), x.shape.data(), x.strides.data()};
}

}  // namespace

void Steps::copy(const Call& call, const Step& step) {
  char* data[2];
  for (size_t k = 0; k < 2; ++k) {
    data[k] = address_of(step.arguments[k].location, call);
  }
  weft::copy(view_of(step.copied[1], data[1]), view_of(step.copied[0], data[0]));
  bytes_converted.fetch_add(step.arguments[0].desc.get_size() + step.arguments[1].desc.get_size(),
                            std::memory_order_relaxed);
}

// The exchange hands a frame to one thread alone (acquire: with what its last user wrote), and back.
void Steps::run(const Call& call) const {
  std::unique_ptr<Frame> frame(spare_.exchange(nullptr, std::memory_order_acq_rel));
  if (!frame) frame = make_frame();
  size_t next = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    if (step.code) {
      Scratch<char*, 16> data(step.arguments.size());
      for (size_t k = 0; k < step.arguments.size(); ++k)
        data[k] = address_of(step.arguments[k].location, call);
      next += step.arguments.size();
      step.code(data.get());
      continue;
    }
    for (const Argument& argument : step.arguments) {
      char* const data = address_of(argument.location, call);
      check(dnnl_memory_set_data_handle(frame->memories[next++].get(), data));
    }
    const auto& arguments = frame->arguments[i];
    if (step.primitive) {
      check(dnnl_primitive_execute(step.primitive.get(), stream().get(), static_cast<int>(arguments.size()),
                                   arguments.data()));
    } else {
      copy(call, step);
    }
  }
  check(dnnl_stream_wait(stream().get()));
  if (reorders) reorders_run.fetch_add(static_cast<uint64_t>(reorders), std::memory_order_relaxed);
  delete spare_.exchange(frame.release(), std::memory_order_acq_rel);
}

std::unique_ptr<Steps> Steps::shifted(const std::vector<size_t>& operands, size_t scratch) const {
  auto copy = std::make_unique<Steps>();
  copy->steps = steps;
  copy->layouts = layouts;
  copy->requested = requested;
  copy->scratch_bytes = scratch_bytes;
  copy->reorders = reorders;
  copy->precision = precision;
  copy->implementation = implementation;
  for (Step& step : copy->steps)
    for (Argument& argument : step.arguments) {
      Location& location = argument.location;
      location.offset += location.base == Location::Base::scratch
                             ? scratch
                             : operands[static_cast<size_t>(location.operand)];
    }
  return copy;
}

OnednnKernel::OnednnKernel(std::unique_ptr<Steps> steps) : opens_region_(true) {
  scratch_bytes_ = steps->scratch_bytes;
  pieces_.push_back(std::move(steps));
}
OnednnKernel::OnednnKernel(std::vector<std::unique_ptr<Steps>> pieces) : pieces_(std::move(pieces)) {
  for (const auto& piece : pieces_) scratch_bytes_ += piece->scratch_bytes;
}
OnednnKernel::~OnednnKernel() = default;

void OnednnKernel::run(const Call& call) const {
  if (opens_region_) {
    run_region(call);
    return;
  }
  parallel_for(static_cast<int64_t>(pieces_.size()), 1, [&](int64_t begin, int64_t end) {
    const OpenMpScope alone(1);
    for (; begin < end; ++begin) pieces_[static_cast<size_t>(begin)]->run(call);
  });
}

void OnednnKernel::run_region(const Call& call) const {
  if (lost_team) {
    std::exception_ptr error;
    std::thread([&] {
      try {
        run_region(call);
      } catch (...) {
        error = std::current_exception();
      }
    }).join();
    if (error) std::rethrow_exception(error);
    return;
  }
  const OpenMpScope entered;
  has_team = true;
  pieces_.front()->run(call);
}

size_t OnednnKernel::scratch_bytes(const View* operands) const {
  static_cast<void>(operands);
  return scratch_bytes_;
}
const std::string& OnednnKernel::implementation() const noexcept { return pieces_.front()->implementation; }
bool OnednnKernel::is_reference() const {
  return std::ranges::any_of(pieces_,
                             [](const auto& piece) { return is_reference_code(piece->implementation); });
}
int OnednnKernel::operands() const noexcept { return static_cast<int>(pieces_.front()->layouts.size()); }
bool OnednnKernel::is_wide() const noexcept { return pieces_.front()->precision == Precision::wide; }
int OnednnKernel::reorders() const {
  int count = 0;
  for (const auto& piece : pieces_) count += piece->reorders;
  return count;
}
LayoutRef OnednnKernel::layout(int operand) const {
  if (operand < 0 || operand >= operands())
    throw IndexError("layout: operand " + std::to_string(operand) + " of a kernel of " +
                     std::to_string(operands()));
  return pieces_.front()->layouts[static_cast<size_t>(operand)];
}

// -- making --

Location Recipe::scratch(size_t bytes) {
  const Location location{Location::Base::scratch, 0, staged_bytes_};
  staged_bytes_ += in_lines(bytes);
  return location;
}

void Recipe::add_step(dnnl::primitive primitive, const memory::desc& scratchpad,
                      std::vector<Argument> arguments) {
  if (scratchpad && scratchpad.get_size() > 0) {
    scratchpad_bytes_ = std::max(scratchpad_bytes_, scratchpad.get_size());
    arguments.push_back({DNNL_ARG_SCRATCHPAD, scratchpad, {Location::Base::scratch, 0, 0}});
  }
  steps_->steps.push_back({std::move(primitive), std::move(arguments), {}, nullptr});
}

namespace {

bool is_plain(const memory::desc& x) {
  return x.get_format_kind() == memory::format_kind::blocked && x.get_inner_nblks() == 0 &&
         x.get_padded_dims() == x.get_dims();
}

Geometry geometry_of(const memory::desc& x) {
  return {dtype_of(x.get_data_type()), x.get_dims(), x.get_strides()};
}

// A dense array of float32 of the same sizes.
memory::desc float_desc(const memory::desc& x) { return row_major_desc(DType::float32, x.get_dims()); }

}  // namespace

void Recipe::copy(const memory::desc& from, Location source, const memory::desc& to, Location target) {
  if (!is_plain(from) || !is_plain(to))
    throw Unsupported("a half type in a layout of oneDNN's own, and no code for it");
  add_step({}, {}, {{DNNL_ARG_FROM, from, source}, {DNNL_ARG_TO, to, target}});
  steps_->steps.back().copied = {geometry_of(from), geometry_of(to)};
}

// What oneDNN has only slow code for: our own loops convert, and oneDNN changes layouts of float32.
void Recipe::convert(const memory::desc& from, Location source, const memory::desc& to, Location target,
                     bool add) {
  if (!add && is_plain(from) && is_plain(to)) return copy(from, source, to, target);
  if (!has_code_for(from.get_data_type())) {
    const memory::desc wide = float_desc(from);
    const Location staged = scratch(wide);
    copy(from, source, wide, staged);
    return reorder(wide, staged, to, target, add);
  }
  const memory::desc wide = float_desc(to);
  const Location staged = scratch(wide);
  if (add) copy(to, target, wide, staged);
  reorder(from, source, wide, staged, add);
  copy(wide, staged, to, target);
}

void Recipe::reorder(const memory::desc& from, Location source, const memory::desc& to, Location target,
                     bool add) {
  if (!has_code_for(from.get_data_type()) || !has_code_for(to.get_data_type()))
    return convert(from, source, to, target, add);
  dnnl::primitive_attr attributes = plain_attributes();
  if (add) {
    dnnl::post_ops ops;
    ops.append_sum(1.0F);
    attributes.set_post_ops(ops);
  }
  const dnnl::reorder::primitive_desc pd(engine(), from, engine(), to, attributes);
  ++steps_->reorders;
  add_step(dnnl::reorder(pd), pd.scratchpad_desc(),
           {{DNNL_ARG_FROM, from, source}, {DNNL_ARG_TO, to, target}});
}

Location Recipe::input(int index, const memory::desc& stored, const memory::desc& required) {
  if (stored == required) return operand(index);
  const Location staged = scratch(required);
  reorder(stored, operand(index), required, staged);
  return staged;
}

Location Recipe::output(int index, const memory::desc& stored, const memory::desc& required, bool accumulate,
                        bool load) {
  if (stored == required && !accumulate) return operand(index);
  const Location staged = scratch(required);
  if (load) reorder(stored, operand(index), required, staged);
  final_reorders_.push_back({required, staged, stored, operand(index), accumulate});
  return staged;
}

void Recipe::set_layout(int index, const memory::desc& desc) {
  auto& layouts = steps_->layouts;
  if (layouts.size() <= static_cast<size_t>(index)) layouts.resize(static_cast<size_t>(index) + 1);
  layouts[static_cast<size_t>(index)] = layout_of(desc);
}

std::unique_ptr<Steps> Recipe::finish_steps(std::string implementation) {
  for (const FinalReorder& d : final_reorders_) reorder(d.from, d.source, d.to, d.target, d.add);
  for (Step& step : steps_->steps) {
    for (Argument& argument : step.arguments) {
      if (argument.name == DNNL_ARG_SCRATCHPAD) argument.location.offset = staged_bytes_;
    }
  }
  steps_->scratch_bytes = staged_bytes_ + scratchpad_bytes_;
  steps_->layouts.resize(static_cast<size_t>(operands_));
  steps_->implementation = std::move(implementation);
  return std::move(steps_);
}

bool is_reference_code(const std::string& implementation) {
  return implementation.find("ref") != std::string::npos || implementation.starts_with("simple:any") ||
         implementation.starts_with("simple_nchw");
}

}  // namespace weft::onednn
