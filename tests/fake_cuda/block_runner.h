// Runs a kernel: one block after another, the threads of a block on fibers of the calling thread.
//
// A thread runs straight through as a function call on the fiber of the one before, until it comes to a
// barrier; only then does the next thread get a fiber of its own. Behind a barrier all go on one by one, in
// the block's order (thread_order.h): a kernel that lacks a barrier computes something else in some of its
// blocks.
#pragma once

#include <vector_types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "tests/fake_cuda/fiber.h"
#include "tests/fake_cuda/thread_order.h"

namespace fake_cuda {

struct GridSize {
  unsigned x = 1, y = 1, z = 1;
  std::size_t count() const { return std::size_t{x} * y * z; }
};

struct KernelRun {
  void (*run)(void** args) = nullptr;
  void** args = nullptr;
  GridSize blocks, threads;
  std::size_t shared_bytes = 0;
  ThreadOrders orders;
};

class BlockRunner {
 public:
  static constexpr unsigned warp_size = 32;
  // One for each thread, kept for its stacks.
  static BlockRunner& of_this_thread();
  // The one that runs a kernel on this thread.
  static BlockRunner& current();

  void run(const KernelRun& kernel);

  // What the shim's functions do, on a thread of the block that runs.
  void sync_threads();
  void sync_warp();
  std::uint64_t shuffle(std::uint64_t value, unsigned source);
  unsigned thread() const { return running_->thread; }
  void* dynamic_shared() const { return dynamic_shared_.get(); }

 private:
  struct Worker {
    BlockRunner* runner = nullptr;
    unsigned thread = 0;  // the one it is in the middle of
    uint3 position{};
    std::unique_ptr<Fiber> fiber;
  };
  // Those who wait until all of a group are there.
  struct Barrier {
    unsigned members = 0;
    unsigned finished = 0;  // of the members, threads that have returned
    std::vector<Worker*> waiting;
  };
  struct Warp {
    Barrier barrier;
    unsigned parity = 0;
    // A lane that is through may pass in its next value while others still read.
    std::array<std::array<std::uint64_t, warp_size>, 2> values;
  };

  void run_block(std::size_t number);
  void order_threads(std::size_t block);
  static void work(void* worker);
  bool start_next_thread();
  void finish_thread();
  void arrive(Barrier& barrier, const char* name);
  void leave();  // the running worker, for whoever can go on
  void go_on(Worker* worker);
  void allocate_dynamic_shared();
  void poison_shared(std::size_t block);
  Warp& warp() { return warps_[running_->thread / warp_size]; }
  [[noreturn]] void fail(const char* what) const;

  KernelRun kernel_;
  unsigned thread_count_ = 0;
  ThreadOrder order_ = ThreadOrder::forward;
  std::minstd_rand random_;
  std::vector<unsigned> threads_;  // in the order in which they start
  unsigned next_thread_ = 0;       // of `threads_`
  Fiber main_;
  Worker* running_ = nullptr;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Worker*> idle_;
  std::deque<Worker*> ready_;
  Barrier block_;
  std::vector<Warp> warps_;
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> dynamic_shared_;
};

}  // namespace fake_cuda
