// Runs an exported program on several threads, each on files of its own: float32 in row-major order, one input and
// one output. Prints the index of the greatest number for each.
//
//     classify FOLDER FILE ...
#include <algorithm>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <vector>
#include <weft/weft.hpp>

static std::string best_of(weft::Program program, const std::string& path) {
  std::vector<float> input(program.inputs()[0].elements()), scores(program.outputs()[0].elements());
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char*>(input.data()), static_cast<std::streamsize>(4 * input.size())))
    return "there are no " + std::to_string(input.size()) + " numbers to read";
  program.run({weft::in(input)}, {weft::out(scores)});
  return std::to_string(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

int main(int count, char** arguments) {
  if (count < 2) {
    std::cerr << "usage: classify FOLDER FILE ...\n";
    return 1;
  }
  try {
    const weft::Program program(arguments[1]);  // copies share it
    std::vector<std::string> results(static_cast<size_t>(count) - 2);
    std::vector<std::thread> threads;
    for (size_t k = 0; k < results.size(); ++k)
      threads.emplace_back([&, k] {
        try {
          results[k] = best_of(program, arguments[k + 2]);
        } catch (const weft::EngineError& error) {
          results[k] = error.what();
        }
      });
    for (std::thread& thread : threads) thread.join();
    for (size_t k = 0; k < results.size(); ++k) std::cout << arguments[k + 2] << ": " << results[k] << "\n";
  } catch (const weft::EngineError& error) {
    std::cerr << "classify: " << error.what() << "\n";
    return 1;
  }
}
