#include "src/history/histories.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "src/history/allocation_trace.h"
#include "stowage/error.h"

namespace stowage {
namespace {

constexpr std::string_view record_mark = "# stowage record ";
constexpr std::string_view record_first_line = "# stowage record 1";
constexpr std::string_view record_remedy =
    "give what stowage run --record wrote, docs/interposer.md says what it may hold";
constexpr std::size_t longest_record_line = 4096;
constexpr std::size_t most_calls = std::size_t{1} << 24;
constexpr Bytes most_bytes_of_calls = Bytes{1} << 62;
constexpr std::size_t most_places = 64;
constexpr std::size_t record_fields = 12;

// The fields that count here, in the record's order.
enum Field {
  process_field = 1,
  event_field = 3,
  kind_field,
  device_field,
  stream_field,
  address_field,
  bytes_field
};

using Fields = std::array<std::string_view, record_fields>;

std::optional<Fields> fields_of(std::string_view line) {
  Fields fields;
  for (std::size_t i = 0; i + 1 < record_fields; ++i) {
    const auto comma = line.find(',');
    if (comma == std::string_view::npos) return std::nullopt;
    fields[i] = line.substr(0, comma);
    line.remove_prefix(comma + 1);
  }
  fields.back() = line;
  if (line.find(',') != std::string_view::npos) return std::nullopt;
  return fields;
}

template <class Number>
std::optional<Number> number_of(std::string_view text, int base = 10) {
  if (base == 16) {
    if (!text.starts_with("0x")) return std::nullopt;
    text.remove_prefix(2);
  }
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

bool is_of_a_card(std::string_view kind) {
  constexpr std::array<std::string_view, 5> kinds = {"device", "pitched", "async", "pool", "physical"};
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

class CallReader {
 public:
  explicit CallReader(const std::string& file) : file_(file) {}

  void read(std::size_t number, std::string_view line) {
    number_ = number;
    if (line.size() > longest_record_line)
      refuse(fmt::format("has more than {} characters", longest_record_line));
    const auto fields = fields_of(line);
    if (!fields) refuse(fmt::format("has not {} fields", record_fields));
    const std::string_view event = (*fields)[event_field];
    if (!is_of_a_card((*fields)[kind_field])) return;
    if (event == "alloc") allocate(*fields);
    if (event == "free" || event == "reset") free(*fields);
  }

  AllocationTrace finish() && {
    if (places_.size() > 1) refuse_places();
    return std::move(builder_).finish();
  }

 private:
  using Place = std::pair<int, int>;  // process and device

  [[noreturn]] void refuse(const std::string& why) const {
    throw InvalidInput(fmt::format("'{}', line {}: {}; {}", file_, number_, why, record_remedy));
  }

  [[noreturn]] void refuse_places() const {
    std::string all;
    for (const auto& [process, device] : places_) {
      all += fmt::format("{}process {} on device {}", all.empty() ? "" : ", ", process, device);
    }
    throw InvalidInput(fmt::format(
        "'{}' is of several allocators ({}); keep the lines of one: its process is the second field, "
        "its device the sixth",
        file_, all));
  }

  template <class Number>
  Number need(const Fields& fields, Field field, std::string_view name, int base = 10) const {
    const auto number = number_of<Number>(fields[field], base);
    if (!number) refuse(fmt::format("{} is no whole number that fits", name));
    return *number;
  }

  // Handles of physical memory count apart from addresses.
  struct Name {
    int process = 0;
    std::uint64_t address = 0;
    bool handle = false;
    friend bool operator==(const Name&, const Name&) = default;
  };
  struct HashOfName {
    std::size_t operator()(const Name& name) const {
      const auto process = static_cast<std::uint64_t>(static_cast<unsigned>(name.process));
      return std::hash<std::uint64_t>()(name.address * 2 + (name.handle ? 1 : 0) + (process << 40U));
    }
  };

  Name name_of(const Fields& fields) const {
    return {need<int>(fields, process_field, "the process"),
            need<std::uint64_t>(fields, address_field, "the address", 16), fields[kind_field] == "physical"};
  }

  void count() {
    if (++calls_ > most_calls) refuse(fmt::format("is call {}", most_calls + 1));
  }

  void allocate(const Fields& fields) {
    const Name name = name_of(fields);
    const auto bytes = need<Bytes>(fields, bytes_field, "the number of bytes");
    if (bytes == 0 || bytes > most_bytes_of_calls - total_)
      refuse("its bytes are 0, or bring those of all allocations above 4 EiB");
    places_.insert({name.process, need<int>(fields, device_field, "the device")});
    if (places_.size() > most_places) refuse_places();
    const auto stream = streams_.number_of(need<std::uint64_t>(fields, stream_field, "the stream"));
    if (!stream) refuse(fmt::format("is of stream {}", most_streams + 1));
    const auto [place, added] = live_.try_emplace(name, 0);
    if (!added) refuse("its address is allocated already and not freed");
    count();
    place->second = builder_.allocate(bytes, *stream);
    total_ += bytes;
  }

  // Passes over allocations from before the record began.
  void free(const Fields& fields) {
    const auto found = live_.find(name_of(fields));
    if (found == live_.end()) return;
    count();
    builder_.free(found->second);
    live_.erase(found);
  }

  const std::string& file_;
  std::size_t number_ = 0;
  TraceBuilder builder_;
  std::unordered_map<Name, AllocationId, HashOfName> live_;
  std::set<Place> places_;
  StreamNumbers streams_;
  Bytes total_ = 0;
  std::size_t calls_ = 0;
};

}  // namespace

bool is_call_record(std::string_view text) { return text.starts_with(record_mark); }

AllocationTrace parse_call_record(std::string_view text, const std::string& file) {
  if (text.substr(0, text.find('\n')) != record_first_line)
    throw InvalidInput(fmt::format("'{}', line 1: is not '{}', the version that this program reads; {}", file,
                                   record_first_line, record_remedy));
  CallReader reader(file);
  for (std::size_t number = 1; !text.empty(); ++number) {
    const auto end = text.find('\n');
    if (end == std::string_view::npos) break;
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (!line.starts_with('#') && !line.starts_with("time_ns,")) reader.read(number, line);
  }
  return std::move(reader).finish();
}

}  // namespace stowage
