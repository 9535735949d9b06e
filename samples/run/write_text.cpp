#include "samples/run/write_text.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "samples/run/stored_model.h"
#include "samples/run/token_ids.h"
#include "samples/task/decoder.h"
#include "samples/task/generate.h"
#include "samples/task/task.h"
#include "src/base/parallel_for.h"
#include "src/device/host_limits.h"
#include "stowage/error.h"
#include "stowage/tokenizer.h"
#include "tools/console/interrupt.h"
#include "tools/console/text.h"

namespace stowage::samples {
namespace {

void require_tokenizer(const Options& options, const StoredModel& model, const Tokenizer& tokenizer) {
  const bool bytes = options.tokenizer.empty();
  const bool has_own_tokens = &model.family() != &gpt_family;
  if (bytes && has_own_tokens)
    throw InvalidInput(
        fmt::format("--generate: a {} has tokens of its own, and bytes are none of them; give "
                    "its --tokenizer",
                    model.family().title));
  const std::optional<std::string> known = model.tokenizer();
  const bool same = known && (bytes ? known->empty() : *known == fingerprint(tokenizer));
  const bool of_shards = has_own_tokens && known && known->empty();  // trained on token shards
  if (known && !same && !of_shards)
    throw InvalidInput(
        bytes ? "--generate: the checkpoint's tokens are a tokenizer's: give --tokenizer too"
              : fmt::format("--tokenizer {}: the checkpoint's tokens are {}", options.tokenizer,
                            known->empty() ? "bytes: leave it out" : "another tokenizer's: give that"));
  if (model.sizes().vocabulary < tokenizer.vocabulary_size())
    throw InvalidInput(
        fmt::format("--init {}: config.json has vocab_size {}, and the tokenizer has {} tokens: "
                    "give the model's own --tokenizer",
                    options.init, model.sizes().vocabulary, tokenizer.vocabulary_size()));
}

// Checks that the host has room for the weights and for the keys and values of so many tokens.
void require_room(const ModelWeights& weights, std::int64_t positions) {
  const std::vector<HostLimit> limits = read_host_limits();
  const HostLimit* const least = tightest(limits);
  const Bytes cache = cache_bytes(weights.sizes(), weights.type(), positions);
  const Bytes need = weights.bytes() + cache;
  if (least == nullptr || need <= least->room) return;
  throw InvalidInput(fmt::format(
      "host memory: {} needed, {} left of {}: {} for the weights in {}, {} for the keys and values of {} "
      "tokens. "
      "To go on, {}, or generate fewer --tokens",
      exact(need), exact(least->room), least->name, format_bytes(weights.bytes()), to_string(weights.type()),
      format_bytes(cache), grouped(static_cast<std::uint64_t>(positions)), least->remedy));
}

// Returns the model with its weights. `prompt`: number of its tokens.
ModelWeights read_weights(const Options& options, const StoredModel& model, std::size_t prompt) {
  ModelWeights weights(model.family(), model.sizes(), model.type());
  require_room(weights,
               positions_to_generate(model.family(), model.sizes(), prompt, options.generated_tokens));
  model.load(weights);
  return weights;
}

GenerateOptions generate_options(const Options& options) {
  return {.tokens = options.generated_tokens, .temperature = options.temperature, .seed = options.seed};
}

void put(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// Until the first token, signals end the program at once: a long prompt takes a while.
bool goes_on() {
  watch_interrupts();
  return !interrupted() && std::ferror(stdout) == 0;
}

void write_continuation(const Options& options, const StoredModel& model) {
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(options);
  require_tokenizer(options, model, *tokenizer);
  const std::string prompt = options.generate->empty() ? beginning_of_text(*tokenizer) : *options.generate;
  const ModelWeights weights = read_weights(options, model, tokenizer->encode(prompt).size());

  // A file gets the bytes unchanged.
  const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  TerminalText shown;
  const auto emit = [&](std::string_view text) {
    put(terminal ? shown.add(text) : std::string(text));
    return goes_on();
  };
  put(terminal ? shown.add(*options.generate) : *options.generate);
  generate(weights, *tokenizer, prompt, generate_options(options), emit);
  put(shown.finish() + "\n");
}

void write_ids(const Options& options, const StoredModel& model) {
  const std::int64_t vocabulary = model.sizes().vocabulary;
  std::vector<std::int32_t> stops;
  if (options.stop_ids && *options.stop_ids != "none")
    stops = parse_ids(*options.stop_ids, ",", most_stop_ids, vocabulary, "--stop-ids");
  else if (!options.stop_ids && !options.init.empty())
    stops = with_prefix("--init ", [&] { return end_tokens(options.init, vocabulary); });
  const std::vector<std::int32_t> prompt = read_ids(*options.generate_ids, vocabulary);
  const ModelWeights weights = read_weights(options, model, prompt.size());
  const std::vector<bool> usable(static_cast<std::size_t>(vocabulary), true);
  generate_tokens(weights, prompt, usable, generate_options(options), [&](std::int32_t token) {
    if (std::find(stops.begin(), stops.end(), token) != stops.end()) return false;
    put(fmt::format("{}\n", token));
    return goes_on();
  });
}

}  // namespace

int write_text(const Options& options) {
  set_parallel_threads(options.threads);
  const StoredModel model(options);
  options.generate ? write_continuation(options, model) : write_ids(options, model);
  return interrupted() ? interrupted_code : 0;
}

}  // namespace stowage::samples
