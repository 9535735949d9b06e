#include "src/tokens/gpt2_pieces.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace stowage {
namespace {

using Pieces = std::vector<std::string>;

Pieces pieces_of(std::string_view text) {
  Pieces pieces;
  for_each_piece(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

TEST(Gpt2Pieces, WordsTakeTheSpaceBeforeThem) {
  EXPECT_EQ(pieces_of(""), Pieces{});
  EXPECT_EQ(pieces_of("Hello world 12 !?"), (Pieces{"Hello", " world", " 12", " !?"}));
  EXPECT_EQ(pieces_of("a1b_c中é"), (Pieces{"a", "1", "b", "_", "c中é"}));
}

TEST(Gpt2Pieces, Contractions) {
  EXPECT_EQ(
      pieces_of("don't we'll he'd I'm you're it's I've"),
      (Pieces{"don", "'t", " we", "'ll", " he", "'d", " I", "'m", " you", "'re", " it", "'s", " I", "'ve"}));
  EXPECT_EQ(pieces_of("'stop"), (Pieces{"'s", "top"}));
  EXPECT_EQ(pieces_of("'S 'l 'v"), (Pieces{"'", "S", " '", "l", " '", "v"}));  // case, and half of one
  EXPECT_EQ(pieces_of(" 's"), (Pieces{" '", "s"}));  // the space is taken with the quote
  EXPECT_EQ(pieces_of("''s"), (Pieces{"''", "s"}));
}

TEST(Gpt2Pieces, WhiteSpaceLeavesItsLastToAWord) {
  EXPECT_EQ(pieces_of("a   b"), (Pieces{"a", "  ", " b"}));
  EXPECT_EQ(pieces_of("a \n b"), (Pieces{"a", " \n", " b"}));
  EXPECT_EQ(pieces_of("a\n\nb"), (Pieces{"a", "\n", "\n", "b"}));  // only a space is taken
  EXPECT_EQ(pieces_of("a  "), (Pieces{"a", "  "}));
  EXPECT_EQ(pieces_of("a "), (Pieces{"a", " "}));
  EXPECT_EQ(pieces_of("\t!"), (Pieces{"\t", "!"}));
  EXPECT_EQ(pieces_of("\u3000\u3000中"), (Pieces{"\u3000", "\u3000", "中"}));
}

TEST(Gpt2Pieces, BytesThatAreNoTextAreSymbols) {
  EXPECT_EQ(pieces_of("a \xFF\x80!b"), (Pieces{"a", " \xFF\x80!", "b"}));
  EXPECT_EQ(pieces_of("a\xE2\x82"), (Pieces{"a", "\xE2\x82"}));
}

}  // namespace
}  // namespace stowage
