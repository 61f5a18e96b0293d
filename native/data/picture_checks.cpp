#include "data/picture_checks.h"

#include "engine/error.h"

namespace weft {

Picture as_picture(const uint8_t* data, const int64_t shape[3], const int64_t strides[3],
                   const char* function) {
  const auto refuse = [&](bool wrong, const char* fact) {
    if (wrong) throw ValueError(std::string(function) + ": " + fact);
  };
  const int64_t height = shape[0], width = shape[1], channels = shape[2];
  refuse(channels < 1 || channels > 4, "a picture has 1 to 4 channels in its last axis");
  refuse(height == 0 || width == 0, "the picture is empty");
  refuse((channels > 1 && strides[2] != 1) || (width > 1 && strides[1] != channels),
         "pixels of a row must lie side by side");
  return {const_cast<uint8_t*>(data), height, width, channels, strides[0]};
}

void check_same_channels(const Picture& a, const Picture& b, const char* function) {
  if (a.channels != b.channels)
    throw ValueError(std::string(function) + ": channels differ: " + std::to_string(a.channels) + " and " +
                     std::to_string(b.channels));
}

void check_same_size(const Picture& a, const Picture& b, const char* function) {
  check_same_channels(a, b, function);
  if (a.height != b.height || a.width != b.width)
    throw ValueError(std::string(function) + ": pictures differ in size");
}

void check_inside(const Picture& from, int64_t y, int64_t x, int64_t h, int64_t w, const char* function) {
  // No sum of a number that is too large.
  if (y >= 0 && x >= 0 && h >= 0 && w >= 0 && h <= from.height && w <= from.width && y <= from.height - h &&
      x <= from.width - w)
    return;
  const auto range = [](int64_t first, int64_t size) {
    const auto end = static_cast<int64_t>(static_cast<uint64_t>(first) + static_cast<uint64_t>(size));
    return "[" + std::to_string(first) + ", " + std::to_string(end) + ")";
  };
  throw ValueError(std::string(function) + ": the part " + range(y, h) + " x " + range(x, w) +
                   " is not inside of " + std::to_string(from.height) + " x " + std::to_string(from.width) +
                   " pixels");
}

void check_count(size_t count, int64_t needed, const char* function, const char* what) {
  if (count != static_cast<size_t>(needed))
    throw ValueError(std::string(function) + ": " + what + " needs " + std::to_string(needed) +
                     " numbers, got " + std::to_string(count));
}

Resample resample_of(const std::string& name) {
  if (name == "nearest") return Resample::nearest;
  if (name == "linear") return Resample::linear;
  if (name == "area") return Resample::area;
  if (name == "cubic") return Resample::cubic;
  throw ValueError("filter must be 'nearest', 'linear', 'area' or 'cubic', got '" + name + "'");
}

}  // namespace weft
