#include <gtest/gtest.h>

#include "stowage/token_shards.h"
#include "tests/support/expect_refused.h"

namespace stowage {
namespace {

constexpr std::uint64_t most = ~std::uint64_t{0};

TEST(TokenPosition, IsReadAsItWasWritten) {
  const TokenPosition position{most, most - 1, most, INT64_MAX, true, most};
  EXPECT_EQ(token_position_from_json(to_json(position)), position);
  EXPECT_EQ(token_position_from_json(to_json(TokenPosition{})), TokenPosition{});
}

TEST(TokenPosition, NamesTheFieldThatIsWrong) {
  const std::string good = to_json(TokenPosition{1, 2, 3, 4, true, 5});
  const auto expect_refused = [&](const std::string& from, const std::string& to, const std::string& words) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    test::expect_refused([&] { token_position_from_json(text); }, "position JSON: " + words);
  };
  expect_refused("{", "", "");
  expect_refused("position\":1", "position\":2",
                 "'stowage_token_position' is not 1, the version that is known");
  expect_refused("\"epoch\":\"1\"", "\"epoch\":1", "'epoch' is not a string");
  expect_refused("\"epoch\":\"1\"", "\"epoch\":\"-1\"", "'epoch' is not a count in digits");
  expect_refused("\"epoch\":\"1\"", "\"epoch\":\"\"", "'epoch' is not a count in digits");
  expect_refused("\"sample\":\"2\"", "\"sample\":\"18446744073709551616\"",
                 "'sample' is not a count of 64 bits");
  expect_refused("\"sequence\":4,", "", "'sequence' is not there");
  expect_refused("\"seed\"", "\"sead\"", "'sead' is not a known field");
}

}  // namespace
}  // namespace stowage
