#include "allocator/pickle_writer.h"

#include <bit>
#include <utility>

namespace stowage::caching {
namespace {

constexpr std::size_t longest_known = 64;  // longer strings are written in full each time

}  // namespace

PickleWriter::PickleWriter() { out_ = "\x80\x02"; }

void PickleWriter::little_endian(std::uint64_t value, int bytes) {
  for (int byte = 0; byte < bytes; ++byte) out_ += static_cast<char>(value >> 8 * byte & 0xff);
}

void PickleWriter::begin(char empty, char append, std::size_t per_item) {
  before_value();
  out_ += empty;
  open_.push_back({append, per_item, 0});
}

void PickleWriter::before_value() {
  if (open_.empty()) return;
  Open& now = open_.back();
  if (now.values == batch * now.per_item) {
    out_ += now.append;
    now.values = 0;
  }
  if (now.values == 0) out_ += '(';
  ++now.values;
}

void PickleWriter::end() {
  if (open_.back().values > 0) out_ += open_.back().append;
  open_.pop_back();
}

void PickleWriter::integer(std::int64_t value) {
  before_value();
  if (value >= 0 && value < 256) {
    out_ += 'K';
    little_endian(static_cast<std::uint64_t>(value), 1);
  } else if (value == static_cast<std::int32_t>(value)) {
    out_ += 'J';
    little_endian(static_cast<std::uint64_t>(value), 4);
  } else {
    out_ += "\x8a\x08";  // opcode LONG1, then the length: eight bytes
    little_endian(static_cast<std::uint64_t>(value), 8);
  }
}

void PickleWriter::real(double value) {
  before_value();
  out_ += 'G';
  const auto bits = std::bit_cast<std::uint64_t>(value);
  for (int byte = 7; byte >= 0; --byte) out_ += static_cast<char>(bits >> 8 * byte & 0xff);
}

void PickleWriter::boolean(bool value) {
  before_value();
  out_ += value ? '\x88' : '\x89';
}

void PickleWriter::text(std::string_view value) {
  before_value();
  if (const auto found = known_.find(value); found != known_.end()) {
    out_ += 'j';
    little_endian(found->second, 4);
    return;
  }
  out_ += 'X';
  little_endian(value.size(), 4);
  out_ += value;
  if (value.size() > longest_known) return;
  const auto number = static_cast<std::uint32_t>(known_.size());
  known_.emplace(value, number);
  out_ += 'r';
  little_endian(number, 4);
}

void PickleWriter::pair(std::int64_t first, std::int64_t second) {
  before_value();
  // The two values do not count as items of an open list.
  std::vector<Open> outside = std::exchange(open_, {});
  integer(first);
  integer(second);
  open_ = std::move(outside);
  out_ += '\x86';
}

std::string PickleWriter::finish() {
  out_ += '.';
  return std::move(out_);
}

}  // namespace stowage::caching
