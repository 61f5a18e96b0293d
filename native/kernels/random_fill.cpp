// random_fill.cpp: whole arrays of random numbers, from reserved positions of a random stream.
#include "kernels/kernels.h"
#include "kernels/rows.h"
#include "storage/random.h"
#include "tensor/operations.h"

namespace weft {
namespace {

// fill(y, reservation, a, b); Number: the type of a and b.
template <auto fill, class Number>
class RandomFill final : public Kernel {
 public:
  void run(const Call& call) const override {
    const uint64_t* given = call.parameters;
    fill(call.operands[0], {given[0], given[1], given[2]}, load_as<Number>(given + 3),
         load_as<Number>(given + 4));
  }
};

class Permutation final : public Kernel {
 public:
  void run(const Call& call) const override {
    const uint64_t* given = call.parameters;
    if (call.operands[1].shape[0])
      permute_rows(call.operands[1], call.operands[0], {given[0], given[1], given[2]});
  }
};

}  // namespace

Ref<Kernel> make_permutation() { return Ref<Kernel>(new Permutation); }

Ref<Kernel> make_random_fill(Draw kind) {
  switch (kind) {
    case Draw::uniform:
      return Ref<Kernel>(new RandomFill<fill_uniform, double>);
    case Draw::normal:
      return Ref<Kernel>(new RandomFill<fill_normal, double>);
    case Draw::integers:
      return Ref<Kernel>(new RandomFill<fill_integers, int64_t>);
    case Draw::bits:
      break;
  }
  throw ValueError("random numbers: no kernel for bits");
}

}  // namespace weft
