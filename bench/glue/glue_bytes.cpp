#include "bench/glue/glue_bytes.h"

#include <algorithm>
#include <map>
#include <set>

namespace stowage::bench {
namespace {

bool is_glue(const Op& op) {
  if (op.kernel == "linear_backward_bias") return true;
  return !op.kernel.starts_with("linear") && !op.kernel.starts_with("attention");
}

double bytes_of(const Graph& graph, TensorId id) { return static_cast<double>(graph.tensor(id).bytes()); }

// An embedding reads its tables row by row: as many bytes as it writes.
double read_bytes(const Graph& graph, const Op& op, TensorId id) {
  const bool table = op.kernel == "embedding" && graph.tensor(id).kind == TensorKind::parameter;
  return table ? bytes_of(graph, op.writes[0]) : bytes_of(graph, id);
}

// Groups of ops that may run as one.
class Groups {
 public:
  explicit Groups(const Graph& graph) : graph_(graph), ancestors_(graph.ops.size()) {
    std::vector<OpId> producers(graph.tensors.size(), no_id);
    for (OpId id = 0; id < graph.ops.size(); ++id) {
      const Op& op = graph.op(id);
      for (const TensorId read : op.reads) add_ancestor(id, producers[graph.whole_of(read)]);
      for (const TensorId written : op.writes) producers[graph.whole_of(written)] = id;
      group_of_.push_back(group_for(id));
      members_[group_of_[id]].push_back(id);
      for (const TensorId read : op.reads) users_[graph.whole_of(read)].insert(id);
      for (const TensorId written : op.writes) users_[graph.whole_of(written)].insert(id);
    }
  }

  double least(OpId id) const {
    const Op& op = graph_.op(id);
    double bytes = 0;
    for (const TensorId read : op.reads) {
      if (!used_before(id, read)) bytes += read_bytes(graph_, op, read);
    }
    for (const TensorId written : op.writes) {
      if (read_outside(id, written)) bytes += bytes_of(graph_, written);
    }
    return bytes;
  }

 private:
  const Graph& graph_;
  std::vector<std::set<OpId>> ancestors_;
  std::vector<OpId> group_of_;  // the group's first op
  std::map<OpId, std::vector<OpId>> members_;
  std::map<TensorId, std::set<OpId>> users_;  // by whole; its slices' users are among its users

  void add_ancestor(OpId id, OpId producer) {
    if (producer == no_id || producer == id) return;
    ancestors_[id].insert(producer);
    ancestors_[id].insert(ancestors_[producer].begin(), ancestors_[producer].end());
  }

  OpId group_for(OpId id) const {
    if (!is_glue(graph_.op(id)) || graph_.op(id).phase == Phase::update) return id;
    std::set<OpId, std::greater<>> candidates;
    for (const TensorId read : graph_.op(id).reads) {
      const auto users = users_.find(graph_.whole_of(read));
      if (users == users_.end()) continue;
      for (const OpId user : users->second) candidates.insert(group_of_[user]);
    }
    const auto found =
        std::find_if(candidates.begin(), candidates.end(), [&](OpId group) { return may_join(id, group); });
    return found == candidates.end() ? id : *found;
  }

  bool may_join(OpId id, OpId group) const {
    if (!is_glue(graph_.op(group)) || graph_.op(group).phase != graph_.op(id).phase) return false;
    const std::vector<OpId>& members = members_.at(group);
    return std::none_of(ancestors_[id].begin(), ancestors_[id].end(), [&](OpId between) {
      return group_of_[between] != group && std::any_of(members.begin(), members.end(), [&](OpId member) {
               return ancestors_[between].contains(member);
             });
    });
  }

  bool used_before(OpId id, TensorId tensor) const {
    const std::set<OpId>& users = users_.at(graph_.whole_of(tensor));
    return std::any_of(users.begin(), users.lower_bound(id), [&](OpId user) {
      return group_of_[user] == group_of_[id] &&
             (touches(user, tensor) || touches(user, graph_.whole_of(tensor)));
    });
  }

  bool touches(OpId id, TensorId tensor) const {
    const Op& op = graph_.op(id);
    return std::find(op.reads.begin(), op.reads.end(), tensor) != op.reads.end() ||
           std::find(op.writes.begin(), op.writes.end(), tensor) != op.writes.end();
  }

  bool read_outside(OpId id, TensorId tensor) const {
    const std::set<OpId>& users = users_.at(graph_.whole_of(tensor));
    return users.size() == 1 || std::any_of(users.begin(), users.end(), [&](OpId user) {
             return group_of_[user] != group_of_[id] || graph_.op(user).phase == Phase::update;
           });
  }
};

class Count {
 public:
  explicit Count(const Graph& graph) : graph_(graph), groups_(graph) {
    for (OpId id = 0; id < graph.ops.size(); ++id) {
      const Op& op = graph.op(id);
      if (op.kernel == "linear_cross_entropy") add_head(op);
      if (is_glue(op)) add_glue(id);
    }
  }

  std::vector<GlueKernel> kernels;

 private:
  const Graph& graph_;
  Groups groups_;

  GlueKernel& of(const std::string& kernel) {
    const auto found = std::find_if(kernels.begin(), kernels.end(),
                                    [&](const GlueKernel& each) { return each.kernel == kernel; });
    return found == kernels.end() ? kernels.emplace_back(GlueKernel{kernel}) : *found;
  }

  void add_glue(OpId id) {
    const Op& op = graph_.op(id);
    GlueKernel& sum = of(op.kernel);
    ++sum.launches;
    for (const TensorId read : op.reads) sum.read += read_bytes(graph_, op, read);
    for (const TensorId written : op.writes) sum.written += bytes_of(graph_, written);
    sum.least += groups_.least(id);
  }

  // The softmax keeps a row in shared memory between its two passes, so it reads each logit once. Products
  // that add to f32 sums also read the sums, except in the first chunk; at the end the sums are rounded. If
  // the logits were one chunk, there would be no sums, and no separate pass over the bias's gradient.
  void add_head(const Op& op) {
    const Tensor& x = graph_.tensor(op.reads[0]);
    const Tensor& weight = graph_.tensor(op.reads[1]);
    const std::int64_t columns = weight.elements() / x.shape[1];
    const auto chunk = std::get<std::int64_t>(op.attributes.at("chunk"));
    const std::int64_t chunks = (x.shape[0] + chunk - 1) / chunk;
    const auto element = static_cast<double>(size_of(x.type));
    const double logits = static_cast<double>(x.shape[0] * columns) * element;
    add(of("head: softmax"), chunks, logits, logits, 2 * logits);
    if (op.reads.size() > 3) add(of("head: bias"), chunks, logits, 0, 0);
    if (x.type != DataType::bf16 || chunks == 1) return;
    const double sums = 4.0 * static_cast<double>(weight.elements());
    add(of("head: f32 sums"), 1, static_cast<double>(chunks) * sums,
        static_cast<double>(chunks) * sums + bytes_of(graph_, op.writes[2]), 0);
  }

  static void add(GlueKernel& to, std::int64_t launches, double read, double written, double least) {
    to.launches += launches;
    to.read += read;
    to.written += written;
    to.least += least;
  }
};

}  // namespace

std::vector<GlueKernel> glue_bytes(const Graph& graph) { return Count(graph).kernels; }

}  // namespace stowage::bench
