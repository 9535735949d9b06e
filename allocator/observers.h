// Observers: who is asked before a request fails, and in which threads they run at the moment.
//
// An observer runs without the lock, since it may release memory, trim and remove observers. `remove` waits
// for the runs of other threads. Two observers that remove each other would wait for ever, so an observer
// does not wait for runs that wait in `remove` themselves.
#pragma once

#include <map>
#include <thread>
#include <vector>

#include "src/base/mutex.h"
#include "stowage/caching_allocator.h"

namespace stowage::caching {

class Observers {
 public:
  // Throws InvalidInput if the function is empty.
  ObserverId add(OutOfMemoryObserver observer) STOWAGE_EXCLUDES(mutex_);
  // As CachingAllocator::remove_observer.
  void remove(ObserverId observer) STOWAGE_EXCLUDES(mutex_);
  // Asks the observers that were added before this call, in the order of their addition. Returns true if an
  // observer returns true. An exception of an observer passes through.
  bool ask(const OutOfMemoryNotice& notice) STOWAGE_EXCLUDES(mutex_);

 private:
  struct Run {
    std::thread::id thread;
    bool removes = false;  // the run waits in `remove`
  };
  struct Observer {
    OutOfMemoryObserver call;
    std::vector<Run> runs = {};
    int waiting = 0;  // number of calls of `remove` that wait for this observer
    bool removed = false;
  };
  // The entry of a removed observer stays until nothing runs it.
  using Entries = std::map<ObserverId, Observer>;

  std::vector<ObserverId> known() STOWAGE_EXCLUDES(mutex_);
  // A null function means that the observer was removed.
  const OutOfMemoryObserver* begin_run(ObserverId observer) STOWAGE_EXCLUDES(mutex_);
  void end_run(ObserverId observer) STOWAGE_EXCLUDES(mutex_);
  bool is_inside() STOWAGE_REQUIRES(mutex_);
  void note_removes(bool removes) STOWAGE_REQUIRES(mutex_);
  // Removes the entry if its observer was removed and no thread runs it. The caller destroys it without the
  // lock: what the function holds may be memory of the allocator.
  Entries::node_type take_unused(ObserverId observer) STOWAGE_REQUIRES(mutex_);

  Mutex mutex_;
  CondVar changed_;
  Entries entries_ STOWAGE_GUARDED_BY(mutex_);
  ObserverId next_ STOWAGE_GUARDED_BY(mutex_) = 0;
};

}  // namespace stowage::caching
