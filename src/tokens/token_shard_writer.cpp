#include <fmt/format.h>

#include <cstring>

#include "src/base/output_file.h"
#include "src/tokens/shard_bytes.h"
#include "stowage/error.h"

namespace stowage {

class TokenShardWriter::File {
 public:
  File(const std::string& path, ShardVersion version) : version_(version), file_("", path, Writing::placed) {
    if (version == ShardVersion::packed)
      throw InvalidInput(
          fmt::format("'{}': packed samples are not written here; give a version of llm.c", path));
    file_.write(shard_header(version, 0));
  }

  std::int64_t size() const { return size_; }

  void append(std::span<const std::int32_t> tokens) {
    if (std::ssize(tokens) > most_shard_tokens - size_) {
      throw InvalidInput(fmt::format("'{}': a shard holds at most {} tokens; write several", file_.path(),
                                     most_shard_tokens));
    }
    const std::size_t width = bytes_per_token(version_);
    std::string bytes(tokens.size() * width, '\0');
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] < 0 || (width == 2 && tokens[i] > UINT16_MAX)) {
        throw InvalidInput(fmt::format("'{}': token {} has no room in {} bytes; write a shard of version {}",
                                       file_.path(), tokens[i], width,
                                       static_cast<int>(ShardVersion::four_bytes)));
      }
      std::memcpy(bytes.data() + i * width, &tokens[i], width);
    }
    file_.write(bytes);
    size_ += std::ssize(tokens);
  }

  void commit() {
    if (size_ == 0)
      throw InvalidInput(fmt::format("'{}': a shard without tokens is none; append some", file_.path()));
    const std::string header = shard_header(version_, size_);
    file_.write_at(0, std::as_bytes(std::span(header)));
    file_.commit();
  }

 private:
  ShardVersion version_;
  OutputFile file_;
  std::int64_t size_ = 0;
};

TokenShardWriter::TokenShardWriter(const std::string& path, ShardVersion version)
    : file_(std::make_unique<File>(path, version)) {}
TokenShardWriter::~TokenShardWriter() = default;
void TokenShardWriter::append(std::span<const std::int32_t> tokens) { file_->append(tokens); }
std::int64_t TokenShardWriter::size() const { return file_->size(); }
void TokenShardWriter::commit() { file_->commit(); }

}  // namespace stowage
