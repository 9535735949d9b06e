// GptTask: the task of train_gpt, to predict the next token of a text or of token shards.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "samples/data/shard_source.h"
#include "samples/data/text_data.h"
#include "samples/task/forward_pass.h"
#include "samples/task/task.h"
#include "stowage/tokenizer.h"

namespace stowage::samples {

class GptTask : public Task {
 public:
  explicit GptTask(Options& options);

  void take_share(BatchShare share) override {
    if (shards_) shards_->take_share(share);
  }
  std::vector<std::span<const std::int32_t>> inputs(std::uint64_t step) override;
  std::uint64_t samples() const override {
    return shards_ ? shards_->shards().samples_per_epoch() : training_.source->samples();
  }
  DataDescription data() const override;
  std::map<std::string, std::string> configuration() const override;
  std::map<std::string, std::int64_t> position(std::uint64_t step) const override;
  ModelDescription description() const override;
  std::map<std::string, std::string> files() const override;
  Evaluation evaluate(const ReadParameter& read) override;
  std::optional<EvaluationModel> evaluation_model() const override;
  Evaluation evaluate_by(const MeasureLoss& loss) override;
  std::uint64_t evaluation_batches() const override;
  std::vector<std::string> measures() const override { return {"loss", "perplexity"}; }
  void sample(const ReadParameter& read, const EmitText& emit) const override;

 private:
  // A text in the tokens of the run, and the source of samples that reads it.
  struct Text {
    std::string_view bytes;
    std::vector<std::int32_t> tokens;  // empty if bytes are the tokens
    std::unique_ptr<TokenSource> source;
  };
  bool by_bytes() const { return options_.tokenizer.empty(); }
  bool is_of_shards() const;
  std::int32_t vocabulary() const;
  TokenSampling sampling(bool shuffled) const;
  void open_training();
  void open_evaluation();
  void require_packable(const std::string& flag, const TokenSource& source) const;
  void take_text(const std::string& flag, std::string_view bytes, Text& text) const;
  const TokenSource& evaluated() const;
  std::uint64_t evaluated_samples() const;
  ModelConfig sizes_on_device() const;
  template <class Work>
  void for_each_batch(std::int64_t batch, Work work) const;
  Evaluation evaluation_of(const Score& sum) const;

  const Options& options_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::string text_, evaluation_text_;  // texts that `training_` and `evaluation_` refer to
  Text training_, evaluation_;
  std::unique_ptr<ShardSource> shards_;  // source if --data means token shards, not a text
  std::unique_ptr<TokenSource> evaluated_shards_;
  Batch batch_;
};

}  // namespace stowage::samples
