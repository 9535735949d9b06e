// Evaluation of a GPT or a Llama: the loss over samples that are spread evenly over a source.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "samples/task/forward_pass.h"
#include "samples/task/gpt_task.h"
#include "src/models/require_valid.h"
#include "stowage/error.h"
#include "tools/console/text.h"

namespace stowage::samples {

const TokenSource& GptTask::evaluated() const {
  return evaluated_shards_ ? *evaluated_shards_ : *evaluation_.source;
}

std::uint64_t GptTask::evaluated_samples() const {
  return std::min(evaluated().samples(), options_.evaluation_samples);
}

// Calls work(batch) for batches of `batch` samples; places without a sample in the last batch have no
// targets.
template <class Work>
void GptTask::for_each_batch(std::int64_t at_once, Work work) const {
  const TokenSource& source = evaluated();
  const std::uint64_t all = evaluated_samples();
  const auto sequence = static_cast<std::size_t>(options_.model.sequence);
  Batch batch;
  batch.tokens.resize(static_cast<std::size_t>(at_once) * sequence);
  batch.targets.resize(batch.tokens.size());
  batch.begins.resize(source.packed() ? batch.tokens.size() : 0);
  for (std::uint64_t first = 0; first < all; first += static_cast<std::uint64_t>(at_once)) {
    std::fill(batch.targets.begin(), batch.targets.end(), -1);
    const std::uint64_t end = std::min(all, first + static_cast<std::uint64_t>(at_once));
    for (std::uint64_t i = first; i < end; ++i) {
      const auto of_sample = [&](std::vector<std::int32_t>& all_samples) {
        return all_samples.empty() ? std::span<std::int32_t>()
                                   : std::span(all_samples).subspan((i - first) * sequence, sequence);
      };
      source.sample(i * (source.samples() / all), of_sample(batch.tokens), of_sample(batch.targets),
                    of_sample(batch.begins));
    }
    work(batch);
  }
}

Evaluation GptTask::evaluate(const ReadParameter& read) {
  GraphBuilder builder;
  ModelConfig sizes = without_dropout(options_.model, samples_at_once(options_.model, evaluated_samples()));
  sizes.packed = evaluated().packed();
  const BuiltModel model = options_.family->build(builder, sizes);
  std::vector<TensorId> inputs = {model.tokens.id};
  if (sizes.packed) inputs.push_back(model.begins.id);
  const ForwardPass pass(builder.finish_without_update(model.loss), inputs, {model.logits.id});
  Score sum;
  for_each_batch(sizes.batch, [&](const Batch& batch) {
    std::vector<std::span<const std::int32_t>> given = {batch.tokens};
    if (sizes.packed) given.emplace_back(batch.begins);
    const auto results = pass.run(given, read);
    sum += score(floats_of(results[0]), sizes.vocabulary, batch.targets);
  });
  return evaluation_of(sum);
}

// A batch is at most that of a step, in micro-batches of its size. Heads whose logits are a tensor have as
// many samples in each as the CPU has at once.
ModelConfig GptTask::sizes_on_device() const {
  const ModelConfig& model = options_.model;
  const std::uint64_t all = evaluated_samples();
  std::int64_t each = model.batch / model.micro_batches;
  const bool in_blocks = rows_of_block(model) < rows_of_vocabulary(model);
  if (!in_blocks) each = std::min(each, samples_at_once(model, all));
  const std::int64_t wanted = std::min(model.batch, static_cast<std::int64_t>(all));
  const std::int64_t parts = std::max<std::int64_t>((wanted + each - 1) / each, 1);
  ModelConfig sizes = without_dropout(model, parts * each);
  sizes.micro_batches = parts;
  if (in_blocks) sizes.head_tokens = model.head_tokens;
  sizes.packed = evaluated().packed();
  return sizes;
}

std::optional<EvaluationModel> GptTask::evaluation_model() const {
  GraphBuilder builder(options_.type, GraphBuilder::Trained::none);
  EvaluationModel model;
  model.built = options_.family->build(builder, sizes_on_device());
  model.graph = builder.finish(model.built.loss, AdamW{});
  return model;
}

std::uint64_t GptTask::evaluation_batches() const {
  const auto batch = static_cast<std::uint64_t>(sizes_on_device().batch);
  return (evaluated_samples() + batch - 1) / batch;
}

Evaluation GptTask::evaluate_by(const MeasureLoss& loss) {
  Score sum;
  for_each_batch(sizes_on_device().batch, [&](const Batch& batch) {
    const auto targets = static_cast<std::uint64_t>(
        std::count_if(batch.targets.begin(), batch.targets.end(), [](auto target) { return target >= 0; }));
    if (targets == 0) return;
    std::vector<std::span<const std::int32_t>> given = {batch.tokens, batch.targets};
    if (!batch.begins.empty()) given.emplace_back(batch.begins);
    sum.nats += loss(given) * static_cast<double>(targets);
    sum.targets += targets;
  });
  return evaluation_of(sum);
}

Evaluation GptTask::evaluation_of(const Score& sum) const {
  if (sum.targets == 0)
    throw InvalidInput(
        fmt::format("--evaluation-data {}: the {} samples that are evaluated have no target; give "
                    "others, or more by --evaluation-samples",
                    options_.evaluation_data, evaluated_samples()));
  const double perplexity = std::exp(sum.mean());
  return {fmt::format("loss {:.4f}, perplexity {:.3f}, over {} {} not trained on", sum.mean(), perplexity,
                      grouped(sum.targets), by_bytes() && !shards_ ? "bytes" : "tokens"),
          {{"loss", sum.mean()}, {"perplexity", perplexity}},
          sum.mean()};
}

}  // namespace stowage::samples
