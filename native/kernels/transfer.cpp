// transfer.cpp: a copy from one device to another, where the host can touch the memory of at most one.
#include "kernels/kernels.h"
#include "tensor/staging.h"

namespace weft {
namespace {

class Transfer final : public Kernel {
 public:
  Transfer(Device to, Device from) : to_(to), from_(from) {}
  void run(const Call& call) const override { copy_elements(call.operands[1], to_, call.operands[0], from_); }
  int operand_count() const override { return 2; }
  bool reaches_devices() const override { return true; }
  const Device* source_device() const override { return &from_; }

 private:
  const Device to_, from_;
};

}  // namespace

Ref<Kernel> make_transfer(Device to, Device from) { return Ref<Kernel>(new Transfer(to, from)); }

}  // namespace weft
