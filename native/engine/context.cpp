// context.cpp: where a thread's block is. Compiled for descriptors of thread-local storage (CMakeLists.txt),
// which may change vector registers in glibc before 2.40: so this is a function of its own, where there are
// none.
#include "engine/context.h"

namespace weft {
namespace {
constinit thread_local Context context_of_thread;
}

[[gnu::noinline]] Context& context() noexcept { return context_of_thread; }

}  // namespace weft
