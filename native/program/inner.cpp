#include "program/inner.h"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "engine/engine.h"
#include "engine/queue.h"
#include "program/step_log.h"
#include "tensor/staging.h"

namespace weft {
namespace {

bool same_geometry(const View& a, const View& b) noexcept {
  bool same = a.dtype == b.dtype && a.ndim == b.ndim;
  for (int d = 0; same && d < a.ndim; ++d)
    same = a.shape[d] == b.shape[d] && (a.shape[d] == 1 || a.strides[d] == b.strides[d]);
  return same;
}

}  // namespace

void copy_here(const View& to, const View& from, const RunContext& context) {
  copy_elements(to, context.device, from, context.device);
}

// What the parts of a program hand to each other.
struct Inner::Frame::Wires {
  struct Geometry {
    std::vector<int64_t> shape, strides;
  };
  struct OfDevice {
    size_t bytes = 0, scratch = 0;  // of wires; of the part that needs most
    std::unique_ptr<TempSpace> space;
  };
  // Where a stream was when it used a wire: behind so many pieces of work of all streams.
  struct Use {
    int stream;
    uint64_t place;
  };
  // The last work of a stream, and how far it has waited for others.
  struct Stream {
    uint64_t place = 0;
    std::map<int, uint64_t> passed;
  };
  // Has the stream come after a use by another one.
  void follow(int stream, Use use) {
    if (use.stream == 0 || use.stream == stream || streams[stream].passed[use.stream] >= use.place) return;
    order_after(stream, backend_of_stream(use.stream).record(use.stream));
    streams[stream].passed[use.stream] = streams[use.stream].place;
  }
  // The number of the next piece of work, which is this stream's.
  Use next(int stream) { return {stream, streams[stream].place = ++place}; }

  std::vector<Geometry> geometries;  // of what parts make, in their order
  std::vector<View> views;           // by wire
  std::map<int, OfDevice> devices;   // by device_number
  std::vector<Frame> frames;         // of parts
  std::vector<Use> made;             // of each wire
  std::vector<std::vector<Use>> read;
  std::map<int, Stream> streams;  // by number
  uint64_t place = 0;
};

Inner::Frame::Frame() = default;
Inner::Frame::~Frame() = default;

bool Inner::wide() const noexcept {
  return parts_.empty() ? program_->wide
                        : std::ranges::any_of(parts_, [](const auto& part) { return part->wide(); });
}

Inner::Inner(Ref<const Program> program)
    : program_(std::move(program)), inputs_(static_cast<int>(program_->uses.size())) {
  for (const Program::Part& part : program_->parts) {
    if (!part.numbers.empty())
      throw std::logic_error(program_->name + ": numbers of a call cannot reach a program inside of another");
    parts_.push_back(std::make_unique<const Inner>(part.program));
  }
  if (parts_.empty()) read_program();
}
Inner::~Inner() = default;

void Inner::read_program() {
  const Program& p = *program_;
  if (!p.loads.empty() || !p.randoms.empty() ||
      std::ranges::any_of(p.outputs, [](const Program::Output& o) { return o.writes >= 0; }))
    throw std::logic_error(p.name + ": cannot run inside of another program");
  std::vector<int64_t> registers(static_cast<size_t>(p.registers) + 1);
  p.compute_registers({}, registers.data());
  const auto get = [&](int reg) { return registers[static_cast<size_t>(reg)]; };
  for (const Program::Slot& slot : p.slots) {
    Scalar value{Scalar::Kind::integer, {}};
    if (slot.from == Program::Slot::From::constant)
      value = {.kind = Scalar::Kind::real, .real = slot.value};
    else if (slot.from == Program::Slot::From::reg)
      value.integer = get(slot.index);
    else
      throw std::logic_error(p.name + ": numbers of a call cannot reach a program inside of another one");
    slots_.push_back(0);
    store(reinterpret_cast<char*>(&slots_.back()), slot.dtype, value);
  }
  owned_ = p.arena_bytes < 0 ? 0 : aligned(static_cast<size_t>(get(p.arena_bytes)));
  for (const Program::Value& value : p.values) {
    auto& sizes = sizes_.emplace_back();
    auto& strides = strides_.emplace_back();
    for (const int reg : value.sizes) sizes.push_back(get(reg));
    for (const int reg : value.strides) strides.push_back(get(reg));
    if (strides.size() != sizes.size()) {  // as it likes
      strides.resize(sizes.size());
      row_major(sizes, strides.data());
    }
    if (value.kind == Program::Value::Kind::output) {
      offsets_.push_back(static_cast<int64_t>(owned_));
      owned_ += aligned(
          bytes_of({nullptr, value.dtype, static_cast<int>(sizes.size()), sizes.data(), strides.data()}));
    } else {
      offsets_.push_back(get(value.offset));
    }
  }
  for (const Program::Step& step : p.steps) operands_ = std::max(operands_, step.operands.size());
}

// Gives all values their memory. An output that is memory of its own is written to its destination, if that
// has its geometry; without outputs, nothing but geometry matters.
void Inner::bind_values(Frame& frame, const View* inputs, const View* outputs, char* scratch) const {
  auto& views = frame.views_;
  views.assign(inputs, inputs + inputs_);
  const auto& values = program_->values;
  for (size_t i = 0; i < values.size(); ++i)
    views.push_back({values[i].kind == Program::Value::Kind::view ? nullptr : scratch + offsets_[i],
                     values[i].dtype, static_cast<int>(sizes_[i].size()), sizes_[i].data(),
                     strides_[i].data()});
  for (size_t j = 0; outputs && j < program_->outputs.size(); ++j) {
    const int number = program_->outputs[j].value;
    View& view = views[static_cast<size_t>(number)];
    if (is_memory(number) && same_geometry(view, outputs[j])) view.data = outputs[j].data;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].kind != Program::Value::Kind::view) continue;
    const View& base = views[static_cast<size_t>(values[i].base)];
    views[static_cast<size_t>(inputs_) + i].data =
        base.data + offsets_[i] * static_cast<int64_t>(size_of(base.dtype));
  }
}

const View* Inner::gather(Frame& frame, const Program::Step& step) const {
  frame.operands_.resize(operands_);
  for (size_t k = 0; k < step.operands.size(); ++k)
    frame.operands_[k] = frame.views_[static_cast<size_t>(step.operands[k])];
  return frame.operands_.data();
}

size_t Inner::scratch_bytes(const View* inputs) const {
  if (!parts_.empty()) return 0;  // each device has its own
  Frame frame;
  bind_values(frame, inputs, nullptr, nullptr);
  size_t most = 0;
  for (const Program::Step& step : program_->steps)
    most = std::max(most, step.kernel->scratch_bytes(gather(frame, step)));
  return owned_ + aligned(most);
}

void Inner::run(Frame& frame, const View* inputs, const View* outputs, char* scratch,
                const RunContext& context) const {
  if (parts_.empty()) return run_steps(frame, inputs, outputs, scratch, context);
  run_parts(frame, inputs, outputs, context);
}

void Inner::run_steps(Frame& frame, const View* inputs, const View* outputs, char* scratch,
                      const RunContext& context) const {
  const Program& p = *program_;
  if (p.device.kind != context.device.kind)
    throw DeviceError("a graph inside of another one was planned for " + to_string(p.device) +
                      " and runs on " + to_string(context.device));
  bind_values(frame, inputs, outputs, scratch);
  try {
    for (size_t t = 0; t < p.steps.size(); ++t) {
      const Program::Step& step = p.steps[t];
      const View* operands = gather(frame, step);
      StepLog::run(
          p, t, [operands](size_t k) { return operands[k]; },
          [&] { step.kernel->run({operands, slots_.data() + step.first_slot, scratch + owned_, context}); });
    }
  } catch (...) {
    if (auto* const hook = abandoned.load(std::memory_order_acquire)) hook();
    throw;
  }
  for (size_t j = 0; j < p.outputs.size(); ++j) {
    const View& result = frame.views_[static_cast<size_t>(p.outputs[j].value)];
    if (result.data != outputs[j].data) copy_here(outputs[j], result, context);
  }
  Program::kernels.fetch_add(p.steps.size(), std::memory_order_relaxed);
}

namespace {

// The thread's work goes on for another device, in the same operation.
class Turn {
 public:
  Turn(const RunContext& context, Device device)
      : queue_(context.engine->queue_of(device, QueueKind::compute)),
        context_(context),
        other_(device == context.device ? nullptr : &queue_) {
    if (device == context.device) return;
    context_.device = device;
    context_.queue = QueueKind::compute;
    context_.stream = queue_.stream;
    context_.stream_number = queue_.stream_number;
    context_.late = nullptr;
    context_.findings = nullptr;
    context_.is_gated = false;
  }
  const RunContext& context() const { return context_; }

 private:
  const Queue& queue_;
  RunContext context_;
  const OtherQueue other_;
};

}  // namespace

// The geometry of wires: what parts make of inputs of this geometry, as they choose.
void Inner::lay_out(Frame& frame, const View* inputs, const RunContext& context) const {
  frame.wires_ = std::make_unique<Frame::Wires>();
  Frame::Wires& wires = *frame.wires_;
  wires.frames = std::vector<Frame>(parts_.size());
  wires.views.assign(inputs, inputs + inputs_);
  std::vector<std::pair<int, size_t>> places;  // of wires behind the inputs: device, offset
  size_t made = 0;
  for (const Program::Part& part : program_->parts) made += part.outputs.size();
  wires.geometries.reserve(made);
  for (size_t k = 0; k < parts_.size(); ++k) {
    const Program::Part& part = program_->parts[k];
    std::vector<View> taken;
    for (const int wire : part.inputs) taken.push_back(wires.views[static_cast<size_t>(wire)]);
    Frame one;
    parts_[k]->bind_values(one, taken.data(), nullptr, nullptr);
    const int number = device_number(part.program->device);
    Frame::Wires::OfDevice& device = wires.devices[number];
    device.scratch = std::max(device.scratch, parts_[k]->scratch_bytes(taken.data()));
    for (size_t j = 0; j < part.outputs.size(); ++j) {
      const View& result = one.views_[static_cast<size_t>(part.program->outputs[j].value)];
      auto& [shape, strides] =
          wires.geometries.emplace_back(std::vector<int64_t>(result.shape, result.shape + result.ndim),
                                        std::vector<int64_t>(result.strides, result.strides + result.ndim));
      const View wire{nullptr, result.dtype, result.ndim, shape.data(), strides.data()};
      if (static_cast<size_t>(part.outputs[j]) != wires.views.size())
        throw std::logic_error(program_->name + ": wires are not in the order of parts");
      wires.views.push_back(wire);
      places.emplace_back(number, device.bytes);
      const auto [begin, end] = addresses_of(wire);
      device.bytes += aligned(end - begin);
    }
  }
  for (const Program::Part& part : program_->parts) {
    Frame::Wires::OfDevice& device = wires.devices[device_number(part.program->device)];
    if (device.space) continue;
    // Its last use is on the stream of the operation around, which comes after the others.
    device.space = std::make_unique<TempSpace>(part.program->device, device.bytes + device.scratch,
                                               context.stream_number);
  }
  for (size_t i = 0; i < places.size(); ++i) {
    const auto& [number, offset] = places[i];
    wires.views[static_cast<size_t>(inputs_) + i].data = wires.devices[number].space->get() + offset;
  }
}

void Inner::run_parts(Frame& frame, const View* inputs, const View* outputs,
                      const RunContext& context) const {
  if (!context.engine) throw std::logic_error(program_->name + ": runs in an operation only");
  if (!frame.wires_) lay_out(frame, inputs, context);
  Frame::Wires& wires = *frame.wires_;
  std::ranges::copy(inputs, inputs + inputs_, wires.views.begin());
  const int here = context.stream_number;
  wires.made.resize(wires.views.size());
  wires.read.resize(wires.views.size());
  const auto before = wires.next(here);  // what the operation did until now
  for (size_t k = 0; k < static_cast<size_t>(inputs_); ++k) wires.made[k] = before;
  try {
    for_parts(wires, context);
  } catch (...) {  // the memory of what has been enqueued is given back
    for (const auto& [stream, state] : std::map(wires.streams)) wires.follow(here, {stream, state.place});
    throw;
  }
  for (size_t j = 0; j < program_->outputs.size(); ++j) {
    const auto wire = static_cast<size_t>(program_->output_wires[j]);
    wires.follow(here, wires.made[wire]);
    copy_here(outputs[j], wires.views[wire], context);
    const auto use = wires.next(here);
    if (program_->output_wires[j] >= inputs_) wires.read[wire].push_back(use);
  }
}

void Inner::for_parts(Frame::Wires& wires, const RunContext& context) const {
  std::vector<View> taken, made;
  for (size_t k = 0; k < parts_.size(); ++k) {
    const Program::Part& part = program_->parts[k];
    const Turn turn(context, part.program->device);
    const int stream = turn.context().stream_number;
    taken.clear(), made.clear();
    for (const int wire : part.inputs) {
      taken.push_back(wires.views[static_cast<size_t>(wire)]);
      wires.follow(stream, wires.made[static_cast<size_t>(wire)]);
    }
    for (const int wire : part.outputs) {
      made.push_back(wires.views[static_cast<size_t>(wire)]);
      for (const auto use : wires.read[static_cast<size_t>(wire)]) wires.follow(stream, use);
      wires.read[static_cast<size_t>(wire)].clear();
    }
    const auto& device = wires.devices[device_number(part.program->device)];
    parts_[k]->run(wires.frames[k], taken.data(), made.data(), device.space->get() + device.bytes,
                   turn.context());
    const auto use = wires.next(stream);
    for (const int wire : part.outputs) wires.made[static_cast<size_t>(wire)] = use;
    for (const int wire : part.inputs)  // of inputs by what their readers make, which results come after
      if (wire >= inputs_) wires.read[static_cast<size_t>(wire)].push_back(use);
  }
}

}  // namespace weft
