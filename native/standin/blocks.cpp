#include "standin/blocks.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include <sys/mman.h>
#include <ucontext.h>

namespace standin {

// void standin_switch(void** from, void* to): leaves its stack, whose top *from then is, for `to`.
extern "C" void standin_switch(void** from, void* to);
extern "C" void standin_resume();
asm(R"(
.text
.globl standin_switch
.hidden standin_switch
.type standin_switch, @function
standin_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
.globl standin_resume
.hidden standin_resume
standin_resume:
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size standin_switch, . - standin_switch
)");

namespace {

constexpr std::size_t kStack = 64 << 10, kSignalStack = 64 << 10;
constexpr unsigned kWarp = 32;

thread_local Processor* here = nullptr;
thread_local void* volatile* resumable = nullptr;  // the scheduler's stack, while a fibre runs
struct Signal {
  volatile int number;
  volatile Address address;
  volatile bool is_write, has_address;
};
thread_local Signal signal_seen;

const int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
struct sigaction before[4];

void pass_on(int number, siginfo_t* info, void* context) {
  for (std::size_t k = 0; k < 4; ++k) {
    if (kSignals[k] != number) continue;
    if (before[k].sa_flags & SA_SIGINFO) return before[k].sa_sigaction(number, info, context);
    if (before[k].sa_handler != SIG_DFL && before[k].sa_handler != SIG_IGN)
      return before[k].sa_handler(number);
    sigaction(number, &before[k], nullptr);  // and the instruction faults again
  }
}

void on_fault(int number, siginfo_t* info, void* raw) {
  if (!resumable) return pass_on(number, info, raw);
  auto* context = static_cast<ucontext_t*>(raw);
  signal_seen.number = number;
  signal_seen.address = reinterpret_cast<Address>(info->si_addr);
  signal_seen.has_address = info->si_code > 0 && info->si_code != SI_KERNEL;
  signal_seen.is_write = context->uc_mcontext.gregs[REG_ERR] & 2;
  context->uc_mcontext.gregs[REG_RSP] = reinterpret_cast<greg_t>(*resumable);
  context->uc_mcontext.gregs[REG_RIP] = reinterpret_cast<greg_t>(&standin_resume);
  resumable = nullptr;
}

char* pages(std::size_t bytes) {
  void* view = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (view == MAP_FAILED) std::abort();
  return static_cast<char*>(view);
}

}  // namespace

void catch_faults() {
  static std::mutex mutex;
  std::lock_guard guard(mutex);
  for (std::size_t k = 0; k < 4; ++k) {
    struct sigaction current;
    sigaction(kSignals[k], nullptr, &current);
    if ((current.sa_flags & SA_SIGINFO) && current.sa_sigaction == on_fault) continue;
    before[k] = current;
    struct sigaction mine{};
    mine.sa_sigaction = on_fault;
    mine.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&mine.sa_mask);
    sigaction(kSignals[k], &mine, nullptr);
  }
}

struct Processor::Fibre {
  void* stack;
  enum State { ready, barrier, shuffle, done } state;
  int barrier_number;
  std::uint64_t value;
  int operand, mode;
};

Processor::Processor(Memory& memory, std::uint64_t seed) : memory_(memory), any_order_(seed != 0) {
  shared_pages_ = pages(kMostShared + kPage + kPage);
  mprotect(shared_pages_ + kMostShared + kPage - kMostShared % kPage, kPage, PROT_NONE);
  signal_stack_ = pages(kSignalStack);
  stack_t stack{};
  stack.ss_sp = signal_stack_;
  stack.ss_size = kSignalStack;
  sigaltstack(&stack, nullptr);
}

Processor::~Processor() {
  stack_t none{};
  none.ss_flags = SS_DISABLE;
  sigaltstack(&none, nullptr);
  munmap(signal_stack_, kSignalStack);
  munmap(shared_pages_, kMostShared + kPage + kPage);
  if (stacks_) munmap(stacks_, stacks_count_ * kStack);
}

void Processor::reset_fibre(std::size_t number, void (*entry)()) {
  auto* top = reinterpret_cast<void**>(stacks_ + (number + 1) * kStack);
  *--top = nullptr;  // a function begins 8 bytes below a multiple of 16
  *--top = reinterpret_cast<void*>(entry);
  for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
  fibres_[number] = {top, Fibre::ready, 0, 0, 0, 0};
}

// The fibre's turn ends; the scheduler goes on.
void Processor::yield(int state) {
  Fibre& fibre = fibres_[thread_];
  fibre.state = static_cast<Fibre::State>(state);
  resumable = nullptr;
  standin_switch(&fibre.stack, scheduler_);
}

void Processor::thread_entry() {
  here->launch_->code(const_cast<char*>(here->launch_->arguments.data()));
  here->yield(Fibre::done);
}

// A block without barriers and shuffles: its threads one after the other.
void Processor::block_entry() {
  const Launch& launch = *here->launch_;
  for (unsigned thread : here->order_) {
    here->thread_ = thread;
    launch.code(const_cast<char*>(launch.arguments.data()));
  }
  here->thread_ = 0;
  here->yield(Fibre::done);
}

void Processor::body_entry() {
  here->body_(here->body_data_);
  here->yield(Fibre::done);
}

// Runs a fibre until it gives way or faults; what the signal handler saw says which.
static void resume(void** scheduler, void* stack) {
  signal_seen.number = 0;
  resumable = scheduler;
  standin_switch(scheduler, stack);
  resumable = nullptr;
}

std::string Processor::caught(const char* name, bool is_kernel) {
  char text[300];
  std::string where = name;
  if (is_kernel) {
    std::snprintf(text, sizeof text, "kernel %s: thread %u of block %u: ", name, thread_, block_);
    where = text;
  } else {
    where += ": ";
  }
  if (signal_seen.number == SIGFPE) return where + "divides an integer by zero";
  if (signal_seen.number == SIGILL) return where + "reaches an instruction that traps";
  where += signal_seen.is_write ? "writes to " : "reads ";
  const Address address = signal_seen.address;
  const Address shared_end =
      reinterpret_cast<Address>(shared_pages_ + kMostShared + kPage - kMostShared % kPage);
  if (signal_seen.has_address && is_kernel && address - shared_end < kPage) {
    std::snprintf(text, sizeof text, "%zu bytes behind its %zu bytes of shared memory",
                  static_cast<std::size_t>(address - shared_end), launch_->shared_bytes);
    return where + text;
  }
  if (signal_seen.has_address && address) return where + memory_.describe(address);
  if (is_kernel && outside_) return where + memory_.describe(outside_);
  return where + (address ? "an address that is not aligned, or no address" : "address 0");
}

Fault Processor::run_guarded(const char* name, void (*body)(void*), void* data) {
  here = this;
  if (!stacks_count_) stacks_ = pages(kStack), stacks_count_ = 1;
  fibres_.resize(std::max<std::size_t>(fibres_.size(), 1));
  body_ = body, body_data_ = data, thread_ = 0;
  reset_fibre(0, body_entry);
  resume(&scheduler_, fibres_[0].stack);
  if (!signal_seen.number) return {};
  return {CUDA_ERROR_ILLEGAL_ADDRESS, caught(name, false)};
}

Fault Processor::run(const char* name, Copying& copying) {
  const auto copy = [](void* raw) {
    const auto& self = *static_cast<Copying*>(raw);
    for (std::size_t k = 0; k < self.height; ++k)
      std::memcpy(self.to + k * self.to_pitch, self.from + k * self.from_pitch, self.width);
  };
  return run_guarded(name, copy, &copying);
}

Fault Processor::run(const char* name, Filling& filling) {
  const auto fill = [](void* raw) {
    const auto& self = *static_cast<Filling*>(raw);
    for (std::size_t row = 0; row < self.height; ++row)
      for (std::size_t k = 0; k < self.count; ++k)
        std::memcpy(self.to + row * self.pitch + k * self.bytes, &self.value, self.bytes);
  };
  return run_guarded(name, fill, &filling);
}

Fault Processor::run(const Launch& launch, Random& random) {
  here = this;
  launch_ = &launch;
  const std::size_t fibres = launch.yields ? launch.threads : 1;
  if (stacks_count_ < fibres) {
    if (stacks_) munmap(stacks_, stacks_count_ * kStack);
    stacks_ = pages(fibres * kStack);
    stacks_count_ = fibres;
  }
  if (fibres_.size() < fibres) fibres_.resize(fibres);
  order_.resize(launch.threads);
  for (unsigned k = 0; k < launch.threads; ++k) order_[k] = k;
  aliases_.clear();
  outside_ = 0;
  const std::size_t shared = (launch.shared_bytes + kAlignment - 1) / kAlignment * kAlignment;
  shared_ = shared_pages_ + kMostShared + kPage - kMostShared % kPage - shared;
  std::vector<unsigned> blocks(launch.blocks);
  for (unsigned k = 0; k < launch.blocks; ++k) blocks[k] = k;
  if (any_order_) std::shuffle(blocks.begin(), blocks.end(), random);
  for (const unsigned block : blocks) {
    block_ = block;
    std::memset(shared_, 0xff, shared);
    const std::string wrong = launch.yields ? run_threads(launch, random) : run_block(launch, random);
    if (!wrong.empty())
      return {signal_seen.number ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_ERROR_LAUNCH_FAILED, wrong};
  }
  return {};
}

std::string Processor::run_block(const Launch& launch, Random& random) {
  if (any_order_) std::shuffle(order_.begin(), order_.end(), random);
  reset_fibre(0, block_entry);
  resume(&scheduler_, fibres_[0].stack);
  return signal_seen.number ? caught(launch.name.c_str(), true) : "";
}

// Runs the warp's threads that can run, in any order, until they wait; with `is_alone` again after each
// shuffle. False if none could.
bool Processor::run_warp(const Launch& launch, unsigned first, bool is_alone, Random& random,
                         std::string* wrong) {
  const unsigned count = std::min(kWarp, launch.threads - first);
  unsigned order[kWarp];
  for (unsigned k = 0; k < count; ++k) order[k] = first + k;
  bool any = false;
  do {
    if (any_order_) std::shuffle(order, order + count, random);
    bool ran = false;
    for (unsigned k = 0; k < count; ++k) {
      if (fibres_[order[k]].state != Fibre::ready) continue;
      ran = true;
      thread_ = order[k];
      resume(&scheduler_, fibres_[thread_].stack);
      if (signal_seen.number) {
        *wrong = caught(launch.name.c_str(), true);
        return true;
      }
    }
    if (!ran) return any;
    any = true;
    unsigned came = 0;
    for (unsigned k = 0; k < count; ++k) came += fibres_[first + k].state == Fibre::shuffle;
    if (came == count) {
      *wrong = exchange(first, count);
      if (!wrong->empty()) {
        *wrong = "kernel " + launch.name + ": " + *wrong;
        return true;
      }
    }
  } while (is_alone);
  return true;
}

// Warps take turns: in order, or with a seed one by one at random, or each as far as it comes before the next
// one. The last shows what a thread overwrites before a slow warp has read it.
std::string Processor::run_threads(const Launch& launch, Random& random) {
  for (unsigned k = 0; k < launch.threads; ++k) reset_fibre(k, thread_entry);
  const unsigned warps = (launch.threads + kWarp - 1) / kWarp;
  std::vector<unsigned> order(warps);
  for (unsigned k = 0; k < warps; ++k) order[k] = k * kWarp;
  const bool is_alone = any_order_ && random() % 2;
  std::string wrong;
  for (;;) {
    if (any_order_) std::shuffle(order.begin(), order.end(), random);
    bool any = false;
    for (const unsigned first : order) {
      any |= run_warp(launch, first, is_alone, random, &wrong);
      if (!wrong.empty()) return wrong;
      if (any && any_order_ && !is_alone) break;
    }
    if (any) continue;
    unsigned done = 0, waiting = 0;
    int first_number = 0;
    bool is_same = true;
    for (unsigned k = 0; k < launch.threads; ++k) {
      const Fibre& fibre = fibres_[k];
      done += fibre.state == Fibre::done;
      if (fibre.state != Fibre::barrier) continue;
      if (!waiting++) first_number = fibre.barrier_number;
      is_same &= fibre.barrier_number == first_number;
    }
    if (done == launch.threads) return "";
    if (waiting != launch.threads) return stuck(launch);
    if (!is_same) return "kernel " + launch.name + ": threads of a block wait at different barriers";
    for (unsigned k = 0; k < launch.threads; ++k) fibres_[k].state = Fibre::ready;
  }
}

std::string Processor::stuck(const Launch& launch) const {
  unsigned count[4] = {};
  for (unsigned k = 0; k < launch.threads; ++k) ++count[fibres_[k].state];
  char text[200];
  std::snprintf(text, sizeof text,
                ": block %u: of %u threads %u wait at a barrier, %u at a shuffle, and %u have ended", block_,
                launch.threads, count[Fibre::barrier], count[Fibre::shuffle], count[Fibre::done]);
  return "kernel " + launch.name + text;
}

namespace {
enum Mode { kDown, kUp, kXor, kIndex };
}

// A warp's lanes read each other's values; a lane that is not there gives the reader's own, as on the device.
std::string Processor::exchange(std::size_t first, std::size_t count) {
  std::uint64_t values[kWarp];
  Fibre* lanes = fibres_.data() + first;
  for (std::size_t k = 0; k < count; ++k) {
    if (lanes[k].mode != lanes[0].mode) return "lanes of a warp wait at different shuffles";
    values[k] = lanes[k].value;
  }
  for (std::size_t k = 0; k < count; ++k) {
    const auto own = static_cast<int>(k);
    const int operand = lanes[k].operand;
    const int from = lanes[k].mode == kDown  ? own + operand
                     : lanes[k].mode == kUp  ? own - operand
                     : lanes[k].mode == kXor ? (own ^ operand)
                                             : (operand & 31);
    lanes[k].value = from >= 0 && from < static_cast<int>(count) ? values[from] : values[k];
    lanes[k].state = Fibre::ready;
  }
  return "";
}

// What kernels call. A call outside of a launch is a bug of the stand-in.
struct Device {
  static std::int64_t thread() { return here->thread_; }
  static std::int64_t threads() { return here->launch_->threads; }
  static std::int64_t block() { return here->block_; }
  static std::int64_t blocks() { return here->launch_->blocks; }
  static void* shared() { return here->shared_; }

  // number: which one of the text. By itself, not the call's address: compilers double calls.
  static void barrier(std::int32_t number) {
    here->fibres_[here->thread_].barrier_number = number;
    here->yield(Processor::Fibre::barrier);
  }

  static void* global(void* pointer) {
    const auto address = reinterpret_cast<Address>(pointer);
    for (const Processor::Alias& known : here->aliases_)
      if (known.address == address) return known.alias;
    char* alias = here->memory_.alias_or_fault(address, here->launch_->device);
    if (!here->memory_.in_window(address) && alias != pointer) here->outside_ = address;
    here->aliases_.push_back({address, alias});
    return alias;
  }

  template <int mode>
  static std::uint64_t shuffle_i64(std::uint64_t value, std::int32_t operand) {
    return shuffle(value, operand, mode);
  }

  template <int mode>
  static std::uint32_t shuffle_i32(std::uint32_t value, std::int32_t operand) {
    return static_cast<std::uint32_t>(shuffle(value, operand, mode));
  }

 private:
  static std::uint64_t shuffle(std::uint64_t value, std::int32_t operand, int mode) {
    Processor::Fibre& fibre = here->fibres_[here->thread_];
    fibre.value = value, fibre.operand = operand, fibre.mode = mode;
    here->yield(Processor::Fibre::shuffle);
    return here->fibres_[here->thread_].value;
  }
};

void* function_for_kernels(const std::string& name, bool* yields) {
  struct Named {
    void* function;
    bool yields;
  };
#define WEFT_NAMED(function, yields)          \
  {                                           \
    reinterpret_cast<void*>(function), yields \
  }
  static const std::map<std::string, Named> functions = {
      {"weft_thread", WEFT_NAMED(&Device::thread, false)},
      {"weft_threads", WEFT_NAMED(&Device::threads, false)},
      {"weft_block", WEFT_NAMED(&Device::block, false)},
      {"weft_blocks", WEFT_NAMED(&Device::blocks, false)},
      {"weft_shared", WEFT_NAMED(&Device::shared, false)},
      {"weft_global", WEFT_NAMED(&Device::global, false)},
      {"weft_barrier", WEFT_NAMED(&Device::barrier, true)},
      {"weft_shuffle_down_i32", WEFT_NAMED(&Device::shuffle_i32<kDown>, true)},
      {"weft_shuffle_down_i64", WEFT_NAMED(&Device::shuffle_i64<kDown>, true)},
      {"weft_shuffle_up_i32", WEFT_NAMED(&Device::shuffle_i32<kUp>, true)},
      {"weft_shuffle_up_i64", WEFT_NAMED(&Device::shuffle_i64<kUp>, true)},
      {"weft_shuffle_xor_i32", WEFT_NAMED(&Device::shuffle_i32<kXor>, true)},
      {"weft_shuffle_xor_i64", WEFT_NAMED(&Device::shuffle_i64<kXor>, true)},
      {"weft_shuffle_index_i32", WEFT_NAMED(&Device::shuffle_i32<kIndex>, true)},
      {"weft_shuffle_index_i64", WEFT_NAMED(&Device::shuffle_i64<kIndex>, true)},
      // What LLVM puts in place of loops that move memory, and of frem.
      {"memcpy", WEFT_NAMED(&std::memcpy, false)},
      {"memmove", WEFT_NAMED(&std::memmove, false)},
      {"memset", WEFT_NAMED(&std::memset, false)},
      {"fmod", WEFT_NAMED(static_cast<double (*)(double, double)>(&std::fmod), false)},
      {"fmodf", WEFT_NAMED(static_cast<float (*)(float, float)>(&std::fmod), false)},
  };
#undef WEFT_NAMED
  const auto it = functions.find(name);
  if (it == functions.end()) return nullptr;
  *yields |= it->second.yields;
  return it->second.function;
}

}  // namespace standin
