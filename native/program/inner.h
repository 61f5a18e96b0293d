// inner.h: a program of exact sizes that is run on memory that its caller owns: a body of a loop or branch.
//
// A program of several devices runs part by part, on the thread of the operation around it. Each part's work
// is enqueued on the stream of its device. A stream waits for another one (the host itself does) where a part
// reads what is made there, or writes again what was read there in the turn before. All parts end up in
// results, so the stream of the operation around it comes after all of them. What parts hand to each other is
// in temporary space of their devices, which stays for as long as the Frame.
#pragma once

#include <memory>
#include <vector>

#include "program/program.h"
#include "storage/runtime.h"

namespace weft {

constexpr size_t kInnerAlign = 64;
constexpr size_t aligned(size_t bytes) noexcept {
  return (bytes + kInnerAlign - 1) / kInnerAlign * kInnerAlign;
}
inline size_t bytes_of(const View& x) noexcept {
  size_t size = size_of(x.dtype);
  for (int d = 0; d < x.ndim; ++d) size *= static_cast<size_t>(x.shape[d]);
  return size;
}
// A copy on the device of the context.
void copy_here(const View& to, const View& from, const RunContext& context);

class Inner {
 public:
  explicit Inner(Ref<const Program> program);
  ~Inner();

  // Working memory of runs with inputs of one geometry, reused from one to the next.
  class Frame {
   public:
    Frame();
    ~Frame();

   private:
    friend class Inner;
    struct Wires;
    std::vector<View> views_, operands_;
    std::unique_ptr<Wires> wires_;  // of a program of several devices
  };

  bool wide() const noexcept;
  // inputs: with their geometry; data need not be there.
  size_t scratch_bytes(const View* inputs) const;
  // Outputs are written as their views say, not as the program would choose. scratch: scratch_bytes().
  void run(Frame& frame, const View* inputs, const View* outputs, char* scratch,
           const RunContext& context) const;

 private:
  void read_program();
  void bind_values(Frame& frame, const View* inputs, const View* outputs, char* scratch) const;
  const View* gather(Frame& frame, const Program::Step& step) const;
  void run_steps(Frame& frame, const View* inputs, const View* outputs, char* scratch,
                 const RunContext& context) const;
  void run_parts(Frame& frame, const View* inputs, const View* outputs, const RunContext& context) const;
  void for_parts(Frame::Wires& wires, const RunContext& context) const;
  void lay_out(Frame& frame, const View* inputs, const RunContext& context) const;
  bool is_memory(int value) const noexcept {
    return value >= inputs_ &&
           program_->values[static_cast<size_t>(value - inputs_)].kind == Program::Value::Kind::output;
  }

  Ref<const Program> program_;
  int inputs_;
  std::vector<std::unique_ptr<const Inner>> parts_;  // of several devices; else what follows
  std::vector<uint64_t> slots_;
  std::vector<std::vector<int64_t>> sizes_, strides_;  // of the values behind the inputs
  std::vector<int64_t> offsets_;                       // of views in elements, else in bytes of scratch
  size_t owned_ = 0;                                   // bytes of temporaries and outputs
  size_t operands_ = 0;                                // of the step that has most
};

}  // namespace weft
