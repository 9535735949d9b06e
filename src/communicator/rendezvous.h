// Rendezvous: where all ranks of a process come together, again and again, each with something for the
// others.
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

  // Blocks until all have come; each comes from a thread of its own. What they brought, by rank: it holds
  // until this rank comes again, since no other comes twice meanwhile, and the next round has the other
  // vector. Null: stopped before all had come. A round that was complete is so for all.
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

  // Ends the waiting of all who wait and of all who come.
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
