// picture_checks.h: what has to hold of the arguments of data/image.h. Each function raises ValueError in the
// name of `function`.
#pragma once

#include <cstddef>
#include <string>

#include "data/image.h"

namespace weft {

// An array [h, w, c] of bytes as a picture; strides in elements.
Picture as_picture(const uint8_t* data, const int64_t shape[3], const int64_t strides[3],
                   const char* function);
void check_same_channels(const Picture& a, const Picture& b, const char* function);
void check_same_size(const Picture& a, const Picture& b, const char* function);
// That the part [y, y + h) x [x, x + w) is inside.
void check_inside(const Picture& from, int64_t y, int64_t x, int64_t h, int64_t w, const char* function);
// That `what` has as many numbers as it needs.
void check_count(size_t count, int64_t needed, const char* function, const char* what);
Resample resample_of(const std::string& name);

}  // namespace weft
