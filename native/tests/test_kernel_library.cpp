// The kernels of native/kernels, on views of any strides in memory of exactly the size that is used, so that
// the address sanitizer sees what goes beyond; with enough elements for several threads, so that the thread
// sanitizer sees what meets. Against references that go element by element.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "engine/team.h"
#include "kernels/kernels.h"
#include "tensor/convert.h"
#include "tests/array_support.h"

using namespace weft;
using namespace weft::testing;

namespace {

template <class T>
constexpr DType kTypeOf = DType::int64;
template <>
constexpr DType kTypeOf<int32_t> = DType::int32;
template <>
constexpr DType kTypeOf<int8_t> = DType::int8;
template <>
constexpr DType kTypeOf<uint8_t> = DType::uint8;
template <>
constexpr DType kTypeOf<float> = DType::float32;
template <>
constexpr DType kTypeOf<double> = DType::float64;

int64_t count_of(const Sizes& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// An array in memory of its own, whose dimensions lie in any order and direction, some with gaps.
template <class T>
class Grid {
 public:
  Grid(Sizes sizes, Random& random, bool plain = false) : shape(std::move(sizes)), strides_(shape.size()) {
    std::vector<size_t> order(shape.size());
    std::iota(order.begin(), order.end(), size_t{0});
    if (!plain && random.chance(50))
      for (size_t d = order.size(); d > 1; --d)
        std::swap(order[d - 1], order[static_cast<size_t>(random.below(static_cast<int>(d)))]);
    int64_t step = 1, last = 0, first = 0;
    for (size_t i = order.size(); i-- > 0;) {
      const size_t d = order[i];
      const bool backwards = !plain && random.chance(20);
      if (!plain && random.chance(20)) step *= 2;
      strides_[d] = backwards ? -step : step;
      const int64_t reach = std::max<int64_t>(shape[d] - 1, 0) * step;
      (backwards ? first : last) += reach;
      step *= std::max<int64_t>(shape[d], 1);
    }
    items.resize(count_of(shape) ? static_cast<size_t>(first + last + 1) : 0);
    start_ = first;
  }

  int64_t size() const { return count_of(shape); }
  // Of the element of this number in row-major order.
  size_t place(int64_t number) const {
    int64_t at = start_;
    for (size_t d = shape.size(); d-- > 0;) {
      at += number % shape[d] * strides_[d];
      number /= shape[d];
    }
    return static_cast<size_t>(at);
  }
  T& operator[](int64_t number) { return items[place(number)]; }
  const T& operator[](int64_t number) const { return items[place(number)]; }
  void fill(const std::function<T(int64_t)>& f) {
    for (int64_t i = 0; i < size(); ++i) (*this)[i] = f(i);
  }
  std::vector<T> values() const {
    std::vector<T> found;
    for (int64_t i = 0; i < size(); ++i) found.push_back((*this)[i]);
    return found;
  }
  View view() {
    return {reinterpret_cast<char*>(items.data() + (items.empty() ? 0 : start_)), kTypeOf<T>,
            static_cast<int>(shape.size()), shape.data(), strides_.data()};
  }

  const Sizes shape;
  std::vector<T> items;

 private:
  Sizes strides_;
  int64_t start_ = 0;
};

void run(const Ref<Kernel>& kernel, const std::vector<View>& operands,
         std::vector<uint64_t> parameters = {}) {
  const size_t bytes = kernel->scratch_bytes(operands.data());
  const TempSpace scratch({}, bytes);
  parameters.push_back(0);
  kernel->run({operands.data(), parameters.data(), scratch.get()});
}

uint64_t slot(double x) {
  uint64_t bits = 0;
  store_as(&bits, x);
  return bits;
}

// The shape seen as [before, along the axis, after].
struct Along {
  Along(const Sizes& shape, size_t axis)
      : before(std::accumulate(shape.begin(), shape.begin() + static_cast<int64_t>(axis), int64_t{1},
                               std::multiplies<>())),
        length(shape[axis]),
        after(count_of(shape) / std::max<int64_t>(before * length, 1)) {}
  int64_t at(int64_t b, int64_t i, int64_t a) const { return (b * length + i) * after + a; }
  int64_t before, length, after;
};

const std::vector<Sizes> kShapes{{1},       {7},     {0},        {3, 0},       {5, 6},
                                 {2, 3, 4}, {70000}, {300, 301}, {3, 41, 700}, {2000, 33}};

// Numbers with equal ones, zeros of both signs and NaN among them.
float some_float(Random& random) {
  const int kind = random.below(20);
  if (kind == 0) return std::numeric_limits<float>::quiet_NaN();
  if (kind == 1) return -0.0F;
  if (kind == 2) return std::numeric_limits<float>::infinity();
  return static_cast<float>(random.between(-500, 500)) / 8;
}
bool is_before(float a, float b, bool descending) {  // NaN last
  if (std::isnan(a) || std::isnan(b)) return !std::isnan(a) && std::isnan(b);
  return descending ? a > b : a < b;
}
bool same(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

void use_threads() { set_team_size(4); }

}  // namespace

TEST(kernels_sort) {
  use_threads();
  Random random(seed() + 1);
  for (const Sizes& shape : kShapes)
    for (size_t axis = 0; axis < shape.size(); ++axis)
      for (const bool descending : {false, true}) {
        Grid<float> x(shape, random), y(shape, random);
        Grid<int64_t> order(shape, random);
        x.fill([&](int64_t) { return some_float(random); });
        const int named = random.chance(50) ? static_cast<int>(axis)
                                            : static_cast<int>(axis) - static_cast<int>(shape.size());
        run(make_sort(named, descending, true, true), {x.view(), y.view(), order.view()});
        const Along line(shape, axis);
        for (int64_t b = 0; b < line.before; ++b)
          for (int64_t a = 0; a < line.after; ++a) {
            std::vector<int64_t> wanted(static_cast<size_t>(line.length));
            std::iota(wanted.begin(), wanted.end(), int64_t{0});
            std::ranges::stable_sort(wanted, [&](int64_t i, int64_t j) {
              return is_before(x[line.at(b, i, a)], x[line.at(b, j, a)], descending);
            });
            for (int64_t i = 0; i < line.length; ++i) {
              const int64_t from = wanted[static_cast<size_t>(i)];
              CHECK_EQ(order[line.at(b, i, a)], from);
              CHECK(same(y[line.at(b, i, a)], x[line.at(b, from, a)]));
            }
          }
        Grid<float> alone(shape, random);
        run(make_sort(static_cast<int>(axis), descending, true, false), {x.view(), alone.view()});
        for (int64_t i = 0; i < x.size(); ++i) CHECK(same(alone[i], y[i]));
      }
}

TEST(kernels_topk) {
  use_threads();
  Random random(seed() + 2);
  for (const Sizes& shape : kShapes)
    for (size_t axis = 0; axis < shape.size(); ++axis)
      for (const bool largest : {false, true}) {
        Sizes taken = shape;
        taken[axis] = std::min<int64_t>(shape[axis], random.between(0, 40));
        Grid<float> x(shape, random), y(taken, random);
        Grid<int64_t> places(taken, random);
        x.fill([&](int64_t) { return some_float(random); });
        run(make_topk(static_cast<int>(axis), largest), {x.view(), y.view(), places.view()});
        const Along line(shape, axis), to(taken, axis);
        const auto before = [&](float a, float b) {  // NaN is the largest
          if (std::isnan(a) || std::isnan(b))
            return largest ? std::isnan(a) && !std::isnan(b) : !std::isnan(a) && std::isnan(b);
          return largest ? a > b : a < b;
        };
        for (int64_t b = 0; b < line.before && to.length; ++b)
          for (int64_t a = 0; a < line.after; ++a) {
            std::vector<int64_t> wanted(static_cast<size_t>(line.length));
            std::iota(wanted.begin(), wanted.end(), int64_t{0});
            std::ranges::stable_sort(wanted, [&](int64_t i, int64_t j) {
              return before(x[line.at(b, i, a)], x[line.at(b, j, a)]);
            });
            for (int64_t i = 0; i < to.length; ++i) {
              const int64_t from = wanted[static_cast<size_t>(i)];
              CHECK_EQ(places[to.at(b, i, a)], from);
              CHECK(same(y[to.at(b, i, a)], x[line.at(b, from, a)]));
            }
          }
      }
}

TEST(kernels_take_along_an_axis) {
  use_threads();
  Random random(seed() + 3);
  for (const Sizes& shape : kShapes)
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      if (!count_of(shape)) continue;
      Sizes taken = shape;
      taken[axis] =
          random.between(0, 3000 / static_cast<int>(std::max<int64_t>(count_of(shape) / shape[axis], 1)) + 2);
      Grid<int32_t> x(shape, random), y(taken, random);
      Grid<int32_t> indices(taken, random);
      const int64_t size = shape[axis];
      x.fill([](int64_t i) { return static_cast<int32_t>(i); });
      indices.fill([&](int64_t) {
        return static_cast<int32_t>(random.between(static_cast<int>(-size), static_cast<int>(size) - 1));
      });
      run(make_take_along_axis(static_cast<int>(axis)), {x.view(), indices.view(), y.view()});
      const Along line(shape, axis), to(taken, axis);
      for (int64_t b = 0; b < to.before; ++b)
        for (int64_t i = 0; i < to.length; ++i)
          for (int64_t a = 0; a < to.after; ++a) {
            const int64_t from = (indices[to.at(b, i, a)] + size) % size;
            CHECK_EQ(y[to.at(b, i, a)], x[line.at(b, from, a)]);
          }
      if (!indices.size()) continue;
      for (const int64_t wrong : {size, -size - 1}) {
        indices[indices.size() / 2] = static_cast<int32_t>(wrong);
        CHECK_THROWS(run(make_take_along_axis(static_cast<int>(axis)), {x.view(), indices.view(), y.view()}),
                     IndexError);
      }
    }
}

TEST(kernels_scatter) {
  use_threads();
  Random random(seed() + 4);
  for (const Sizes& shape : kShapes)
    for (size_t axis = 0; axis < shape.size(); ++axis)
      for (const Combine mode : {Combine::set, Combine::add, Combine::max, Combine::min}) {
        if (!count_of(shape)) continue;
        Sizes given = shape;
        given[axis] = random.chance(30) ? 2 * shape[axis] : random.between(1, 9);
        if (shape.size() > 1 && random.chance(30)) given[(axis + 1) % shape.size()] = 1;
        Grid<double> x(shape, random), y(shape, random);
        Grid<int64_t> indices(given, random);
        Grid<double> updates(given, random);
        const int64_t size = shape[axis];
        x.fill([&](int64_t) { return random.between(-9, 9); });
        updates.fill([&](int64_t) { return random.between(-9, 9); });
        indices.fill(
            [&](int64_t) { return random.between(static_cast<int>(-size), static_cast<int>(size) - 1); });
        const auto combine = [&](double& to, double u) {
          to = mode == Combine::set   ? u
               : mode == Combine::add ? to + u
               : mode == Combine::max ? std::max(to, u)
                                      : std::min(to, u);
        };
        Grid<double> wanted(shape, random, true);
        wanted.fill([&](int64_t i) { return x[i]; });
        // Row-major numbers of `given` in turn: along the axis in their order.
        for (int64_t i = 0; i < indices.size(); ++i) {
          int64_t rest = i, at = 0, step = 1;
          for (size_t d = shape.size(); d-- > 0;) {
            int64_t place = rest % given[d];
            rest /= given[d];
            if (d == axis) place = (indices[i] + size) % size;
            at += place * step;
            step *= shape[d];
          }
          combine(wanted[at], updates[i]);
        }
        run(make_scatter(static_cast<int>(axis), mode), {x.view(), indices.view(), updates.view(), y.view()});
        CHECK(y.values() == wanted.values());
        run(make_scatter(static_cast<int>(axis), mode),
            {x.view(), indices.view(), updates.view(), x.view()});  // in place
        CHECK(x.values() == wanted.values());
      }
}

TEST(kernels_index) {
  use_threads();
  Random random(seed() + 5);
  struct Case {
    Sizes shape, points;
    std::vector<int> dims;
    int position;
  };
  const std::vector<Case> cases{{{9}, {4}, {0}, 0},
                                {{500, 70}, {3000}, {0}, 0},
                                {{500, 70}, {40, 3}, {1}, 1},
                                {{20, 30, 40}, {900}, {0, 2}, 0},
                                {{20, 30, 40}, {50, 2}, {1, 2}, 1},
                                {{6, 5}, {0}, {0}, 0},
                                {{40, 3, 50}, {1000}, {1}, 1},
                                {{70000}, {90000}, {0}, 0},
                                {{8, 4}, {}, {0}, 0}};
  for (const Case& c : cases) {
    Sizes result;
    for (size_t d = 0, k = 0; d <= c.shape.size(); ++d) {
      if (static_cast<int>(result.size()) == c.position && k == 0) {
        result.insert(result.end(), c.points.begin(), c.points.end());
        k = 1;
      }
      if (d < c.shape.size() && std::ranges::find(c.dims, static_cast<int>(d)) == c.dims.end())
        result.push_back(c.shape[d]);
    }
    Grid<double> x(c.shape, random), y(result, random);
    std::vector<Grid<int64_t>> indices;
    std::vector<View> operands{x.view()};
    for (const int dim : c.dims) {
      Grid<int64_t>& index = indices.emplace_back(c.points, random);
      const int size = static_cast<int>(c.shape[static_cast<size_t>(dim)]);
      index.fill([&](int64_t) { return random.between(-size, size - 1); });
    }
    for (Grid<int64_t>& index : indices) operands.push_back(index.view());
    x.fill([](int64_t i) { return static_cast<double>(i); });
    // Of each element of the result, the number of that of x.
    const int64_t points = count_of(c.points);
    int64_t before = 1;
    for (int d = 0; d < c.position; ++d) before *= result[static_cast<size_t>(d)];
    const int64_t after = points ? count_of(result) / (before * points) : 0;
    const auto source = [&](int64_t number) {
      const int64_t point = number / std::max<int64_t>(after, 1) % points;
      int64_t free =
          number / (after * points) * after + number % after;  // row-major over what is not indexed
      int64_t at = 0, step = 1;
      for (size_t d = c.shape.size(); d-- > 0;) {
        const auto found = std::ranges::find(c.dims, static_cast<int>(d));
        int64_t place = 0;
        if (found != c.dims.end()) {
          place = (indices[static_cast<size_t>(found - c.dims.begin())][point] + c.shape[d]) % c.shape[d];
        } else {
          place = free % c.shape[d];
          free /= c.shape[d];
        }
        at += place * step;
        step *= c.shape[d];
      }
      return at;
    };
    operands.push_back(y.view());
    run(make_index_get(c.dims, c.position), operands);
    for (int64_t i = 0; i < y.size(); ++i) CHECK_EQ(y[i], x[source(i)]);

    for (const Combine mode : {Combine::set, Combine::add}) {
      Grid<double> updates(result, random), to(c.shape, random);
      updates.fill([&](int64_t) { return random.between(-9, 9); });
      std::vector<double> wanted = x.values();
      // In row-major order of the points.
      for (int64_t p = 0; p < points; ++p)
        for (int64_t b = 0; b < before; ++b)
          for (int64_t a = 0; a < after; ++a) {
            const int64_t i = (b * points + p) * after + a;
            double& element = wanted[static_cast<size_t>(source(i))];
            element = mode == Combine::set ? updates[i] : element + updates[i];
          }
      operands.back() = updates.view();
      operands.push_back(to.view());
      run(make_index_put(c.dims, c.position, mode), operands);
      operands.pop_back();
      CHECK(to.values() == wanted);
    }
    if (!points) continue;
    indices[0][0] = c.shape[static_cast<size_t>(c.dims[0])];
    operands.back() = y.view();
    CHECK_THROWS(run(make_index_get(c.dims, c.position), operands), IndexError);
  }
}

TEST(kernels_masks) {
  use_threads();
  Random random(seed() + 6);
  for (const Sizes& shape : kShapes)
    for (const int percent : {0, 3, 50, 100}) {
      Grid<uint8_t> mask(shape, random);
      Grid<double> x(shape, random), to(shape, random);
      mask.fill(
          [&](int64_t) { return static_cast<uint8_t>(random.chance(percent) ? random.between(1, 255) : 0); });
      x.fill([](int64_t i) { return static_cast<double>(i) + 0.5; });
      std::vector<int64_t> places;
      for (int64_t i = 0; i < mask.size(); ++i)
        if (mask[i]) places.push_back(i);
      const auto found = static_cast<int64_t>(places.size());
      Grid<int64_t> count({}, random), indices({found, static_cast<int64_t>(shape.size())}, random);
      Grid<double> chosen({found}, random), values({found}, random);
      run(make_count_nonzero(), {mask.view(), count.view()});
      CHECK_EQ(count[0], found);
      run(make_nonzero(), {mask.view(), indices.view()});
      run(make_masked_select(), {x.view(), mask.view(), chosen.view()});
      values.fill([](int64_t i) { return static_cast<double>(-i); });
      run(make_masked_assign(), {x.view(), mask.view(), values.view(), to.view()});
      std::vector<double> wanted = x.values();
      for (int64_t k = 0; k < found; ++k) {
        int64_t number = places[static_cast<size_t>(k)];
        CHECK_EQ(chosen[k], x[number]);
        wanted[static_cast<size_t>(number)] = static_cast<double>(-k);
        for (size_t d = shape.size(); d-- > 0; number /= shape[d])
          CHECK_EQ(indices[k * static_cast<int64_t>(shape.size()) + static_cast<int64_t>(d)],
                   number % shape[d]);
      }
      CHECK(to.values() == wanted);
      Grid<double> other({found + 1}, random);
      CHECK_THROWS(run(make_masked_select(), {x.view(), mask.view(), other.view()}), ValueError);
    }
}

TEST(kernels_check_labels) {
  use_threads();
  Random random(seed() + 7);
  for (const Sizes& shape : kShapes) {
    Grid<int32_t> labels(shape, random);
    Grid<int64_t> y(shape, random);
    labels.fill([&](int64_t i) { return i % 11 == 0 ? -100 : random.below(10); });
    const std::vector<uint64_t> parameters{10, static_cast<uint64_t>(int64_t{-100})};
    run(make_check_labels("test"), {labels.view(), y.view()}, parameters);
    for (int64_t i = 0; i < y.size(); ++i) CHECK_EQ(y[i], int64_t{labels[i]});
    if (!y.size()) continue;
    labels[y.size() - 1] = 10;
    CHECK_THROWS(run(make_check_labels("test"), {labels.view(), y.view()}, parameters), IndexError);
  }
}

TEST(kernels_search) {
  use_threads();
  Random random(seed() + 8);
  for (const int64_t length : {0, 1, 2, 1000})
    for (const int64_t count : {0, 1, 9, 50000})
      for (const bool right : {false, true}) {
        Grid<float> sorted({1, length}, random), values({2, count}, random);
        Grid<int64_t> y({2, count}, random);
        std::vector<float> line;
        for (int64_t i = 0; i < length; ++i) line.push_back(static_cast<float>(random.between(0, 300)));
        std::ranges::sort(line);
        sorted.fill([&](int64_t i) { return line[static_cast<size_t>(i)]; });
        values.fill([&](int64_t) { return static_cast<float>(random.between(-5, 305)); });
        View lines = sorted.view();
        const int64_t shape[] = {2, length}, strides[] = {0, lines.strides[1]};
        lines.shape = shape, lines.strides = strides;
        run(make_searchsorted(right), {lines, values.view(), y.view()});
        for (int64_t i = 0; i < y.size(); ++i) {
          const auto at =
              right ? std::ranges::upper_bound(line, values[i]) : std::ranges::lower_bound(line, values[i]);
          CHECK_EQ(y[i], at - line.begin());
        }
      }
  for (const int64_t count : {0, 1, 40, 60000}) {
    Grid<int32_t> x({count}, random), values({count}, random);
    Grid<int64_t> first({count}, random), inverse({count}, random), counts({count}, random),
        found({}, random);
    x.fill([&](int64_t) { return random.between(-300, 300); });
    run(make_unique_kernel(),
        {x.view(), values.view(), first.view(), inverse.view(), counts.view(), found.view()});
    std::map<int32_t, std::pair<int64_t, int64_t>> wanted;  // first place, how often
    for (int64_t i = 0; i < count; ++i) ++wanted.try_emplace(x[i], i, 0).first->second.second;
    CHECK_EQ(found[0], static_cast<int64_t>(wanted.size()));
    int64_t k = 0;
    for (const auto& [value, about] : wanted) {
      CHECK_EQ(values[k], value);
      CHECK_EQ(first[k], about.first);
      CHECK_EQ(counts[k++], about.second);
    }
    for (int64_t i = 0; i < count; ++i) CHECK_EQ(values[inverse[i]], x[i]);
  }
}

TEST(kernels_bincount) {
  use_threads();
  Random random(seed() + 10);
  for (const int64_t length : {1, 3, 100, 10000})
    for (const int64_t count : {0, 1, 7, 1000, 100000}) {
      Grid<int32_t> x({count}, random);
      Grid<int64_t> y({length}, random);
      x.fill([&](int64_t) { return random.between(0, length - 1); });
      run(make_bincount(), {x.view(), y.view()});
      std::vector<int64_t> wanted(static_cast<size_t>(length));
      for (int64_t i = 0; i < count; ++i) ++wanted[static_cast<size_t>(x[i])];
      for (int64_t i = 0; i < length; ++i) CHECK_EQ(y[i], wanted[static_cast<size_t>(i)]);
      if (count == 0) continue;
      for (const int64_t outside : {int64_t{-1}, length}) {
        x.fill([&](int64_t i) { return i + 1 < count ? 0 : outside; });
        CHECK_THROWS(run(make_bincount(), {x.view(), y.view()}), IndexError);
      }
    }
}

TEST(kernels_drop) {
  use_threads();
  Random random(seed() + 9);
  const std::vector<uint64_t> words{5, 1, 1000};
  const auto with = [&](double p) { return std::vector<uint64_t>{words[0], words[1], words[2], slot(p)}; };
  for (const Sizes& shape : kShapes) {
    Grid<float> x(shape, random), y(shape, random), plain(shape, random, true);
    Grid<uint8_t> mask(shape, random);
    x.fill([](int64_t i) { return static_cast<float>(i % 100 + 1); });
    run(make_dropout(true), {x.view(), y.view(), mask.view()}, with(0.25));
    int64_t kept = 0;
    for (int64_t i = 0; i < x.size(); ++i) {
      CHECK(mask[i] <= 1);
      CHECK_EQ(y[i], mask[i] ? x[i] * (1 / 0.75F) : 0.0F);
      kept += mask[i];
    }
    if (x.size() > 10000)
      CHECK(std::abs(static_cast<double>(kept) / static_cast<double>(x.size()) - 0.75) < 0.02);
    // The same reservation drops the same elements, however they lie.
    set_team_size(1);
    run(make_dropout(false), {x.view(), plain.view()}, with(0.25));
    use_threads();
    CHECK(plain.values() == y.values());
    Grid<float> chances(shape, random);
    Grid<int8_t> ones(shape, random);
    chances.fill([](int64_t) { return 0.75F; });
    run(make_bernoulli(), {chances.view(), ones.view()}, words);
    int64_t sum = 0;
    for (int64_t i = 0; i < x.size(); ++i) sum += ones[i];
    if (x.size() > 10000)
      CHECK(std::abs(static_cast<double>(sum) / static_cast<double>(x.size()) - 0.75) < 0.02);
    CHECK_THROWS(run(make_dropout(true), {x.view(), y.view(), mask.view()}, with(1.5)), ValueError);
  }
}

TEST(kernels_of_random_numbers) {
  use_threads();
  Random random(seed() + 10);
  const std::vector<uint64_t> words{9, 0, 77};
  for (const Sizes& shape : kShapes) {
    Grid<double> x(shape, random), plain(shape, random, true);
    std::vector<uint64_t> parameters = words;
    parameters.insert(parameters.end(), {slot(-1), slot(3)});
    run(make_random_fill(Draw::uniform), {x.view()}, parameters);
    for (int64_t i = 0; i < x.size(); ++i) CHECK(x[i] >= -1 && x[i] < 3);
    set_team_size(1);
    run(make_random_fill(Draw::uniform), {plain.view()}, parameters);
    use_threads();
    CHECK(plain.values() == x.values());
    run(make_random_fill(Draw::normal), {x.view()}, parameters);
    for (int64_t i = 0; i < x.size(); ++i) CHECK(std::isfinite(x[i]));
    Grid<int32_t> whole(shape, random);
    parameters[3] = 3, parameters[4] = 9;
    run(make_random_fill(Draw::integers), {whole.view()}, parameters);
    for (int64_t i = 0; i < x.size(); ++i) CHECK(whole[i] >= 3 && whole[i] < 9);
    if (shape.empty() || !shape[0]) continue;
    Grid<int64_t> rows(shape, random), shuffled(shape, random);
    rows.fill([](int64_t i) { return i; });
    run(make_permutation(), {rows.view(), shuffled.view()}, words);
    const int64_t width = count_of(shape) / shape[0];
    std::set<int64_t> seen;
    for (int64_t r = 0; r < shape[0] && width; ++r) {
      const int64_t from = shuffled[r * width] / width;
      seen.insert(from);
      for (int64_t j = 0; j < width; ++j) CHECK_EQ(shuffled[r * width + j], from * width + j);
    }
    if (width) CHECK_EQ(static_cast<int64_t>(seen.size()), shape[0]);
  }
  // Words and a position that come as arrays.
  Grid<int64_t> source({2}, random), position({}, random);
  run(make_position(), {source.view(), position.view()}, {4, 5, 6});
  CHECK_EQ(source[0], int64_t{4});
  CHECK_EQ(source[1], int64_t{5});
  CHECK_EQ(position[0], int64_t{6});
  Grid<double> a({1000}, random), b({1000}, random);
  run(make_drawn(make_random_fill(Draw::uniform), 0, 1, 5, 10), {source.view(), position.view(), a.view()},
      {0, 0, 0, slot(0), slot(1)});
  run(make_random_fill(Draw::uniform), {b.view()}, {4, 5, 16, slot(0), slot(1)});
  CHECK(a.values() == b.values());
}

TEST(kernels_of_attention) {
  use_threads();
  Random random(seed() + 11);
  struct Case {
    int64_t b, h, n, m, d, e;
    bool causal;
    int mask;  // none, bool, numbers
  };
  const Case cases[] = {{1, 1, 1, 1, 1, 1, false, 0},     {2, 3, 5, 7, 4, 6, true, 0},
                        {1, 2, 33, 65, 16, 16, false, 1}, {2, 1, 70, 40, 17, 9, true, 1},
                        {1, 2, 20, 130, 8, 33, false, 2}, {1, 4, 150, 150, 32, 32, true, 2}};
  for (const Case& c : cases) {
    const auto fill = [&](Grid<float>& x) {
      x.fill([&](int64_t) { return static_cast<float>(random.between(-100, 100)) / 80; });
    };
    const Sizes q_shape{c.b, c.h, c.n, c.d}, k_shape{c.b, c.h, c.m, c.d}, v_shape{c.b, c.h, c.m, c.e};
    const Sizes y_shape{c.b, c.h, c.n, c.e}, weights{c.b, c.h, c.n, c.m};
    Grid<float> q(q_shape, random), k(k_shape, random), v(v_shape, random), y(y_shape, random),
        dy(y_shape, random);
    Grid<float> logs({c.b, c.h, c.n}, random), dq(q_shape, random), dk(k_shape, random), dv(v_shape, random);
    Grid<float> numbers(weights, random);
    Grid<uint8_t> seen(weights, random);
    for (Grid<float>* x : {&q, &k, &v, &dy, &numbers}) fill(*x);
    seen.fill([&](int64_t i) { return static_cast<uint8_t>(i % c.m == 0 || random.chance(70)); });
    View bools = seen.view();
    bools.dtype = DType::bool_;
    const double scale = 0.5;
    const int64_t diagonal = c.m - c.n;
    std::vector<uint64_t> parameters{slot(scale), slot(0), ~uint64_t{0}, 0, static_cast<uint64_t>(diagonal),
                                     slot(0)};
    if (!c.causal) parameters[3] = ~uint64_t{0};
    std::vector<View> operands{q.view(), k.view(), v.view()};
    if (c.mask) operands.push_back(c.mask == 1 ? bools : numbers.view());
    std::vector<View> backward{dy.view()};
    backward.insert(backward.end(), operands.begin(), operands.end());
    operands.insert(operands.end(), {y.view(), logs.view()});
    run(make_attention({.mask = c.mask != 0}), operands, parameters);
    backward.insert(backward.end(), {y.view(), logs.view(), dq.view(), dk.view(), dv.view()});
    run(make_attention_backward({.mask = c.mask != 0}), backward, parameters);

    std::vector<double> all_dk(static_cast<size_t>(k.size())), all_dv(static_cast<size_t>(v.size()));
    const auto near = [](double a, float b) {
      return std::abs(a - static_cast<double>(b)) < 2e-3 * (1 + std::abs(a));
    };
    for (int64_t bh = 0; bh < c.b * c.h; ++bh)
      for (int64_t i = 0; i < c.n; ++i) {
        std::vector<double> p(static_cast<size_t>(c.m), 0);
        double total = 0;
        for (int64_t j = 0; j < c.m; ++j) {
          const int64_t at = (bh * c.n + i) * c.m + j;
          if ((c.causal && j > i + diagonal) || (c.mask == 1 && !seen[at])) continue;
          double score = 0;
          for (int64_t x = 0; x < c.d; ++x)
            score += static_cast<double>(q[(bh * c.n + i) * c.d + x]) *
                     static_cast<double>(k[(bh * c.m + j) * c.d + x]);
          score = score * scale + (c.mask == 2 ? static_cast<double>(numbers[at]) : 0.0);
          total += p[static_cast<size_t>(j)] = std::exp(score);
        }
        if (total > 0) CHECK(near(std::log(total), logs[bh * c.n + i]));
        std::vector<double> row(static_cast<size_t>(c.e), 0);
        for (int64_t j = 0; j < c.m; ++j) {
          if (total > 0) p[static_cast<size_t>(j)] /= total;
          for (int64_t x = 0; x < c.e; ++x)
            row[static_cast<size_t>(x)] +=
                p[static_cast<size_t>(j)] * static_cast<double>(v[(bh * c.m + j) * c.e + x]);
        }
        double drop = 0;
        for (int64_t x = 0; x < c.e; ++x) {
          const int64_t at = (bh * c.n + i) * c.e + x;
          CHECK(near(row[static_cast<size_t>(x)], y[at]));
          drop += static_cast<double>(dy[at]) * row[static_cast<size_t>(x)];
        }
        std::vector<double> slope(static_cast<size_t>(c.d), 0);
        for (int64_t j = 0; j < c.m; ++j) {
          double dp = 0;
          for (int64_t x = 0; x < c.e; ++x) {
            const auto value = static_cast<double>(v[(bh * c.m + j) * c.e + x]);
            const auto above = static_cast<double>(dy[(bh * c.n + i) * c.e + x]);
            dp += value * above;
            all_dv[static_cast<size_t>((bh * c.m + j) * c.e + x)] += p[static_cast<size_t>(j)] * above;
          }
          const double ds = p[static_cast<size_t>(j)] * (dp - drop) * scale;
          for (int64_t x = 0; x < c.d; ++x) {
            slope[static_cast<size_t>(x)] += ds * static_cast<double>(k[(bh * c.m + j) * c.d + x]);
            all_dk[static_cast<size_t>((bh * c.m + j) * c.d + x)] +=
                ds * static_cast<double>(q[(bh * c.n + i) * c.d + x]);
          }
        }
        for (int64_t x = 0; x < c.d; ++x)
          CHECK(near(slope[static_cast<size_t>(x)], dq[(bh * c.n + i) * c.d + x]));
      }
    for (int64_t i = 0; i < k.size(); ++i) CHECK(near(all_dk[static_cast<size_t>(i)], dk[i]));
    for (int64_t i = 0; i < v.size(); ++i) CHECK(near(all_dv[static_cast<size_t>(i)], dv[i]));
  }
}
