#include "src/ranks/lines.h"

#include <algorithm>
#include <utility>

namespace stowage::ranks {

std::uint32_t Lines::open(LineWatcher watcher) {
  const MutexLock telling(telling_);
  std::vector<RankFailure> known;
  std::uint32_t line = 0;
  {
    const MutexLock lock(mutex_);
    line = ++opened_;
    const auto [first, last] = kept_.equal_range(line);
    for (auto at = first; at != last; ++at) known.push_back(std::move(at->second));
    kept_.erase(first, last);
    known.insert(known.end(), everywhere_.begin(), everywhere_.end());
    watchers_[line] = watcher;
  }
  for (const RankFailure& each : known) tell(watcher, each);
  return line;
}

void Lines::close(std::uint32_t line) {
  const MutexLock telling(telling_);
  const MutexLock lock(mutex_);
  watchers_.erase(line);
}

void Lines::on(std::uint32_t line, const RankFailure& word) {
  const MutexLock telling(telling_);
  LineWatcher watcher;
  {
    const MutexLock lock(mutex_);
    const auto found = watchers_.find(line);
    if (found == watchers_.end()) {
      if (line > opened_ && kept_.size() < most_kept) kept_.emplace(line, word);
      return;
    }
    watcher = found->second;
  }
  tell(watcher, word);
}

void Lines::everywhere(const RankFailure& word) {
  const MutexLock telling(telling_);
  std::vector<LineWatcher> watchers;
  {
    const MutexLock lock(mutex_);
    const auto is_known = [&](const RankFailure& known) {
      return known.rank == word.rank && known.kind == word.kind;
    };
    if (std::any_of(everywhere_.begin(), everywhere_.end(), is_known)) return;
    everywhere_.push_back(word);
    for (const auto& [line, watcher] : watchers_) watchers.push_back(watcher);
  }
  for (const LineWatcher& watcher : watchers) tell(watcher, word);
}

void Lines::tell(const LineWatcher& watcher, const RankFailure& word) {
  switch (word.kind) {
    case RankFailure::Kind::failed:
      return watcher.failed(word);
    case RankFailure::Kind::died:
      return watcher.died(word);
    case RankFailure::Kind::ended:
      return watcher.ended(word.rank);
  }
}

}  // namespace stowage::ranks
