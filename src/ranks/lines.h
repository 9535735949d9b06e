// Lines: the watchers of a channel's lines. Words for a line that this rank has not opened yet are kept for
// it. Thread-safe; the thread that brings a word calls the watchers, one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "src/base/mutex.h"
#include "stowage/channel.h"

namespace stowage::ranks {

class Lines {
 public:
  // Returns the number of a new line; the first line is 1. The watcher hears the kept words of that line
  // before this returns.
  std::uint32_t open(LineWatcher watcher);
  // Stops calling the line's watcher. A watcher must not call this.
  void close(std::uint32_t line);

  // Passes on another rank's word on this line: it failed, or ended.
  void on(std::uint32_t line, const RankFailure& word);
  // Passes on to every line, and to lines opened later, that a rank is dead, has left or has failed
  // the channel.
  void everywhere(const RankFailure& word);

 private:
  // Limit of words for lines that are not open yet: a rank may misbehave.
  static constexpr std::size_t most_kept = 4096;

  static void tell(const LineWatcher& watcher, const RankFailure& word);

  Mutex telling_;  // held while a watcher is called; locked before mutex_
  Mutex mutex_;
  std::uint32_t opened_ STOWAGE_GUARDED_BY(mutex_) = 0;
  std::map<std::uint32_t, LineWatcher> watchers_ STOWAGE_GUARDED_BY(mutex_);
  std::multimap<std::uint32_t, RankFailure> kept_ STOWAGE_GUARDED_BY(mutex_);
  std::vector<RankFailure> everywhere_ STOWAGE_GUARDED_BY(mutex_);
};

}  // namespace stowage::ranks
