#include "samples/data/shard_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <set>

#include "stowage/error.h"
#include "tests/support/packed_shard.h"
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

// The mean of a batch is over the targets of all its samples, and a rank has to know them.
TEST(ShardSource, OfPackedSamplesARankReadsAll) {
  const TemporaryFolder folder;
  std::vector<std::int32_t> tokens, begins;
  for (std::int32_t i = 0; i < 24; ++i) {
    tokens.push_back(i + 1);
    begins.push_back(i % 3 == 2 ? 2 : 0);
  }
  std::string counts(24, '\0');
  for (const std::size_t target : {0U, 6U, 9U, 15U}) counts[target] = '\1';
  const std::string path = folder.make("a.bin", test::packed_shard(3, tokens, begins, counts));
  ShardSource whole("--data", path, {.sequence = 3, .seed = 3, .vocabulary_size = 25}, 4);
  EXPECT_TRUE(whole.packed());
  ShardSource second("--data", path, {.sequence = 3, .seed = 3, .vocabulary_size = 25}, 4);
  second.take_share({1, 2});
  for (std::uint64_t step = 0; step < 3; ++step) {
    Batch expected, found;
    whole.fill(step, expected);
    second.fill(step, found);
    EXPECT_EQ(found.tokens, expected.tokens);
    EXPECT_EQ(found.targets, expected.targets);
    EXPECT_EQ(found.begins, expected.begins);
    EXPECT_EQ(expected.begins, (std::vector<std::int32_t>{0, 0, 2, 0, 0, 2, 0, 0, 2, 0, 0, 2}));
  }
  // A mark of the first sample makes other data.
  counts[0] = '\0';
  const std::string other = folder.make("b.bin", test::packed_shard(3, tokens, begins, counts));
  EXPECT_NE(ShardSource("--data", other, {.sequence = 3}, 1).fingerprint(), whole.fingerprint());
}

}  // namespace
}  // namespace stowage::samples
