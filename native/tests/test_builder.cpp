// Programs as a planner describes them, one thing at a time: what comes of it, and what is refused.
#include "program/builder.h"

#include "tests/program_support.h"

using namespace weft;
using namespace weft::testing;

namespace {

ProgramBuilder builder(int inputs) { return {"built", {}, inputs, {}}; }

}  // namespace

TEST(builder_a_program_for_all_sizes) {
  Arrays arrays;
  ProgramBuilder b = builder(2);
  b.use(0, 3);
  b.use(1, 3);
  b.use(1, 1);  // the most that is said counts
  b.add_load("size", 0, 0, 0);
  const int y = b.add_output(DType::int64, -1, {0}, {});
  CHECK_EQ(y, 2);
  b.add_step(elements<Add>(), {0, 1, y}, 0, "add", "", {}, {2});
  b.add_result(y, -1, false, false);
  const Ref<const Program> program = b.finish(7);
  CHECK_EQ(program->serial, 7);
  CHECK_EQ(program->registers, 1);
  CHECK(program->uses == std::vector(2, Program::Use::data));
  for (const int64_t n : {1, 5, 1000}) {
    const Tensor a = counted({n}), c = counted({n}, 3, 2);
    Values wanted;
    for (int64_t i = 0; i < n; ++i) wanted.push_back(i + 3 + 2 * i);
    CHECK_EQ(values_of(launch(*program, {a, c})[0]), wanted);
  }
}

TEST(builder_parameters_and_computed_sizes) {
  Arrays arrays;
  ProgramBuilder b = builder(1);
  b.use(0, 3);
  b.add_load("extent", 0, 0, 0);
  b.add_constant(1, 2);
  b.add_compute("div", 2, 0, 1);
  b.add_constant(3, 0);
  b.add_load("stride", 4, 0, 0);
  const int half = b.add_view(DType::int64, 0, 3, {2}, {4});
  const int y = b.add_output(DType::int64, -1, {2}, {});
  CHECK_EQ(half, 1);
  CHECK_EQ(y, 2);
  b.add_number(DType::int64, 0);
  b.add_register(DType::int64, 2);
  b.add_step(elements<Scale>(), {half, y}, 1, "scale", "", {}, {1});
  b.add_result(y, -1, false, false);
  const Ref<const Program> program = b.finish(0);
  CHECK_EQ(program->numbers_taken(), size_t{1});
  // The first half, times its size.
  CHECK_EQ(values_of(launch(*program, {counted({6}, 1)}, {integer(9)})[0]), (Values{3, 6, 9}));
}

TEST(builder_refuses_unknown_words) {
  ProgramBuilder b = builder(1);
  CHECK_THROWS(b.add_load("sizes", 0, 0, 0), ValueError);
  CHECK_THROWS(b.add_load("", 0, 0, 0), ValueError);
  CHECK_THROWS(b.add_compute("mod", 0, 0, 0), ValueError);
  CHECK_THROWS(b.add_draw("Normal", DType::float32, 0, 0), ValueError);
  CHECK(draw_of("bits") == Draw::bits);
  CHECK_EQ(b.finish(0)->loads.size(), size_t{0});
}

TEST(builder_refuses_what_is_out_of_range) {
  CHECK_THROWS(builder(-1), ValueError);
  CHECK_THROWS(builder(1 << 30), ValueError);
  ProgramBuilder b = builder(1);
  for (const int input : {-1, 1, 1 << 30}) CHECK_THROWS(b.use(input, 0), ValueError);
  for (const int how : {-1, 4}) CHECK_THROWS(b.use(0, how), ValueError);
  for (const int reg : {-1, 1 << 24, INT32_MAX}) {
    CHECK_THROWS(b.add_constant(reg, 0), ValueError);
    CHECK_THROWS(b.add_load("size", reg, 0, 0), ValueError);
    CHECK_THROWS(b.add_compute("add", reg, 0, 0), ValueError);
  }
}

TEST(builder_is_used_up) {
  ProgramBuilder b = builder(1);
  b.add_result(0, -1, false, false);
  b.finish(0);
  CHECK_THROWS(b.add_result(0, -1, false, false), ValueError);
  CHECK_THROWS(b.finish(0), ValueError);
  ProgramBuilder wrong = builder(1);
  wrong.add_result(5, -1, false, false);
  CHECK_THROWS(wrong.finish(0), ValueError);
  CHECK_THROWS(wrong.finish(0), ValueError);  // what was refused is not made later
}

TEST(builder_several_parts) {
  Arrays arrays;
  const auto part = [] {
    ProgramBuilder b{"part", {}, 2, {.is_exact = true}};
    for (const int k : {0, 1}) {
      b.use(k, 3);
      b.add_input(DType::int64, {4}, {1});
    }
    b.add_constant(0, 4);
    b.add_constant(1, 1);
    const int y = b.add_output(DType::int64, -1, {0}, {1});
    b.add_step(elements<Add>(), {0, 1, y}, 0, "add", "", {}, {2});
    b.add_result(y, -1, false, false);
    return b.finish(0);
  };
  ProgramBuilder b{"all", {}, 2, {.is_exact = true}};
  b.use(0, 3);
  b.use(1, 3);
  b.add_part(part(), {0, 1}, {}, {2});
  b.add_part(part(), {2, 0}, {}, {3});
  b.add_wire(3, -1, DType::int64, {}, {4}, {1});
  const Ref<const Program> program = b.finish(0);
  const Tensor x = counted({4}), y = counted({4}, 10);
  CHECK_EQ(values_of(launch(*program, {x, y})[0]), (Values{10, 13, 16, 19}));  // x + y + x
}

TEST(tensor_windows) {
  Arrays arrays;
  const Tensor x = counted({3, 4});
  const int64_t shape[] = {2, 2}, strides[] = {4, -1};
  CHECK_EQ(values_of(x.window(5, shape, strides)), (Values{5, 4, 9, 8}));
  const int64_t none[] = {0, 2};
  CHECK_EQ(x.window(1000, none, strides).size, int64_t{0});
  CHECK_THROWS(x.window(0, shape, strides), ValueError);  // before it
  CHECK_THROWS(x.window(8, shape, strides), ValueError);  // behind it
  CHECK_THROWS(x.window(0, shape, {strides, 1}), ValueError);
  const int64_t huge[] = {INT64_MAX, INT64_MAX};
  CHECK_THROWS(x.window(5, shape, huge), ValueError);
  CHECK_THROWS(x.window(5, huge, strides), ShapeError);
}
