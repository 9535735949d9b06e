#include "samples/task/gpt_task.h"

#include <fmt/format.h>

#include <algorithm>

#include "samples/data/documents.h"
#include "samples/task/generate.h"
#include "samples/task/task.h"
#include "stowage/checkpoint.h"
#include "stowage/error.h"
#include "tools/console/text.h"
#include "tools/console/underway.h"

namespace stowage::samples {
namespace {

constexpr double sample_temperature = 0.8;

}  // namespace

GptTask::GptTask(Options& options) : options_(options) {
  // Shards may have the tokens of a model whose tokenizer is not known.
  const bool of_model = is_of_shards() && by_bytes() && !options.init.empty();
  if (!of_model && by_bytes() && options.family != &gpt_family)
    throw InvalidInput(fmt::format(
        "--init {}: {} has tokens of its own, and a text's bytes are none of them; give the text "
        "as token shards that its tokenizer made (docs/model_files.md), or a --tokenizer of its ids",
        options.init, options.family->title));
  if (by_bytes() && options.family != &gpt_family && options.sample_tokens > 0)
    throw InvalidInput(
        fmt::format("--sample: the tokens of a {} have a text by its --tokenizer alone; give "
                    "that, or leave this out",
                    options.family->title));
  tokenizer_ = tokenizer_of(options);
  set_vocabulary(options, of_model ? options.model.vocabulary : tokenizer_->vocabulary_size(),
                 by_bytes() ? "a text's bytes are tokens: their number is" : "the tokenizer's is");
  open_training();
  options.model.packed = shards_ && shards_->packed();
  if (options.evaluate_every > 0) open_evaluation();
}

bool GptTask::is_of_shards() const {
  return options_.data.empty() ? options_.stored_shards : means_shards(options_.data);
}

std::int32_t GptTask::vocabulary() const {
  const auto all = static_cast<std::int32_t>(options_.model.vocabulary);
  return by_bytes() ? all : tokenizer_->vocabulary_size();
}

TokenSampling GptTask::sampling(bool shuffled) const {
  return {.sequence = options_.model.sequence,
          .shuffled = shuffled,
          .seed = options_.seed,
          .vocabulary_size = vocabulary()};
}

void GptTask::require_packable(const std::string& flag, const TokenSource& source) const {
  if (source.packed() && options_.family->learned_positions)
    throw InvalidInput(fmt::format(
        "{}: its samples are packed of several documents, in which positions begin again, and {} has "
        "a table of positions; give shards of whole samples, or a Llama by --init",
        flag, options_.family->title));
}

void GptTask::take_text(const std::string& flag, std::string_view bytes, Text& text) const {
  const ModelConfig& model = options_.model;
  text.bytes = bytes;
  with_prefix(flag.empty() ? "" : flag + ": ", [&] {
    if (by_bytes()) {
      text.source = std::make_unique<BatchSource>(bytes, model.batch, model.sequence, options_.seed);
      return;
    }
    text.tokens = encode_data(*tokenizer_, bytes, flag.empty() ? "what is held out of --data" : flag);
    text.source = std::make_unique<BatchSource>(std::span<const std::int32_t>(text.tokens), model.batch,
                                                model.sequence, options_.seed);
  });
}

void GptTask::open_training() {
  const std::string& place = options_.data;
  if (place.empty()) return;  // the run copies weights
  if (means_shards(place)) {
    if (options_.evaluate_every > 0 && options_.evaluation_data.empty())
      throw InvalidInput(
          "--evaluate-every: of token shards nothing is held out; name others by --evaluation-data");
    shards_ = std::make_unique<ShardSource>("--data", place, sampling(true), options_.model.batch);
    require_packable("--data", *shards_);
    return;
  }
  text_ = read_data(place);
  const bool split = options_.evaluate_every > 0 && options_.evaluation_data.empty();
  take_text("--data " + place, split_text(text_, split ? options_.evaluation_share : 0).training, training_);
}

void GptTask::open_evaluation() {
  const std::string& place = options_.evaluation_data;
  if (place.empty()) {
    on_held_out(options_.data, options_.evaluation_share,
                [&] { take_text("", split_text(text_, options_.evaluation_share).held_out, evaluation_); });
  } else if (means_shards(place)) {
    evaluated_shards_ = std::make_unique<ShardSource>("--evaluation-data", place, sampling(false), 1);
    require_packable("--evaluation-data", *evaluated_shards_);
  } else {
    evaluation_text_ = read_data(place, "--evaluation-data");
    take_text("--evaluation-data " + place, evaluation_text_, evaluation_);
  }
}

std::vector<std::span<const std::int32_t>> GptTask::inputs(std::uint64_t step) {
  (shards_ ? *shards_ : *training_.source).fill(step, batch_);
  if (options_.model.packed) return {batch_.tokens, batch_.targets, batch_.begins};
  return {batch_.tokens, batch_.targets};
}

DataDescription GptTask::data() const {
  if (shards_) {
    const TokenShards& shards = shards_->shards();
    return {.text = fmt::format("{}: {} tokens in {} shard{}, {} samples an epoch", options_.data,
                                grouped(static_cast<std::uint64_t>(shards.tokens())), shards.shards().size(),
                                shards.shards().size() == 1 ? "" : "s", grouped(shards.samples_per_epoch())),
            .unit = "tokens",
            .yardstick = {},
            .loss_of = {}};
  }
  const Underway work("counting", options_.data);
  const std::string size = fmt::format("{}: {} bytes", options_.data, grouped(training_.bytes.size()));
  if (by_bytes()) {
    const double entropy = bigram_entropy(training_.bytes);
    return {.text = fmt::format("{}, byte-bigram entropy {:.4f} nats", size, entropy),
            .unit = "bytes",
            .yardstick = Yardstick{"byte-bigram entropy", entropy, "the model sees further than one byte",
                                   "one byte of context would do as well"},
            .loss_of = {}};
  }
  const double entropy = unigram_entropy(training_.tokens);
  return {
      .text = fmt::format("{}, {} tokens of {}, entropy {:.4f} nats", size, grouped(training_.tokens.size()),
                          grouped(static_cast<std::uint64_t>(tokenizer_->vocabulary_size())), entropy),
      .unit = "tokens",
      .yardstick = Yardstick{"entropy of the tokens", entropy, "the model makes use of context",
                             "the tokens' frequencies alone would do as well"},
      .loss_of = {}};
}

std::map<std::string, std::string> GptTask::configuration() const {
  std::map<std::string, std::string> result = {{"model.kind", std::string(options_.family->name)}};
  if (!by_bytes()) result["data.tokenizer"] = fingerprint(*tokenizer_);
  if (shards_)
    result["data.shards"] = shards_->fingerprint();
  else if (!options_.data.empty())
    result["data.text"] = stowage::fingerprint(training_.bytes);
  return result;
}

std::map<std::string, std::int64_t> GptTask::position(std::uint64_t step) const {
  if (shards_) return shards_->position(step);
  return {{"step", static_cast<std::int64_t>(step)}};
}

ModelDescription GptTask::description() const {
  ModelDescription result = options_.initial.value_or(ModelDescription{.family = options_.family});
  result.config = options_.model;
  result.config.sequence = positions_of(options_);
  if (!options_.initial || options_.family == &gpt_family)
    result.begin_token = result.end_token = tokenizer_->special(SpecialToken::end_of_text);
  return result;
}

std::map<std::string, std::string> GptTask::files() const {
  if (is_of_shards() && by_bytes()) return {};  // any tokenizer may have made the shards
  return tokenizer_files(*tokenizer_, {}, positions_of(options_), Framing::none);
}

void GptTask::sample(const ReadParameter& read, const EmitText& emit) const {
  // White space is no token of a WordPiece vocabulary.
  const bool lines = !tokenizer_->encode("\n").empty();
  const std::string prompt = lines ? "\n" : beginning_of_text(*tokenizer_);
  ModelWeights weights(*options_.family, options_.model, options_.type);
  weights.take(read);
  generate(weights, *tokenizer_, prompt,
           {.tokens = options_.sample_tokens, .temperature = sample_temperature, .seed = options_.seed},
           emit);
}

}  // namespace stowage::samples
