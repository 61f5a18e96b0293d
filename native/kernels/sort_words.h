// sort_words.h: sorting unsigned words ascending: what every sort is made of, once its elements are turned
// into words of the same order (keys.h). Pure; several threads take part if there are many words.
#pragma once

#include <cstdint>

namespace weft {

void sort_words(uint32_t* words, int64_t count);
void sort_words(uint64_t* words, int64_t count);

}  // namespace weft
