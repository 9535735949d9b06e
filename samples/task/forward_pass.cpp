#include "samples/task/forward_pass.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "src/base/parallel_for.h"

namespace stowage::samples {
namespace {

constexpr std::int64_t most_logits = std::int64_t{64} << 20U;

bool writes_any(const Op& op, const std::vector<TensorId>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [&](TensorId id) {
    return std::find(op.writes.begin(), op.writes.end(), id) != op.writes.end();
  });
}

std::vector<TensorId> joined(std::vector<TensorId> first, const std::vector<TensorId>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// Returns -log of the target's probability in one row.
double surprise_of(std::span<const float> logits, std::size_t target) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return std::log(sum) + largest - static_cast<double>(logits[target]);
}

}  // namespace

SubGraph up_to(const Graph& graph, const std::vector<TensorId>& outputs) {
  std::size_t count = 0;
  for (std::size_t op = 0; op < graph.ops.size(); ++op) {
    if (writes_any(graph.ops[op], outputs)) count = op + 1;
  }
  SubGraph result;
  std::vector<TensorId> renumbered(graph.tensors.size(), no_id);
  const auto renumber = [&](TensorId& id) {
    if (renumbered[id] == no_id) {
      renumbered[id] = static_cast<TensorId>(result.graph.tensors.size());
      result.graph.tensors.push_back(graph.tensor(id));
    }
    id = renumbered[id];
  };
  result.graph.unit_names = graph.unit_names;
  for (std::size_t i = 0; i < count; ++i) {
    Op op = graph.ops[i];
    for (TensorId& id : op.reads) renumber(id);
    for (TensorId& id : op.writes) renumber(id);
    result.graph.ops.push_back(std::move(op));
  }
  for (TensorId id : outputs) {
    renumber(id);
    result.outputs.push_back(id);
  }
  return result;
}

ModelConfig without_dropout(ModelConfig sizes, std::int64_t batch) {
  sizes.batch = batch;
  sizes.micro_batches = sizes.gradient_groups = 1;
  sizes.head_tokens = 0;
  sizes.packed = false;
  sizes.code_activations = {};
  sizes.dropout = 0;
  sizes.embedding_dropout = sizes.attention_dropout = sizes.residual_dropout = {};
  return sizes;
}

std::int64_t samples_at_once(const ModelConfig& sizes, std::uint64_t samples) {
  const std::int64_t columns = std::max(sizes.vocabulary, sizes.padded_vocabulary);
  const std::int64_t fit = std::max<std::int64_t>(most_logits / (sizes.sequence * columns), 1);
  return std::min({fit, sizes.batch, static_cast<std::int64_t>(samples)});
}

ForwardPass::ForwardPass(const Graph& graph, const std::vector<TensorId>& inputs,
                         const std::vector<TensorId>& outputs)
    : inputs_(inputs.size()), part_(up_to(graph, joined(inputs, outputs))), table_(cpu_launch_table()) {
  last_.assign(part_.graph.tensors.size(), 0);
  for (OpId id = 0; id < part_.graph.ops.size(); ++id) {
    for (const TensorId tensor : part_.graph.op(id).reads) last_[tensor] = id;
    for (const TensorId tensor : part_.graph.op(id).writes) last_[tensor] = id;
  }
  for (const TensorId tensor : part_.outputs) last_[tensor] = no_id;  // outputs stay
}

void ForwardPass::run(const Op& op, std::vector<std::vector<std::byte>>& values,
                      const ReadParameter& read) const {
  const auto operands = [&](const std::vector<TensorId>& tensors) {
    std::vector<Operand> all;
    for (const TensorId id : tensors) {
      const Tensor& tensor = part_.graph.tensor(id);
      if (values[id].empty())
        values[id] =
            tensor.kind == TensorKind::parameter ? read(tensor.name) : std::vector<std::byte>(tensor.bytes());
      all.push_back({values[id].data(), &tensor});
    }
    return all;
  };
  const std::vector<Operand> reads = operands(op.reads);
  const std::vector<Operand> writes = operands(op.writes);
  table_.find(op)({&op, reads, writes, {0, 0, 0}, nullptr});
}

std::vector<std::vector<std::byte>> ForwardPass::run(const std::vector<std::span<const std::int32_t>>& inputs,
                                                     const ReadParameter& read, const Watch& watch) const {
  std::vector<std::vector<std::byte>> values(part_.graph.tensors.size());
  for (std::size_t i = 0; i < inputs_; ++i) {
    const auto bytes = std::as_bytes(inputs[i]);
    values[part_.outputs[i]].assign(bytes.begin(), bytes.end());
  }
  for (OpId id = 0; id < part_.graph.ops.size(); ++id) {
    const Op& op = part_.graph.op(id);
    run(op, values, read);
    if (watch)
      for (const TensorId tensor : op.writes) watch(part_.graph.tensor(tensor), values[tensor]);
    for (const auto* touched : {&op.reads, &op.writes}) {
      for (const TensorId tensor : *touched) {
        if (last_[tensor] == id) values[tensor] = {};
      }
    }
  }
  std::vector<std::vector<std::byte>> results;
  for (std::size_t i = inputs_; i < part_.outputs.size(); ++i)
    results.push_back(std::move(values[part_.outputs[i]]));
  return results;
}

Score& Score::operator+=(const Score& other) {
  nats += other.nats;
  targets += other.targets;
  right += other.right;
  return *this;
}

Score score(std::span<const float> logits, std::int64_t vocabulary, std::span<const std::int32_t> targets) {
  const std::size_t columns = logits.size() / targets.size();
  std::vector<Score> rows(targets.size());
  parallel_for(std::ssize(targets), 16, [&](std::int64_t begin, std::int64_t end) {
    for (auto row = static_cast<std::size_t>(begin); row < static_cast<std::size_t>(end); ++row) {
      if (targets[row] < 0) continue;
      const auto counted = logits.subspan(row * columns, static_cast<std::size_t>(vocabulary));
      const auto target = static_cast<std::size_t>(targets[row]);
      const auto likeliest = std::max_element(counted.begin(), counted.end()) - counted.begin();
      rows[row] = {surprise_of(counted, target), 1, static_cast<std::size_t>(likeliest) == target ? 1U : 0U};
    }
  });
  Score sum;
  for (const Score& row : rows) sum += row;
  return sum;
}

std::span<const float> floats_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

}  // namespace stowage::samples
