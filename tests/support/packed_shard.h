// The bytes of a shard of packed samples (token_shards.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/tokens/shard_bytes.h"

namespace stowage::test {

// `counts`: a byte for each token.
inline std::string packed_shard(std::int64_t sequence, const std::vector<std::int32_t>& tokens,
                                const std::vector<std::int32_t>& begins, const std::string& counts) {
  std::string bytes = shard_header(ShardVersion::packed, std::ssize(tokens), sequence);
  for (const std::vector<std::int32_t>* each : {&tokens, &begins})
    bytes.append(reinterpret_cast<const char*>(each->data()), each->size() * sizeof(std::int32_t));
  return bytes + counts;
}

}  // namespace stowage::test
