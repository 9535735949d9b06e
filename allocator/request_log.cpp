#include "allocator/request_log.h"

#include "allocator/period.h"

namespace stowage {
namespace {

// The finaliser of MurmurHash3: tokens that are alike by chance cost misses, nothing else.
constexpr std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ (value >> 33U)) * 0xff51afd7ed558ccdU;
  value = (value ^ (value >> 33U)) * 0xc4ceb9fe1a85ec53U;
  return value ^ (value >> 33U);
}

constexpr std::uint64_t token_of_request(Bytes bytes, std::uint64_t stream) {
  return mixed(bytes + mixed(stream + 1)) | 1U;
}

// By how many requests ago it was made.
constexpr std::uint64_t token_of_free(std::size_t age) { return mixed(age) & ~std::uint64_t{1}; }

}  // namespace

std::size_t RequestLog::allocate(Bytes bytes, std::uint64_t stream) {
  operations_.push_back({bytes, stream, no_place, requests_++});
  return operations_.size() - 1;
}

void RequestLog::free(std::size_t place) {
  if (place != no_place) operations_[place].partner = operations_.size();
  operations_.push_back({0, 0, place, requests_});
}

void RequestLog::clear() {
  operations_.clear();
  requests_ = 0;
}

std::vector<LoggedRequest> RequestLog::window(std::size_t begin, std::size_t end) const {
  std::vector<LoggedRequest> requests;
  for (std::size_t i = begin; i < end; ++i) {
    const Operation& operation = operations_[i];
    if (operation.bytes == 0) continue;
    const bool freed = operation.partner < end;  // no_place is not
    requests.push_back({operation.bytes, operation.stream, i - begin,
                        freed ? operation.partner - begin : LoggedRequest::never});
  }
  return requests;
}

std::vector<std::uint64_t> RequestLog::tokens() const {
  std::vector<std::uint64_t> result;
  result.reserve(operations_.size());
  for (const Operation& operation : operations_) {
    if (operation.bytes != 0) {
      result.push_back(token_of_request(operation.bytes, operation.stream));
    } else if (operation.partner == no_place) {
      result.push_back(token_of_free(no_place));
    } else {
      result.push_back(token_of_free(operation.requests - operations_[operation.partner].requests));
    }
  }
  return result;
}

// Where in [begin, end] the fewest bytes of the log's own requests are allocated.
std::size_t RequestLog::quietest(std::size_t begin, std::size_t end) const {
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

std::optional<LoggedPeriod> RequestLog::period() const {
  const std::size_t size = operations_.size();
  const auto requests_before = [&](std::size_t i) { return i == size ? requests_ : operations_[i].requests; };
  const auto is_balanced = [&](std::size_t length) {
    return 2 * (requests_ - requests_before(size - length)) == length;
  };
  const auto found = find_period(tokens(), is_balanced);
  if (!found || 2 * found->matched < size) return std::nullopt;
  const std::size_t begin = quietest(size - 2 * found->length, size - found->length);
  LoggedPeriod period{window(begin, begin + found->length), 0, 0};
  period.left = (2 * found->length - (size - begin)) % found->length;
  const std::size_t beyond = requests_ - requests_before(begin);
  period.next_request = beyond % period.requests.size();
  return period;
}

}  // namespace stowage
