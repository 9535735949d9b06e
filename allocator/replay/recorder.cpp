#include "allocator/replay/recorder.h"

namespace stowage::caching::replay {
namespace {

// The finaliser of MurmurHash3. Tokens of different operations that are equal by chance only cost misses.
constexpr std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ (value >> 33U)) * 0xff51afd7ed558ccdU;
  value = (value ^ (value >> 33U)) * 0xc4ceb9fe1a85ec53U;
  return value ^ (value >> 33U);
}

constexpr std::uint64_t token_of_request(Bytes bytes, std::uint64_t stream) {
  return mixed(bytes + mixed(stream + 1)) | 1U;
}

// `age`: requests since the freed one, itself included.
constexpr std::uint64_t token_of_free(std::size_t age) { return mixed(age) & ~std::uint64_t{1}; }

// borders[n]: of the last n tokens, the longest proper suffix that is a prefix too.
std::vector<std::size_t> borders_of(std::span<const std::uint64_t> tokens) {
  const auto from_end = [&](std::size_t i) { return tokens[tokens.size() - 1 - i]; };
  std::vector<std::size_t> borders(tokens.size() + 1, 0);
  for (std::size_t n = 2; n <= tokens.size(); ++n) {
    std::size_t border = borders[n - 1];
    while (border > 0 && from_end(border) != from_end(n - 1)) border = borders[border];
    borders[n] = from_end(border) == from_end(n - 1) ? border + 1 : 0;
  }
  return borders;
}

}  // namespace

std::size_t Recorder::allocate(Bytes bytes, std::uint64_t stream) {
  operations_.push_back({bytes, stream, no_place, count_++});
  return operations_.size() - 1;
}

void Recorder::free(std::size_t place) {
  if (place != no_place) operations_[place].partner = operations_.size();
  operations_.push_back({0, 0, place, count_});
}

void Recorder::clear() {
  operations_.clear();
  count_ = 0;
}

std::vector<RecordedRequest> Recorder::requests_in(std::size_t begin, std::size_t end) const {
  std::vector<RecordedRequest> requests;
  for (std::size_t i = begin; i < end; ++i) {
    const Operation& operation = operations_[i];
    if (operation.bytes == 0) continue;
    const bool is_freed = operation.partner < end;  // false if `partner` is no_place
    requests.push_back({operation.bytes, operation.stream, i - begin,
                        is_freed ? operation.partner - begin : RecordedRequest::never});
  }
  return requests;
}

std::vector<std::uint64_t> Recorder::tokens() const {
  std::vector<std::uint64_t> result;
  result.reserve(operations_.size());
  for (const Operation& operation : operations_) {
    if (operation.bytes != 0) {
      result.push_back(token_of_request(operation.bytes, operation.stream));
    } else if (operation.partner == no_place) {
      result.push_back(token_of_free(no_place));
    } else {
      result.push_back(
          token_of_free(operation.requests_before - operations_[operation.partner].requests_before));
    }
  }
  return result;
}

// Returns the place in [begin, end] before which the fewest bytes of recorded requests are allocated.
std::size_t Recorder::quietest(std::size_t begin, std::size_t end) const {
  Bytes live = 0, least = std::numeric_limits<Bytes>::max();
  std::size_t at = begin;
  for (std::size_t i = 0; i <= end; ++i) {
    if (i >= begin && live < least) {
      least = live;
      at = i;
    }
    if (i == end) break;
    const Operation& operation = operations_[i];
    if (operation.bytes != 0) {
      live += operation.bytes;
    } else if (operation.partner != no_place) {
      live -= operations_[operation.partner].bytes;
    }
  }
  return at;
}

std::optional<RecordedPeriod> Recorder::period() const {
  const auto requests_since = [&](std::size_t i) {
    return i == size() ? 0 : count_ - operations_[i].requests_before;
  };
  const auto is_balanced = [&](std::size_t length) { return 2 * requests_since(size() - length) == length; };
  const auto found = find_period(tokens(), is_balanced);
  if (!found || 2 * found->matched < size()) return std::nullopt;
  const std::size_t begin = quietest(size() - 2 * found->length, size() - found->length);
  RecordedPeriod period{requests_in(begin, begin + found->length), 0, 0};
  period.left = (2 * found->length - (size() - begin)) % found->length;
  period.next_request = requests_since(begin) % period.requests.size();
  return period;
}

std::optional<SequencePeriod> find_period(std::span<const std::uint64_t> tokens,
                                          const std::function<bool(std::size_t length)>& accept) {
  const std::vector<std::size_t> borders = borders_of(tokens);
  for (std::size_t matched = tokens.size(); matched >= 2; --matched) {
    const std::size_t length = matched - borders[matched];
    if (2 * length <= matched && accept(length)) return SequencePeriod{length, matched};
  }
  return std::nullopt;
}

}  // namespace stowage::caching::replay
