// A test harness in one header: TEST(name) { ... } registers a function, CHECK and its relatives end it by
// throwing. One process runs one test (see main.cpp), so a test that hangs, aborts or races is named by its
// process.
#pragma once

#include <cstdint>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace weft::testing {

struct Test {
  const char* name;
  void (*run)();
};

inline std::vector<Test>& registry() {
  static std::vector<Test> tests;
  return tests;
}

struct Registration {
  Registration(const char* name, void (*run)()) { registry().push_back({name, run}); }
};

// The seed of this run (--seed N); tests that draw random programs start from it.
inline std::uint64_t& seed() {
  static std::uint64_t value = 0;
  return value;
}

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The value as text: what operator<< writes, the items of a range, or "?".
template <class T>
std::string show(const T& value) {
  if constexpr (requires(std::ostream& out) { out << value; }) {
    std::ostringstream out;
    out << std::boolalpha << value;
    return out.str();
  } else if constexpr (requires { value.begin() != value.end(); }) {
    std::string text = "[";
    for (const auto& item : value) text += (text.size() > 1 ? ", " : "") + show(item);
    return text + "]";
  } else {
    return "?";
  }
}

// Said at once: what is unwound next may wait for threads that the failure leaves stuck.
[[noreturn]] inline void fail(const char* file, int line, const std::string& text) {
  const std::string message = std::string(file) + ":" + std::to_string(line) + ": " + text;
  std::cerr << message + "\n" << std::flush;
  throw Failure(message);
}

template <class A, class B>
void check_equal(const A& a, const B& b, const char* text, const char* file, int line) {
  if (!(a == b)) fail(file, line, std::string(text) + ": " + show(a) + " != " + show(b));
}

}  // namespace weft::testing

#define TEST(name)                                                                    \
  static void test_##name();                                                          \
  static const ::weft::testing::Registration registration_##name{#name, test_##name}; \
  static void test_##name()

#define CHECK(expression)                                                                \
  do {                                                                                   \
    if (!(expression)) ::weft::testing::fail(__FILE__, __LINE__, "false: " #expression); \
  } while (false)

#define CHECK_EQ(a, b) ::weft::testing::check_equal((a), (b), #a " == " #b, __FILE__, __LINE__)

#define CHECK_THROWS(expression, Type)                                                              \
  do {                                                                                              \
    bool weft_thrown = false;                                                                       \
    try {                                                                                           \
      static_cast<void>(expression);                                                                \
    } catch (const Type&) {                                                                         \
      weft_thrown = true;                                                                           \
    }                                                                                               \
    if (!weft_thrown) ::weft::testing::fail(__FILE__, __LINE__, "no " #Type " from: " #expression); \
  } while (false)
