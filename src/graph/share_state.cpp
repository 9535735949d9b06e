#include "src/graph/share_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "src/graph/update_ops.h"
#include "stowage/moments.h"

namespace stowage {
namespace {

constexpr std::int64_t piece_unit = 256;
static_assert(piece_unit % moment_block == 0);

class StateSharing {
 public:
  explicit StateSharing(Graph& graph)
      : graph_(graph), insertion_(graph), producers_(producers_of(graph)), gradients_(graph.tensors.size()) {}

  std::vector<FinalGradient> run(const std::map<TensorId, std::vector<TensorId>>& use_gradients) {
    for (const TensorId parameter : parameters_by_first_use(graph_)) {
      const ParameterShare share =
          share_of(graph_.tensors[parameter].elements(), graph_.gradient_groups, graph_.share);
      gather(parameter, share);
      if (!graph_.tensors[parameter].trained) continue;
      gradients_[parameter] = {sum_of_shares(parameter, share, use_gradients.at(parameter)), share.count};
    }
    insertion_.apply(graph_);
    return std::move(gradients_);
  }

 private:
  Graph& graph_;
  OpInsertion insertion_;
  const std::vector<OpId> producers_;
  std::vector<FinalGradient> gradients_;

  std::int64_t ranks() const { return graph_.share.ranks; }
  double others() const { return static_cast<double>(ranks() - 1); }

  TensorId add_tensor(Tensor tensor) {
    graph_.tensors.push_back(std::move(tensor));
    return static_cast<TensorId>(graph_.tensors.size() - 1);
  }
  // Returns an op in the phase and unit of op `at`.
  Op op_beside(OpId at, std::string name, const char* kernel, std::vector<TensorId> reads, TensorId written) {
    Op op;
    op.name = std::move(name);
    op.kernel = kernel;
    op.reads = std::move(reads);
    op.writes = {written};
    op.phase = graph_.ops[at].phase;
    op.unit = graph_.ops[at].unit;
    op.cost.bytes = operand_bytes(graph_, op);
    return op;
  }

  // Makes the whole parameter the result of a gather, and its tensor the share.
  void gather(TensorId parameter, const ParameterShare& share) {
    const Tensor before = graph_.tensors[parameter];
    const TensorId whole =
        add_tensor({before.name + ".whole", before.type, before.shape, TensorKind::activation, {}});
    OpId first = no_id;
    for (OpId id = 0; id < graph_.ops.size(); ++id) {
      std::vector<TensorId>& reads = graph_.ops[id].reads;
      if (std::find(reads.begin(), reads.end(), parameter) == reads.end()) continue;
      std::replace(reads.begin(), reads.end(), parameter, whole);
      first = std::min(first, id);
    }
    Tensor& own = graph_.tensors[parameter];
    own.shape = shape_of(before, share);
    own.initializer.first_element = share.first;
    Op op = op_beside(first, before.name + ".gather", "gather", {parameter}, whole);
    op.cost.peer_bytes = others() * static_cast<double>(own.bytes());
    insertion_.before(first, std::move(op));
  }

  // Returns the share's shape: a matrix's share is a matrix, since weight decay and types of moments depend
  // on the number of dimensions.
  static std::vector<std::int64_t> shape_of(const Tensor& whole, const ParameterShare& share) {
    if (whole.shape.size() < 2) return {share.all};
    return {share.all / piece_unit, piece_unit};
  }

  TensorId sum_of_shares(TensorId parameter, const ParameterShare& share, const std::vector<TensorId>& uses) {
    TensorId sum = no_id;
    for (std::size_t use = 0; use < uses.size(); ++use) {
      const std::string name = fmt::format("{}.use{}.grad", graph_.tensors[parameter].name, use);
      const TensorId more = share_of_gradient(name, parameter, share, uses[use]);
      sum = sum == no_id ? more : added(name, sum, more, producers_[uses[use]]);
    }
    return sum;
  }

  // `name`: name of the use's gradient.
  TensorId share_of_gradient(const std::string& name, TensorId parameter, const ParameterShare& share,
                             TensorId whole) {
    const OpId producer = producers_[whole];
    const Tensor own = graph_.tensors[parameter];
    const TensorId shares =
        add_tensor({name + ".shares", own.type, {ranks(), share.all}, TensorKind::activation, {}});
    Op exchange = op_beside(producer, name + ".exchange", "exchange", {whole}, shares);
    exchange.cost.peer_bytes = others() * static_cast<double>(own.bytes());
    insertion_.behind(producer, std::move(exchange));
    const TensorId result = add_tensor({name + ".share", own.type, own.shape, TensorKind::gradient, {}});
    Op sum = op_beside(producer, name + ".tree_sum", "tree_sum", {shares}, result);
    sum.attributes = {{"rows", ranks()}};
    if (share.count < share.all) sum.attributes["count"] = share.count;
    sum.cost.flops = others() * static_cast<double>(share.all);
    insertion_.behind(producer, std::move(sum));
    return result;
  }

  TensorId added(const std::string& name, TensorId sum, TensorId more, OpId behind) {
    Tensor of = graph_.tensors[sum];
    of.name = name + ".sum";
    const TensorId result = add_tensor(std::move(of));
    Op op = op_beside(behind, name + ".accumulate", "accumulate", {sum, more}, result);
    op.may_alias = {{0, 0}};
    op.cost.flops = static_cast<double>(graph_.tensors[result].elements());
    insertion_.behind(behind, std::move(op));
    return result;
  }
};

}  // namespace

ParameterShare share_of(std::int64_t elements, std::uint32_t groups, BatchShare share) {
  const std::int64_t pieces = std::int64_t{groups} * share.ranks;
  const std::int64_t least = (elements + pieces - 1) / pieces;
  ParameterShare result;
  result.piece = (least + piece_unit - 1) / piece_unit * piece_unit;
  result.all = result.piece * groups;
  result.first = result.all * share.rank;
  result.count = std::clamp<std::int64_t>(elements - result.first, 0, result.all);
  return result;
}

std::vector<FinalGradient> share_state(Graph& graph,
                                       const std::map<TensorId, std::vector<TensorId>>& use_gradients) {
  return StateSharing(graph).run(use_gradients);
}

}  // namespace stowage
