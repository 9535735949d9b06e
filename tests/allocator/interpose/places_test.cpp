#include "allocator/interpose/places.h"

#include <gtest/gtest.h>

namespace stowage::interpose {
namespace {

TEST(Places, KnowThePoolsThatAreThere) {
  Places places;
  char one = 0, other = 0;
  auto* const pool = reinterpret_cast<CUmemoryPool>(&one);
  places.pool_created(pool, {.on_host = true, .device = 3});
  ASSERT_TRUE(places.of(pool));
  EXPECT_TRUE(places.of(pool)->on_host);
  EXPECT_EQ(places.of(pool)->device, 3);
  EXPECT_FALSE(places.of(reinterpret_cast<CUmemoryPool>(&other))) << "the driver's own";
  places.pool_destroyed(pool);
  EXPECT_FALSE(places.of(pool));
}

TEST(Places, KnowThePrimaryContextOfEachDevice) {
  Places places;
  EXPECT_EQ(places.primary_context(0), 0U);
  places.primary_context_is(1, 0xabc);
  EXPECT_EQ(places.primary_context(1), 0xabcU);
  EXPECT_EQ(places.primary_context(0), 0U);
}

}  // namespace
}  // namespace stowage::interpose
