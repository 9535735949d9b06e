#include "tools/calibrate/compute_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tools/calibrate/stopwatch.h"

namespace stowage {
namespace {

constexpr std::int64_t tiny_elements = 256;
constexpr int short_repetitions = 3;

// Tokens and width of a Transformer layer, smallest first.
struct Stage {
  std::int64_t tokens, width;
};
constexpr std::array<Stage, 4> stages{{{512, 512}, {2048, 1024}, {4096, 2048}, {8192, 4096}}};

// The four products of a layer's forward pass, by multiples of the width.
struct Product {
  std::int64_t inner, columns;
};
constexpr std::array<Product, 4> products{{{1, 3}, {1, 1}, {1, 4}, {4, 1}}};

double flops_of(const MatrixSample& sample) {
  return 2 * static_cast<double>(sample.rows) * static_cast<double>(sample.inner) *
         static_cast<double>(sample.columns);
}

Op probe_op(std::string kernel, Attributes attributes, double flops) {
  Op op;
  op.name = "calibrate." + kernel;
  op.kernel = std::move(kernel);
  op.attributes = std::move(attributes);
  op.cost.flops = flops;
  return op;
}

class ComputeProbe {
 public:
  ComputeProbe(const OpProbeContext& context, const ComputeProbeOptions& options)
      : context_(context), options_(options), stopwatch_(context.device, context.lane) {}

  double launch_seconds() {
    OpProbe probe = sum_of(tiny_elements);
    auto row = [&] {
      for (int i = 0; i < options_.launches; ++i) probe.launch();
    };
    return stopwatch_.median_seconds(short_repetitions, row) / options_.launches;
  }

  double memory_rate(double launch) {
    OpProbe probe = sum_of(static_cast<std::int64_t>(options_.stream_bytes / size_of(DataType::f32)));
    const double seconds = stopwatch_.median_seconds(short_repetitions, [&] { probe.launch(); });
    return static_cast<double>(probe.bytes()) / without(seconds, launch);
  }

  MatrixRate matrix_rate(DataType type, double launch) {
    MatrixRate rate{type, 0, {}};
    for (int i = 0; i < std::min<int>(options_.most_stages, static_cast<int>(stages.size())); ++i) {
      const Stage stage = stages.at(static_cast<std::size_t>(i));
      if (i > 0 && expected_seconds(stage, rate.flops_per_second) > options_.layer_seconds) break;
      double flops = 0, seconds = 0;
      for (const Product& product : products) {
        const MatrixSample sample = measure(type, stage, product);
        rate.samples.push_back(sample);
        flops += flops_of(sample);
        seconds += without(sample.seconds, launch);
      }
      rate.flops_per_second = flops / seconds;
    }
    return rate;
  }

 private:
  // What is left of a time without the launch; never nothing.
  static double without(double seconds, double launch) {
    return std::max(seconds - launch, seconds * 1e-3 + 1e-12);
  }

  static double expected_seconds(const Stage& stage, double flops_per_second) {
    const double width = static_cast<double>(stage.width);
    return 24 * static_cast<double>(stage.tokens) * width * width / flops_per_second;
  }

  // a + b, f32. Not copied: the probe's launches point to it.
  OpProbe sum_of(std::int64_t elements) {
    const Tensor tensor = probe_tensor(DataType::f32, {elements});
    return OpProbe(context_, probe_op("add", {}, static_cast<double>(elements)), {tensor, tensor}, {tensor});
  }

  MatrixSample measure(DataType type, const Stage& stage, const Product& product) {
    MatrixSample sample{stage.tokens, product.inner * stage.width, product.columns * stage.width, 0};
    OpProbe probe(
        context_, probe_op("linear", {{"transposed", std::int64_t{0}}}, flops_of(sample)),
        {probe_tensor(type, {sample.rows, sample.inner}), probe_tensor(type, {sample.inner, sample.columns})},
        {probe_tensor(type, {sample.rows, sample.columns})});
    sample.seconds = stopwatch_.median_seconds(options_.repetitions, [&] { probe.launch(); });
    return sample;
  }

  OpProbeContext context_;
  ComputeProbeOptions options_;
  Stopwatch stopwatch_;
};

}  // namespace

void measure_compute(const OpProbeContext& context, const ComputeProbeOptions& options, MachineFile& file) {
  ComputeProbe probe(context, options);
  file.launch_seconds = probe.launch_seconds();
  file.device_bytes_per_second = probe.memory_rate(file.launch_seconds);
  for (const DataType type : options.types) {
    file.matrix.push_back(probe.matrix_rate(type, file.launch_seconds));
  }
}

}  // namespace stowage
