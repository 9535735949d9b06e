#include "src/history/histories.h"

#include <gtest/gtest.h>

#include "stowage/caching_allocator.h"
#include "stowage/simulated_device.h"
#include "tests/support/expect_refused.h"

namespace stowage {
namespace {

using test::expect_refused;

std::string event(const std::string& what, int address, const std::string& bytes, int stream = 0,
                  int pool = 0) {
  return R"({"number": 1, "what": ")" + what + R"(", "address": )" + std::to_string(address) +
         R"(, "bytes": )" + bytes + R"(, "stream": )" + std::to_string(stream) + R"(, "pool": )" +
         std::to_string(pool) + "}";
}

std::string history(const std::string& events) {
  return R"({"version": 1, "dropped": 0, "events": [)" + events + "]}";
}

AllocationTrace parse(const std::string& events) {
  return parse_allocator_history(history(events), "h.json");
}

TEST(AllocatorHistory, OfAnAllocatorIsRead) {
  const auto device = open_simulated_device({.executor = Executor::virtual_time});
  const Lane first(*device, LaneRole::compute), second(*device, LaneRole::compute);
  CachingAllocator allocator(*device, {.history_entries = 100});
  void* a = allocator.allocate_raw(3_MiB, first.id());
  void* b = allocator.allocate_raw(1_MiB, second.id());
  allocator.release_raw(a);
  const std::string text = allocator.history_json();
  EXPECT_TRUE(is_allocator_history(text));
  const AllocationTrace trace = parse_allocator_history(text, "h.json");
  ASSERT_EQ(trace.operations.size(), 3U);
  EXPECT_GE(trace.operations[0].bytes, 3_MiB);
  EXPECT_EQ(trace.operations[0].stream, 0U);
  EXPECT_EQ(trace.operations[1].stream, 1U);
  EXPECT_EQ(trace.operations[2].kind, TraceKind::free);
  EXPECT_EQ(trace.operations[2].id, 0U);
  EXPECT_TRUE(trace.iterations.empty());
  allocator.release_raw(b);
}

TEST(AllocatorHistory, PassesOverWhatIsNoRequest) {
  const AllocationTrace trace = parse(event("map", 0, "2097152") + "," + event("release", 7, "1") + "," +
                                      event("allocate", 7, "5") + "," + event("allocate", 9, "5", 0, 1));
  ASSERT_EQ(trace.operations.size(), 2U);
  EXPECT_EQ(trace.operations[0].stream, 0U);
  EXPECT_EQ(trace.operations[1].stream, 1U);  // of another pool
}

TEST(AllocatorHistory, NamesWhatIsWrong) {
  expect_refused([] { parse_allocator_history("{\"version\": 2", "h.json"); }, "'h.json': ");
  expect_refused([] { parse_allocator_history(R"({"version": 2, "dropped": 0, "events": []})", "h.json"); },
                 "'version' is not 1");
  expect_refused([] { parse_allocator_history(R"({"version": 1, "events": []})", "h.json"); },
                 "'dropped' is not there");
  expect_refused([] { parse("3"); }, "'events[0]' is not an object");
  expect_refused([] { parse(event("allocate", 1, "0")); }, "'events[0].bytes' is 0");
  expect_refused([] { parse(event("allocate", 1, "4611686018427387905")); }, "above 4 EiB");
  expect_refused([] { parse(event("allocate", 1, "5") + "," + event("allocate", 1, "5")); },
                 "'events[1].address' is allocated already");
  expect_refused([] { parse(event("allocate", 1, "5", 0, 256)); }, "'events[0].pool' is not below 256");
  expect_refused([] { parse(event("allocate", -1, "5")); }, "'events[0].address' is not a whole number");
}

TEST(AllocatorHistory, IsToldFromOthers) {
  EXPECT_FALSE(is_allocator_history("{\"stowage_history\": 1}"));
  EXPECT_FALSE(is_allocator_history("id,lower,upper,size"));
  EXPECT_FALSE(is_allocator_history(""));
}

}  // namespace
}  // namespace stowage
