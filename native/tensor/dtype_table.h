// dtype_table.h: the element types, written by make_dtypes.py (./dev stub) from src/weft/base/dtype.py.
// clang-format off
#pragma once

//  enumerator, name, short name, kind, bits, digits, accumulation, format of the buffer protocol (null: none)
#define WEFT_DTYPES(X) \
  X(bool_, "bool", "bool", boolean, 8, 1, int64, "?") \
  X(int8, "int8", "i8", signed_integer, 8, 7, int8, "b") \
  X(int16, "int16", "i16", signed_integer, 16, 15, int16, "h") \
  X(int32, "int32", "i32", signed_integer, 32, 31, int32, "i") \
  X(int64, "int64", "i64", signed_integer, 64, 63, int64, "q") \
  X(uint8, "uint8", "u8", unsigned_integer, 8, 8, uint8, "B") \
  X(uint16, "uint16", "u16", unsigned_integer, 16, 16, uint16, "H") \
  X(uint32, "uint32", "u32", unsigned_integer, 32, 32, uint32, "I") \
  X(uint64, "uint64", "u64", unsigned_integer, 64, 64, uint64, "Q") \
  X(float16, "float16", "f16", floating, 16, 11, float32, "e") \
  X(bfloat16, "bfloat16", "bf16", floating, 16, 8, float32, nullptr) \
  X(float32, "float32", "f32", floating, 32, 24, float32, "f") \
  X(float64, "float64", "f64", floating, 64, 53, float64, "d") \
  X(complex64, "complex64", "c64", complex_floating, 64, 24, complex64, "Zf") \
  X(complex128, "complex128", "c128", complex_floating, 128, 53, complex128, "Zd")
