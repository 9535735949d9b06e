#include "offload/parallel/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/error.h"

namespace stowage {
namespace {

// The part of an op in splitting: whether it gathers rows or makes sums that are exchanged.
enum class SplitRole : std::uint8_t { none, opens, closes, embeds, heads };

constexpr std::string_view head_kernels[] = {"linear_cross_entropy", "head_statistics", "head_backward"};

template <class Range, class Value>
bool has(const Range& range, const Value& value) {
  return std::find(std::begin(range), std::end(range), value) != std::end(range);
}

bool is_product(const Op& op) { return op.kernel == "linear" || op.kernel == "linear_gelu"; }

// Returns the name of the forward op that a backward op belongs to.
std::string forward_name(const Op& op) {
  const std::size_t end = op.phase == Phase::backward ? op.name.find(".backward") : std::string::npos;
  return op.name.substr(0, end);
}

class Splitter {
 public:
  Splitter(const Graph& graph, int split) : graph_(graph), split_(split), result_(graph) {}

  Graph run() {
    find_roles();
    find_whole();
    for (TensorId id = 0; id < graph_.tensors.size(); ++id)
      if (!whole_[id]) result_.tensors[id].shape = part_of(graph_.tensor(id));
    result_.ops.clear();
    for (OpId op = 0; op < graph_.ops.size(); ++op) add(op);
    return std::move(result_);
  }

 private:
  // Products of a half-block open until one of them reads what another has made.
  void find_roles() {
    std::map<std::uint32_t, std::vector<OpId>> products;  // by half-block
    std::set<std::uint32_t> heads;
    for (OpId op = 0; op < graph_.ops.size(); ++op) {
      const Op& of = graph_.op(op);
      if (of.phase == Phase::update) continue;
      const std::uint32_t block = graph_.half_block_of(of.unit);
      if (has(head_kernels, of.kernel)) {
        heads.insert(block);
        roles_[of.name] = SplitRole::heads;
      }
      if (of.kernel == "embedding") roles_[of.name] = SplitRole::embeds;
      if (of.phase == Phase::forward && is_product(of)) products[block].push_back(op);
    }
    for (const auto& [block, ops] : products) {
      if (heads.contains(block)) continue;  // its own products stay whole, on shares of rows
      const std::set<TensorId> made = made_from(block);
      for (const OpId op : ops)
        roles_[graph_.op(op).name] =
            made.contains(graph_.op(op).reads.front()) ? SplitRole::closes : SplitRole::opens;
    }
    const bool opens = std::any_of(roles_.begin(), roles_.end(),
                                   [](const auto& role) { return role.second == SplitRole::opens; });
    if (!opens)
      throw InvalidInput("the graph has no products that could be split; give a Transformer's step");
  }
  // Returns what the half-block's forward makes of its products' results.
  std::set<TensorId> made_from(std::uint32_t block) const {
    std::set<TensorId> made;
    for (const Op& op : graph_.ops) {
      if (op.phase != Phase::forward || graph_.half_block_of(op.unit) != block) continue;
      if (is_product(op) ||
          std::any_of(op.reads.begin(), op.reads.end(), [&](TensorId id) { return made.contains(id); }))
        made.insert(op.writes.begin(), op.writes.end());
    }
    return made;
  }
  SplitRole role_of(const Op& op) const {
    const auto found = roles_.find(has(head_kernels, op.kernel) ? op.name : forward_name(op));
    if (op.phase == Phase::update || found == roles_.end()) return SplitRole::none;
    const bool is_split = op.phase == Phase::forward || op.kernel.starts_with("linear_backward") ||
                          op.kernel == "embedding_backward" || has(head_kernels, op.kernel);
    return is_split ? found->second : SplitRole::none;
  }

  // Marks the tensors that every device has whole: parameters that no split op uses, with their gradients and
  // state; inputs, and numbers too few to be shared.
  void find_whole() {
    std::vector<std::uint8_t> split_weight(graph_.tensors.size(), 0);
    std::vector<TensorId> gathered_from(graph_.tensors.size(), no_id);
    for (const Op& op : graph_.ops)
      if (op.kernel == "gather" && op.reads.size() == 1 && op.writes.size() == 1)
        gathered_from[op.writes.front()] = op.reads.front();
    for (const Op& op : graph_.ops) {
      if (role_of(op) == SplitRole::none) continue;
      for (TensorId id : op.reads) {
        const TensorId parameter = gathered_from[id] == no_id ? id : gathered_from[id];
        if (graph_.tensor(parameter).kind == TensorKind::parameter) split_weight[parameter] = 1;
      }
    }
    whole_.assign(graph_.tensors.size(), 0);
    std::vector<std::string> kept;
    for (TensorId id = 0; id < graph_.tensors.size(); ++id) {
      const Tensor& tensor = graph_.tensor(id);
      if (tensor.kind == TensorKind::slice)
        throw InvalidInput(
            "a graph whose parameters are cut into slices cannot be split; build it without them");
      if (tensor.kind == TensorKind::parameter && !split_weight[id]) kept.push_back(tensor.name + ".");
    }
    std::sort(kept.begin(), kept.end());
    for (TensorId id = 0; id < graph_.tensors.size(); ++id) {
      const Tensor& tensor = graph_.tensor(id);
      const auto after = std::upper_bound(kept.begin(), kept.end(), tensor.name + ".");
      const bool of_kept = after != kept.begin() && (tensor.name + ".").starts_with(*std::prev(after));
      whole_[id] = tensor.kind == TensorKind::input || tensor.elements() < split_ || of_kept ||
                   tensor.type == DataType::f64;
    }
    // Rows between split ops, such as sums over the blocks of a table, are whole sums of a part each. So are
    // gradients of one input by several products, which are added before they are exchanged.
    std::vector<std::uint32_t> readers(graph_.tensors.size(), 0);
    for (const Op& op : graph_.ops)
      for (TensorId id : op.reads) ++readers[id];
    for (const Op& op : graph_.ops) {
      const bool adds = op.kernel == "accumulate" &&
                        std::all_of(op.reads.begin(), op.reads.end(),
                                    [&](TensorId id) { return sums_.contains(id) && readers[id] == 1; });
      if (adds) {
        adding_.insert(op.name);
        for (TensorId id : op.reads) whole_[id] = 1;
      }
      const SplitRole role = role_of(op);
      for (TensorId id : op.reads)
        if ((role == SplitRole::embeds || role == SplitRole::heads) && has(sums_, id)) whole_[id] = 1;
      for (TensorId id : partial_writes(op, role)) sums_.insert(id);
    }
  }

  // Returns the rows that an op reads and that have to be gathered.
  static std::vector<TensorId> gathered_reads(const Op& op, SplitRole role) {
    switch (role) {
      case SplitRole::opens:
        if (op.phase == Phase::forward || op.kernel == "linear_backward_weight") return {op.reads.front()};
        return {};
      case SplitRole::closes:
        if (op.phase == Phase::forward) return {};
        return {op.kernel == "linear_backward_weight" ? op.reads.at(1) : op.reads.front()};
      case SplitRole::embeds:
        return op.phase == Phase::backward ? std::vector{op.reads.at(1)} : std::vector<TensorId>{};
      case SplitRole::heads:
        return {op.reads.front()};
      case SplitRole::none:
        break;
    }
    return {};
  }
  // Returns the rows that an op writes as a part of a sum.
  std::vector<TensorId> partial_writes(const Op& op, SplitRole role) const {
    switch (role) {
      case SplitRole::opens:
        if (op.kernel == "linear_backward_input") return {op.writes.front()};
        return {};
      case SplitRole::closes:
      case SplitRole::embeds:
        return op.phase == Phase::forward ? std::vector{op.writes.front()} : std::vector<TensorId>{};
      case SplitRole::heads:
        for (TensorId id : op.writes) {
          const Tensor& tensor = graph_.tensor(id);
          const bool is_gradient_of_rows = tensor.kind == TensorKind::activation &&
                                           op.kernel != "head_statistics" &&
                                           tensor.elements() == graph_.tensor(op.reads.front()).elements();
          if (is_gradient_of_rows) return {id};
        }
        return {};
      case SplitRole::none:
        if (adding_.contains(op.name)) return {op.writes.front()};
        break;
    }
    return {};
  }

  std::vector<std::int64_t> part_of(const Tensor& tensor) const {
    std::vector<std::int64_t> shape = tensor.shape;
    if (!shape.empty() && shape.front() % split_ == 0)
      shape.front() /= split_;
    else
      shape = {(tensor.elements() + split_ - 1) / split_};
    return shape;
  }
  double received(TensorId whole) const {
    return static_cast<double>(graph_.tensor(whole).bytes()) * (split_ - 1) / split_;
  }
  TensorId add_tensor(const Tensor& like, const std::string& name, std::vector<std::int64_t> shape) {
    Tensor tensor{name, like.type, std::move(shape), TensorKind::activation, {}};
    result_.tensors.push_back(std::move(tensor));
    return static_cast<TensorId>(result_.tensors.size() - 1);
  }
  void add_op(std::string name, const char* kernel, const Op& beside, TensorId read, TensorId write,
              double peers) {
    Op op;
    op.name = std::move(name);
    op.kernel = kernel;
    op.reads = {read};
    op.writes = {write};
    op.phase = beside.phase;
    op.unit = beside.unit;
    op.cost.peer_bytes = peers;
    op.cost.bytes = static_cast<double>(result_.tensor(read).bytes() + result_.tensor(write).bytes());
    result_.ops.push_back(std::move(op));
  }

  void add(OpId id) {
    const Op& of = graph_.op(id);
    const SplitRole role = role_of(of);
    Op op = of;
    scale(of, op);
    std::set<TensorId> replaced;
    for (TensorId read : gathered_reads(of, role)) {
      TensorId& whole = gathered_[read];
      if (whole == 0) {
        const Tensor& tensor = graph_.tensor(read);
        whole = add_tensor(tensor, tensor.name + ".gathered", tensor.shape);
        add_op("gather." + tensor.name, "gather", of, read, whole, received(read));
      }
      std::replace(op.reads.begin(), op.reads.end(), read, whole);
      replaced.insert(read);
    }
    std::vector<TensorId> partial;
    for (TensorId written : partial_writes(of, role)) {
      if (whole_[written]) continue;  // the next block of the table adds to it
      const Tensor& tensor = graph_.tensor(written);
      partial.push_back(add_tensor(tensor, tensor.name + ".partial", tensor.shape));
      std::replace(op.writes.begin(), op.writes.end(), written, partial.back());
      replaced.insert(written);
    }
    std::erase_if(op.may_alias, [&](const Alias& alias) {
      return replaced.contains(of.writes[alias.write]) || replaced.contains(of.reads[alias.read]) ||
             result_.tensor(op.writes[alias.write]).bytes() != result_.tensor(op.reads[alias.read]).bytes();
    });
    result_.ops.push_back(std::move(op));
    std::size_t next = 0;
    for (TensorId written : partial_writes(of, role)) {
      if (whole_[written]) continue;
      const Tensor tensor = graph_.tensor(written);
      const TensorId shares = add_tensor(tensor, tensor.name + ".shares", tensor.shape);
      add_op("exchange." + tensor.name, "exchange", of, partial[next++], shares, received(written));
      add_op("sum." + tensor.name, "tree_sum", of, shares, written, 0);
    }
  }
  // A part of the work; of an update, of the norm and of bytes between other devices, as much as of the
  // tensors.
  void scale(const Op& of, Op& op) const {
    const double part = part_of(of);
    op.cost.flops *= part;
    op.cost.bytes *= part;
    op.cost.peer_bytes *= part;
    if (op.cost.seconds) *op.cost.seconds *= part;
  }
  double part_of(const Op& of) const {
    const auto part = [this](TensorId id) { return whole_[id] ? 1.0 : 1.0 / split_; };
    if (of.phase == Phase::update || is_collective(of))
      return of.writes.empty() ? 1 : part(of.writes.front());
    if (of.kernel != "square_sum" && of.kernel != "square_sums") return 1.0 / split_;
    double all = 0, here = 0;
    for (const TensorId gradient : of.reads) {
      const auto elements = static_cast<double>(graph_.tensor(gradient).elements());
      all += elements;
      here += elements * part(gradient);
    }
    return here / all;
  }

  const Graph& graph_;
  const int split_;
  Graph result_;
  std::map<std::string, SplitRole> roles_;  // by name of a forward op, or of a head's op
  std::vector<std::uint8_t> whole_;
  std::set<TensorId> sums_;       // sums of a part each
  std::set<std::string> adding_;  // names of the ops that add such sums
  std::map<TensorId, TensorId> gathered_;
};

}  // namespace

Graph split_of(const Graph& graph, int split) {
  if (split < 1) throw InvalidInput(fmt::format("{} devices cannot split a product; give 1 or more", split));
  return split == 1 ? graph : Splitter(graph, split).run();
}

}  // namespace stowage
