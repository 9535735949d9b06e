// Steps that fail while updates have begun before the gate: these are taken back to the bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cstring>
#include <limits>
#include <tuple>

#include "offload/engine/non_finite.h"
#include "stowage/models.h"
#include "stowage/simulated_device.h"
#include "tests/offload/engine/fault_sweep.h"
#include "tests/offload/engine/speculating_gpt.h"

namespace stowage {
namespace {

using namespace stowage::testing;

// The types that a step's undo records depend on.
struct RecordTypes {
  Moments moments;
  DataType type;  // of the graph's work
};
constexpr RecordTypes plain_types{Moments::f32, DataType::f32};
const auto other_types = ::testing::Values(  // beside plain_types
    RecordTypes{Moments::f32, DataType::f16}, RecordTypes{Moments::bf16, DataType::f32},
    RecordTypes{Moments::eight_bit, DataType::bf16}, RecordTypes{Moments::eight_bit, DataType::f16});

std::string name_of(const RecordTypes& types) {
  return std::string(to_string(types.moments)) + "_of_" + std::string(to_string(types.type));
}
void PrintTo(const RecordTypes& types, std::ostream* out) { *out << name_of(types); }

Graph smallest_gpt_with_clip(double clip, const RecordTypes& types) {
  GraphBuilder builder(types.type);
  const BuiltModel model =
      gpt(builder, {.layers = 1, .width = 8, .heads = 2, .vocabulary = 16, .sequence = 4, .batch = 1});
  AdamW optimizer;
  optimizer.clip = clip;
  optimizer.moments = types.moments;
  return builder.finish(model.loss, optimizer);
}

// Half of the steps' norms. By much smaller scales the moments become so small beside the gradients that no
// update could be taken back, and none would be made.
constexpr double clips_all = 0.8;
constexpr double clips_none = 0;

struct FaultCase {
  const char* name;
  double clip;
  Fault::Kind kind;
  bool drain_after;
};
void PrintTo(const FaultCase& of, std::ostream* out) { *out << of.name; }

class SpeculationFaults : public ::testing::TestWithParam<std::tuple<FaultCase, RecordTypes>> {};

// A fault in the update of a step that nobody waits for is met by the next step, before whose gate other
// updates would have begun.
TEST_P(SpeculationFaults, EndAtAStepBoundaryWithNothingSpeculated) {
  const auto& [fault, types] = GetParam();
  const Graph graph = smallest_gpt_with_clip(fault.clip, types);
  const Plan plan = plan_with_early_updates(graph, 256);
  const TrainingRun expected = run_evaluator(graph, cpu_launch_table(), 4, 16);
  for (const std::uint64_t norm : expected.norms) EXPECT_GT(std::bit_cast<double>(norm), clips_all);
  const int fired = sweep_faults(
      {graph, plan, cpu_launch_table(), Executor::virtual_time, fault.kind, 2, 4, fault.drain_after, 16});
  EXPECT_GT(fired, static_cast<int>(3 * plan.instructions.size()));
}

std::string name_of_fault_case(const ::testing::TestParamInfo<SpeculationFaults::ParamType>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + name_of(std::get<1>(info.param));
}

constexpr FaultCase clipped_call{"clipped_call", clips_all, Fault::Kind::call, true};
constexpr FaultCase unclipped_work_go_on{"unclipped_work_go_on", clips_none, Fault::Kind::work, false};

INSTANTIATE_TEST_SUITE_P(
    Gpt, SpeculationFaults,
    ::testing::Combine(::testing::Values(clipped_call,
                                         FaultCase{"clipped_work", clips_all, Fault::Kind::work, true},
                                         FaultCase{"clipped_work_go_on", clips_all, Fault::Kind::work, false},
                                         FaultCase{"unclipped_call", clips_none, Fault::Kind::call, true},
                                         FaultCase{"unclipped_work", clips_none, Fault::Kind::work, true},
                                         unclipped_work_go_on),
                       ::testing::Values(plain_types)),
    name_of_fault_case);

// A sweep is long: of each of these types one that undoes every update and one that finishes them.
INSTANTIATE_TEST_SUITE_P(OtherTypes, SpeculationFaults,
                         ::testing::Combine(::testing::Values(clipped_call, unclipped_work_go_on),
                                            other_types),
                         name_of_fault_case);

std::atomic<bool> spoils = false;  // kernels are plain functions

// Of the last gradient of the step: all others are finite. Two elements of bf16 or f16 with the bits of one
// NaN of f32 are 0 and a NaN.
void spoil_positions(const LaunchArguments& arguments) {
  static const Kernel honest = cpu_launch_table().find(*arguments.op);
  honest(arguments);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  if (spoils) std::memcpy(arguments.writes[0].data, &nan, sizeof nan);
}

class NonFiniteSpeculation : public ::testing::TestWithParam<std::tuple<Executor, RecordTypes>> {
 protected:
  static constexpr std::uint64_t bad_step = 3;
  static constexpr std::uint64_t steps = 6;

  struct Outcome {
    NonFinite::Finding finding;
    std::string what;
    SpeculatingRun run;  // from the bad step on, with what made it so mended
  };

  // `spoil` makes the step a bad one, `mend` undoes that.
  template <class Spoil, class Mend>
  Outcome outcome(const Plan& plan, bool speculate, Spoil spoil, Mend mend) const {
    const auto device = open_simulated_device(
        {.capacity = plan.device_peak_bytes, .executor = std::get<Executor>(GetParam())});
    EngineOptions options;
    options.seed = run_seed;
    options.machine = slow_host();
    options.kernels = cpu_launch_table();
    options.kernels->add("position_backward", spoil_positions);
    Engine engine(*device, graph_, plan, options);
    const SpikeInputs inputs(graph_, half_of_steps);
    train(engine, graph_, inputs, bad_step, speculate);
    spoil(engine);
    Outcome result;
    const auto before = read_values(engine, graph_);
    try {
      train(engine, graph_, inputs, bad_step + 1, speculate);
      ADD_FAILURE() << "the step was made";
    } catch (const NonFinite& error) {
      result.finding = error.finding();
      result.what = error.what();
    }
    EXPECT_EQ(engine.completed_steps(), bad_step);
    EXPECT_TRUE(read_values(engine, graph_) == before);
    mend(engine);
    result.run = train(engine, graph_, inputs, steps, speculate);
    return result;
  }

  template <class Spoil, class Mend>
  void expect_no_trace(Spoil spoil, Mend mend, NonFinite::Origin origin) const {
    const TrainingRun expected = evaluate(graph_, {graph_, half_of_steps}, steps);
    for (const double part_of_range : {0.0, 0.3}) {
      const Plan plan = speculating_plan(graph_, part_of_range);
      const Outcome with = outcome(plan, true, spoil, mend);
      const Outcome without = outcome(plan, false, spoil, mend);
      EXPECT_EQ(with.finding.origin, origin);
      EXPECT_EQ(with.what, without.what);
      EXPECT_TRUE(with.run.run.values == expected.values);
      EXPECT_TRUE(without.run.run.values == expected.values);
      EXPECT_THAT(with.run.speculated_updates, ::testing::Each(speculations_of(plan)));
    }
  }

  TensorId tensor_named(const std::string& name) const {
    for (TensorId id = 0; id < graph_.tensors.size(); ++id)
      if (graph_.tensor(id).name == name) return id;
    ADD_FAILURE() << "no tensor '" << name << "'";
    return 0;
  }

  const RecordTypes types_ = std::get<RecordTypes>(GetParam());
  const Graph graph_ = speculating_gpt(spike_clip, types_.moments, types_.type);
};

TEST_P(NonFiniteSpeculation, IsTakenBackWhereOneGradientIsNotFinite) {
  expect_no_trace([](Engine&) { spoils = true; }, [](Engine&) { spoils = false; }, NonFinite::Origin::op);
}

TEST_P(NonFiniteSpeculation, IsTakenBackWhereHardlyAnyGradientIsFinite) {
  const TensorId id = tensor_named("ln_f.weight");
  std::vector<std::byte> good;
  const auto spoil = [&](Engine& engine) {
    good = engine.read(id);
    std::vector<std::byte> bad = good;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(bad.data(), &nan, sizeof nan);
    engine.write(id, bad);
  };
  expect_no_trace(
      spoil, [&](Engine& engine) { engine.write(id, good); }, NonFinite::Origin::given);
}

std::string name_of_non_finite_case(const ::testing::TestParamInfo<NonFiniteSpeculation::ParamType>& info) {
  const bool threaded = std::get<Executor>(info.param) == Executor::threaded;
  return (threaded ? "threaded_" : "virtual_time_") + name_of(std::get<RecordTypes>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Executors, NonFiniteSpeculation,
                         ::testing::Combine(::testing::Values(Executor::threaded, Executor::virtual_time),
                                            ::testing::Values(plain_types)),
                         name_of_non_finite_case);
INSTANTIATE_TEST_SUITE_P(OtherTypes, NonFiniteSpeculation,
                         ::testing::Combine(::testing::Values(Executor::virtual_time), other_types),
                         name_of_non_finite_case);

}  // namespace
}  // namespace stowage
