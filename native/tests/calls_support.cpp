#include "tests/calls_support.h"

namespace weft {

void release_now(_object* object) noexcept {
  if (!object || --object->references) return;
  --testing::Language::objects;
  delete object;
}
void release_later(_object* object) noexcept { release_now(object); }

Site Site::here() {
  _object* code = testing::Language::make();
  code->text = testing::Language::line;
  return {code, 0};
}
Site Site::here_if_locked() noexcept { return testing::Language::is_locked ? here() : Site(); }
std::string Site::text() const noexcept { return code_ ? code_->text : std::string(); }

namespace testing {
namespace {

double real(const char* at) { return load_as<double>(at); }
struct Sum {
  static constexpr int operands = 3;
  static void run(char* const* at, const void*) { store_as(at[2], real(at[0]) + real(at[1])); }
};
struct Product {
  static constexpr int operands = 3;
  static void run(char* const* at, const void*) { store_as(at[2], real(at[0]) * real(at[1])); }
};

// Which two inputs an output is made of, and by what.
struct Part {
  Ref<Kernel> kernel;
  int a, b;
};

// into: the input that the outputs are written to; -1: none.
Ref<Plan> plan_with(const std::string& name, int inputs, const std::vector<Part>& parts, int into = -1) {
  ProgramBuilder b{name, {}, inputs, {}};
  b.add_load("extent", 0, 0, 0);
  for (const Part& part : parts) {
    b.use(part.a, 3);
    b.use(part.b, 3);
    const int y = b.add_output(DType::float64, -1, {0}, {});
    b.add_step(part.kernel, {part.a, part.b, y}, 0, name, "", {}, {2});
    b.add_result(y, into, false, false);
  }
  auto plan = make_ref<Plan>();
  plan->program = b.finish(0);
  plan->visible = static_cast<int>(parts.size());
  plan->info = Language::make();
  return plan;
}

}  // namespace

Ref<Plan> plan_of(const std::string& name) {
  if (name == "product") return plan_with(name, 2, {{elements<Product>(), 0, 1}});
  if (name == "sum into") return plan_with(name, 3, {{elements<Sum>(), 0, 1}}, 2);
  return plan_with(name, 2, {{elements<Sum>(), 0, 1}});
}

Tracked call(const Ref<Plan>& plan, const Tracked& a, const Tracked& b) {
  const Tracked* inputs[] = {&a, &b};
  Tracked results[1];
  call_plan(plan, inputs, {}, {}, results);
  return results[0];
}

}  // namespace testing

namespace host {

using testing::Language;

// Of a, b, y and dy: for a product b * dy and a * dy; for a sum dy times 1, which is given as dy + 0 * dy.
Ref<Plan> plan_backward(const Plan& plan, const std::vector<bool>& wanted, const std::vector<bool>& given) {
  const std::string& name = plan.program->name;
  Language::planned.push_back(name);
  if (name != "product" || given != std::vector<bool>{true}) return {};
  std::vector<testing::Part> parts;
  for (size_t k = 0; k < 2; ++k)
    if (wanted[k]) parts.push_back({testing::elements<testing::Product>(), k == 0 ? 1 : 0, 3});
  if (parts.empty()) return {};
  const Ref<Plan> made = testing::plan_with("product gradient", 4, parts);
  for (size_t k = 0; k < 2; ++k)
    if (wanted[k]) made->gradients.set(k);
  return made;
}

std::pair<Ref<Plan>, std::vector<std::pair<size_t, size_t>>> plan_recording(const Plan&) { return {}; }

Tracked sum(Tracked&& a, Tracked&& b) {
  static const Ref<Plan>& plan = *new Ref<Plan>(testing::plan_of("sum"));
  return testing::call(plan, a, b);
}

std::vector<std::optional<Tracked>> call_backward(const TapeNode& node, std::vector<Tracked>&& cotangents) {
  return node.function->function(std::move(cotangents));
}

uint32_t module_of_call() { return 7; }

LoggedProgram program_of(const LoggedSegment& segment) { return Language::program_of(segment); }
void note_break(_object*) { ++Language::breaks; }

}  // namespace host

}  // namespace weft
