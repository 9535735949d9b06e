// parallel_for over plain threads: for the thread sanitizer, which packaged oneTBB gives false alarms.
//
// Loops stand in a list; idle workers take chunks of the oldest loop that has any left. The caller
// takes chunks of its own loop alone, so a loop always ends, however loops nest and whoever calls.
#include <algorithm>
#include <deque>
#include <exception>
#include <thread>
#include <vector>

#include "src/base/mutex.h"
#include "src/base/parallel_for.h"

namespace stowage {
namespace {

int all_cores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

struct Loop {
  std::int64_t count = 0;
  std::int64_t chunk = 1;
  detail::ChunkFunction function = nullptr;
  void* context = nullptr;
  std::int64_t next = 0;     // first element not handed out
  std::int64_t running = 0;  // chunks handed out and not done
  std::exception_ptr error;  // the first error; chunks not handed out by then are dropped
  CondVar done;

  bool has_work() const { return next < count; }
  bool finished() const { return !has_work() && running == 0; }
};

class Pool {
 public:
  ~Pool() {
    MutexLock resize(resize_mutex_);
    stop_workers();
  }

  void set_threads(int threads) {
    MutexLock resize(resize_mutex_);
    stop_workers();
    start_workers(threads > 0 ? threads : all_cores());
  }

  int threads() STOWAGE_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return threads_;
  }

  void run(Loop& loop) STOWAGE_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    loops_.push_back(&loop);
    work_.notify_all();
    while (loop.has_work()) run_chunk(loop);
    while (!loop.finished()) loop.done.wait(mutex_);
    loops_.erase(std::find(loops_.begin(), loops_.end(), &loop));
  }

  static Pool& instance() {
    static Pool pool;
    return pool;
  }

 private:
  Pool() {
    MutexLock resize(resize_mutex_);
    start_workers(all_cores());
  }

  void start_workers(int threads) STOWAGE_REQUIRES(resize_mutex_) {
    {
      MutexLock lock(mutex_);
      stopping_ = false;
      threads_ = threads;
    }
    for (int worker = 1; worker < threads; ++worker) workers_.emplace_back([this] { work(); });
  }

  void stop_workers() STOWAGE_REQUIRES(resize_mutex_) {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
    }
    work_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
  }

  Loop* find_work() STOWAGE_REQUIRES(mutex_) {
    const auto found =
        std::find_if(loops_.begin(), loops_.end(), [](Loop* loop) { return loop->has_work(); });
    return found == loops_.end() ? nullptr : *found;
  }

  void work() STOWAGE_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    for (;;) {
      Loop* loop = find_work();
      if (stopping_) return;
      if (loop != nullptr)
        run_chunk(*loop);
      else
        work_.wait(mutex_);
    }
  }

  // Takes the loop's next chunk, and runs it without holding the lock.
  void run_chunk(Loop& loop) STOWAGE_REQUIRES(mutex_) {
    const std::int64_t begin = loop.next;
    const std::int64_t end = begin + std::min(loop.chunk, loop.count - begin);
    loop.next = end;
    ++loop.running;
    mutex_.unlock();
    std::exception_ptr error;
    try {
      loop.function(loop.context, begin, end);
    } catch (...) {
      error = std::current_exception();
    }
    mutex_.lock();
    if (error && !loop.error) {
      loop.error = error;
      loop.next = loop.count;
    }
    --loop.running;
    if (loop.finished()) loop.done.notify_all();
  }

  Mutex resize_mutex_;  // held by set_threads, one call at a time; locked before mutex_
  Mutex mutex_;
  CondVar work_;
  std::deque<Loop*> loops_ STOWAGE_GUARDED_BY(mutex_);
  std::vector<std::thread> workers_ STOWAGE_GUARDED_BY(resize_mutex_);
  int threads_ STOWAGE_GUARDED_BY(mutex_) = 1;
  bool stopping_ STOWAGE_GUARDED_BY(mutex_) = false;
};

}  // namespace

void set_parallel_threads(int threads) { Pool::instance().set_threads(threads); }

int parallel_threads() { return Pool::instance().threads(); }

namespace detail {

void run_chunks(std::int64_t count, std::int64_t chunk, ChunkFunction function, void* context) {
  if (count <= 0) return;
  Loop loop;
  loop.count = count;
  loop.chunk = std::max<std::int64_t>(chunk, 1);
  loop.function = function;
  loop.context = context;
  if (count <= loop.chunk) return function(context, 0, count);
  Pool::instance().run(loop);
  if (loop.error) std::rethrow_exception(loop.error);
}

}  // namespace detail
}  // namespace stowage
