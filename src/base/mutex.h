// Mutex, scoped lock and condition variable that clang's -Wthread-safety can follow.
//
// A member is declared `T x_ STOWAGE_GUARDED_BY(mutex_);`, a function that expects the lock
// `void f() STOWAGE_REQUIRES(mutex_);`. Other compilers see plain std::mutex.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define STOWAGE_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define STOWAGE_THREAD_ATTRIBUTE(x)
#endif
#define STOWAGE_CAPABILITY(name) STOWAGE_THREAD_ATTRIBUTE(capability(name))
#define STOWAGE_SCOPED_CAPABILITY STOWAGE_THREAD_ATTRIBUTE(scoped_lockable)
#define STOWAGE_GUARDED_BY(mutex) STOWAGE_THREAD_ATTRIBUTE(guarded_by(mutex))
#define STOWAGE_REQUIRES(...) STOWAGE_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define STOWAGE_EXCLUDES(...) STOWAGE_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define STOWAGE_ACQUIRE(...) STOWAGE_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define STOWAGE_TRY_ACQUIRE(...) STOWAGE_THREAD_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
#define STOWAGE_RELEASE(...) STOWAGE_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define STOWAGE_NO_THREAD_SAFETY_ANALYSIS STOWAGE_THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace stowage {

class STOWAGE_CAPABILITY("mutex") Mutex {
 public:
  void lock() STOWAGE_ACQUIRE() { mutex_.lock(); }
  bool try_lock() STOWAGE_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  void unlock() STOWAGE_RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class STOWAGE_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) STOWAGE_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() STOWAGE_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

class CondVar {
 public:
  // May wake without reason: call it in a loop over the condition.
  void wait(Mutex& mutex) STOWAGE_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();  // the caller still holds the mutex
  }
  // Waits no longer than `most`; may wake without reason too.
  void wait_for(Mutex& mutex, std::chrono::milliseconds most) STOWAGE_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait_for(lock, most);
    lock.release();
  }
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace stowage
