// Plans of several ranks, broken at random: the validator rejects each, or a training on all ranks shows that
// nothing is broken. Devices check every access, so where a run passes and leaves the bits of the unbroken
// plan, no other timing of its lanes leaves other bits. All ranks run the mutant: no plan alone can say that
// two ranks' plans differ in the order of collectives.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "stowage/engine_group.h"
#include "stowage/models.h"
#include "stowage/planner.h"
#include "stowage/simulated_device.h"
#include "tests/offload/engine/training_run.h"
#include "tests/offload/plan/validate/small_plans.h"
#include "tests/support/draws.h"
#include "tests/support/quick_plan.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

using namespace stowage::testing;

constexpr int cases = draws(28, 2);
constexpr int mutants_of_each = 40;

// One model on several ranks, and the plan of all of them.
struct Case {
  Graph whole;
  std::vector<Graph> ranks;
  Plan plan;
};

Graph tiny_gpt(std::uint32_t rank, std::uint32_t ranks, std::int64_t micro_batches) {
  ModelConfig config{.layers = 1, .width = 8, .heads = 2, .vocabulary = 16, .sequence = 4, .batch = 8};
  config.micro_batches = config.gradient_groups = micro_batches;
  config.rank = rank;
  config.ranks = ranks;
  GraphBuilder builder;
  const BuiltModel model = gpt(builder, config);
  return builder.finish(model.loss, AdamW{});
}

Case any_case(std::uint64_t seed) {
  const std::uint32_t ranks = seed % 2 == 0 ? 2 : 4;
  const std::int64_t micro_batches = seed % 4 < 2 ? ranks : 2 * ranks;
  Case made{tiny_gpt(0, 1, micro_batches), {}, {}};
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    made.ranks.push_back(tiny_gpt(rank, ranks, micro_batches));
  const Graph& graph = made.ranks.front();
  const Machine machine = machine_with_peers(seed);
  const Bytes least = minimum_bytes(graph, machine), need = need_bytes(graph, machine);
  made.plan = std::get<Plan>(quick_plan(graph, machine, {.device = random_budget(seed, least, need)}));
  return made;
}

// What three steps leave behind; none where one of them failed.
std::optional<TrainingRun> train(const Case& made, const Plan& plan) {
  std::vector<std::unique_ptr<SimulatedDevice>> devices;
  std::vector<Device*> all;
  for (std::size_t rank = 0; rank < made.ranks.size(); ++rank) {
    devices.push_back(open_simulated_device({.capacity = plan.device_peak_bytes}));
    all.push_back(devices.back().get());
  }
  EngineOptions options;
  options.validate = false;
  options.seed = run_seed;
  TrainingRun run;
  try {
    EngineGroup group(all, made.whole, made.ranks, plan, options);
    StepInputs inputs(made.whole, 16);
    for (std::uint64_t step = 0; step < 3; ++step) {
      const StepReport report = group.step(inputs.of(step), {learning_rate(step)});
      run.losses.push_back(std::bit_cast<std::uint64_t>(report.loss));
      run.norms.push_back(std::bit_cast<std::uint64_t>(report.grad_norm));
    }
    for (TensorId id = 0; id < made.whole.tensors.size(); ++id) {
      const TensorKind kind = made.whole.tensor(id).kind;
      if (kind == TensorKind::parameter || kind == TensorKind::optimizer_state)
        run.values.push_back(group.read(id));
    }
  } catch (const std::exception&) {
    return {};
  }
  return run;
}

enum class Mutation : std::uint8_t {
  early_gather,     // before the share that it gathers is on the device
  early_exchange,   // before the gradient is whole
  swap,             // two collectives change places
  neighbours_swap,  // and no other stands between them
  early_sum,        // before the shares that it adds up are exchanged
  late_sum,         // behind what reads it
  lost,             // a collective, a sum, or a transfer of a share is left out
  twice,            // a collective is made once more
  wait_lost,
  same_bytes,  // two lifetimes are put into the same bytes
};
constexpr int mutations = 10;

class Mutator {
 public:
  Mutator(const Graph& graph, const Plan& plan, std::uint64_t seed)
      : graph_(graph), plan_(plan), draws_(seed) {}

  // None where the plan has nothing of that kind to break.
  std::optional<Plan> mutated(Mutation mutation) {
    made_ = plan_;
    if (!mutate(mutation) || made_ == plan_) return {};
    settle();
    return std::move(made_);
  }
  // The plan unbroken, with lifetimes as short as a mutant's.
  Plan settled() {
    made_ = plan_;
    settle();
    return std::move(made_);
  }

 private:
  using Ids = std::vector<InstructionId>;

  std::size_t below(std::size_t count) { return static_cast<std::size_t>(draws_() % count); }
  InstructionId one_of(const Ids& ids) { return ids.empty() ? no_id : ids[below(ids.size())]; }

  template <class Predicate>
  Ids all(Predicate&& wanted) const {
    Ids found;
    for (InstructionId id = 0; id < made_.instructions.size(); ++id)
      if (wanted(made_.instructions[id])) found.push_back(id);
    return found;
  }
  Ids of_kernel(std::string_view kernel) const {
    return all(
        [&](const Instruction& each) { return each.op != no_id && graph_.op(each.op).kernel == kernel; });
  }
  Ids collectives() const {
    return all(
        [&](const Instruction& each) { return each.op != no_id && is_collective(graph_.op(each.op)); });
  }
  bool moves(const Instruction& instruction, TensorKind kind) const {
    return is_transfer(instruction.kind) &&
           made_.buckets[made_.lifetimes[instruction.lifetime].bucket].kind == kind;
  }
  // The launch that makes what the instruction's op reads first, and the first launch that reads its result.
  InstructionId maker(InstructionId of) const {
    const TensorId read = graph_.op(made_.instructions[of].op).reads.front();
    return first([&](const Op& op) { return std::count(op.writes.begin(), op.writes.end(), read) > 0; });
  }
  InstructionId reader(InstructionId of) const {
    const TensorId result = graph_.op(made_.instructions[of].op).writes.front();
    return first([&](const Op& op) { return std::count(op.reads.begin(), op.reads.end(), result) > 0; });
  }
  template <class Predicate>
  InstructionId first(Predicate&& wanted) const {
    for (InstructionId id = 0; id < made_.instructions.size(); ++id)
      if (made_.instructions[id].kind == InstructionKind::launch &&
          wanted(graph_.op(made_.instructions[id].op)))
        return id;
    return no_id;
  }
  // The transfer that brings a share for the gather.
  InstructionId share_of(InstructionId gather) const {
    InstructionId found = no_id;
    for (InstructionId id = 0; id < gather; ++id) {
      const Instruction& each = made_.instructions[id];
      const std::vector<LifetimeId>& uses = made_.instructions[gather].uses;
      if (each.kind == InstructionKind::prefetch && moves(each, TensorKind::parameter) &&
          std::count(uses.begin(), uses.end(), each.lifetime) > 0)
        found = id;
    }
    return found;
  }

  bool mutate(Mutation mutation) {
    switch (mutation) {
      case Mutation::early_gather: {
        const InstructionId gather = one_of(of_kernel("gather"));
        return gather != no_id && move_before(gather, share_of(gather));
      }
      case Mutation::early_exchange: {
        const InstructionId exchange = one_of(of_kernel("exchange"));
        return exchange != no_id && move_before(exchange, maker(exchange));
      }
      case Mutation::early_sum: {
        const InstructionId sum = one_of(of_kernel("tree_sum"));
        return sum != no_id && move_before(sum, maker(sum));
      }
      case Mutation::late_sum: {
        const InstructionId sum = one_of(of_kernel("tree_sum"));
        return sum != no_id && move_before(reader(sum), sum);
      }
      case Mutation::swap:
        return swap(one_of(collectives()), one_of(collectives()));
      case Mutation::neighbours_swap: {
        const Ids ids = collectives();
        const std::size_t number = below(ids.size() - 1);
        return swap(ids[number], ids[number + 1]);
      }
      case Mutation::lost:
        return lose();
      case Mutation::twice: {
        const InstructionId once = one_of(collectives());
        insert_copy(made_, once, once + 1);
        return true;
      }
      case Mutation::wait_lost:
        return lose_wait();
      case Mutation::same_bytes:
        made_.lifetimes[below(made_.lifetimes.size())].offset =
            made_.lifetimes[below(made_.lifetimes.size())].offset;
        return true;
    }
    return false;
  }

  bool move_before(InstructionId id, InstructionId other) {
    if (id == no_id || other == no_id || id <= other) return false;
    move_instruction(made_, id, other);
    return true;
  }
  bool swap(InstructionId a, InstructionId b) {
    if (a == b) return false;
    move_instruction(made_, std::max(a, b), std::min(a, b));
    move_instruction(made_, std::min(a, b) + 1, std::max(a, b));
    return true;
  }
  bool lose() {
    Ids possible = collectives();
    for (const Ids& more : {of_kernel("tree_sum"), all([&](const Instruction& each) {
                              return moves(each, TensorKind::parameter) || moves(each, TensorKind::gradient);
                            })})
      possible.insert(possible.end(), more.begin(), more.end());
    remove_instruction(made_, one_of(possible));
    return true;
  }
  bool lose_wait() {
    const InstructionId id = one_of(all([](const Instruction& each) { return !each.waits.empty(); }));
    std::vector<Wait>& waits = made_.instructions[id].waits;
    waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(below(waits.size())));
    return true;
  }

  // Corrects what follows from the order of instructions, so that no mutant is rejected for numbers that a
  // planner would have written otherwise: waits for what is enqueued later are dropped, lifetimes and totals
  // are those of the new order.
  void settle() {
    for (InstructionId id = 0; id < made_.instructions.size(); ++id)
      std::erase_if(made_.instructions[id].waits,
                    [&](const Wait& wait) { return wait.steps_back == 0 && wait.instruction >= id; });
    settle_lifetimes();
    settle_totals(made_);
  }
  // From the first use to the last, and ending with that or with the offload that it ended with.
  void settle_lifetimes() {
    struct Span {
      Position first = 0, last = 0;
      InstructionId end = no_id;
    };
    std::vector<std::optional<Span>> spans(made_.lifetimes.size());
    Position position = 0;
    for (InstructionId id = 0; id < made_.instructions.size(); ++id) {
      const Instruction& each = made_.instructions[id];
      if (!runs_on_device(each)) continue;
      for (const LifetimeId lifetime : each.uses) {
        if (!spans[lifetime]) spans[lifetime] = Span{.first = position};
        spans[lifetime]->last = position + 1;
        spans[lifetime]->end = id;
      }
      ++position;
    }
    for (LifetimeId id = 0; id < made_.lifetimes.size(); ++id) {
      Lifetime& lifetime = made_.lifetimes[id];
      if (lifetime.end == no_id) {  // resident
        lifetime.last = position;
      } else if (spans[id]) {
        lifetime.first = spans[id]->first;
        lifetime.last = spans[id]->last;
        if (!is_transfer(made_.instructions[lifetime.end].kind)) lifetime.end = spans[id]->end;
      }
    }
  }

  const Graph& graph_;
  const Plan& plan_;
  std::mt19937_64 draws_;
  Plan made_;
};

std::string_view to_string(Mutation mutation) {
  constexpr std::string_view names[mutations] = {"early gather", "early exchange", "swap", "neighbours swap",
                                                 "early sum",    "late sum",       "lost", "twice",
                                                 "wait lost",    "same bytes"};
  return names[static_cast<std::size_t>(mutation)];
}

struct Tally {
  int rejected = 0, harmless = 0;
};

class MutatedRanks : public ::testing::Test {
 protected:
  void judge(const Case& made, std::uint64_t seed) {
    const Graph& graph = made.ranks.front();
    Mutator mutator(graph, made.plan, seed);
    for (const std::string& finding : validate(graph, mutator.settled(), {})) FAIL() << finding;
    const std::optional<TrainingRun> right = train(made, made.plan);
    ASSERT_TRUE(right);
    for (int drawn = 0; drawn < mutants_of_each; ++drawn) {
      const auto mutation = static_cast<Mutation>(drawn % mutations);
      SCOPED_TRACE(::testing::Message() << to_string(mutation) << ", number " << drawn);
      const std::optional<Plan> mutant = mutator.mutated(mutation);
      if (!mutant) continue;
      const bool rejected = !validate(graph, *mutant, {}).empty();
      ++(rejected ? tallies_[mutation].rejected : tallies_[mutation].harmless);
      // Of what is rejected, the devices see each lost wait, too; an engine makes nothing of most others.
      if (rejected && mutation != Mutation::wait_lost) continue;
      const bool same = train(made, *mutant) == right;
      ASSERT_EQ(same, !rejected);
    }
  }
  std::map<Mutation, Tally> tallies_;
};

TEST_F(MutatedRanks, AreRejectedOrHarmless) {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    SCOPED_TRACE(seed);
    judge(any_case(seed), seed);
    if (HasFatalFailure()) return;
  }
  int drawn = 0;
  for (const auto& [mutation, tally] : tallies_) {
    EXPECT_GT(tally.rejected, 0) << to_string(mutation);
    drawn += tally.rejected + tally.harmless;
    RecordProperty(std::string(to_string(mutation)) + ", rejected", tally.rejected);
    RecordProperty(std::string(to_string(mutation)) + ", harmless", tally.harmless);
  }
  EXPECT_EQ(tallies_.size(), static_cast<std::size_t>(mutations));
  EXPECT_GE(drawn, cases * mutants_of_each * 9 / 10);
}

}  // namespace
}  // namespace stowage
