#include "kernels/cpu/linear_cross_entropy.h"

#include <algorithm>

#include "kernels/cpu/cross_entropy.h"

namespace stowage::cpu {

template <class T>
void linear_cross_entropy(const LinearCrossEntropy<T>& of) {
  const std::int64_t tokens = of.shape.tokens;
  const bool part = of.batch_targets != nullptr;
  const std::int64_t vocabulary = of.vocabulary == 0 ? of.shape.outputs : of.vocabulary;
  const std::int64_t count =
      counted_targets(part ? of.batch : tokens, vocabulary, part ? of.batch_targets : of.targets);
  double sum = 0;
  for (std::int64_t first = 0; first < tokens; first += of.chunk) {
    LinearShape here = of.shape;
    here.tokens = std::min(of.chunk, tokens - first);
    const T* x = of.x + first * here.inputs;
    linear<T>(here, x, of.weight, of.bias, of.logits);
    sum = cross_entropy_in_place({here.tokens, vocabulary, here.outputs}, count, sum, of.targets + first,
                                 of.logits);
    linear_backward_weight(here, x, of.logits, of.dweight, first > 0);
    if (of.dbias != nullptr) linear_backward_bias(here, of.logits, of.dbias, first > 0);
    linear_backward_input(here, of.logits, of.weight, of.dx + first * here.inputs);
  }
  *of.loss = count == 0 ? 0 : sum / static_cast<double>(count);
}

template void linear_cross_entropy(const LinearCrossEntropy<float>&);
template void linear_cross_entropy(const LinearCrossEntropy<double>&);

}  // namespace stowage::cpu
