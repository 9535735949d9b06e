#include "src/tokens/gpt2_pieces.h"

#include <gtest/gtest.h>

#include <set>

namespace stowage {
namespace {

TEST(ByteLetters, AreThoseOfGpt2) {
  EXPECT_EQ(byte_letters()['a'], "a");
  EXPECT_EQ(byte_letters()[' '], "Ġ");
  EXPECT_EQ(byte_letters()['\n'], "Ċ");
  EXPECT_EQ(byte_letters()[0], "Ā");
  EXPECT_EQ(byte_letters()[0x7F], "ġ");
  EXPECT_EQ(byte_letters()[0xAD], "Ń");
  EXPECT_EQ(byte_letters()[0xC3], "Ã");
  EXPECT_EQ(std::set<std::string>(byte_letters().begin(), byte_letters().end()).size(), 256U);
}

TEST(ByteLetters, SpellAllBytesAndBack) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  EXPECT_EQ(unspelled(spelled(bytes)), bytes);
  EXPECT_EQ(spelled(" a"), "Ġa");
}

TEST(ByteLetters, RefuseWhatIsNoByte) {
  for (const char* text : {" ", "a b", "\n", "ń", "中", "\xFF", "\xC2\xAD"})
    EXPECT_FALSE(unspelled(text)) << text;
}

TEST(ByteLetters, OrderOfTheFirstIds) {
  EXPECT_EQ(bytes_by_letter()[0], '!');
  EXPECT_EQ(bytes_by_letter()[93], '~');
  EXPECT_EQ(bytes_by_letter()[94], 0xA1);
  EXPECT_EQ(bytes_by_letter()[188], 0);
  EXPECT_EQ(bytes_by_letter()[255], 0xAD);
}

}  // namespace
}  // namespace stowage
