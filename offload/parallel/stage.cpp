#include "offload/parallel/stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "src/graph/update_ops.h"
#include "stowage/error.h"

namespace stowage {
namespace {

// A step has one part of the norm for each parameter. So many move by one op.
constexpr std::size_t most_norm_parts = 256;

class StageBuilder {
 public:
  StageBuilder(const Graph& graph, const std::vector<HalfBlocks>& ranges)
      : graph_(graph),
        ranges_(ranges),
        half_blocks_(static_cast<std::uint32_t>(graph.unit_names.size()) / graph.micro_batches),
        producer_(producers_of(graph)) {
    find_blocks();
    find_crossing();
  }

  Graph run() {
    stage_.micro_batches = graph_.micro_batches;
    stage_.gradient_groups = graph_.gradient_groups;
    stage_.share = graph_.share;
    stage_.samples = graph_.samples;
    stage_.tokens = graph_.tokens;
    for (const auto& [first, last] : ranges_) {
      if (first != ranges_.front().first && graph_.micro_batches > 1)
        stage_.range_begins.push_back(half_blocks_of_stage());
      const auto name = graph_.unit_names.begin();
      stage_.unit_names.insert(stage_.unit_names.end(), name + first * graph_.micro_batches,
                               name + last * graph_.micro_batches);
    }
    copy_tensors();
    if (graph_.loss != no_id && is_mine(block_of_tensor(graph_.loss))) stage_.loss = copy_[graph_.loss];
    stage_.clip = copy_[graph_.clip];
    for (const Phase phase : {Phase::forward, Phase::backward}) add_ops(phase);
    exchange_norm_parts();
    for (OpId op = 0; op < graph_.ops.size(); ++op)
      if (graph_.op(op).phase == Phase::update && belongs(op)) add_copy(graph_.op(op), no_id);
    check(stage_);
    return std::move(stage_);
  }

 private:
  std::uint32_t half_blocks_of_stage() const {
    return static_cast<std::uint32_t>(stage_.unit_names.size()) / graph_.micro_batches;
  }
  bool is_mine(std::uint32_t block) const {
    return std::any_of(ranges_.begin(), ranges_.end(),
                       [&](const HalfBlocks& of) { return of.first <= block && block < of.last; });
  }
  bool is_clip(const Op& op) const {
    return std::find(op.writes.begin(), op.writes.end(), graph_.clip) != op.writes.end();
  }
  // Returns whether the stage runs the op. All stages have the clip op.
  bool belongs(OpId op) const { return block_of_[op] == no_id || is_mine(block_of_[op]); }
  bool is_parameter(TensorId id) const { return graph_.kind_of(id) == TensorKind::parameter; }
  // Returns the half-block that a value comes from; of a parameter, the first one that uses it. no_id: every
  // stage has it.
  std::uint32_t block_of_tensor(TensorId id) const {
    const TensorId whole = graph_.whole_of(id);
    if (is_parameter(whole)) return owner_[whole];
    return producer_[whole] == no_id ? no_id : block_of_[producer_[whole]];
  }
  bool is_foreign(TensorId id) const {
    const std::uint32_t block = block_of_tensor(id);
    return block != no_id && !is_mine(block);
  }

  void find_blocks() {
    owner_.assign(graph_.tensors.size(), half_blocks_);
    for (const Op& op : graph_.ops)
      for (TensorId id : op.reads)
        if (op.phase != Phase::update && is_parameter(id))
          owner_[id] = std::min(owner_[id], graph_.half_block_of(op.unit));
    for (std::uint32_t& block : owner_)
      if (block == half_blocks_) block = 0;  // a parameter that no op reads
    block_of_.assign(graph_.ops.size(), no_id);
    for (OpId op = 0; op < graph_.ops.size(); ++op) {
      const Op& of = graph_.op(op);
      if (of.phase != Phase::update)
        block_of_[op] = graph_.half_block_of(of.unit);
      else if (!is_clip(of) && !of.writes.empty())
        block_of_[op] = owner_[graph_.whole_of(of.writes.front())];
    }
    // Ranks add up their losses at the end of backward, which is in the first half-block.
    for (TensorId id = graph_.loss; id != no_id && producer_[id] != no_id;) {
      const Op& op = graph_.op(producer_[id]);
      block_of_[producer_[id]] = half_blocks_ - 1;
      id = op.reads.size() == 1 && graph_.tensor(op.reads.front()).kind == TensorKind::activation &&
                   op.phase == Phase::backward
               ? op.reads.front()
               : no_id;
    }
  }

  // Marks the tensors that the stage uses, receives and sends.
  void find_crossing() {
    used_.assign(graph_.tensors.size(), 0);
    sent_.assign(graph_.tensors.size(), 0);
    const auto use = [&](TensorId id) { used_[id] = used_[graph_.whole_of(id)] = 1; };
    for (OpId op = 0; op < graph_.ops.size(); ++op) {
      const Op& of = graph_.op(op);
      if (belongs(op)) {
        std::for_each(of.reads.begin(), of.reads.end(), use);
        std::for_each(of.writes.begin(), of.writes.end(), use);
      } else {
        for (TensorId id : of.reads)
          if (block_of_tensor(id) != no_id && !is_foreign(id)) sent_[graph_.whole_of(id)] = 1;
      }
    }
    find_norm_parts();
  }
  // The parts of the norm move together: those that the clip op of every stage reads, or with several ranks
  // those that a stage adds up before.
  void find_norm_parts() {
    const auto add = [&](TensorId id, bool wanted) {
      if (is_foreign(id) && used_[id]) other_parts_.push_back(id);
      if (!is_foreign(id) && wanted) own_parts_.push_back(id);
      sent_[id] = 0;
    };
    for (const Op& op : graph_.ops)
      for (TensorId id : op.reads) {
        if (is_clip(op)) add(id, true);
        const bool is_part = op.kernel == "norm_part" && producer_[id] != no_id &&
                             graph_.op(producer_[id]).kernel == "square_sum";
        if (is_part) add(id, sent_[id] != 0);
      }
  }

  void copy_tensors() {
    copy_.assign(graph_.tensors.size(), no_id);
    for (TensorId id = 0; id < graph_.tensors.size(); ++id) {
      if (!used_[id]) continue;
      copy_[id] = static_cast<TensorId>(stage_.tensors.size());
      Tensor tensor = graph_.tensor(id);
      if (tensor.kind == TensorKind::slice) tensor.whole = copy_[tensor.whole];
      if (is_parameter(id) && is_foreign(id)) {
        tensor.kind = TensorKind::activation;
        tensor.initializer = {};
        tensor.trained = true;
      }
      stage_.tensors.push_back(std::move(tensor));
    }
  }

  std::uint32_t unit_in_stage(std::uint32_t unit) const {
    std::uint32_t others = 0;  // half-blocks before the unit's that are not the stage's
    for (std::size_t r = 0; r < ranges_.size(); ++r)
      if (ranges_[r].first <= graph_.half_block_of(unit))
        others += ranges_[r].first - (r == 0 ? 0 : ranges_[r - 1].last);
    return unit - others * graph_.micro_batches;
  }

  // Adds the phase's ops. Each unit begins with what it is the first to read of other stages; what others
  // read leaves at once.
  void add_ops(Phase phase) {
    received_.resize(graph_.tensors.size(), 0);
    for (OpId op = 0; op < graph_.ops.size();) {
      const Op& of = graph_.op(op);
      OpId end = op + 1;
      if (of.phase != phase || !belongs(op)) {
        op = end;
        continue;
      }
      while (end < graph_.ops.size() && graph_.op(end).phase == phase && graph_.op(end).unit == of.unit)
        ++end;
      add_unit(op, end);
      op = end;
    }
  }
  void add_unit(OpId begin, OpId end) {
    const Phase phase = graph_.op(begin).phase;
    const std::uint32_t unit = unit_of(begin);
    for (OpId op = begin; op < end; ++op) {
      if (!belongs(op)) continue;
      if (graph_.op(op).kernel == "norm_part") receive_norm_parts(unit);
      for (TensorId id : graph_.op(op).reads) {
        if (is_foreign(id)) receive({id}, phase, unit);
        // A table leaves once, where it is first read.
        if (is_parameter(id)) send({id}, phase, unit);
      }
    }
    for (OpId op = begin; op < end; ++op) {
      if (!belongs(op)) continue;
      add_copy(graph_.op(op), unit);
      for (TensorId id : graph_.op(op).writes) send({id}, phase, unit);
    }
  }
  // Returns the op's unit in the stage. An op that comes from another half-block stands in the last unit of
  // backward.
  std::uint32_t unit_of(OpId op) const {
    const std::uint32_t unit = graph_.op(op).unit;
    return is_mine(graph_.half_block_of(unit)) ? unit_in_stage(unit) : graph_.micro_batches - 1;
  }

  void add_copy(Op op, std::uint32_t unit) {
    for (TensorId& id : op.reads) id = copy_[id];
    for (TensorId& id : op.writes) id = copy_[id];
    op.unit = unit;
    stage_.ops.push_back(std::move(op));
  }
  void receive(const std::vector<TensorId>& ids, Phase phase, std::uint32_t unit) {
    if (received_[ids.front()]) return;
    Op op = transfer("receive", ids, phase, unit);
    op.writes = std::exchange(op.reads, {});
    op.replayable = phase == Phase::backward;  // nothing of backward is computed again
    stage_.ops.push_back(std::move(op));
    for (TensorId id : ids) received_[id] = 1;
  }
  void send(const std::vector<TensorId>& ids, Phase phase, std::uint32_t unit) {
    if (!sent_[ids.front()]) return;
    stage_.ops.push_back(transfer("send", ids, phase, unit));
    for (TensorId id : ids) sent_[id] = 0;
  }
  Op transfer(const char* kernel, const std::vector<TensorId>& ids, Phase phase, std::uint32_t unit) const {
    Op op;
    op.name = fmt::format("{}.{}", kernel, graph_.tensor(ids.front()).name);
    op.kernel = kernel;
    op.phase = phase;
    op.unit = unit;
    for (TensorId id : ids) {
      op.reads.push_back(copy_[id]);
      op.cost.bytes += static_cast<double>(graph_.tensor(id).bytes());
    }
    op.cost.peer_bytes = op.cost.bytes;
    return op;
  }

  // Backward ends with the parts of the norm: own parts leave, the others' come in.
  void exchange_norm_parts() {
    const std::uint32_t unit = graph_.micro_batches - 1;
    for (TensorId id : own_parts_) sent_[id] = 1;
    in_some(own_parts_, [&](const std::vector<TensorId>& some) { send(some, Phase::backward, unit); });
    receive_norm_parts(unit);
  }
  void receive_norm_parts(std::uint32_t unit) {
    in_some(other_parts_, [&](const std::vector<TensorId>& some) { receive(some, Phase::backward, unit); });
  }
  template <class Move>
  static void in_some(const std::vector<TensorId>& parts, Move move) {
    for (std::size_t from = 0; from < parts.size(); from += most_norm_parts) {
      const auto begin = parts.begin() + static_cast<std::ptrdiff_t>(from);
      const auto count = std::min(most_norm_parts, parts.size() - from);
      move({begin, begin + static_cast<std::ptrdiff_t>(count)});
    }
  }

  const Graph& graph_;
  const std::vector<HalfBlocks>& ranges_;
  const std::uint32_t half_blocks_;
  const std::vector<OpId> producer_;
  std::vector<std::uint32_t> block_of_;  // half-block of each op; no_id: of all stages
  std::vector<std::uint32_t> owner_;     // by parameter: its first half-block
  std::vector<std::uint8_t> used_, sent_, received_;
  std::vector<TensorId> own_parts_, other_parts_;  // of the norm
  std::vector<TensorId> copy_;                     // by tensor of the graph: its tensor in the stage
  Graph stage_;
};

}  // namespace

Graph stage_of(const Graph& graph, const std::vector<HalfBlocks>& ranges) {
  const std::uint32_t half_blocks = static_cast<std::uint32_t>(graph.unit_names.size()) / graph.micro_batches;
  std::uint32_t end = 0;
  for (const auto& [first, last] : ranges) {
    if (first < end || first >= last || last > half_blocks)
      throw InvalidInput(
          fmt::format("half-blocks {} to {} are no range of {} behind half-block {}: give "
                      "rising ranges of at least one half-block",
                      first, last, half_blocks, end));
    end = last;
  }
  if (ranges.empty()) throw InvalidInput("a stage without half-blocks: give at least one range of them");
  if (graph.clip == no_id)
    throw InvalidInput("a graph without an update phase has no stages; use GraphBuilder::finish");
  if (ranges.size() == 1 && ranges.front() == HalfBlocks{0, half_blocks}) return graph;
  return StageBuilder(graph, ranges).run();
}

}  // namespace stowage
