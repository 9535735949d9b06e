#include "tools/console/text.h"

#include <gtest/gtest.h>

namespace stowage {
namespace {

TEST(Grouped, Thousands) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(1234567), "1,234,567");
}

TEST(FormatSeconds, ForPeople) {
  EXPECT_EQ(format_seconds(12.34e-6), "12.3 us");
  EXPECT_EQ(format_seconds(0.4125), "412.5 ms");
  EXPECT_EQ(format_seconds(2.5), "2.50 s");
  EXPECT_EQ(format_seconds(245.2), "4 min 05 s");
}

TEST(Text, SharesAndSizes) {
  EXPECT_EQ(share(1, 8), "12.5%");
  EXPECT_EQ(share(1, 0), "0.0%");
  EXPECT_EQ(exact(3 << 20), "3.00 MiB (3145728 bytes)");
  EXPECT_EQ(exact(unlimited), "unlimited");
}

TEST(Lines, LinesUp) {
  Lines lines;
  lines.add("need", "{} bytes", 7);
  lines.gap();
  EXPECT_EQ(std::move(lines).text(), "need          7 bytes\n\n");
}

}  // namespace
}  // namespace stowage
