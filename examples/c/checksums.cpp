// checksums.cpp: reads files side by side and adds their bytes up; one that cannot be read costs its own result only.
//
//     c++ -std=c++20 checksums.cpp $(python -m weft.info --cflags --libs) -o checksums && ./checksums FILE...
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <weft/engine.hpp>

int main(int count, char** paths) {
  weft::Engine engine;
  std::map<std::string, std::vector<char>> contents;
  std::map<std::string, unsigned long> sums;
  std::vector<weft::Variable> summed;
  for (int k = 1; k < count; ++k) {
    const std::string path = paths[k];
    // Places of their own, made here: what runs at the same time shares nothing.
    std::vector<char>& bytes = contents[path];
    unsigned long& sum = sums[path];
    weft::Variable read(engine);
    summed.emplace_back(engine);
    engine.push(
        [path, &bytes](weft::Context) {
          std::ifstream file(path, std::ios::binary);
          if (!file) throw std::runtime_error("cannot be read");
          bytes.assign(std::istreambuf_iterator<char>(file), {});
        },
        {}, {&read}, {.name = paths[k], .queue = WEFT_IO});
    engine.push(
        [&bytes, &sum](weft::Context) {
          for (const char byte : bytes) sum += static_cast<unsigned char>(byte);
        },
        {&read}, {&summed.back()}, {.name = "sum"});
  }
  int failed = 0;
  for (int k = 1; k < count; ++k) {
    try {
      summed[static_cast<size_t>(k - 1)].wait();
      std::printf("%s: %lu\n", paths[k], sums[paths[k]]);
    } catch (const weft::EngineError& error) {
      std::printf("%s\n", error.what());
      failed = 1;
    }
  }
  return failed;
}
