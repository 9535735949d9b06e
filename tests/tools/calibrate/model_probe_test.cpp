#include "tools/calibrate/model_probe.h"

#include <gtest/gtest.h>

#include <set>

#include "src/graph/cost.h"
#include "stowage/graph_builder.h"
#include "tests/machine/sample_file.h"
#include "tests/tools/calibrate/virtual_machine.h"

namespace stowage {
namespace {

constexpr ModelConfig tiny_gpt{
    .layers = 1, .width = 8, .heads = 2, .vocabulary = 16, .sequence = 4, .batch = 2};
constexpr ModelConfig tiny_bert{
    .layers = 1, .width = 8, .heads = 2, .vocabulary = 16, .sequence = 4, .batch = 2};

MachineFile measured(const Machine& machine, const std::string& backend,
                     std::vector<ModelConfig> berts = {}) {
  const auto device = test::open_virtual_device(machine);
  MachineFile file = test::sample_file();
  file.backend = backend;
  file.ops.clear();
  file.compute_beside_copy = file.compute_beside_host = file.host_beside_compute = 1;
  measure_models(*device, cpu_launch_table(), DataType::f32, machine,
                 {.gpts = {tiny_gpt}, .berts = std::move(berts), .least_steps = 1, .seconds = 0}, file);
  EXPECT_EQ(device->memory_info().free, device->memory_info().total);
  return file;
}

Graph graph_of(const ModelConfig& config) {
  GraphBuilder builder;
  return builder.finish(gpt(builder, config).loss, AdamW{});
}

// Each op's time by the file, over that by `truth`: the same of all, since only the waits of a step are
// shared out.
void expect_times(const Graph& graph, const Machine& truth) {
  std::optional<double> waits;
  for (const Op& op : graph.ops) {
    if (op.kernel == "clip") continue;  // on the host
    Op plain = op;
    plain.cost.seconds.reset();
    const double ratio = op.cost.seconds.value() / op_seconds(plain, truth);
    if (!waits) waits = ratio;
    EXPECT_NEAR(ratio, *waits, 1e-6) << op.name;
  }
  EXPECT_GE(waits.value(), 1);
  EXPECT_LT(waits.value(), 1.2);
}

TEST(ModelProbe, EveryOpOfAMeasuredModelTakesItsTime) {
  const Machine truth = test::odd_machine();
  const MachineFile file = measured(truth, "simulated");
  Machine wrong = truth;
  wrong.flops_per_second *= 7;
  wrong.device_bytes_per_second *= 5;
  Graph graph = graph_of(tiny_gpt);
  set_op_seconds(file, DataType::f32, wrong, graph);
  expect_times(graph, truth);
  EXPECT_LT(file.compute_beside_host, 1);
}

TEST(ModelProbe, OpsOfOtherModelsAreTakenForLikeThem) {
  const Machine truth = test::odd_machine();
  const MachineFile file = measured(truth, "simulated");
  Graph graph = graph_of({.layers = 3, .width = 16, .heads = 2, .vocabulary = 32, .sequence = 8, .batch = 2});
  set_op_seconds(file, DataType::f32, truth, graph);
  expect_times(graph, truth);
}

TEST(ModelProbe, KnowsTheKernelsOfBert) {
  const MachineFile file = measured(test::odd_machine(), "simulated", {tiny_bert});
  GraphBuilder builder;
  const Graph graph = builder.finish(bert(builder, tiny_bert).loss, AdamW{});
  std::set<std::string> known;
  for (const OpSample& sample : file.ops) known.insert(sample.kernel);
  known.insert("clip");  // on the host
  for (const Op& op : graph.ops) EXPECT_EQ(known.count(op.kernel), 1U) << op.kernel;
}

TEST(ModelProbe, OfAnotherTypeNothingIsSaid) {
  const MachineFile file = measured(test::odd_machine(), "simulated");
  Graph graph = graph_of(tiny_gpt);
  set_op_seconds(file, DataType::bf16, test::odd_machine(), graph);
  for (const Op& op : graph.ops) EXPECT_FALSE(op.cost.seconds);
}

TEST(ModelProbe, ACardComputesBesideItsHost) {
  const MachineFile file = measured(test::odd_machine(), "cuda");
  EXPECT_EQ(file.compute_beside_copy, 1);
  EXPECT_EQ(file.compute_beside_host, 1);
  EXPECT_EQ(file.host_beside_compute, 1);
}

TEST(ModelProbe, SmallModelsHaveTheKernelsOfBothFamilies) {
  const ModelProbeOptions options = small_models();
  EXPECT_GE(options.gpts.size(), 15U);
  std::set<std::int64_t> widths;
  for (const ModelConfig& config : options.gpts) widths.insert(config.width);
  EXPECT_LE(*widths.begin(), 48);
  EXPECT_GE(*widths.rbegin(), 384);
  EXPECT_FALSE(options.berts.empty());
}

}  // namespace
}  // namespace stowage
