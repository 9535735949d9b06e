// Recorder: the latest requests to an allocator, as far as a plan for the next iteration needs them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "stowage/bytes.h"

namespace stowage::caching::replay {

// A request among operations (requests and frees) that are counted from 0.
struct RecordedRequest {
  static constexpr std::size_t never = std::numeric_limits<std::size_t>::max();
  Bytes bytes = 0;
  std::uint64_t stream = 0;
  std::size_t made = 0;
  std::size_t freed = never;  // number of the operation that frees it; never: no recorded operation does
};

// The last whole repetition, and how far the next has gone.
struct RecordedPeriod {
  std::vector<RecordedRequest> requests;
  std::size_t next_request = 0;  // index of the request that is expected next
  std::size_t left = 0;          // operations until the next repetition begins; 0: it begins now
};

class Recorder {
 public:
  static constexpr std::size_t no_place = std::numeric_limits<std::size_t>::max();

  // Returns the request's place, for its free.
  std::size_t allocate(Bytes bytes, std::uint64_t stream);
  // no_place: the request was made before the recorder was last cleared.
  void free(std::size_t place);
  void clear();
  std::size_t size() const { return operations_.size(); }

  // Returns the requests among all operations.
  std::vector<RecordedRequest> requests() const { return requests_in(0, size()); }
  // Returns the repetition at the end of the record: same sizes and streams in the same order, each free of
  // the same request before it, as many frees as requests. The repetition has come at least twice and fills
  // at least half of the record. The begin of the repetition is where the fewest bytes are allocated. Takes
  // linear time.
  std::optional<RecordedPeriod> period() const;

 private:
  struct Operation {
    Bytes bytes = 0;                 // size of a request; 0: the operation is a free
    std::uint64_t stream = 0;        // stream of a request
    std::size_t partner = no_place;  // index of the request's free, or of the free's request
    std::size_t requests_before = 0;
  };
  std::vector<RecordedRequest> requests_in(std::size_t begin, std::size_t end) const;
  std::vector<std::uint64_t> tokens() const;
  std::size_t quietest(std::size_t begin, std::size_t end) const;

  std::vector<Operation> operations_;
  std::size_t count_ = 0;  // number of requests
};

struct SequencePeriod {
  std::size_t length = 0;
  std::size_t matched = 0;  // the last `matched` tokens repeat; at least twice `length`
  friend bool operator==(const SequencePeriod&, const SequencePeriod&) = default;
};

// Returns the shortest period of the longest suffix that repeats. A length that `accept` refuses is passed
// over for the period of a shorter suffix. Takes linear time, by the failure function of Knuth, Morris and
// Pratt, "Fast pattern matching in strings", 1977, over the tokens from last to first.
std::optional<SequencePeriod> find_period(std::span<const std::uint64_t> tokens,
                                          const std::function<bool(std::size_t length)>& accept);

}  // namespace stowage::caching::replay
