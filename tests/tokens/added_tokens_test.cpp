#include "src/tokens/added_tokens.h"

#include <gtest/gtest.h>

namespace stowage {
namespace {

TEST(AddedTokens, FindsTheLeftmostAndLongest) {
  const AddedTokens tokens({{"<a", 1}, {"<a>", 2}, {"b", 3}});
  const auto first = tokens.find("x<a>b", 0);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->begin, 1U);
  EXPECT_EQ(first->token->id, 2);
  EXPECT_EQ(tokens.find("x<a>b", 2)->token->id, 3);
  EXPECT_EQ(tokens.find("<ab", 0)->token->id, 1);
  EXPECT_FALSE(tokens.find("x< a", 0));
  EXPECT_FALSE(tokens.find("b", 1));
  EXPECT_FALSE(AddedTokens().find("x", 0));
}

}  // namespace
}  // namespace stowage
