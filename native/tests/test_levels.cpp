// Kernels that are compiled for several instruction set levels, at each that the machine has: memory of
// exactly the size that is used, so that the address sanitizer sees what goes beyond.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "engine/team.h"
#include "kernels/attention_tile.h"
#include "kernels/kernels.h"
#include "kernels/level.h"
#include "kernels/lstm_cell.h"
#include "kernels/sort_words.h"
#include "tensor/convert.h"
#include "tests/check.h"
#include "tests/support.h"

using namespace weft;
using namespace weft::testing;

namespace {

template <class F>
void at_each_level(F&& f) {
  const Isa before = kernel_isa();
  for (const Isa level : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (level > isa()) continue;
    set_kernel_isa(level);
    f();
  }
  set_kernel_isa(before);
}

template <class Word>
void check_sort(std::vector<Word> words) {
  std::vector<Word> sorted = words;
  std::sort(sorted.begin(), sorted.end());
  sort_words(words.data(), static_cast<int64_t>(words.size()));
  CHECK(words == sorted);
}

template <class Word>
void check_sorts(std::mt19937_64& random) {
  std::vector<size_t> sizes{1000, 4095, 4097, 20001};
  for (size_t n = 0; n < 300; ++n) sizes.push_back(n);
  for (const size_t n : sizes) {
    std::vector<Word> words(n);
    // All bits; few values; the largest words, which fill up vectors; the same everywhere.
    for (const uint64_t mask : {~uint64_t{0}, uint64_t{3}}) {
      for (Word& word : words) word = static_cast<Word>(random() & mask);
      check_sort(words);
    }
    for (Word& word : words) word = static_cast<Word>(0 - (random() & 1));
    check_sort(words);
    std::fill(words.begin(), words.end(), Word{7});
    check_sort(words);
  }
}

std::vector<float> numbers(int64_t count, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(count));
  for (float& item : x) item = normal(random);
  return x;
}

View view_of(std::vector<float>& x, const int64_t* shape, const int64_t* strides, int ndim) {
  return {reinterpret_cast<char*>(x.data()), DType::float32, ndim, shape, strides};
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

TEST(levels_sort_words) {
  set_team_size(1);
  std::mt19937_64 random(seed());
  at_each_level([&] {
    check_sorts<uint32_t>(random);
    check_sorts<uint64_t>(random);
  });
}

TEST(levels_masks) {
  std::mt19937_64 random(seed());
  at_each_level([&] {
    for (int64_t n = 0; n < 300; ++n) {
      std::vector<char> mask(static_cast<size_t>(n));
      std::vector<int64_t> expected;
      for (int64_t i = 0; i < n; ++i) {
        mask[static_cast<size_t>(i)] = static_cast<char>(random() % 3 == 0 ? random() % 256 : 0);
        if (mask[static_cast<size_t>(i)]) expected.push_back(i);
      }
      std::vector<int64_t> places(expected.size());
      const auto found = static_cast<int64_t>(expected.size());
      const int64_t one = 1, shape[] = {found, 1}, strides[] = {1, 1};
      int64_t count = -1;
      const View views[] = {{mask.data(), DType::uint8, 1, &n, &one},
                            {reinterpret_cast<char*>(places.data()), DType::int64, 2, shape, strides}};
      const View counted[] = {views[0], {reinterpret_cast<char*>(&count), DType::int64, 0, nullptr, nullptr}};
      make_count_nonzero()->run({counted, nullptr, nullptr});
      CHECK_EQ(count, found);
      make_nonzero()->run({views, nullptr, nullptr});
      CHECK(places == expected);
    }
  });
}

TEST(levels_attention_of_odd_sizes) {
  std::mt19937_64 random(seed());
  at_each_level([&] {
    for (const auto& [n, m, d, e] : std::vector<std::array<int64_t, 4>>{
             {1, 1, 1, 1}, {3, 70, 5, 7}, {17, 64, 16, 16}, {65, 65, 33, 3}, {100, 7, 2, 65}}) {
      std::vector<float> q = numbers(n * d, random), k = numbers(m * d, random), v = numbers(m * e, random);
      std::vector<float> y(static_cast<size_t>(n * e)), logs(static_cast<size_t>(n));
      const auto view = [](std::vector<float>& x, int64_t (&sizes)[8], int64_t rows, int64_t columns) {
        const int64_t values[] = {1, 1, rows, columns, rows * columns, rows * columns, columns, 1};
        std::copy_n(values, 8, sizes);
        return view_of(x, sizes, sizes + 4, 4);
      };
      int64_t sizes[5][8];
      View views[] = {view(q, sizes[0], n, d), view(k, sizes[1], m, d), view(v, sizes[2], m, e),
                      view(y, sizes[3], n, e), view(logs, sizes[4], 1, n)};
      const int64_t log_shape[] = {1, 1, n}, log_strides[] = {n, n, 1};
      views[4] = view_of(logs, log_shape, log_strides, 3);
      const double scale = 0.5;
      uint64_t parameters[6] = {};  // scale, cap, before, after, offset, p
      store_as(parameters, scale);
      store_as(parameters + 2, int64_t{-1});
      store_as(parameters + 3, int64_t{-1});
      make_attention({})->run({views, parameters, nullptr});
      for (int64_t i = 0; i < n; ++i) {
        std::vector<double> weights;
        double total = 0;
        for (int64_t j = 0; j < m; ++j) {
          double score = 0;
          for (int64_t c = 0; c < d; ++c)
            score += static_cast<double>(q[static_cast<size_t>(i * d + c)]) *
                     static_cast<double>(k[static_cast<size_t>(j * d + c)]);
          weights.push_back(std::exp(score * scale));
          total += weights.back();
        }
        CHECK(std::abs(std::log(total) - static_cast<double>(logs[static_cast<size_t>(i)])) < 1e-4);
        for (int64_t c = 0; c < e; ++c) {
          double sum = 0;
          for (int64_t j = 0; j < m; ++j)
            sum += weights[static_cast<size_t>(j)] * static_cast<double>(v[static_cast<size_t>(j * e + c)]);
          CHECK(std::abs(sum / total - static_cast<double>(y[static_cast<size_t>(i * e + c)])) < 1e-4);
        }
      }
    }
  });
}

TEST(levels_lstm_cell_of_odd_sizes) {
  std::mt19937_64 random(seed());
  at_each_level([&] {
    for (int64_t units = 1; units < 40; ++units) {
      constexpr int64_t kRows = 2;
      std::vector<float> gates = numbers(kRows * 4 * units, random),
                         more = numbers(kRows * 4 * units, random);
      std::vector<float> cells = numbers(kRows * units, random), h(cells.size());
      const std::vector<float> inputs = gates, before = cells;
      LstmForward step{};
      step.rows = kRows, step.units = units, step.dtype = DType::float32;
      step.gates = gates.data(), step.recurrent = more.data();
      step.before = step.after = cells.data();  // in place
      step.h = reinterpret_cast<char*>(h.data()), step.h_row = units;
      lstm_forward(step, 0, units);
      for (int64_t row = 0; row < kRows; ++row)
        for (int64_t j = 0; j < units; ++j) {
          const auto gate = [&](int64_t k) {
            const auto at = static_cast<size_t>((row * 4 + k) * units + j);
            return static_cast<double>(inputs[at]) + static_cast<double>(more[at]);
          };
          const auto at = static_cast<size_t>(row * units + j);
          const double c =
              sigmoid(gate(1)) * static_cast<double>(before[at]) + sigmoid(gate(0)) * std::tanh(gate(2));
          CHECK(std::abs(c - static_cast<double>(cells[at])) < 1e-5);
          CHECK(std::abs(sigmoid(gate(3)) * std::tanh(c) - static_cast<double>(h[at])) < 1e-5);
        }
    }
  });
}
