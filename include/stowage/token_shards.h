// Token ids on disk: the `.bin` files of llm.c (Karpathy), read page by page, and shuffled samples of many of
// them.
//
// A file is a header of 256 little-endian 32-bit integers (magic, version, number of tokens, then zeros), and
// the tokens: version 1 (magic 20240520) has two bytes for each, version 7 (magic 20240801) has four.
//
// Version 8 (magic 20261128) is Stowage's own, of packed samples, in each of which may be several documents:
//   header  the fourth integer is the length of a sample, which divides the number of tokens
//   tokens  four bytes each
//   begins  four bytes for each token: the index within its sample of the first token of its document
//   marks   a byte for each token: 1 if the token behind it is a target, else 0. A target is of the same
//           document, so that the last token of a document has the mark 0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stowage {

enum class ShardVersion : std::int32_t { two_bytes = 1, four_bytes = 7, packed = 8 };

// The smallest version of llm.c that holds all ids of a vocabulary.
ShardVersion shard_version_for(std::int32_t vocabulary_size);

// A file, mapped into memory. It must keep its length while it is read: a page that is gone ends the program.
// Copies share the mapping. Any number of threads may read it.
class TokenShard {
 public:
  // Throws InvalidInput that names the file, the field of its header, and what to do if it is no shard, or
  // its length does not match the number of tokens.
  explicit TokenShard(const std::string& path);

  const std::string& path() const;
  ShardVersion version() const;
  std::int64_t size() const;  // number of tokens, at least one
  // Tokens of a packed sample; 0 in other versions, whose samples may have any.
  std::int64_t sequence() const;

  // Sets tokens[i] to token `first` + i. Throws InvalidInput for a range past the end, and, unless
  // `vocabulary_size` is 0, for a token that is not below it, with the file's name and the token's place.
  void read(std::int64_t first, std::span<std::int32_t> tokens, std::int32_t vocabulary_size = 0) const;
  // The same for packed sample `index`, and sets targets[i] to the token behind tokens[i], or to -1 where
  // that is no target, and begins[i] to the index of the first token of tokens[i]'s document. All spans have
  // sequence() items. Also throws InvalidInput for documents that do not follow one another, and for a target
  // in another document.
  void read_packed(std::int64_t index, std::span<std::int32_t> tokens, std::span<std::int32_t> targets,
                   std::span<std::int32_t> begins, std::int32_t vocabulary_size = 0) const;

 private:
  class Contents;
  std::shared_ptr<const Contents> contents_;
};

// Writes a shard under a temporary name beside `path`, which becomes the file's name when it is complete.
class TokenShardWriter {
 public:
  // Throws InvalidInput naming `path` where it cannot be written, and for packed samples.
  TokenShardWriter(const std::string& path, ShardVersion version);
  TokenShardWriter(const TokenShardWriter&) = delete;
  TokenShardWriter& operator=(const TokenShardWriter&) = delete;
  ~TokenShardWriter();  // removes the file unless it was committed

  // Throws InvalidInput for a token that the version has no room for and for more than 2^31 - 1 tokens in
  // all, Error where the disk refuses.
  void append(std::span<const std::int32_t> tokens);
  std::int64_t size() const;  // number of tokens so far
  // Writes the header and gives the file its name. Throws InvalidInput where there is no token, Error where
  // the disk refuses.
  void commit();

 private:
  class File;
  std::unique_ptr<File> file_;
};

struct TokenSampling {
  std::int64_t sequence = 1024;      // number of tokens of a sample
  bool shuffled = true;              // false: in the order of files and tokens
  std::uint64_t seed = 0;            // seed of the shuffled order
  std::int32_t vocabulary_size = 0;  // a token not below this size is refused when read; 0: no check
};

// A run's position in its data: sample `sample` of epoch `epoch` comes next. The other fields identify the
// data.
struct TokenPosition {
  std::uint64_t epoch = 0;
  std::uint64_t sample = 0;
  std::uint64_t samples_per_epoch = 0;
  std::int64_t sequence = 0;
  bool shuffled = false;
  std::uint64_t seed = 0;
  bool operator==(const TokenPosition&) const = default;
};

// Versioned JSON, loss-free. The text is hostile: InvalidInput that names the field, never worse.
std::string to_json(const TokenPosition& position);
TokenPosition token_position_from_json(std::string_view text);

// Samples of many shards. Sample i of a shard is its tokens [i * sequence, (i + 1) * sequence], with the
// targets one token further, as in llm.c; the rest at a shard's end is no sample. Packed samples are as they
// stand in their shard. An epoch has every sample
// once, in an order that depends on the seed and the epoch alone (a permutation by counters), so that two
// numbers are the whole position, and any sample can be asked for.
class TokenShards {
 public:
  // `places`: files, folders (all *.bin in them) and patterns of *, ? and [...] as a shell has them. The
  // shards are in the order of their paths, each once. Throws InvalidInput that names the place or file if
  // nothing is there, a file is no shard, versions differ, packed samples have another length, or there are
  // too few tokens for a sample.
  TokenShards(const std::vector<std::string>& places, const TokenSampling& sampling);

  const std::vector<TokenShard>& shards() const { return shards_; }
  std::int64_t tokens() const;  // number of tokens in all shards
  std::uint64_t samples_per_epoch() const { return first_samples_.back(); }
  bool packed() const { return shards_.front().version() == ShardVersion::packed; }

  // Reads sample `index` of epoch `epoch`; the spans have `sequence` items: targets[i] is the token behind
  // tokens[i], or -1 where that is no target, begins[i] the index of the first token of tokens[i]'s document.
  // `begins` may be empty unless the samples are packed. Throws InvalidInput for an index past the epoch,
  // spans of other lengths and tokens outside the vocabulary. Any number of threads may call it.
  void sample(std::uint64_t epoch, std::uint64_t index, std::span<std::int32_t> tokens,
              std::span<std::int32_t> targets, std::span<std::int32_t> begins = {}) const;

  // Reads the sample at the position and moves on by one. Used by one thread at a time.
  void next(std::span<std::int32_t> tokens, std::span<std::int32_t> targets,
            std::span<std::int32_t> begins = {});
  TokenPosition position() const { return position_; }
  // Throws InvalidInput that names the field if the position is not one of these shards, sampled like this.
  void seek(const TokenPosition& position);

 private:
  TokenSampling sampling_;
  std::vector<TokenShard> shards_;
  std::vector<std::uint64_t> first_samples_;  // each shard's first sample, then the number of all samples
  TokenPosition position_;
};

}  // namespace stowage
