// parallel_for over oneTBB: one arena for the whole process, as wide as the threads allowed.
//
// A caller joins the arena; where no place is free, the arena's threads run the loop for it. A loop
// is isolated: a thread that waits for its own loop never picks up a chunk of another one, so that
// a kernel's thread-local scratch is not entered twice.
//
// The process waits for oneTBB's threads before it ends: otherwise they would free objects that static
// destructors have destroyed already.
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <new>
#include <thread>

#include "src/base/mutex.h"
#include "src/base/parallel_for.h"

namespace stowage {
namespace {

// The control raises oneTBB's limit where more threads than the machine's cores are asked for.
struct Threads {
  explicit Threads(int threads)
      : count(threads),
        control(tbb::global_control::max_allowed_parallelism, static_cast<std::size_t>(threads)),
        arena(threads) {}
  int count;
  tbb::global_control control;
  tbb::task_arena arena;
};

int all_cores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

struct Current {
  Current() = default;
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  ~Current() {
    threads.reset();
    if (::getpid() == process_)
      tbb::finalize(scheduler_, std::nothrow);  // not in a forked child, which has no such threads
  }

  Mutex mutex;
  std::shared_ptr<Threads> threads STOWAGE_GUARDED_BY(mutex) = std::make_shared<Threads>(all_cores());

 private:
  tbb::task_scheduler_handle scheduler_{tbb::attach{}};
  const pid_t process_ = ::getpid();
};

Current& current() {
  static Current instance;
  return instance;
}

// A loop keeps the arena that it started in if another number of threads is set meanwhile.
std::shared_ptr<Threads> current_threads() {
  Current& now = current();
  MutexLock lock(now.mutex);
  return now.threads;
}

}  // namespace

void set_parallel_threads(int threads) {
  std::shared_ptr<Threads> replaced;  // destroyed after the lock is released
  Current& now = current();
  MutexLock lock(now.mutex);
  replaced = std::move(now.threads);
  now.threads = std::make_shared<Threads>(threads > 0 ? threads : all_cores());
}

int parallel_threads() { return current_threads()->count; }

namespace detail {

void run_chunks(std::int64_t count, std::int64_t chunk, ChunkFunction function, void* context) {
  if (count <= 0) return;
  chunk = std::max<std::int64_t>(chunk, 1);
  if (count <= chunk) return function(context, 0, count);
  const std::int64_t chunks = (count - 1) / chunk + 1;
  auto run = [&](const tbb::blocked_range<std::int64_t>& range) {
    for (std::int64_t index = range.begin(); index != range.end(); ++index) {
      const std::int64_t begin = index * chunk;
      function(context, begin, begin + std::min(chunk, count - begin));
    }
  };
  auto loop = [&] {
    tbb::parallel_for(tbb::blocked_range<std::int64_t>(0, chunks), run, tbb::simple_partitioner());
  };
  const std::shared_ptr<Threads> threads = current_threads();
  threads->arena.execute([&] { tbb::this_task_arena::isolate(loop); });
}

}  // namespace detail
}  // namespace stowage
