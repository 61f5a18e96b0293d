// lapack.h: routines of a LAPACK library, by their addresses.
//
// The library is the one that NumPy was built with; its addresses are given once, at first use, before any
// kernel that needs them is made (set_lapack), and do not change. Its matrices are stored column by column: a
// matrix in rows is its transpose there.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace weft::lapack {

// In the order of the addresses; names of LAPACK and BLAS without the letter of the type.
enum class Routine : uint8_t { potrf, getrf, getrs, getri, trsm, gelqf, orglq, gesdd, syevd, geev, gemm };
inline constexpr size_t kRoutines = 11;

inline constexpr size_t kLength = 1;  // of a character, an argument of Fortran's

// addresses: kRoutines for float, then for double, complex<float>, complex<double>; integer_bytes: 4 or 8.
void set(const std::vector<uintptr_t>& addresses, int integer_bytes);
bool is_set() noexcept;

namespace detail {
uintptr_t address(size_t type, Routine routine) noexcept;
int integer_bytes() noexcept;
}  // namespace detail

template <class T>
inline constexpr bool is_complex = !std::is_floating_point_v<T>;
template <class T>
struct RealOf {
  using Type = T;
};
template <class T>
struct RealOf<std::complex<T>> {
  using Type = T;
};
template <class T>
using Real = typename RealOf<T>::Type;

// An integer that is passed by address, of either width: little-endian, the upper half is 0.
class Integer {
 public:
  Integer(int64_t value = 0) : value_(value) {}
  int64_t* address() { return &value_; }
  int64_t value() const { return detail::integer_bytes() == 4 ? static_cast<int32_t>(value_) : value_; }

 private:
  int64_t value_;
};

// Integers that the library fills.
class Integers {
 public:
  explicit Integers(int64_t count) : words_(static_cast<size_t>(count)) {}
  int64_t* address() { return words_.data(); }
  int64_t operator[](int64_t k) const {
    return detail::integer_bytes() == 4 ? reinterpret_cast<const int32_t*>(words_.data())[k]
                                        : words_[static_cast<size_t>(k)];
  }

 private:
  std::vector<int64_t> words_;
};

// Calls a routine for numbers of type T. Behind the arguments come the lengths of those that are characters,
// 1 each, which Fortran's convention has.
template <class T, class... Arguments>
void call(Routine routine, Arguments... arguments) {
  constexpr size_t kType = (is_complex<T> ? 2 : 0) + (sizeof(Real<T>) == 8 ? 1 : 0);
  reinterpret_cast<void (*)(Arguments...)>(detail::address(kType, routine))(arguments...);
}

// The size of the workspace that a routine requested in its first element.
template <class T>
int64_t requested(T first) {
  return static_cast<int64_t>(std::real(first)) + 1;  // rounded down where the type has too few digits
}

}  // namespace weft::lapack
