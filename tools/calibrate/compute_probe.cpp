#include "tools/calibrate/compute_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/math/bfloat16.h"
#include "kernels/math/float16.h"
#include "src/graph/cost.h"
#include "stowage/error.h"
#include "tools/calibrate/stopwatch.h"

namespace stowage {
namespace {

// The number at `index` of a fixed sequence in [-1, 1) (Weyl's, with the golden ratio).
float number_at(std::uint64_t index) {
  const auto bits = static_cast<std::int32_t>(static_cast<std::uint32_t>(index * 2654435769U));
  return static_cast<float>(bits) * 0x1p-31F;
}

template <class T>
void fill(std::byte* data, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const T value(number_at(i));
    std::memcpy(data + i * sizeof value, &value, sizeof value);
  }
}

void fill(std::byte* data, DataType type, Bytes bytes) {
  const std::size_t count = bytes / size_of(type);
  switch (type) {
    case DataType::f32:
      return fill<float>(data, count);
    case DataType::f64:
      return fill<double>(data, count);
    case DataType::bf16:
      return fill<Bfloat16>(data, count);
    case DataType::f16:
      return fill<Float16>(data, count);
    default:
      throw InvalidInput("numbers are measured in f32, bf16, f16 or f64; choose one of these");
  }
}

// Brings numbers to a device tensor through a pinned piece.
void upload(Device& device, DataType type, std::byte* to, Bytes bytes) {
  const Bytes piece = std::min<Bytes>(bytes, 4_MiB);
  const DeviceMemory staging(device, MemoryKind::pinned, piece);
  fill(staging.data(), type, piece);
  const Lane lane(device, LaneRole::h2d);
  const Drain drain(device, lane.id());
  for (Bytes done = 0; done < bytes; done += piece) {
    device.copy(lane.id(), to + done, staging.data(), std::min(piece, bytes - done), "probe operand");
  }
  device.synchronise_lane(lane.id());
}

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
    return static_cast<double>(probe.bytes()) / without_launch(seconds, launch);
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
        seconds += without_launch(sample.seconds, launch);
      }
      rate.flops_per_second = flops / seconds;
    }
    return rate;
  }

 private:
  static double expected_seconds(const Stage& stage, double flops_per_second) {
    const double width = static_cast<double>(stage.width);
    return 24 * static_cast<double>(stage.tokens) * width * width / flops_per_second;
  }

  // a + b, f32. The probe is returned without a copy: its launches point to it.
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

Tensor probe_tensor(DataType type, std::vector<std::int64_t> shape) {
  Tensor tensor;
  tensor.type = type;
  tensor.shape = std::move(shape);
  return tensor;
}

OpProbe::OpProbe(const OpProbeContext& context, Op op, std::vector<Tensor> reads, std::vector<Tensor> writes)
    : context_(context), op_(std::move(op)), drain_(context.device, context.lane) {
  kernel_ = context_.kernels.find(op_);
  tensors_.reserve(reads.size() + writes.size());
  for (const Tensor& tensor : reads) own_operand(tensor, AccessMode::read);
  for (const Tensor& tensor : writes) own_operand(tensor, AccessMode::write);
  set_arguments();
}

OpProbe::OpProbe(const OpProbeContext& context, Op op, const OpProbe& source, std::vector<Tensor> writes)
    : context_(context), op_(std::move(op)), drain_(context.device, context.lane) {
  kernel_ = context_.kernels.find(op_);
  tensors_.reserve(source.writes_.size() + writes.size());
  for (const Operand& operand : source.writes_)
    add_operand(static_cast<std::byte*>(operand.data), *operand.tensor, AccessMode::read);
  for (const Tensor& tensor : writes) own_operand(tensor, AccessMode::write);
  set_arguments();
}

void OpProbe::set_arguments() {
  if (op_.cost.bytes == 0) op_.cost.bytes = static_cast<double>(bytes_);
  arguments_ = {.op = &op_,
                .reads = reads_,
                .writes = writes_,
                .step = {},
                .stream = context_.device.native_stream(context_.lane)};
}

void OpProbe::own_operand(const Tensor& tensor, AccessMode mode) {
  const Bytes bytes = tensor.bytes();
  memory_.emplace_back(context_.device, MemoryKind::device, bytes);
  std::byte* data = memory_.back().data();
  if (mode == AccessMode::read) upload(context_.device, tensor.type, data, bytes);
  add_operand(data, tensor, mode);
}

void OpProbe::add_operand(std::byte* data, const Tensor& tensor, AccessMode mode) {
  const auto id = static_cast<TensorId>(tensors_.size());
  tensors_.push_back(tensor);
  const Bytes bytes = tensor.bytes();
  (mode == AccessMode::read ? op_.reads : op_.writes).push_back(id);
  (mode == AccessMode::read ? reads_ : writes_).push_back({data, &tensors_.back()});
  accesses_.push_back({data, bytes, mode});
  bytes_ += bytes;
}

void OpProbe::run(void* context) {
  auto& probe = *static_cast<OpProbe*>(context);
  probe.kernel_(probe.arguments_);
}

void OpProbe::launch() {
  context_.device.launch(context_.lane, {.name = op_.name,
                                         .function = run,
                                         .context = this,
                                         .accesses = accesses_,
                                         .modelled_seconds = op_seconds(op_, context_.modelled)});
}

double without_launch(double seconds, double launch_seconds) {
  return std::max(seconds - launch_seconds, seconds * 1e-3 + 1e-12);
}

double flops_of(const MatrixSample& sample) {
  return 2 * static_cast<double>(sample.rows) * static_cast<double>(sample.inner) *
         static_cast<double>(sample.columns);
}

void measure_compute(const OpProbeContext& context, const ComputeProbeOptions& options, MachineFile& file) {
  ComputeProbe probe(context, options);
  file.launch_seconds = probe.launch_seconds();
  file.device_bytes_per_second = probe.memory_rate(file.launch_seconds);
  for (const DataType type : options.types) {
    file.matrix.push_back(probe.matrix_rate(type, file.launch_seconds));
  }
}

}  // namespace stowage
