#include "src/tokens/shard_bytes.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "stowage/error.h"

namespace stowage {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are little-endian");

constexpr std::int32_t two_byte_magic = 20240520;
constexpr std::int32_t four_byte_magic = 20240801;
constexpr std::int32_t evaluation_magic = 20240522;

std::int32_t magic_of(ShardVersion version) {
  return version == ShardVersion::two_bytes ? two_byte_magic : four_byte_magic;
}

std::int32_t field(std::string_view bytes, std::size_t index) {
  std::int32_t value = 0;
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}

template <class... Arguments>
[[noreturn]] void refuse_shard(const std::string& name, fmt::format_string<Arguments...> format,
                               Arguments&&... arguments) {
  throw InvalidInput(
      fmt::format("'{}': {}", name, fmt::format(format, std::forward<Arguments>(arguments)...)));
}

ShardVersion version_of(std::string_view bytes, const std::string& name) {
  const std::int32_t magic = field(bytes, 0);
  const std::int32_t version = field(bytes, 1);
  if (magic == evaluation_magic)
    refuse_shard(name, "'magic' is {}: this is a file of evaluation questions; give one of training tokens",
                 magic);
  if (magic != two_byte_magic && magic != four_byte_magic) {
    refuse_shard(name, "'magic' is {}, not {} or {}; give a token shard as llm.c writes them", magic,
                 two_byte_magic, four_byte_magic);
  }
  const ShardVersion expected = magic == two_byte_magic ? ShardVersion::two_bytes : ShardVersion::four_bytes;
  if (version != static_cast<std::int32_t>(expected)) {
    refuse_shard(name, "'version' is {}, but with the magic {} only {} is known; write the shard anew",
                 version, magic, static_cast<std::int32_t>(expected));
  }
  return expected;
}

}  // namespace

std::size_t bytes_per_token(ShardVersion version) { return version == ShardVersion::two_bytes ? 2 : 4; }

ShardVersion shard_version_for(std::int32_t vocabulary_size) {
  return vocabulary_size <= UINT16_MAX + 1 ? ShardVersion::two_bytes : ShardVersion::four_bytes;
}

std::string shard_header(ShardVersion version, std::int64_t tokens) {
  std::array<std::int32_t, shard_header_bytes / sizeof(std::int32_t)> fields{};
  fields[0] = magic_of(version);
  fields[1] = static_cast<std::int32_t>(version);
  fields[2] = static_cast<std::int32_t>(tokens);
  return {reinterpret_cast<const char*>(fields.data()), shard_header_bytes};
}

std::int64_t ShardBytes::size() const {
  return static_cast<std::int64_t>(tokens.size() / bytes_per_token(version));
}

std::uint32_t ShardBytes::token(std::int64_t index) const {
  const std::size_t width = bytes_per_token(version);
  std::uint32_t value = 0;
  std::memcpy(&value, tokens.data() + static_cast<std::size_t>(index) * width, width);
  return value;
}

ShardBytes parse_shard(std::string_view bytes, const std::string& name) {
  if (bytes.size() < shard_header_bytes) {
    refuse_shard(name,
                 "the header is cut short: the file has {} bytes, a header {}; give a whole token shard",
                 bytes.size(), shard_header_bytes);
  }
  const ShardVersion version = version_of(bytes, name);
  const std::int64_t count = field(bytes, 2);
  if (count <= 0)
    refuse_shard(name, "'tokens' in the header is {}; give a shard with at least one token", count);
  const std::uint64_t expected =
      shard_header_bytes + static_cast<std::uint64_t>(count) * bytes_per_token(version);
  if (bytes.size() != expected) {
    refuse_shard(name,
                 "'tokens' in the header is {}, which makes {} bytes, but the file has {}; copy it anew",
                 count, expected, bytes.size());
  }
  return {version, bytes.substr(shard_header_bytes)};
}

void read_tokens(const ShardBytes& shard, const std::string& name, std::int64_t first,
                 std::span<std::int32_t> tokens, std::int32_t vocabulary_size) {
  const std::int64_t count = std::ssize(tokens);
  if (first < 0 || first > shard.size() || count > shard.size() - first) {
    refuse_shard(name, "has {} tokens; read from 0 up to that, not {} from {} on", shard.size(), count,
                 first);
  }
  const std::uint32_t limit =
      vocabulary_size > 0 ? static_cast<std::uint32_t>(vocabulary_size) : std::uint32_t{INT32_MAX} + 1;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t token = shard.token(first + i);
    if (token >= limit) {
      refuse_shard(name, "token {} is {}, but the vocabulary has {}; give shards of the same tokenizer",
                   first + i, token, limit);
    }
    tokens[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(token);
  }
}

}  // namespace stowage
