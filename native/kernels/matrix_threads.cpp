#include "kernels/matrix_threads.h"

#include "kernels/element_checks.h"
#include "program/thread_loop.h"

namespace weft {
namespace {

constexpr size_t kAligned = 64;

// As Failure (matrices.h) says it.
struct MatrixRule {
  const MatrixForm* form;  // of a kernel that lasts as long as the rule
  Ref<const Kernel> kernel;
  int64_t count;
  void raise(const Found& first) const {
    std::string fact = form->facts[form->facts.size() == 1 ? 0 : static_cast<size_t>(first.value - 1)];
    if (const size_t at = fact.find('#'); at != std::string::npos)
      fact.replace(at, 1, std::to_string(first.value - 1 + form->first));
    const std::string which =
        count == 1 ? ""
                   : "matrix " + std::to_string(first.place) + " of the " + std::to_string(count) + " of ";
    throw ValueError(form->function + ": " + which + form->operand + " " + fact);
  }
};

class MatrixThreads final : public Kernel {
 public:
  explicit MatrixThreads(MatrixForm form) : form_(std::move(form)) {}

  int operand_count() const override { return form_.launches->operand_count() - 1; }
  bool reaches_devices() const override { return true; }
  size_t late_checks() const override { return 1; }
  bool heeds_gate() const override { return true; }
  size_t scratch_bytes(const View* operands) const override {
    const Stack stack(*this, operands, nullptr);
    return kPlace + stack.bytes() + form_.launches->scratch_bytes(stack.operands.data());
  }

  void run(const Call& call) const override {
    const Stack stack(*this, call.operands, call.scratch + kPlace);
    if (stack.count == 0) return;
    if (is_gated_now(call.context))  // code that does nothing stores no failure
      fill_with_zeros(call.context.device, call.scratch + kPlace, stack.bytes());
    const Check check(call, 0, call.context.late != nullptr);
    form_.launches->run(
        {stack.operands.data(), nullptr, call.scratch + kPlace + stack.bytes(), call.context});
    const int64_t step = 1;
    check.look(*form_.find, {{call.scratch + kPlace, DType::int32, 1, &stack.count, &step}}, {});
    check.settle(MatrixRule{&form_, Ref<const Kernel>(this), stack.count});
  }

 private:
  // The kernel's operands, and behind them the failures.
  struct Stack {
    Stack(const MatrixThreads& kernel, const View* given, char* failures)
        : operands(given, given + kernel.operand_count()) {
      const View& of = given[kernel.form_.stack];
      const int ndim = of.ndim - kernel.form_.own_axes;
      strides.resize(static_cast<size_t>(ndim));
      for (int d = ndim; d-- > 0; count *= of.shape[d]) strides[static_cast<size_t>(d)] = count;
      operands.push_back({failures, DType::int32, ndim, of.shape, strides.data()});
    }
    Stack(const Stack&) = delete;
    size_t bytes() const {
      const size_t bytes = static_cast<size_t>(count) * sizeof(int32_t);
      return (bytes + kAligned - 1) / kAligned * kAligned;
    }
    std::vector<View> operands;
    std::vector<int64_t> strides;
    int64_t count = 1;
  };

  static void fill_with_zeros(Device device, char* to, size_t bytes) {
    if (!backend_of(device.kind)->fill(device.index, to, 0, sizeof(int32_t), bytes / sizeof(int32_t)))
      throw DeviceError("there is no way to fill memory of " + to_string(device));
  }

  const MatrixForm form_;
};

}  // namespace

Ref<Kernel> make_matrix_threads(MatrixForm form) { return Ref<Kernel>(new MatrixThreads(std::move(form))); }

}  // namespace weft
