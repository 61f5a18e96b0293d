// Kernels on the processor: a block's threads are fibres, which give way at barriers and shuffles.
//
// Everything runs on the stream's own thread. A fault inside of a kernel or a copy is caught by a signal
// handler, which continues at the scheduler's stack; what ran is given up and described. So nothing with a
// destructor may live on a fibre's stack while it can fault. With a seed, the order of blocks, and that of
// threads between any two barriers, is another one each time. blocks.cpp is built without sanitizers, which
// take the fibres' stacks for the thread's.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "standin/memory.h"

namespace standin {

using Random = std::mt19937_64;
using Code = void (*)(void* arguments);

// The error of a command; empty text for none.
struct Fault {
  CUresult error = CUDA_SUCCESS;
  std::string text;
};

struct Launch {
  std::string name;
  Code code;
  bool yields;  // calls barriers or shuffles
  std::vector<char> arguments;
  unsigned blocks, threads;
  std::size_t shared_bytes;
  int device;
};

// Rows from one place to another.
struct Copying {
  char *from, *to;
  std::size_t from_pitch, to_pitch, width, height;
};

// Rows of `count` values of `bytes` bytes each.
struct Filling {
  char* to;
  std::uint32_t value;
  std::size_t bytes, count, pitch, height;
};

constexpr unsigned kMostThreads = 1024;
constexpr std::size_t kMostShared = 227 << 10;

// Runs blocks and copies of one stream. Made and used on the stream's thread.
class Processor {
 public:
  Processor(Memory& memory, std::uint64_t seed);
  ~Processor();
  Processor(const Processor&) = delete;

  Fault run(const Launch& launch, Random& random);
  Fault run(const char* name, Copying& copying);
  Fault run(const char* name, Filling& filling);

 private:
  friend struct Device;  // what kernels call
  struct Fibre;

  // body touches memory that may not be there; it must own nothing.
  Fault run_guarded(const char* name, void (*body)(void*), void* data);
  std::string run_block(const Launch& launch, Random& random);
  bool run_warp(const Launch& launch, unsigned first, bool is_alone, Random& random, std::string* wrong);
  std::string run_threads(const Launch& launch, Random& random);
  std::string exchange(std::size_t first, std::size_t count);
  std::string stuck(const Launch& launch) const;
  std::string caught(const char* name, bool is_kernel);
  void reset_fibre(std::size_t number, void (*entry)());
  void yield(int state);
  static void thread_entry();
  static void block_entry();
  static void body_entry();

  Memory& memory_;
  const bool any_order_;
  std::vector<Fibre> fibres_;
  std::vector<unsigned> order_;
  char* stacks_ = nullptr;
  std::size_t stacks_count_ = 0;
  char* shared_pages_;
  char* shared_ = nullptr;  // ends where a page begins that is not mapped
  void* signal_stack_;
  void* scheduler_ = nullptr;
  const Launch* launch_ = nullptr;
  unsigned block_ = 0, thread_ = 0;
  void (*body_)(void*) = nullptr;
  void* body_data_ = nullptr;
  struct Alias {
    Address address;
    char* alias;
  };
  std::vector<Alias> aliases_;  // of this launch
  Address outside_ = 0;         // the last pointer of a kernel to pageable memory
};

// What images may call, by name; null if there is no such function. yields: whether a fibre may give way in
// it.
void* function_for_kernels(const std::string& name, bool* yields);

// Handles faults of every thread that runs commands; passes the others on to the handler that was there
// before.
void catch_faults();

}  // namespace standin
