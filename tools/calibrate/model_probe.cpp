#include "tools/calibrate/model_probe.h"

#include <utility>

#include "stowage/error.h"
#include "stowage/graph_builder.h"
#include "tools/calibrate/step_probe.h"

namespace stowage {
namespace {

ProbedStep probe_of(const ProbedModel& probed, DataType type) {
  GraphBuilder builder(type);
  const BuiltModel model = probed.family->build(builder, probed.config);
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

ProbedModel gpt_of(std::int64_t width, std::int64_t heads, std::int64_t sequence, std::int64_t batch,
                   std::int64_t vocabulary = 256) {
  return {&gpt_family,
          {.layers = 1,
           .width = width,
           .heads = heads,
           .vocabulary = vocabulary,
           .sequence = sequence,
           .batch = batch}};
}

// Returns a GPT of two micro-batches, whose gradients are added to those of the one before, with dropout.
ProbedModel split(ProbedModel gpt) {
  gpt.config.micro_batches = 2;
  gpt.config.dropout = 0.1;
  return gpt;
}

ProbedModel bert_of(std::int64_t width, std::int64_t heads, std::int64_t sequence, std::int64_t batch,
                    std::int64_t vocabulary) {
  return {&bert_family, gpt_of(width, heads, sequence, batch, vocabulary).config};
}

// Four query heads on each key head, an MLP of 3.5 times the width, tables in two blocks.
ProbedModel llama_of(std::int64_t width, std::int64_t heads, std::int64_t sequence, std::int64_t batch,
                     std::int64_t vocabulary) {
  ModelConfig config = gpt_of(width, heads, sequence, batch, vocabulary).config;
  config.key_heads = heads / 4;
  config.inner = width * 7 / 2;
  config.table_rows = vocabulary / 2;
  return {&llama_family, config};
}

}  // namespace

ModelProbeOptions small_models() {
  ModelProbeOptions options;
  for (const std::int64_t width : {32, 64, 128, 256, 512}) {
    for (const std::int64_t tokens : {128, 512, 2048})
      options.models.push_back(
          gpt_of(width, width / 32, tokens == 2048 ? 256 : 64, tokens == 2048 ? 8 : tokens / 64));
  }
  for (const ProbedModel& model :
       {gpt_of(1024, 16, 128, 4), gpt_of(256, 4, 512, 2, 8192), bert_of(128, 2, 128, 4, 512),
        bert_of(512, 8, 128, 8, 2048), llama_of(64, 4, 64, 4, 512), llama_of(256, 8, 128, 4, 1024),
        llama_of(512, 8, 256, 4, 2048), split(gpt_of(128, 4, 128, 8)), split(gpt_of(384, 6, 128, 8))})
    options.models.push_back(model);
  return options;
}

// Shapes that cards are used for: steps of milliseconds, from few tokens to many, and the heads of
// large vocabularies.
ModelProbeOptions card_models() {
  return {
      .models = {gpt_of(768, 12, 1024, 16, 50304), gpt_of(1024, 16, 512, 4), gpt_of(2048, 16, 1024, 8, 8192),
                 gpt_of(2048, 32, 2048, 1), gpt_of(4096, 32, 1024, 4, 8192), gpt_of(4096, 32, 2048, 8),
                 split(gpt_of(1024, 16, 1024, 16)), bert_of(1024, 16, 512, 32, 30528),
                 llama_of(1024, 16, 2048, 2, 32768), llama_of(4096, 32, 2048, 1, 32768)},
      .seconds = 0.1};
}

ModelProbeOptions few_card_models() {
  return {.models = {gpt_of(768, 12, 1024, 8, 50304), gpt_of(2048, 16, 1024, 4)},
          .least_steps = 3,
          .seconds = 0.02};
}

void measure_models(Device& device, const LaunchTable& kernels, DataType type, const Machine& modelled,
                    const ModelProbeOptions& options, MachineFile& file) {
  const StepProbe::Options how{.kernels = kernels, .modelled = modelled, .budget = {}};
  ModelProbe probe(device, how, type, options, file);
  for (const ProbedModel& model : options.models) probe.measure(probe_of(model, type));
  probe.write();
  if (file.backend == "simulated" && !options.models.empty())
    probe.measure_shares_with(probe_of(options.models.back(), type));
}

}  // namespace stowage
