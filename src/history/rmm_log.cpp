#include "src/history/histories.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "src/base/printable.h"
#include "src/history/allocation_trace.h"
#include "stowage/error.h"

namespace stowage {
namespace {

constexpr std::string_view columns = "Thread,Time,Action,Pointer,Size,Stream";
constexpr const char* remedy = "give what RMM's logging_resource_adaptor wrote";
constexpr Bytes most_bytes_of_log = Bytes{1} << 62U;
constexpr std::size_t most_lines = std::size_t{1} << 24U;
constexpr std::size_t longest_line = 1024;
enum Column : std::size_t { action = 2, pointer = 3, size = 4, stream = 5 };

class LogReader {
 public:
  explicit LogReader(const std::string& file) : file_(file) {}

  AllocationTrace read(std::string_view text) {
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      std::string_view line = text.substr(begin, end - begin);
      begin = end + 1;
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (++number_ > most_lines) refuse(fmt::format("is one of more than {}", most_lines));
      if (number_ > 1 && !line.empty()) read_line(line);
    }
    return std::move(builder_).finish();
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw InvalidInput(fmt::format("'{}', line {}: {}; {}", file_, number_, why, remedy));
  }

  void read_line(std::string_view line) {
    if (line.size() > longest_line) refuse(fmt::format("has more than {} characters", longest_line));
    std::array<std::string_view, 6> fields;
    for (std::string_view& field : fields) {
      const std::size_t comma = line.find(',');
      const bool is_last = &field == &fields.back();
      if ((comma == std::string_view::npos) != is_last)
        refuse(fmt::format("has not the columns {}", columns));
      field = line.substr(0, comma);
      line.remove_prefix(is_last ? line.size() : comma + 1);
    }
    if (fields[action] == "allocate")
      allocate(number_of(fields[pointer], 16), number_of(fields[size], 10), number_of(fields[stream], 16));
    else if (fields[action] == "free")
      free(number_of(fields[pointer], 16));
    else if (fields[action] != "allocate failure")
      refuse(fmt::format("has the action '{}', not allocate, free or allocate failure",
                         printable(fields[action])));
  }

  // Reads digits, hexadecimal ones behind 0x.
  std::uint64_t number_of(std::string_view text, int base) const {
    const std::string_view digits = base == 16 && text.starts_with("0x") ? text.substr(2) : text;
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    const bool is_null = base == 16 && (text == "(nil)" || text == "nullptr");
    if (!is_null && (error != std::errc() || end != digits.data() + digits.size()))
      refuse(fmt::format("has '{}' in the place of a number", printable(text)));
    return value;
  }

  void allocate(std::uint64_t address, Bytes bytes, std::uint64_t on_stream) {
    if (bytes == 0) return;
    if (bytes > most_bytes_of_log - total_) refuse("brings the bytes of all allocations above 4 EiB");
    const auto numbered = streams_.number_of(on_stream);
    if (!numbered) refuse(fmt::format("is of stream {}", most_streams + 1));
    const auto [place, added] = live_.try_emplace(address);
    if (!added) refuse("allocates an address that is allocated already and not freed");
    place->second = builder_.allocate(bytes, *numbered);
    total_ += bytes;
  }

  void free(std::uint64_t address) {
    const auto found = live_.find(address);
    if (found == live_.end()) return;
    builder_.free(found->second);
    live_.erase(found);
  }

  const std::string& file_;
  std::size_t number_ = 0;  // number of the present line
  TraceBuilder builder_;
  std::unordered_map<std::uint64_t, AllocationId> live_;  // by address
  StreamNumbers streams_;
  Bytes total_ = 0;
};

}  // namespace

bool is_rmm_log(std::string_view text) {
  const std::string_view line = text.substr(0, text.find_first_of("\r\n"));
  return line == columns;
}

AllocationTrace parse_rmm_log(std::string_view text, const std::string& file) {
  return LogReader(file).read(text);
}

}  // namespace stowage
