#include "allocator/arena.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "stowage/error.h"
#include "stowage/simulated_device.h"

namespace stowage {
namespace {

class ArenaTest : public testing::Test {
 protected:
  std::unique_ptr<SimulatedDevice> device =
      open_simulated_device({.capacity = 1000, .executor = Executor::virtual_time});
};

TEST_F(ArenaTest, TakesExactlyWhatItIsAskedFor) {
  const Arena arena(*device, 777);
  EXPECT_EQ(arena.bytes(), 777u);
  EXPECT_EQ(device->memory_info().free, 223u);
  EXPECT_EQ(device->counters().device_allocations, 1u);
}

TEST_F(ArenaTest, AddressesByOffset) {
  const Arena arena(*device, 777);
  EXPECT_EQ(arena.at(100, 677), arena.at(0, 777) + 100);
  EXPECT_EQ(arena.at(777, 0), arena.at(0, 0) + 777);
}

TEST_F(ArenaTest, RefusesWhatLiesOutside) {
  const Arena arena(*device, 777);
  EXPECT_THROW(arena.at(0, 778), InvalidInput);
  EXPECT_THROW(arena.at(100, 678), InvalidInput);
  EXPECT_THROW(arena.at(778, 0), InvalidInput);
  EXPECT_THROW(arena.at(1, std::numeric_limits<Bytes>::max()), InvalidInput);
  EXPECT_THROW(arena.at(std::numeric_limits<Bytes>::max(), 2), InvalidInput);
}

TEST_F(ArenaTest, PassesTheDevicesOutOfMemoryOn) {
  EXPECT_THROW(Arena(*device, 1001), OutOfMemory);
  EXPECT_EQ(device->memory_info().free, 1000u);
}

TEST_F(ArenaTest, MovesAndGivesBackOnce) {
  Arena a(*device, 600);
  const std::byte* const base = a.at(0, 1);
  Arena b(std::move(a));
  EXPECT_EQ(b.at(0, 1), base);
  EXPECT_EQ(a.bytes(), 0u);
  b = Arena();
  EXPECT_EQ(device->memory_info().free, 1000u);
}

TEST_F(ArenaTest, APartAllocatesNothingAndEndsWhereItEnds) {
  const Arena whole(*device, 777);
  const Arena part(whole, 100, 600);
  EXPECT_EQ(device->counters().device_allocations, 1u);
  EXPECT_EQ(part.bytes(), 600u);
  EXPECT_EQ(part.at(5, 595), whole.at(105, 1));
  EXPECT_THROW(part.at(5, 596), InvalidInput);
  EXPECT_EQ(Arena(whole, 777, 0).bytes(), 0u);
  EXPECT_THROW(Arena(whole, 100, 678), InvalidInput);
}

TEST_F(ArenaTest, OfZeroBytesAllocatesNothing) {
  const Arena arena(*device, 0);
  EXPECT_EQ(arena.bytes(), 0u);
  EXPECT_EQ(device->counters().device_allocations, 0u);
  EXPECT_THROW(arena.at(0, 1), InvalidInput);
}

}  // namespace
}  // namespace stowage
