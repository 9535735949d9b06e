#include "allocator/history.h"

#include <fmt/core.h>

#include <chrono>
#include <nlohmann/json.hpp>

namespace stowage {

std::string_view to_string(AllocatorEventKind kind) {
  using EventKind = AllocatorEventKind;
  switch (kind) {
    case EventKind::allocate:
      return "allocate";
    case EventKind::release:
      return "release";
    case EventKind::wait:
      return "wait";
    case EventKind::map:
      return "map";
    case EventKind::unmap:
      return "unmap";
    case EventKind::synchronise:
      return "synchronise";
    case EventKind::out_of_memory:
      return "out_of_memory";
  }
  return "unknown";
}

namespace caching {

void History::append(HistoryEvent event) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  event.microseconds = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  const MutexLock lock(mutex_);
  if (ring_.size() < entries_)
    ring_.push_back(event);
  else
    ring_[added_ % entries_] = event;
  ++added_;
}

std::uint64_t History::copy(std::vector<HistoryEvent>& events) const {
  const MutexLock lock(mutex_);
  for_each([&](std::uint64_t, const HistoryEvent& event) { events.push_back(event); });
  return added_ - ring_.size();
}

std::string History::json() const {
  const MutexLock lock(mutex_);
  nlohmann::ordered_json events = nlohmann::ordered_json::array();
  for_each([&](std::uint64_t number, const HistoryEvent& event) {
    events.push_back({{"number", number},
                      {"what", to_string(event.kind)},
                      {"address", event.address},
                      {"bytes", event.bytes},
                      {"stream", event.stream},
                      {"pool", event.pool}});
  });
  const nlohmann::ordered_json all{{"version", 1}, {"dropped", added_ - ring_.size()}, {"events", events}};
  return all.dump(1);
}

std::string History::text() const {
  const MutexLock lock(mutex_);
  std::string text = fmt::format("{:>10}  {:13}  {:>18}  {:>14}  {:>6}  {:>4}\n", "number", "what", "address",
                                 "bytes", "stream", "pool");
  for_each([&](std::uint64_t number, const HistoryEvent& event) {
    text += fmt::format("{:>10}  {:13}  {:>#18x}  {:>14}  {:>6}  {:>4}\n", number, to_string(event.kind),
                        event.address, event.bytes, event.stream, event.pool);
  });
  return text;
}

}  // namespace caching
}  // namespace stowage
