#include "src/checkpoint/checksum.h"

#include <gtest/gtest.h>

#include <string>

#include "stowage/checkpoint.h"

namespace stowage {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

// As `xxhsum -H2` prints them.
TEST(Checksum, IsXxh3Of128Bits) {
  EXPECT_EQ(checksum_of({}), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(checksum_of(bytes_of("abc")), "06b05ab6733a618578af5f94892f3950");
}

TEST(Checksum, IsThatOfAllPieces) {
  const std::string text(1000, 'x');
  Checksum checksum;
  for (std::size_t i = 0; i < text.size(); i += 7) checksum.add(bytes_of(text.substr(i, 7)));
  EXPECT_EQ(checksum.digits(), checksum_of(bytes_of(text)));
}

TEST(Checksum, AFingerprintTellsTheSizeToo) {
  EXPECT_EQ(fingerprint("abc"), "3 bytes, xxh3 06b05ab6733a618578af5f94892f3950");
}

}  // namespace
}  // namespace stowage
