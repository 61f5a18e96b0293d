#include "program/late_steps.h"

#include "engine/device_kind.h"
#include "program/thread_loop.h"

namespace weft {
namespace {

// The places of all checks, each once.
std::vector<const void*> places_of(const LateChecks& checks) {
  std::vector<const void*> places;
  for (const Ref<LateCheck>& check : checks)
    if (!check->add_findings(places))
      throw std::logic_error("an update in place depends on a check that its code cannot look at");
  return places;
}

}  // namespace

void Program::StepFailures::mark(size_t t, uint8_t as) {
  if (states_.empty()) states_.resize(program_.roots_.size());
  for (const int operand : program_.steps[t].operands) {
    const int root = program_.roots_[static_cast<size_t>(operand)];
    if (root < program_.inputs_) continue;
    uint8_t& current = states_[static_cast<size_t>(root)];
    current = std::max(current, as);
  }
}

void Program::StepFailures::settle(const std::vector<StepCheck>& checks, size_t end) {
  auto next = checks.begin();
  for (size_t t = 0; t < end; ++t) {
    const bool is_left_out = skips(t);
    for (; next != checks.end() && next->step == t; ++next)
      if (!is_left_out)
        if (Ref<Error> error = next->check->settle()) failed(t, std::move(error));
  }
}

void Program::StepFailures::note(size_t t) {
  if (late_->noted.empty()) return;
  if (!late_->checks) late_->checks = Ref<StepChecks>(new StepChecks(program_));
  late_->checks->take(t, late_->noted);
}

void Program::StepFailures::gate(size_t t) {
  Gate& gate = late_->gate;
  gate.context.is_gated = program_.gated_[t] || (gate.inherited && program_.updates_[t]);
  if (gate.context.is_gated) late_->findings_before[t] = gate.findings.count;
}

void Program::StepFailures::settle_noted(size_t end) {
  LateSteps& late = *std::exchange(late_, nullptr);
  RunContext& context = late.gate.context;
  context.late = nullptr;
  late.gate.findings.count = late.gate.inherited;  // what is written in vain is in doubt by them
  context.is_gated = late.gate.inherited != 0;
  if (!context.is_gated) context.findings = nullptr;
  late.noted.clear();
  const Ref<StepChecks> noted = std::move(late.checks);
  if (!noted) return;
  backend_of(context.device.kind)->synchronize(context.device.index, context.stream);
  settle(noted->take_all(), end);
}

void Program::StepChecks::take(size_t t, LateChecks& noted) {
  const Step& step = program_->steps[t];
  for (Ref<LateCheck>& check : noted) {
    check->set_name(program_->name_of(step), step.where);
    checks_.push_back({t, std::move(check)});
  }
  noted.clear();
}

void Program::StepChecks::set_accesses(std::span<const Copy> copies) {
  for (size_t j = 0; j < program_->outputs.size(); ++j)
    if (program_->is_allocated(program_->outputs[j])) written_.push_back(j);
  for (const Copy& copy : copies) written_.push_back(copy.output);
}

void Program::StepChecks::read() {
  StepFailures failures(*program_);
  failures.settle(checks_, program_->steps.size());
  if (!failures) return;
  for (const size_t output : written_) outcomes_.push_back(failures.outcome(program_->outputs[output]));
  failures.raise();
}

// An output is good unless a check fails that makes it fail by itself: what fails with several steps fails
// with one of them, since steps are left out by what they touch, and all that commit by any failure. A check
// that fails only because it looked at what a failed step wrote changes nothing: what fails with it fails
// with that step. Of outputs that commit it matters which step is left out by which other.
bool Program::StepChecks::add_findings_of(uint32_t access, std::vector<const void*>& places) const {
  if (access >= written_.size()) return false;
  const size_t output = written_[access];
  if (program_->outputs[output].commits) return false;
  return std::ranges::all_of(checks_, [&](const StepCheck& noted) {
    return !program_->fails_[noted.step][output] || noted.check->add_findings(places);
  });
}

// Has each step that may note checks fail alone.
void Program::relate_checks() {
  fails_.resize(steps.size());
  const auto error = make_ref<Error>("a step fails");
  for (size_t c = 0; c < steps.size(); ++c) {
    if (!steps[c].kernel->late_checks()) continue;
    StepFailures failures(*this);
    failures.failed(c, error);
    for (size_t t = c + 1; t < steps.size(); ++t) failures.skips(t);
    for (const Output& output : outputs) fails_[c].push_back(!failures.is_good(output));
  }
}

Program::Gate::Gate(const Program& program, const RunContext& of_run, size_t room)
    : Gate(program, of_run, room,
           of_run.op->heeds_gate ? places_of(*of_run.late) : std::vector<const void*>()) {}

Program::Gate::Gate(const Program& program, const RunContext& of_run, size_t room,
                    const std::vector<const void*>& places)
    : inherited(places.size()),
      memory(program.device, (inherited + room) * Findings::kBytes, of_run.stream_number),
      findings{memory.get(), inherited + room, inherited},
      context(of_run) {
  context.findings = findings.room ? &findings : nullptr;
  context.is_gated = inherited != 0;
  if (!inherited) return;
  DeviceBackend& backend = *backend_of(program.device.kind);
  for (size_t k = 0; k < inherited; ++k)
    backend.copy_fetched(program.device.index, memory.get() + k * Findings::kBytes, places[k],
                         Findings::kBytes);
  of_run.late->push_back(Ref<LateCheck>(new HeldChecks(*of_run.late)));
}

void Program::Gate::copy(size_t count, const Tensor& from, const Tensor& to) const {
  Findings before = findings;
  before.count = count;
  RunContext gated = context;
  gated.findings = &before;
  gated.is_gated = true;
  const View views[] = {from.view(), to.view()};
  array_loop("copy", to.dtype, from.dtype, 0).run({views, nullptr, nullptr, gated});
}

Program::LateSteps::LateSteps(const Program& program, const RunContext& of_run)
    : gate(program, of_run, program.gates_ ? program.late_checks_ : 0) {
  gate.context.late = &noted;
  if (gate.context.findings) findings_before.resize(program.steps.size());
}

}  // namespace weft
