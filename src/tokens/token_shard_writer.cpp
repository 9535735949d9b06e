#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "src/tokens/shard_bytes.h"
#include "stowage/error.h"

namespace stowage {

class TokenShardWriter::File {
 public:
  File(const std::string& path, ShardVersion version)
      : path_(path), temporary_(fmt::format("{}.{}.part", path, ::getpid())), version_(version) {
    std::error_code error;
    if (std::filesystem::is_directory(path, error)) refuse("it is a folder");
    file_ = std::fopen(temporary_.c_str(), "wb");
    if (file_ == nullptr) refuse(std::strerror(errno));
    write(shard_header(version, 0));
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (file_ == nullptr) return;
    std::fclose(file_);
    std::remove(temporary_.c_str());
  }

  std::int64_t size() const { return size_; }

  void append(std::span<const std::int32_t> tokens) {
    if (std::ssize(tokens) > most_shard_tokens - size_) {
      throw InvalidInput(
          fmt::format("'{}': a shard holds at most {} tokens; write several", path_, most_shard_tokens));
    }
    const std::size_t width = bytes_per_token(version_);
    std::string bytes(tokens.size() * width, '\0');
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] < 0 || (width == 2 && tokens[i] > UINT16_MAX)) {
        throw InvalidInput(fmt::format("'{}': token {} has no room in {} bytes; write a shard of version {}",
                                       path_, tokens[i], width, static_cast<int>(ShardVersion::four_bytes)));
      }
      std::memcpy(bytes.data() + i * width, &tokens[i], width);
    }
    write(bytes);
    size_ += std::ssize(tokens);
  }

  void commit() {
    if (size_ == 0)
      throw InvalidInput(fmt::format("'{}': a shard without tokens is none; append some", path_));
    if (std::fseek(file_, 0, SEEK_SET) != 0) fail();
    write(shard_header(version_, size_));
    const bool closed = std::fclose(file_) == 0;
    file_ = nullptr;
    if (closed && std::rename(temporary_.c_str(), path_.c_str()) == 0) return;
    const int error = errno;
    std::remove(temporary_.c_str());
    errno = error;
    fail();
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw InvalidInput(fmt::format("cannot write '{}': {}; name a file in a writable folder", path_, why));
  }
  [[noreturn]] void fail() const {
    throw Error(fmt::format("'{}': writing failed ({}); make room there or name another file", path_,
                            std::strerror(errno)));
  }
  void write(std::string_view bytes) {
    if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) fail();
  }

  std::string path_;
  std::string temporary_;
  ShardVersion version_;
  std::FILE* file_ = nullptr;
  std::int64_t size_ = 0;
};

TokenShardWriter::TokenShardWriter(const std::string& path, ShardVersion version)
    : file_(std::make_unique<File>(path, version)) {}
TokenShardWriter::~TokenShardWriter() = default;
void TokenShardWriter::append(std::span<const std::int32_t> tokens) { file_->append(tokens); }
std::int64_t TokenShardWriter::size() const { return file_->size(); }
void TokenShardWriter::commit() { file_->commit(); }

}  // namespace stowage
