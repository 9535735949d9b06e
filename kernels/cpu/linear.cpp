#include "kernels/cpu/linear.h"

#include "kernels/cpu/gemm.h"

namespace stowage::cpu {
namespace {

std::int64_t weight_stride(const LinearShape& shape) {
  return shape.transposed ? shape.inputs : shape.outputs;
}

}  // namespace

template <class T>
void linear(const LinearShape& shape, const T* x, const T* weight, const T* bias, T* y) {
  const Product<T> product{shape.tokens,
                           shape.outputs,
                           shape.inputs,
                           {x, shape.inputs},
                           {weight, weight_stride(shape), shape.transposed},
                           y,
                           shape.outputs};
  multiply(product, bias);
}

template <class T>
void linear_backward_input(const LinearShape& shape, const T* dy, const T* weight, T* dx, bool add) {
  const Product<T> product{shape.tokens,
                           shape.inputs,
                           shape.outputs,
                           {dy, shape.outputs},
                           {weight, weight_stride(shape), !shape.transposed},
                           dx,
                           shape.inputs};
  multiply(product, static_cast<const T*>(nullptr), add);
}

template <class T, class Out>
void linear_backward_weight(const LinearShape& shape, const T* x, const T* dy, Out* dweight, bool add) {
  Product<T, Out> product{shape.inputs,        shape.outputs, shape.tokens, {x, shape.inputs, true},
                          {dy, shape.outputs}, dweight,       shape.outputs};
  if (shape.transposed) {
    product = {shape.outputs,     shape.inputs, shape.tokens, {dy, shape.outputs, true},
               {x, shape.inputs}, dweight,      shape.inputs};
  }
  multiply(product, static_cast<const T*>(nullptr), add);
}

template <class T, class Out>
void linear_backward_bias(const LinearShape& shape, const T* dy, Out* dbias, bool add) {
  column_sum(shape.tokens, shape.outputs, dy, dbias, add);
}

template void linear(const LinearShape&, const float*, const float*, const float*, float*);
template void linear(const LinearShape&, const double*, const double*, const double*, double*);
template void linear_backward_input(const LinearShape&, const float*, const float*, float*, bool);
template void linear_backward_input(const LinearShape&, const double*, const double*, double*, bool);
template void linear_backward_weight(const LinearShape&, const float*, const float*, float*, bool);
template void linear_backward_weight(const LinearShape&, const double*, const double*, double*, bool);
template void linear_backward_bias(const LinearShape&, const float*, float*, bool);
template void linear_backward_bias(const LinearShape&, const double*, double*, bool);

template void linear(const LinearShape&, const Bfloat16*, const Bfloat16*, const Bfloat16*, Bfloat16*);
template void linear_backward_input(const LinearShape&, const Bfloat16*, const Bfloat16*, Bfloat16*, bool);
template void linear_backward_weight(const LinearShape&, const Bfloat16*, const Bfloat16*, Bfloat16*, bool);
template void linear_backward_weight(const LinearShape&, const Bfloat16*, const Bfloat16*, float*, bool);
template void linear_backward_bias(const LinearShape&, const Bfloat16*, Bfloat16*, bool);
template void linear_backward_bias(const LinearShape&, const Bfloat16*, float*, bool);
template void linear(const LinearShape&, const Float16*, const Float16*, const Float16*, Float16*);
template void linear_backward_input(const LinearShape&, const Float16*, const Float16*, Float16*, bool);
template void linear_backward_weight(const LinearShape&, const Float16*, const Float16*, Float16*, bool);
template void linear_backward_weight(const LinearShape&, const Float16*, const Float16*, float*, bool);
template void linear_backward_bias(const LinearShape&, const Float16*, Float16*, bool);
template void linear_backward_bias(const LinearShape&, const Float16*, float*, bool);

}  // namespace stowage::cpu
