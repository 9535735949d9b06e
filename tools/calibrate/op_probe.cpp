#include "tools/calibrate/op_probe.h"

#include <algorithm>
#include <cstring>

#include "kernels/math/bfloat16.h"
#include "kernels/math/float16.h"
#include "src/graph/cost.h"
#include "stowage/error.h"

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
  for (const Tensor& tensor : reads) add_operand(tensor, AccessMode::read);
  for (const Tensor& tensor : writes) add_operand(tensor, AccessMode::write);
  if (op_.cost.bytes == 0) op_.cost.bytes = static_cast<double>(bytes_);
  arguments_ = {.op = &op_,
                .reads = reads_,
                .writes = writes_,
                .step = {},
                .stream = context_.device.native_stream(context_.lane)};
}

void OpProbe::add_operand(const Tensor& tensor, AccessMode mode) {
  const auto id = static_cast<TensorId>(tensors_.size());
  tensors_.push_back(tensor);
  const Bytes bytes = tensor.bytes();
  memory_.emplace_back(context_.device, MemoryKind::device, bytes);
  std::byte* data = memory_.back().data();
  if (mode == AccessMode::read) upload(context_.device, tensor.type, data, bytes);
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

}  // namespace stowage
