// Planned periods through the C interface, over the fakes of CUDA, as PyTorch would use them: what is
// reserved of what lives, with plans and without, in workloads of bench/replay whose lives are irregular.
//
// STOWAGE_PERIOD_SEEDS=50 plays so many seeds of each workload, as bench/replay/run does. Each trace prints a
// line.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/history/allocation_trace.h"
#include "stowage/c_allocator.h"
#include "tests/fake_cuda/fake_cuda.h"
#include "tools/replay/generated_traces.h"

namespace stowage {
namespace {

constexpr std::size_t iterations = 5, first_judged = 3;

// Of one process. Peaks are of each iteration.
struct Outcome {
  bool is_complete = false;
  std::array<Bytes, iterations> reserved{};
  Bytes device_bytes = 0;  // mapped at the end, as the card counts
  stowage_statistics statistics{};
};

class Library {
 public:
  template <class Function>
  static Function* function(const char* name) {
    static void* const library = dlopen(STOWAGE_ALLOCATOR_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    auto* const found = library == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library, name));
    if (found == nullptr) throw std::runtime_error(dlerror());
    return found;
  }

  void* (*const malloc)(ssize_t, int, void*) = function<void*(ssize_t, int, void*)>("stowage_malloc");
  void (*const free)(void*, ssize_t, int, void*) = function<void(void*, ssize_t, int, void*)>("stowage_free");
  int (*const begin_iteration)(int) = function<int(int)>("stowage_begin_iteration");
  int (*const reset_peaks)(int) = function<int(int)>("stowage_reset_peaks");
  int (*const get_statistics)(int, stowage_statistics*) =
      function<int(int, stowage_statistics*)>("stowage_get_statistics");

  stowage_statistics statistics() const {
    stowage_statistics found{};
    found.struct_bytes = sizeof found;
    if (get_statistics(0, &found) != STOWAGE_OK) throw std::runtime_error("get_statistics failed");
    return found;
  }
};

Outcome play(const AllocationTrace& trace) {
  const Library library;
  Outcome outcome;
  std::vector<void*> blocks(trace.allocations);
  for (Bytes& reserved : outcome.reserved) {
    library.reset_peaks(0);
    if (library.begin_iteration(0) != STOWAGE_OK) return outcome;
    for (const TraceOperation& operation : trace.operations) {
      void*& block = blocks[operation.id];
      const auto bytes = static_cast<ssize_t>(operation.bytes);
      if (operation.kind == TraceKind::free) {
        library.free(block, bytes, 0, nullptr);
      } else if ((block = library.malloc(bytes, 0, nullptr)) == nullptr) {
        return outcome;
      }
    }
    reserved = library.statistics().peak_reserved;
  }
  outcome.statistics = library.statistics();
  outcome.device_bytes = fake_cuda_live().physical_bytes;
  outcome.is_complete = true;
  return outcome;
}

// The library reads its environment once, so each run has a process of its own.
Outcome play_in_child(const AllocationTrace& trace, const char* plan_periods) {
  std::array<int, 2> ends{};
  Outcome outcome;
  EXPECT_EQ(pipe(ends.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    setenv("STOWAGE_PLAN_PERIODS", plan_periods, 1);
    try {
      outcome = play(trace);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    _exit(write(ends[1], &outcome, sizeof outcome) == sizeof outcome ? 0 : 1);
  }
  close(ends[1]);
  EXPECT_EQ(read(ends[0], &outcome, sizeof outcome), static_cast<ssize_t>(sizeof outcome));
  close(ends[0]);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return outcome;
}

struct Workload {
  const char* name;
  std::uint64_t usual, most;  // seeds: in tests, and in bench/replay/run
  Bytes least_live;           // traces of less are passed over
  std::function<AllocationTrace(std::uint64_t seed)> make;
};

class PlannedPeriodsTest : public testing::TestWithParam<Workload> {};

TEST_P(PlannedPeriodsTest, ReserveLittleMoreThanWhatLives) {
  const char* const asked = std::getenv("STOWAGE_PERIOD_SEEDS");
  const std::uint64_t seeds = asked == nullptr
                                  ? GetParam().usual
                                  : std::min(std::strtoull(asked, nullptr, 10), 0ULL + GetParam().most);
  std::uint64_t played = 0;
  for (std::uint64_t seed = first_generated_seed; seed < first_generated_seed + seeds; ++seed) {
    const AllocationTrace trace = GetParam().make(seed);
    const Bytes live = peak_live_bytes(trace);
    if (live < GetParam().least_live) continue;
    ++played;
    const Outcome without = play_in_child(trace, ""), with = play_in_child(trace, "1");
    ASSERT_TRUE(without.is_complete && with.is_complete) << seed;
    const auto most = [](const Outcome& outcome) {
      return *std::max_element(outcome.reserved.begin() + first_judged, outcome.reserved.end());
    };
    const auto ratio = [&](Bytes bytes) { return static_cast<double>(bytes) / static_cast<double>(live); };
    const stowage_statistics& seen = with.statistics;
    std::printf(
        "%s %llu: live %llu, reserved of it without %.4f, with %.4f; %llu plans, %llu hits, %llu misses\n",
        GetParam().name, 0ULL + seed, 0ULL + live, ratio(most(without)), ratio(most(with)), 0ULL + seen.plans,
        0ULL + seen.plan_hits, 0ULL + seen.plan_misses);
    EXPECT_LE(ratio(most(with)), 1.012) << seed;
    for (std::size_t i = first_judged; i < iterations; ++i)
      EXPECT_LE(with.reserved[i], without.reserved[i]) << seed;

    // The first iteration is recorded, the others are served.
    EXPECT_EQ(seen.plans, 1u) << seed;
    EXPECT_EQ(seen.plan_hits, (iterations - 1) * trace.allocations) << seed;
    EXPECT_EQ(seen.plan_unplanned + seen.plan_misses, 0u) << seed;
    EXPECT_EQ(seen.allocations, iterations * trace.allocations) << seed;
    EXPECT_EQ(seen.allocated, 0u) << seed;
    EXPECT_EQ(with.device_bytes, seen.reserved) << seed;
    EXPECT_EQ(without.device_bytes, without.statistics.reserved) << seed;
    EXPECT_EQ(without.statistics.plans + without.statistics.plan_hits + without.statistics.plan_reserved, 0u);
  }
  EXPECT_GE(played, 1u);
}

INSTANTIATE_TEST_SUITE_P(
    Replayed, PlannedPeriodsTest,
    testing::Values(
        Workload{"long-among-short", 1, 4, 0,
                 [](std::uint64_t seed) { return generated_programs(seed)[0].trace; }},
        Workload{"generated-lifetimes", 4, generated_traces, 420'000'000,
                 [](std::uint64_t seed) { return trace_of_lifetimes(generated_lifetimes(seed)); }},
        Workload{"large-queue", 1, 4, 0, [](std::uint64_t seed) { return large_queues(seed)[0].trace; }}),
    [](const auto& workload) {
      std::string name = workload.param.name;
      std::erase(name, '-');
      return name;
    });

}  // namespace
}  // namespace stowage
