// FirstFailure: why a communicator has failed, as far as this rank knows. The first failure counts.
// Thread-safe.
#pragma once

#include <atomic>
#include <optional>
#include <string_view>

#include "src/base/mutex.h"
#include "src/communicator/collective.h"

namespace stowage::communication {

class FirstFailure {
 public:
  // True if it is the first.
  bool keep(const RankFailure& failure) {
    const MutexLock lock(mutex_);
    if (failure_) return false;
    failure_ = failure;
    there_is_ = true;
    return true;
  }
  std::optional<RankFailure> get() const {
    if (!there_is_) return std::nullopt;
    const MutexLock lock(mutex_);
    return failure_;
  }
  // Throws CommunicatorError in the name of `call` if there is one.
  void expect_none(std::string_view call) const {
    if (const auto failure = get()) throw error_of(call, *failure);
  }

 private:
  std::atomic<bool> there_is_ = false;  // so that who asks again and again takes no lock
  mutable Mutex mutex_;
  std::optional<RankFailure> failure_ STOWAGE_GUARDED_BY(mutex_);
};

}  // namespace stowage::communication
