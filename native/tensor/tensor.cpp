#include "tensor/tensor.h"

#include <numeric>

namespace weft {

std::string describe(Dims shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

std::string describe(const Tensor& x) {
  std::string text = short_name(x.dtype) + std::string("[");
  for (int i = 0; i < x.ndim; ++i) text += (i ? "," : "") + std::to_string(x.shape[i]);
  text += "]";
  return x.chunk ? text + "@" + to_string(x.device()) : text;  // none: only a geometry
}

int64_t checked_size(Dims shape, size_t itemsize) {
  if (shape.size() > kMaxDims)
    throw ShapeError("shape: at most " + std::to_string(kMaxDims) + " dimensions, got " +
                     std::to_string(shape.size()));
  int64_t size = 1;
  bool fits = true;
  for (const int64_t n : shape) {
    if (n < 0) throw ShapeError("shape: negative size " + std::to_string(n) + " in " + describe(shape));
    // Also with a zero elsewhere: strides and the sizes of views are products of some of these.
    fits &= !__builtin_mul_overflow(size, std::max<int64_t>(n, 1), &size);
  }
  int64_t bytes;
  fits &= !__builtin_mul_overflow(size, static_cast<int64_t>(itemsize), &bytes);
  if (!fits) throw ShapeError("shape: " + describe(shape) + " has more elements than memory can");
  return std::find(shape.begin(), shape.end(), 0) == shape.end() ? size : 0;
}

void row_major(Dims shape, int64_t* strides) noexcept {
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = step;
    step *= std::max<int64_t>(shape[i], 1);
  }
}

namespace {

// Memory for all elements; a watch of the pool gets their shape.
Ref<Chunk> allocate_for(const Tensor& x, Device device) {
  const size_t bytes = static_cast<size_t>(x.size) * x.itemsize();
  if (!Pool::watch.load(std::memory_order_relaxed)) [[likely]]
    return Chunk::allocate(device, bytes);
  struct ResetPurpose {
    ~ResetPurpose() { PoolWatch::purpose = {}; }
  } const reset;
  PoolWatch::purpose = {x.shape, x.ndim, static_cast<uint8_t>(x.dtype)};
  return Chunk::allocate(device, bytes);
}

}  // namespace

Tensor Tensor::empty(Dims shape, DType dtype, Device device) {
  Tensor x;
  x.size = checked_size(shape, size_of(dtype));
  x.dtype = dtype;
  x.ndim = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), x.shape);
  row_major(shape, x.strides);
  x.chunk = allocate_for(x, device);
  x.data = x.chunk->data;
  return x;
}

Tensor Tensor::empty_like(const Tensor& like, DType dtype, Device device) {
  if (size_of(dtype) > like.itemsize()) return empty(like.dims(), dtype, device);  // the bytes may not fit
  Tensor x;
  x.size = like.size;
  x.dtype = dtype;
  x.ndim = like.ndim;
  std::copy_n(like.shape, like.ndim, x.shape);
  row_major(like.dims(), x.strides);
  x.chunk = allocate_for(x, device);
  x.data = x.chunk->data;
  return x;
}

Tensor Tensor::as_strided(char* first, Dims new_shape, Dims new_strides) const {
  Tensor x;
  x.chunk = chunk;
  x.data = first;
  x.dtype = dtype;
  x.ndim = static_cast<int>(new_shape.size());
  x.size = 1;
  bool fits = true;  // repeated elements need no memory that would bound them
  for (int i = 0; i < x.ndim; ++i) {
    x.shape[i] = new_shape[static_cast<size_t>(i)];
    x.strides[i] = new_strides[static_cast<size_t>(i)];
    fits &= !__builtin_mul_overflow(x.size, x.shape[i], &x.size);
  }
  int64_t bytes;
  fits &= !__builtin_mul_overflow(x.size, static_cast<int64_t>(itemsize()), &bytes);
  if (!fits) throw ShapeError("shape: " + describe(new_shape) + " has more elements than memory can");
  return x;
}

Tensor Tensor::window(int64_t offset, Dims sizes, Dims steps) const {
  if (sizes.size() != steps.size())
    throw ValueError("window: " + std::to_string(sizes.size()) + " sizes and " +
                     std::to_string(steps.size()) + " strides");
  checked_size(sizes, itemsize());
  // The elements are in the memory of x, however far apart; counted from its beginning.
  const auto item = static_cast<int64_t>(itemsize());
  __int128 first = (data - chunk->data) / item + static_cast<__int128>(offset), last = first;
  bool is_empty = false;
  for (size_t d = 0; d < sizes.size(); ++d) {
    is_empty |= sizes[d] == 0;
    const __int128 reach = static_cast<__int128>(sizes[d] - 1) * steps[d];
    (reach < 0 ? first : last) += reach;
  }
  if (is_empty) first = last = 0;
  if (first < 0 || (last + !is_empty) * item > static_cast<__int128>(chunk->bytes))
    throw ValueError("window: it is not in the memory of x: x is " + describe(*this));
  return as_strided(data + offset * item, sizes, steps);
}

bool Tensor::contiguous() const noexcept {
  int64_t step = 1;
  for (int i = ndim; i-- > 0;) {
    if (shape[i] != 1 && strides[i] != step && size != 0) return false;
    step *= shape[i];
  }
  return true;
}

bool Tensor::dense() const noexcept {
  if (contiguous()) return true;
  int order[kMaxDims];
  int count = 0;
  for (int d = 0; d < ndim; ++d)
    if (shape[d] != 1) order[count++] = d;
  std::sort(order, order + count,
            [&](int a, int b) { return std::pair(strides[a], shape[a]) < std::pair(strides[b], shape[b]); });
  int64_t step = 1;
  for (int i = 0; i < count; ++i) {
    if (strides[order[i]] != step) return false;
    step *= shape[order[i]];
  }
  return true;
}

bool Tensor::covers_chunk() const noexcept {
  return static_cast<size_t>(size) * itemsize() == chunk->bytes && !may_overlap_itself(view());
}

Tensor permute(const Tensor& x, std::span<const int> axes) {
  Tensor y = x;
  bool used[kMaxDims] = {};
  auto refuse = [&] {
    std::string text = "permute_dims: axes (";
    for (size_t i = 0; i < axes.size(); ++i) text += (i ? ", " : "") + std::to_string(axes[i]);
    throw ShapeError(text + ") are not a permutation of the " + std::to_string(x.ndim) + " of x, " +
                     describe(x));
  };
  if (static_cast<int>(axes.size()) != x.ndim) refuse();
  for (int i = 0; i < x.ndim; ++i) {
    int axis = axes[static_cast<size_t>(i)];
    if (axis < 0) axis += x.ndim;
    if (axis < 0 || axis >= x.ndim || std::exchange(used[axis], true)) refuse();
    y.shape[i] = x.shape[axis];
    y.strides[i] = x.strides[axis];
  }
  return y;
}

Tensor transpose_last(const Tensor& x) {
  if (x.ndim < 2) throw ShapeError("mT: needs at least 2 dimensions: x is " + describe(x));
  Tensor y = x;
  std::swap(y.shape[x.ndim - 1], y.shape[x.ndim - 2]);
  std::swap(y.strides[x.ndim - 1], y.strides[x.ndim - 2]);
  return y;
}

Tensor reversed(const Tensor& x) {
  Tensor y = x;
  std::reverse(y.shape, y.shape + y.ndim);
  std::reverse(y.strides, y.strides + y.ndim);
  return y;
}

Tensor broadcast_to(const Tensor& x, Dims shape) {
  checked_size(shape, x.itemsize());
  const int more = static_cast<int>(shape.size()) - x.ndim;
  auto refuse = [&] {
    throw ShapeError("broadcast_to: x does not fit " + describe(shape) + ": x is " + describe(x));
  };
  if (more < 0) refuse();
  int64_t strides[kMaxDims] = {};
  for (int i = 0; i < x.ndim; ++i) {
    if (x.shape[i] == shape[static_cast<size_t>(i + more)])
      strides[i + more] = x.strides[i];
    else if (x.shape[i] != 1)
      refuse();
  }
  return x.as_strided(x.data, shape, {strides, shape.size()});
}

void resolve_shape(const Tensor& x, Dims shape, int64_t* resolved) {
  auto refuse = [&] {
    throw ShapeError("reshape: " + std::to_string(x.size) + " elements do not fit " + describe(shape) +
                     ": x is " + describe(x));
  };
  std::copy(shape.begin(), shape.end(), resolved);
  int64_t* inferred = nullptr;
  int64_t product = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == -1) {
      if (inferred) throw ShapeError("reshape: more than one size is -1 in " + describe(shape));
      inferred = &resolved[i];
    } else if (shape[i] < 0) {
      throw ShapeError("reshape: negative size " + std::to_string(shape[i]) + " in " + describe(shape));
    } else if (__builtin_mul_overflow(product, shape[i], &product)) {
      refuse();
    }
  }
  if (inferred) {
    if (product == 0 || x.size % product != 0) refuse();
    *inferred = x.size / product;
  } else if (product != x.size) {
    refuse();
  }
  checked_size({resolved, shape.size()}, x.itemsize());  // strides are products of sizes, also beside a zero
}

bool reshape_view(const Tensor& x, Dims shape, Tensor& result) {
  int64_t strides[kMaxDims];
  if (x.size == 0 || x.contiguous()) {
    row_major(shape, strides);
    result = x.as_strided(x.data, shape, {strides, shape.size()});
    return true;
  }
  // Both shapes fall into groups of equal product, found from the front. The old dimensions of a group must
  // be mergeable into one, which the new ones then divide. Old dimensions of size 1 take no part.
  int64_t old_shape[kMaxDims], old_strides[kMaxDims];
  int old_ndim = 0;
  for (int i = 0; i < x.ndim; ++i) {
    if (x.shape[i] == 1) continue;
    old_shape[old_ndim] = x.shape[i];
    old_strides[old_ndim++] = x.strides[i];
  }
  const int new_ndim = static_cast<int>(shape.size());
  int old_axis = 0, new_axis = 0;
  while (new_axis < new_ndim) {
    const int old_begin = old_axis, new_begin = new_axis;
    int64_t old_product = old_axis < old_ndim ? old_shape[old_axis++] : 1;
    int64_t new_product = shape[static_cast<size_t>(new_axis++)];
    while (old_product != new_product) {
      if (new_product < old_product)
        new_product *= shape[static_cast<size_t>(new_axis++)];
      else
        old_product *= old_shape[old_axis++];
    }
    for (int i = old_begin; i + 1 < old_axis; ++i)
      if (old_strides[i] != old_strides[i + 1] * old_shape[i + 1]) return false;
    int64_t step = old_axis > old_begin ? old_strides[old_axis - 1] : 0;
    for (int i = new_axis; i-- > new_begin;) {
      strides[i] = step;
      step *= shape[static_cast<size_t>(i)];
    }
  }
  result = x.as_strided(x.data, shape, {strides, shape.size()});
  return true;
}

namespace {

void apply_integer(const Tensor& x, int axis, int64_t i, Tensor& y) {
  const int64_t n = x.shape[axis];
  if (i < -n || i >= n)
    throw IndexError("index " + std::to_string(i) + " is out of range for axis " + std::to_string(axis) +
                     " of size " + std::to_string(n) + ": x is " + describe(x));
  if (x.size) y.data += (i < 0 ? i + n : i) * x.strides[axis] * static_cast<int64_t>(x.itemsize());
}

// Python's slice.indices.
void apply_slice(const Tensor& x, int axis, const IndexItem& item, Tensor& y) {
  const int64_t n = x.shape[axis], step = item.step;
  if (step == 0) throw ValueError("slice step cannot be zero");
  const int64_t lowest = step < 0 ? -1 : 0, highest = step < 0 ? n - 1 : n;
  auto clip = [&](int64_t i) { return std::clamp(i < 0 ? i + n : i, lowest, highest); };
  const int64_t start = item.has_start ? clip(item.start) : (step < 0 ? highest : lowest);
  const int64_t stop = item.has_stop ? clip(item.stop) : (step < 0 ? lowest : highest);
  int64_t length = 0;
  if (step > 0 && start < stop) length = (stop - start - 1) / step + 1;
  if (step < 0 && stop < start) length = (start - stop - 1) / -step + 1;
  if (length > 0 && x.size) y.data += start * x.strides[axis] * static_cast<int64_t>(x.itemsize());
  y.shape[y.ndim] = length;
  // A single element needs no step, and a huge one might overflow.
  y.strides[y.ndim++] = length > 1 ? x.strides[axis] * step : x.strides[axis];
}

}  // namespace

Tensor index(const Tensor& x, std::span<const IndexItem> items) {
  using Kind = IndexItem::Kind;
  int used = 0, added = 0;
  bool has_ellipsis = false;
  for (const IndexItem& item : items) {
    used += item.kind == Kind::integer || item.kind == Kind::slice;
    added += item.kind == Kind::newaxis;
    added -= item.kind == Kind::integer;
    if (item.kind == Kind::ellipsis && std::exchange(has_ellipsis, true))
      throw IndexError("an index can only have a single ellipsis ('...')");
  }
  if (used > x.ndim)
    throw IndexError("too many indices: " + std::to_string(used) + " for " + std::to_string(x.ndim) +
                     " dimensions: x is " + describe(x));
  if (x.ndim + added > kMaxDims)
    throw IndexError("index: more than " + std::to_string(kMaxDims) + " dimensions");
  Tensor y;
  y.chunk = x.chunk;
  y.data = x.data;
  y.dtype = x.dtype;
  int axis = 0;
  auto keep = [&](int count) {
    for (; count > 0; --count, ++axis) {
      y.shape[y.ndim] = x.shape[axis];
      y.strides[y.ndim++] = x.strides[axis];
    }
  };
  for (const IndexItem& item : items) {
    switch (item.kind) {
      case Kind::integer:
        apply_integer(x, axis++, item.start, y);
        break;
      case Kind::slice:
        apply_slice(x, axis++, item, y);
        break;
      case Kind::newaxis:
        y.shape[y.ndim] = 1;
        y.strides[y.ndim++] = 0;
        break;
      case Kind::ellipsis:
        keep(x.ndim - used);
        break;
    }
  }
  keep(x.ndim - axis);
  y.size = std::accumulate(y.shape, y.shape + y.ndim, int64_t{1}, std::multiplies<>());
  return y;
}

}  // namespace weft
