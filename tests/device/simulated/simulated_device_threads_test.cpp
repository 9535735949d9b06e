// What only the threaded executor does: calls return before their work, and other threads run it.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "stowage/error.h"
#include "stowage/simulated_device.h"

namespace stowage {
namespace {

class ThreadedTest : public testing::Test {
 protected:
  // Holds a lane until `open`.
  struct Gate {
    std::promise<void> promise;
    std::future<void> opened = promise.get_future();
    void open() { promise.set_value(); }
  };
  void hold(const Lane& lane, Gate& gate) {
    Launch launch;
    launch.name = "gate";
    launch.function = [](void* context) { static_cast<Gate*>(context)->opened.wait(); };
    launch.context = &gate;
    device->launch(lane.id(), launch);
  }
  std::unique_ptr<SimulatedDevice> device = open_simulated_device({.capacity = 1_MiB});
};

TEST_F(ThreadedTest, CallsReturnBeforeTheirWorkIsDone) {
  const Lane held(*device, LaneRole::compute), free(*device, LaneRole::host);
  const Event event(*device), other(*device);
  Gate gate;
  hold(held, gate);
  device->record(event.id(), held.id());
  device->record(other.id(), free.id());
  device->synchronise(other.id());  // lanes do not hold each other up
  EXPECT_FALSE(device->query(event.id()));
  EXPECT_THROW(device->elapsed_seconds(other.id(), event.id()), InvalidInput);
  gate.open();
  device->synchronise(event.id());
  EXPECT_TRUE(device->query(event.id()));
  EXPECT_GE(device->elapsed_seconds(other.id(), event.id()), 0.0);
}

TEST_F(ThreadedTest, AWaitHoldsForTheRecordItCapturedThoughALaterOneIsDone) {
  const Lane slow(*device, LaneRole::host), fast(*device, LaneRole::host), waiting(*device, LaneRole::host);
  const Event event(*device), done(*device);
  Gate gate;
  hold(slow, gate);
  device->record(event.id(), slow.id());
  device->wait(waiting.id(), event.id());
  device->record(done.id(), waiting.id());
  device->record(event.id(), fast.id());
  device->synchronise(event.id());
  EXPECT_FALSE(device->query(done.id()));
  gate.open();
  device->synchronise(done.id());
}

TEST_F(ThreadedTest, ADiscardWaitsForTheWorkBeforeItOnItsLane) {
  const DeviceMemory memory(*device, MemoryKind::device, 64);
  struct Reader {
    Gate gate;
    const std::byte* address = nullptr;
    int value = 0;
  } reader;
  reader.address = memory.data();
  const Lane lane(*device, LaneRole::compute);
  const std::array<Access, 1> write = {{{memory.data(), 64, AccessMode::write}}};
  const std::array<Access, 1> read = {{{memory.data(), 64, AccessMode::read}}};
  Launch launch{"write", [](void* address) { std::memset(address, 7, 64); }, memory.data(), write};
  device->launch(lane.id(), launch);
  launch = {"read",
            [](void* context) {
              auto& r = *static_cast<Reader*>(context);
              r.gate.opened.wait();
              r.value = static_cast<int>(r.address[63]);
            },
            &reader, read};
  device->launch(lane.id(), launch);
  device->discard(lane.id(), memory.data(), 64);
  reader.gate.open();
  device->synchronise_lane(lane.id());
  EXPECT_EQ(reader.value, 7);
  EXPECT_NE(memory.data()[63], std::byte{7});
}

TEST_F(ThreadedTest, ModelledCopiesTakeTheirTimeAtLeast) {
  const Link link{1e6, 1e-3, true};
  const auto slow = open_simulated_device({.h2d = link});
  const DeviceMemory memory(*slow, MemoryKind::device, 1000), pinned(*slow, MemoryKind::pinned, 1000);
  const Lane lane(*slow, LaneRole::h2d);
  const Event begin(*slow), end(*slow);
  slow->record(begin.id(), lane.id());
  for (int i = 0; i < 5; ++i) slow->copy(lane.id(), memory.data(), pinned.data(), 1000, "in");
  slow->record(end.id(), lane.id());
  slow->synchronise(end.id());
  EXPECT_GE(slow->elapsed_seconds(begin.id(), end.id()), 5 * link.seconds(1000) * (1 - 1e-12));
}

TEST_F(ThreadedTest, ADestroyedDeviceFinishesWhatIsQueued) {
  int ran = 0;
  {
    const auto other = open_simulated_device({});
    const LaneId lane = other->create_lane(LaneRole::host);
    Launch launch;
    launch.name = "count";
    launch.function = [](void* context) { ++*static_cast<int*>(context); };
    launch.context = &ran;
    for (int i = 0; i < 50; ++i) other->launch(lane, launch);
  }
  EXPECT_EQ(ran, 50);
}

TEST_F(ThreadedTest, SeveralThreadsMayEnqueueOnLanesOfTheirOwn) {
  constexpr int threads = 4, rounds = 100;
  std::array<int, threads> counts{};
  const auto work = [&](int* count) {
    const Lane lane(*device, LaneRole::host);
    const Event event(*device);
    for (int i = 0; i < rounds; ++i) {
      Launch launch;
      launch.name = "count";
      launch.function = [](void* context) { ++*static_cast<int*>(context); };
      launch.context = count;
      device->launch(lane.id(), launch);
      device->record(event.id(), lane.id());
      device->synchronise(event.id());
    }
  };
  std::vector<std::thread> callers;
  for (int& count : counts) callers.emplace_back(work, &count);
  for (std::thread& caller : callers) caller.join();
  for (const int count : counts) EXPECT_EQ(count, rounds);
}

}  // namespace
}  // namespace stowage
