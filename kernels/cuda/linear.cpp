#include "kernels/cuda/linear.h"

#include "kernels/cuda/gemm.h"
#include "kernels/math/bfloat16.h"

namespace stowage::cuda {
namespace {

template <class T>
Matrix matrix(const T* data, bool transposed = false) {
  return {data, data_type<T>, transposed};
}

template <class T>
Product forward(const LinearShape& shape, const T* x, const T* weight, const T* bias, T* y) {
  Product product{shape.tokens, shape.outputs, shape.inputs, matrix(x), matrix(weight, shape.transposed),
                  matrix(y)};
  product.epilogue = bias == nullptr ? Epilogue::none : Epilogue::bias;
  product.bias = bias;
  product.name = "linear";
  return product;
}

}  // namespace

template <class T>
void linear(const LinearShape& shape, const T* x, const T* weight, const T* bias, T* y, void* stream) {
  multiply(forward(shape, x, weight, bias, y), stream);
}

template <class T>
void linear_gelu(const LinearShape& shape, GeluForm form, const T* x, const T* weight, const T* bias, T* pre,
                 T* y, void* stream) {
  // cuBLASLt's GELU is less precise than ours in f32.
  if (sizeof(T) == 2 && form == GeluForm::tanh) {
    Product fused = forward(shape, x, weight, bias, y);
    fused.epilogue = Epilogue::bias_gelu_tanh;
    fused.pre = pre;
    fused.name = "linear_gelu";
    return multiply(fused, stream);
  }
  Product product = forward(shape, x, weight, bias, pre);
  product.name = "linear_gelu";
  multiply(product, stream);
  gelu(form, shape.tokens * shape.outputs, pre, y, stream);
}

template <class T>
void linear_backward_input(const LinearShape& shape, const T* dy, const T* weight, T* dx, bool add,
                           void* stream) {
  Product product{shape.tokens, shape.inputs, shape.outputs, matrix(dy), matrix(weight, !shape.transposed),
                  matrix(dx)};
  product.add = add;
  product.name = "linear_backward_input";
  multiply(product, stream);
}

template <class T>
void linear_backward_weight(const LinearShape& shape, const T* x, const T* dy, T* dweight, void* stream) {
  Product product{shape.inputs, shape.outputs, shape.tokens, matrix(x, true), matrix(dy), matrix(dweight)};
  if (shape.transposed) {
    product = {shape.outputs, shape.inputs, shape.tokens, matrix(dy, true), matrix(x), matrix(dweight)};
  }
  product.name = "linear_backward_weight";
  multiply(product, stream);
}

template void linear(const LinearShape&, const float*, const float*, const float*, float*, void*);
template void linear(const LinearShape&, const Bfloat16*, const Bfloat16*, const Bfloat16*, Bfloat16*, void*);
template void linear_gelu(const LinearShape&, GeluForm, const float*, const float*, const float*, float*,
                          float*, void*);
template void linear_gelu(const LinearShape&, GeluForm, const Bfloat16*, const Bfloat16*, const Bfloat16*,
                          Bfloat16*, Bfloat16*, void*);
template void linear_backward_input(const LinearShape&, const float*, const float*, float*, bool, void*);
template void linear_backward_input(const LinearShape&, const Bfloat16*, const Bfloat16*, Bfloat16*, bool,
                                    void*);
template void linear_backward_weight(const LinearShape&, const float*, const float*, float*, void*);
template void linear_backward_weight(const LinearShape&, const Bfloat16*, const Bfloat16*, Bfloat16*, void*);
template void linear(const LinearShape&, const Float16*, const Float16*, const Float16*, Float16*, void*);
template void linear_gelu(const LinearShape&, GeluForm, const Float16*, const Float16*, const Float16*,
                          Float16*, Float16*, void*);
template void linear_backward_input(const LinearShape&, const Float16*, const Float16*, Float16*, bool,
                                    void*);
template void linear_backward_weight(const LinearShape&, const Float16*, const Float16*, Float16*, void*);

}  // namespace stowage::cuda
