#include "tests/fake_cuda/fiber.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace fake_cuda_test {
namespace {

using fake_cuda::Fiber;

struct Visit {
  Fiber* home = nullptr;
  Fiber* self = nullptr;
  std::vector<int> steps;
  void* local = nullptr;
};

void count_up(void* pointer) {
  auto& visit = *static_cast<Visit*>(pointer);
  for (int step = 0;; ++step) {
    visit.steps.push_back(step);
    visit.self->switch_to(*visit.home);
  }
}

void leave_an_array(void* pointer) {
  auto& visit = *static_cast<Visit*>(pointer);
  volatile char array[100] = {};
  visit.local = const_cast<char*>(array);
  for (;;) visit.self->switch_to(*visit.home);
}

TEST(Fiber, GoesOnWhereItLeft) {
  Fiber home;
  Visit first, second;
  Fiber one(count_up, &first), two(count_up, &second);
  first.home = second.home = &home;
  first.self = &one;
  second.self = &two;
  for (int i = 0; i < 3; ++i) {
    home.switch_to(one);
    home.switch_to(two);
  }
  home.switch_to(one);
  EXPECT_EQ(first.steps, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(second.steps, (std::vector<int>{0, 1, 2}));
}

// A fiber is destroyed in the middle of its work. Its addresses are as good as new, also to the address
// sanitizer.
TEST(Fiber, ADestroyedFibersStackCanBeMappedAgain) {
  Fiber home;
  Visit visit;
  auto fiber = std::make_unique<Fiber>(leave_an_array, &visit);
  visit.home = &home;
  visit.self = fiber.get();
  home.switch_to(*fiber);
  fiber.reset();
  constexpr std::size_t page = 4096;
  void* const wanted = reinterpret_cast<void*>(  // NOLINT(performance-no-int-to-ptr)
      reinterpret_cast<std::uintptr_t>(visit.local) / page * page);
  void* const again = mmap(wanted, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_EQ(again, wanted);
  std::memset(again, 1, page);
  EXPECT_EQ(static_cast<char*>(again)[page - 1], 1);
  munmap(again, page);
}

}  // namespace
}  // namespace fake_cuda_test
