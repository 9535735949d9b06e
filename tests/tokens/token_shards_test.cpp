#include "stowage/token_shards.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <set>

#include "tests/support/expect_refused.h"
#include "tests/support/packed_shard.h"
#include "tests/support/temporary_folder.h"

namespace stowage {
namespace {

using Ids = std::vector<std::int32_t>;

class TokenShardsTest : public ::testing::Test {
 protected:
  // Tokens first, first + 1, … in a shard of `name`.
  std::string shard(const std::string& name, std::int32_t first, std::size_t count,
                    ShardVersion version = ShardVersion::two_bytes) const {
    Ids ids(count);
    std::iota(ids.begin(), ids.end(), first);
    TokenShardWriter writer(folder_.file(name), version);
    writer.append(ids);
    writer.commit();
    return folder_.file(name);
  }
  // The first token of each sample that comes next.
  static Ids firsts(TokenShards& shards, std::uint64_t count, std::size_t sequence) {
    Ids tokens(sequence), targets(sequence), result;
    for (; count > 0; --count) {
      shards.next(tokens, targets);
      for (std::size_t i = 0; i < sequence; ++i) {
        EXPECT_EQ(tokens[i], tokens[0] + static_cast<std::int32_t>(i));
        EXPECT_EQ(targets[i], tokens[i] + 1);
      }
      result.push_back(tokens[0]);
    }
    return result;
  }
  TemporaryFolder folder_;
};

TEST_F(TokenShardsTest, SamplesInOrder) {
  const std::string a = shard("a.bin", 0, 9);    // 0 and 4; the last token is a target alone
  const std::string b = shard("b.bin", 100, 4);  // none
  const std::string c = shard("c.bin", 200, 8);  // 200: of the next there is no target
  TokenShards shards({c, a, b, a}, {.sequence = 4, .shuffled = false});
  EXPECT_EQ(shards.shards().size(), 3U);
  EXPECT_EQ(shards.tokens(), 21);
  EXPECT_EQ(shards.samples_per_epoch(), 3U);
  EXPECT_EQ(firsts(shards, 7, 4), (Ids{0, 4, 200, 0, 4, 200, 0}));
  EXPECT_EQ(shards.position().epoch, 2U);
  EXPECT_EQ(shards.position().sample, 1U);
}

TEST_F(TokenShardsTest, ShuffledEachSampleComesOnceInAnEpoch) {
  const std::string a = shard("a.bin", 0, 301);
  const std::string b = shard("b.bin", 1000, 201);
  TokenShards shards({a, b}, {.sequence = 5, .seed = 3});
  const Ids first = firsts(shards, 100, 5);
  const Ids second = firsts(shards, 100, 5);
  EXPECT_EQ(std::set<std::int32_t>(first.begin(), first.end()).size(), 100U);
  EXPECT_EQ(std::set<std::int32_t>(second.begin(), second.end()).size(), 100U);
  EXPECT_NE(first, second);
  TokenShards again({b, a}, {.sequence = 5, .seed = 3});
  EXPECT_EQ(firsts(again, 100, 5), first);
  TokenShards other({a, b}, {.sequence = 5, .seed = 4});
  EXPECT_NE(firsts(other, 100, 5), first);
}

TEST_F(TokenShardsTest, GoesOnFromASavedPosition) {
  const std::string a = shard("a.bin", 0, 401);
  TokenShards shards({a}, {.sequence = 4, .seed = ~std::uint64_t{0}});
  firsts(shards, 137, 4);
  const std::string saved = to_json(shards.position());
  const Ids expected = firsts(shards, 150, 4);
  TokenShards again({a}, {.sequence = 4, .seed = ~std::uint64_t{0}});
  again.seek(token_position_from_json(saved));
  EXPECT_EQ(firsts(again, 150, 4), expected);
}

TEST_F(TokenShardsTest, RefusesAPositionOfOtherData) {
  const std::string a = shard("a.bin", 0, 41);
  TokenShards shards({a}, {.sequence = 4, .seed = 1});
  const TokenPosition good = shards.position();
  const auto expect_refused = [&](TokenPosition position, const std::string& words) {
    test::expect_refused([&] { shards.seek(position); }, "position: " + words);
    EXPECT_EQ(shards.position(), good);
  };
  TokenPosition bad = good;
  bad.samples_per_epoch = 11;
  expect_refused(bad, "'samples_per_epoch' is 11, but 10 of these shards");
  bad = good;
  bad.sequence = 5;
  expect_refused(bad, "'sequence' is 5, but 4");
  bad = good;
  bad.shuffled = false;
  expect_refused(bad, "'shuffled' is false, but true");
  bad = good;
  bad.seed = 2;
  expect_refused(bad, "'seed' is 2, but 1");
  bad = good;
  bad.sample = 10;
  expect_refused(bad, "'sample' is 10, past the 10 of an epoch");
}

TEST_F(TokenShardsTest, FoldersAndPatterns) {
  const std::string a = shard("train_1.bin", 0, 9);
  shard("train_2.bin", 0, 9);
  shard("val_[1].bin", 0, 9);
  folder_.make("notes.txt", "x");
  const auto count = [](const std::string& place) {
    return TokenShards({place}, {.sequence = 4}).shards().size();
  };
  EXPECT_EQ(count(std::filesystem::path(a).parent_path().string()), 3U);
  EXPECT_EQ(count(folder_.file("train_*.bin")), 2U);
  EXPECT_EQ(count(folder_.file("train_[2-9].bin")), 1U);
  EXPECT_EQ(count(folder_.file("val_[1].bin")), 1U);  // a file by its name
}

TEST_F(TokenShardsTest, RefusesWhatCannotBeSampled) {
  const std::string a = shard("a.bin", 0, 9);
  const std::string b = shard("b.bin", 0, 9, ShardVersion::four_bytes);
  const auto expect_refused = [](const std::vector<std::string>& places, const TokenSampling& sampling,
                                 const std::string& words) {
    test::expect_refused([&] { TokenShards(places, sampling); }, words);
  };
  expect_refused({}, {}, "no token shards are named");
  expect_refused({a, folder_.file("c*.bin")}, {.sequence = 4}, "c*.bin': no token shard is there");
  expect_refused({folder_.make("x.bin", "x")}, {.sequence = 4}, "x.bin': the header is cut short");
  expect_refused({a, b}, {.sequence = 4}, "b.bin': 'version' is 7, but that of '" + a + "' is 1");
  expect_refused({a}, {.sequence = 0}, "a sequence of 0 tokens is none");
  expect_refused({a}, {.sequence = 9}, "no shard has the 10 tokens of one sample");
  expect_refused({a}, {.sequence = INT64_MAX}, "no shard has the 9223372036854775808 tokens of one sample");
}

TEST_F(TokenShardsTest, RefusesWrongSamples) {
  const TokenShards shards({shard("a.bin", 0, 9)}, {.sequence = 4, .shuffled = false, .vocabulary_size = 8});
  Ids four(4), five(5);
  shards.sample(0, 0, four, four);
  test::expect_refused([&] { shards.sample(0, 2, four, four); }, "sample 2 is past the 2 of an epoch");
  test::expect_refused([&] { shards.sample(0, 0, five, four); }, "a sample has 4 tokens");
  test::expect_refused([&] { shards.sample(0, 0, four, five); }, "a sample has 4 tokens");
  // The last target.
  test::expect_refused([&] { shards.sample(0, 1, four, four); },
                       "a.bin': token 8 is 8, but the vocabulary has 8");
}

// Two samples of three tokens: one document, then two.
std::string packed_shard(std::int32_t first) {
  Ids tokens(6);
  std::iota(tokens.begin(), tokens.end(), first);
  return test::packed_shard(3, tokens, {0, 0, 0, 0, 1, 1}, std::string("\1\1\0\0\1\0", 6));
}

TEST_F(TokenShardsTest, PackedSamplesAreAsTheyStand) {
  folder_.make("a.bin", packed_shard(10));
  folder_.make("b.bin", packed_shard(20));
  TokenShards shards({folder_.file("")}, {.sequence = 3, .shuffled = false});
  EXPECT_TRUE(shards.packed());
  EXPECT_EQ(shards.samples_per_epoch(), 4U);
  Ids tokens(3), targets(3), begins(3);
  shards.next(tokens, targets, begins);
  EXPECT_EQ(targets, (Ids{11, 12, -1}));
  EXPECT_EQ(begins, (Ids{0, 0, 0}));
  shards.sample(0, 3, tokens, targets, begins);
  EXPECT_EQ(tokens, (Ids{23, 24, 25}));
  EXPECT_EQ(targets, (Ids{-1, 25, -1}));
  EXPECT_EQ(begins, (Ids{0, 1, 1}));
  // Each comes once in an epoch, wherever reading begins.
  TokenShards shuffled({folder_.file("")}, {.sequence = 3, .seed = 4});
  std::set<std::int32_t> firsts;
  for (std::uint64_t i = 0; i < 4; ++i) {
    shuffled.sample(2, i, tokens, targets, begins);
    firsts.insert(tokens[0]);
  }
  EXPECT_EQ(firsts, (std::set<std::int32_t>{10, 13, 20, 23}));
  test::expect_refused([&] { shards.sample(0, 0, tokens, targets); },
                       "a sample has 3 tokens, as many targets and");
  test::expect_refused(
      [&] { TokenShards({folder_.file("a.bin")}, {.sequence = 2}); },
      "its packed samples have 3 tokens, and a sequence of 2 is asked for; give a sequence of 3");
  test::expect_refused(
      [&] {
        TokenShards({folder_.file("a.bin"), shard("c.bin", 0, 9)}, {.sequence = 3});
      },
      "'version' is 1, but that of");
  // Others have one document in a sample.
  TokenShards plain({folder_.file("c.bin")}, {.sequence = 3, .shuffled = false});
  EXPECT_FALSE(plain.packed());
  begins = {7, 7, 7};
  plain.next(tokens, targets, begins);
  EXPECT_EQ(begins, (Ids{0, 0, 0}));
}

}  // namespace
}  // namespace stowage
