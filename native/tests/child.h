// child.h: tests in forked children.
#pragma once

#include <csignal>
#include <cstdio>

#include <sys/wait.h>
#include <unistd.h>

#include "tests/support.h"

namespace weft::testing {

// ThreadSanitizer does not support threads that start in a forked child of a process with threads, and the
// allocator of GCC 12's AddressSanitizer may be locked in such a child.
inline bool skipped() {
  constexpr bool kSkip = kThreadSanitizer || kAddressSanitizer;
  if (kSkip) std::puts("skipped: the sanitizers do not follow a fork of a process with threads");
  return kSkip;
}

// Runs `body` in a forked child and waits for it; the child's failure is ours.
template <class F>
void in_child(F&& body) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    int status = 1;
    try {
      body();
      status = 0;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "in the child: %s\n", error.what());
    }
    _exit(status);
  }
  int status = 0;
  const bool ended = soon([&] { return waitpid(child, &status, WNOHANG) == child; }, 30000);
  if (!ended) {
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
  }
  CHECK(ended);
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), 0);
}

}  // namespace weft::testing
