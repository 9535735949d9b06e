#include "src/checkpoint/checkpoint_tensors.h"

#include <gtest/gtest.h>

#include "tests/checkpoint/small_state.h"

namespace stowage {
namespace {

TEST(CheckpointTensors, LieBehindEachOtherAtMultiplesOf64) {
  const auto tensors = checkpoint_tensors(testing::small_graph());
  ASSERT_EQ(tensors.size(), 5U);
  EXPECT_EQ(tensors[0].name, "w");
  EXPECT_EQ(tensors[1].offset, 64U);
  EXPECT_EQ(tensors[2].offset, 128U);
  EXPECT_EQ(tensors[3].offset, 192U);
  EXPECT_EQ(tensors[4].offset, 192U);  // behind the empty one
  EXPECT_EQ(tensors[4].bytes, 80U);
  EXPECT_EQ(checkpoint_bytes(tensors), 320U);
  EXPECT_EQ(checkpoint_bytes({}), 0U);
}

TEST(CheckpointTensors, ThoseThatNoFileCanHoldAreRefused) {
  Graph graph = testing::small_graph();
  graph.tensors[1].shape = {std::int64_t{1} << 31, std::int64_t{1} << 31};
  EXPECT_THROW(checkpoint_tensors(graph), InvalidInput);
  graph.tensors[1].shape = {std::int64_t{1} << 62, 8};
  EXPECT_THROW(checkpoint_tensors(graph), InvalidInput);
}

TEST(CheckpointTensors, PiecesAreTheWholeValue) {
  Bytes end = 0;
  for_each_piece(2 * checkpoint_piece + 5, [&](Bytes offset, Bytes bytes) {
    EXPECT_EQ(offset, end);
    EXPECT_LE(bytes, checkpoint_piece);
    end += bytes;
  });
  EXPECT_EQ(end, 2 * checkpoint_piece + 5);
}

}  // namespace
}  // namespace stowage
