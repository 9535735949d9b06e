// Watch: calls a function at intervals, on a thread of its own, until the destructor.
#pragma once

#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "src/base/mutex.h"

namespace stowage::communication {

class Watch {
 public:
  // Calls `look` at intervals of `every`, until it returns false. `look` throws nothing.
  Watch(std::chrono::milliseconds every, std::function<bool()> look)
      : every_(every), look_(std::move(look)), thread_([this] { run(); }) {}
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  // Waits for a call of `look` that is under way.
  ~Watch() {
    {
      const MutexLock lock(mutex_);
      stops_ = true;
    }
    stopped_.notify_all();
    thread_.join();
  }

 private:
  void run() {
    while (!stopped_within_the_time() && look_()) {
    }
  }
  bool stopped_within_the_time() {
    const auto end = std::chrono::steady_clock::now() + every_;
    const MutexLock lock(mutex_);
    while (!stops_ && std::chrono::steady_clock::now() < end) stopped_.wait_for(mutex_, every_);
    return stops_;
  }

  const std::chrono::milliseconds every_;
  const std::function<bool()> look_;
  Mutex mutex_;
  CondVar stopped_;
  bool stops_ STOWAGE_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace stowage::communication
