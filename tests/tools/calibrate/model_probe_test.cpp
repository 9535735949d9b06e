#include "tools/calibrate/model_probe.h"

#include <gtest/gtest.h>

#include <set>

#include "src/graph/cost.h"
#include "stowage/graph_builder.h"
#include "tests/machine/sample_file.h"
#include "tests/tools/calibrate/virtual_machine.h"

namespace stowage {
namespace {

const ModelConfig tiny{
    .layers = 1, .width = 8, .heads = 2, .vocabulary = 16, .sequence = 4, .batch = 2, .table_rows = 8};

// Measures a GPT, and before it one of another family, if there is one.
MachineFile measured(const Machine& machine, const std::string& backend, const ModelFamily* other = nullptr) {
  const auto device = test::open_virtual_device(machine);
  MachineFile file = test::sample_file();
  file.backend = backend;
  file.ops.clear();
  file.compute_beside_copy = file.compute_beside_host = file.host_beside_compute = 1;
  std::vector<ProbedModel> models = {{&gpt_family, tiny}};
  if (other != nullptr) models.insert(models.begin(), {other, tiny});
  measure_models(*device, cpu_launch_table(), DataType::f32, machine,
                 {.models = models, .least_steps = 1, .seconds = 0}, file);
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
  Graph graph = graph_of(tiny);
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

TEST(ModelProbe, KnowsTheKernelsOfEachFamily) {
  for (const ModelFamily* family : {&bert_family, &llama_family}) {
    const MachineFile file = measured(test::odd_machine(), "simulated", family);
    GraphBuilder builder;
    const Graph graph = builder.finish(family->build(builder, tiny).loss, AdamW{});
    std::set<std::string> known;
    for (const OpSample& sample : file.ops) known.insert(sample.kernel);
    known.insert("clip");  // on the host
    for (const Op& op : graph.ops) EXPECT_EQ(known.count(op.kernel), 1U) << op.kernel;
  }
}

TEST(ModelProbe, OfAnotherTypeNothingIsSaid) {
  const MachineFile file = measured(test::odd_machine(), "simulated");
  Graph graph = graph_of(tiny);
  set_op_seconds(file, DataType::bf16, test::odd_machine(), graph);
  for (const Op& op : graph.ops) EXPECT_FALSE(op.cost.seconds);
}

TEST(ModelProbe, ACardComputesBesideItsHost) {
  const MachineFile file = measured(test::odd_machine(), "cuda");
  EXPECT_EQ(file.compute_beside_copy, 1);
  EXPECT_EQ(file.compute_beside_host, 1);
  EXPECT_EQ(file.host_beside_compute, 1);
}

TEST(ModelProbe, ModelsAreOfAllWidthsAndFamilies) {
  for (const ModelProbeOptions& options : {small_models(), card_models()}) {
    std::set<std::int64_t> widths;
    std::set<std::string> kernels;
    for (const auto& [family, config] : options.models) {
      widths.insert(config.width);
      GraphBuilder builder;
      for (const Op& op : builder.finish(family->build(builder, config).loss, AdamW{}).ops)
        kernels.insert(op.kernel);
    }
    EXPECT_GE(*widths.rbegin(), 4 * *widths.begin());
    for (const char* kernel : {"layer_norm", "rms_norm", "rotary", "swiglu", "dropout", "accumulate",
                               "linear_cross_entropy", "head_statistics", "head_backward", "linear_gelu"})
      EXPECT_TRUE(kernels.contains(kernel)) << kernel;
  }
}

}  // namespace
}  // namespace stowage
