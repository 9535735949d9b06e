#include "tools/cli/run_record.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

namespace stowage {
namespace {

constexpr std::size_t most_steps = 2048;
constexpr std::size_t longest_line = 4096;
constexpr std::size_t most_processes = 100'000;
constexpr std::size_t most_cards = 64;
constexpr std::size_t most_kinds = 64;
constexpr std::size_t most_missed = 64;
constexpr std::size_t most_leaving = 1000;

enum Field {
  time_ns,
  process,
  thread,
  event,
  kind,
  device,
  stream,
  address,
  bytes,
  live,
  result,
  detail,
  fields
};

template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<std::array<std::string_view, fields>> split(std::string_view line) {
  std::array<std::string_view, fields> found;
  for (std::size_t i = 0; i + 1 < fields; ++i) {
    const auto comma = line.find(',');
    if (comma == std::string_view::npos) return std::nullopt;
    found[i] = line.substr(0, comma);
    line.remove_prefix(comma + 1);
  }
  if (line.find(',') != std::string_view::npos) return std::nullopt;
  found[detail] = line;
  return found;
}

struct Row {
  std::uint64_t time = 0;
  int process = 0, device = 0;
  Bytes bytes = 0, live = 0;
  std::string_view event, kind, detail;
};

std::optional<Row> row_of(std::string_view line) {
  const auto found = split(line);
  if (!found) return std::nullopt;
  const auto when = number_in<std::uint64_t>((*found)[time_ns]);
  const auto who = number_in<int>((*found)[process]);
  const auto where = number_in<int>((*found)[device]);
  const auto size = number_in<Bytes>((*found)[bytes]);
  const auto held = number_in<Bytes>((*found)[live]);
  if (!when || !who || !where || !size || !held) return std::nullopt;
  return Row{*when, *who, *where, *size, *held, (*found)[event], (*found)[kind], (*found)[detail]};
}

// Subtracts without going below zero, since a broken or foreign writer may have written the record.
void take_away(Bytes& from, Bytes amount) { from -= std::min(from, amount); }

bool count_call(RunKind& kind, const Row& row) {
  if (row.event == "alloc") {
    ++kind.calls;
    kind.bytes += row.bytes;
    if (row.kind != "graph") kind.live += row.bytes;
    kind.peak = std::max(kind.peak, kind.live);
  } else if (row.event == "free" || row.event == "reset") {
    if (row.event == "free") ++kind.frees;
    take_away(kind.live, row.bytes);
  } else if (row.event == "failed" || row.event == "not_freed") {
    ++kind.failed;
  } else if (row.event == "refused") {
    ++kind.refused;
  } else {
    return false;
  }
  return true;
}

void hold_spilled(RunSpill& spill, std::uint64_t time_ns) {
  spill.peak = std::max(spill.peak, spill.live);
  spill.curve.add(time_ns, spill.live);
  spill.held.add(time_ns, spill.live);
}

void add_spill(RunSpill& spill, const Row& row) {
  if (row.detail == "spill=full") ++spill.full;
  if (row.detail == "spill=failed") ++spill.failed;
  if (row.detail != "place=host") return;
  if (row.event == "alloc") {
    ++spill.calls;
    spill.bytes += row.bytes;
    spill.live += row.bytes;
  } else if (row.event == "free" || row.event == "reset") {
    take_away(spill.live, row.bytes);
  }
  hold_spilled(spill, row.time);
}

// Adds the line of a process's end, or of its first call's end: what the process holds now it
// has held until then.
void add_calls(RunProcess& process, const Row& row) {
  process.has_ended = true;
  process.calls = std::max(process.calls, number_in<std::uint64_t>(row.detail).value_or(0));
  for (auto& [number, card] : process.cards) {
    card.curve.add(row.time, card.live);
    card.held.add(row.time, card.live);
  }
  if (process.spill.calls > 0) hold_spilled(process.spill, row.time);
}

bool add_call(RunProcess& process, const Row& row) {
  RunKind probe;
  if (!count_call(probe, row)) return false;
  const bool known = process.kinds.contains(std::string(row.kind));
  if ((!known && process.kinds.size() >= most_kinds) || row.kind.empty()) return false;
  count_call(process.kinds[std::string(row.kind)], row);
  if (row.event != "reset") ++process.calls;
  add_spill(process.spill, row);
  if (row.device < 0 || (!process.cards.contains(row.device) && process.cards.size() >= most_cards))
    return true;
  RunCard& card = process.cards[row.device];
  card.live = row.live;
  card.peak = std::max(card.peak, row.live);
  card.curve.add(row.time, row.live);
  card.held.add(row.time, row.live);
  return true;
}

bool add_leaving(std::map<std::string, int>& programs, const Row& row) {
  const std::string name(row.detail);
  if (!programs.contains(name) && programs.size() >= most_leaving) return false;
  ++programs[name];
  return true;
}

// Returns the image that the line belongs to; "process" is the first line of each image. Returns null if
// there are too many images.
RunProcess* image_of(RunRecord& record, const Row& row) {
  const auto known = record.images.find(row.process);
  const int images = known == record.images.end() ? 0 : known->second;
  const bool is_new = images == 0 || row.event == "process";
  if (!is_new) return &record.processes.at({row.process, images - 1});
  if (record.processes.size() >= most_processes) return nullptr;
  if (images > 0) record.processes.at({row.process, images - 1}).has_ended = true;
  record.images[row.process] = images + 1;
  return &record.processes[{row.process, images}];
}

bool add_row(RunRecord& record, const Row& row) {
  if (row.event == "unwatched") return add_leaving(record.unwatched, row);
  if (row.event == "elsewhere") return add_leaving(record.elsewhere, row);
  if (row.event == "unrecorded") return add_leaving(record.unrecorded, row);
  RunProcess* const found = image_of(record, row);
  if (found == nullptr) return false;
  RunProcess& process = *found;
  if (row.event == "process") {
    process.program = row.detail;
  } else if (row.event == "calls") {
    add_calls(process, row);
  } else if (row.event == "spilled") {
    process.spill.calls = std::max(process.spill.calls, number_in<std::uint64_t>(row.detail).value_or(0));
    process.spill.peak = std::max(process.spill.peak, row.bytes);
    process.spill.live = row.live;
  } else if (row.event == "total") {
    if (row.device < 0 || (!process.cards.contains(row.device) && process.cards.size() >= most_cards))
      return false;
    RunCard& card = process.cards[row.device];
    card.peak = std::max(card.peak, row.bytes);
    card.live = row.live;
  } else if (row.event == "missed") {
    if (record.missed.size() < most_missed) ++record.missed[std::string(row.detail)];
  } else if (row.event == "export") {
    ++record.exports;
  } else if (row.event == "not_exported") {
    ++record.not_exported;
  } else if (row.event == "open") {
    ++record.opens;
  } else if (row.event != "close" && row.event != "free_node") {
    return add_call(process, row);
  }
  return true;
}

}  // namespace

void RunCurve::fill_to(std::size_t index) {
  while (largest_.size() <= index) largest_.push_back(now_);
}

void RunCurve::add(std::uint64_t time_ns, Bytes value) {
  if (empty_) first_ns_ = time_ns;
  empty_ = false;
  time_ns = std::max(time_ns, last_ns_);  // threads write in the order in which their calls end
  last_ns_ = time_ns;
  while (time_ns / step_ns_ >= most_steps) {
    for (std::size_t i = 0; i < largest_.size(); i += 2) {
      const Bytes second = i + 1 < largest_.size() ? largest_[i + 1] : 0;
      largest_[i / 2] = std::max(largest_[i], second);
    }
    largest_.resize((largest_.size() + 1) / 2);
    step_ns_ *= 2;
  }
  const std::size_t index = time_ns / step_ns_;
  fill_to(index);
  largest_[index] = std::max(largest_[index], value);
  now_ = value;
}

std::vector<Bytes> RunCurve::values(std::uint64_t step_ns) const {
  const std::size_t together = std::max<std::uint64_t>(1, step_ns / step_ns_);
  std::vector<Bytes> result((largest_.size() + together - 1) / together, 0);
  for (std::size_t i = 0; i < largest_.size(); ++i) {
    result[i / together] = std::max(result[i / together], largest_[i]);
  }
  return result;
}

void RunHeld::add(std::uint64_t time_ns, Bytes value) {
  time_ns = std::max(time_ns, last_ns_);
  byte_seconds_ += static_cast<double>(now_) * static_cast<double>(time_ns - last_ns_) * 1e-9;
  last_ns_ = time_ns;
  now_ = value;
}

std::uint64_t RunRecord::calls() const {
  std::uint64_t sum = 0;
  for (const auto& [id, process] : processes) sum += process.calls;
  return sum;
}

std::uint64_t RunRecord::without_end() const {
  std::uint64_t sum = 0;
  for (const auto& [image, process] : processes)
    sum += process.calls > 0 && !process.has_ended && !running.contains(image.process) ? 1 : 0;
  return sum;
}

RunRecord read_run_record(std::istream& text) {
  RunRecord record;
  std::string line;
  while (std::getline(text, line)) {
    if (line.starts_with('#') || line.starts_with("time_ns,")) continue;
    const auto row = line.size() <= longest_line ? row_of(line) : std::nullopt;
    if (!row || !add_row(record, *row)) ++record.unreadable;
  }
  return record;
}

}  // namespace stowage
