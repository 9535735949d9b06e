// What was asked of an allocator lately, as far as a plan for the next time needs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "stowage/bytes.h"

namespace stowage {

// Of a window of operations, which are counted from 0 at its begin.
struct LoggedRequest {
  static constexpr std::size_t never = std::numeric_limits<std::size_t>::max();
  Bytes bytes = 0;
  std::uint64_t stream = 0;
  std::size_t made = 0;
  std::size_t freed = never;  // never: not in the window
};

// The last whole repetition that was found, and how far the next has gone.
struct LoggedPeriod {
  std::vector<LoggedRequest> requests;
  std::size_t next_request = 0;  // of the period: the one that is expected next
  std::size_t left = 0;          // operations until the next begins; 0: it does now
};

class RequestLog {
 public:
  static constexpr std::size_t no_place = std::numeric_limits<std::size_t>::max();

  // Returns where it stands, for its free.
  std::size_t allocate(Bytes bytes, std::uint64_t stream);
  // no_place: of an allocation that was made before the log was last cleared.
  void free(std::size_t place);
  void clear();
  std::size_t size() const { return operations_.size(); }
  std::size_t requests() const { return requests_; }

  // All of it as one window.
  std::vector<LoggedRequest> window() const { return window(0, size()); }
  // The repetition that its end shows: same sizes and streams in the same order, each free of the same
  // request before it, as many frees as requests; at least two of them, and half of the log. It is cut where
  // the fewest bytes are allocated. In linear time.
  std::optional<LoggedPeriod> period() const;

 private:
  struct Operation {
    Bytes bytes = 0;           // 0: a free
    std::uint64_t stream = 0;  // of a request
    std::size_t partner = no_place;
    std::size_t requests = 0;  // before it
  };
  std::vector<LoggedRequest> window(std::size_t begin, std::size_t end) const;
  std::vector<std::uint64_t> tokens() const;
  std::size_t quietest(std::size_t begin, std::size_t end) const;

  std::vector<Operation> operations_;
  std::size_t requests_ = 0;
};

}  // namespace stowage
