#include "tools/cli/buffers_csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <iterator>
#include <limits>
#include <unordered_map>

#include "src/base/printable.h"
#include "stowage/error.h"

namespace stowage {
namespace {

constexpr Bytes most_in_all = Bytes{1} << 62;
constexpr std::size_t longest_line = 1024;
constexpr std::size_t longest_id = 256;
constexpr std::size_t longest_quote = 40;

constexpr std::array<std::string_view, 8> column_names{"id",     "lower",     "upper", "size",
                                                       "offset", "alignment", "gaps",  "hint"};
enum class Column : std::uint8_t { id, lower, upper, size, offset, alignment, gaps, hint };
constexpr auto last_needed = Column::size;
// Older names of columns, from minimalloc.
constexpr std::array<std::string_view, 3> older_names{"buffer", "start", "end"};

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

std::string quoted(std::string_view text) { return fmt::format("\"{}\"", printable(text, longest_quote)); }

using Fields = std::vector<std::string_view>;

Fields split_fields(std::string_view line) {
  Fields fields;
  for (std::size_t begin = 0;;) {
    const std::size_t comma = line.find(',', begin);
    fields.push_back(line.substr(begin, comma - begin));
    if (comma == std::string_view::npos) return fields;
    begin = comma + 1;
  }
}

class BuffersParser {
 public:
  BuffersParser(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  Buffers parse() {
    if (!next_line()) {
      number_ = 1;
      refuse("the file is empty; give a header with id, lower, upper and size");
    }
    read_header();
    while (next_line()) {
      if (line_.empty()) {
        if (text_.empty()) break;
        refuse("the line is empty; remove it");
      }
      read_buffer();
    }
    if (buffers_.items.empty()) refuse("no buffer follows the header; give one line for each");
    return std::move(buffers_);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw InvalidInput(fmt::format("'{}', line {}: {}", file_, number_, why));
  }

  bool next_line() {
    if (text_.empty()) return false;
    ++number_;
    const std::size_t end = text_.find('\n');
    line_ = text_.substr(0, end);
    text_.remove_prefix(end == std::string_view::npos ? text_.size() : end + 1);
    if (line_.ends_with('\r')) line_.remove_suffix(1);
    if (line_.size() > longest_line) {
      refuse(fmt::format("{} characters are too many; give at most {} per line", line_.size(), longest_line));
    }
    const auto control = std::find_if(line_.begin(), line_.end(), is_control);
    if (control != line_.end()) {
      refuse(fmt::format("byte {} is a control character (0x{:02x}); give a text file",
                         control - line_.begin() + 1, static_cast<unsigned char>(*control)));
    }
    return true;
  }

  void read_header() {
    const Fields fields = split_fields(line_);
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const auto name = std::find(column_names.begin(), column_names.end(), fields[i]);
      const auto older = std::find(older_names.begin(), older_names.end(), fields[i]);
      if (name == column_names.end() && older == older_names.end()) {
        refuse("the header has " + quoted(fields[i]) +
               "; give the columns id, lower, upper and size, in any order, alignment, gaps and hint where "
               "they are known, and no others");
      }
      const bool is_older = older != older_names.end();
      if (fields[i] == "end") last_is_in_use_ = true;
      std::size_t& at = column_[static_cast<std::size_t>(is_older ? older - older_names.begin()
                                                                  : name - column_names.begin())];
      if (at != absent) refuse("the header has " + quoted(fields[i]) + " twice; give each column once");
      at = i;
    }
    for (std::size_t i = 0; i <= static_cast<std::size_t>(last_needed); ++i) {
      if (column_[i] == absent) {
        refuse(fmt::format("the header has no '{}'; give the columns id, lower, upper and size",
                           column_names[i]));
      }
    }
    count_ = fields.size();
  }

  void read_buffer() {
    fields_ = split_fields(line_);
    if (fields_.size() != count_) {
      refuse(
          fmt::format("{} fields where the header has {}; give one for each column", fields_.size(), count_));
    }
    PlacementItem item;
    item.first = static_cast<std::int64_t>(number(Column::lower));
    item.last = static_cast<std::int64_t>(number(Column::upper));
    if (last_is_in_use_ && item.last < std::numeric_limits<std::int64_t>::max()) ++item.last;
    item.bytes = number(Column::size);
    if (item.first >= item.last) {
      refuse(fmt::format("lower {} is not before upper {}; give the time after the last use as upper",
                         item.first, item.last));
    }
    if (item.bytes == 0) refuse("size is 0; leave the buffer out, or give at least 1 byte");
    if (item.bytes > most_in_all - total_) {
      refuse("the sizes up to here add up to more than 4 EiB; give sizes in bytes that a machine can have");
    }
    total_ += item.bytes;
    read_wishes();
    buffers_.ids.push_back(read_id());
    buffers_.items.push_back(item);
  }

  // Reads the columns that a file may have beside lifetime and size.
  void read_wishes() {
    if (has(Column::alignment)) {
      const Bytes alignment = number(Column::alignment);
      if (!std::has_single_bit(alignment) || alignment > most_place_alignment)
        refuse(fmt::format("alignment is {}; give a power of two, at most 1GiB", alignment));
      buffers_.alignment = std::max(buffers_.alignment, alignment);
    }
    if (has(Column::gaps)) {
      const std::string_view gaps = field(Column::gaps);
      if (gaps.find_first_not_of("0123456789-@: ") != std::string_view::npos)
        refuse(fmt::format("gaps is {}; give ranges of times, as 3-7", quoted(gaps)));
      if (!gaps.empty()) ++buffers_.gaps;
    }
    if (has(Column::hint) && !field(Column::hint).empty() && field(Column::hint) != "-1") {
      number(Column::hint);
      ++buffers_.hints;
    }
  }

  std::string read_id() {
    const std::string_view text = field(Column::id);
    if (text.empty()) refuse("the id is empty; give each buffer one of its own");
    if (text.size() > longest_id) {
      refuse(fmt::format("the id has {} characters; give at most {}", text.size(), longest_id));
    }
    if (text.find('"') != std::string_view::npos)
      refuse("the id " + quoted(text) + " has a quote; remove it");
    const auto [known, is_new] = lines_.try_emplace(text, number_);
    if (!is_new) {
      refuse(fmt::format("the id {} is that of line {}; give each buffer one of its own", quoted(text),
                         known->second));
    }
    return std::string(text);
  }

  bool has(Column column) const { return column_[static_cast<std::size_t>(column)] != absent; }
  std::string_view field(Column column) const { return fields_[column_[static_cast<std::size_t>(column)]]; }

  std::uint64_t number(Column column) const {
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
    const std::string_view text = field(column);
    std::int64_t value = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 0 || text.starts_with('-')) {
      refuse(fmt::format("{} is {}; give a whole number from 0 to {}, in digits",
                         column_names[static_cast<std::size_t>(column)], quoted(text), most));
    }
    return static_cast<std::uint64_t>(value);
  }

  static constexpr std::size_t absent = std::numeric_limits<std::size_t>::max();

  std::string_view text_;  // text behind the current line
  std::string_view line_;
  const std::string& file_;
  std::size_t number_ = 0;  // number of the current line
  std::array<std::size_t, column_names.size()> column_{absent, absent, absent, absent,
                                                       absent, absent, absent, absent};
  // The column `upper` is minimalloc's `end`, a time at which the buffer is still in use.
  bool last_is_in_use_ = false;
  std::size_t count_ = 0;
  Fields fields_;
  Bytes total_ = 0;
  std::unordered_map<std::string_view, std::size_t> lines_;  // line of each id
  Buffers buffers_;
};

}  // namespace

Buffers parse_buffers(std::string_view text, const std::string& file) {
  return BuffersParser(text, file).parse();
}

std::string to_csv(const Buffers& buffers, const std::vector<Bytes>& offsets) {
  std::string text = "id,lower,upper,size,offset\n";
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    const PlacementItem& item = buffers.items[i];
    fmt::format_to(std::back_inserter(text), "{},{},{},{},{}\n", buffers.ids[i], item.first, item.last,
                   item.bytes, offsets[i]);
  }
  return text;
}

}  // namespace stowage
