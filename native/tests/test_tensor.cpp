// Tensors and their views against brute force: a model that lists each element's place, on random shapes.
#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "storage/runtime.h"
#include "tensor/tensor.h"
#include "tests/support.h"

using namespace weft;
using namespace weft::testing;

namespace {

using Sizes = std::vector<int64_t>;

// An engine for the arrays of one test; they have to go before it does.
class Arrays {
 public:
  Arrays() { Runtime::get().set_engine(make_engine()); }
  ~Arrays() { Runtime::get().set_engine({}); }
  Arrays(const Arrays&) = delete;
};

int64_t product(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

// All indices of a shape, in row-major order.
std::vector<Sizes> indices_of(const Sizes& shape) {
  std::vector<Sizes> all;
  if (product(shape) == 0) return all;
  Sizes index(shape.size(), 0);
  for (;;) {
    all.push_back(index);
    size_t d = shape.size();
    while (d > 0 && ++index[d - 1] == shape[d - 1]) index[--d] = 0;
    if (d == 0) return all;
  }
}

// What a view is: a shape, and for each index, in row-major order, the number of an element of the chunk.
struct Model {
  Sizes shape, places;
  bool operator==(const Model&) const = default;

  int64_t at(const Sizes& index) const {
    int64_t flat = 0;
    for (size_t d = 0; d < shape.size(); ++d) flat = flat * shape[d] + index[d];
    return places[static_cast<size_t>(flat)];
  }
  // The model of that shape whose element at an index is this one's at `old(index)`.
  template <class F>
  Model seen(const Sizes& as, F&& old) const {
    Model result{as, {}};
    for (const Sizes& index : indices_of(as)) result.places.push_back(at(old(index)));
    return result;
  }
};

Model model_of(const Tensor& x) {
  Model model{Sizes(x.shape, x.shape + x.ndim), {}};
  for (const Sizes& index : indices_of(model.shape)) {
    const char* element = x.data;
    for (int d = 0; d < x.ndim; ++d)
      element += index[static_cast<size_t>(d)] * x.strides[d] * static_cast<int64_t>(x.itemsize());
    model.places.push_back((element - x.chunk->data) / static_cast<int64_t>(x.itemsize()));
  }
  return model;
}

Sizes random_shape(Random& random, int most_dims, int most_size) {
  Sizes shape(static_cast<size_t>(random.between(0, most_dims)));
  for (int64_t& n : shape) n = random.chance(6) ? 0 : random.between(1, most_size);
  return shape;
}

std::vector<IndexItem> random_index(Random& random, int ndim) {
  using Kind = IndexItem::Kind;
  std::vector<IndexItem> items;
  int used = 0;
  bool ellipsis = false;
  while (used < ndim && random.chance(80)) {
    IndexItem item{Kind::slice};
    if (!ellipsis && random.chance(15)) {
      ellipsis = true;
      item.kind = Kind::ellipsis;
    } else if (random.chance(10)) {
      item.kind = Kind::newaxis;
    } else {
      ++used;
      if (random.chance(25)) item.kind = Kind::integer;
      item.start = random.between(-6, 6);
      item.stop = random.between(-6, 6);
      item.has_start = random.chance(60);
      item.has_stop = random.chance(60);
      do item.step = random.chance(40) ? 1 : random.between(-3, 3);
      while (item.step == 0);
    }
    items.push_back(item);
  }
  return items;
}

// The indices along an axis of n that a slice takes, counted one by one.
Sizes taken(const IndexItem& item, int64_t n) {
  auto clipped = [&](int64_t i, int64_t low, int64_t high) {
    return std::min(std::max(i < 0 ? i + n : i, low), high);
  };
  Sizes result;
  if (item.step > 0) {
    const int64_t stop = item.has_stop ? clipped(item.stop, 0, n) : n;
    for (int64_t i = item.has_start ? clipped(item.start, 0, n) : 0; i < stop; i += item.step)
      result.push_back(i);
  } else {
    const int64_t stop = item.has_stop ? clipped(item.stop, -1, n - 1) : -1;
    for (int64_t i = item.has_start ? clipped(item.start, -1, n - 1) : n - 1; i > stop; i += item.step)
      result.push_back(i);
  }
  return result;
}

// nullopt where an integer is out of range.
std::optional<Model> indexed(const Model& x, const std::vector<IndexItem>& items) {
  using Kind = IndexItem::Kind;
  int64_t used = 0;
  for (const IndexItem& item : items) used += item.kind == Kind::integer || item.kind == Kind::slice;
  // For each old axis: the indices taken. For each new axis: the old one, or -1 for a new one.
  std::vector<Sizes> choice;
  std::vector<bool> kept;
  Sizes shape, old_axis;
  auto keep = [&](Sizes which) {
    old_axis.push_back(static_cast<int64_t>(choice.size()));
    shape.push_back(static_cast<int64_t>(which.size()));
    choice.push_back(std::move(which));
  };
  auto keep_all = [&] {
    Sizes all(static_cast<size_t>(x.shape[choice.size()]));
    std::iota(all.begin(), all.end(), 0);
    keep(all);
  };
  for (const IndexItem& item : items) {
    if (item.kind == Kind::newaxis) {
      old_axis.push_back(-1);
      shape.push_back(1);
    } else if (item.kind == Kind::ellipsis) {
      for (auto i = static_cast<int64_t>(x.shape.size()) - used; i > 0; --i) keep_all();
    } else if (item.kind == Kind::slice) {
      keep(taken(item, x.shape[choice.size()]));
    } else {
      const int64_t n = x.shape[choice.size()];
      if (item.start < -n || item.start >= n) return std::nullopt;
      choice.push_back({item.start < 0 ? item.start + n : item.start});
    }
  }
  while (choice.size() < x.shape.size()) keep_all();
  return x.seen(shape, [&](const Sizes& index) {
    Sizes old;
    for (const Sizes& which : choice) old.push_back(which.empty() ? 0 : which[0]);
    for (size_t d = 0; d < index.size(); ++d)
      if (const auto axis = static_cast<size_t>(old_axis[d]); old_axis[d] >= 0)
        old[axis] = choice[axis][static_cast<size_t>(index[d])];
    return old;
  });
}

// A random row-major tensor, and views of views of it.
struct Seen {
  Tensor x;
  Model model;
};

Seen random_tensor(Random& random) {
  static constexpr DType kTypes[] = {DType::int8, DType::float16, DType::int32, DType::float64};
  const Sizes shape = random_shape(random, 4, 5);
  Tensor x = Tensor::empty(shape, kTypes[random.below(4)], {});
  Model model{shape, Sizes(static_cast<size_t>(product(shape)))};
  std::iota(model.places.begin(), model.places.end(), 0);
  return {std::move(x), std::move(model)};
}

void check_same(const Seen& seen) {
  CHECK_EQ(seen.x.dims().size(), seen.model.shape.size());
  const Model real = model_of(seen.x);
  CHECK_EQ(real.shape, seen.model.shape);
  CHECK_EQ(real.places, seen.model.places);
  CHECK_EQ(seen.x.size, product(seen.model.shape));
  if (seen.x.size) {  // the memory of every element is the chunk's
    const auto [least, most] = std::minmax_element(real.places.begin(), real.places.end());
    CHECK(*least >= 0);
    CHECK(static_cast<size_t>(*most + 1) * seen.x.itemsize() <= seen.x.chunk->bytes);
  }
}

void look_through_index(Seen& seen, Random& random) {
  const std::vector<IndexItem> items = random_index(random, seen.x.ndim);
  std::optional<Model> expected = indexed(seen.model, items);
  if (!expected) {
    CHECK_THROWS(index(seen.x, items), IndexError);
    return;
  }
  seen = {index(seen.x, items), *std::move(expected)};
}

void look_permuted(Seen& seen, Random& random) {
  std::vector<int> axes(static_cast<size_t>(seen.x.ndim));
  std::iota(axes.begin(), axes.end(), 0);
  for (size_t i = axes.size(); i > 1; --i)
    std::swap(axes[i - 1], axes[static_cast<size_t>(random.below(static_cast<int>(i)))]);
  Sizes shape;
  for (const int axis : axes) shape.push_back(seen.model.shape[static_cast<size_t>(axis)]);
  Model expected = seen.model.seen(shape, [&](const Sizes& index) {
    Sizes old(index.size());
    for (size_t d = 0; d < axes.size(); ++d) old[static_cast<size_t>(axes[d])] = index[d];
    return old;
  });
  for (int& axis : axes)
    if (random.chance(30)) axis -= seen.x.ndim;
  seen = {permute(seen.x, axes), std::move(expected)};
}

// Sizes of 1 become others, and dimensions come in front.
void look_broadcast(Seen& seen, Random& random) {
  const auto more = static_cast<size_t>(random.below(3));
  Sizes shape(more);
  for (int64_t& n : shape) n = random.between(0, 3);
  for (const int64_t n : seen.model.shape)
    shape.push_back(n == 1 && random.chance(70) ? random.between(0, 3) : n);
  if (shape.size() > 6 || product(shape) > 2000) return;
  Model expected = seen.model.seen(shape, [&](const Sizes& index) {
    Sizes old(index.begin() + static_cast<std::ptrdiff_t>(more), index.end());
    for (size_t d = 0; d < old.size(); ++d)
      if (seen.model.shape[d] == 1) old[d] = 0;
    return old;
  });
  seen = {broadcast_to(seen.x, shape), std::move(expected)};
}

// A random shape with that many elements.
Sizes random_factors(Random& random, int64_t size) {
  Sizes shape;
  if (size == 0) {
    shape = random_shape(random, 3, 4);
    shape.push_back(0);
    return shape;
  }
  while (size > 1) {
    int64_t n = random.between(2, 6);
    if (size % n != 0) n = random.chance(30) ? size : 1;
    shape.push_back(n);
    size /= n;
  }
  if (random.chance(20)) shape.insert(shape.begin(), 1);
  return shape;
}

// Whether strides can describe it, which its places decide.
bool is_strided(const Model& model) {
  if (model.places.empty()) return true;
  Sizes steps(model.shape.size(), 0), index(model.shape.size(), 0);
  const int64_t first = model.at(index);
  for (size_t d = 0; d < steps.size(); ++d) {
    if (model.shape[d] == 1) continue;
    index[d] = 1;
    steps[d] = model.at(index) - first;
    index[d] = 0;
  }
  return std::ranges::all_of(indices_of(model.shape), [&](const Sizes& i) {
    return model.at(i) == std::inner_product(i.begin(), i.end(), steps.begin(), first);
  });
}

void look_reshaped(Seen& seen, Random& random) {
  const Sizes shape = random_factors(random, seen.x.size);
  if (shape.size() > 8) return;
  Sizes resolved(shape.size());
  Sizes asked = shape;
  if (seen.x.size && !asked.empty() && random.chance(40))
    asked[static_cast<size_t>(random.below(static_cast<int>(asked.size())))] = -1;
  resolve_shape(seen.x, asked, resolved.data());
  CHECK_EQ(resolved, shape);
  Model expected{shape, seen.model.places};
  Tensor y;
  const bool viewed = reshape_view(seen.x, shape, y);
  CHECK_EQ(viewed, is_strided(expected));
  if (viewed) seen = {std::move(y), std::move(expected)};
}

using Look = void (*)(Seen&, Random&);

// Looks at random tensors through one kind of view of views of all kinds.
void check_views(Look look, int count, uint64_t salt) {
  const Arrays arrays;
  Random random(seed() * 1000 + salt);
  constexpr Look kOthers[] = {look_through_index, look_permuted, look_broadcast, look_reshaped};
  for (int i = 0; i < scaled(count); ++i) {
    Seen seen = random_tensor(random);
    for (int more = random.below(3); more > 0; --more) kOthers[random.below(4)](seen, random);
    look(seen, random);
    check_same(seen);
  }
}

}  // namespace

TEST(tensor_index_is_that_of_brute_force) { check_views(look_through_index, 20000, 1); }
TEST(tensor_permute_is_that_of_brute_force) { check_views(look_permuted, 10000, 2); }
TEST(tensor_broadcast_to_is_that_of_brute_force) { check_views(look_broadcast, 10000, 3); }
// Also: a view is found wherever strides can describe one, and nowhere else.
TEST(tensor_reshape_is_a_view_exactly_where_strides_can_be) { check_views(look_reshaped, 20000, 4); }

TEST(tensor_covers_its_chunk_if_each_byte_is_one_element) {
  const Arrays arrays;
  Random random(seed());
  int covering = 0, same_size = 0;
  constexpr Look kLooks[] = {look_through_index, look_permuted, look_broadcast, look_reshaped};
  for (int i = 0; i < 20000; ++i) {
    Seen seen = random_tensor(random);
    for (int more = random.below(4); more > 0; --more) kLooks[random.below(4)](seen, random);
    const std::set<int64_t> places(seen.model.places.begin(), seen.model.places.end());
    const bool covers =
        places.size() * seen.x.itemsize() == seen.x.chunk->bytes && places.size() == seen.model.places.size();
    CHECK_EQ(seen.x.covers_chunk(), covers);
    covering += covers && seen.x.size > 1;
    same_size += !covers && static_cast<size_t>(seen.x.size) * seen.x.itemsize() == seen.x.chunk->bytes;
  }
  CHECK(covering > 1000);
  CHECK(same_size > 0);  // views as large as the chunk that repeat some elements and leave out others
}

TEST(tensor_is_contiguous_if_its_elements_follow_one_another) {
  const Arrays arrays;
  Random random(seed());
  int yes = 0, no = 0;
  for (int i = 0; i < scaled(20000); ++i) {
    Seen seen = random_tensor(random);
    look_through_index(seen, random);
    if (random.chance(50)) look_permuted(seen, random);
    bool follow = true;
    for (size_t k = 1; k < seen.model.places.size(); ++k)
      follow &= seen.model.places[k] == seen.model.places[k - 1] + 1;
    CHECK_EQ(seen.x.contiguous(), follow);
    ++(follow ? yes : no);
  }
  CHECK(yes > scaled(1000));
  CHECK(no > scaled(1000));
}

TEST(tensor_sizes_fit_in_63_bits_or_are_refused) {
  Random random(seed());
  constexpr __int128 kMost = std::numeric_limits<int64_t>::max();
  int fit = 0, refused = 0;
  for (int i = 0; i < 20000; ++i) {
    Sizes shape(static_cast<size_t>(random.below(5)));
    for (int64_t& n : shape)
      n = random.chance(5) ? 0 : (int64_t{1} << random.below(63)) + random.between(-1, 1);
    const size_t itemsize = size_t{1} << random.below(4);
    __int128 bytes = static_cast<__int128>(itemsize);
    bool fits = true;  // zeros count as ones: strides beside them are products of the others
    for (const int64_t n : shape) {
      if (fits) bytes *= std::max<int64_t>(n, 1);
      fits = fits && bytes <= kMost;
    }
    if (fits)
      CHECK_EQ(checked_size(shape, itemsize), product(shape));
    else
      CHECK_THROWS(checked_size(shape, itemsize), ShapeError);
    ++(fits ? fit : refused);
  }
  CHECK(fit > 1000);
  CHECK(refused > 1000);
}

TEST(tensor_sizes_at_the_limits) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  CHECK_EQ(checked_size(Sizes{kMost}, 1), kMost);
  CHECK_EQ(checked_size(Sizes{}, 8), int64_t{1});
  CHECK_EQ(checked_size(Sizes{0, kMost}, 1), int64_t{0});
  CHECK_EQ(checked_size(Sizes(kMaxDims, 1), 8), int64_t{1});
  for (const Sizes& wrong :
       {Sizes{kMost, 2}, Sizes{kMost, 0, 2}, Sizes{int64_t{1} << 62, 2}, Sizes{-1}, Sizes{0, -1},
        Sizes{std::numeric_limits<int64_t>::min()}, Sizes(kMaxDims + 1, 1)})
    CHECK_THROWS(checked_size(wrong, 1), ShapeError);
  CHECK_THROWS(checked_size(Sizes{int64_t{1} << 60}, 8), ShapeError);
}

TEST(tensor_of_an_absurd_size_takes_no_memory) {
  const Arrays arrays;
  Pool& pool = Runtime::get().pool({});
  const uint64_t before = pool.stats().allocations;
  CHECK_THROWS(Tensor::empty(Sizes{int64_t{1} << 62}, DType::float32, {}), ShapeError);
  CHECK_THROWS(Tensor::empty(Sizes{-4}, DType::float32, {}), ShapeError);
  CHECK_THROWS(Tensor::empty(Sizes{int64_t{1} << 60}, DType::float32, {}), OutOfMemory);
  CHECK_EQ(pool.stats().allocations, before);
  CHECK_EQ(pool.stats().live_blocks, uint64_t{0});
  CHECK_THROWS(Tensor::empty(Sizes{1}, DType::float32, {DeviceKind::cpu, 64}), DeviceError);
  CHECK_THROWS(Tensor::empty(Sizes{1}, DType::float32, {DeviceKind::gpu, 0}), DeviceError);
}

TEST(tensor_memory_is_aligned_and_empty_tensors_have_none) {
  const Arrays arrays;
  for (const int64_t n : {1, 3, 64, 1000, 100000}) {
    const Tensor x = Tensor::empty(Sizes{n}, DType::int8, {});
    CHECK_EQ(reinterpret_cast<uintptr_t>(x.data) % Pool::kAlignment, uintptr_t{0});
    CHECK_EQ(x.chunk->bytes, static_cast<size_t>(n));
  }
  const Tensor nothing = Tensor::empty(Sizes{3, 0}, DType::int64, {});
  CHECK_EQ(nothing.chunk->bytes, size_t{0});
  CHECK(nothing.contiguous());
  CHECK_EQ(Runtime::get().pool({}).stats().live_blocks, uint64_t{0});
}

TEST(tensor_views_keep_the_memory_of_their_chunk) {
  const Arrays arrays;
  Pool& pool = Runtime::get().pool({});
  Tensor view;
  {
    const Tensor x = Tensor::empty(Sizes{4, 5}, DType::int32, {});
    view = reversed(x);
    CHECK(view.chunk == x.chunk);
  }
  CHECK_EQ(pool.stats().live_blocks, uint64_t{1});
  view = Tensor();
  CHECK_EQ(pool.stats().live_blocks, uint64_t{0});
}

TEST(tensor_diagonal_is_of_the_last_two_dimensions) {
  const Arrays arrays;
  Tensor x = Tensor::empty(Sizes{2, 3, 4}, DType::int32, {});
  for (const Tensor& of : {x, transpose_last(x)}) {
    const int64_t rows = of.shape[1], columns = of.shape[2];
    for (const int64_t k : {int64_t{0}, int64_t{1}, int64_t{-1}, columns - 1, 1 - rows, columns, -rows,
                            std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()}) {
      const Tensor y = diagonal(of, k);
      int64_t length = 0;
      for (int64_t i = 0; i < rows; ++i) {
        if (k <= -rows || k >= columns || i + k < 0 || i + k >= columns) continue;
        const char* const element =
            of.data + 4 * (of.strides[0] + i * of.strides[1] + (i + k) * of.strides[2]);
        CHECK(y.data + 4 * (y.strides[0] + length * y.strides[1]) == element);
        ++length;
      }
      CHECK(y.ndim == 2 && y.shape[0] == 2 && y.shape[1] == length && y.size == 2 * length);
    }
  }
  CHECK_THROWS(diagonal(Tensor::empty(Sizes{3}, DType::int32, {}), 0), ShapeError);
}

TEST(tensor_views_that_cannot_be_are_refused) {
  const Arrays arrays;
  const Tensor x = Tensor::empty(Sizes{2, 3}, DType::int32, {});
  const auto axes = [](std::vector<int> list) { return list; };
  for (const std::vector<int>& wrong :
       {axes({0}), axes({0, 0}), axes({0, 2}), axes({-3, 0}), axes({0, 1, 2})})
    CHECK_THROWS(permute(x, wrong), ShapeError);
  for (const Sizes& wrong : {Sizes{3}, Sizes{3, 3}, Sizes{2, 6}, Sizes{2, 3, 1}, Sizes{2, -3}})
    CHECK_THROWS(broadcast_to(x, wrong), ShapeError);
  Sizes resolved(4);
  for (const Sizes& wrong : {Sizes{5}, Sizes{-1, -1}, Sizes{-2, 3}, Sizes{-1, 4}, Sizes{-1, 0}, Sizes{0},
                             Sizes{int64_t{1} << 62, 4}})
    CHECK_THROWS(resolve_shape(x, wrong, resolved.data()), ShapeError);
  CHECK_THROWS(transpose_last(index(x, std::vector{IndexItem{IndexItem::Kind::integer}})), ShapeError);
  const IndexItem zero_step{IndexItem::Kind::slice, 0, 0, 0};
  CHECK_THROWS(index(x, {&zero_step, 1}), ValueError);
  CHECK_THROWS(index(x, std::vector(3, IndexItem{IndexItem::Kind::integer})), IndexError);
  CHECK_THROWS(index(x, std::vector(2, IndexItem{IndexItem::Kind::ellipsis})), IndexError);
  CHECK_THROWS(index(x, std::vector(kMaxDims, IndexItem{IndexItem::Kind::newaxis})), IndexError);
}

TEST(tensor_slices_with_huge_numbers_are_clipped) {
  const Arrays arrays;
  const Tensor x = Tensor::empty(Sizes{5}, DType::int32, {});
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kLeast = -kMost;
  auto slice = [&](int64_t start, int64_t stop, int64_t step) {
    const IndexItem item{IndexItem::Kind::slice, start, stop, step, true, true};
    return model_of(index(x, {&item, 1})).places;
  };
  CHECK_EQ(slice(kLeast, kMost, 1), (Sizes{0, 1, 2, 3, 4}));
  CHECK_EQ(slice(kMost, kLeast, -1), (Sizes{4, 3, 2, 1, 0}));
  CHECK_EQ(slice(1, kMost, kMost), Sizes{1});
  CHECK_EQ(slice(3, kLeast, kLeast), Sizes{3});
  CHECK_EQ(slice(kMost, kLeast, 1), Sizes{});
}

TEST(tensor_descriptions_are_short) {
  const Arrays arrays;
  CHECK_EQ(describe(Tensor::empty(Sizes{2, 3}, DType::float32, {DeviceKind::cpu, 1})), "f32[2,3]@cpu:1");
  CHECK_EQ(describe(Tensor::empty(Sizes{}, DType::bool_, {})), "bool[]@cpu:0");
  CHECK_EQ(describe(Dims(Sizes{7})), "(7,)");
  CHECK_EQ(describe(Dims(Sizes{7, 8})), "(7, 8)");
  CHECK_EQ(describe(Dims()), "()");
}
