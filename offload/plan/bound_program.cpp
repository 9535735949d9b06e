#include "offload/plan/bound_program.h"

#include <algorithm>
#include <map>

#include "src/graph/cost.h"

namespace stowage {
namespace {

// A parameter with its state, its gradient and its update.
struct Parameter {
  Bytes bytes = 0, state_bytes = 0, gradient_bytes = 0;
  double host_update = 0, update = 0;  // seconds
  bool in_forward = false, in_backward = false;
};

class ProgramBuilder {
 public:
  ProgramBuilder(const Problem& problem, Bytes budget) : problem_(problem), graph_(*problem.graph) {
    program_.bytes = std::max(1.0, static_cast<double>(std::min(budget, total_bytes())));
    find_moments();
    for (std::size_t m = 0; m < bound_moments; ++m)
      program_.room[m] = budget == unlimited ? static_cast<double>(total_bytes())
                                             : static_cast<double>(budget) - operand_bytes(moments_[m]);
  }

  BoundProgram build() {
    add_ops();
    add_parameters();
    add_activations();
    merge();
    normalise();
    return std::move(program_);
  }

 private:
  const Machine& machine() const { return *problem_.machine; }

  Bytes total_bytes() const {
    Bytes sum = 0;
    for (const Bucket& bucket : problem_.layout.buckets) sum += bucket.bytes;
    return sum;
  }
  std::vector<TensorId> operands(OpId op) const {
    std::vector<TensorId> groups;
    for (TensorId id : graph_.op(op).reads) groups.push_back(group_of(id));
    for (TensorId id : graph_.op(op).writes) groups.push_back(group_of(id));
    std::sort(groups.begin(), groups.end());
    groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
    return groups;
  }
  TensorId group_of(TensorId id) const { return problem_.analysis.group[id]; }
  double operand_bytes(OpId op) const {
    if (op == no_id) return 0;
    double sum = 0;
    for (TensorId group : operands(op)) sum += static_cast<double>(graph_.tensor(group).bytes());
    return sum;
  }

  void find_moments() {
    std::uint32_t turn = no_id;
    for (const Op& op : graph_.ops)
      if (op.phase == Phase::forward) turn = op.unit;
    moments_.fill(no_id);
    for (OpId op = 0; op < graph_.ops.size(); ++op) {
      if (graph_.op(op).phase == Phase::update) continue;
      if (graph_.op(op).unit == turn) keep_larger(moments_[bound_turn], op);
      keep_larger(moments_[bound_largest], op);
    }
  }
  void keep_larger(OpId& largest, OpId op) const {
    if (largest == no_id || operand_bytes(op) > operand_bytes(largest)) largest = op;
  }
  bool is_operand(BoundMoment moment, TensorId id) const {
    if (moments_[moment] == no_id) return false;
    const std::vector<TensorId> ids = operands(moments_[moment]);
    return std::binary_search(ids.begin(), ids.end(), group_of(id));
  }
  // Beside the op's operands.
  std::array<double, bound_moments> beside(TensorId id) const {
    std::array<double, bound_moments> memory{};
    for (BoundMoment moment : {bound_turn, bound_largest})
      memory[moment] = is_operand(moment, id) ? 0 : static_cast<double>(graph_.tensor(id).bytes());
    return memory;
  }

  void add_ops() {
    for (const Op& op : graph_.ops) {
      if (op.phase == Phase::forward) program_.fixed.front[bound_compute] += op_seconds(op, machine());
      if (op.phase == Phase::backward) program_.fixed.back[bound_compute] += op_seconds(op, machine());
    }
  }

  void add_parameters() {
    std::map<TensorId, Parameter> parameters;
    for (const Op& op : graph_.ops) {
      if (op.phase == Phase::update) {
        add_update(op, parameters);
        continue;
      }
      for (TensorId id : op.reads)
        if (graph_.tensor(id).kind == TensorKind::parameter)
          (op.phase == Phase::forward ? parameters[id].in_forward : parameters[id].in_backward) = true;
    }
    for (const auto& [id, parameter] : parameters) program_.decisions.push_back(decide(id, parameter));
  }
  void add_update(const Op& op, std::map<TensorId, Parameter>& parameters) const {
    for (TensorId written : op.writes) {
      if (graph_.tensor(written).kind != TensorKind::parameter) continue;
      Parameter& parameter = parameters[written];
      parameter.bytes = graph_.tensor(written).bytes();
      parameter.host_update = host_seconds(op, machine());
      parameter.update = op_seconds(op, machine());
      for (TensorId id : op.writes)
        if (graph_.tensor(id).kind == TensorKind::optimizer_state)
          parameter.state_bytes += graph_.tensor(id).bytes();
      for (TensorId id : op.reads)
        if (graph_.tensor(id).kind == TensorKind::gradient)
          parameter.gradient_bytes = graph_.tensor(id).bytes();
    }
  }
  BoundDecision decide(TensorId id, const Parameter& parameter) const {
    const double in = static_cast<double>(parameter.bytes) / machine().h2d.bytes_per_second;
    BoundCost streamed;
    if (parameter.in_forward) streamed.front[bound_h2d] = in;
    if (parameter.in_forward) streamed.front[bound_host] = parameter.host_update;
    if (parameter.in_backward) streamed.back[bound_h2d] = in;
    streamed.back[bound_d2h] = static_cast<double>(parameter.gradient_bytes) / machine().d2h.bytes_per_second;
    BoundCost held = streamed;
    held.back[bound_h2d] = 0;
    held.memory = beside(id);
    held.memory[bound_largest] = 0;
    BoundCost resident;
    resident.update = parameter.update;
    resident.memory = beside(id);
    for (double& memory : resident.memory) memory += static_cast<double>(parameter.state_bytes);
    return {{streamed, held, resident}, 1};
  }

  // An op that makes several items runs once more for all of them: its time counts for the largest.
  void add_activations() {
    find_readers();
    std::map<OpId, const ActivationItem*> largest;
    for (const ActivationItem& item : problem_.items) {
      const ActivationItem*& most = largest[item.writer];
      if (most == nullptr || most->bytes < item.bytes) most = &item;
    }
    for (const ActivationItem& item : problem_.items) {
      BoundCost kept, offloaded, rebuilt;
      // Of micro-batches one after another only those of one are there at its turn: on average so many.
      for (BucketId bucket : item.buckets)
        kept.memory[bound_turn] += beside(problem_.layout.buckets[bucket].tensors.front().tensor)[bound_turn];
      kept.memory[bound_turn] /= static_cast<double>(graph_.micro_batches);
      const double bytes = static_cast<double>(item.bytes);
      offloaded.front[bound_d2h] = bytes / machine().d2h.bytes_per_second;
      offloaded.back[bound_h2d] = bytes / machine().h2d.bytes_per_second;
      if (largest[item.writer] == &item)
        rebuilt.back[bound_compute] = rebuild_seconds(item.writer, item.bytes);
      program_.decisions.push_back({{kept, offloaded, rebuilt}, 1});
    }
  }

  void find_readers() {
    producer_.assign(graph_.tensors.size(), no_id);
    readers_.assign(graph_.tensors.size(), 0);
    in_item_.assign(graph_.tensors.size(), 0);
    makes_item_.assign(graph_.ops.size(), 0);
    for (OpId op = 0; op < graph_.ops.size(); ++op) {
      if (graph_.op(op).phase != Phase::forward) continue;
      for (TensorId id : graph_.op(op).reads) ++readers_[id];
      for (TensorId id : graph_.op(op).writes) producer_[id] = op;
    }
    for (const ActivationItem& item : problem_.items) {
      makes_item_[item.writer] = 1;
      for (BucketId bucket : item.buckets)
        in_item_[group_of(problem_.layout.buckets[bucket].tensors.front().tensor)] = 1;
    }
  }
  // Of the op, and of what it alone reads and backward does not: to keep or offload that instead of the
  // `bytes` that the op makes from it would save nothing, unless it is smaller.
  double rebuild_seconds(OpId op, Bytes bytes) const {
    double seconds = op_seconds(graph_.op(op), machine());
    for (TensorId id : graph_.op(op).reads) {
      const OpId producer = producer_[id];
      if (producer == no_id || readers_[id] > 1 || makes_item_[producer]) continue;
      const bool overwritten =
          std::any_of(graph_.op(op).writes.begin(), graph_.op(op).writes.end(),
                      [&](TensorId written) { return group_of(written) == group_of(id); });
      if (overwritten || (!in_item_[group_of(id)] && graph_.tensor(id).bytes() >= bytes))
        seconds += rebuild_seconds(producer, bytes);
    }
    return seconds;
  }

  // Alike decisions are one.
  void merge() {
    auto key = [](const BoundDecision& decision) {
      std::vector<double> parts;
      for (const BoundCost& cost : decision.options) {
        parts.insert(parts.end(), cost.front.begin(), cost.front.end());
        parts.insert(parts.end(), cost.back.begin(), cost.back.end());
        parts.push_back(cost.update);
        parts.insert(parts.end(), cost.memory.begin(), cost.memory.end());
      }
      return parts;
    };
    std::map<std::vector<double>, BoundDecision> merged;
    for (BoundDecision& decision : program_.decisions) {
      auto [at, added] = merged.emplace(key(decision), decision);
      if (!added) at->second.count += 1;
    }
    program_.decisions.clear();
    for (auto& [parts, decision] : merged) program_.decisions.push_back(std::move(decision));
  }

  void normalise() {
    program_.seconds =
        std::max(1e-12, program_.fixed.front[bound_compute] + program_.fixed.back[bound_compute]);
    auto scale = [&](BoundCost& cost) {
      for (double& seconds : cost.front) seconds /= program_.seconds;
      for (double& seconds : cost.back) seconds /= program_.seconds;
      cost.update /= program_.seconds;
      for (double& bytes : cost.memory) bytes /= program_.bytes;
    };
    scale(program_.fixed);
    for (BoundDecision& decision : program_.decisions)
      for (BoundCost& option : decision.options) scale(option);
    for (double& room : program_.room) room = std::max(1e-3, room / program_.bytes);
  }

  const Problem& problem_;
  const Graph& graph_;
  BoundProgram program_;
  std::array<OpId, bound_moments> moments_{};
  std::vector<OpId> producer_;            // by tensor: the forward op that makes it
  std::vector<int> readers_;              // by tensor: forward ops
  std::vector<std::uint8_t> in_item_;     // by group
  std::vector<std::uint8_t> makes_item_;  // by op
};

}  // namespace

void BoundCost::add(const BoundCost& other, double times) {
  for (std::size_t l = 0; l < bound_lanes; ++l) {
    front[l] += times * other.front[l];
    back[l] += times * other.back[l];
  }
  update += times * other.update;
  for (std::size_t m = 0; m < bound_moments; ++m) memory[m] += times * other.memory[m];
}

BoundProgram make_bound_program(const Problem& problem, Bytes device_budget) {
  return ProgramBuilder(problem, device_budget).build();
}

}  // namespace stowage
