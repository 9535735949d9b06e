#include "samples/data/shard_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <set>

#include "stowage/error.h"
#include "tests/support/temporary_folder.h"

namespace stowage::samples {
namespace {

using ::testing::HasSubstr;

void write_shard(const std::string& path, std::int32_t first, std::int32_t count) {
  TokenShardWriter writer(path, ShardVersion::two_bytes);
  std::vector<std::int32_t> tokens;
  for (std::int32_t i = 0; i < count; ++i) tokens.push_back(first + i);
  writer.append(tokens);
  writer.commit();
}

TEST(MeansShards, FoldersNamesInBinAndPatterns) {
  const TemporaryFolder folder;
  EXPECT_TRUE(means_shards(folder.file("")));
  EXPECT_TRUE(means_shards(folder.make("a.bin", "x")));
  EXPECT_TRUE(means_shards(folder.file("*.bin")));
  EXPECT_TRUE(means_shards(folder.file("a?")));
  EXPECT_FALSE(means_shards(folder.make("a[1]", "x"))) << "a file of this name is there";
  EXPECT_FALSE(means_shards(folder.file("text")));
}

TEST(ShardSource, AnEpochHasEverySampleOnceAndAStepDependsOnItsNumberAlone) {
  const TemporaryFolder folder;
  write_shard(folder.file("a.bin"), 0, 21);
  write_shard(folder.file("b.bin"), 100, 17);
  const ShardSource source("--data", folder.file("*.bin"), {.sequence = 4, .seed = 3, .vocabulary_size = 200},
                           3);
  ASSERT_EQ(source.samples(), 9U);
  std::set<std::int32_t> seen;
  Batch batch;
  for (std::uint64_t step = 0; step < 3; ++step) {
    source.fill(step, batch);
    ASSERT_EQ(batch.tokens.size(), 12U);
    for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(batch.targets[i], batch.tokens[i] + 1);
    for (std::size_t sample = 0; sample < 3; ++sample) seen.insert(batch.tokens[4 * sample]);
  }
  EXPECT_EQ(seen, (std::set<std::int32_t>{0, 4, 8, 12, 16, 100, 104, 108, 112}));
  Batch again;
  source.fill(2, again);
  EXPECT_EQ(again.tokens, batch.tokens);
  EXPECT_EQ(source.position(4), (std::map<std::string, std::int64_t>{{"epoch", 1}, {"sample", 3}}));
}

// Whatever the number of ranks: together they read what one does, and no sample twice.
TEST(ShardSource, RanksReadTheirPartsOfTheSameBatches) {
  const TemporaryFolder folder;
  write_shard(folder.file("a.bin"), 1, 41);
  write_shard(folder.file("b.bin"), 101, 33);
  constexpr std::int64_t batch = 8, sequence = 4;
  const auto open = [&](BatchShare share) {
    auto source = std::make_unique<ShardSource>(
        "--data", folder.file("*.bin"),
        TokenSampling{.sequence = sequence, .seed = 3, .vocabulary_size = 200}, batch);
    source->take_share(share);
    return source;
  };
  const auto whole = open({});
  for (const std::uint32_t ranks : {1U, 2U, 4U, 8U})
    for (std::uint64_t step = 0; step < 5; ++step) {  // 18 samples: into the third epoch
      Batch expected, joined;
      whole->fill(step, expected);
      joined.tokens.resize(batch * sequence);
      joined.targets.resize(batch * sequence);
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        Batch own;
        open({rank, ranks})->fill(step, own);
        ASSERT_EQ(own.tokens.size(), expected.tokens.size());
        std::int64_t read = 0;
        for (std::size_t i = 0; i < own.tokens.size(); ++i) {
          if (own.tokens[i] == 0) continue;  // the shards have none
          EXPECT_EQ(joined.tokens[i], 0) << "read by two ranks";
          joined.tokens[i] = own.tokens[i];
          joined.targets[i] = own.targets[i];
          ++read;
        }
        EXPECT_EQ(read, batch * sequence / ranks);
      }
      EXPECT_EQ(joined.tokens, expected.tokens) << ranks << " ranks, step " << step;
      EXPECT_EQ(joined.targets, expected.targets);
    }
}

TEST(ShardSource, RefusesAnotherVocabularysTokensByFileAndId) {
  const TemporaryFolder folder;
  write_shard(folder.file("a.bin"), 0, 21);
  write_shard(folder.file("b.bin"), 300, 21);
  try {
    const ShardSource source("--data", folder.file(""), {.sequence = 4, .vocabulary_size = 256}, 3);
    FAIL() << "accepted";
  } catch (const InvalidInput& error) {
    for (const char* part : {"--data", "b.bin", "300", "256"}) EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

TEST(ShardSource, TheFingerprintIsOfTheTokensNotOfTheirPlace) {
  const TemporaryFolder folder;
  const auto of = [&](const char* name, std::int32_t first, std::int32_t count) {
    write_shard(folder.file(name), first, count);
    return ShardSource("--data", folder.file(name), {.sequence = 4}, 1).fingerprint();
  };
  EXPECT_EQ(of("a.bin", 0, 21), of("b.bin", 0, 21));
  EXPECT_NE(of("a.bin", 0, 21), of("b.bin", 1, 21));
  EXPECT_NE(of("a.bin", 0, 21), of("b.bin", 0, 22));
}

}  // namespace
}  // namespace stowage::samples
