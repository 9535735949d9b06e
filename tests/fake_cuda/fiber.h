// Stacks to switch between on one thread.
//
// The address sanitizer is told of each switch. The thread sanitizer is not: to it they are one thread, which
// is what they are (a fiber of its own costs it microseconds for each switch). It counts calls and returns,
// so this file and block_runner.cpp are compiled without it, and whoever is called from there returns in the
// end; only the call stacks that it prints for kernels with barriers may be wrong.
#pragma once

#include <cstddef>

namespace fake_cuda {

class Fiber {
 public:
  // The fiber that runs on the thread's own stack.
  Fiber();
  // Runs `entry(argument)` when first switched to; `entry` must never return. The fiber may be destroyed
  // wherever it stands.
  Fiber(void (*entry)(void*), void* argument);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  // Leaves this fiber, which must be the running one, for `to`. Returns when something switches back.
  void switch_to(Fiber& to);

 private:
  static void begin(Fiber* fiber);
  void arrived();

  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  void* mapping_ = nullptr;
  void* stack_pointer_ = nullptr;
  Fiber* from_ = nullptr;  // whom the last switch to this one left
  const void* bottom_ = nullptr;
  std::size_t bytes_ = 0;
  void* sanitizer_stack_ = nullptr;
};

}  // namespace fake_cuda
