#include "tests/offload/oracle/mip.h"

#include <Cbc_C_Interface.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "src/graph/cost.h"

namespace stowage::oracle {
namespace {

// A linear expression: constant and coefficients by column.
struct Sum {
  double constant = 0;
  std::map<int, double> terms;
  void add(double factor, int column) { terms[column] += factor; }
  void add(const Sum& other) {
    constant += other.constant;
    for (const auto& [column, factor] : other.terms) terms[column] += factor;
  }
};

class Program {
 public:
  Program() : model_(Cbc_newModel(), Cbc_deleteModel) { Cbc_setLogLevel(model_.get(), 0); }
  int binary() { return column(1, true); }
  int fraction() { return column(1, false); }
  int positive(double objective) { return column(1e30, false, objective); }
  void at_most(const Sum& sum, double limit) {
    std::vector<int> columns;
    std::vector<double> factors;
    for (const auto& [column, factor] : sum.terms) {
      columns.push_back(column);
      factors.push_back(factor);
    }
    Cbc_addRow(model_.get(), "", static_cast<int>(columns.size()), columns.data(), factors.data(), 'L',
               limit - sum.constant);
  }
  MipBound solve(double most_seconds) {
    Cbc_setParameter(model_.get(), "seconds", std::to_string(most_seconds).c_str());
    Cbc_setParameter(model_.get(), "log", "0");
    Cbc_solve(model_.get());
    if (Cbc_isProvenInfeasible(model_.get())) return {std::numeric_limits<double>::infinity(), true};
    return {Cbc_getBestPossibleObjValue(model_.get()), Cbc_isProvenOptimal(model_.get()) != 0};
  }

 private:
  int column(double most, bool integer, double objective = 0) {
    Cbc_addCol(model_.get(), "", 0, most, objective, integer ? 1 : 0, 0, nullptr, nullptr);
    return columns_++;
  }
  std::unique_ptr<Cbc_Model, void (*)(Cbc_Model*)> model_;
  int columns_ = 0;
};

// Times are in milliseconds and bytes in KiB, so that the solver's tolerances (1e-6) are small beside them.
constexpr double ms = 1e3, kib = 1024;

class Formulation {
 public:
  Formulation(const Graph& graph, const Machine& machine, const Budget& budget)
      : graph_(graph),
        machine_(machine),
        device_(static_cast<double>(budget.device) / kib),
        host_(static_cast<double>(budget.host) / kib) {
    for (OpId op = 0; op < graph.ops.size(); ++op)
      if (graph.op(op).phase != Phase::update) ops_ = op + 1;
    while (turn_ < ops_ && graph.op(turn_).phase == Phase::forward) ++turn_;
    uses_.resize(graph.tensors.size());
    for (OpId op = 0; op < ops_; ++op)
      for (const auto* ids : {&graph.op(op).reads, &graph.op(op).writes})
        for (TensorId id : *ids)
          if (uses_[id].empty() || uses_[id].back() != op) uses_[id].push_back(op);
    live_.resize(ops_);
    needs_.resize(ops_);
    leaves_.resize(ops_);
    late_.resize(ops_);
    early_.resize(ops_);
    replay_before_.resize(ops_);
    step_ = program_.positive(1);
  }

  MipBound run(double most_seconds) {
    for (const Op& op : graph_.ops)
      if (op.phase == Phase::update) add_update(op);
    for (TensorId id = 0; id < graph_.tensors.size(); ++id) add_tensor(id);
    add_replays();
    add_rows();
    MipBound bound = program_.solve(most_seconds);
    bound.seconds /= ms;
    return bound;
  }

 private:
  double bytes(TensorId id) const { return static_cast<double>(graph_.tensor(id).bytes()) / kib; }
  double passing(const Link& link, TensorId id) const {
    return ms * static_cast<double>(graph_.tensor(id).bytes()) / link.bytes_per_second;
  }
  double whole(const Link& link, TensorId id) const { return ms * link.seconds(graph_.tensor(id).bytes()); }
  static bool has(const std::vector<TensorId>& ids, TensorId id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  }
  void live(std::size_t first, std::size_t last, const Sum& sum) {
    for (std::size_t op = first; op <= last; ++op) live_[op].add(sum);
  }
  static Sum times(double factor, int column, double constant = 0) {
    Sum sum;
    sum.constant = constant;
    sum.add(factor, column);
    return sum;
  }

  void add_update(const Op& op) {
    if (has(op.writes, graph_.clip)) {
      on_host_.constant += bytes(graph_.clip) + bytes(graph_.loss);
      for (TensorId id : op.reads) on_host_.constant += bytes(id);
      gate_ = ms * host_seconds(op, machine_);
      return;
    }
    const int resident = program_.binary(), early = program_.binary();
    add_host_update(op, resident, early);
    updates_.add(ms * op_seconds(op, machine_), resident);
    for (TensorId id : op.reads) {
      const TensorKind kind = graph_.tensor(id).kind;
      if (id != graph_.clip) on_host_.add(times(-bytes(id), resident, bytes(id)));
      if (kind == TensorKind::optimizer_state) live(0, ops_ - 1, times(bytes(id), resident));
      if (kind == TensorKind::gradient) add_gradient(id, resident);
      if (kind == TensorKind::parameter) add_loads(id, resident);
    }
  }
  void add_host_update(const Op& op, int resident, int early) {
    Sum one = times(1, early);
    one.add(1, resident);
    program_.at_most(one, 1);
    if (undo_bytes(graph_, op) == 0) program_.at_most(times(1, early), 0);
    const double seconds = ms * host_seconds(op, machine_);
    Sum late = times(-seconds, resident, seconds);
    late.add(-seconds, early);
    const Sum before_gate = times(ms * undoable_seconds(graph_, op, machine_), early);
    host_updates_.add(late);
    host_updates_.add(before_gate);
    on_host_.add(static_cast<double>(undo_bytes(graph_, op)) / kib, early);
    for (TensorId id : op.reads) {
      if (graph_.tensor(id).kind == TensorKind::parameter) late_[uses_[id].front()].add(late);
      if (graph_.tensor(id).kind == TensorKind::gradient) early_[uses_[id].back()].add(before_gate);
    }
  }
  void add_gradient(TensorId id, int resident) {
    const OpId first = uses_[id].front(), last = uses_[id].back();
    live(first, last, times(0, resident, bytes(id)));
    if (last + 1 < ops_) live(last + 1, ops_ - 1, times(bytes(id), resident));
    const double seconds = passing(machine_.d2h, id);
    leaves_[last].add(times(-seconds, resident, seconds));
  }
  // `resident` < 0: an input.
  void add_loads(TensorId id, int resident) {
    const bool input = resident < 0;
    const double seconds = input ? whole(machine_.h2d, id) : passing(machine_.h2d, id);
    const std::vector<OpId>& uses = uses_[id];
    if (uses.empty()) return;
    Sum first;
    first.constant = seconds;
    if (!input) first.add(-seconds, resident);
    needs_[uses.front()].add(first);
    Sum there;
    there.constant = bytes(id);
    for (OpId use : uses) live(use, use, there);
    for (std::size_t i = 1; i < uses.size(); ++i) {
      if (uses[i] == uses[i - 1] + 1) continue;
      const int away = program_.binary();
      live(uses[i - 1] + 1, uses[i] - 1, times(-bytes(id), away, bytes(id)));
      needs_[uses[i]].add(seconds, away);
      if (input) continue;
      Sum not_both = times(1, away);
      not_both.add(1, resident);
      program_.at_most(not_both, 1);
    }
    if (input) return;
    if (uses.front() > 0) live(0, uses.front() - 1, times(bytes(id), resident));
    if (uses.back() + 1 < ops_) live(uses.back() + 1, ops_ - 1, times(bytes(id), resident));
  }

  void add_tensor(TensorId id) {
    const TensorKind kind = graph_.tensor(id).kind;
    if (kind == TensorKind::input) {
      add_loads(id, -1);
      on_host_.constant += bytes(id);
    }
    if (kind == TensorKind::workspace)
      for (OpId use : uses_[id]) live(use, use, {bytes(id), {}});
    if (kind != TensorKind::activation || uses_[id].empty()) return;
    const std::vector<OpId>& uses = uses_[id];
    const auto late = std::lower_bound(uses.begin(), uses.end(), turn_);
    const bool crosses = late != uses.begin() && late != uses.end() && *late > *(late - 1) + 1;
    if (!crosses) {
      live(uses.front(), uses.back(), {bytes(id), {}});
      if (id == graph_.loss) leaves_[uses.back()].constant += whole(machine_.d2h, id);
      return;
    }
    add_value(id, *(late - 1), *late);
  }
  void add_value(TensorId id, OpId early, OpId late) {
    const int offload = program_.binary(), recompute = program_.binary();
    Sum gone = times(1, offload);
    gone.add(1, recompute);
    program_.at_most(gone, may_recompute(id) ? 1 : 1);
    if (!may_recompute(id)) program_.at_most(times(1, recompute), 0);
    live(uses_[id].front(), early, {bytes(id), {}});
    live(late, uses_[id].back(), {bytes(id), {}});
    for (OpId op = early + 1; op < late; ++op) {
      live_[op].constant += bytes(id);
      live_[op].add(-bytes(id), offload);
      live_[op].add(-bytes(id), recompute);
    }
    leaves_[early].add(whole(machine_.d2h, id), offload);
    on_host_.add(bytes(id), offload);
    needs_[late].add(whole(machine_.h2d, id), offload);
    recompute_[id] = recompute;
  }
  bool crosses_units(TensorId id) const {
    const std::uint32_t unit = graph_.op(uses_[id].front()).unit;
    return std::any_of(uses_[id].begin(), uses_[id].end(),
                       [&](OpId op) { return graph_.op(op).unit != unit; });
  }
  bool may_recompute(TensorId id) const {
    return !crosses_units(id) && graph_.op(uses_[id].front()).unit != graph_.op(turn_ - 1).unit;
  }

  // An op is replayed before its unit's backward if something that it writes is recomputed, or is read by an
  // op that is replayed and is kept for no other reason.
  void add_replays() {
    std::map<OpId, int> replayed;
    for (OpId op = 0; op < turn_; ++op) replayed[op] = program_.fraction();
    for (OpId op = 0; op < turn_; ++op) {
      const Op& here = graph_.op(op);
      for (TensorId id : here.writes)
        if (recompute_.count(id) != 0) no_more(recompute_[id], replayed[op]);
      for (TensorId id : here.reads) {
        const bool made_here = graph_.tensor(id).kind == TensorKind::activation && !crosses_units(id);
        if (made_here && recompute_.count(id) == 0) no_more(replayed[op], replayed[uses_[id].front()]);
      }
      for (OpId back = turn_; back < ops_; ++back)
        if (graph_.op(back).unit == here.unit) {
          replay_before_[back].add(ms * op_seconds(here, machine_), replayed[op]);
          break;
        }
    }
  }
  void no_more(int a, int b) {
    Sum sum = times(1, a);
    sum.add(-1, b);
    program_.at_most(sum, 0);
  }

  void add_rows() {
    for (const Sum& sum : live_) program_.at_most(sum, device_);
    program_.at_most(on_host_, host_);
    Sum work = updates_;
    for (OpId op = 0; op < ops_; ++op) {
      work.add(replay_before_[op]);
      work.constant += ms * op_seconds(graph_.op(op), machine_);
    }
    takes(work);
    takes(host_updates_);
    // Traffic needed by this op and earlier ones, or late updates of what they read, then all work from it
    // on; work up to it, then traffic left by it and later ones, or early updates with gradients that these
    // make.
    Sum needed, late, rest = work, done = updates_;
    rest.add(negative(updates_));
    for (OpId op = 0; op < ops_; ++op) {
      needed.add(needs_[op]);
      late.add(late_[op]);
      rest.add(negative(replay_before_[op]));
      takes(both(needed, rest));
      takes(both(late, rest));
      rest.constant -= ms * op_seconds(graph_.op(op), machine_);
      done.add(replay_before_[op]);
      done.constant += ms * op_seconds(graph_.op(op), machine_);
      takes(both(done, from(op, leaves_)));
      takes(both(done, from(op, early_)));
    }
  }
  static Sum both(Sum a, const Sum& b) {
    a.add(b);
    return a;
  }
  Sum from(OpId op, const std::vector<Sum>& sums) const {
    Sum sum;
    for (; op < ops_; ++op) sum.add(sums[op]);
    return sum;
  }
  static Sum negative(Sum sum) {
    sum.constant = -sum.constant;
    for (auto& [column, factor] : sum.terms) factor = -factor;
    return sum;
  }
  void takes(Sum sum) {
    sum.add(-1, step_);
    program_.at_most(sum, -gate_);
  }

  const Graph& graph_;
  const Machine& machine_;
  double device_, host_;  // KiB
  Program program_;
  int step_ = 0;
  OpId ops_ = 0, turn_ = 0;                                 // forward and backward; forward
  std::vector<std::vector<OpId>> uses_;                     // by tensor
  std::vector<Sum> live_, needs_, leaves_, replay_before_;  // by op
  std::vector<Sum> late_,
      early_;  // updates on the host by op: that first reads the weight, that makes the gradient
  Sum host_updates_, updates_;
  Sum on_host_;  // KiB
  double gate_ = 0;
  std::map<TensorId, int> recompute_;
};

}  // namespace

MipBound mip_bound(const Graph& graph, const Machine& machine, const Budget& budget, double most_seconds) {
  return Formulation(graph, machine, budget).run(most_seconds);
}

}  // namespace stowage::oracle
