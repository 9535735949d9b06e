#include "stowage/bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/error.h"

namespace stowage {
namespace {

TEST(ParseBytes, PlainIntegersAreExact) {
  EXPECT_EQ(parse_bytes("0"), 0U);
  EXPECT_EQ(parse_bytes("4096"), 4096U);
  EXPECT_EQ(parse_bytes("9007199254740993"), 9007199254740993U);  // not a double
  EXPECT_EQ(parse_bytes("18446744073709551615"), 18446744073709551615U);
  EXPECT_EQ(parse_bytes("12 B"), 12U);
}

TEST(ParseBytes, LettersAndIBAreBinary) {
  EXPECT_EQ(parse_bytes("6GiB"), 6_GiB);
  EXPECT_EQ(parse_bytes("512 MiB"), 512_MiB);
  EXPECT_EQ(parse_bytes("3k"), 3_KiB);
  EXPECT_EQ(parse_bytes("1.5G"), 1536_MiB);
  EXPECT_EQ(parse_bytes("2T"), 2048_GiB);
  EXPECT_EQ(parse_bytes(" 7mib "), 7_MiB);
}

TEST(ParseBytes, BIsDecimal) {
  EXPECT_EQ(parse_bytes("10MB"), 10'000'000U);
  EXPECT_EQ(parse_bytes("8GB"), 8'000'000'000U);
  EXPECT_EQ(parse_bytes("0.3kB"), 300U);
  EXPECT_EQ(parse_bytes("1.001 kb"), 1001U);
}

TEST(ParseBytes, FractionsRoundDown) { EXPECT_EQ(parse_bytes("0.0001k"), 0U); }

TEST(ParseBytes, RefusesAndQuotesWhatIsNoSize) {
  for (const char* text : {"", " ", "abc", "-1", "+1", "1.5", "1.G", ".5G", "6GiBB", "6 G B", "1e9", "0x10",
                           "18446744073709551616", "17179869184GiB", "16777216T", "nan"}) {
    try {
      parse_bytes(text);
      ADD_FAILURE() << "accepted \"" << text << '"';
    } catch (const InvalidInput& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr('"' + std::string(text) + '"'));
    }
  }
}

TEST(FormatBytes, ForPeople) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(3_MiB / 2), "1.50 MiB");
  EXPECT_EQ(format_bytes(1_MiB - 1), "1.00 MiB");
  EXPECT_EQ(format_bytes(6_GiB), "6.00 GiB");
  EXPECT_EQ(format_bytes(18446744073709551615U), "16.00 EiB");
}

TEST(AlignUp, RoundsToThePowerOfTwo) {
  EXPECT_EQ(align_up(0, 256), 0U);
  EXPECT_EQ(align_up(1, 256), 256U);
  EXPECT_EQ(align_up(256, 256), 256U);
  EXPECT_EQ(align_up(257, 256), 512U);
}

}  // namespace
}  // namespace stowage
