#include "samples/task/bert_task.h"

#include <fmt/format.h>

#include <algorithm>

#include "samples/data/text_data.h"
#include "samples/task/forward_pass.h"
#include "samples/task/task.h"
#include "stowage/checkpoint.h"
#include "stowage/error.h"
#include "tools/console/text.h"
#include "tools/console/underway.h"

namespace stowage::samples {
namespace {

constexpr std::int32_t segments = 2;

// Samples of a batch, in the order of a model's inputs except for the targets; beyond the batch's end the
// last sample is repeated.
struct Part {
  std::vector<std::int32_t> tokens, types, seen, targets, next_sentence;
};
Part part_of(const PairBatch& batch, std::size_t count, std::size_t sequence) {
  Part part;
  const std::size_t samples = batch.next_sentence.size();
  const auto append = [&](const std::vector<std::int32_t>& all, std::size_t sample,
                          std::vector<std::int32_t>& some) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(sample * sequence);
    some.insert(some.end(), begin, begin + static_cast<std::ptrdiff_t>(sequence));
  };
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t sample = std::min(i, samples - 1);
    append(batch.tokens, sample, part.tokens);
    append(batch.token_types, sample, part.types);
    append(batch.seen, sample, part.seen);
    append(batch.targets, sample, part.targets);
    part.next_sentence.push_back(i < samples ? batch.next_sentence[sample] : -1);
    if (i >= samples)
      std::fill(part.targets.end() - static_cast<std::ptrdiff_t>(sequence), part.targets.end(), -1);
  }
  return part;
}

}  // namespace

BertTask::BertTask(Options& options) : options_(options), text_(read_data(options.data)) {
  const bool split = options.evaluate_every > 0 && options.evaluation_data.empty();
  const SplitText parts = split_text(text_, split ? options.evaluation_share : 0);
  training_.text = parts.training;
  open_tokenizer();
  ids_ = special_ids(*tokenizer_);
  set_vocabulary(options, ids_.vocabulary, "the tokenizer's, special tokens included, is");
  open_pairs("--data " + options.data, parts.training, options.model.batch, training_);
  {
    const Underway work("counting", options.data);
    entropy_ = unigram_entropy(training_.documents->tokens());
  }
  if (options.evaluate_every == 0) return;
  const auto samples = static_cast<std::int64_t>(options.evaluation_samples);
  if (split) {
    on_held_out(options.data, options.evaluation_share,
                [&] { open_pairs("", parts.held_out, samples, evaluation_); });
    return;
  }
  evaluation_text_ = read_data(options.evaluation_data, "--evaluation-data");
  open_pairs("--evaluation-data " + options.evaluation_data, evaluation_text_, samples, evaluation_);
}

void BertTask::open_tokenizer() {
  if (!options_.tokenizer.empty()) {
    tokenizer_ = tokenizer_of(options_);
    return;
  }
  if (!options_.init.empty())
    throw InvalidInput(
        fmt::format("--init {}: its tokens are those of a tokenizer: give --tokenizer, such as its vocab.txt",
                    options_.init));
  const Underway work("learning", fmt::format("{} tokens of {}", options_.learned_vocabulary, options_.data));
  const BytePairVocabulary learned = train_byte_pairs(training_.text, options_.learned_vocabulary);
  tokenizer_ = byte_pair_tokenizer(learned);
}

void BertTask::open_pairs(const std::string& flag, std::string_view text, std::int64_t batch,
                          Pairs& pairs) const {
  pairs.text = text;
  {
    Underway work("tokenising", flag.empty() ? "what is held out of --data" : flag);
    pairs.documents.emplace(text, *tokenizer_, [&](double share) { work.progress(share); });
  }
  with_prefix(flag.empty() ? "" : flag + ": ", [&] {
    pairs.source.emplace(*pairs.documents, ids_, batch, options_.model.sequence, options_.seed);
  });
}

std::vector<std::span<const std::int32_t>> BertTask::inputs(std::uint64_t step) {
  training_.source->fill(step, batch_);
  return {batch_.tokens, batch_.targets, batch_.token_types, batch_.seen, batch_.next_sentence};
}

std::uint64_t BertTask::samples() const {
  const auto sequence = static_cast<std::uint64_t>(options_.model.sequence);
  return (training_.documents->tokens().size() + sequence - 1) / sequence;
}

DataDescription BertTask::data() const {
  const Documents& documents = *training_.documents;
  return {.text = fmt::format("{}: {} documents of {} sentences, {} tokens of {}{}, entropy {:.4f} nats",
                              options_.data, grouped(documents.documents()), grouped(documents.sentences()),
                              grouped(documents.tokens().size()),
                              grouped(static_cast<std::uint64_t>(ids_.vocabulary)),
                              options_.tokenizer.empty() ? " that were learned from it" : "", entropy_),
          .unit = "tokens",
          .yardstick = {},
          .loss_of = "masked tokens and next sentences together"};
}

std::map<std::string, std::string> BertTask::configuration() const {
  return {{"model.kind", std::string(options_.family->name)},
          {"data.text", stowage::fingerprint(training_.text)},
          {"data.tokenizer", fingerprint(*tokenizer_)}};
}

std::map<std::string, std::string> BertTask::files() const {
  return tokenizer_files(*tokenizer_, ids_.missing, positions_of(options_), Framing::pairs);
}

ModelDescription BertTask::description() const {
  ModelDescription result{.family = options_.family, .config = options_.model};
  result.config.sequence = positions_of(options_);
  result.padding_token = ids_.padding;
  return result;
}

Evaluation BertTask::evaluate(const ReadParameter& read) {
  const std::uint64_t all = options_.evaluation_samples;
  const ModelConfig sizes = without_dropout(options_.model, samples_at_once(options_.model, all));
  GraphBuilder builder;
  const BuiltModel model = options_.family->build(builder, sizes);
  const ForwardPass pass(builder.finish_without_update(model.loss),
                         {model.tokens.id, model.token_types.id, model.seen.id},
                         {model.logits.id, model.next_sentence_logits.id});
  PairBatch batch;
  Score masked, next;
  for (std::uint64_t first = 0; first < all; first += static_cast<std::uint64_t>(sizes.batch)) {
    const auto count = std::min(all - first, static_cast<std::uint64_t>(sizes.batch));
    evaluation_.source->fill(0, static_cast<std::size_t>(first), static_cast<std::size_t>(count), batch);
    const Part part =
        part_of(batch, static_cast<std::size_t>(sizes.batch), static_cast<std::size_t>(sizes.sequence));
    const auto results = pass.run({part.tokens, part.types, part.seen}, read);
    masked += score(floats_of(results[0]), sizes.vocabulary, part.targets);
    next += score(floats_of(results[1]), segments, part.next_sentence);
  }
  return {fmt::format("masked tokens: loss {:.4f}, {:.1f}% right (entropy of the tokens {:.4f}); next "
                      "sentence: loss {:.4f}, {:.1f}% right of {} (by chance 50%)",
                      masked.mean(), 100 * masked.share_right(), entropy_, next.mean(),
                      100 * next.share_right(), grouped(next.targets)),
          {{"masked_loss", masked.mean()},
           {"masked_accuracy", masked.share_right()},
           {"next_sentence_loss", next.mean()},
           {"next_sentence_accuracy", next.share_right()}},
          masked.mean() + next.mean()};
}

}  // namespace stowage::samples
