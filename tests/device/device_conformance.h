// What every Device must do: one suite, instantiated for each implementation with
//   INSTANTIATE_TEST_SUITE_P(Name, DeviceConformance, testing::Values(DeviceFactory{…}), factory_name);
// Device memory is only touched by copies, so that the suite serves real cards too.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <ostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "stowage/device.h"
#include "stowage/error.h"
#include "tests/device/device_conformance_fixture.h"

namespace stowage {

TEST_P(DeviceConformance, NamesItself) {
  EXPECT_FALSE(device->info().name.empty());
  EXPECT_FALSE(device->info().backend.empty());
}

TEST_P(DeviceConformance, AllocationsAreAlignedAndAccountedFor) {
  const Bytes total = device->memory_info().total;
  expect_all_back([&] {
    const Bytes before = free_bytes();
    const DeviceMemory memory(*device, MemoryKind::device, size);
    const DeviceMemory pinned(*device, MemoryKind::pinned, size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 256, 0u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pinned.data()) % 256, 0u);
    EXPECT_LE(free_bytes(), before - size);
    EXPECT_EQ(device->memory_info().total, total);
  });
}

TEST_P(DeviceConformance, PinnedMemoryIsZero) {
  for (int round = 0; round < 2; ++round) {
    const DeviceMemory pinned(*device, MemoryKind::pinned, size);
    EXPECT_TRUE(
        std::all_of(pinned.data(), pinned.data() + size, [](std::byte b) { return b == std::byte{0}; }));
    fill(pinned, round + 1);
  }
}

TEST_P(DeviceConformance, CountsAllocations) {
  device->reset_counters();
  const DeviceMemory a(*device, MemoryKind::device, size), b(*device, MemoryKind::device, size);
  const DeviceMemory c(*device, MemoryKind::pinned, size);
  EXPECT_EQ(device->counters().device_allocations, 2u);
  EXPECT_EQ(device->counters().pinned_allocations, 1u);
  EXPECT_GT(device->counters().pinning_seconds, 0);
  EXPECT_EQ(device->counters().calls, 3u);
}

// Also where the lane has work, and the memory is written meanwhile.
TEST_P(DeviceConformance, CopiesOfPageableMemoryKeepTheOrderOfTheirLane) {
  const DeviceMemory memory(*device, MemoryKind::device, size);
  const DeviceMemory there(*device, MemoryKind::pageable, size), back(*device, MemoryKind::pageable, size);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(there.data()) % 256, 0u);
  EXPECT_TRUE(std::all_of(back.data(), back.data() + size, [](std::byte b) { return b == std::byte{0}; }));
  const Lane host(*device, LaneRole::host), h2d(*device, LaneRole::h2d), d2h(*device, LaneRole::d2h);
  const Event written(*device), arrived(*device), returned(*device);
  int round = 0;
  auto write = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    fill(there, round);
  };
  const Access all{there.data(), size, AccessMode::write};
  for (; round < 10; ++round) {
    Launch launch;
    launch.name = "write";
    launch.function = [](void* context) { (*static_cast<decltype(write)*>(context))(); };
    launch.context = &write;
    launch.accesses = {&all, 1};
    device->launch(host.id(), launch);
    device->record(written.id(), host.id());
    device->wait(h2d.id(), written.id());
    device->copy(h2d.id(), memory.data(), there.data(), size, "there");
    device->record(arrived.id(), h2d.id());
    device->wait(d2h.id(), arrived.id());
    device->copy(d2h.id(), back.data(), memory.data(), size, "back");
    device->record(returned.id(), d2h.id());
    device->synchronise(returned.id());
    ASSERT_TRUE(equal(there, back)) << "round " << round;
  }
  EXPECT_EQ(device->counters().pinned_allocations, 0u);
  EXPECT_THROW(device->release(MemoryKind::pinned, there.data()), InvalidInput);
}

TEST_P(DeviceConformance, RefusesZeroBytes) {
  EXPECT_THROW(device->allocate(MemoryKind::device, 0), InvalidInput);
  EXPECT_THROW(device->allocate(MemoryKind::pinned, 0), InvalidInput);
}

TEST_P(DeviceConformance, RunsOutOfMemoryWithATypedError) {
  const Bytes asked = device->memory_info().total + 1;
  try {
    device->allocate(MemoryKind::device, asked);
    FAIL() << "more than the whole device was allocated";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.requested_bytes(), asked);
    EXPECT_LE(error.free_bytes(), device->memory_info().total);
  }
}

TEST_P(DeviceConformance, RefusesToReleaseWhatItDidNotAllocate) {
  int local = 0;
  EXPECT_THROW(device->release(MemoryKind::device, &local), InvalidInput);
  const DeviceMemory memory(*device, MemoryKind::device, size);
  EXPECT_THROW(device->release(MemoryKind::device, memory.data() + 256), InvalidInput);
  EXPECT_THROW(device->release(MemoryKind::pinned, memory.data()), InvalidInput);
}

TEST_P(DeviceConformance, RefusesUnknownLanesAndEvents) {
  constexpr LaneId lane = 1234;
  constexpr EventId event = 1234;
  const Event known(*device);
  EXPECT_THROW(device->record(known.id(), lane), InvalidInput);
  EXPECT_THROW(device->wait(lane, known.id()), InvalidInput);
  EXPECT_THROW(device->synchronise_lane(lane), InvalidInput);
  EXPECT_THROW(device->destroy_lane(lane), InvalidInput);
  EXPECT_THROW(device->query(event), InvalidInput);
  EXPECT_THROW(device->synchronise(event), InvalidInput);
  EXPECT_THROW(device->destroy_event(event), InvalidInput);
}

TEST_P(DeviceConformance, CopiesThereAndBackInTheOrderOfEvents) {
  const DeviceMemory memory(*device, MemoryKind::device, size);
  const DeviceMemory there(*device, MemoryKind::pinned, size), back(*device, MemoryKind::pinned, size);
  const Lane h2d(*device, LaneRole::h2d), d2h(*device, LaneRole::d2h);
  const Event arrived(*device), returned(*device);
  device->reset_counters();
  for (int round = 0; round < 10; ++round) {
    fill(there, round);
    device->wait(h2d.id(), returned.id());
    device->copy(h2d.id(), memory.data(), there.data(), size, "there");
    device->record(arrived.id(), h2d.id());
    device->wait(d2h.id(), arrived.id());
    device->copy(d2h.id(), back.data(), memory.data(), size, "back");
    device->record(returned.id(), d2h.id());
    device->synchronise(returned.id());
    ASSERT_TRUE(equal(there, back)) << "round " << round;
  }
  EXPECT_EQ(device->counters().h2d_bytes, 10 * size);
  EXPECT_EQ(device->counters().d2h_bytes, 10 * size);
}

TEST_P(DeviceConformance, RefusesACopyAgainstItsLanesDirection) {
  const DeviceMemory memory(*device, MemoryKind::device, size), pinned(*device, MemoryKind::pinned, size);
  const DeviceMemory other(*device, MemoryKind::device, size), host(*device, MemoryKind::pinned, size);
  const Lane h2d(*device, LaneRole::h2d), d2h(*device, LaneRole::d2h), compute(*device, LaneRole::compute);
  EXPECT_THROW(device->copy(h2d.id(), pinned.data(), memory.data(), size, "x"), InvalidInput);
  EXPECT_THROW(device->copy(d2h.id(), memory.data(), pinned.data(), size, "x"), InvalidInput);
  EXPECT_THROW(device->copy(h2d.id(), memory.data(), other.data(), size, "x"), InvalidInput);
  EXPECT_THROW(device->copy(h2d.id(), host.data(), pinned.data(), size, "x"), InvalidInput);
  EXPECT_THROW(device->copy(compute.id(), memory.data(), pinned.data(), size, "x"), InvalidInput);
}

TEST_P(DeviceConformance, ALaneKeepsItsOrder) {
  std::vector<int> seen;
  const Lane lane(*device, LaneRole::host);
  std::vector<std::function<void()>> work;
  for (int i = 0; i < 200; ++i) work.push_back([&seen, i] { seen.push_back(i); });
  for (auto& function : work) run(lane, "append", function);
  device->synchronise_lane(lane.id());
  std::vector<int> expected(200);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(seen, expected);
}

TEST_P(DeviceConformance, AnEventOrdersLanes) {
  int value = 0;
  std::vector<int> seen;
  const Lane writer(*device, LaneRole::host), reader(*device, LaneRole::host);
  const Event written(*device), read(*device);
  auto write = [&] { ++value; };
  auto note = [&] { seen.push_back(value); };
  for (int i = 0; i < 100; ++i) {  // the events are recorded again and again
    device->wait(writer.id(), read.id());
    run(writer, "write", write);
    device->record(written.id(), writer.id());
    device->wait(reader.id(), written.id());
    run(reader, "note", note);
    device->record(read.id(), reader.id());
  }
  device->synchronise(read.id());
  std::vector<int> expected(100);
  std::iota(expected.begin(), expected.end(), 1);
  EXPECT_EQ(seen, expected);
}

TEST_P(DeviceConformance, AnEventNeverRecordedHoldsNobody) {
  const Event event(*device);
  const Lane lane(*device, LaneRole::host);
  bool ran = false;
  auto work = [&] { ran = true; };
  EXPECT_TRUE(device->query(event.id()));
  device->synchronise(event.id());
  device->wait(lane.id(), event.id());
  run(lane, "work", work);
  device->synchronise_lane(lane.id());
  EXPECT_TRUE(ran);
}

TEST_P(DeviceConformance, ASynchronisedEventIsDone) {
  const Event event(*device);
  const Lane lane(*device, LaneRole::compute);
  device->record(event.id(), lane.id());
  device->synchronise(event.id());
  EXPECT_TRUE(device->query(event.id()));
}

TEST_P(DeviceConformance, MeasuresTimeBetweenFinishedEvents) {
  const Event begin(*device), end(*device);
  const Lane lane(*device, LaneRole::compute);
  EXPECT_THROW(device->elapsed_seconds(begin.id(), end.id()), InvalidInput);
  device->record(begin.id(), lane.id());
  device->record(end.id(), lane.id());
  device->synchronise(end.id());
  EXPECT_GE(device->elapsed_seconds(begin.id(), end.id()), 0.0);
  EXPECT_EQ(device->elapsed_seconds(begin.id(), begin.id()), 0.0);
}

// A card's streams and the functions of its host lanes have clocks of their own. Virtual time knows no sleep.
TEST_P(DeviceConformance, TimesOfHostLanesAndOthersAreOfOneClock) {
  const Lane in(*device, LaneRole::h2d), host(*device, LaneRole::host);
  const DeviceMemory card(*device, MemoryKind::device, 64), there(*device, MemoryKind::pinned, 64);
  const Event before(*device), begun(*device), computed(*device), after(*device);
  static constexpr auto sleep = std::chrono::milliseconds(40);
  const auto copy = [&](const Event& behind) {
    device->copy(in.id(), card.data(), there.data(), 64, "in");
    device->record(behind.id(), in.id());
  };
  for (int round = 0; round < 2; ++round) {  // the second records events anew, each on the other lane
    copy(round == 0 ? before : computed);
    const Event &first = round == 0 ? before : computed, &second = round == 0 ? computed : before;
    device->wait(host.id(), first.id());
    device->record(begun.id(), host.id());
    device->launch(host.id(), {"sleep", [](void*) { std::this_thread::sleep_for(sleep); }, nullptr, {}});
    device->record(second.id(), host.id());
    device->wait(in.id(), second.id());
    copy(after);
    device->synchronise(after.id());
    std::this_thread::sleep_for(sleep);  // the times are those of then, not of now
    constexpr double slack = 0.005;
    const double slept = device->info().backend == "cuda" ? std::chrono::duration<double>(sleep).count() : 0;
    EXPECT_GE(device->elapsed_seconds(first.id(), begun.id()), -slack);
    EXPECT_GE(device->elapsed_seconds(begun.id(), second.id()), slept);
    EXPECT_GE(device->elapsed_seconds(first.id(), second.id()), slept - slack);
    EXPECT_GE(device->elapsed_seconds(second.id(), after.id()), -slack);
  }
}

TEST_P(DeviceConformance, AnUntimedEventIsDoneAndHasNoTime) {
  const Event timed(*device), untimed = Event::untimed(*device);
  const Lane lane(*device, LaneRole::compute);
  device->record(timed.id(), lane.id());
  device->record(untimed.id(), lane.id());
  device->synchronise(untimed.id());
  EXPECT_TRUE(device->query(untimed.id()));
  EXPECT_THROW(device->elapsed_seconds(timed.id(), untimed.id()), InvalidInput);
  EXPECT_THROW(device->elapsed_seconds(untimed.id(), timed.id()), InvalidInput);
}

TEST_P(DeviceConformance, ADiscardedRangeCanBeWrittenAgain) {
  const DeviceMemory memory(*device, MemoryKind::device, size);
  const DeviceMemory there(*device, MemoryKind::pinned, size), back(*device, MemoryKind::pinned, size);
  const Lane h2d(*device, LaneRole::h2d), d2h(*device, LaneRole::d2h);
  const Event arrived(*device);
  fill(there, 3);
  device->copy(h2d.id(), memory.data(), there.data(), size, "first");
  device->discard(h2d.id(), memory.data(), size);
  device->copy(h2d.id(), memory.data(), there.data(), size, "second");
  device->record(arrived.id(), h2d.id());
  device->wait(d2h.id(), arrived.id());
  device->copy(d2h.id(), back.data(), memory.data(), size, "back");
  device->synchronise_lane(d2h.id());
  EXPECT_TRUE(equal(there, back));
}

TEST_P(DeviceConformance, MapsMemoryIntoAReservedRange) {
  const Bytes granule = device->granularity();
  const DeviceMemory there(*device, MemoryKind::pinned, 2 * granule),
      back(*device, MemoryKind::pinned, 2 * granule);
  const Lane h2d(*device, LaneRole::h2d), d2h(*device, LaneRole::d2h);
  int seed = 5;
  expect_all_back([&] {
    const Bytes free = free_bytes();
    auto* const range = static_cast<std::byte*>(device->reserve(4 * granule));
    EXPECT_GE(free_bytes() + GetParam().kept, free);
    device->map(range, granule, granule);
    device->map(range, 2 * granule, granule);
    EXPECT_LE(free_bytes(), free - 2 * granule);

    fill(there, ++seed);  // across both mappings
    device->copy(h2d.id(), range + granule, there.data(), 2 * granule, "there");
    device->synchronise_lane(h2d.id());
    device->copy(d2h.id(), back.data(), range + granule, 2 * granule, "back");
    device->synchronise_lane(d2h.id());
    EXPECT_TRUE(equal(there, back));

    device->unmap(range, granule, granule);
    device->unmap(range, 2 * granule, granule);
    device->unreserve(range);
  });
}

TEST_P(DeviceConformance, UnmapsAnyGranuleOfAMapping) {
  const Bytes granule = device->granularity();
  void* const range = device->reserve(8 * granule);
  expect_all_back([&] {
    const Bytes free = free_bytes();
    device->map(range, 0, 3 * granule);
    EXPECT_LE(free_bytes(), free - 3 * granule);
    device->unmap(range, granule, granule);
    EXPECT_LE(free_bytes(), free - 2 * granule);
    device->map(range, 5 * granule, granule);  // the memory, at another address
    device->unmap(range, 0, granule);
    device->unmap(range, 2 * granule, granule);
    device->unmap(range, 5 * granule, granule);
  });
  device->unreserve(range);
}

TEST_P(DeviceConformance, UnmapsPiecesAsAWhole) {
  const Bytes granule = device->granularity();
  void* const range = device->reserve(8 * granule);
  expect_all_back([&] {
    const Bytes free = free_bytes();
    device->map_pieces(range, granule, 5 * granule, 2 * granule);  // 2, 2 and 1 granules
    EXPECT_LE(free_bytes(), free - 5 * granule);
    EXPECT_THROW(device->unmap(range, granule, granule), InvalidInput);
    EXPECT_THROW(device->unmap(range, 2 * granule, 3 * granule), InvalidInput);
    EXPECT_THROW(device->unmap(range, granule, 3 * granule), InvalidInput);
    EXPECT_LE(free_bytes(), free - 5 * granule);
    device->unmap(range, 3 * granule, 2 * granule);
    EXPECT_LE(free_bytes(), free - 3 * granule);
    device->map(range, 3 * granule, 2 * granule);
    device->unmap(range, granule, 3 * granule);  // a piece and a granule beside it
    device->unmap(range, 4 * granule, 2 * granule);
  });
  EXPECT_THROW(device->map_pieces(range, 0, granule, granule - 1), InvalidInput);
  EXPECT_THROW(device->map_pieces(range, 0, granule, 0), InvalidInput);
  device->unreserve(range);
}

TEST_P(DeviceConformance, RefusesMisuseOfAReservedRange) {
  const Bytes granule = device->granularity();
  EXPECT_THROW(device->reserve(granule + 1), InvalidInput);
  void* const range = device->reserve(2 * granule);
  EXPECT_THROW(device->map(range, 1, granule), InvalidInput);
  EXPECT_THROW(device->map(range, 0, granule - 1), InvalidInput);
  EXPECT_THROW(device->map(range, granule, 2 * granule), InvalidInput);
  EXPECT_THROW(device->unmap(range, 0, granule), InvalidInput);
  device->map(range, 0, granule);
  EXPECT_THROW(device->map(range, 0, granule), InvalidInput);
  EXPECT_THROW(device->release(MemoryKind::device, range), InvalidInput);
  device->unmap(range, 0, granule);
  device->unreserve(range);
  EXPECT_THROW(device->unreserve(range), InvalidInput);
}

TEST_P(DeviceConformance, ReportsFailedWorkOnceAndSkipsWhatFollows) {
  const Lane lane(*device, LaneRole::host);
  bool ran = false;
  auto fails = []() -> void { throw std::runtime_error("no luck"); };
  auto follows = [&] { ran = true; };
  run(lane, "unlucky", fails);
  run(lane, "follows", follows);
  try {
    device->synchronise_lane(lane.id());
    FAIL() << "the failure was lost";
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.call(), "launch");
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("unlucky"), testing::HasSubstr("no luck")));
  }
  EXPECT_FALSE(ran);
  device->synchronise_lane(lane.id());
  run(lane, "follows", follows);
  device->synchronise_lane(lane.id());
  EXPECT_TRUE(ran);
}

TEST_P(DeviceConformance, AFailureTravelsAlongEventsAndEveryLaneRecovers) {
  const Lane first(*device, LaneRole::host), second(*device, LaneRole::host);
  const Event event(*device), last(*device);
  int ran = 0;
  auto fails = []() -> void { throw std::runtime_error("no luck"); };
  auto count = [&] { ++ran; };
  run(first, "unlucky", fails);
  device->record(event.id(), first.id());
  device->wait(second.id(), event.id());
  run(second, "behind", count);
  device->record(last.id(), second.id());
  EXPECT_THROW(device->synchronise(event.id()), DeviceError);
  EXPECT_THROW(device->synchronise(last.id()), DeviceError);
  EXPECT_THROW(device->synchronise_lane(first.id()), DeviceError);
  EXPECT_THROW(device->synchronise_lane(second.id()), DeviceError);
  EXPECT_EQ(ran, 0);

  device->synchronise(last.id());  // reported already
  device->wait(second.id(), event.id());
  run(second, "behind", count);
  device->synchronise_lane(second.id());
  run(first, "again", count);
  device->synchronise_lane(first.id());
  EXPECT_EQ(ran, 2);
}

}  // namespace stowage
