#include "samples/task/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/cpu/cached_attention.h"
#include "samples/task/forward_pass.h"
#include "src/models/require_valid.h"
#include "stowage/error.h"
#include "stowage/graph_builder.h"

namespace stowage::samples {
namespace {

constexpr std::string_view attention_kernel = "attention";

template <class T>
cpu::KeyValueCache<T> typed(std::byte* keys, std::byte* values, std::int64_t positions) {
  return {reinterpret_cast<T*>(keys), reinterpret_cast<T*>(values), positions};
}

template <class T>
void attend_as(const cpu::CachedAttentionShape& shape, const std::byte* qkv,
               const cpu::KeyValueCache<T>& cache, std::byte* out) {
  cpu::cached_attention(shape, reinterpret_cast<const T*>(qkv), cache, reinterpret_cast<T*>(out));
}

// Returns values of f32, bf16 or f16 as f32.
void widen_to(std::vector<float>& wide, DataType type, const std::vector<std::byte>& values) {
  const std::size_t count = values.size() / size_of(type);
  wide.resize(count);
  const auto length = static_cast<std::int64_t>(count);
  if (type == DataType::bf16)
    cpu::widen(length, reinterpret_cast<const Bfloat16*>(values.data()), wide.data());
  else if (type == DataType::f16)
    cpu::widen(length, reinterpret_cast<const Float16*>(values.data()), wide.data());
  else
    std::memcpy(wide.data(), values.data(), values.size());
}

}  // namespace

// The forward graph of some tokens, with the place of each parameter.
class Decoder::Pass {
 public:
  // Computes the logits, or else all that the caches take.
  Pass(const ModelWeights& weights, std::int64_t tokens, bool with_logits) : tokens_(tokens) {
    GraphBuilder builder(weights.type());
    ModelConfig sizes = without_dropout(weights.sizes(), 1);
    sizes.sequence = tokens;
    // A token's rotary position is its index, less its document's beginning, which may lie before the pass.
    sizes.packed = !weights.family().learned_positions;
    const BuiltModel model = weights.family().build(builder, sizes);
    const Graph whole = builder.finish_without_update(model.loss);
    TensorId output = model.logits.id;
    for (const Op& op : whole.ops)
      if (!with_logits && op.kernel == attention_kernel && op.phase == Phase::forward) output = op.writes[0];
    std::vector<TensorId> ends = {output, model.tokens.id};
    if (sizes.packed) ends.push_back(model.begins.id);
    part_ = up_to(whole, ends);
    place_parameters(weights);
    find_last_uses();
  }

  const Graph& graph() const { return part_.graph; }
  std::int64_t tokens() const { return tokens_; }
  TensorId output() const { return part_.outputs[0]; }
  TensorId input() const { return part_.outputs[1]; }
  TensorId begins() const { return part_.outputs.size() > 2 ? part_.outputs[2] : no_id; }
  std::byte* parameter(TensorId id) const { return parameters_[id]; }
  OpId last_use(TensorId id) const { return last_[id]; }

 private:
  void place_parameters(const ModelWeights& weights) {
    parameters_.assign(graph().tensors.size(), nullptr);
    for (TensorId id = 0; id < graph().tensors.size(); ++id) {
      if (graph().tensor(id).kind != TensorKind::parameter) continue;
      // Operands are not const, but no forward op writes a parameter.
      parameters_[id] = const_cast<std::byte*>(weights.value(graph().tensor(id).name).data());
      if (parameters_[id] == nullptr)
        throw InvalidInput(fmt::format("parameter '{}' has no value", graph().tensor(id).name));
    }
  }
  void find_last_uses() {
    last_.assign(graph().tensors.size(), 0);
    for (OpId id = 0; id < graph().ops.size(); ++id) {
      for (const TensorId tensor : graph().op(id).reads) last_[tensor] = id;
      for (const TensorId tensor : graph().op(id).writes) last_[tensor] = id;
    }
    last_[output()] = no_id;
  }

  std::int64_t tokens_;
  SubGraph part_;  // outputs: the result, the tokens and, of rotary positions, the documents' beginnings
  std::vector<std::byte*> parameters_;
  std::vector<OpId> last_;
};

Bytes cache_bytes(const ModelConfig& sizes, DataType type, std::int64_t positions) {
  return static_cast<Bytes>(2 * sizes.layers * heads_of_keys(sizes) * width_of_head(sizes)) *
         static_cast<Bytes>(positions) * size_of(type);
}

Decoder::Decoder(const ModelWeights& weights, std::int64_t positions)
    : weights_(weights), positions_(positions), table_(cpu_launch_table()) {
  const ModelConfig& sizes = weights.sizes();
  if (positions < 1 || (weights.family().learned_positions && positions > sizes.sequence))
    throw InvalidInput(fmt::format("a decoder of {} positions: give at least 1{}", positions,
                                   weights.family().learned_positions
                                       ? fmt::format(", and at most the table's {}", sizes.sequence)
                                       : ""));
  const Bytes each = cache_bytes(sizes, weights.type(), positions) / 2 / static_cast<Bytes>(sizes.layers);
  for (std::int64_t layer = 0; layer < sizes.layers; ++layer)
    caches_.push_back({std::make_unique_for_overwrite<std::byte[]>(each),
                       std::make_unique_for_overwrite<std::byte[]>(each)});
  step_ = std::make_unique<Pass>(weights, 1, true);
}

Decoder::~Decoder() = default;

std::span<const float> Decoder::logits(std::span<const std::int32_t> tokens) {
  if (tokens.empty() || std::ssize(tokens) > room())
    throw InvalidInput(fmt::format("a decoder with room for {} tokens was given {}", room(), tokens.size()));
  while (tokens.size() > 1) {
    const std::int64_t count = std::min(std::ssize(tokens) - 1, most_tokens_of_pass);
    std::unique_ptr<Pass>& pass = prompt_[count];
    if (!pass) pass = std::make_unique<Pass>(weights_, count, false);
    run(*pass, tokens.first(static_cast<std::size_t>(count)));
    tokens = tokens.subspan(static_cast<std::size_t>(count));
  }
  prompt_.clear();  // a prompt comes once
  widen_to(logits_, weights_.type(), run(*step_, tokens));
  return logits_;
}

std::vector<std::byte> Decoder::run(Pass& pass, std::span<const std::int32_t> tokens) {
  const Graph& graph = pass.graph();
  std::vector<std::vector<std::byte>> values(graph.tensors.size());
  const auto set = [&](TensorId id, std::span<const std::int32_t> numbers) {
    const auto bytes = std::as_bytes(numbers);
    values[id].assign(bytes.begin(), bytes.end());
  };
  set(pass.input(), tokens);
  if (pass.begins() != no_id)
    set(pass.begins(), std::vector<std::int32_t>(tokens.size(), -static_cast<std::int32_t>(seen_)));

  const auto operand = [&](TensorId id) -> Operand {
    const Tensor& tensor = graph.tensor(id);
    if (tensor.kind == TensorKind::parameter) return {pass.parameter(id), &tensor};
    if (values[id].empty()) values[id].resize(tensor.bytes());
    return {values[id].data(), &tensor};
  };
  std::size_t layer = 0;
  for (OpId id = 0; id < graph.ops.size(); ++id) {
    const Op& op = graph.op(id);
    if (op.kernel == attention_kernel) {
      attend(layer++, values[op.reads[0]], pass.tokens(),
             static_cast<std::byte*>(operand(op.writes[0]).data));
    } else {
      std::vector<Operand> reads, writes;
      for (const TensorId tensor : op.reads) reads.push_back(operand(tensor));
      for (const TensorId tensor : op.writes) writes.push_back(operand(tensor));
      // A table of positions begins at the first token's row.
      if (op.kernel == "embedding" && weights_.family().learned_positions)
        reads[2].data = static_cast<std::byte*>(reads[2].data) +
                        static_cast<Bytes>(seen_ * weights_.sizes().width) * size_of(weights_.type());
      table_.find(op)({&op, reads, writes, {}, nullptr});
    }
    for (const auto* touched : {&op.reads, &op.writes})
      for (const TensorId tensor : *touched)
        if (pass.last_use(tensor) == id) values[tensor] = {};
  }
  seen_ += pass.tokens();
  return std::move(values[pass.output()]);
}

void Decoder::attend(std::size_t layer, std::span<const std::byte> qkv, std::int64_t tokens, std::byte* out) {
  const ModelConfig& sizes = weights_.sizes();
  const cpu::CachedAttentionShape shape{.tokens = tokens,
                                        .before = seen_,
                                        .heads = sizes.heads,
                                        .key_heads = heads_of_keys(sizes),
                                        .width = width_of_head(sizes),
                                        .window = sizes.windows.empty() ? 0 : sizes.windows[layer]};
  const auto [keys, values] = std::pair{caches_[layer].keys.get(), caches_[layer].values.get()};
  switch (weights_.type()) {
    case DataType::bf16:
      return attend_as(shape, qkv.data(), typed<Bfloat16>(keys, values, positions_), out);
    case DataType::f16:
      return attend_as(shape, qkv.data(), typed<Float16>(keys, values, positions_), out);
    default:
      return attend_as(shape, qkv.data(), typed<float>(keys, values, positions_), out);
  }
}

}  // namespace stowage::samples
