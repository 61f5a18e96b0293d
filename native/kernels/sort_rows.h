// sort_rows.h: one line of elements sorted, for the kernels that need it.
#pragma once

#include <cstdint>

#include "kernels/keys.h"

namespace weft {

// Elements `step` apart as words in consecutive memory, and back.
template <class T>
void encode_line(const char* from, int64_t step, int64_t count, const Order<WordOf<T>>& order, WordOf<T>* to);
template <class T>
void decode_line(const WordOf<T>* words, int64_t count, WordOf<T> flip, char* to, int64_t step);
// to[c] = the largest of words c, c + kColumns, ...; 0 if there is none.
inline constexpr int64_t kColumns = 64;
template <class Word>
void column_maxima(const Word* words, int64_t count, Word* to);
uint64_t largest_word(const void* words, int64_t count, size_t word_size);

// The stable order of `count` words below 2^32 of them; `permutation` gets it.
void argsort_words(const uint8_t* words, int64_t count, int64_t* permutation);
void argsort_words(const uint16_t* words, int64_t count, int64_t* permutation);
void argsort_words(const uint32_t* words, int64_t count, int64_t* permutation);
void argsort_words(const uint64_t* words, int64_t count, int64_t* permutation);

}  // namespace weft
