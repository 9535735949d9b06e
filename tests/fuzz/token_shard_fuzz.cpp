// Token shards of llm.c, and saved positions: an input that begins with a brace is taken for one.
#include "src/tokens/shard_bytes.h"
#include "tests/fuzz/target.h"

namespace stowage::fuzz {

std::vector<std::string> seeds() {
  return {shard_header(ShardVersion::two_bytes, 3) + std::string("\1\0\2\0\xFF\xFF", 6),
          shard_header(ShardVersion::four_bytes, 2) + std::string("\1\0\0\0\xFF\xFF\0\0", 8),
          shard_header(ShardVersion::packed, 4, 2) + std::string("\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0", 16) +
              std::string("\0\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0", 16) + std::string("\1\0\0\0", 4),
          to_json(TokenPosition{1, 2, 3, 1024, true, 1234567890123456789U})};
}
std::vector<std::string> dictionary() {
  return {shard_header(ShardVersion::two_bytes, 1).substr(0, 12),
          shard_header(ShardVersion::four_bytes, 1).substr(0, 12),
          shard_header(ShardVersion::packed, 2, 1).substr(0, 16),
          std::string(4, '\xFF'),
          std::string("\xFF\xFF\xFF\x7F"),
          std::string(2, '\0'),
          "\"18446744073709551616\"",
          "\"seed\""};
}

namespace {

void check_shard(const ShardBytes& shard, std::string_view text) {
  const std::string written = shard_header(shard.version, shard.size(), shard.sequence);
  const bool packed = shard.version == ShardVersion::packed;
  const std::size_t meant = packed ? 16 : 12;  // bytes of the fields that mean something
  if (written.substr(0, meant) != text.substr(0, meant)) broken("another header");
  const auto count = static_cast<std::size_t>(shard.size());
  const std::size_t bytes_of_each = bytes_per_token(shard.version) + (packed ? 5 : 0);
  if (count * bytes_of_each + shard_header_bytes != text.size()) broken("another size");
  std::vector<std::int32_t> tokens(count);
  parsed_or_refused([&] { return read_tokens(shard, "input", 0, tokens, 0), 0; });
  parsed_or_refused(
      [&] { return read_tokens(shard, "input", 1, tokens, 0), broken("a read past the end"), 0; });
  if (!packed) return;
  const auto length = static_cast<std::size_t>(shard.sequence);
  std::vector<std::int32_t> of_sample(length), targets(length), begins(length);
  for (std::int64_t i = 0; i < shard.size() / shard.sequence; ++i)
    parsed_or_refused([&] { return read_packed(shard, "input", i, {of_sample, targets, begins}, 0), 0; });
}

}  // namespace
}  // namespace stowage::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stowage;
  const std::string_view text = fuzz::text_of(data, size);
  if (text.starts_with('{')) {
    const auto position = fuzz::parsed_or_refused([&] { return token_position_from_json(text); });
    if (position)
      fuzz::check_round_trip(
          *position, [](const TokenPosition& of) { return to_json(of); },
          [](std::string_view written) { return token_position_from_json(written); });
    return 0;
  }
  const auto shard = fuzz::parsed_or_refused([&] { return parse_shard(text, "input"); });
  if (shard) fuzz::check_shard(*shard, text);
  return 0;
}
