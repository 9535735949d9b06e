#include "src/history/histories.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "src/graph/json_field.h"
#include "src/history/allocation_trace.h"
#include "stowage/error.h"

namespace stowage {
namespace {

constexpr std::size_t longest_text = std::size_t{1} << 27U;
constexpr std::size_t most_events = std::size_t{1} << 20U;
constexpr Bytes most_bytes_of_events = Bytes{1} << 62U;
constexpr std::uint64_t most_pools = 256;
constexpr std::string_view white = " \t\r\n";

std::uint64_t count_of(const JsonField& field) {
  const std::int64_t value = field.integer();
  if (value < 0) field.fail("a whole number from 0 to 2^63 - 1");
  return static_cast<std::uint64_t>(value);
}

class EventReader {
 public:
  void read(const JsonField& event) {
    event.require_members({"number", "what", "address", "bytes", "stream", "pool"});
    const std::string what = event.member("what").text();
    if (what == "allocate") {
      allocate(event);
    } else if (what == "release") {
      release(event);
    }
  }
  AllocationTrace finish() && { return std::move(builder_).finish(); }

 private:
  void allocate(const JsonField& event) {
    const std::uint64_t bytes = count_of(event.member("bytes"));
    if (bytes == 0 || bytes > most_bytes_of_events - total_)
      event.member("bytes").refuse("is 0, or brings the bytes of all allocations above 4 EiB");
    const std::uint64_t pool = count_of(event.member("pool")), stream = count_of(event.member("stream"));
    if (pool >= most_pools) event.member("pool").fail(fmt::format("below {}", most_pools));
    if (stream > most_bytes_of_events / most_pools) event.member("stream").fail("a stream of a device");
    const auto number = streams_.number_of(stream * most_pools + pool);
    if (!number) event.member("stream").refuse(fmt::format("is one of more than {}", most_streams));
    const auto [place, added] = live_.try_emplace(count_of(event.member("address")), 0);
    if (!added) event.member("address").refuse("is allocated already and not released");
    place->second = builder_.allocate(bytes, *number);
    total_ += bytes;
  }

  void release(const JsonField& event) {
    const auto found = live_.find(count_of(event.member("address")));
    if (found == live_.end()) return;
    builder_.free(found->second);
    live_.erase(found);
  }

  TraceBuilder builder_;
  std::unordered_map<std::uint64_t, AllocationId> live_;  // live allocations by address
  StreamNumbers streams_;
  Bytes total_ = 0;
};

}  // namespace

bool is_allocator_history(std::string_view text) {
  const auto skip = [&] { text.remove_prefix(std::min(text.find_first_not_of(white), text.size())); };
  skip();
  if (!text.starts_with('{')) return false;
  text.remove_prefix(1);
  skip();
  return text.starts_with("\"version\"");
}

AllocationTrace parse_allocator_history(std::string_view text, const std::string& file) {
  const JsonSource source{fmt::format("'{}'", file), "give what CachingAllocator::history_json wrote"};
  if (text.size() > longest_text)
    throw InvalidInput(
        fmt::format("{}: has more than {} bytes; keep fewer events", source.what, longest_text));
  const nlohmann::json json = parse_json(text, source);
  const JsonField history(json, source);
  history.require_members({"version", "dropped", "events"});
  if (history.member("version").integer() != 1)
    history.member("version").fail("1, the version that this program reads");
  count_of(history.member("dropped"));
  EventReader reader;
  history.member("events").list(most_events, [&](const JsonField& event) {
    reader.read(event);
    return 0;
  });
  return std::move(reader).finish();
}

}  // namespace stowage
