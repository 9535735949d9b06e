#include <algorithm>
#include <cstring>
#include <vector>

#include "bench/gpu_check/device_numbers.h"
#include "bench/gpu_check/op_times.h"
#include "stowage/cuda_device.h"
#include "stowage/launch_table.h"
#include "tools/calibrate/stopwatch.h"

namespace stowage::bench {
namespace {

constexpr std::int64_t tile = 128;  // queries of a tile, as in src/nn/attention.cpp

struct Attention {
  const char* model;
  std::int64_t samples, heads, sequence, width;
  bool causal;

  std::int64_t tokens() const { return samples * sequence; }
  std::int64_t tiles() const { return samples * heads * ((sequence + tile - 1) / tile); }
  // Returns the workspace's bytes, as src/nn/attention.cpp computes them.
  Bytes workspace(std::int64_t tiles_at_once) const {
    const std::int64_t tiles_of_head = (sequence + tile - 1) / tile;
    const std::int64_t held = std::min(samples * heads, (tiles_at_once + tiles_of_head - 1) / tiles_of_head);
    const auto length = static_cast<Bytes>(tiles_of_head * tile);
    return static_cast<Bytes>(held) * (2 * length * length + 4 * length) + (1 << 20);
  }
  // Five products of [sequence, head width] and [head width, sequence] for each head, half of them if causal.
  double flops() const {
    const double keys = causal ? static_cast<double>(sequence + 1) / 2 : static_cast<double>(sequence);
    return 5 * 2 * static_cast<double>(tokens()) * static_cast<double>(width) * keys;
  }
};

struct Held {
  Tensor tensor;
  DeviceMemory memory;
  Operand operand() const { return {memory.data(), &tensor}; }
};

Held held(Device& device, DataType type, std::vector<std::int64_t> shape, unsigned seed, float deviation) {
  Tensor tensor{"t", type, std::move(shape), TensorKind::activation, {}};
  const Bytes bytes = tensor.bytes();
  return {std::move(tensor), normal_numbers(device, bytes, seed, deviation)};
}

class Backward {
 public:
  Backward(Device& device, const Attention& of)
      : device_(device),
        of_(of),
        table_(launch_table_for(device)),
        lane_(device, LaneRole::compute),
        stopwatch_(device, lane_.id()),
        qkv_(held(device, DataType::bf16, {of.tokens(), 3 * of.width}, 1, 1)),
        out_(held(device, DataType::bf16, {of.tokens(), of.width}, 2, 1)),
        sums_(held(device, DataType::f32, {of.samples, of.heads, of.sequence}, 3, 1)),
        dout_(held(device, DataType::bf16, {of.tokens(), of.width}, 4, 1)),
        dqkv_(held(device, DataType::bf16, {of.tokens(), 3 * of.width}, 5, 1)) {
    const std::vector<Operand> reads{qkv_.operand()}, writes{out_.operand(), sums_.operand()};
    run("attention", reads, writes);
    device.synchronise_lane(lane_.id());
  }

  nlohmann::ordered_json timed(std::int64_t tiles_at_once) {
    const Bytes bytes = of_.workspace(tiles_at_once);
    const Held workspace = held(device_, DataType::i32, {static_cast<std::int64_t>(bytes / 4)}, 6, 1);
    const std::vector<Operand> reads{qkv_.operand(), out_.operand(), sums_.operand(), dout_.operand()};
    const std::vector<Operand> writes{dqkv_.operand(), workspace.operand()};
    const std::uint64_t before = attention_use().cudnn;
    const double seconds =
        stopwatch_.median_seconds(repetitions, [&] { run("attention_backward", reads, writes); });
    return {{"kind", "slices"},
            {"model", of_.model},
            {"tiles", tiles_at_once},
            {"workspace_bytes", bytes},
            {"seconds", seconds},
            {"flops", of_.flops()},
            {"cudnn", attention_use().cudnn > before},
            {"same_bits", same_bits()}};
  }

 private:
  void run(const char* kernel, const std::vector<Operand>& reads, const std::vector<Operand>& writes) {
    Op op;
    op.name = op.kernel = kernel;
    op.attributes = {{"heads", of_.heads},
                     {"sequence", of_.sequence},
                     {"causal", std::int64_t{of_.causal}},
                     {"dropout", 0.0},
                     {"key", std::int64_t{0}}};
    struct Work {
      Kernel kernel;
      LaunchArguments arguments;
    };
    Work work{table_.find(op), {&op, reads, writes, {}, device_.native_stream(lane_.id())}};
    device_.launch(lane_.id(), {kernel,
                                [](void* context) {
                                  const auto* of = static_cast<const Work*>(context);
                                  of->kernel(of->arguments);
                                },
                                &work,
                                {},
                                0});
  }

  // True if the gradients have the bits of the first call's gradients.
  bool same_bits() {
    const DeviceMemory host(device_, MemoryKind::pinned, dqkv_.memory.bytes());
    const Lane down(device_, LaneRole::d2h);
    device_.copy(down.id(), host.data(), dqkv_.memory.data(), host.bytes(), "gradients");
    device_.synchronise_lane(down.id());
    if (first_.empty()) first_.assign(host.data(), host.data() + host.bytes());
    return std::memcmp(first_.data(), host.data(), host.bytes()) == 0;
  }

  Device& device_;
  const Attention& of_;
  LaunchTable table_;
  Lane lane_;
  Stopwatch stopwatch_;
  Held qkv_, out_, sums_, dout_, dqkv_;
  std::vector<std::byte> first_;
};

}  // namespace

void time_slices(Device& device, bool small, const PrintTimes& print) {
  const std::vector<Attention> shapes =
      small ? std::vector<Attention>{{"tiny", 2, 2, 128, 64, true}}
            : std::vector<Attention>{{"gpt2", 64, 12, 1024, 768, true},
                                     {"bert", 128, 16, 512, 1024, false},
                                     {"6.7b", 8, 32, 1024, 4096, true},
                                     {"6.7b at 16,384 tokens", 16, 32, 1024, 4096, true}};
  for (const Attention& shape : shapes) {
    Backward backward(device, shape);
    for (const std::int64_t tiles : {std::int64_t{512}, std::int64_t{2048}, shape.tiles()})
      print(backward.timed(tiles));
  }
}

}  // namespace stowage::bench
