// Trains a small GPT for five steps in half the device memory that it needs.
#include <stowage/engine.h>
#include <stowage/models.h>
#include <stowage/planner.h>
#include <stowage/simulated_device.h>

#include <array>
#include <cstdio>
#include <vector>

int main() {
  const stowage::ModelConfig config{.layers = 4, .width = 64, .heads = 4, .sequence = 32, .batch = 4};
  stowage::GraphBuilder builder;
  const stowage::BuiltModel model = stowage::gpt(builder, config);
  const stowage::Graph graph = builder.finish(model.loss, stowage::AdamW{});

  const stowage::Machine machine;
  const stowage::Budget budget{.device = stowage::need_bytes(graph, machine) / 2};
  const auto planned = stowage::make_plan(graph, machine, budget);
  if (const auto* refusal = std::get_if<stowage::Infeasible>(&planned)) {
    std::printf("%s needs %llu bytes\n", refusal->op.c_str(),
                static_cast<unsigned long long>(refusal->minimum));
    return 2;
  }

  const auto device = stowage::open_simulated_device({.capacity = budget.device});
  stowage::Engine engine{*device, graph, std::get<stowage::Plan>(planned)};
  const std::vector<std::int32_t> text(static_cast<std::size_t>(config.batch * config.sequence), 'a');
  const std::array inputs{stowage::InputData{model.tokens.id, text},
                          stowage::InputData{model.targets.id, text}};
  for (int step = 1; step <= 5; ++step) {
    const stowage::StepReport report = engine.step(inputs, {.learning_rate = 1e-3});
    std::printf("step %d: loss %.6f\n", step, report.loss);
  }
}
