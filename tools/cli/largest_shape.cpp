#include "tools/cli/largest_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>

#include "tools/cli/plan_sweep.h"

namespace stowage {
namespace {

constexpr std::int64_t token_step = 1024;
constexpr std::int64_t most_token_steps = most_tokens_of_sample / token_step;

// Returns the largest number from 1 to `most` that fits, where every smaller one does too; 0: none.
template <class Fits>
std::int64_t largest(std::int64_t most, Fits fits) {
  std::int64_t fitting = 0, end = 1;
  while (end <= most && fits(end)) {
    fitting = end;
    end *= 2;
  }
  end = std::min(end, most + 1);
  while (end - fitting > 1) {
    const std::int64_t middle = fitting + (end - fitting) / 2;
    (fits(middle) ? fitting : end) = middle;
  }
  return fitting;
}

bool fits_with(PlanQuestion question, std::int64_t batch, std::int64_t sequence) {
  question.model->config.batch = batch;
  question.model->config.sequence = sequence;
  question.take(build(*question.model));
  return fits(question);
}

// Returns the largest power of two times the micro-batches; 0: none.
std::int64_t largest_batch(const PlanQuestion& question) {
  const ModelConfig& asked = question.model->config;
  std::int64_t fitting = 0;
  for (std::int64_t batch = asked.micro_batches;
       batch <= most_samples && fits_with(question, batch, asked.sequence); batch *= 2)
    fitting = batch;
  return fitting;
}

}  // namespace

LargestShape largest_shape(const PlanQuestion& question, bool feasible, const Progress& progress) {
  const ModelConfig& asked = question.model->config;
  LargestShape shape{.sequence = asked.sequence,
                     .least_batch = asked.micro_batches,
                     .learned_positions = question.model->family->learned_positions};
  // The two searches ask of planners of their own, and so at the same time.
  std::future<std::int64_t> batch = std::async(std::launch::async, [&] { return largest_batch(question); });
  if (!shape.learned_positions) {
    progress("the largest batch, and the longest sample");
    shape.most_tokens = token_step * largest(most_token_steps, [&](std::int64_t steps) {
                          return fits_with(question, shape.least_batch, steps * token_step);
                        });
  }
  shape.batch = batch.get();
  // The answer to the question itself is of a longer search.
  if (!feasible) return shape;
  shape.batch = std::max(shape.batch, asked.batch);
  if (!shape.learned_positions && asked.batch == shape.least_batch)
    shape.most_tokens = std::max(shape.most_tokens, asked.sequence / token_step * token_step);
  return shape;
}

std::string describe(const LargestShape& shape) {
  const auto number = [](std::int64_t value) { return grouped(static_cast<std::uint64_t>(value)); };
  const auto at_least = [](bool end_of_search) { return end_of_search ? "at least " : ""; };
  std::string text = shape.batch > 0
                         ? fmt::format("{}batch {} at {} tokens", at_least(2 * shape.batch > most_samples),
                                       number(shape.batch), number(shape.sequence))
                         : fmt::format("no batch at {} tokens", number(shape.sequence));
  if (!shape.learned_positions)
    text +=
        shape.most_tokens > 0
            ? fmt::format("; {}{} tokens at batch {}", at_least(shape.most_tokens >= most_tokens_of_sample),
                          number(shape.most_tokens), number(shape.least_batch))
            : fmt::format("; not even 1,024 tokens at batch {}", number(shape.least_batch));
  return fmt::format("\n{:<14}{}\n", "largest", text);
}

nlohmann::ordered_json to_json(const LargestShape& shape) {
  nlohmann::ordered_json json = {{"batch", shape.batch}, {"sequence", shape.sequence}};
  if (!shape.learned_positions) {
    json["most_tokens"] = shape.most_tokens;
    json["least_batch"] = shape.least_batch;
  }
  return json;
}

}  // namespace stowage
