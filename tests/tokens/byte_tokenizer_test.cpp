#include <gtest/gtest.h>

#include "stowage/tokenizer.h"
#include "tests/support/expect_refused.h"

namespace stowage {
namespace {

using Ids = std::vector<std::int32_t>;

TEST(ByteTokenizer, BytesAreIds) {
  const auto tokenizer = byte_tokenizer();
  EXPECT_EQ(tokenizer->encode(std::string_view("a\0\xFF", 3)), (Ids{97, 0, 255}));
  EXPECT_EQ(tokenizer->decode(Ids{97, 0, 255}), std::string("a\0\xFF", 3));
  EXPECT_EQ(tokenizer->vocabulary_size(), 256);
  EXPECT_FALSE(tokenizer->special(SpecialToken::end_of_text));
  test::expect_refused([&] { tokenizer->decode(Ids{256}); }, "256 is no byte; give ids from 0 to 255");
  test::expect_refused([&] { tokenizer->decode(Ids{-1}); }, "-1 is no byte");
}

}  // namespace
}  // namespace stowage
