#include "stowage/coded_activations.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "src/graph/update_ops.h"
#include "stowage/error.h"

namespace stowage {
namespace {

// How backward gets a value that forward makes.
enum class Source : std::uint8_t { kept, coded, anew };

// True for products that have all their operands.
bool is_product(const Op& op) {
  if (op.kernel == "linear") return op.writes.size() == 1;
  return op.kernel == "linear_gelu" && op.writes.size() == 2 && op.attributes.contains("form");
}
bool is_made_anew(const Op& op) {
  constexpr std::string_view kernels[] = {"gelu", "tanh", "swiglu", "rotary", "attention"};
  return op.replayable && std::find(std::begin(kernels), std::end(kernels), op.kernel) != std::end(kernels);
}
bool is_codable(const Tensor& tensor) {
  return has_codes(tensor.type) && tensor.kind == TensorKind::activation &&
         tensor.bytes() >= least_coded_bytes;
}

class Coding {
 public:
  Coding(const Graph& graph, CodeBits bits)
      : graph_(graph),
        bits_(bits),
        result_(graph),
        producers_(producers_of(graph)),
        sources_(graph.tensors.size(), Source::kept),
        wanted_(graph.tensors.size(), false),
        codes_(graph.tensors.size(), no_id),
        decoded_(graph.tensors.size(), no_id) {}

  Graph run() {
    find_shared();
    for (const Op& op : graph_.ops)
      if (op.phase == Phase::forward && !is_last(op)) find_sources(op);
    for (const Op& op : graph_.ops)
      if (op.phase == Phase::backward)
        for (const TensorId read : op.reads) want(read);
    result_.ops.clear();
    for (const Op& op : graph_.ops) {
      if (op.phase == Phase::backward) {
        add_backward(op);
      } else {
        result_.ops.push_back(op);
        if (op.phase == Phase::forward) add_encode(op);
      }
    }
    return std::move(result_);
  }

 private:
  const Graph& graph_;
  CodeBits bits_;
  Graph result_;
  const std::vector<OpId> producers_;
  std::vector<Source> sources_;
  std::vector<bool> wanted_;       // by tensor: backward reads it, or what it is made of
  std::vector<bool> shared_;       // by tensor: ops of several units touch it
  std::vector<TensorId> codes_;    // by tensor: its codes; no_id: not made yet
  std::vector<TensorId> decoded_;  // by tensor: what backward reads in its place; no_id: not made yet

  // True for ops of the half-block that makes the loss.
  bool is_last(const Op& op) const {
    if (graph_.loss == no_id) return false;
    const Op& loss = graph_.op(producers_[graph_.loss]);
    return graph_.half_block_of(op.unit) == graph_.half_block_of(loss.unit);
  }

  void find_shared() {
    std::vector<std::uint32_t> units(graph_.tensors.size(), no_id);
    shared_.assign(graph_.tensors.size(), false);
    const auto touch = [&](TensorId id, std::uint32_t unit) {
      if (units[id] == no_id) units[id] = unit;
      if (units[id] != unit) shared_[id] = true;
    };
    for (const Op& op : graph_.ops) {
      for (const TensorId id : op.reads) touch(id, op.unit);
      for (const TensorId id : op.writes) touch(id, op.unit);
    }
  }

  void find_sources(const Op& op) {
    const bool all_own =
        std::none_of(op.writes.begin(), op.writes.end(), [&](TensorId id) { return shared_[id]; });
    if (is_product(op)) {
      if (!all_own || !is_codable(graph_.tensor(op.writes.front()))) return;
      sources_[op.writes.front()] = Source::coded;
      if (op.kernel == "linear_gelu") sources_[op.writes[1]] = Source::anew;
    } else if (all_own && is_made_anew(op) && follows(op) && is_worth_making_anew(op)) {
      for (const TensorId id : op.writes) sources_[id] = Source::anew;
    } else if (op.kernel == "attention") {
      for (const TensorId id : op.reads) keep(id);
    }
  }
  // Attention runs again only if that costs no more than the product of its queries, keys and values.
  bool is_worth_making_anew(const Op& op) const {
    return op.kernel != "attention" || op.cost.flops <= product_flops(op.reads.front());
  }
  // Returns the arithmetic of the product that a value was made of; 0 for exact values.
  double product_flops(TensorId id) const {
    if (sources_[id] == Source::kept) return 0;
    const Op& maker = graph_.op(producers_[id]);
    return is_product(maker) ? maker.cost.flops : product_flops(maker.reads.front());
  }
  // Statistics of exact values do not belong to decoded ones, so that these values stay exact.
  void keep(TensorId id) {
    if (sources_[id] == Source::kept) return;
    const Op& maker = graph_.op(producers_[id]);
    for (const TensorId written : maker.writes) sources_[written] = Source::kept;
    if (is_product(maker)) return;
    for (const TensorId from : maker.reads) keep(from);
  }
  // True if backward can compute the op from decoded values, parameters and inputs.
  bool follows(const Op& op) const {
    bool from_decoded = false, has_all = true;
    for (const TensorId id : op.reads) {
      from_decoded = from_decoded || sources_[id] != Source::kept;
      has_all = has_all && (sources_[id] != Source::kept || is_given(id));
    }
    return from_decoded && has_all;
  }
  bool is_given(TensorId id) const {
    const TensorKind kind = graph_.kind_of(id);
    const bool is_gathered = producers_[id] != no_id && graph_.op(producers_[id]).kernel == "gather";
    return kind == TensorKind::parameter || kind == TensorKind::input || is_gathered;
  }

  void want(TensorId id) {
    if (wanted_[id] || sources_[id] == Source::kept) return;
    wanted_[id] = true;
    if (sources_[id] == Source::coded) return;
    for (const TensorId from : made_from(id)) want(from);
  }
  // Returns what the op that makes a value anew reads: of `linear_gelu`, the product.
  std::vector<TensorId> made_from(TensorId id) const {
    const Op& op = graph_.op(producers_[id]);
    return is_product(op) ? std::vector{op.writes.front()} : op.reads;
  }

  TensorId add_tensor(std::string name, DataType type, std::vector<std::int64_t> shape) {
    result_.tensors.push_back({std::move(name), type, std::move(shape), TensorKind::activation, {}});
    return static_cast<TensorId>(result_.tensors.size() - 1);
  }
  TensorId add_like(TensorId id, std::string_view suffix) {
    const Tensor& like = graph_.tensor(id);
    return add_tensor(fmt::format("{}.{}", like.name, suffix), like.type, like.shape);
  }
  void add_op(const Op& beside, Op op) {
    op.phase = beside.phase;
    op.unit = beside.unit;
    op.may_alias.clear();
    if (op.cost.bytes == 0) op.cost.bytes = operand_bytes(result_, op);
    result_.ops.push_back(std::move(op));
  }
  void add_codec_op(const Op& beside, TensorId of, const char* kernel, TensorId read, TensorId written) {
    Op op;
    op.name = fmt::format("{}.{}", graph_.tensor(of).name, kernel);
    op.kernel = kernel;
    op.attributes = {{"bits", static_cast<std::int64_t>(bits_)}};
    op.reads = {read};
    op.writes = {written};
    add_op(beside, std::move(op));
  }

  void add_encode(const Op& op) {
    const TensorId id = op.writes.empty() ? no_id : op.writes.front();
    if (id == no_id || sources_[id] != Source::coded || !wanted_[id]) return;
    const auto bytes = static_cast<std::int64_t>(coded_bytes(graph_.tensor(id).elements(), bits_));
    codes_[id] = add_tensor(graph_.tensor(id).name + ".codes", DataType::u8, {bytes});
    add_codec_op(op, id, "encode", id, codes_[id]);
  }

  // What is made from decoded values may be used again, so that no op writes over it.
  void add_backward(const Op& op) {
    Op changed = op;
    for (TensorId& read : changed.reads) read = in_backward(op, read);
    std::erase_if(changed.may_alias,
                  [&](const Alias& alias) { return changed.reads[alias.read] != op.reads[alias.read]; });
    result_.ops.push_back(std::move(changed));
  }

  // Returns what backward reads in the place of a value, made before its first use there.
  TensorId in_backward(const Op& beside, TensorId id) {
    if (sources_[id] == Source::kept) return id;
    if (decoded_[id] == no_id && sources_[id] == Source::coded) decode(beside, id);
    if (decoded_[id] == no_id) make_anew(beside, graph_.op(producers_[id]));
    return decoded_[id];
  }
  void decode(const Op& beside, TensorId id) {
    decoded_[id] = add_like(id, "decoded");
    add_codec_op(beside, id, "decode", codes_[id], decoded_[id]);
  }
  void make_anew(const Op& beside, const Op& forward) {
    Op op = is_product(forward) ? gelu_of(forward) : forward;
    op.name = forward.name + ".anew";
    for (TensorId& read : op.reads) read = in_backward(beside, read);
    for (TensorId& written : op.writes) {
      decoded_[written] = add_like(written, "anew");
      written = decoded_[written];
    }
    add_op(beside, std::move(op));
  }
  // Returns the second half of a linear_gelu.
  Op gelu_of(const Op& both) const {
    Op op = both;
    op.kernel = "gelu";
    op.attributes = {{"form", both.attributes.at("form")}};
    op.reads = {both.writes[0]};
    op.writes = {both.writes[1]};
    op.cost = {12 * static_cast<double>(graph_.tensor(op.writes.front()).elements()), 0};
    return op;
  }
};

}  // namespace

Graph with_coded_activations(const Graph& graph, CodeBits bits) {
  const bool is_coded =
      std::any_of(graph.ops.begin(), graph.ops.end(), [](const Op& op) { return op.kernel == "encode"; });
  if (is_coded)
    throw InvalidInput("coded activations: the graph has some already; give one without `encode`");
  check(graph);
  return Coding(graph, bits).run();
}

std::string_view coding_word(std::optional<CodeBits> bits) {
  if (!bits) return "off";
  return *bits == CodeBits::four ? "4" : "8";
}
bool is_coding_word(std::string_view word) { return word == "off" || word == "8" || word == "4"; }
std::optional<CodeBits> bits_of_coding(std::string_view word) {
  if (word == "off") return {};
  return word == "4" ? CodeBits::four : CodeBits::eight;
}

}  // namespace stowage
