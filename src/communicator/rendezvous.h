// Rendezvous: a barrier of all ranks of a process, at which each hands a value to the others. It is used
// again and again.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "src/base/mutex.h"

namespace stowage::communication {

template <class Brought>
class Rendezvous {
 public:
  explicit Rendezvous(int size)
      : size_(static_cast<std::size_t>(size)),
        brought_{std::vector<Brought>(size_), std::vector<Brought>(size_)} {}

  // Blocks until all ranks have come, each from a thread of its own. Returns their values by rank, or null if
  // stopped before all had come; a complete round is complete for every rank. The values stay valid until
  // this rank comes again: no rank comes twice meanwhile, and the next round uses the other vector.
  const std::vector<Brought>* come(int rank, Brought brought) {
    const MutexLock lock(mutex_);
    if (stopped_) return nullptr;
    const std::uint64_t round = round_;
    std::vector<Brought>& all = brought_[round % 2];
    all[static_cast<std::size_t>(rank)] = std::move(brought);
    if (++come_ == size_) {
      come_ = 0;
      ++round_;
      changed_.notify_all();
    }
    while (round_ == round && !stopped_) changed_.wait(mutex_);
    return round_ == round ? nullptr : &all;
  }

  // Makes every present and future call of `come` return null.
  void stop() {
    const MutexLock lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }

 private:
  const std::size_t size_;
  Mutex mutex_;
  CondVar changed_;
  std::array<std::vector<Brought>, 2> brought_ STOWAGE_GUARDED_BY(mutex_);
  std::size_t come_ STOWAGE_GUARDED_BY(mutex_) = 0;
  std::uint64_t round_ STOWAGE_GUARDED_BY(mutex_) = 0;
  bool stopped_ STOWAGE_GUARDED_BY(mutex_) = false;
};

}  // namespace stowage::communication
