#include "src/history/histories.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "src/graph/json_field.h"
#include "src/history/allocation_trace.h"
#include "stowage/error.h"

namespace stowage {
namespace {

constexpr std::int64_t history_version = 1;
constexpr std::size_t longest_history_line = 4096;
constexpr std::size_t most_operations = std::size_t{1} << 24;
constexpr Bytes most_bytes_in_all = Bytes{1} << 62;
constexpr const char* history_remedy = "correct the line, docs/history.md says what it may hold";
constexpr std::string_view blanks = " \t\r\n";

std::uint64_t natural(const JsonField& field) {
  const std::int64_t value = field.integer();
  if (value < 0) field.fail("a whole number from 0 to 2^63 - 1");
  return static_cast<std::uint64_t>(value);
}

class HistoryReader {
 public:
  explicit HistoryReader(const std::string& file) : file_(file) {}

  void read(std::size_t number, std::string_view text) {
    number_ = number;
    if (text.size() > longest_history_line)
      refuse(fmt::format("has more than {} characters", longest_history_line));
    const JsonSource source{fmt::format("'{}', line {}", file_, number), history_remedy, "the line"};
    const nlohmann::json json = parse_json(text, source);
    const JsonField line(json, source);
    if (has_header_) {
      read_line(line);
    } else {
      read_header(line);
    }
  }

  AllocationTrace finish() && {
    if (!has_header_) {
      number_ = 1;
      refuse("there is no header");
    }
    return std::move(builder_).finish();
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw InvalidInput(fmt::format("'{}', line {}: {}; {}", file_, number_, why, history_remedy));
  }

  void read_header(const JsonField& line) {
    line.require_members({"stowage_history", "note"});
    if (line.member("stowage_history").integer() != history_version)
      line.member("stowage_history").fail("1, the version that this program reads");
    if (const auto note = line.optional_member("note")) note->text();
    has_header_ = true;
  }

  void read_line(const JsonField& line) {
    line.require_members({"sequence", "iteration", "op", "id", "bytes", "stream"});
    const std::uint64_t sequence = natural(line.member("sequence"));
    if (sequence_ && sequence <= *sequence_)
      line.member("sequence").refuse(fmt::format("is not above {}, that of the line before", *sequence_));
    sequence_ = sequence;
    if (line.has("iteration")) {
      read_iteration(line);
    } else if (line.member("op").text() == "allocate") {
      read_allocate(line);
    } else if (line.member("op").text() == "free") {
      read_free(line);
    } else {
      line.member("op").fail("'allocate' or 'free'");
    }
  }

  void read_iteration(const JsonField& line) {
    line.require_members({"sequence", "iteration"});
    const std::uint64_t iteration = natural(line.member("iteration"));
    if (iteration_ && iteration <= *iteration_)
      line.member("iteration").refuse(fmt::format("is not above {}, the one before", *iteration_));
    iteration_ = iteration;
    builder_.begin_iteration();
  }

  void read_allocate(const JsonField& line) {
    const std::uint64_t id = natural(line.member("id"));
    const std::uint64_t bytes = natural(line.member("bytes"));
    if (bytes > most_bytes_in_all - total_)
      line.member("bytes").refuse("brings the bytes of all allocations above 4 EiB");
    const auto stream_field = line.optional_member("stream");
    const std::uint32_t stream = stream_of(stream_field ? natural(*stream_field) : 0);
    const auto [place, added] = live_ids_.try_emplace(id, Live{{}, number_});
    if (!added)
      line.member("id").refuse(
          fmt::format("is allocated already, since line {}, and not freed", place->second.line));
    count();
    freed_ids_.erase(id);
    if (bytes > 0) place->second.id = builder_.allocate(bytes, stream);
    total_ += bytes;
  }

  void read_free(const JsonField& line) {
    line.require_members({"sequence", "op", "id"});
    const std::uint64_t id = natural(line.member("id"));
    if (!freed_ids_.insert(id).second) line.member("id").refuse("is freed already, and not allocated since");
    count();
    const auto found = live_ids_.find(id);
    if (found == live_ids_.end()) return;  // the memory was allocated before the history begins
    if (found->second.id) builder_.free(*found->second.id);
    live_ids_.erase(found);
  }

  std::uint32_t stream_of(std::uint64_t stream) {
    const auto number = streams_.number_of(stream);
    if (!number) refuse(fmt::format("is of stream {}", most_streams + 1));
    return *number;
  }

  void count() {
    if (++operations_ > most_operations) refuse(fmt::format("is operation {}", most_operations + 1));
  }

  struct Live {
    std::optional<AllocationId> id;  // nullopt: an allocation of no bytes
    std::size_t line = 0;
  };

  const std::string& file_;
  std::size_t number_ = 0;  // number of the present line
  bool has_header_ = false;
  std::optional<std::uint64_t> sequence_, iteration_;  // values on the lines before
  std::unordered_map<std::uint64_t, Live> live_ids_;
  std::unordered_set<std::uint64_t> freed_ids_;
  StreamNumbers streams_;
  Bytes total_ = 0;
  std::size_t operations_ = 0;
  TraceBuilder builder_;
};

}  // namespace

bool is_history(std::string_view text) {
  const auto skip = [&] { text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size())); };
  skip();
  if (!text.starts_with('{')) return false;
  text.remove_prefix(1);
  skip();
  return text.starts_with("\"stowage_history\"");
}

AllocationTrace parse_history(std::string_view text, const std::string& file) {
  HistoryReader reader(file);
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.find_first_not_of(blanks) != std::string_view::npos) reader.read(number, line);
  }
  return std::move(reader).finish();
}

std::string to_history(const AllocationTrace& trace) {
  std::string text = history_header();
  std::uint64_t sequence = 0;
  std::size_t iteration = 0;
  const auto begin_iterations = [&](std::size_t operation) {
    while (iteration < trace.iterations.size() && trace.iterations[iteration] <= operation)
      text += history_iteration(++sequence, ++iteration);
  };
  for (std::size_t i = 0; i < trace.operations.size(); ++i) {
    begin_iterations(i);
    const TraceOperation& operation = trace.operations[i];
    text += operation.kind == TraceKind::free
                ? history_free(++sequence, operation.id)
                : history_allocate(++sequence, operation.id, operation.bytes, operation.stream);
  }
  begin_iterations(trace.operations.size());
  return text;
}

std::string history_header() { return fmt::format("{{\"stowage_history\": {}}}\n", history_version); }

std::string history_iteration(std::uint64_t sequence, std::uint64_t iteration) {
  return fmt::format("{{\"sequence\": {}, \"iteration\": {}}}\n", sequence, iteration);
}

std::string history_allocate(std::uint64_t sequence, std::uint64_t id, Bytes bytes, std::uint64_t stream) {
  return fmt::format(
      "{{\"sequence\": {}, \"op\": \"allocate\", \"id\": {}, \"bytes\": {}, \"stream\": {}}}\n", sequence, id,
      bytes, stream);
}

std::string history_free(std::uint64_t sequence, std::uint64_t id) {
  return fmt::format("{{\"sequence\": {}, \"op\": \"free\", \"id\": {}}}\n", sequence, id);
}

}  // namespace stowage
