#include "tools/calibrate/model_probe.h"

#include <utility>

#include "stowage/error.h"
#include "stowage/graph_builder.h"
#include "tools/calibrate/step_probe.h"

namespace stowage {
namespace {

ProbedStep probe_of(const ModelConfig& config, DataType type, const ModelFamily& family) {
  GraphBuilder builder(type);
  const BuiltModel model = family.build(builder, config);
  return {builder.finish(model.loss, AdamW{}), model.inputs};
}

class ModelProbe {
 public:
  ModelProbe(Device& device, const StepProbe::Options& how, DataType type, const ModelProbeOptions& options,
             MachineFile& file)
      : device_(device), how_(how), type_(type), options_(options), file_(file) {}

  // Does nothing if a card has too little memory for the step, or takes too long.
  void measure(ProbedStep probe) {
    const bool on_card = device_.info().backend == "cuda";
    if (on_card && seconds_by_rates(probe.graph, machine_for(file_, type_)) > longest_step) return;
    try {
      add(std::move(probe));
    } catch (const OutOfMemory&) {
      if (!on_card) throw;
    }
  }

  // Measures the shares by a model whose step is long enough for a few updates beside it.
  void measure_shares_with(ProbedStep probe) {
    StepProbe run(device_, std::move(probe.graph), probe.inputs, how_);
    run.step();
    Machine machine = machine_for(file_, type_);
    const double alone = run.steps(options_.least_steps, for_seconds(options_.seconds)).whole;
    measure_shares(run, alone, file_.h2d.fit, machine);
    file_.compute_beside_copy = machine.compute_beside_copy;
    file_.compute_beside_host = machine.compute_beside_host;
    file_.host_beside_compute = machine.host_beside_compute;
  }

  void write() const {
    profile_.for_each([&](const std::string& kernel, const OpCost& cost, double seconds) {
      file_.ops.push_back({kernel, type_, cost.flops, cost.bytes, seconds});
    });
  }

 private:
  void add(ProbedStep probe) {
    StepProbe run(device_, std::move(probe.graph), probe.inputs, how_);
    run.step();  // first step: libraries compile their kernels, pages are touched
    add_ops(run.graph(), run.steps(options_.least_steps, for_seconds(options_.seconds)), profile_);
  }

  static constexpr double longest_step = 0.5;  // in seconds; a model with longer steps is not measured

  Device& device_;
  const StepProbe::Options& how_;
  DataType type_;
  const ModelProbeOptions& options_;
  MachineFile& file_;
  OpProfile profile_;
};

ModelConfig gpt_of(std::int64_t width, std::int64_t heads, std::int64_t sequence, std::int64_t batch,
                   std::int64_t vocabulary = 256) {
  return {.layers = 1,
          .width = width,
          .heads = heads,
          .vocabulary = vocabulary,
          .sequence = sequence,
          .batch = batch};
}

}  // namespace

ModelProbeOptions small_models() {
  ModelProbeOptions options;
  for (const std::int64_t width : {32, 64, 128, 256, 512}) {
    for (const std::int64_t tokens : {128, 512, 2048})
      options.gpts.push_back(
          gpt_of(width, width / 32, tokens == 2048 ? 256 : 64, tokens == 2048 ? 8 : tokens / 64));
  }
  options.gpts.push_back(gpt_of(1024, 16, 128, 4));
  options.gpts.push_back(gpt_of(256, 4, 512, 2, 8192));
  // Gradients that are added to those of the micro-batch before, and dropout.
  options.gpts.push_back(gpt_of(128, 4, 128, 8));
  options.gpts.back().micro_batches = 2;
  options.gpts.back().dropout = 0.1;
  options.gpts.push_back(gpt_of(384, 6, 128, 8));
  options.gpts.back().micro_batches = 2;
  options.gpts.back().dropout = 0.1;
  options.berts.push_back(
      {.layers = 1, .width = 128, .heads = 2, .vocabulary = 512, .sequence = 128, .batch = 4});
  options.berts.push_back(
      {.layers = 1, .width = 512, .heads = 8, .vocabulary = 2048, .sequence = 128, .batch = 8});
  return options;
}

// Shapes that cards are used for: steps of milliseconds, from few tokens to many, and the heads of
// large vocabularies.
ModelProbeOptions card_models() {
  ModelProbeOptions options;
  options.gpts = {gpt_of(768, 12, 1024, 16, 50304), gpt_of(1024, 16, 512, 4),
                  gpt_of(2048, 16, 1024, 8, 8192),  gpt_of(2048, 32, 2048, 1),
                  gpt_of(4096, 32, 1024, 4, 8192),  gpt_of(4096, 32, 2048, 8)};
  // Gradients that are added to those of the micro-batch before, and dropout.
  options.gpts.push_back(gpt_of(1024, 16, 1024, 16));
  options.gpts.back().micro_batches = 2;
  options.gpts.back().dropout = 0.1;
  options.berts.push_back(
      {.layers = 1, .width = 1024, .heads = 16, .vocabulary = 30528, .sequence = 512, .batch = 32});
  options.seconds = 0.1;
  return options;
}

ModelProbeOptions few_card_models() {
  ModelProbeOptions options;
  options.gpts = {gpt_of(768, 12, 1024, 8, 50304), gpt_of(2048, 16, 1024, 4)};
  options.least_steps = 3;
  options.seconds = 0.02;
  return options;
}

void measure_models(Device& device, const LaunchTable& kernels, DataType type, const Machine& modelled,
                    const ModelProbeOptions& options, MachineFile& file) {
  const StepProbe::Options how{.kernels = kernels, .modelled = modelled, .budget = {}};
  ModelProbe probe(device, how, type, options, file);
  for (const ModelConfig& config : options.gpts) probe.measure(probe_of(config, type, gpt_family));
  for (const ModelConfig& config : options.berts) probe.measure(probe_of(config, type, bert_family));
  probe.write();
  if (file.backend == "simulated" && !options.gpts.empty())
    probe.measure_shares_with(probe_of(options.gpts.back(), type, gpt_family));
}

}  // namespace stowage
