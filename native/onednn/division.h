// division.h: on how many threads a product runs, and what each of them computes.
//
// An OpenMP region wakes a sleeping thread and waits for it: about 40 us, more than most products of a small
// network take. So short products run where they are asked for, and longer ones in pieces that our own team
// (team.h) shares out, whose threads need not be there. Only very long ones are left to oneDNN's regions.
#pragma once

#include <cstdint>
#include <vector>

#include "onednn/kernels.h"

namespace weft::onednn {

// Pieces of a product, of `grain` indices along dimension `dim` of c; the last may be shorter.
struct Division {
  enum class Width : uint8_t { alone, team, region } width = Width::region;
  size_t dim = 0;
  int64_t count = 1, grain = 0;
};

// For a product whose operands have c's number of dimensions (folded, see matmul.cpp).
Division divide(const Matmul& r, int threads);

// The piece at [begin, begin + size) of c's dimension `dim`, and how far from their beginnings, in bytes, its
// operands begin: a, b, bias if there is one, those of post-ops, c.
struct Piece {
  Matmul product;
  std::vector<size_t> shifts;
};
Piece cut(const Matmul& r, size_t dim, int64_t begin, int64_t size);

}  // namespace weft::onednn
