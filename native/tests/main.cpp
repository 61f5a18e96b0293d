// weft_native_tests --list          names, one per line
// weft_native_tests [--seed N] NAME  run one test; exit status 0 (passed), 1 (failed) or 2 (wrong arguments)
//
// A test that is still running after kTimeLimit is aborted with a message.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <thread>

#include "tests/check.h"

#if defined(__SANITIZE_THREAD__)
// By default it sleeps for a second at the end of each process, to catch late races.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() {
  return "atexit_sleep_ms=20";
}
#endif

namespace {

constexpr auto kTimeLimit = std::chrono::seconds(60);

void start_watchdog(const char* name) {
  std::thread([name] {
    std::this_thread::sleep_for(kTimeLimit);
    std::fprintf(stderr, "%s: still running after %d s\n", name, static_cast<int>(kTimeLimit.count()));
    std::abort();
  }).detach();
}

}  // namespace

int main(int count, char** arguments) {
  using namespace weft::testing;
  const char* name = nullptr;
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(arguments[i], "--list") == 0) {
      for (const Test& test : registry()) std::cout << test.name << '\n';
      return 0;
    }
    if (std::strcmp(arguments[i], "--seed") == 0 && i + 1 < count) {
      seed() = std::strtoull(arguments[++i], nullptr, 10);
    } else {
      name = arguments[i];
    }
  }
  for (const Test& test : registry()) {
    if (name == nullptr || std::strcmp(test.name, name) != 0) continue;
    start_watchdog(name);
    try {
      test.run();
      return 0;
    } catch (const Failure&) {  // has been printed
      std::cerr << name << ": failed\n";
    } catch (const std::exception& error) {
      std::cerr << name << ": " << error.what() << '\n';
    } catch (...) {
      std::cerr << name << ": an exception of unknown type\n";
    }
    return 1;
  }
  std::cerr << "usage: weft_native_tests --list | [--seed N] NAME\n";
  return 2;
}
