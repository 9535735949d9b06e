#include "tests/fake_cuda/block_runner.h"

#include <link.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "tests/fake_cuda/shim_runtime.h"

extern "C" {
__thread StowageShimPosition stowage_shim_position __attribute__((tls_model("initial-exec"))) = {};

void* stowage_shim_dynamic_shared() { return fake_cuda::BlockRunner::current().dynamic_shared(); }
void stowage_shim_sync_threads() { fake_cuda::BlockRunner::current().sync_threads(); }
void stowage_shim_sync_warp() { fake_cuda::BlockRunner::current().sync_warp(); }
std::uint64_t stowage_shim_shuffle(std::uint64_t value, unsigned source) {
  return fake_cuda::BlockRunner::current().shuffle(value, source);
}
unsigned stowage_shim_lane() {
  return fake_cuda::BlockRunner::current().thread() % fake_cuda::BlockRunner::warp_size;
}
}

namespace fake_cuda {
namespace {

// Blocks of a launch that find 0xff in shared memory; the others find what an earlier block left.
constexpr std::size_t poisoned_blocks = 8;
constexpr std::size_t shared_alignment = 128;

// This thread's static shared memory: all thread-local variables of the library that holds the kernel,
// which has no others.
struct StaticShared {
  std::uintptr_t code = 0;
  std::size_t module = 0;
  std::size_t bytes = 0;
};

int find_static_shared(dl_phdr_info* info, std::size_t, void* found_pointer) {
  auto& found = *static_cast<StaticShared*>(found_pointer);
  bool holds_code = false;
  std::size_t bytes = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    const std::uintptr_t start = info->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD && found.code - start < header.p_memsz) holds_code = true;
    if (header.p_type == PT_TLS) bytes = header.p_memsz;
  }
  if (!holds_code) return 0;
  found.module = info->dlpi_tls_modid;
  found.bytes = bytes;
  return 1;
}

// The platform's own way to them, which also makes them where the thread has not touched any yet.
struct ThreadLocal {
  std::size_t module, offset;
};
extern "C" void* __tls_get_addr(ThreadLocal*);

}  // namespace

namespace {
__thread BlockRunner* current_runner __attribute__((tls_model("initial-exec"))) = nullptr;
}

BlockRunner& BlockRunner::current() { return *current_runner; }

BlockRunner& BlockRunner::of_this_thread() {
  static thread_local BlockRunner runner;
  return runner;
}

void BlockRunner::fail(const char* what) const {
  std::fprintf(stderr, "fake CUDA: %s (block %u, %u, %u; threads in %s order, launch %u)\n", what,
               stowage_shim_position.block.x, stowage_shim_position.block.y, stowage_shim_position.block.z,
               thread_order_names[static_cast<std::size_t>(order_)], kernel_.orders.launch);
  std::abort();
}

void BlockRunner::run(const KernelRun& kernel) {
  current_runner = this;
  kernel_ = kernel;
  thread_count_ = static_cast<unsigned>(kernel.threads.count());
  allocate_dynamic_shared();
  auto& position = stowage_shim_position;
  position.block_size = {kernel.threads.x, kernel.threads.y, kernel.threads.z};
  position.grid_size = {kernel.blocks.x, kernel.blocks.y, kernel.blocks.z};
  std::size_t number = 0;
  for (unsigned z = 0; z < kernel.blocks.z; ++z) {
    for (unsigned y = 0; y < kernel.blocks.y; ++y) {
      for (unsigned x = 0; x < kernel.blocks.x; ++x) {
        position.block = {x, y, z};
        poison_shared(number);
        run_block(number++);
      }
    }
  }
}

// Of the exact size, so that the address sanitizer sees an overrun.
void BlockRunner::allocate_dynamic_shared() {
  void* memory = nullptr;
  if (kernel_.shared_bytes > 0 && posix_memalign(&memory, shared_alignment, kernel_.shared_bytes) != 0) {
    fail("no memory for dynamic shared memory");
  }
  dynamic_shared_.reset(memory);
}

void BlockRunner::poison_shared(std::size_t block) {
  if (block >= poisoned_blocks) return;
  StaticShared shared;
  shared.code = reinterpret_cast<std::uintptr_t>(kernel_.run);
  dl_iterate_phdr(find_static_shared, &shared);
  ThreadLocal first{shared.module, 0};
  if (shared.bytes > 0) std::memset(__tls_get_addr(&first), 0xff, shared.bytes);
  if (dynamic_shared_) std::memset(dynamic_shared_.get(), 0xff, kernel_.shared_bytes);
}

void BlockRunner::order_threads(std::size_t block) {
  order_ = kernel_.orders.of_block(block);
  threads_.resize(thread_count_);
  std::iota(threads_.begin(), threads_.end(), 0U);
  if (order_ == ThreadOrder::reversed) std::reverse(threads_.begin(), threads_.end());
  if (order_ != ThreadOrder::random) return;
  random_.seed(static_cast<unsigned>(kernel_.orders.launch + block));
  std::shuffle(threads_.begin(), threads_.end(), random_);
}

void BlockRunner::run_block(std::size_t number) {
  order_threads(number);
  next_thread_ = 0;
  block_.members = thread_count_;
  block_.finished = 0;
  warps_.resize((thread_count_ + warp_size - 1) / warp_size);
  for (std::size_t i = 0; i < warps_.size(); ++i) {
    warps_[i].barrier.members = std::min(warp_size, thread_count_ - static_cast<unsigned>(i) * warp_size);
    warps_[i].barrier.finished = 0;
    warps_[i].parity = 0;
  }
  running_ = nullptr;
  leave();
  if (block_.finished != thread_count_) fail("a block's threads wait for each other at different barriers");
}

bool BlockRunner::start_next_thread() {
  if (next_thread_ == thread_count_) return false;
  const unsigned thread = threads_[next_thread_++];
  const unsigned line = thread / kernel_.threads.x;
  running_->thread = thread;
  running_->position = {thread % kernel_.threads.x, line % kernel_.threads.y, line / kernel_.threads.y};
  stowage_shim_position.thread = running_->position;
  return true;
}

void BlockRunner::finish_thread() {
  ++block_.finished;
  ++warp().barrier.finished;
  if (!block_.waiting.empty()) fail("a thread returned while others wait at __syncthreads()");
  if (!warp().barrier.waiting.empty()) fail("a thread returned while others of its warp wait for it");
}

void BlockRunner::work(void* pointer) {
  auto* worker = static_cast<Worker*>(pointer);
  BlockRunner& runner = *worker->runner;
  for (;;) {
    while (runner.start_next_thread()) {
      runner.kernel_.run(runner.kernel_.args);
      runner.finish_thread();
    }
    runner.idle_.push_back(worker);
    runner.leave();
  }
}

void BlockRunner::go_on(Worker* worker) {
  Fiber& from = running_ == nullptr ? main_ : *running_->fiber;
  Worker* const self = running_;
  if (worker == self) return;
  running_ = worker;
  from.switch_to(worker == nullptr ? main_ : *worker->fiber);
  // Whoever switched back here has set running_.
}

void BlockRunner::leave() {
  Worker* next = nullptr;
  if (!ready_.empty()) {
    next = ready_.front();
    ready_.pop_front();
    stowage_shim_position.thread = next->position;
  } else if (next_thread_ < thread_count_) {
    if (idle_.empty()) {
      workers_.push_back(std::make_unique<Worker>());
      Worker* worker = workers_.back().get();
      worker->runner = this;
      worker->fiber = std::make_unique<Fiber>(&BlockRunner::work, worker);
      idle_.push_back(worker);
    }
    next = idle_.back();
    idle_.pop_back();
  }
  go_on(next);
}

void BlockRunner::arrive(Barrier& barrier, const char* name) {
  if (barrier.finished > 0) fail(name);
  barrier.waiting.push_back(running_);
  if (barrier.waiting.size() == barrier.members) {
    if (order_ == ThreadOrder::random) {
      std::shuffle(barrier.waiting.begin(), barrier.waiting.end(), random_);
    }
    ready_.insert(ready_.end(), barrier.waiting.begin(), barrier.waiting.end());
    barrier.waiting.clear();
  }
  leave();
}

void BlockRunner::sync_threads() {
  arrive(block_, "__syncthreads() after a thread of the block has returned");
}

void BlockRunner::sync_warp() {
  arrive(warp().barrier, "a warp function after a thread of the warp has returned");
}

std::uint64_t BlockRunner::shuffle(std::uint64_t value, unsigned source) {
  Warp& mine = warp();
  const unsigned lane = running_->thread % warp_size;
  const unsigned parity = mine.parity;
  mine.values[parity][lane] = value;
  const bool is_last = mine.barrier.waiting.size() + 1 == mine.barrier.members;
  if (is_last) mine.parity ^= 1U;
  sync_warp();
  return source < mine.barrier.members ? mine.values[parity][source] : value;
}

}  // namespace fake_cuda
