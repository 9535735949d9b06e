// The CUDA device over the fake runtime and driver.
#include "stowage/cuda_device.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "src/base/parallel_for.h"
#include "stowage/machine_file.h"
#include "tests/device/cuda/cuda_device_fixture.h"
#include "tests/device/device_conformance.h"
#include "tests/fake_cuda/fake_cuda.h"

namespace stowage {
namespace {

using testing::AllOf;
using testing::HasSubstr;

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceConformance,
                         testing::Values(DeviceFactory{
                             "fake", [] { return open_cuda_device(); }, {}, 128_KiB}),
                         factory_name);

TEST_F(CudaDeviceTest, SaysWhatItIs) {
  const CudaStatus status = cuda_status();
  EXPECT_TRUE(status.available);
  EXPECT_THAT(status.reason, HasSubstr("1 card"));
  EXPECT_THAT(status.cards, testing::ElementsAre("GPU-00000000-0000-0000-0000-000000000001"));
  EXPECT_EQ(open_cuda_device()->info().backend, "cuda");
}

TEST_F(CudaDeviceTest, SaysWhyThereIsNone) {
  fake_cuda_set_driver(fake_cuda_no_driver);
  EXPECT_FALSE(cuda_status().available);
  EXPECT_THAT(cuda_status().reason, HasSubstr("no CUDA driver answers"));
  EXPECT_THROW(open_cuda_device(), InvalidInput);
  fake_cuda_set_driver(fake_cuda_no_device);
  EXPECT_FALSE(cuda_status().available);
  EXPECT_THAT(cuda_status().reason, HasSubstr("sees no card"));
  EXPECT_THROW(open_cuda_device(), InvalidInput);
}

TEST_F(CudaDeviceTest, RefusesACardThatIsNotThere) {
  EXPECT_THROW(open_cuda_device({.ordinal = 1}), InvalidInput);
  EXPECT_THROW(open_cuda_device({.ordinal = -1}), InvalidInput);
}

TEST_F(CudaDeviceTest, LeavesTheCurrentDeviceIfAsked) {
  const auto current = [] {
    int device = -1;
    EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
    return device;
  };
  fake_cuda_set_cards(2);
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  {
    const auto device = open_cuda_device({.ordinal = 0, .keeps_current_device = true});
    EXPECT_EQ(current(), 0);  // as the driver says, no card has a context that could be current again
  }
  CUcontext context = nullptr;
  EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  {
    const auto device = open_cuda_device({.ordinal = 0, .keeps_current_device = true});
    EXPECT_EQ(current(), 1);
    const Lane lane(*device, LaneRole::h2d);
    const Event event(*device);
    device->record(event.id(), lane.id());
    EXPECT_EQ(current(), 1);
    EXPECT_THROW(device->reserve(1), InvalidInput);
    EXPECT_EQ(current(), 1);
  }
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  const auto device = open_cuda_device({.ordinal = 0});
  EXPECT_EQ(current(), 0);
  EXPECT_EQ(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
}

TEST_F(CudaDeviceTest, MakesAContextOnItsOwnCardAlone) {
  for (const bool keeps : {false, true}) {
    fake_cuda_reset();
    fake_cuda_set_cards(2);
    // A thread that has used no card: card 0 is current.
    std::thread([&] {
      const auto device = open_cuda_device({.ordinal = 1, .keeps_current_device = keeps});
      const DeviceMemory memory(*device, MemoryKind::device, 1000), pinned(*device, MemoryKind::pinned, 1000);
      const Lane lane(*device, LaneRole::compute);
      device->synchronise_lane(lane.id());
      device->memory_info();
    }).join();
    EXPECT_TRUE(fake_cuda_has_context(1));
    EXPECT_FALSE(fake_cuda_has_context(0));
  }
}

std::atomic<int> program_loops = 0;

// The threads of the program fault pinned pages in, as many as it has set.
TEST_F(CudaDeviceTest, PinsOnTheProgramsThreads) {
  detail::set_chunk_loop([](auto count, auto chunk, auto function, auto context) {
    ++program_loops;
    detail::run_chunks(count, chunk, function, context);
  });
  const auto device = open_cuda_device({.scratch = 0});
  const int before = program_loops;
  const DeviceMemory pinned(*device, MemoryKind::pinned, 1000);
  EXPECT_EQ(program_loops, before + 1);
  detail::set_chunk_loop(detail::run_chunks);
}

TEST_F(CudaDeviceTest, AdoptsStreams) {
  const auto device = open_cuda_device({.scratch = 0});
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  const LaneId lane = device->adopt_lane(stream), legacy = device->adopt_lane(nullptr);
  EXPECT_EQ(device->native_stream(lane), stream);
  EXPECT_EQ(device->native_stream(legacy), cudaStreamLegacy);
  const Event event(*device);
  for (const LaneId each : {lane, legacy}) {
    device->record(event.id(), each);
    device->wait(each, event.id());
    device->synchronise(event.id());
    device->synchronise_lane(each);
    device->destroy_lane(each);
  }
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);  // it is still there
  device->adopt_lane(stream);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_THROW(device->adopt_lane(cudaStreamPerThread), InvalidInput);
}

// More than a stream takes at once, and host functions of two lanes that the driver may call one at a time:
// all that an item waits for was enqueued before it, so lanes empty by themselves, and enqueuing goes on.
TEST_F(CudaDeviceTest, LanesTakeAnyNumberOfItemsThatWaitForEachOther) {
  const auto device = open_cuda_device();
  const Lane in(*device, LaneRole::h2d), out(*device, LaneRole::d2h);
  const Lane first(*device, LaneRole::host), second(*device, LaneRole::host);
  const DeviceMemory card(*device, MemoryKind::device, 256), host(*device, MemoryKind::pinned, 256);
  const Event arrived = Event::untimed(*device), done = Event::untimed(*device);
  constexpr std::uint64_t items = 1500;
  std::uint64_t ran = 0;  // one lane behind the other: no two of them at a time
  const Launch count{"count", [](void* number) { ++*static_cast<std::uint64_t*>(number); }, &ran, {}, 0};
  for (std::uint64_t i = 0; i < items; ++i) {
    device->copy(in.id(), card.data(), host.data(), 256, "in");
    device->record(arrived.id(), in.id());
    device->wait(first.id(), arrived.id());
    device->launch(first.id(), count);
    device->record(done.id(), first.id());
    device->wait(second.id(), done.id());
    device->launch(second.id(), count);
    device->record(done.id(), second.id());
    device->wait(out.id(), done.id());
    device->copy(out.id(), host.data(), card.data(), 256, "out");
    device->record(done.id(), out.id());
    device->wait(in.id(), done.id());
  }
  for (const Lane* lane : {&in, &first, &second, &out}) device->synchronise_lane(lane->id());
  EXPECT_EQ(ran, 2 * items);
}

TEST_F(CudaDeviceTest, CountsWhatContextAndLibrariesHold) {
  fake_cuda_set_page_tables(0, 0);
  fake_cuda_set_memory(1_GiB, 100_MiB);
  const auto device = open_cuda_device({.scratch = 8_MiB});
  EXPECT_EQ(device->memory_info().total, 1_GiB);
  EXPECT_EQ(device->memory_info().overhead, 108_MiB);
  EXPECT_EQ(device->memory_info().free, 1_GiB - 108_MiB);
  const DeviceMemory memory(*device, MemoryKind::device, 4_MiB);
  Lane first(*device, LaneRole::compute);
  EXPECT_EQ(device->memory_info().overhead, 108_MiB);
  const Lane second(*device, LaneRole::compute);
  EXPECT_EQ(device->memory_info().overhead, 116_MiB);
  EXPECT_EQ(device->memory_info().free, 1_GiB - 116_MiB - 4_MiB);
  first = Lane(*device, LaneRole::h2d);
  const Lane third(*device, LaneRole::compute);  // takes over what the first one had
  EXPECT_EQ(device->memory_info().overhead, 116_MiB);
}

TEST_F(CudaDeviceTest, GivesEverythingBackWhenItDies) {
  {
    const auto device = open_cuda_device();
    device->allocate(MemoryKind::device, 100);
    device->allocate(MemoryKind::pinned, 100);
    void* const range = device->reserve(4 * device->granularity());
    device->map(range, device->granularity(), 2 * device->granularity());
    for (const LaneRole role : {LaneRole::compute, LaneRole::compute, LaneRole::h2d, LaneRole::host})
      device->create_lane(role);
    device->create_event();
  }
  const fake_cuda_live_objects live = fake_cuda_live();
  EXPECT_EQ(live.device_allocations + live.pinned_allocations + live.reservations +
                live.physical_allocations + live.mappings + live.streams + live.events + live.blas_objects,
            0u);
}

// Every call that a capture of the default mode would refuse, on the capturing thread.
TEST_F(CudaDeviceTest, LeavesACaptureAlone) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  {
    const auto device = open_cuda_device();
    const LaneId captured = device->adopt_lane(stream), own = device->create_lane(LaneRole::compute);
    EXPECT_FALSE(device->is_captured(captured));
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
    EXPECT_TRUE(device->is_captured(captured));
    EXPECT_FALSE(device->is_captured(own));
    const DeviceMemory memory(*device, MemoryKind::device, 1000), pinned(*device, MemoryKind::pinned, 1000);
    void* const range = device->reserve(4_MiB);
    device->map(range, 0, 4_MiB);
    device->unmap(range, 0, 2_MiB);
    device->unreserve(range);
    {
      const Lane lane(*device, LaneRole::compute);
      const Event event(*device);
      device->record(event.id(), lane.id());
      device->query(event.id());
      device->synchronise(event.id());
      device->synchronise_lane(lane.id());
      const Lane host(*device, LaneRole::host);
      const Event of_host(*device);
      device->record(of_host.id(), host.id());
      device->synchronise(of_host.id());
      device->elapsed_seconds(event.id(), of_host.id());
    }
    device->memory_info();
    open_cuda_device({.virtual_memory = false});
  }
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST_F(CudaDeviceTest, EveryLaneIsAStreamOfItsOwn) {
  const auto device = open_cuda_device();
  const Lane compute(*device, LaneRole::compute), other(*device, LaneRole::compute);
  EXPECT_NE(device->native_stream(compute.id()), nullptr);
  EXPECT_NE(device->native_stream(compute.id()), device->native_stream(other.id()));
  EXPECT_THROW(device->native_stream(1234), InvalidInput);
  EXPECT_EQ(fake_cuda_live().streams, 2u);
}

TEST_F(CudaDeviceTest, NamesTheLaunchWhoseFunctionThrows) {
  const auto device = open_cuda_device();
  const Lane compute(*device, LaneRole::compute);
  Launch launch;
  launch.name = "matmul";
  launch.function = [](void*) { throw std::runtime_error("no algorithm"); };
  try {
    device->launch(compute.id(), launch);
    FAIL() << "the failure was lost";
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.call(), "launch");
    EXPECT_EQ(error.work(), "matmul");
    EXPECT_THAT(error.what(), AllOf(HasSubstr("compute lane"), HasSubstr("no algorithm")));
  }
  device->synchronise_lane(compute.id());
}

TEST_F(CudaDeviceTest, AKernelLaneReportsTheHostFunctionThatFailedBeforeIt) {
  const auto device = open_cuda_device();
  const Lane host(*device, LaneRole::host), compute(*device, LaneRole::compute);
  const Event event(*device);
  Launch launch;
  launch.name = "unlucky";
  launch.function = [](void*) { throw std::runtime_error("no luck"); };
  device->launch(host.id(), launch);
  device->record(event.id(), host.id());
  device->wait(compute.id(), event.id());
  EXPECT_THROW(device->synchronise_lane(compute.id()), DeviceError);
  device->synchronise_lane(compute.id());
  EXPECT_THROW(device->synchronise_lane(host.id()), DeviceError);
}

// The first function runs until a call has to wait for room behind it.
TEST_F(CudaDeviceTest, LanesWithMoreWorkThanAStreamHoldsGoOn) {
  const auto device = open_cuda_device({.scratch = 0});
  const Lane first(*device, LaneRole::host), second(*device, LaneRole::host), in(*device, LaneRole::h2d);
  const DeviceMemory card(*device, MemoryKind::device, 64), there(*device, MemoryKind::pinned, 64);
  const Event held(*device), copied(*device);
  struct Hold {
    std::atomic<bool> all_enqueued = false;
    bool had_to_wait = false;
  } hold;
  int count = 0;
  Launch launch;
  launch.name = "hold";
  launch.context = &hold;
  launch.function = [](void* context) {
    Hold& holding = *static_cast<Hold*>(context);
    while (fake_cuda_waiting_callers() == 0 && !holding.all_enqueued) std::this_thread::yield();
    holding.had_to_wait = !holding.all_enqueued;
  };
  device->launch(first.id(), launch);
  device->record(held.id(), first.id());
  device->wait(in.id(), held.id());
  launch.name = "count";
  launch.context = &count;
  launch.function = [](void* context) { ++*static_cast<int*>(context); };
  for (int i = 0; i < 1500; ++i) {
    device->copy(in.id(), card.data(), there.data(), 64, "in");
    device->record(copied.id(), in.id());
    device->wait(second.id(), copied.id());
    device->launch(second.id(), launch);
  }
  hold.all_enqueued = true;
  device->synchronise_lane(second.id());
  EXPECT_TRUE(hold.had_to_wait);
  EXPECT_EQ(count, 1500);
}

// An event behind a wait lies behind what was waited for, whatever lanes recorded them, with or without a
// time.
TEST_F(CudaDeviceTest, EventsOfAHostLaneLieBehindItsWaits) {
  const auto device = open_cuda_device({.scratch = 0});
  const Lane slow(*device, LaneRole::host), host(*device, LaneRole::host), in(*device, LaneRole::h2d);
  const DeviceMemory card(*device, MemoryKind::device, 256), there(*device, MemoryKind::pinned, 256);
  for (const bool through_stream : {false, true}) {
    std::atomic<bool> let_go = false;
    Launch launch;
    launch.name = "hold";
    launch.context = &let_go;
    launch.function = [](void* go) {
      while (!*static_cast<std::atomic<bool>*>(go)) std::this_thread::yield();
    };
    const Event held = Event::untimed(*device), copied = Event::untimed(*device);
    const Event behind = Event::untimed(*device), timed(*device);
    device->launch(slow.id(), launch);
    device->record(held.id(), slow.id());
    device->wait(in.id(), held.id());
    device->copy(in.id(), card.data(), there.data(), 256, "in");
    device->record(copied.id(), in.id());
    device->wait(host.id(), through_stream ? copied.id() : held.id());
    device->record(behind.id(), host.id());
    device->record(timed.id(), host.id());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_FALSE(device->query(behind.id()));
    EXPECT_FALSE(device->query(timed.id()));
    let_go = true;
    device->synchronise(behind.id());
    EXPECT_TRUE(device->query(through_stream ? copied.id() : held.id()));
    device->synchronise(timed.id());
    device->synchronise_lane(host.id());
    device->synchronise_lane(in.id());
  }
}

// As behind a step's gate, where the next step is to begin at once.
void expect_pending_functions_to_hold_up_nobody(bool timed) {
  const auto device = open_cuda_device({.scratch = 0});
  const Lane host(*device, LaneRole::host), other(*device, LaneRole::host), in(*device, LaneRole::h2d);
  const DeviceMemory card(*device, MemoryKind::device, 256), there(*device, MemoryKind::pinned, 256);
  const Event done = timed ? Event(*device) : Event::untimed(*device);
  std::atomic<bool> enqueued = false;
  int count = 0;
  Launch launch;
  launch.name = "hold";
  launch.context = &enqueued;
  launch.function = [](void* all) {
    while (!*static_cast<std::atomic<bool>*>(all)) std::this_thread::yield();
  };
  device->launch(host.id(), launch);
  launch.name = "count";
  launch.context = &count;
  launch.function = [](void* number) { ++*static_cast<int*>(number); };
  for (int i = 0; i < 3000; ++i) {
    device->launch(host.id(), launch);
    device->record(done.id(), host.id());
    device->wait(other.id(), done.id());
  }
  device->wait(in.id(), done.id());
  device->copy(in.id(), card.data(), there.data(), 256, "in");
  EXPECT_FALSE(device->query(done.id()));
  enqueued = true;  // else nothing above would ever end
  device->synchronise_lane(in.id());
  EXPECT_TRUE(device->query(done.id()));
  device->synchronise_lane(host.id());
  EXPECT_EQ(count, 3000);
}

TEST_F(CudaDeviceTest, PendingHostFunctionsHoldUpNobody) {
  expect_pending_functions_to_hold_up_nobody(false);
  expect_pending_functions_to_hold_up_nobody(true);
}

TEST_F(CudaDeviceTest, ThreadsUseLanesOfTheirOwn) {
  const auto device = open_cuda_device({.scratch = 64_KiB});
  constexpr Bytes bytes = 4096;
  const auto use = [&](int seed) {
    const DeviceMemory memory(*device, MemoryKind::device, bytes);
    const DeviceMemory there(*device, MemoryKind::pinned, bytes), back(*device, MemoryKind::pinned, bytes);
    const Lane h2d(*device, LaneRole::h2d), d2h(*device, LaneRole::d2h), host(*device, LaneRole::host);
    const Event arrived(*device), filled(*device);
    struct Fill {
      const DeviceMemory& memory;
      int value;
    } fill{there, 0};
    Launch launch;
    launch.name = "fill";
    launch.context = &fill;
    launch.function = [](void* context) {
      const auto& what = *static_cast<Fill*>(context);
      std::memset(what.memory.data(), what.value, what.memory.bytes());
    };
    for (int round = 0; round < 5; ++round) {
      fill.value = seed + round;
      device->launch(host.id(), launch);
      device->record(filled.id(), host.id());
      device->wait(h2d.id(), filled.id());
      device->copy(h2d.id(), memory.data(), there.data(), bytes, "there");
      device->record(arrived.id(), h2d.id());
      device->wait(d2h.id(), arrived.id());
      device->copy(d2h.id(), back.data(), memory.data(), bytes, "back");
      device->synchronise_lane(d2h.id());
      EXPECT_EQ(back.data()[bytes - 1], static_cast<std::byte>(seed + round));
    }
  };
  std::thread other([&] { use(100); });
  use(10);
  other.join();
  EXPECT_EQ(device->counters().h2d_bytes, 10 * bytes);
}

}  // namespace
}  // namespace stowage
