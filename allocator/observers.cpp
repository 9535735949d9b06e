#include "allocator/observers.h"

#include <algorithm>
#include <utility>

#include "stowage/error.h"

namespace stowage::caching {
namespace {

bool is_here(std::thread::id thread) { return thread == std::this_thread::get_id(); }

}  // namespace

ObserverId Observers::add(OutOfMemoryObserver observer) {
  if (!observer) throw InvalidInput("add_observer: the function is empty; pass one that can be called");
  const MutexLock lock(mutex_);
  entries_.emplace(next_, Observer{std::move(observer)});
  return next_++;
}

void Observers::remove(ObserverId observer) {
  Entries::node_type unused;
  const MutexLock lock(mutex_);
  const auto found = entries_.find(observer);
  if (found == entries_.end()) return;
  Observer& entry = found->second;
  entry.removed = true;
  ++entry.waiting;
  const bool inside = is_inside();
  const auto is_awaited = [&](const Run& run) { return !is_here(run.thread) && !(inside && run.removes); };
  note_removes(true);
  while (std::any_of(entry.runs.begin(), entry.runs.end(), is_awaited)) changed_.wait(mutex_);
  note_removes(false);
  --entry.waiting;
  unused = take_unused(observer);
}

bool Observers::ask(const OutOfMemoryNotice& notice) {
  struct EndOfRun {
    Observers& observers;
    ObserverId observer;
    ~EndOfRun() { observers.end_run(observer); }
  };
  bool again = false;
  for (const ObserverId observer : known()) {
    const OutOfMemoryObserver* const call = begin_run(observer);
    if (call == nullptr) continue;
    const EndOfRun end{*this, observer};
    again = (*call)(notice) || again;
  }
  return again;
}

std::vector<ObserverId> Observers::known() {
  const MutexLock lock(mutex_);
  std::vector<ObserverId> observers;
  for (const auto& [id, entry] : entries_) observers.push_back(id);
  return observers;
}

const OutOfMemoryObserver* Observers::begin_run(ObserverId observer) {
  const MutexLock lock(mutex_);
  const auto found = entries_.find(observer);
  if (found == entries_.end() || found->second.removed) return nullptr;
  found->second.runs.push_back({std::this_thread::get_id()});
  return &found->second.call;
}

void Observers::end_run(ObserverId observer) {
  Entries::node_type unused;
  const MutexLock lock(mutex_);
  std::vector<Run>& runs = entries_.at(observer).runs;
  runs.erase(std::find_if(runs.begin(), runs.end(), [](const Run& run) { return is_here(run.thread); }));
  changed_.notify_all();
  unused = take_unused(observer);
}

bool Observers::is_inside() {
  return std::any_of(entries_.begin(), entries_.end(), [](const auto& entry) {
    const std::vector<Run>& runs = entry.second.runs;
    return std::any_of(runs.begin(), runs.end(), [](const Run& run) { return is_here(run.thread); });
  });
}

void Observers::note_removes(bool removes) {
  for (auto& [id, entry] : entries_)
    for (Run& run : entry.runs)
      if (is_here(run.thread)) run.removes = removes;
  changed_.notify_all();
}

Observers::Entries::node_type Observers::take_unused(ObserverId observer) {
  const auto found = entries_.find(observer);
  const Observer& entry = found->second;
  if (!entry.removed || !entry.runs.empty() || entry.waiting > 0) return {};
  return entries_.extract(found);
}

}  // namespace stowage::caching
