#include "offload/engine/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "offload/plan/validate/passes.h"
#include "offload/recompute/bits_hash.h"
#include "stowage/error.h"
#include "stowage/launch_table.h"
#include "stowage/planner.h"

namespace stowage {
namespace {

using validation::Places;
using validation::Report;

// The engine reads the loss and the gradient norm from host memory, and writes the inputs there.
void check_host_values(const Graph& graph, const Plan& plan, const Places& places, Report& report) {
  const auto on_host = [&](TensorId id) {
    return id < graph.tensors.size() && places.bucket[id] != no_id &&
           plan.buckets[places.bucket[id]].on_host();
  };
  if (graph.loss != no_id && !on_host(graph.loss)) report.add("the loss has no place on the host");
  if (!on_host(graph.clip)) report.add("the gradient norm has no place on the host");
  for (const Op& op : graph.ops)
    for (const TensorId id : op.reads)
      if (graph.tensor(id).kind == TensorKind::input && !on_host(id))
        report.add(fmt::format("input {} has no place on the host", report.tensor(id)));
}

void check_share(const Graph& graph, const Communicator* communicator) {
  const BatchShare share = graph.share;
  if (communicator == nullptr && share.ranks == 1) return;
  const auto rank = static_cast<std::uint32_t>(communicator == nullptr ? 0 : communicator->rank());
  const auto ranks = static_cast<std::uint32_t>(communicator == nullptr ? 1 : communicator->size());
  if (share == BatchShare{rank, ranks}) return;
  throw InvalidInput(fmt::format(
      "the graph is that of rank {} of {}, and the communicator's is {} of {}: build the graph for it",
      share.rank, share.ranks, rank, ranks));
}

void check_collectives(const Graph& graph) {
  for (const Op& op : graph.ops) {
    if (!is_collective(op)) continue;
    bool fits =
        graph.share.ranks > 1 && op.phase != Phase::update && op.reads.size() == 1 && op.writes.size() == 1;
    if (fits) {
      const Bytes from = graph.tensor(op.reads[0]).bytes(), to = graph.tensor(op.writes[0]).bytes();
      const Bytes ranks = graph.share.ranks;
      fits = op.kernel == "gather" ? to <= ranks * from : to % ranks == 0 && from <= to;
    }
    if (!fits)
      throw InvalidInput(fmt::format("op '{}' is no {} of {} ranks: see launch_table.h", op.name, op.kernel,
                                     graph.share.ranks));
  }
}

// Gathers `own` from all ranks. A rank that fails aborts the others, which would wait for it.
std::vector<std::uint64_t> gathered(Communicator& communicator, Device& device, std::uint64_t own) {
  try {
    std::vector<std::uint64_t> all(static_cast<std::size_t>(communicator.size()));
    all.at(static_cast<std::size_t>(communicator.rank())) = own;
    const Bytes bytes = all.size() * sizeof own;
    const DeviceMemory pinned(device, MemoryKind::pinned, bytes);
    const Lane lane(device, LaneRole::compute);
    std::memcpy(pinned.data(), all.data(), bytes);
    communicator.all_gather(lane.id(), pinned.data(), sizeof own);
    device.synchronise_lane(lane.id());
    communicator.check();
    std::memcpy(all.data(), pinned.data(), bytes);
    return all;
  } catch (const std::exception& error) {
    communicator.abort(error.what());
    throw;
  }
}

}  // namespace

void check_executable(const Graph& graph, const Plan& plan) {
  Report report(graph, plan, 1);
  check_ids(graph, plan, report);
  const Places places = check_buckets(graph, plan, report);
  if (report.empty()) {
    check_places_in_arena(plan, report);
    check_gates(graph, plan, report);
    check_enqueued(plan, report);
    check_host_values(graph, plan, places, report);
  }
  if (report.empty()) return;
  throw InvalidInput("the plan cannot be executed: " + report.take().front() +
                     "; make the plan from this graph again");
}

void check_plan(const Graph& graph, const Plan& plan, bool judge) {
  check_executable(graph, plan);
  if (!judge) return;
  const std::vector<std::string> findings = validate(graph, plan, Budget{});
  if (findings.empty()) return;
  throw InvalidInput(fmt::format("the plan is invalid ({} findings): {}; make it from this graph again",
                                 findings.size(), findings.front()));
}

void check_evaluation(const Graph& graph, const Plan& plan, const Plan& lender) {
  for (const Tensor& tensor : graph.tensors)
    if (tensor.kind == TensorKind::parameter && tensor.trained)
      throw InvalidInput(
          fmt::format("'{}' is trained, but an engine beside another evaluates alone: build the graph with "
                      "GraphBuilder::Trained::none",
                      tensor.name));
  const Bytes free = free_between_steps(lender).bytes();
  if (plan.device_peak_bytes > free)
    throw InvalidInput(
        fmt::format("the plan takes {}, and between two steps the engine's arena has {} free: plan "
                    "within that",
                    format_bytes(plan.device_peak_bytes), format_bytes(free)));
}

void check_ranks(const Graph& graph, const Communicator* communicator) {
  check_share(graph, communicator);
  check_collectives(graph);
}

void check_loss_scale(const StepOptions& options, std::uint64_t steps) {
  const auto& given = options.loss_scale;
  if (!given || (is_valid(*given) && given->skipped_steps <= steps)) return;
  throw InvalidInput(
      fmt::format("the loss scale {} with {} of {} steps skipped is none: give a power of two from {} to {}, "
                  "as LossScale and next() have it",
                  given->scale, given->skipped_steps, steps, LossScale::least, LossScale::most));
}

InstructionId loss_offload(const Graph& graph, const Plan& plan, std::span<const TensorPlace> places) {
  if (graph.loss == no_id) return plan.gate;
  InstructionId last = no_id;
  for (InstructionId id = 0; id < plan.gate; ++id) {
    const Instruction& instruction = plan.instructions[id];
    if (instruction.kind == InstructionKind::offload &&
        plan.lifetimes[instruction.lifetime].bucket == places[graph.loss].bucket)
      last = id;
  }
  if (last == no_id)
    throw InvalidInput("the plan never brings the loss to the host before its gate: plan again");
  return last;
}

bool is_overflow(const StepReport& report, const StepOptions& options) {
  return options.loss_scale && options.loss_scale->scale > LossScale::least && std::isfinite(report.loss) &&
         !std::isfinite(report.grad_norm);
}

void expect_one_plan(Communicator& communicator, Device& device, const Plan& plan,
                     const EngineOptions& options) {
  const std::string text = fmt::format("{} {} {}", options.seed, options.first_step, to_json(plan));
  BitsHash own;
  own.add(std::as_bytes(std::span(text)));
  const std::vector<std::uint64_t> all = gathered(communicator, device, own.value());
  const auto other =
      std::find_if(all.begin(), all.end(), [&](std::uint64_t hash) { return hash != all.front(); });
  if (other != all.end())
    throw InvalidInput(fmt::format(
        "rank {} has another plan, seed or first step than rank 0: plan once, and give all ranks the same",
        other - all.begin()));
}

}  // namespace stowage
