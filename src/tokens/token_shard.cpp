#include <cstdio>

#include "src/tokens/mapped_file.h"
#include "src/tokens/shard_bytes.h"
#include "stowage/token_shards.h"

namespace stowage {

class TokenShard::Contents {
 public:
  explicit Contents(const std::string& path)
      : path(path),
        file(path, "give a token shard as llm.c writes them"),
        bytes(parse_shard(file.text(), path)) {}

  std::string path;
  MappedFile file;
  ShardBytes bytes;
};

TokenShard::TokenShard(const std::string& path) : contents_(std::make_shared<const Contents>(path)) {}

const std::string& TokenShard::path() const { return contents_->path; }
ShardVersion TokenShard::version() const { return contents_->bytes.version; }
std::int64_t TokenShard::size() const { return contents_->bytes.size(); }

void TokenShard::read(std::int64_t first, std::span<std::int32_t> tokens,
                      std::int32_t vocabulary_size) const {
  read_tokens(contents_->bytes, contents_->path, first, tokens, vocabulary_size);
}

}  // namespace stowage
