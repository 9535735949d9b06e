// Every call that the CUDA device makes, failing once; and a card that is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "stowage/cuda_device.h"
#include "stowage/error.h"
#include "tests/fake_cuda/fake_cuda.h"
#include "tests/support/printed_name.h"

// A cuBLASLt handle whose destruction fails when the device dies is lost. All others are counted:
// live_objects.
extern "C" const char* __lsan_default_suppressions();  // NOLINT(bugprone-reserved-identifier)
extern "C" const char* __lsan_default_suppressions() { return "leak:cublasLtCreate\n"; }

namespace stowage {
namespace {

using testing::HasSubstr;

std::size_t live_objects() {
  const fake_cuda_live_objects live = fake_cuda_live();
  return live.device_allocations + live.pinned_allocations + live.reservations + live.physical_allocations +
         live.mappings + live.streams + live.events + live.blas_objects;
}

// y = x + x on a compute lane, by the backend's own kernel.
struct AddKernel {
  Tensor tensor;
  Op op;
  LaunchTable table = cuda_launch_table();
  std::array<Operand, 2> reads;
  std::array<Operand, 1> writes;
  void* stream = nullptr;

  AddKernel() {
    tensor.shape = {256};
    op.name = "double";
    op.kernel = "add";
  }

  void launch(Device& device, LaneId lane, void* x, void* y) {
    reads = {{{x, &tensor}, {x, &tensor}}};
    writes = {{{y, &tensor}}};
    stream = device.native_stream(lane);
    const std::array<Access, 2> accesses = {{{x, 1024, AccessMode::read}, {y, 1024, AccessMode::write}}};
    Launch what;
    what.name = "double";
    what.function = [](void* context) {
      const auto& self = *static_cast<AddKernel*>(context);
      self.table.find(self.op)({&self.op, self.reads, self.writes, {}, self.stream});
    };
    what.context = this;
    what.accesses = accesses;
    device.launch(lane, what);
  }
};

// A bit of everything, by plain calls, so that each can throw.
class Scenario {
 public:
  explicit Scenario(bool virtual_memory) : virtual_memory_(virtual_memory) {}

  void run() {
    cuda_status();
    const std::unique_ptr<Device> device =
        open_cuda_device({.virtual_memory = virtual_memory_, .scratch = 4096});
    device_ = device.get();
    make();
    work();
    if (virtual_memory_) use_range();
    device->memory_info();
    give_back();
    leave_open();
    faults_left_to_close = fake_cuda_pending_faults();
  }
  unsigned faults_left_to_close = 0;  // when the device dies: in silence

 private:
  void make() {
    h2d_ = device_->create_lane(LaneRole::h2d);
    d2h_ = device_->create_lane(LaneRole::d2h);
    compute_ = device_->create_lane(LaneRole::compute);
    second_ = device_->create_lane(LaneRole::compute);
    host_ = device_->create_lane(LaneRole::host);
    arrived_ = device_->create_event();
    computed_ = device_->create_event();
    returned_ = device_->create_untimed_event();
    halved_ = device_->create_untimed_event();
    timed_ = device_->create_event();
    memory_ = static_cast<std::byte*>(device_->allocate(MemoryKind::device, 4096));
    pinned_ = static_cast<float*>(device_->allocate(MemoryKind::pinned, 4096));
  }

  void work() {
    Launch fill;
    fill.name = "fill";
    fill.function = [](void* context) { *static_cast<float*>(context) = 21; };
    fill.context = pinned_;
    device_->launch(host_, fill);
    device_->synchronise_lane(host_);
    device_->copy(h2d_, memory_, pinned_, 1024, "there");
    device_->record(arrived_, h2d_);
    device_->wait(compute_, arrived_);
    kernel_.launch(*device_, compute_, memory_, memory_ + 1024);
    device_->discard(compute_, memory_, 1024);
    device_->record(computed_, compute_);
    device_->wait(d2h_, computed_);
    device_->copy(d2h_, pinned_, memory_ + 1024, 1024, "back");
    halve_on_the_host();
    device_->synchronise_lane(d2h_);
    device_->query(arrived_);
    device_->synchronise(computed_);
    device_->elapsed_seconds(arrived_, computed_);
    device_->synchronise(timed_);
    device_->elapsed_seconds(arrived_, timed_);
  }

  // A host lane's function behind a copy, and a copy behind the function.
  void halve_on_the_host() {
    device_->record(returned_, d2h_);
    device_->wait(host_, returned_);
    Launch halve;
    halve.name = "halve";
    halve.function = [](void* context) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // so that who comes behind has to wait
      *static_cast<float*>(context) /= 2;
    };
    halve.context = pinned_;
    device_->launch(host_, halve);
    device_->record(halved_, host_);
    device_->record(timed_, host_);
    device_->wait(h2d_, halved_);
    device_->copy(h2d_, memory_, pinned_, 1024, "there again");
    device_->synchronise(halved_);
    device_->synchronise_lane(h2d_);
    if (*pinned_ != 21) throw std::logic_error("half of 42 is not 21");
  }

  void use_range() {
    const Bytes granule = device_->granularity();
    void* const range = device_->reserve(4 * granule);
    device_->map(range, granule, 2 * granule);
    device_->unmap(range, granule, granule);
    device_->unreserve(range);
  }

  void give_back() {
    device_->release(MemoryKind::device, memory_);
    device_->release(MemoryKind::pinned, pinned_);
    device_->destroy_event(arrived_);
    device_->destroy_event(computed_);
    device_->destroy_event(returned_);
    device_->destroy_event(halved_);
    device_->destroy_event(timed_);
    for (const LaneId lane : {h2d_, d2h_, compute_, second_, host_}) device_->destroy_lane(lane);
  }

  // What the device has to give back by itself.
  void leave_open() {
    device_->create_lane(LaneRole::compute);
    device_->create_lane(LaneRole::host);
    device_->create_event();
    device_->allocate(MemoryKind::device, 100);
    device_->allocate(MemoryKind::pinned, 100);
    if (!virtual_memory_) return;
    const Bytes granule = device_->granularity();
    device_->map(device_->reserve(2 * granule), 0, granule);
  }

  const bool virtual_memory_;
  AddKernel kernel_;
  Device* device_ = nullptr;
  LaneId h2d_ = 0, d2h_ = 0, compute_ = 0, second_ = 0, host_ = 0;
  EventId arrived_ = 0, computed_ = 0, returned_ = 0, halved_ = 0, timed_ = 0;
  std::byte* memory_ = nullptr;
  float* pinned_ = nullptr;
};

class EachCallFails : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override { fake_cuda_reset(); }

  // Every function that the scenario calls, and how often.
  static std::map<std::string, unsigned> calls_of_a_clean_run() {
    Scenario scenario(GetParam());
    scenario.run();
    EXPECT_EQ(live_objects(), 0u);
    std::vector<const char*> names(fake_cuda_called(nullptr, 0));
    fake_cuda_called(names.data(), names.size());
    std::map<std::string, unsigned> result;
    for (const char* const name : names) result[name] = fake_cuda_calls(name);
    return result;
  }
};

INSTANTIATE_TEST_SUITE_P(VirtualMemory, EachCallFails, testing::Bool(), stowage::test::printed_name);

TEST_P(EachCallFails, Once) {
  const auto calls = calls_of_a_clean_run();
  EXPECT_EQ(calls.contains("cuMemMap"), GetParam());
  for (const char* const name :
       {"cudaLaunchKernel", "cuStreamBatchMemOp", "cudaMemcpyAsync", "cudaHostRegister"})
    EXPECT_TRUE(calls.contains(name)) << name;
  for (const auto& [name, count] : calls) {
    if (name == "cuDevicePrimaryCtxGetState") continue;  // once in a process: the clean run has asked
    if (name == "cuThreadExchangeStreamCaptureMode")
      continue;  // where it fails, a capture refuses what follows
    // It is asked until the card's clock is read: how often, no two runs agree; once for each reading they
    // do.
    const unsigned certain = name == "cudaEventQuery" ? std::min(count, 4U) : count;
    for (unsigned nth = 1; nth <= certain; ++nth) {
      const testing::ScopedTrace trace(__FILE__, __LINE__, name + ", call " + std::to_string(nth));
      fake_cuda_reset();
      Scenario scenario(GetParam());
      fake_cuda_fail_call(name.c_str(), nth, 0);
      try {
        scenario.run();
        const bool told_by_status = nth == 1 && name.starts_with("cudaGetDevice");
        EXPECT_TRUE(scenario.faults_left_to_close == 1 || told_by_status) << "the failure was lost";
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr(name));
        EXPECT_EQ(live_objects(), 0u);
      }
      EXPECT_EQ(fake_cuda_pending_faults(), 0u);
      EXPECT_EQ(fake_cuda_misuses().calls_from_host_functions, 0u);
    }
  }
}

TEST_P(EachCallFails, ForWantOfMemory) {
  constexpr int out_of_memory = 2;  // of runtime and driver alike
  for (const auto& [name, count] : calls_of_a_clean_run()) {
    if (name != "cuMemCreate" && name != "cudaMalloc" && name != "cudaHostRegister") continue;
    for (unsigned nth = 1; nth <= count; ++nth) {
      const testing::ScopedTrace trace(__FILE__, __LINE__, name + ", call " + std::to_string(nth));
      fake_cuda_reset();
      Scenario scenario(GetParam());
      fake_cuda_fail_call(name.c_str(), nth, out_of_memory);
      EXPECT_THROW(scenario.run(), OutOfMemory);
      EXPECT_EQ(live_objects(), 0u);
    }
  }
}

class CudaDeviceFaults : public testing::Test {
 protected:
  void SetUp() override { fake_cuda_reset(); }
};

TEST_F(CudaDeviceFaults, UndoesHalfAMapping) {
  const auto device = open_cuda_device({.scratch = 0});
  const Bytes granule = device->granularity();
  void* const range = device->reserve(4 * granule);
  for (const std::string name : {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemRelease"}) {
    const testing::ScopedTrace trace(__FILE__, __LINE__, name);
    fake_cuda_fail_call(name.c_str(), name == "cuMemSetAccess" ? 1 : 3, 0);
    EXPECT_THROW(device->map(range, 0, 4 * granule), DeviceError);
    EXPECT_EQ(fake_cuda_live().mappings, 0u);
  }
  device->map(range, 0, 4 * granule);
  EXPECT_EQ(fake_cuda_live().mappings, 4u);
}

TEST_F(CudaDeviceFaults, GoesOnWhereAnUnmappingStopped) {
  const auto device = open_cuda_device({.scratch = 0});
  const Bytes granule = device->granularity();
  void* const range = device->reserve(4 * granule);
  device->map(range, 0, granule);
  device->map(range, 2 * granule, 2 * granule);  // another run
  fake_cuda_fail_call("cuMemUnmap", 2, 0);
  EXPECT_THROW(device->unreserve(range), DeviceError);
  EXPECT_EQ(fake_cuda_live().mappings, 2u);
  device->unreserve(range);
  EXPECT_EQ(live_objects(), 1u);  // the cuBLASLt handle
}

TEST_F(CudaDeviceFaults, AFailedReleaseCanBeRepeated) {
  const auto device = open_cuda_device({.scratch = 0});
  void* const memory = device->allocate(MemoryKind::device, 100);
  void* const pinned = device->allocate(MemoryKind::pinned, 100);
  fake_cuda_fail_call("cuMemAddressFree", 1, 0);
  EXPECT_THROW(device->release(MemoryKind::device, memory), DeviceError);
  device->release(MemoryKind::device, memory);
  fake_cuda_fail_call("cudaHostUnregister", 1, 0);
  EXPECT_THROW(device->release(MemoryKind::pinned, pinned), DeviceError);
  device->release(MemoryKind::pinned, pinned);
  EXPECT_EQ(live_objects(), 1u);
}

// Whoever launched them takes that for their end, and may free what they use.
TEST_F(CudaDeviceFaults, ALostCardRunsNoFunctionOnceItsLaneHasSaidSo) {
  AddKernel kernel;
  std::atomic<int> ran = 0;
  {
    const auto device = open_cuda_device();
    const LaneId compute = device->create_lane(LaneRole::compute), host = device->create_lane(LaneRole::host);
    auto* const memory = static_cast<std::byte*>(device->allocate(MemoryKind::device, 4096));
    Launch slow;
    slow.name = "slow";
    slow.function = [](void* count) {
      ++*static_cast<std::atomic<int>*>(count);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    slow.context = &ran;
    for (int i = 0; i < 300; ++i) device->launch(host, slow);
    fake_cuda_fault_kernel(1, 700);  // cudaErrorIllegalAddress
    kernel.launch(*device, compute, memory, memory + 1024);
    EXPECT_THROW(device->synchronise_lane(compute), DeviceError);
    EXPECT_THROW(device->synchronise_lane(host), DeviceError);
    const int before = ran;
    EXPECT_LT(before, 300);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(ran, before);
  }
}

TEST_F(CudaDeviceFaults, ALostCardIsNamedByEveryLaterCall) {
  constexpr int illegal_address = 700;
  AddKernel kernel;
  {
    const auto device = open_cuda_device();
    const LaneId compute = device->create_lane(LaneRole::compute), host = device->create_lane(LaneRole::host);
    const EventId event = device->create_event();
    auto* const memory = static_cast<std::byte*>(device->allocate(MemoryKind::device, 4096));
    fake_cuda_fault_kernel(1, illegal_address);
    kernel.launch(*device, compute, memory, memory + 1024);
    try {
      device->synchronise_lane(compute);
      FAIL() << "the fault was lost";
    } catch (const DeviceError& error) {
      EXPECT_THAT(error.what(),
                  testing::AllOf(HasSubstr("synchronise_lane: cuda"), HasSubstr("device 0"),
                                 HasSubstr("cudaErrorIllegalAddress"), HasSubstr("compute-sanitizer")));
    }
    fake_cuda_forget_calls();
    const std::vector<std::pair<const char*, std::function<void()>>> later = {
        {"allocate", [&] { device->allocate(MemoryKind::device, 1); }},
        {"release", [&] { device->release(MemoryKind::device, memory); }},
        {"reserve", [&] { device->reserve(device->granularity()); }},
        {"create_lane", [&] { device->create_lane(LaneRole::h2d); }},
        {"create_event", [&] { device->create_event(); }},
        {"record", [&] { device->record(event, host); }},
        {"synchronise_lane", [&] { device->synchronise_lane(host); }},
        {"memory_info", [&] { device->memory_info(); }},
    };
    for (const auto& [call, make] : later) {
      try {
        make();
        FAIL() << call << " went through";
      } catch (const DeviceError& error) {
        EXPECT_EQ(error.call(), call);
        EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("lost"), HasSubstr("synchronise_lane: cuda"),
                                                 HasSubstr("cudaErrorIllegalAddress")));
      }
    }
    EXPECT_EQ(fake_cuda_calls(nullptr), 0u);  // none of them asked the card
  }
  fake_cuda_reset();  // as a new process would find it
  const auto device = open_cuda_device();
  device->destroy_lane(device->create_lane(LaneRole::compute));
}

}  // namespace
}  // namespace stowage
