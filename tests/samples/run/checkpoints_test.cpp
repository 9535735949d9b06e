#include "samples/run/checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>

#include "stowage/error.h"
#include "stowage/planner.h"
#include "stowage/simulated_device.h"
#include "tests/support/temporary_folder.h"

namespace stowage::samples {
namespace {

using ::testing::HasSubstr;

Graph graph_of_one_parameter() {
  Graph graph;
  graph.tensors = {{"w", DataType::f32, {256}, TensorKind::parameter, {}}};
  return graph;
}

TEST(Checkpoints, WhatChangesTheBitsIsInTheConfiguration) {
  const std::map<std::string, std::string> task = {{"data.text", "one"}};
  const auto as_it_is = configuration_of({}, task);
  EXPECT_EQ(as_it_is.at("data.text"), "one");
  const auto changes = [&](auto change) {
    Options options;
    change(options);
    return configuration_of(options, task) != as_it_is;
  };
  EXPECT_NE(configuration_of({}, {{"data.text", "other"}}), as_it_is);
  EXPECT_TRUE(changes([](Options& options) { options.type = DataType::bf16; }));
  EXPECT_TRUE(changes([](Options& options) { options.model.layers++; }));
  EXPECT_TRUE(changes([](Options& options) { options.model.width++; }));
  EXPECT_TRUE(changes([](Options& options) { options.model.heads++; }));
  EXPECT_TRUE(changes([](Options& options) { options.model.vocabulary++; }));
  EXPECT_TRUE(changes([](Options& options) { options.model.sequence++; }));
  EXPECT_TRUE(changes([](Options& options) { options.model.batch++; }));
  EXPECT_TRUE(changes([](Options& options) { options.model.micro_batches++; }));
  EXPECT_TRUE(changes([](Options& options) { options.model.gradient_groups = 2; }));
  EXPECT_TRUE(changes([](Options& options) { options.model.dropout = 1e-300; }));
  EXPECT_TRUE(changes([](Options& options) { options.model.attention_dropout = 0.5; }));
  EXPECT_TRUE(changes([](Options& options) { options.model.residual_dropout = 0.5; }));
  EXPECT_TRUE(changes([](Options& options) { options.model.embedding_dropout = 0.5; }));
  EXPECT_TRUE(changes([](Options& options) { options.model.epsilon = 1e-6; }));
  EXPECT_TRUE(changes([](Options& options) { options.model.padded_vocabulary = 320; }));
  EXPECT_TRUE(changes([](Options& options) { options.model.head_tokens = 4096; }));
  EXPECT_TRUE(changes([](Options& options) { options.steps++; }));
  EXPECT_TRUE(changes([](Options& options) { options.warmup++; }));
  EXPECT_TRUE(changes([](Options& options) { options.descent = Descent::linear; }));
  EXPECT_TRUE(changes([](Options& options) { options.final_share = 0; }));
  EXPECT_TRUE(changes([](Options& options) { options.learning_rate = 0.0010000000000000002; }));
  EXPECT_TRUE(changes([](Options& options) { options.weight_decay = 0; }));
  EXPECT_TRUE(changes([](Options& options) { options.decayed = DecayedParameters::all; }));
  EXPECT_TRUE(changes([](Options& options) { options.beta1 = 0.8; }));
  EXPECT_TRUE(changes([](Options& options) { options.beta2 = 0.9; }));
  EXPECT_TRUE(changes([](Options& options) { options.epsilon = 1e-9; }));
  EXPECT_TRUE(changes([](Options& options) { options.clip = 0; }));
  EXPECT_TRUE(changes([](Options& options) { options.moments = Moments::bf16; }));
  EXPECT_TRUE(changes([](Options& options) { options.model.code_activations = CodeBits::eight; }));
  EXPECT_TRUE(changes([](Options& options) { options.seed++; }));
  // Checkpoints from before there were gradient groups, other moments than f32 or codes, say nothing of them.
  EXPECT_FALSE(as_it_is.contains("model.gradient_groups"));
  EXPECT_FALSE(as_it_is.contains("model.code_activations"));
  EXPECT_FALSE(as_it_is.contains("optimizer.moments"));
  // And what does not is not.
  EXPECT_FALSE(changes([](Options& options) {
    options.budget = {.device = 1, .host = 1};
    options.plan.bucket_bytes = 7;
    options.plan.policy = Policy::none;
    options.threads = 3;
    options.device = "cuda";
    options.checkpoint_every = 1;
  }));
}

TEST(Checkpoints, ThePlanGetsTheHostMemoryThatTheCopyLeaves) {
  Options options;
  options.checkpoint_folder = "somewhere";
  EXPECT_EQ(budget_beside_copy(options, graph_of_one_parameter()).host, unlimited);
  options.budget.host = 3000;
  EXPECT_EQ(budget_beside_copy(options, graph_of_one_parameter()).host, 1976U);
  options.checkpoint_blocking = true;
  EXPECT_EQ(budget_beside_copy(options, graph_of_one_parameter()).host, 3000U);
  options.checkpoint_blocking = false;
  options.budget.host = 1024;
  try {
    budget_beside_copy(options, graph_of_one_parameter());
    FAIL() << "accepted";
  } catch (const InvalidInput& error) {
    EXPECT_THAT(error.what(), HasSubstr("--host-memory 1.00 KiB: the copy"));
  }
}

// A checkpoint whose configuration says `chunk`, or nothing of it.
std::string saved_with(const TemporaryFolder& folder, Options options, const std::string& chunk) {
  CheckpointFolder saved(folder.file("chunk" + chunk), 1);
  const std::unique_ptr<Task> task = make_task(options);
  CheckpointState state;
  state.step = 1;
  state.seed = options.seed;
  state.data_position = task->position(1);
  state.configuration = configuration_of(options, task->configuration());
  state.configuration.erase("model.head_tokens");
  if (!chunk.empty()) state.configuration["model.head_tokens"] = chunk;
  saved.write(state, [](std::size_t, Bytes, std::span<std::byte>) {});
  return list_checkpoints(saved.path()).front().path;
}

// Bits depend on the head's chunk: a run goes on with the one that it began with, 2,048 where it does not
// say, unless another is asked for.
TEST(Checkpoints, AResumedRunKeepsTheHeadsChunk) {
  const TemporaryFolder folder;
  Options options;
  options.data = folder.make("text", std::string(5000, 'a'));
  options.resume = true;
  const auto resumed = [&](const std::string& chunk, std::int64_t asked) {
    Options here = options;
    here.resume_from = saved_with(folder, options, chunk);
    if (asked > 0) {
      here.model.head_tokens = asked;
      here.changed.insert("--head-chunk");
    }
    const std::unique_ptr<Task> task = make_task(here);
    const RunCheckpoints checkpoints(here, *task);
    EXPECT_TRUE(checkpoints.resumes());
    return here.model.head_tokens;
  };
  EXPECT_EQ(resumed("96", 0), 96);
  EXPECT_EQ(resumed("", 0), 2048);
  EXPECT_EQ(resumed("96", 64), 64);
  try {
    resumed("many", 0);
    FAIL() << "accepted";
  } catch (const InvalidInput& error) {
    EXPECT_THAT(error.what(), HasSubstr("'configuration.model.head_tokens': \"many\" is no whole number"));
  }
}

// A run of one parameterless step for each call of `step`, with checkpoints.
class OneLayer {
 public:
  explicit OneLayer(bool resume) {
    options_.model = {.layers = 1, .width = 8, .heads = 2, .sequence = 4, .batch = 1};
    options_.checkpoint_every = 1;
    options_.resume = resume;
  }
  // Whether the checkpoint of the step after the newest one was written.
  void step(const TemporaryFolder& folder, const std::string& attention) {
    options_.data = folder.make("text", std::string(100, 'a'));
    options_.checkpoint_folder = folder.file("saved");
    const std::unique_ptr<Task> task = make_task(options_);
    RunCheckpoints checkpoints(options_, *task);
    GraphBuilder builder;
    const BuiltModel model = gpt(builder, options_.model);
    const Graph graph = builder.finish(model.loss, optimizer_of(options_));
    const Plan plan = std::get<Plan>(make_plan(graph, Machine{}, {}, {.policy = Policy::none}));
    const auto device =
        open_simulated_device({.capacity = plan.device_peak_bytes, .executor = Executor::virtual_time});
    checkpoints.take_graph(graph);
    EngineGroup engine(
        *device, graph, plan,
        {.first_step = checkpoints.first_step(), .machine = {}, .kernels = {}, .host_kernels = {}});
    checkpoints.begin(engine);
    const std::vector<std::int32_t> values(4, 1);
    const std::array<InputData, 2> inputs = {{{model.tokens.id, values}, {model.targets.id, values}}};
    engine.step(inputs, {});
    checkpoints.made_with(attention);
    checkpoints.after_step(engine);
    checkpoints.finish(engine);
  }

 private:
  Options options_;
};

TEST(Checkpoints, AnotherMethodOfAttentionIsRefusedUnlessItIsAskedFor) {
  const TemporaryFolder folder;
  const auto newest = [&] { return open_newest_checkpoint(folder.file("saved"))->state(); };
  OneLayer(false).step(folder, "");  // without a card, or by an older version
  EXPECT_FALSE(newest().configuration.contains("device.attention"));
  OneLayer(true).step(folder, "cudnn");
  EXPECT_EQ(newest().configuration.at("device.attention"), "cudnn");
  OneLayer(true).step(folder, "cudnn");
  EXPECT_EQ(newest().step, 3U);
  try {
    OneLayer(true).step(folder, "own");
    FAIL() << "accepted";
  } catch (const InvalidInput& error) {
    EXPECT_THAT(error.what(),
                HasSubstr(folder.file("saved") +
                          "/step-000000000003/state.json: "
                          "'configuration.device.attention' is 'cudnn', and that of this run is "
                          "'own'"));
    EXPECT_THAT(error.what(), HasSubstr("STOWAGE_ATTENTION=cudnn"));
  }
  EXPECT_EQ(newest().step, 3U);
  ::setenv("STOWAGE_ATTENTION", "auto", 1);
  testing::internal::CaptureStderr();
  OneLayer(true).step(folder, "own");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("warning: "));
  ::unsetenv("STOWAGE_ATTENTION");
  EXPECT_EQ(newest().configuration.at("device.attention"), "own");
}

// The run is told both numbers, goes on, and tries the next.
TEST(Checkpoints, ACheckpointWithoutRoomIsLeftOut) {
  for (const bool blocking : {false, true}) {
    const TemporaryFolder folder;
    Options options;
    options.model = {.layers = 1, .width = 8, .heads = 2, .sequence = 4, .batch = 1};
    options.data = folder.make("text", std::string(100, 'a'));
    options.checkpoint_folder = folder.file("saved");
    options.checkpoint_every = 1;
    options.keep = 1;
    options.checkpoint_blocking = blocking;
    const std::unique_ptr<Task> task = make_task(options);
    GraphBuilder builder;
    const BuiltModel model = gpt(builder, options.model);
    const Graph graph = builder.finish(model.loss, optimizer_of(options));
    const Plan plan = std::get<Plan>(make_plan(graph, Machine{}, {}, {.policy = Policy::none}));
    const auto device =
        open_simulated_device({.capacity = plan.device_peak_bytes, .executor = Executor::virtual_time});
    EngineGroup engine(*device, graph, plan);
    Bytes room = 1_GiB;
    RunCheckpoints checkpoints(options, *task, true, [&](const std::string&) { return room; });
    checkpoints.take_graph(graph);
    checkpoints.begin(engine);
    const std::vector<std::int32_t> values(4, 1);
    const std::array<InputData, 2> inputs = {{{model.tokens.id, values}, {model.targets.id, values}}};
    const auto step = [&] {
      testing::internal::CaptureStderr();
      engine.step(inputs, {});
      checkpoints.after_step(engine);
      checkpoints.finish(engine);  // the writer's thread looks at the room too
      return testing::internal::GetCapturedStderr();
    };
    EXPECT_EQ(step(), "");
    checkpoints.require_saved();
    room = 4096;
    const std::string warning = step();
    EXPECT_THAT(warning, HasSubstr("train_gpt: warning: checkpoint of step 2: " + folder.file("saved") +
                                   ": left out: it takes "));
    EXPECT_THAT(warning, HasSubstr("has 4.00 KiB (4096 bytes) left"));
    EXPECT_EQ(list_checkpoints(folder.file("saved")).at(0).step, 1U);
    room = 1_GiB;
    EXPECT_EQ(step(), "");
    EXPECT_EQ(list_checkpoints(folder.file("saved")).at(0).step, 3U);
    EXPECT_EQ(list_checkpoints(folder.file("saved")).size(), 1U);
    EXPECT_THROW(checkpoints.require_saved(), Error);
  }
}

// An update may leave what no loss has shown yet.
TEST(Checkpoints, ValuesThatAreNotFiniteAreNotSaved) {
  for (const bool blocking : {false, true}) {
    const TemporaryFolder folder;
    Options options;
    options.model = {.layers = 1, .width = 8, .heads = 2, .sequence = 4, .batch = 1};
    options.data = folder.make("text", std::string(100, 'a'));
    options.checkpoint_folder = folder.file("saved");
    options.checkpoint_every = 1;
    options.checkpoint_blocking = blocking;
    const std::unique_ptr<Task> task = make_task(options);
    GraphBuilder builder;
    const BuiltModel model = gpt(builder, options.model);
    const Graph graph = builder.finish(model.loss, optimizer_of(options));
    const Plan plan = std::get<Plan>(make_plan(graph, Machine{}, {}, {.policy = Policy::none}));
    const auto device =
        open_simulated_device({.capacity = plan.device_peak_bytes, .executor = Executor::virtual_time});
    EngineGroup engine(*device, graph, plan);
    RunCheckpoints checkpoints(options, *task);
    checkpoints.take_graph(graph);
    checkpoints.begin(engine);
    const std::vector<std::int32_t> values(4, 1);
    const std::array<InputData, 2> inputs = {{{model.tokens.id, values}, {model.targets.id, values}}};
    engine.step(inputs, {});
    checkpoints.after_step(engine);
    engine.step(inputs, {});
    const auto moment = std::find_if(graph.tensors.begin(), graph.tensors.end(), [](const Tensor& tensor) {
      return tensor.name == "ln_f.weight.adam_v";
    });
    std::vector<float> bad(8, 1);
    bad[6] = std::numeric_limits<float>::infinity();
    engine.write(static_cast<TensorId>(moment - graph.tensors.begin()), std::as_bytes(std::span(bad)));
    try {
      checkpoints.after_step(engine);
      FAIL() << "saved";
    } catch (const Error& error) {
      for (const std::string& part :
           {std::string("step 2: its update left an infinity in 'ln_f.weight.adam_v' "
                        "at element 6; the training has diverged"),
            "--resume " + folder.file("saved") + "/step-000000000001, or"})
        EXPECT_THAT(error.what(), HasSubstr(part));
    }
    EXPECT_EQ(list_checkpoints(options.checkpoint_folder).size(), 1U);
  }
}

}  // namespace
}  // namespace stowage::samples
