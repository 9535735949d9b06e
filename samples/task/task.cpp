#include "samples/task/task.h"

#include <fmt/format.h>

#include <cstdio>
#include <span>

#include "samples/task/bert_task.h"
#include "samples/task/gpt_task.h"
#include "src/base/printable.h"
#include "stowage/checkpoint.h"
#include "stowage/error.h"
#include "tools/choices/model_spec.h"
#include "tools/console/text.h"

namespace stowage::samples {

Evaluation Task::evaluate_by(const MeasureLoss& /*loss*/) {
  throw InvalidInput("this task has no model to evaluate on a device");
}

std::unique_ptr<Task> make_task(Options& options) {
  if (options.program == Program::train_bert) return std::make_unique<BertTask>(options);
  return std::make_unique<GptTask>(options);
}

std::unique_ptr<Tokenizer> tokenizer_of(const Options& options) {
  if (options.tokenizer.empty()) return byte_tokenizer();
  return with_prefix("--tokenizer ", [&] { return load_tokenizer(options.tokenizer); });
}

std::string fingerprint(const Tokenizer& tokenizer) {
  std::string all;
  for (std::int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    try {
      all += tokenizer.decode(std::span(&id, 1));
    } catch (const InvalidInput&) {
      all += '\1';  // no token has this id
    }
    all += '\0';
  }
  return stowage::fingerprint(all);
}

void set_vocabulary(Options& options, std::int64_t tokens, const std::string& needs) {
  ModelConfig& model = options.model;
  if (options.init.empty()) model.vocabulary = tokens;
  if (model.vocabulary < tokens)
    throw InvalidInput(
        fmt::format("--init {}: config.json has vocab_size {}, and {} {}: give a model of at least {} tokens",
                    options.init, model.vocabulary, needs, tokens, tokens));
  const bool own = options.init.empty() || options.tokenizer.empty();
  if (!own && tokens < model.vocabulary / 10 * 9)
    std::fprintf(stderr,
                 "%s: warning: --init %s has a vocabulary of %lld, and --tokenizer %s %lld tokens: is it the "
                 "model's own?\n",
                 program_name(options.program), printable(options.init).c_str(),
                 static_cast<long long>(model.vocabulary), printable(options.tokenizer).c_str(),
                 static_cast<long long>(tokens));
  model.padded_vocabulary = padded_vocabulary(model.vocabulary);
}

}  // namespace stowage::samples
