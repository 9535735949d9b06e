#include <gtest/gtest.h>

#include <numeric>

#include "stowage/token_shards.h"
#include "tests/support/expect_refused.h"
#include "tests/support/temporary_folder.h"

namespace stowage {
namespace {

using Ids = std::vector<std::int32_t>;

TEST(TokenShardWriter, WritesWhatIsRead) {
  const TemporaryFolder folder;
  for (const ShardVersion version : {ShardVersion::two_bytes, ShardVersion::four_bytes}) {
    Ids ids(1000);
    std::iota(ids.begin(), ids.end(), 64536);
    TokenShardWriter writer(folder.file("x.bin"), version);
    writer.append(std::span(ids).first(10));
    writer.append(std::span(ids).subspan(10));
    EXPECT_EQ(writer.size(), 1000);
    writer.commit();
    const TokenShard shard(folder.file("x.bin"));
    EXPECT_EQ(shard.version(), version);
    EXPECT_EQ(shard.size(), 1000);
    Ids read(1000);
    shard.read(0, read);
    EXPECT_EQ(read, ids);
    EXPECT_EQ(folder.entries(), 1U);
  }
}

TEST(TokenShardWriter, LeavesNothingUnlessCommitted) {
  const TemporaryFolder folder;
  folder.make("x.bin", "old");
  {
    TokenShardWriter writer(folder.file("x.bin"), ShardVersion::two_bytes);
    writer.append(Ids{1});
    EXPECT_EQ(folder.entries(), 2U);
  }
  EXPECT_EQ(folder.entries(), 1U);
  EXPECT_EQ(contents_of(folder.file("x.bin")), "old");
}

TEST(TokenShardWriter, RefusesWhatHasNoRoom) {
  const TemporaryFolder folder;
  TokenShardWriter two(folder.file("two.bin"), ShardVersion::two_bytes);
  test::expect_refused([&] { two.append(Ids{65536}); },
                       "two.bin': token 65536 has no room in 2 bytes; write a shard of version 7");
  test::expect_refused([&] { two.append(Ids{-1}); }, "token -1 has no room");
  test::expect_refused([&] { two.commit(); }, "two.bin': a shard without tokens is none");
  test::expect_refused([&] { TokenShardWriter(folder.file("none/x.bin"), ShardVersion::two_bytes); },
                       "none/x.bin: cannot be written (No such file");
  test::expect_refused([&] { TokenShardWriter(folder.file(""), ShardVersion::two_bytes); },
                       "this is a directory");
  test::expect_refused([&] { TokenShardWriter(folder.file("packed.bin"), ShardVersion::packed); },
                       "packed.bin': packed samples are not written here");
}

}  // namespace
}  // namespace stowage
