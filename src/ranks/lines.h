// Lines: who listens on which line of a channel. Words for a line that this rank has not opened yet are kept
// for it. Thread-safe; watchers are called by the thread that brings a word, one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "src/base/mutex.h"
#include "stowage/channel.h"

namespace stowage::ranks {

class Lines {
 public:
  // Returns the number of a new line, the first of which is 1. The watcher hears what is known of that line
  // before this returns.
  std::uint32_t open(LineWatcher watcher);
  // Its watcher is not called any more. Not to be called by a watcher.
  void close(std::uint32_t line);

  // Another rank says so on this line: it failed, or ended.
  void on(std::uint32_t line, const RankFailure& word);
  // A rank is dead, has left or has failed the channel: told on every line, and on those that are opened
  // later.
  void everywhere(const RankFailure& word);

 private:
  // Words of lines that are not open yet, from ranks that may be out of their minds.
  static constexpr std::size_t most_kept = 4096;

  static void tell(const LineWatcher& watcher, const RankFailure& word);

  Mutex telling_;  // held while a watcher is called, before mutex_
  Mutex mutex_;
  std::uint32_t opened_ STOWAGE_GUARDED_BY(mutex_) = 0;
  std::map<std::uint32_t, LineWatcher> watchers_ STOWAGE_GUARDED_BY(mutex_);
  std::multimap<std::uint32_t, RankFailure> kept_ STOWAGE_GUARDED_BY(mutex_);
  std::vector<RankFailure> everywhere_ STOWAGE_GUARDED_BY(mutex_);
};

}  // namespace stowage::ranks
