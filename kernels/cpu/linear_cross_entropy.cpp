#include "kernels/cpu/linear_cross_entropy.h"

#include <algorithm>

#include "kernels/cpu/cross_entropy.h"
#include "src/base/parallel_for.h"

namespace stowage::cpu {
namespace {

template <class T>
void add_parameter_gradients(const LinearCrossEntropy<T>& of, const LinearShape& here, const T* x, bool add) {
  const bool has_bias = of.dbias != nullptr;
  if (of.sums_apart()) {
    linear_backward_weight(here, x, of.logits, of.dweight_sum, add);
    if (has_bias) linear_backward_bias(here, of.logits, of.dbias_sum, add);
  } else {
    linear_backward_weight(here, x, of.logits, of.dweight, add);
    if (has_bias) linear_backward_bias(here, of.logits, of.dbias, add);
  }
}

template <class T>
void round_sums(std::int64_t count, const Sum<T>* sums, T* to) {
  constexpr std::int64_t chunk = 16384;
  parallel_for(count, chunk,
               [&](std::int64_t begin, std::int64_t end) { store(end - begin, sums + begin, to + begin); });
}

}  // namespace

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
                                 of.logits, of.loss_scale);
    add_parameter_gradients(of, here, x, first > 0);
    linear_backward_input(here, of.logits, of.weight, of.dx + first * here.inputs);
  }
  if (of.sums_apart()) {
    round_sums(of.shape.inputs * of.shape.outputs, of.dweight_sum, of.dweight);
    if (of.dbias != nullptr) round_sums(of.shape.outputs, of.dbias_sum, of.dbias);
  }
  *of.loss = count == 0 ? 0 : sum / static_cast<double>(count);
}

template void linear_cross_entropy(const LinearCrossEntropy<float>&);
template void linear_cross_entropy(const LinearCrossEntropy<double>&);
template void linear_cross_entropy(const LinearCrossEntropy<Bfloat16>&);
template void linear_cross_entropy(const LinearCrossEntropy<Float16>&);

}  // namespace stowage::cpu
