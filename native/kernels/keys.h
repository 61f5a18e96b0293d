// keys.h: elements as unsigned words of the same order, so that one sort serves all types.
//
// Signed integers have their sign flipped; negative floats all bits. NaN, of any sign and payload, is one
// word that the caller chooses; decode() gives a NaN for the words of Order::ascending and descending.
#pragma once

#include <cstdint>

#include "tensor/convert.h"

namespace weft {

// word = (rank in ascending order) ^ flip, for NaN `nan`. With merge_zeros, -0 and 0 are the same word;
// without it -0 comes first and decode() gives it back.
template <class Word>
struct Order {
  Word flip, nan;
  bool merge_zeros;

  static Order make(bool descending, bool nan_high, bool merge_zeros) {
    const auto ones = static_cast<Word>(-1);
    return {descending ? ones : Word{0}, nan_high ? ones : Word{0}, merge_zeros};
  }
};

template <class T>
using WordOf = std::conditional_t<
    sizeof(T) == 1, uint8_t,
    std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>>;

namespace detail {

template <class T>
constexpr bool kIsFloat = std::floating_point<T> || std::same_as<T, Float16> || std::same_as<T, BFloat16>;
template <class Word>
constexpr Word kSign = static_cast<Word>(Word{1} << (sizeof(Word) * 8 - 1));
template <class T>
constexpr WordOf<T> kInfinity = sizeof(T) == 8              ? static_cast<WordOf<T>>(0x7ff0000000000000)
                                : sizeof(T) == 4            ? static_cast<WordOf<T>>(0x7f800000)
                                : std::same_as<T, BFloat16> ? static_cast<WordOf<T>>(0x7f80)
                                                            : static_cast<WordOf<T>>(0x7c00);

template <class T>
[[gnu::always_inline]] inline WordOf<T> encode(const char* from, const Order<WordOf<T>>& order) {
  using Word = WordOf<T>;
  using Signed = std::make_signed_t<Word>;
  auto bits = load_as<Word>(from);
  if constexpr (std::same_as<T, Bool>) bits = bits != 0;
  if constexpr (kIsFloat<T>) {
    const bool nan = static_cast<Word>(bits & ~kSign<Word>) > kInfinity<T>;
    bits = order.merge_zeros && bits == kSign<Word> ? Word{0} : bits;
    const auto negative = static_cast<Word>(static_cast<Signed>(bits) >> (sizeof(Word) * 8 - 1));
    const auto word = static_cast<Word>(bits ^ (negative | kSign<Word>)^order.flip);
    return nan ? order.nan : word;
  } else if constexpr (std::signed_integral<T>) {
    return static_cast<Word>(bits ^ kSign<Word> ^ order.flip);
  } else {
    return static_cast<Word>(bits ^ order.flip);
  }
}

template <class T>
[[gnu::always_inline]] inline WordOf<T> decode(WordOf<T> word, WordOf<T> flip) {
  using Word = WordOf<T>;
  using Signed = std::make_signed_t<Word>;
  word = static_cast<Word>(word ^ flip);
  if constexpr (kIsFloat<T>) {
    const auto positive = static_cast<Word>(static_cast<Signed>(word) >> (sizeof(Word) * 8 - 1));
    return static_cast<Word>(word ^ (static_cast<Word>(~positive) | kSign<Word>));
  } else if constexpr (std::signed_integral<T>) {
    return static_cast<Word>(word ^ kSign<Word>);
  } else {
    return word;
  }
}

}  // namespace detail
}  // namespace weft
