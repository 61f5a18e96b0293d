// lstm_cell.h: what a step of an LSTM does beside its products: gates, cells, outputs, and their gradients.
//
// Everything inside is float32; outputs and gradients of gates are of the layer's type. A step works on some
// units of all rows, so threads that own units share nothing. Elements of one row are next to each other.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace weft {

// Rows of `units` numbers each; of gates four times as many, in the order i, f, g, o.
struct LstmCell {
  int64_t rows, units;
  DType dtype;          // of what is not float32
  float* gates;         // forward: the inputs' part of what they are of, becomes the gates
  const float* before;  // cells
  float* after;         // may be `before`, forward
};

struct LstmForward : LstmCell {
  const float* recurrent;  // the part of the state before
  char* h;                 // of dtype
  int64_t h_row;           // in elements
};
void lstm_forward(const LstmForward& step, int64_t begin, int64_t end);

struct LstmBackward : LstmCell {
  const float* dh;  // from the step after
  const char* dy;   // of dtype
  int64_t dy_row;   // in elements
  float* dc;        // from the step after, becomes what goes to the step before
  char* dgates;     // of dtype: gradients of what the products gave
};
void lstm_backward(const LstmBackward& step, int64_t begin, int64_t end);

}  // namespace weft
