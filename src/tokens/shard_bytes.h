// The bytes of a token shard.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "stowage/token_shards.h"

namespace stowage {

inline constexpr std::size_t shard_header_bytes = 256 * sizeof(std::int32_t);
inline constexpr std::int64_t most_shard_tokens = INT32_MAX;

std::size_t bytes_per_token(ShardVersion version);
// `sequence`: of packed samples.
std::string shard_header(ShardVersion version, std::int64_t tokens, std::int64_t sequence = 0);

// Tokens within bytes that the caller owns.
struct ShardBytes {
  ShardVersion version = ShardVersion::two_bytes;
  std::string_view tokens;
  // Of packed samples: an integer, and a byte, for each token.
  std::int64_t sequence = 0;
  std::string_view begins{}, counts{};

  std::int64_t size() const;
  // Returns the token, unsigned, as stored. Requires index < size().
  std::uint32_t token(std::int64_t index) const;
};

// Throws InvalidInput that begins with `name`.
ShardBytes parse_shard(std::string_view bytes, const std::string& name);

// As TokenShard::read.
void read_tokens(const ShardBytes& shard, const std::string& name, std::int64_t first,
                 std::span<std::int32_t> tokens, std::int32_t vocabulary_size);

// As TokenShard::read_packed.
struct PackedSample {
  std::span<std::int32_t> tokens, targets, begins;
};
void read_packed(const ShardBytes& shard, const std::string& name, std::int64_t index,
                 const PackedSample& sample, std::int32_t vocabulary_size);

}  // namespace stowage
