// division.h: on how many threads a primitive runs, and what each of them computes.
//
// An OpenMP region wakes a sleeping thread and waits for it: about 40 us, more than most products of a small
// network take. So short work runs on the calling thread, and longer work in pieces that our own team
// (team.h) shares out, whose threads need not be there. Only very long work is left to oneDNN's regions, and
// what cannot be cut.
#pragma once

#include <cstdint>
#include <vector>

#include "onednn/recipe.h"

namespace weft::onednn {

// Pieces of a result, of `grain` indices along its dimension `dim`; the last may be shorter.
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

// For images, each of which is computed apart from the others: the dimension is their first.
Division divide(const Convolution& r, int threads);

// The images [begin, begin + size), and where they begin in the operands, in the order of a call.
struct Images {
  Convolution convolution;
  std::vector<size_t> shifts;
};
Images cut(const Convolution& r, int64_t begin, int64_t size);

// What cannot be cut: alone, if it takes less on one thread than a region is worth.
Division::Width width_of(double time_ns, int threads);
// On one thread, of what is done to each byte about once.
double copying_ns(size_t bytes);

// A kernel of the steps that `make` gives, for one thread or for regions.
template <class Make>
KernelRef make_for_width(Division::Width width, Make&& make) {
  if (width == Division::Width::region) return make_ref<OnednnKernel>(make());
  const OpenMpScope alone(1);
  std::vector<std::unique_ptr<Steps>> whole;
  whole.push_back(make());
  return make_ref<OnednnKernel>(std::move(whole));
}

}  // namespace weft::onednn
