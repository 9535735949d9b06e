// In the steady state the device allocates nothing: operator new is counted over many steps.
#include "src/device/simulated/lane_runner.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <future>
#include <new>
#include <type_traits>
#include <vector>

#include "stowage/simulated_device.h"
#include "tests/device/simulated/executors.h"

namespace {
std::atomic<std::uint64_t> news{0};
}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++news;
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++news;
  return std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace stowage::simulated {
namespace {

static_assert(std::is_trivially_copyable_v<Task>);

// A step like an engine's: prefetch, compute in pieces, offload, host update, discards, and waits on
// the step before.
class Stepper {
 public:
  static constexpr Bytes piece = 1024;
  static constexpr int pieces = 16;

  explicit Stepper(Device& device)
      : device_(device),
        memory_(device, MemoryKind::device, 2 * pieces * piece),
        pinned_(device, MemoryKind::pinned, pieces * piece),
        compute_(device, LaneRole::compute),
        h2d_(device, LaneRole::h2d),
        d2h_(device, LaneRole::d2h),
        host_(device, LaneRole::host) {
    for (int i = 0; i < 5 * pieces; ++i) events_.emplace_back(device);
  }
  ~Stepper() {
    for (const Lane* lane : {&h2d_, &compute_, &d2h_, &host_}) device_.synchronise_lane(lane->id());
  }

  void enqueue() {
    for (int i = 0; i < pieces; ++i) {
      std::byte* const in = memory_.data() + static_cast<Bytes>(2 * i) * piece;
      std::byte* const out = in + piece;
      std::byte* const host = pinned_.data() + static_cast<Bytes>(i) * piece;
      chain(h2d_, 5 * i + 4, 5 * i,
            [&] { device_.copy(h2d_.id(), in, host, piece, "prefetch of a weight bucket"); });
      chain(compute_, 5 * i, 5 * i + 1, [&] { halves(in, out); });
      chain(d2h_, 5 * i + 1, 5 * i + 2,
            [&] { device_.copy(d2h_.id(), host, out, piece, "offload of a gradient bucket"); });
      chain(compute_, 5 * i + 2, 5 * i + 3, [&] { device_.discard(compute_.id(), in, 2 * piece); });
      chain(host_, 5 * i + 3, 5 * i + 4, [&] {
        launch(host_, "update of a weight bucket",
               {{{host, piece, AccessMode::read}, {host, piece, AccessMode::write}}});
      });
    }
  }
  void step() {
    enqueue();
    device_.synchronise(events_.back().id());
  }
  // A step whose lanes start only when all of it is queued: the longest queues there can be.
  void step_at_once() {
    std::promise<void> promise;
    std::shared_future<void> opened = promise.get_future().share();
    Launch gate;
    gate.name = "gate";
    gate.function = [](void* future) { static_cast<std::shared_future<void>*>(future)->wait(); };
    gate.context = &opened;
    for (const Lane* lane : {&h2d_, &compute_, &d2h_, &host_}) device_.launch(lane->id(), gate);
    enqueue();
    promise.set_value();
    device_.synchronise(events_.back().id());
  }

 private:
  template <class Work>
  void chain(const Lane& lane, int after, int event, Work&& work) {
    device_.wait(lane.id(), events_[static_cast<std::size_t>(after)].id());
    work();
    device_.record(events_[static_cast<std::size_t>(event)].id(), lane.id());
  }
  void halves(std::byte* in, std::byte* out) {
    for (Bytes at = 0; at < piece; at += piece / 2)
      launch(compute_, "half of a layer, forward",
             {{{in + at, piece / 2, AccessMode::read}, {out + at, piece / 2, AccessMode::write}}});
  }
  void launch(const Lane& lane, std::string_view name, const std::array<Access, 2>& accesses) {
    Launch launch;
    launch.name = name;
    launch.function = [](void*) {};
    launch.accesses = accesses;
    device_.launch(lane.id(), launch);
  }

  Device& device_;
  DeviceMemory memory_, pinned_;
  std::vector<Event> events_;
  Lane compute_, h2d_, d2h_, host_;
};

class SteadyState : public testing::TestWithParam<Executor> {};

TEST_P(SteadyState, AllocatesNothing) {
  const auto device = open_simulated_device({.executor = GetParam()});
  Stepper stepper(*device);
  for (int i = 0; i < 3; ++i) stepper.step();
  if (GetParam() == Executor::threaded) stepper.step_at_once();
  const std::uint64_t before = news;
  for (int i = 0; i < 50; ++i) stepper.step();
  EXPECT_EQ(news - before, 0u);
}

INSTANTIATE_TEST_SUITE_P(Executors, SteadyState, both_executors(),
                         [](const auto& info) { return executor_name(info.param); });

TEST(OperatorNew, IsCounted) {
  const std::uint64_t before = news;
  const std::vector<int> some(100);
  EXPECT_GT(news, before) << some.size();
}

}  // namespace
}  // namespace stowage::simulated
