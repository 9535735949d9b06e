#include "src/tokens/vocabulary.h"

#include <gtest/gtest.h>

#include "tests/support/expect_refused.h"

namespace stowage {
namespace {

TEST(Vocabulary, KnowsTokensAndIds) {
  Vocabulary vocabulary;
  EXPECT_EQ(vocabulary.size(), 0);
  EXPECT_TRUE(vocabulary.add("a", 5));
  EXPECT_FALSE(vocabulary.add("a", 6));
  EXPECT_FALSE(vocabulary.add("b", 5));
  EXPECT_EQ(vocabulary.id("a"), 5);
  EXPECT_FALSE(vocabulary.id("b"));
  EXPECT_EQ(*vocabulary.token(5), "a");
  EXPECT_EQ(vocabulary.token(6), nullptr);
  EXPECT_EQ(vocabulary.size(), 6);
  const Vocabulary moved = std::move(vocabulary);
  EXPECT_EQ(moved.require_token(5), "a");
  test::expect_refused([&] { moved.require_token(-1); },
                       "no token has the id -1; give ids of this vocabulary, which are below 6");
}

TEST(Vocabulary, OfOneTokenTwiceTheLaterIdCounts) {
  Vocabulary vocabulary;
  vocabulary.add_or_move("a", 0);
  vocabulary.add_or_move("a", 1);
  EXPECT_EQ(vocabulary.id("a"), 1);
  EXPECT_EQ(*vocabulary.token(0), "a");
  EXPECT_EQ(*vocabulary.token(1), "a");
}

}  // namespace
}  // namespace stowage
