// weft_native_tests --list          names, one per line
// weft_native_tests [--seed N] NAME  run one test; exit status 0 (passed), 1 (failed) or 2 (wrong arguments)
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>

#include "tests/check.h"

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
    try {
      test.run();
      return 0;
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
