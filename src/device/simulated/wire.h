// Wire: models a link's copies in both directions, which slow each other. Thread-safe.
//
// Times are modelled, on the device's clock. Transfers up to a time are settled when somebody asks about a
// later time. A copy that should begin before the settled time begins at it.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "src/base/mutex.h"
#include "stowage/device.h"
#include "stowage/simulated_device.h"

namespace stowage::simulated {

class Wire {
 public:
  struct Direction {
    double latency = 0;            // seconds
    double alone = 0, beside = 0;  // bytes per second, without and with bytes in the other direction
  };
  using TransferId = std::size_t;

  Wire(const Direction& h2d, const Direction& d2h) : directions_{h2d, d2h} {}

  // Begins a copy on an h2d or d2h lane at `time`.
  TransferId begin(LaneRole direction, double time, Bytes bytes);
  // Returns when the transfer will end, as far as is known at `now`: later transfers may delay it. If that is
  // at or before `now`, the transfer has ended and its id is free.
  double end(TransferId transfer, double now);

 private:
  struct Transfer {
    std::size_t direction = 0;
    double moves_from = 0;  // time at which the latency is over
    double left = 0;        // bytes
    double end = 0;         // time of its end, once nothing is left
    bool taken = false;     // the id is in use
    bool moves(double time) const { return taken && left > 0 && moves_from <= time; }
  };
  using Transfers = std::vector<Transfer>;

  // Advances the transfers until `until`, or until `watched` has ended.
  void advance(Transfers& transfers, double& time, double until, std::optional<TransferId> watched) const;
  double rate(const Transfers& transfers, const Transfer& transfer, double time) const;

  const std::array<Direction, 2> directions_;
  Mutex mutex_;
  Transfers transfers_ STOWAGE_GUARDED_BY(mutex_);
  double time_ STOWAGE_GUARDED_BY(mutex_) = 0;  // time up to which all transfers are settled
};

// Returns nullopt if no direction slows the other.
std::optional<Wire> wire_for(const SimulatedOptions& options);

}  // namespace stowage::simulated
