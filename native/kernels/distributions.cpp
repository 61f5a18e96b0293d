// distributions.cpp: random numbers of distributions that are drawn by rejection, each from 64 random bits of
// its own.
//
// The bits of an element are the key of a Philox stream that this element reads from its beginning, for as
// long as candidates are rejected. So an element is a function of its parameters and its bits alone: neither
// its place, nor the threads, nor the processor's instructions change it. Everything is computed in double
// precision. Sources: Marsaglia and Tsang 2000, A simple method for generating gamma variables; Hoermann
// 1993, The transformed rejection method for generating Poisson random variables, and The generation of
// binomial random variates.
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "engine/team.h"
#include "kernels/kernels.h"
#include "kernels/rows.h"
#include "storage/random.h"

namespace weft {
namespace {

constexpr int64_t kPiece = 512;    // elements that one piece of work has, and lines of values in its frame
constexpr double kLargest = 1e18;  // counts and means of counts, so that results fit int64

// The stream of one element.
class Source {
 public:
  explicit Source(uint64_t bits) : key_{static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32)} {}

  // In (0, 1): an odd multiple of 2^-54.
  double uniform() {
    if (at_ == 4) {
      block_ = philox({counter_++, 0, 0, 0}, key_);
      at_ = 0;
    }
    const uint64_t word = static_cast<uint64_t>(block_[at_ + 1]) << 32 | block_[at_];
    at_ += 2;
    return (static_cast<double>(word >> 11) + 0.5) * 0x1p-53;
  }
  double normal() {  // Marsaglia's polar method; the second number of a pair is not used
    for (;;) {
      const double u = 2 * uniform() - 1, v = 2 * uniform() - 1, s = u * u + v * v;
      if (s > 0 && s < 1) return u * std::sqrt(-2 * std::log(s) / s);
    }
  }

 private:
  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> block_{};
  uint32_t counter_ = 0;
  size_t at_ = 4;
};

double log_gamma(double x) {
  int sign;
  return ::lgamma_r(x, &sign);  // std::lgamma writes a global variable
}

// Of alpha: the gamma distribution with this shape and rate 1. 0 for alpha = 0, NaN below.
double gamma_sample(double alpha, double /*unused*/, uint64_t bits) {
  if (!(alpha > 0) || std::isinf(alpha)) return alpha < 0 ? std::numeric_limits<double>::quiet_NaN() : alpha;
  Source source(bits);
  const double shape = alpha < 1 ? alpha + 1 : alpha;
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = source.normal(), root = 1 + c * x;
    if (root <= 0) continue;
    const double cube = root * root * root;
    if (std::log(source.uniform()) < 0.5 * x * x + d - d * cube + d * std::log(cube))
      return alpha < 1 ? d * cube * std::pow(source.uniform(), 1 / alpha) : d * cube;
  }
}

double digamma(double x) {
  double sum = 0;
  for (; x < 10; ++x) sum -= 1 / x;
  const double z = 1 / (x * x);
  return sum + std::log(x) - 0.5 / x -
         z * (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132)))));
}

// The derivative of a sample x of gamma(alpha) with respect to alpha where the distribution function stays,
// -(dP(alpha, x) / dalpha) / p(x) (Figurnov, Mohamed, Mnih 2018, Implicit reparameterization gradients).
// P is differentiated as its power series below alpha + 1, as its continued fraction above; beyond 1e5, where
// these need thousands of terms, as the transform of Wilson and Hilferty, whose relative error is below 1e-7.
double gamma_slope(double alpha, double x, uint64_t /*unused*/) {
  constexpr double kEpsilon = 1e-16;
  constexpr int kMost = 100000;
  if (!(alpha > 0) || !(x > 0) || std::isinf(x)) return x == 0 ? 0 : x - x;
  if (alpha > 1e5) {
    const double root = std::cbrt(x / alpha), z = (root - 1 + 1 / (9 * alpha)) * 3 * std::sqrt(alpha);
    return root * root * (root + 1 / (3 * alpha) - z / (2 * std::sqrt(alpha)));
  }
  if (x < alpha + 1) {
    double term = 1, sum = 1, dterm = 0, dsum = 0;
    for (int n = 1; n < kMost && (term > sum * kEpsilon || std::abs(dterm) > std::abs(dsum) * kEpsilon);
         ++n) {
      term *= x / (alpha + n);
      dterm = dterm * x / (alpha + n) - term / (alpha + n);
      sum += term;
      dsum += dterm;
    }
    return -(x / alpha) * (sum * (std::log(x) - digamma(alpha + 1)) + dsum);
  }
  // Lentz's algorithm with derivatives; every b has the derivative -1.
  double b = x + 1 - alpha, c = 1e300, dc = 0, d = 1 / b, dd = d * d, h = d, dh = dd;
  for (int i = 1; i < kMost; ++i) {
    const double a = -i * (i - alpha), da = i;
    b += 2;
    const double next_d = 1 / (a * d + b);
    dd = -next_d * next_d * (da * d + a * dd - 1);
    d = next_d;
    dc = -1 + da / c - a * dc / (c * c);
    c = b + a / c;
    const double factor = c * d, dfactor = dc * d + c * dd;
    dh = dh * factor + h * dfactor;
    h *= factor;
    if (std::abs(factor - 1) < kEpsilon * 4 && std::abs(dfactor) < kEpsilon * 4) break;
  }
  return x * (h * (std::log(x) - digamma(alpha)) + dh);
}

double poisson_sample(double rate, double /*unused*/, uint64_t bits) {
  if (!(rate >= 0 && rate <= kLargest))
    throw ValueError("poisson: rate must be in [0, 1e18], got " + std::to_string(rate));
  if (rate == 0) return 0;
  Source source(bits);
  if (rate < 10) {  // events at exponential distances
    double count = 0, product = source.uniform();
    for (const double least = std::exp(-rate); product > least; ++count) product *= source.uniform();
    return count;
  }
  const double b = 0.931 + 2.53 * std::sqrt(rate), a = -0.059 + 0.02483 * b;
  const double inverse = 1.1239 + 1.1328 / (b - 3.4), at_once = 0.9277 - 3.6224 / (b - 2);
  for (;;) {
    const double u = source.uniform() - 0.5, v = source.uniform(), us = 0.5 - std::abs(u);
    const double k = std::floor((2 * a / us + b) * u + rate + 0.43);
    if (us >= 0.07 && v <= at_once) return k;
    if (k < 0 || (us < 0.013 && v > us)) continue;
    if (std::log(v * inverse / (a / (us * us) + b)) <= k * std::log(rate) - rate - log_gamma(k + 1)) return k;
  }
}

double binomial_from(Source& source, double trials, double p) {
  if (trials == 0 || p == 0) return 0;
  if (p > 0.5) return trials - binomial_from(source, trials, 1 - p);
  if (trials * p < 10) {  // successes at geometric distances
    const double log_failure = std::log1p(-p);
    double count = -1;
    for (double at = 0; at <= trials; ++count) at += std::floor(std::log(source.uniform()) / log_failure) + 1;
    return count;
  }
  const double spread = std::sqrt(trials * p * (1 - p)), b = 1.15 + 2.53 * spread;
  const double a = -0.0873 + 0.0248 * b + 0.01 * p, c = trials * p + 0.5, at_once = 0.92 - 4.2 / b;
  const double alpha = (2.83 + 5.1 / b) * spread, log_odds = std::log(p / (1 - p));
  const double mode = std::floor((trials + 1) * p);
  const double top = log_gamma(mode + 1) + log_gamma(trials - mode + 1);
  for (;;) {
    const double u = source.uniform() - 0.5, v = source.uniform(), us = 0.5 - std::abs(u);
    const double k = std::floor((2 * a / us + b) * u + c);
    if (k < 0 || k > trials) continue;
    if (us >= 0.07 && v <= at_once) return k;
    const double density = top - log_gamma(k + 1) - log_gamma(trials - k + 1) + (k - mode) * log_odds;
    if (std::log(v * alpha / (a / (us * us) + b)) <= density) return k;
  }
}

void check_trials(const char* function, double trials) {
  if (!(trials >= 0 && trials <= kLargest) || trials != std::floor(trials))
    throw ValueError(std::string(function) + ": trials must be an integer in [0, 1e18], got " +
                     std::to_string(trials));
}

double binomial_sample(double trials, double p, uint64_t bits) {
  check_trials("binomial", trials);
  if (!(p >= 0 && p <= 1)) throw ValueError("binomial: p must be in [0, 1], got " + std::to_string(p));
  Source source(bits);
  return binomial_from(source, trials, p);
}

using Function = double (*)(double, double, uint64_t);

// One or two parameters, then the bits if `random`, -> y, for each element.
template <Function function, int parameters, bool random>
class EachElement final : public Kernel {
 public:
  void run(const Call& call) const override {
    constexpr int kInputs = parameters + (random ? 1 : 0);
    std::array<const View*, kInputs + 1> views;
    views[0] = &call.operands[kInputs];
    for (int i = 0; i < kInputs; ++i) views[static_cast<size_t>(i) + 1] = &call.operands[i];
    const Flat<kInputs + 1> flat(views);
    std::array<RowFunction, parameters> load;
    for (size_t i = 0; i < parameters; ++i)
      load[i] = row_functions(DType::float64, views[i + 1]->dtype).strided;
    const RowFunction store = row_functions(views[0]->dtype, DType::float64).strided;
    parallel_for(flat.count, kPiece, [&](int64_t begin, int64_t end) {
      flat.for_runs(begin, end, [&](const auto& pointers, int64_t, int64_t count) {
        double values[2][kPiece] = {};
        const size_t item = size_of(views[0]->dtype);
        for (int64_t at = 0; at < count; at += kPiece) {
          const int64_t length = std::min(kPiece, count - at);
          for (size_t i = 0; i < parameters; ++i)
            load[i](
                reinterpret_cast<char*>(values[i]), 1,
                pointers[i + 1] + at * flat.step(i + 1) * static_cast<int64_t>(size_of(views[i + 1]->dtype)),
                flat.step(i + 1), length);
          for (int64_t i = 0; i < length; ++i) {
            uint64_t bits = 0;
            if constexpr (random)
              bits = load_as<uint64_t>(pointers[kInputs] + (at + i) * flat.step(kInputs) * 8);
            values[0][i] = function(values[0][i], values[1][i], bits);
          }
          store(pointers[0] + at * flat.step(0) * static_cast<int64_t>(item), flat.step(0),
                reinterpret_cast<const char*>(values[0]), 1, length);
        }
      });
    });
  }
};

// trials[.., 1], p[.., k], bits[.., 1] -> counts[.., k]: one binomial number after the other, of the trials
// that are left. The chances that are left are summed from the end, so the last category with any gets the
// rest.
class Multinomial final : public Kernel {
 public:
  void run(const Call& call) const override {
    const View &trials = call.operands[0], &p = call.operands[1], &bits = call.operands[2],
               &y = call.operands[3];
    if (count_of(y) == 0) return;
    const Lines<4> lines({&y, &p, &trials, &bits}, y.ndim - 1);
    const RowFunction load = row_functions(DType::float64, p.dtype).strided;
    const RowFunction load_trials = row_functions(DType::float64, trials.dtype).strided;
    const RowFunction store = row_functions(y.dtype, DType::float64).strided;
    parallel_for(lines.count, 1, [&](int64_t begin, int64_t end) {
      const auto k = static_cast<size_t>(lines.length[0]);
      std::vector<double> chances(k), rest(k);
      for (int64_t line = begin; line < end; ++line) {
        const auto [to, from, count, key] = lines.at(line);
        double left;
        load_trials(reinterpret_cast<char*>(&left), 1, count, 1, 1);
        check_trials("multinomial", left);
        load(reinterpret_cast<char*>(chances.data()), 1, from, lines.step[1], lines.length[0]);
        for (const double chance : chances)
          if (!(chance >= 0) || std::isinf(chance))
            throw ValueError("multinomial: chances must be finite and at least 0, got " +
                             std::to_string(chance));
        double sum = 0;
        for (size_t j = k; j-- > 0;) rest[j] = sum += chances[j];
        if (sum == 0 && left > 0)
          throw ValueError("multinomial: all chances of a row are 0, and its trials are " +
                           std::to_string(left));
        Source source(load_as<uint64_t>(key));
        for (size_t j = 0; j < k; ++j) {
          const double share = chances[j] == 0 ? 0 : std::min(chances[j] / rest[j], 1.0);
          chances[j] = binomial_from(source, left, share);
          left -= chances[j];
        }
        store(to, lines.step[0], reinterpret_cast<const char*>(chances.data()), 1, lines.length[0]);
      }
    });
  }
};

}  // namespace

Ref<Kernel> make_distribution(Distribution distribution) {
  switch (distribution) {
    case Distribution::gamma:
      return Ref<Kernel>(new EachElement<gamma_sample, 1, true>);
    case Distribution::gamma_slope:
      return Ref<Kernel>(new EachElement<gamma_slope, 2, false>);
    case Distribution::poisson:
      return Ref<Kernel>(new EachElement<poisson_sample, 1, true>);
    case Distribution::binomial:
      return Ref<Kernel>(new EachElement<binomial_sample, 2, true>);
    case Distribution::multinomial:
      return Ref<Kernel>(new Multinomial);
  }
  throw ValueError("make_distribution: no such distribution");
}

}  // namespace weft
