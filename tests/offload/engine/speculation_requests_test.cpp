// A stop, a checkpoint and a model that are asked for while updates have begun before the gate, or while
// their commits are still to run: they get the last committed step, whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "stowage/checkpoint.h"
#include "stowage/model_files.h"
#include "stowage/simulated_device.h"
#include "tests/offload/engine/speculating_gpt.h"
#include "tests/support/temporary_folder.h"
#include "tools/console/interrupt.h"

namespace stowage {
namespace {

using namespace stowage::testing;

constexpr std::uint64_t steps = 6;

bool every_other(std::uint64_t step) { return step % 2 == 0; }

// Kernels are plain functions: what they know is global.
std::atomic<std::uint64_t> asked_step;   // in which something is asked for
std::atomic<void (*)()> ask = nullptr;   // by the first update that begins before its gate
std::atomic<bool> commits_held = false;  // from the gate of that step on

void speculate_and_ask(const LaunchArguments& arguments) {
  static const Kernel honest = cpu_launch_table().find_if_present("adamw.speculate");
  honest(arguments);
  if (arguments.step.step != asked_step) return;
  if (void (*const request)() = ask.exchange(nullptr)) request();
}

void finish_when_let(const LaunchArguments& arguments) {
  static const Kernel honest = cpu_launch_table().find_if_present("adamw.finish");
  if (arguments.step.step == asked_step) commits_held.wait(true);
  honest(arguments);
}

LaunchTable asking_kernels() {
  LaunchTable table = cpu_launch_table();
  table.add("adamw.speculate", speculate_and_ask);
  table.add("adamw.finish", finish_when_let);
  return table;
}

// A run that is asked for something in one of its steps.
class AskedRun {
 public:
  AskedRun(const Graph& graph, std::uint64_t first_step = 0)
      : graph_(graph),
        plan_(speculating_plan(graph, 0)),
        engine_(*device_, graph, plan_, options(first_step)) {}

  // As the trainers' loop, until the end or a stop.
  void run(std::uint64_t end) {
    while (engine_.completed_steps() < end && !interrupted()) train_one(engine_.completed_steps() + 1);
  }
  // One step whose commits, in the asked step, wait until `release`.
  void train_one(std::uint64_t end) {
    SpikeInputs inputs(graph_, every_other);
    const StepReport report = engine_.step(inputs.of(end - 1), {speculating_rate(end - 1), true});
    EXPECT_EQ(report.speculated_updates, speculations_of(plan_));
    EXPECT_EQ(report.clip_scale < 1, every_other(end - 1));
  }
  Engine& engine() { return engine_; }

 private:
  static EngineOptions options(std::uint64_t first_step) {
    EngineOptions options;
    options.seed = run_seed;
    options.first_step = first_step;
    options.machine = slow_host();
    options.host_kernels = asking_kernels();
    return options;
  }

  const Graph& graph_;
  const Plan plan_;
  std::unique_ptr<SimulatedDevice> device_ =
      open_simulated_device({.capacity = plan_.device_peak_bytes, .executor = Executor::threaded});
  Engine engine_;
};

// Of clipped steps and of others.
class SpeculationRequests : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  void SetUp() override {
    asked_step = GetParam();
    ask = nullptr;
    commits_held = false;
  }
  static TrainingRun after(std::uint64_t count) { return evaluate(graph(), {graph(), every_other}, count); }
  static const Graph& graph() {
    static const Graph made = speculating_gpt();
    return made;
  }
  static void hold_commits() { commits_held = true; }
  // Lets them go on while `read` waits for them.
  template <class Read>
  static void beside_commits(Read read) {
    EXPECT_TRUE(commits_held);
    std::thread later([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      commits_held = false;
      commits_held.notify_all();
    });
    read();
    later.join();
  }

  // What is saved as of `count` steps is that state, and a run that goes on from it ends as any.
  void expect_saved(const std::string& checkpoints, std::uint64_t count) const {
    const auto saved = open_newest_checkpoint(checkpoints);
    ASSERT_TRUE(saved.has_value());
    AskedRun rest(graph(), count);
    saved->load(graph(), state_access(rest.engine()));
    EXPECT_TRUE(read_values(rest.engine(), graph()) == after(count).values);
    rest.run(steps);
    EXPECT_TRUE(read_values(rest.engine(), graph()) == after(steps).values);
  }
  TemporaryFolder folder_;
};

CheckpointState state_of(std::uint64_t step) {
  CheckpointState state;
  state.step = step;
  return state;
}

// The request comes before the step's gate; what is read comes while its commits have not begun.
TEST_P(SpeculationRequests, ACheckpointIsOfTheStepThatIsUnderWay) {
  for (const Saving saving : {Saving::blocking, Saving::background}) {
    const std::string path = folder_.file(saving == Saving::blocking ? "blocking" : "background");
    CheckpointFolder checkpoints(path, 1);
    ask = hold_commits;
    AskedRun run(graph());
    CheckpointSaver saver(checkpoints, graph(), saving);
    run.run(GetParam() + 1);
    beside_commits([&] { saver.save(state_of(GetParam() + 1), state_access(run.engine())); });
    run.run(steps);  // beside the writing
    saver.finish();
    EXPECT_TRUE(read_values(run.engine(), graph()) == after(steps).values);
    expect_saved(path, GetParam() + 1);
  }
}

TEST_P(SpeculationRequests, AModelIsOfTheStepThatIsUnderWay) {
  ask = hold_commits;
  AskedRun run(graph());
  run.run(GetParam() + 1);
  const ModelDescription model{.config = speculating_config()};
  const std::string path = folder_.file("model");
  std::filesystem::create_directory(path);
  beside_commits([&] { save_model(path, model, graph(), access_to(run.engine())); });
  AskedRun other(graph());
  load_model(TensorFiles(path), model, graph(), access_to(other.engine()));
  const auto expected = after(GetParam() + 1).values, found = read_values(other.engine(), graph());
  for (TensorId id = 0; id < graph().tensors.size(); ++id)
    if (graph().kind_of(id) == TensorKind::parameter) {
      EXPECT_TRUE(found[id] == expected[id]) << graph().tensor(id).name;
    }
}

// In a process of its own, which remains interrupted. A terminal that is closed asks for the same as Ctrl-C.
TEST_P(SpeculationRequests, AStopLetsTheStepThatIsUnderWayEnd) {
  const auto stop = [] {
    watch_interrupts();
    ask = [] { std::raise(SIGHUP); };
    AskedRun run(graph());
    run.run(steps);
    const bool whole = read_values(run.engine(), graph()) == after(GetParam() + 1).values;
    std::_Exit(run.engine().completed_steps() == GetParam() + 1 && whole ? 0 : 1);
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(stop(), ::testing::ExitedWithCode(0), "");
}

INSTANTIATE_TEST_SUITE_P(Steps, SpeculationRequests, ::testing::Values(1U, 2U, 3U, 4U));

}  // namespace
}  // namespace stowage
