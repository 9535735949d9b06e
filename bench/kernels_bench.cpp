// The CPU kernels at the shapes of the default GPT: 6 layers, width 384, 6 heads, sequence 256, batch 8,
// vocabulary 256. The counter `step_ms` is the kernel's time in one training step.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/cross_entropy.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/embedding.h"
#include "kernels/cpu/layer_norm.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/optimizer.h"
#include "src/base/parallel_for.h"

namespace stowage::cpu {
namespace {

constexpr std::int64_t layers = 6, width = 384, heads = 6, sequence = 256, batch = 8, vocabulary = 256;
constexpr std::int64_t tokens = batch * sequence;

// Returns memory that is kept from one benchmark to the next. Each operand of a kernel has its own `slot`.
float* memory(int slot, std::int64_t count) {
  static std::map<int, std::vector<float>> slots;
  std::vector<float>& data = slots[slot];
  if (static_cast<std::int64_t>(data.size()) < count) {
    data.resize(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < data.size(); ++i)
      data[i] = static_cast<float>(i * 2654435761U % 1000) * 1e-3F - 0.5F;
  }
  return data.data();
}

std::int32_t* token_memory() {
  static std::vector<std::int32_t> data(tokens);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::int32_t>(i * 7919 % vocabulary);
  return data.data();
}

// Registers a benchmark. `calls`: how often a training step calls the body.
template <class Body>
void measure(const std::string& name, std::int64_t calls, double flops, Body body) {
  benchmark::RegisterBenchmark(
      name.c_str(),
      [=](benchmark::State& state) {
        for (auto step : state) {
          static_cast<void>(step);
          body();
        }
        using Counter = benchmark::Counter;
        state.counters["step_ms"] =
            Counter(1e-3 / static_cast<double>(calls), Counter::kIsIterationInvariantRate | Counter::kInvert);
        if (flops > 0) state.counters["flops"] = Counter(flops, Counter::kIsIterationInvariantRate);
      })
      ->MeasureProcessCPUTime()
      ->UseRealTime();
}

void measure_linear(const std::string& name, std::int64_t calls, LinearShape shape) {
  shape.tokens = tokens;
  const std::int64_t weights = shape.inputs * shape.outputs;
  const double flops = 2.0 * static_cast<double>(tokens * weights);
  measure(name + "/forward", calls, flops, [=] {
    linear(shape, memory(0, tokens * shape.inputs), memory(1, weights), memory(2, shape.outputs),
           memory(3, tokens * shape.outputs));
  });
  measure(name + "/backward_input", calls, flops, [=] {
    linear_backward_input(shape, memory(3, tokens * shape.outputs), memory(1, weights),
                          memory(0, tokens * shape.inputs));
  });
  measure(name + "/backward_weight", calls, flops, [=] {
    linear_backward_weight(shape, memory(0, tokens * shape.inputs), memory(3, tokens * shape.outputs),
                           memory(1, weights));
  });
  if (shape.transposed) return;  // the head has no bias
  measure(name + "/backward_bias", calls, 0,
          [=] { linear_backward_bias(shape, memory(3, tokens * shape.outputs), memory(2, shape.outputs)); });
}

void measure_linears() {
  measure_linear("linear/qkv", layers, {0, width, 3 * width});
  measure_linear("linear/projection", layers, {0, width, width});
  measure_linear("linear/up", layers, {0, width, 4 * width});
  measure_linear("linear/down", layers, {0, 4 * width, width});
  measure_linear("linear/head", 1, {0, width, vocabulary, true});
}

void measure_attention(double dropout, const std::string& name) {
  const AttentionShape shape{batch, heads, sequence, width, true, dropout, {1, 2, 3}};
  constexpr std::int64_t calls = layers;
  measure(name + "/forward", calls, 0, [=] {
    attention(shape, memory(0, tokens * 3 * width), memory(1, tokens * width), memory(2, tokens * heads));
  });
  measure(name + "/backward", calls, 0, [=] {
    attention_backward(shape, memory(0, tokens * 3 * width), memory(1, tokens * width),
                       memory(2, tokens * heads), memory(3, tokens * width), memory(4, tokens * 3 * width));
  });
}

void measure_norms() {
  constexpr std::int64_t calls = 2 * layers + 1, elements = tokens * width;
  measure("layer_norm/forward", calls, 0, [=] {
    layer_norm(tokens, width, 1e-5, memory(0, elements), memory(1, width), memory(2, width),
               memory(3, elements), memory(4, tokens), memory(5, tokens));
  });
  measure("layer_norm/backward", calls, 0, [=] {
    layer_norm_backward(tokens, width, memory(0, elements), memory(1, width), memory(4, tokens),
                        memory(5, tokens), memory(3, elements), memory(7, elements), memory(6, elements));
  });
  measure("layer_norm/backward_parameters", calls, 0, [=] {
    layer_norm_backward_parameters(tokens, width, memory(0, elements), memory(4, tokens), memory(5, tokens),
                                   memory(3, elements), memory(1, width), memory(2, width));
  });
}

void measure_elementwise() {
  constexpr std::int64_t wide = tokens * 4 * width, narrow = tokens * width;
  for (auto [form, name] : {std::pair{GeluForm::tanh, "gelu/tanh"}, std::pair{GeluForm::erf, "gelu/erf"}}) {
    const GeluForm of = form;
    measure(std::string(name) + "/forward", layers, 0,
            [=] { gelu(of, wide, memory(0, wide), memory(1, wide)); });
    measure(std::string(name) + "/backward", layers, 0,
            [=] { gelu_backward(of, wide, memory(0, wide), memory(1, wide), memory(1, wide)); });
  }
  measure("add", 4 * layers, 0,
          [=] { add(narrow, memory(0, narrow), memory(1, narrow), memory(2, narrow)); });
  measure("dropout", 4 * layers, 0, [=] {
    dropout({1, 2, 3}, 0.1, narrow, memory(0, narrow), memory(0, narrow));
  });
}

void measure_ends() {
  const EmbeddingShape shape{tokens, width, vocabulary, sequence};
  constexpr std::int64_t elements = tokens * width, logits = tokens * vocabulary;
  measure("embedding/forward", 1, 0, [=] {
    embedding(shape, token_memory(), memory(1, vocabulary * width), memory(2, sequence * width),
              memory(0, elements));
  });
  measure("embedding/backward", 1, 0, [=] {
    embedding_backward(shape, token_memory(), memory(0, elements), memory(1, vocabulary * width));
  });
  measure("embedding/position_backward", 1, 0,
          [=] { position_backward(shape, memory(0, elements), memory(2, sequence * width)); });
  measure("cross_entropy/forward", 1, 0, [=] {
    double loss = 0;
    cross_entropy({tokens, vocabulary}, memory(0, logits), token_memory(), &loss, memory(1, tokens));
    benchmark::DoNotOptimize(loss);
  });
  measure("cross_entropy/backward", 1, 0, [=] {
    cross_entropy_backward({tokens, vocabulary}, memory(0, logits), token_memory(), memory(1, tokens),
                           memory(2, logits));
  });
}

void measure_optimizer() {
  // One tensor with the elements of all parameters stands for the parameter tensors.
  constexpr std::int64_t parameters = layers * 12 * width * width + (vocabulary + sequence) * width;
  measure("square_sum", 1, 0,
          [=] { benchmark::DoNotOptimize(square_sum(parameters, memory(10, parameters))); });
  measure("adamw", 1, 0, [=] {
    float* p = memory(10, parameters);
    float* m = memory(11, parameters);
    float* v = memory(12, parameters);
    adamw<float>({}, 1, parameters, {p, memory(13, parameters), m, v, p, m, v});
  });
}

}  // namespace
}  // namespace stowage::cpu

int main(int count, char** arguments) {
  using namespace stowage::cpu;
  benchmark::Initialize(&count, arguments);
  measure_linears();
  measure_attention(0, "attention");
  measure_attention(0.1, "attention_dropout");
  measure_norms();
  measure_elementwise();
  measure_ends();
  measure_optimizer();
  benchmark::RunSpecifiedBenchmarks();
}
