// No allocation after the first step: counted in the calling thread and on the device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "stowage/engine.h"
#include "stowage/planner.h"
#include "stowage/simulated_device.h"
#include "tests/offload/engine/immediate_device.h"
#include "tests/offload/engine/tiny_step.h"
#include "tests/offload/engine/training_run.h"
#include "tests/support/quick_plan.h"

namespace {

thread_local std::uint64_t allocations = 0;

void* counted(std::size_t size, std::size_t alignment) noexcept {
  ++allocations;
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

void* counted_or_throw(std::size_t size, std::size_t alignment) {
  void* result = counted(size, alignment);
  if (result == nullptr) throw std::bad_alloc();
  return result;
}

}  // namespace

// Every form, the nothrow ones too: a sanitizer brings its own for those left out, and its memory is not
// std::free's.
void* operator new(std::size_t size) { return counted_or_throw(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return counted(size, alignof(std::max_align_t));
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return counted_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return counted(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* address) noexcept { std::free(address); }
void operator delete(void* address, std::size_t) noexcept { std::free(address); }
void operator delete(void* address, std::align_val_t) noexcept { std::free(address); }
void operator delete(void* address, std::size_t, std::align_val_t) noexcept { std::free(address); }

namespace stowage {
namespace {

using namespace stowage::testing;

EngineOptions tiny_options() {
  EngineOptions options;
  options.seed = run_seed;
  options.kernels = tiny_kernels();
  return options;
}

TEST(Allocations, AreCounted) {
  struct alignas(64) Wide {
    int value;
  };
  // Else the compiler may make no allocation of a pair.
  const auto kept = [](auto* made) {
    [[maybe_unused]] static void* volatile sink;
    sink = made;
    return made;
  };
  const std::uint64_t before = allocations;
  delete kept(new int(1));
  delete kept(new (std::nothrow) int(1));
  delete kept(new Wide{1});
  delete kept(new (std::nothrow) Wide{1});
  EXPECT_EQ(allocations, before + 4);
}

// Calls of `operator new` in the calling thread in steps 1 to 4, after step 0.
std::uint64_t allocations_of_steps(Device& device, const Graph& graph, const Plan& plan,
                                   const EngineOptions& options) {
  Engine engine(device, graph, plan, options);
  StepInputs inputs(graph, 5);
  make_step(engine, inputs);
  const std::uint64_t before = allocations;
  for (int step = 0; step < 4; ++step) make_step(engine, inputs);
  engine.drain();
  return allocations - before;
}

TEST(Allocations, TheEngineMakesNoneAfterTheFirstStep) {
  for (const Plan& plan : {tiny_streamed_plan(), tiny_resident_plan()}) {
    ImmediateDevice device;
    EXPECT_EQ(allocations_of_steps(device, tiny_graph(), plan, tiny_options()), 0U);
  }
}

TEST(Allocations, NorDoesItForAGpt) {
  const Graph graph = smallest_gpt(2);
  const Machine machine;
  const PlanOptions options{.bucket_bytes = 512};
  for (Bytes budget : {minimum_bytes(graph, machine, options), need_bytes(graph, machine)}) {
    const Plan plan = std::get<Plan>(quick_plan(graph, machine, {.device = budget}, options));
    ImmediateDevice device(false);
    EXPECT_EQ(allocations_of_steps(device, graph, plan, {}), 0U);
  }
}

// Every op writes zeros, so that a replay has something to agree with.
void write_zeros(const LaunchArguments& arguments) {
  for (const Operand& write : arguments.writes) std::memset(write.data, 0, write.tensor->bytes());
}

TEST(Allocations, NorDoesItInVerifyMode) {
  const Graph graph = smallest_gpt(2);
  constexpr Link slow{.bytes_per_second = 1e6, .latency_seconds = 1e-3};
  const Machine machine{.h2d = slow, .d2h = slow};  // so that activations are rebuilt
  const PlanOptions plan_options{.bucket_bytes = 512};
  const Bytes budget = (minimum_bytes(graph, machine, plan_options) + need_bytes(graph, machine)) / 2;
  const Plan plan = std::get<Plan>(quick_plan(graph, machine, {.device = budget}, plan_options));
  ASSERT_TRUE(std::any_of(plan.instructions.begin(), plan.instructions.end(),
                          [](const Instruction& each) { return each.kind == InstructionKind::recompute; }));
  EngineOptions options;
  options.verify_recompute = true;
  options.kernels.emplace();
  for (const Op& op : graph.ops) options.kernels->add(op.kernel, write_zeros);
  ImmediateDevice device;
  EXPECT_EQ(allocations_of_steps(device, graph, plan, options), 0U);
}

TEST(Allocations, NorDoesTheDevice) {
  for (const Plan& plan : {tiny_streamed_plan(), tiny_resident_plan()}) {
    const Graph graph = tiny_graph();
    const auto device = open_simulated_device({.capacity = plan.device_peak_bytes});
    Engine engine(*device, graph, plan, tiny_options());
    EXPECT_EQ(device->counters().device_allocations, 1U);
    StepInputs inputs(graph, 5);
    const std::uint64_t pinned = device->counters().pinned_allocations;
    for (int step = 0; step < 5; ++step) make_step(engine, inputs);
    EXPECT_EQ(device->counters().device_allocations, 1U);
    EXPECT_EQ(device->counters().pinned_allocations, pinned);
  }
}

}  // namespace
}  // namespace stowage
