#include "src/tokens/shard_bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

#include "stowage/error.h"

namespace stowage {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are little-endian");

constexpr std::int32_t two_byte_magic = 20240520;
constexpr std::int32_t four_byte_magic = 20240801;
constexpr std::int32_t packed_magic = 20261128;
constexpr std::int32_t evaluation_magic = 20240522;

struct Magic {
  std::int32_t magic;
  ShardVersion version;
};
constexpr Magic magics[] = {{two_byte_magic, ShardVersion::two_bytes},
                            {four_byte_magic, ShardVersion::four_bytes},
                            {packed_magic, ShardVersion::packed}};

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
  const auto* const known = std::find_if(std::begin(magics), std::end(magics),
                                         [&](const Magic& each) { return each.magic == magic; });
  if (known == std::end(magics)) {
    refuse_shard(name, "'magic' is {}, not {}, {} or {}; give a token shard as llm.c or stowage writes them",
                 magic, two_byte_magic, four_byte_magic, packed_magic);
  }
  if (version != static_cast<std::int32_t>(known->version)) {
    refuse_shard(name, "'version' is {}, but with the magic {} only {} is known; write the shard anew",
                 version, magic, static_cast<std::int32_t>(known->version));
  }
  return known->version;
}

std::int32_t integer_at(std::string_view bytes, std::int64_t index) {
  return field(bytes, static_cast<std::size_t>(index));
}

}  // namespace

std::size_t bytes_per_token(ShardVersion version) { return version == ShardVersion::two_bytes ? 2 : 4; }

ShardVersion shard_version_for(std::int32_t vocabulary_size) {
  return vocabulary_size <= UINT16_MAX + 1 ? ShardVersion::two_bytes : ShardVersion::four_bytes;
}

std::string shard_header(ShardVersion version, std::int64_t tokens, std::int64_t sequence) {
  std::array<std::int32_t, shard_header_bytes / sizeof(std::int32_t)> fields{};
  for (const auto& [magic, of] : magics)
    if (of == version) fields[0] = magic;
  fields[1] = static_cast<std::int32_t>(version);
  fields[2] = static_cast<std::int32_t>(tokens);
  fields[3] = static_cast<std::int32_t>(sequence);
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
  const bool packed = version == ShardVersion::packed;
  const std::int64_t sequence = packed ? field(bytes, 3) : 0;
  if (packed && (sequence <= 0 || count % sequence != 0))
    refuse_shard(name,
                 "'sequence' in the header is {}, which does not divide {} tokens; write the shard anew",
                 sequence, count);
  const auto all = static_cast<std::uint64_t>(count);
  const std::uint64_t token_bytes = all * bytes_per_token(version);
  const std::uint64_t expected =
      shard_header_bytes + token_bytes + (packed ? all * (sizeof(std::int32_t) + 1) : 0);
  if (bytes.size() != expected) {
    refuse_shard(name,
                 "'tokens' in the header is {}, which makes {} bytes, but the file has {}; copy it anew",
                 count, expected, bytes.size());
  }
  ShardBytes shard{version, bytes.substr(shard_header_bytes, token_bytes), sequence};
  if (!packed) return shard;
  shard.begins = bytes.substr(shard_header_bytes + token_bytes, all * sizeof(std::int32_t));
  shard.counts = bytes.substr(bytes.size() - all);
  return shard;
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

void read_packed(const ShardBytes& shard, const std::string& name, std::int64_t index,
                 const PackedSample& sample, std::int32_t vocabulary_size) {
  const std::int64_t samples = shard.sequence == 0 ? 0 : shard.size() / shard.sequence;
  if (index < 0 || index >= samples)
    refuse_shard(name, "has {} packed samples; read one of them, not {}", samples, index);
  const std::int64_t first = index * shard.sequence;
  read_tokens(shard, name, first, sample.tokens, vocabulary_size);
  std::int64_t document = 0;  // index of the first token of the document
  for (std::int64_t i = 0; i < shard.sequence; ++i) {
    const std::int64_t token = first + i;
    const std::int32_t begin = integer_at(shard.begins, token);
    if (begin != document && begin != i)
      refuse_shard(name,
                   "token {} begins its document at {} of its sample, not at {} or {}; write the shard anew",
                   token, begin, document, i);
    document = begin;
    const auto at = static_cast<std::size_t>(i);
    sample.begins[at] = begin;
    const auto counts = static_cast<unsigned char>(shard.counts[static_cast<std::size_t>(token)]);
    const bool has_next = i + 1 < shard.sequence && integer_at(shard.begins, token + 1) == begin;
    if (counts > 1 || (counts == 1 && !has_next))
      refuse_shard(name, "token {} has the mark {}; {} is possible; write the shard anew", token, counts,
                   has_next ? "0 or 1" : "0, at the end of its document,");
    sample.targets[at] = counts == 1 ? sample.tokens[at + 1] : -1;
  }
}

}  // namespace stowage
