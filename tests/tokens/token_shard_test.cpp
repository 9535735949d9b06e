#include <gtest/gtest.h>

#include "stowage/token_shards.h"
#include "tests/support/expect_refused.h"
#include "tests/support/temporary_folder.h"

namespace stowage {
namespace {

TEST(TokenShard, NamesTheFile) {
  const TemporaryFolder folder;
  test::expect_refused([&] { TokenShard(folder.file("none.bin")); }, "none.bin': No such file");
  test::expect_refused([&] { TokenShard(folder.make("x.bin", "")); }, "x.bin': the header is cut short");
}

TEST(TokenShard, CopiesShareTheMapping) {
  const TemporaryFolder folder;
  TokenShardWriter writer(folder.file("x.bin"), ShardVersion::two_bytes);
  writer.append(std::vector<std::int32_t>{7, 8});
  writer.commit();
  auto shard = std::make_unique<TokenShard>(folder.file("x.bin"));
  const TokenShard copy = *shard;
  shard.reset();
  std::vector<std::int32_t> tokens(1);
  copy.read(1, tokens);
  EXPECT_EQ(tokens[0], 8);
  EXPECT_EQ(copy.path(), folder.file("x.bin"));
  test::expect_refused([&] { copy.read(2, tokens); }, copy.path() + "': has 2 tokens");
}

}  // namespace
}  // namespace stowage
