// BertTask: the task of train_bert, to predict masked tokens, and whether one piece of text follows another.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "samples/data/documents.h"
#include "samples/data/pair_data.h"
#include "samples/task/task.h"
#include "stowage/tokenizer.h"

namespace stowage::samples {

class BertTask : public Task {
 public:
  explicit BertTask(Options& options);

  std::vector<std::span<const std::int32_t>> inputs(std::uint64_t step) override;
  std::uint64_t samples() const override;
  DataDescription data() const override;
  std::map<std::string, std::string> configuration() const override;
  std::map<std::string, std::int64_t> position(std::uint64_t step) const override {
    return {{"step", static_cast<std::int64_t>(step)}};
  }
  ModelDescription description() const override;
  // The tokenizer, if it was learned.
  std::map<std::string, std::string> files() const override;
  Evaluation evaluate(const ReadParameter& read) override;
  std::vector<std::string> measures() const override {
    return {"masked_loss", "masked_accuracy", "next_sentence_loss", "next_sentence_accuracy"};
  }

 private:
  // Text, its sentences, and the source of pairs of these.
  struct Pairs {
    std::string_view text;
    std::optional<Documents> documents;
    std::optional<PairSource> source;
  };
  void open_tokenizer();
  void open_pairs(const std::string& flag, std::string_view text, std::int64_t batch, Pairs& pairs) const;

  const Options& options_;
  std::string text_, evaluation_text_;
  std::unique_ptr<Tokenizer> tokenizer_;
  SpecialIds ids_;
  Pairs training_, evaluation_;
  double entropy_ = 0;  // entropy of the training text's tokens
  PairBatch batch_;
};

}  // namespace stowage::samples
