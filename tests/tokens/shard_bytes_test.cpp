#include "src/tokens/shard_bytes.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/expect_refused.h"

namespace stowage {
namespace {

std::string header(std::int32_t magic, std::int32_t version, std::int32_t count) {
  std::string bytes(1024, '\0');
  const std::int32_t fields[] = {magic, version, count};
  std::memcpy(bytes.data(), fields, sizeof fields);
  return bytes;
}

void expect_refused(const std::string& bytes, const std::string& words) {
  test::expect_refused([&] { parse_shard(bytes, "x.bin"); }, "'x.bin': " + words);
}

TEST(ShardBytes, HeadersAreThoseOfLlmC) {
  EXPECT_EQ(shard_header(ShardVersion::two_bytes, 3), header(20240520, 1, 3));
  EXPECT_EQ(shard_header(ShardVersion::four_bytes, 2147483647), header(20240801, 7, 2147483647));
}

TEST(ShardBytes, TokensOfBothVersions) {
  const std::string two = header(20240520, 1, 2) + std::string("\x01\x00\xFF\xFF", 4);
  EXPECT_EQ(parse_shard(two, "x").size(), 2);
  EXPECT_EQ(parse_shard(two, "x").token(0), 1U);
  EXPECT_EQ(parse_shard(two, "x").token(1), 65535U);
  const std::string four = header(20240801, 7, 1) + std::string("\x01\x00\x02\x80", 4);
  EXPECT_EQ(parse_shard(four, "x").size(), 1);
  EXPECT_EQ(parse_shard(four, "x").token(0), 0x80020001U);
}

TEST(ShardBytes, NamesTheFieldThatIsWrong) {
  expect_refused("", "the header is cut short: the file has 0 bytes");
  expect_refused(header(20240520, 1, 1).substr(1), "the header is cut short: the file has 1023 bytes");
  expect_refused(header(5, 1, 1), "'magic' is 5, not 20240520 or 20240801");
  expect_refused(header(20240522, 1, 1), "'magic' is 20240522: this is a file of evaluation questions");
  expect_refused(header(20240520, 7, 1), "'version' is 7, but with the magic 20240520 only 1 is known");
  expect_refused(header(20240801, 1, 1), "'version' is 1, but with the magic 20240801 only 7 is known");
  expect_refused(header(20240520, 1, 0), "'tokens' in the header is 0");
  expect_refused(header(20240520, 1, -1), "'tokens' in the header is -1");
  expect_refused(header(20240520, 1, 2) + "abc",
                 "'tokens' in the header is 2, which makes 1028 bytes, but the file has 1027");
  expect_refused(header(20240520, 1, 2) + "abcde", "'tokens' in the header is 2, which makes 1028 bytes");
  expect_refused(header(20240801, 7, 2147483647),
                 "'tokens' in the header is 2147483647, which makes 8589935612 bytes, but the file has 1024");
}

TEST(ShardBytes, ReadsWithinTheTokensAndTheVocabulary) {
  const std::string bytes = header(20240801, 7, 3) + std::string("\1\0\0\0\2\0\0\0\0\0\0\x80", 12);
  const ShardBytes shard = parse_shard(bytes, "x.bin");
  std::vector<std::int32_t> tokens(2);
  read_tokens(shard, "x.bin", 0, tokens, 0);
  EXPECT_EQ(tokens, (std::vector<std::int32_t>{1, 2}));
  read_tokens(shard, "x.bin", 0, tokens, 3);
  read_tokens(shard, "x.bin", 3, {}, 3);
  const auto expect_no = [&](std::int64_t first, std::int32_t vocabulary, const std::string& words) {
    test::expect_refused([&] { read_tokens(shard, "x.bin", first, tokens, vocabulary); },
                         "'x.bin': " + words);
  };
  expect_no(0, 2, "token 1 is 2, but the vocabulary has 2");
  expect_no(1, 0, "token 2 is 2147483648, but the vocabulary has 2147483648");
  for (const std::int64_t first : {std::int64_t{-1}, std::int64_t{2}, std::int64_t{4}, INT64_MAX, INT64_MIN})
    expect_no(first, 0, "has 3 tokens; read from 0 up to that, not 2 from ");
}

TEST(ShardBytes, TheSmallestVersionForAVocabulary) {
  EXPECT_EQ(shard_version_for(65536), ShardVersion::two_bytes);
  EXPECT_EQ(shard_version_for(65537), ShardVersion::four_bytes);
}

}  // namespace
}  // namespace stowage
