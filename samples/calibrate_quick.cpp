#include "samples/calibrate_quick.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <vector>

#include "stowage/evaluate.h"
#include "stowage/graph_builder.h"
#include "stowage/launch_table.h"

namespace stowage::samples {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double time_limit = 0.25;  // seconds; a started round is finished
constexpr double flops_per_round = 3e10;

// One layer that is like the model's but runs in milliseconds.
GptConfig probe(const GptConfig& model) {
  constexpr std::int64_t widest = 1024;
  const std::int64_t per_head = std::min(model.width / model.heads, widest);
  GptConfig result = model;
  result.layers = 1;
  result.heads = std::clamp(model.heads, std::int64_t{1}, widest / per_head);
  result.width = per_head * result.heads;
  result.sequence = std::min(model.sequence, std::int64_t{512});
  const double parameters = 12.0 * static_cast<double>(result.width) * static_cast<double>(result.width);
  const double sample_flops = 6 * parameters * static_cast<double>(result.sequence);
  result.batch = std::clamp(static_cast<std::int64_t>(flops_per_round / sample_flops), std::int64_t{1},
                            model.batch / model.micro_batches);
  result.micro_batches = 1;
  return result;
}

std::vector<Operand> operands(Evaluator& evaluator, const std::vector<TensorId>& ids) {
  std::vector<Operand> result;
  result.reserve(ids.size());
  for (const TensorId id : ids) {
    result.push_back({evaluator.value(id).data(), &evaluator.graph().tensor(id)});
  }
  return result;
}

double measure(Evaluator& evaluator, const Op& op, Kernel kernel) {
  const std::vector<Operand> reads = operands(evaluator, op.reads);
  const std::vector<Operand> writes = operands(evaluator, op.writes);
  const Clock::time_point begin = Clock::now();
  kernel({.op = &op, .reads = reads, .writes = writes, .step = {}, .stream = nullptr});
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// By op: the fastest of some rounds, which other programs on this machine disturb least. The first
// round warms up: libraries compile their kernels, pages are touched.
std::vector<double> fastest_times(Evaluator& evaluator, const LaunchTable& table, Clock::time_point begin) {
  constexpr int rounds = 8;
  constexpr int least_rounds = 4;  // however long they take
  const std::vector<Op>& ops = evaluator.graph().ops;
  std::vector<double> fastest(ops.size(), std::numeric_limits<double>::infinity());
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const double seconds = measure(evaluator, ops[i], table.find(ops[i]));
      if (round > 0) fastest[i] = std::min(fastest[i], seconds);
    }
    if (round + 1 >= least_rounds && std::chrono::duration<double>(Clock::now() - begin).count() > time_limit)
      break;
  }
  return fastest;
}

void fill_tokens(std::vector<std::byte>& value) {
  for (std::size_t i = 0; i < value.size() / sizeof(std::int32_t); ++i) {
    const auto token = static_cast<std::int32_t>(i % 256);
    std::memcpy(value.data() + i * sizeof token, &token, sizeof token);
  }
}

struct Share {
  double work = 0;
  double seconds = 0;
  double rate(double otherwise) const { return work > 0 && seconds > 0 ? work / seconds : otherwise; }
};

}  // namespace

void fit_rates(std::span<const OpTime> times, Machine& machine) {
  constexpr int rounds = 4;
  for (int round = 0; round < rounds; ++round) {
    Share arithmetic;
    Share memory;
    for (const OpTime& time : times) {
      const bool computes =
          time.cost.flops / machine.flops_per_second > time.cost.bytes / machine.device_bytes_per_second;
      Share& share = computes ? arithmetic : memory;
      share.work += computes ? time.cost.flops : time.cost.bytes;
      share.seconds += std::max(0.0, time.seconds - machine.launch_seconds);
    }
    machine.flops_per_second = arithmetic.rate(machine.flops_per_second);
    machine.device_bytes_per_second = memory.rate(machine.device_bytes_per_second);
  }
}

Machine calibrate_quick(const GptConfig& model, const Link& link) {
  const Clock::time_point begin = Clock::now();
  GraphBuilder builder;
  const Gpt part = gpt(builder, probe(model));
  const Graph graph = builder.finish(part.loss, AdamW{});
  const LaunchTable table = cpu_launch_table();
  Evaluator evaluator(graph, table, 1);
  fill_tokens(evaluator.value(part.tokens.id));
  fill_tokens(evaluator.value(part.targets.id));

  const std::vector<double> fastest = fastest_times(evaluator, table, begin);
  std::vector<OpTime> device;
  Share host;
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    if (op.phase != Phase::update) {
      device.push_back({op.cost, fastest[i]});
    } else if (op.kernel == "adamw") {
      host.work += op.cost.bytes;
      host.seconds += fastest[i];
    }
  }
  Machine machine;
  machine.h2d = machine.d2h = link;
  fit_rates(device, machine);
  machine.host_bytes_per_second = host.rate(machine.host_bytes_per_second);
  return machine;
}

}  // namespace stowage::samples
