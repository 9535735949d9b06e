#include "src/tokens/shard_bytes.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/expect_refused.h"
#include "tests/support/packed_shard.h"

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
  expect_refused(header(5, 1, 1), "'magic' is 5, not 20240520, 20240801 or 20261128");
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

const std::vector<std::int32_t> eight = {5, 6, 7, 8, 9, 10, 11, 12};
const std::vector<std::int32_t> two_documents = {0, 0, 2, 2, 0, 1, 1, 1};
const std::string marks("\1\0\1\0\0\0\1\0", 8);

TEST(ShardBytes, PackedSamplesHaveTheirDocumentsAndTargets) {
  std::string expected = header(20261128, 8, 8);
  expected[12] = 4;
  EXPECT_EQ(shard_header(ShardVersion::packed, 8, 4), expected);
  const std::string bytes = test::packed_shard(4, eight, two_documents, marks);
  const ShardBytes shard = parse_shard(bytes, "x.bin");
  EXPECT_EQ(shard.size(), 8);
  EXPECT_EQ(shard.sequence, 4);
  std::vector<std::int32_t> tokens(4), targets(4), begins(4);
  read_packed(shard, "x.bin", 0, {tokens, targets, begins}, 13);
  EXPECT_EQ(tokens, (std::vector<std::int32_t>{5, 6, 7, 8}));
  EXPECT_EQ(targets, (std::vector<std::int32_t>{6, -1, 8, -1}));
  EXPECT_EQ(begins, (std::vector<std::int32_t>{0, 0, 2, 2}));
  read_packed(shard, "x.bin", 1, {tokens, targets, begins}, 13);
  EXPECT_EQ(targets, (std::vector<std::int32_t>{-1, -1, 12, -1}));
  EXPECT_EQ(begins, (std::vector<std::int32_t>{0, 1, 1, 1}));
  const auto refused = [&](const std::string& of, std::int64_t index, std::int32_t vocabulary,
                           const std::string& words) {
    test::expect_refused(
        [&] {
          read_packed(parse_shard(of, "x.bin"), "x.bin", index, {tokens, targets, begins}, vocabulary);
        },
        "'x.bin': " + words);
  };
  refused(bytes, 2, 13, "has 2 packed samples; read one of them, not 2");
  refused(bytes, -1, 13, "has 2 packed samples");
  refused(bytes, 1, 12, "token 7 is 12, but the vocabulary has 12");
  refused(header(20240801, 7, 1) + "abcd", 0, 0, "has 0 packed samples");
}

TEST(ShardBytes, RefusesDocumentsAndTargetsThatCannotBe) {
  std::vector<std::int32_t> tokens(4), targets(4), begins(4);
  const auto refused = [&](std::vector<std::int32_t> documents, const std::string& counts,
                           const std::string& words) {
    const std::string bytes = test::packed_shard(4, eight, documents, counts);
    test::expect_refused(
        [&] {
          read_packed(parse_shard(bytes, "x.bin"), "x.bin", 0, {tokens, targets, begins}, 0);
        },
        "'x.bin': " + words);
  };
  const std::string none(8, '\0');
  refused({1, 1, 2, 2, 0, 0, 0, 0}, none, "token 0 begins its document at 1 of its sample, not at 0");
  refused({0, 0, 3, 3, 0, 0, 0, 0}, none, "token 2 begins its document at 3");
  refused({0, 1, 0, 0, 0, 0, 0, 0}, none, "token 2 begins its document at 0 of its sample, not at 1 or 2");
  refused({0, -1, 0, 0, 0, 0, 0, 0}, none, "token 1 begins its document at -1");
  refused(two_documents, std::string("\1\1\0\0\0\0\0\0", 8),
          "token 1 has the mark 1; 0, at the end of its document");
  refused(two_documents, std::string("\0\0\0\1\0\0\0\0", 8), "token 3 has the mark 1; 0, at the end");
  refused(two_documents, std::string("\2\0\0\0\0\0\0\0", 8), "token 0 has the mark 2; 0 or 1 is possible");
  expect_refused(shard_header(ShardVersion::packed, 8, 3) + std::string(72, '\0'),
                 "'sequence' in the header is 3, which does not divide 8 tokens");
  expect_refused(shard_header(ShardVersion::packed, 8, 0) + std::string(72, '\0'),
                 "'sequence' in the header is 0");
  expect_refused(shard_header(ShardVersion::packed, 8, -4) + std::string(72, '\0'),
                 "'sequence' in the header is -4");
  expect_refused(shard_header(ShardVersion::packed, 8, 4) + std::string(71, '\0'),
                 "'tokens' in the header is 8, which makes 1096 bytes, but the file has 1095");
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
