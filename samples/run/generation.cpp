#include "samples/run/generation.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "samples/options/vocabulary.h"
#include "samples/run/stored_model.h"
#include "samples/task/generate.h"
#include "src/base/parallel_for.h"
#include "stowage/error.h"
#include "tools/console/interrupt.h"

namespace stowage::samples {
namespace {

void require_together(const Options& options, const StoredModel& model, const Tokenizer& tokenizer) {
  const bool bytes = options.tokenizer.empty();
  const bool same = bytes ? model.tokenizer.empty() : model.tokenizer == fingerprint(tokenizer);
  if (model.knows_tokenizer && !same)
    throw InvalidInput(bytes
                           ? "--generate: the checkpoint's tokens are a tokenizer's: give --tokenizer too"
                           : fmt::format("--tokenizer {}: the checkpoint's tokens are {}", options.tokenizer,
                                         model.tokenizer.empty() ? "bytes: leave it out"
                                                                 : "another tokenizer's: give that"));
  if (model.sizes.vocabulary < tokenizer.vocabulary_size())
    throw InvalidInput(
        fmt::format("--init {}: config.json has vocab_size {}, and the tokenizer has {} tokens: "
                    "give the model's own --tokenizer",
                    options.init, model.sizes.vocabulary, tokenizer.vocabulary_size()));
}

void put(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace

int generate_text(const Options& options) {
  set_parallel_threads(options.threads);
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(options);
  StoredModel model = read_stored_model(options);
  require_together(options, model, *tokenizer);
  const std::string prompt = options.generate->empty() ? beginning_of_text(*tokenizer) : *options.generate;
  watch_interrupts();

  // A file gets the very bytes.
  const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  TerminalText shown;
  const auto emit = [&](std::string_view text) {
    put(terminal ? shown.add(text) : std::string(text));
    return !interrupted();
  };
  emit(*options.generate);
  const GenerateOptions wanted = {.prompt = prompt,
                                  .tokens = options.generated_tokens,
                                  .temperature = options.temperature,
                                  .seed = options.seed};
  generate(
      model.sizes, *tokenizer, [&](const std::string& name) { return std::move(model.parameters.at(name)); },
      wanted, emit);
  put(shown.finish() + "\n");
  return interrupted() ? interrupted_code : 0;
}

}  // namespace stowage::samples
