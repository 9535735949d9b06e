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

TEST(Text, ReadsLimits) {
  EXPECT_EQ(parse_limit("6GiB"), 6_GiB);
  EXPECT_EQ(parse_limit("unlimited"), unlimited);
  for (const char* text : {"", "lots", "-1"}) EXPECT_THROW(parse_limit(text), InvalidInput) << text;
}

TEST(Text, ReadsRates) {
  EXPECT_EQ(parse_link("8GB/s").bytes_per_second, 8e9);
  EXPECT_EQ(parse_link("8GB").bytes_per_second, 8e9);
  EXPECT_EQ(parse_link("500MB/s").bytes_per_second, 5e8);
  EXPECT_EQ(parse_link("1GiB/s").bytes_per_second, 1073741824.0);
  EXPECT_EQ(parse_link("4096").bytes_per_second, 4096);
  EXPECT_EQ(parse_link("8GB/s").latency_seconds, 10e-6);
  EXPECT_TRUE(parse_link("8GB/s").throttled);
  EXPECT_FALSE(parse_link("unthrottled").throttled);
  for (const char* text : {"", "/s", "0", "8GB/h", "-1", "-8GB/s"})
    EXPECT_THROW(parse_link(text), InvalidInput) << text;
}

TEST(Lines, LinesUp) {
  Lines lines;
  lines.add("need", "{} bytes", 7);
  lines.gap();
  EXPECT_EQ(std::move(lines).text(), "need          7 bytes\n\n");
}

}  // namespace
}  // namespace stowage
