// dtype.cpp: names of the element types, in the order of the enumeration.
#include "tensor/dtype.h"

namespace weft {
namespace {

constexpr const char* kShortNames[kDTypes] = {"bool", "i8",  "i16", "i32",  "i64", "u8", "u16",
                                              "u32",  "u64", "f16", "bf16", "f32", "f64"};
constexpr const char* kNames[kDTypes] = {"bool",     "int8",    "int16",  "int32",  "int64",
                                         "uint8",    "uint16",  "uint32", "uint64", "float16",
                                         "bfloat16", "float32", "float64"};

}  // namespace

const char* short_name(DType dtype) noexcept { return kShortNames[static_cast<int>(dtype)]; }
const char* name_of(DType dtype) noexcept { return kNames[static_cast<int>(dtype)]; }

}  // namespace weft
