// Batches from token shards.
#pragma once

#include <map>
#include <string>

#include "samples/data/text_data.h"
#include "stowage/graph.h"
#include "stowage/token_shards.h"

namespace stowage::samples {

// Returns whether `place` (of --data) means token shards: a folder, a name that ends in ".bin", or a pattern
// of such with no file of that very name.
bool means_shards(const std::string& place);

// Sample `i` of step `s` is number s * batch + i of the epochs' samples, one epoch after another,
// each shuffled.
class ShardSource : public TokenSource {
 public:
  // Reads the first and last tokens of every shard. Throws InvalidInput naming `flag`, the file, and a token
  // that is not below `vocabulary`.
  ShardSource(const std::string& flag, const std::string& place, const TokenSampling& sampling,
              std::int64_t batch);

  // Reads only this share of each batch from here on: the part of `rank` among equal, consecutive parts. The
  // other samples of a batch are token 0. Of packed samples all are read.
  void take_share(BatchShare share) { share_ = share; }

  // Throw InvalidInput, as above, for a token outside the vocabulary that they find later.
  void fill(std::uint64_t step, Batch& result) const override;
  std::uint64_t samples() const override { return shards_.samples_per_epoch(); }
  bool packed() const override { return shards_.packed(); }
  void sample(std::uint64_t index, std::span<std::int32_t> tokens, std::span<std::int32_t> targets,
              std::span<std::int32_t> begins) const override;

  const TokenShards& shards() const { return shards_; }
  // Returns a fingerprint of the shards' lengths and of the first and last 4096 tokens of each, of packed
  // ones their first and last sample, wherever the files lie.
  std::string fingerprint() const;
  // Returns the epoch and the sample that a step begins with.
  std::map<std::string, std::int64_t> position(std::uint64_t step) const;

 private:
  std::string flag_;
  TokenSampling sampling_;
  TokenShards shards_;
  std::uint64_t batch_;
  BatchShare share_{};
};

}  // namespace stowage::samples
