// The C interface on simulated devices.
#include "allocator/c_api/allocators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "stowage/error.h"
#include "stowage/simulated_device.h"
#include "tests/allocator/c_api/allocators_fixture.h"

namespace stowage::c_api {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST_F(AllocatorsTest, OpensADeviceAtItsFirstUse) {
  Allocators allocators = make();
  EXPECT_EQ(statistics(allocators).reserved, 0u);
  EXPECT_EQ(allocators.reset_peaks(1), STOWAGE_OK);
  EXPECT_EQ(opens, 0);
  void* const block = allocators.allocate(1000, 0, a);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(opens, 1);
  EXPECT_EQ(statistics(allocators).requested, 1000u);
  EXPECT_EQ(statistics(allocators).allocated, 1024u);
  EXPECT_EQ(statistics(allocators).reserved, 2_MiB);
  EXPECT_EQ(statistics(allocators, 1).reserved, 0u);
  allocators.release(block, 0, a);
  EXPECT_EQ(allocators.allocate(1000, 0, a), block);
  EXPECT_EQ(opens, 1);
  EXPECT_EQ(statistics(allocators).hits, 1u);
  EXPECT_EQ(error(), "");
}

TEST_F(AllocatorsTest, NothingIsNoError) {
  Allocators allocators = make();
  EXPECT_EQ(allocators.allocate(0, 0, a), nullptr);
  allocators.release(nullptr, 0, a);
  allocators.record_stream(nullptr, a);
  EXPECT_EQ(error(), "");
}

TEST_F(AllocatorsTest, WrongArgumentsAreTold) {
  Allocators allocators = make();
  EXPECT_EQ(allocators.allocate(-1, 0, a), nullptr);
  EXPECT_THAT(error(), HasSubstr("-1 bytes"));
  EXPECT_EQ(allocators.allocate(1, -1, a), nullptr);
  EXPECT_THAT(error(), HasSubstr("no device -1"));
  EXPECT_EQ(allocators.allocate(1, 64, a), nullptr);
  EXPECT_EQ(allocators.allocate(1, 2, a), nullptr);
  EXPECT_THAT(error(), HasSubstr("there are two devices"));
  EXPECT_EQ(allocators.set_limit(-2, 1), STOWAGE_INVALID_INPUT);
  EXPECT_EQ(allocators.snapshot(""), STOWAGE_INVALID_INPUT);
  EXPECT_EQ(allocators.snapshot("/nowhere/at/all"), STOWAGE_INVALID_INPUT);
  EXPECT_THAT(error(), HasSubstr("/nowhere/at/all"));
  EXPECT_EQ(allocators.get_statistics(0, nullptr), STOWAGE_INVALID_INPUT);
  Allocators::clear_error();
  EXPECT_EQ(error(), "");
}

TEST_F(AllocatorsTest, ForeignMemoryIsNotFreed) {
  Allocators allocators = make();
  int foreign = 0;
  allocators.release(&foreign, 0, a);
  EXPECT_THAT(error(), HasSubstr("no memory of device 0"));
  void* const block = allocators.allocate(1000, 0, a);
  void* const other = allocators.allocate(1000, 1, a);
  Allocators::clear_error();
  allocators.release(other, 0, a);
  EXPECT_THAT(error(), HasSubstr("no memory of device 0"));
  allocators.release(block, 0, a);
  Allocators::clear_error();
  allocators.release(block, 0, a);
  EXPECT_THAT(error(), HasSubstr("released already"));
  Allocators::clear_error();
  allocators.record_stream(&foreign, b);
  EXPECT_THAT(error(), HasSubstr("no memory that malloc gave"));
  EXPECT_EQ(statistics(allocators, 1).allocated, 1024u);
}

TEST_F(AllocatorsTest, StreamsAreLanes) {
  Allocators allocators = make();
  void* const block = allocators.allocate(capacity, 0, a);
  ASSERT_NE(block, nullptr);
  write_block(*opened, opened->adopted.at(a), block, capacity);
  opened->is_slow = [] { return true; };
  allocators.release(block, 0, a);
  void* const next = allocators.allocate(capacity, 0, b);  // there is no other memory: b waits for a
  ASSERT_NE(next, nullptr);
  EXPECT_EQ(opened->adopted.size(), 2u);
  EXPECT_GE(opened->waits, 1u);
  write_block(*opened, opened->adopted.at(b), next, capacity);  // the device would see a missing wait
  allocators.release(next, 0, b);
}

TEST_F(AllocatorsTest, RecordedStreamsAreWaitedFor) {
  Allocators allocators = make();
  void* const block = allocators.allocate(capacity, 0, a);
  void* const shared = allocators.allocate(1, 0, b);
  EXPECT_EQ(shared, nullptr);  // full; but its lane is there now
  const LaneId on_a = opened->adopted.at(a), on_b = opened->adopted.at(b);
  write_block(*opened, on_a, block, capacity);
  const Event ready(*opened);
  opened->record(ready.id(), on_a);
  opened->wait(on_b, ready.id());
  write_block(*opened, on_b, block, capacity);
  allocators.record_stream(block, b);
  allocators.release(block, 0, a);
  void* const again = allocators.allocate(capacity, 0, a);
  ASSERT_NE(again, nullptr);
  write_block(*opened, on_a, again, capacity);  // behind b's work too
  allocators.release(again, 0, a);
}

TEST_F(AllocatorsTest, OutOfMemoryIsNullWithTheAccount) {
  Allocators allocators = make();
  void* const block = allocators.allocate(40_MiB, 0, a);
  EXPECT_EQ(allocators.allocate(40_MiB, 0, a), nullptr);
  EXPECT_THAT(error(), AllOf(HasSubstr("41943040 bytes"), HasSubstr("pool 0"), HasSubstr("raise the limit")));
  EXPECT_EQ(statistics(allocators).out_of_memory, 1u);
  EXPECT_EQ(allocators.allocate(std::numeric_limits<ssize_t>::max(), 0, a), nullptr);
  allocators.release(block, 0, a);
  EXPECT_NE(allocators.allocate(40_MiB, 0, b), nullptr);
}

TEST_F(AllocatorsTest, LimitsHoldBeforeAndAfterTheFirstUse) {
  Allocators allocators = make();
  EXPECT_EQ(allocators.set_limit(0, 4_MiB), STOWAGE_OK);
  EXPECT_EQ(statistics(allocators).limit, 4_MiB);
  EXPECT_EQ(allocators.allocate(5_MiB, 0, a), nullptr);
  EXPECT_EQ(allocators.set_limit(0, 8_MiB), STOWAGE_OK);
  EXPECT_EQ(opens, 1);
  EXPECT_NE(allocators.allocate(5_MiB, 0, a), nullptr);
  EXPECT_EQ(allocators.allocate(5_MiB, 0, a), nullptr);
  EXPECT_EQ(allocators.set_limit(STOWAGE_ALL_DEVICES, 16_MiB), STOWAGE_OK);
  EXPECT_NE(allocators.allocate(5_MiB, 0, a), nullptr);
  EXPECT_EQ(statistics(allocators, 1).limit, 16_MiB);
  EXPECT_NE(allocators.allocate(15_MiB, 1, a), nullptr);
  EXPECT_EQ(allocators.allocate(15_MiB, 1, a), nullptr);
}

TEST_F(AllocatorsTest, FractionsAreOfTheDevice) {
  Allocators allocators = make();
  allocators.set_memory_fraction(0.25, 0);
  EXPECT_NE(allocators.allocate(15_MiB, 0, a), nullptr);
  EXPECT_EQ(allocators.allocate(15_MiB, 0, a), nullptr);
  EXPECT_EQ(statistics(allocators).limit, capacity / 4);
  allocators.set_memory_fraction(0.5, 0);
  EXPECT_EQ(statistics(allocators).limit, capacity / 2);
  for (const double wrong : {0.0, -1.0, 1.5, std::numeric_limits<double>::quiet_NaN()}) {
    Allocators::clear_error();
    allocators.set_memory_fraction(wrong, 0);
    EXPECT_THAT(error(), HasSubstr("memory fraction"));
  }
  EXPECT_EQ(statistics(allocators).limit, capacity / 2);
}

TEST_F(AllocatorsTest, TheEnvironmentSetsLimitAndHistory) {
  Allocators allocators = make({.limit = "4MiB", .history = "10"});
  EXPECT_EQ(allocators.allocate(5_MiB, 0, a), nullptr);
  EXPECT_EQ(statistics(allocators).limit, 4_MiB);
  const std::string path = testing::TempDir() + "stowage_allocators_test.json";
  EXPECT_EQ(allocators.snapshot(path.c_str()), STOWAGE_OK);
  const auto devices = nlohmann::json::parse(read(path))["devices"];
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0]["events"].back()["what"], "out_of_memory");
}

TEST_F(AllocatorsTest, AnEnvironmentThatCannotBeReadIsTold) {
  const std::vector<std::pair<Environment, const char*>> wrong{
      {{.limit = "much"}, "much"},         {{.limit = "99999999999999999999"}, "9999"},
      {{.history = "-1"}, "'-1'"},         {{.history = "10x"}, "'10x'"},
      {{.plan_periods = "2"}, "'2'"},      {{.plan_periods = "01"}, "'01'"},
      {{.plan_periods = "true"}, "'true'"}};
  for (const auto& [environment, told] : wrong) {
    Allocators allocators = make(environment);
    Allocators::clear_error();
    EXPECT_EQ(allocators.allocate(1, 0, a), nullptr);
    EXPECT_THAT(error(), HasSubstr(told));
    EXPECT_EQ(allocators.reset_peaks(0), STOWAGE_INVALID_INPUT);
    EXPECT_EQ(allocators.begin_iteration(0), STOWAGE_INVALID_INPUT);
  }
  EXPECT_EQ(opens, 0);
}

TEST_F(AllocatorsTest, StatisticsFillWhatBothSidesKnow) {
  Allocators allocators = make();
  allocators.allocate(1000, 0, a);
  stowage_statistics older{};
  older.requested = 77;
  older.struct_bytes = offsetof(stowage_statistics, requested) + 3;
  EXPECT_EQ(allocators.get_statistics(0, &older), STOWAGE_OK);
  EXPECT_EQ(older.allocated, 1024u);
  EXPECT_EQ(older.requested, 77u);
  EXPECT_EQ(older.struct_bytes, offsetof(stowage_statistics, requested));
  stowage_statistics newer{};
  newer.struct_bytes = sizeof newer + 100;
  EXPECT_EQ(allocators.get_statistics(0, &newer), STOWAGE_OK);
  EXPECT_EQ(newer.struct_bytes, sizeof newer);
  EXPECT_EQ(newer.streams, 1u);
  stowage_statistics unset{};
  EXPECT_EQ(allocators.get_statistics(0, &unset), STOWAGE_INVALID_INPUT);
}

TEST_F(AllocatorsTest, StatisticsTellPlansHitsAndMisses) {
  Allocators allocators = make({.plan_periods = "1"});
  void* const staying = allocators.allocate(1000, 0, a);
  const auto iterate = [&](const std::vector<ssize_t>& sizes) {
    EXPECT_EQ(allocators.begin_iteration(0), STOWAGE_OK);
    for (const ssize_t bytes : sizes) allocators.release(allocators.allocate(bytes, 0, a), 0, a);
  };
  for (int i = 0; i < 4; ++i) iterate({3000, 5000, 7000});
  EXPECT_EQ(statistics(allocators).plans, 1u);
  EXPECT_EQ(statistics(allocators).plan_hits, 9u);
  EXPECT_EQ(statistics(allocators).plan_misses, 0u);
  EXPECT_EQ(statistics(allocators).plan_reserved, 2_MiB);
  iterate({3000, 4000, 5000, 7000});
  EXPECT_EQ(statistics(allocators).plan_hits, 12u);
  EXPECT_EQ(statistics(allocators).plan_misses, 1u);
  EXPECT_EQ(statistics(allocators).allocations, 17u);
  EXPECT_EQ(statistics(allocators).plan_unplanned, 0u);
  EXPECT_EQ(allocators.begin_iteration(-1), STOWAGE_INVALID_INPUT);
  allocators.release(staying, 0, a);
}

// All that can be seen of a program's iterations: calls of the device, offsets of blocks, statistics.
class IterationsTest : public AllocatorsTest {
 protected:
  using Statistics = std::array<std::uint64_t, sizeof(stowage_statistics) / sizeof(std::uint64_t)>;
  struct Seen {
    std::vector<std::string> calls;
    std::vector<std::ptrdiff_t> offsets;
    std::vector<Statistics> statistics;
    bool operator==(const Seen&) const = default;
  };

  Seen iterate(const Environment& environment, bool begins) {
    Seen seen;
    Allocators allocators = make(environment);
    allocators.release(allocators.allocate(1, 0, a), 0, a);  // opens the device
    opened->fails = [&](const std::string& call) {
      seen.calls.push_back(call);
      return false;
    };
    for (int iteration = 0; iteration < 5; ++iteration) {
      if (begins) {
        EXPECT_EQ(allocators.begin_iteration(0), STOWAGE_OK);
      }
      std::vector<std::pair<void*, void*>> blocks;  // with their streams
      for (const ssize_t bytes : {9'000'000, 700, 5'000'000, 3'000, 12'000'000, 2'500'000}) {
        void* const stream = bytes < 4'000'000 ? a : b;
        blocks.emplace_back(allocators.allocate(bytes, 0, stream), stream);
        seen.offsets.push_back(static_cast<std::byte*>(blocks.back().first) -
                               static_cast<std::byte*>(opened->reserved));
        if (blocks.size() % 3 != 0) continue;
        allocators.release(blocks.front().first, 0, blocks.front().second);
        blocks.erase(blocks.begin());
      }
      for (const auto& [block, stream] : blocks) allocators.release(block, 0, stream);
      seen.statistics.push_back(std::bit_cast<Statistics>(statistics(allocators)));
    }
    opened->fails = nullptr;
    return seen;
  }
};

TEST_F(IterationsTest, ChangeNothingWithoutTheVariable) {
  const Seen plain = iterate({}, false);
  EXPECT_GT(plain.calls.size(), 5u);
  EXPECT_EQ(iterate({}, true), plain);
  EXPECT_EQ(iterate({.plan_periods = ""}, true), plain);
  EXPECT_EQ(iterate({.plan_periods = "0"}, true), plain);
  EXPECT_NE(iterate({.plan_periods = "1"}, true), plain);
  Allocators allocators = make();
  const int before = opens;
  EXPECT_EQ(allocators.begin_iteration(0), STOWAGE_OK);
  EXPECT_EQ(allocators.begin_iteration(-1), STOWAGE_INVALID_INPUT);
  EXPECT_EQ(allocators.begin_iteration(64), STOWAGE_INVALID_INPUT);
  EXPECT_EQ(opens, before);  // no device is opened for it
}

TEST_F(AllocatorsTest, EmptiesItsCaches) {
  Allocators allocators = make();
  for (const int device : {0, 1}) allocators.release(allocators.allocate(5_MiB, device, a), device, a);
  EXPECT_EQ(statistics(allocators, 1).cached, 5_MiB);
  allocators.empty_cache();
  EXPECT_EQ(statistics(allocators, 0).reserved + statistics(allocators, 1).reserved, 0u);
  EXPECT_GT(statistics(allocators).peak_reserved, 0u);
  EXPECT_EQ(allocators.reset_peaks(0), STOWAGE_OK);
  EXPECT_EQ(statistics(allocators).peak_reserved, 0u);
}

TEST_F(AllocatorsTest, AForgottenStreamIsMetAnew) {
  Allocators allocators = make();
  void* const block = allocators.allocate(1000, 0, a);
  EXPECT_EQ(allocators.forget_stream(0, a), STOWAGE_INVALID_INPUT);  // it has memory
  allocators.release(block, 0, a);
  EXPECT_EQ(allocators.forget_stream(0, a), STOWAGE_OK);
  EXPECT_EQ(allocators.forget_stream(0, b), STOWAGE_OK);  // was never met
  opened->adopted.clear();
  EXPECT_EQ(allocators.allocate(1000, 0, a), block);
  EXPECT_EQ(opened->adopted.size(), 1u);
}

TEST_F(AllocatorsTest, PrivatePoolsKeepTheirMemory) {
  Allocators allocators = make();
  const stowage_pool pool{3, 5};
  void* const before = allocators.allocate(1000, 0, a);
  ASSERT_EQ(allocators.begin_pool(0, pool, [&](void* stream) { return stream == a; }), STOWAGE_OK);
  void* const inside = allocators.allocate(1000, 0, a);
  void* const beside = allocators.allocate(1000, 0, b);
  EXPECT_EQ(statistics(allocators).private_pools, 1u);
  EXPECT_EQ(statistics(allocators).reserved, 4_MiB);
  EXPECT_EQ(allocators.release_pool(0, pool), STOWAGE_INVALID_INPUT);  // still begun
  EXPECT_EQ(allocators.end_pool(0, pool), STOWAGE_OK);
  EXPECT_EQ(allocators.end_pool(0, pool), STOWAGE_INVALID_INPUT);
  allocators.release(inside, 0, a);
  EXPECT_NE(allocators.allocate(1000, 0, a), inside);  // it is the pool's
  ASSERT_EQ(allocators.begin_pool(0, pool, [&](void* stream) { return stream == b; }), STOWAGE_OK);
  void* const again = allocators.allocate(1000, 0, b);
  EXPECT_EQ(statistics(allocators).private_pools, 1u);
  EXPECT_EQ(statistics(allocators).reserved, 4_MiB);
  EXPECT_EQ(allocators.end_pool(0, pool), STOWAGE_OK);
  EXPECT_EQ(allocators.release_pool(0, pool), STOWAGE_OK);  // before its last free
  EXPECT_EQ(statistics(allocators).private_pools, 1u);
  allocators.release(again, 0, b);
  allocators.empty_cache();
  EXPECT_EQ(statistics(allocators).private_pools, 0u);
  EXPECT_EQ(statistics(allocators).reserved, 2_MiB);
  allocators.release(before, 0, a);
  allocators.release(beside, 0, b);
}

TEST_F(AllocatorsTest, TheFirstPoolThatWantsAStreamHasIt) {
  Allocators allocators = make({.limit = "64MiB"});
  const auto all = [](void*) { return true; };
  EXPECT_EQ(allocators.begin_pool(0, {1, 0}, all), STOWAGE_OK);
  void* const first = allocators.allocate(1000, 0, a);
  EXPECT_EQ(allocators.begin_pool(0, {2, 0}, all), STOWAGE_OK);
  void* const second = allocators.allocate(1000, 0, a);
  EXPECT_EQ(static_cast<std::byte*>(second) - static_cast<std::byte*>(first), 1024);
  EXPECT_EQ(allocators.end_pool(0, {1, 0}), STOWAGE_OK);
  void* const third = allocators.allocate(1000, 0, a);
  EXPECT_GT(static_cast<std::byte*>(third) - static_cast<std::byte*>(first), std::ptrdiff_t{1} << 20);
  EXPECT_EQ(allocators.end_pool(0, {2, 0}), STOWAGE_OK);
}

TEST_F(AllocatorsTest, WithoutAPoolItsRequestsFail) {
  Allocators allocators = make();
  const auto none = [](void*) { return false; };
  for (std::uint64_t pool = 0; pool < 8; ++pool)
    EXPECT_EQ(allocators.begin_pool(0, {pool, 0}, none), STOWAGE_OK);
  const auto all = [](void*) { return true; };
  EXPECT_EQ(allocators.begin_pool(0, {8, 0}, all), STOWAGE_INVALID_INPUT);
  EXPECT_EQ(allocators.allocate(1000, 0, a), nullptr);
  EXPECT_THAT(error(), HasSubstr("pool (8, 0)"));
  EXPECT_EQ(allocators.end_pool(0, {8, 0}), STOWAGE_OK);
  EXPECT_NE(allocators.allocate(1000, 0, a), nullptr);
  EXPECT_EQ(allocators.end_pool(0, {7, 0}), STOWAGE_OK);
  EXPECT_EQ(allocators.release_pool(0, {7, 0}), STOWAGE_OK);
  EXPECT_EQ(allocators.begin_pool(0, {8, 0}, all), STOWAGE_OK);
  EXPECT_EQ(allocators.begin_pool(0, {9, 0}, nullptr), STOWAGE_INVALID_INPUT);
}

TEST_F(AllocatorsTest, NoExceptionLeaves) {
  Allocators allocators = make();
  EXPECT_EQ(allocators.begin_pool(0, {1, 0}, [](void*) -> bool { throw 5; }), STOWAGE_OK);
  EXPECT_EQ(allocators.allocate(1, 0, a), nullptr);
  EXPECT_THAT(error(), HasSubstr("no std::exception"));
  EXPECT_EQ(allocators.end_pool(0, {1, 0}), STOWAGE_OK);
  // A filter whose copy throws.
  EXPECT_EQ(allocators.begin_pool_of(0, {2, 0}, []() -> StreamFilter { throw 5; }), STOWAGE_FAILED);
  EXPECT_EQ(allocators.begin_pool_of(0, {2, 0}, []() -> StreamFilter { throw std::bad_alloc(); }),
            STOWAGE_OUT_OF_MEMORY);
  EXPECT_NE(allocators.allocate(1, 0, a), nullptr);
  opened->fails = [](const std::string& call) { return call == "map"; };
  EXPECT_EQ(allocators.allocate(10_MiB, 0, a), nullptr);
  opened->fails = [](const std::string& call) { return call == "record" || call == "create_event"; };
  EXPECT_EQ(allocators.allocate(capacity, 0, b), nullptr);
}

TEST_F(AllocatorsTest, WritesSnapshotsByTheirName) {
  Allocators allocators = make({.history = "100"});
  void* const block = allocators.allocate(1000, 1, a);
  const std::string base = testing::TempDir() + "stowage_allocators_test";
  ASSERT_EQ(allocators.snapshot((base + ".json").c_str()), STOWAGE_OK);
  const auto device = nlohmann::json::parse(read(base + ".json"))["devices"][0];
  EXPECT_EQ(device["device"], 1);
  EXPECT_EQ(device["segments"][0]["blocks"][0]["address"], reinterpret_cast<std::uintptr_t>(block));
  EXPECT_EQ(device["segments"][0]["blocks"][0]["stream"], 0x100);
  ASSERT_EQ(allocators.snapshot((base + ".pickle").c_str()), STOWAGE_OK);
  const std::string pickle = read(base + ".pickle");
  EXPECT_EQ(pickle.substr(0, 2), "\x80\x02");
  EXPECT_THAT(pickle, HasSubstr("active_allocated"));
}

TEST_F(AllocatorsTest, ErrorsAreThoseOfTheThread) {
  Allocators allocators = make();
  allocators.allocate(-1, 0, a);
  std::string elsewhere = "unset";
  std::thread([&] { elsewhere = Allocators::last_error(); }).join();
  EXPECT_EQ(elsewhere, "");
  EXPECT_NE(error(), "");
}

}  // namespace
}  // namespace stowage::c_api
