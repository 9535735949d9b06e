#include "src/device/simulated/wire.h"

#include <algorithm>
#include <limits>

namespace stowage::simulated {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

Wire::Direction direction_of(const Link& link, double both) {
  return {link.latency_seconds, link.bytes_per_second, std::min(link.bytes_per_second, both)};
}

}  // namespace

Wire::TransferId Wire::begin(LaneRole direction, double time, Bytes bytes) {
  const MutexLock lock(mutex_);
  advance(transfers_, time_, time, std::nullopt);
  const auto free = std::find_if(transfers_.begin(), transfers_.end(),
                                 [](const Transfer& transfer) { return !transfer.taken; });
  const auto id = static_cast<TransferId>(free - transfers_.begin());
  if (free == transfers_.end()) transfers_.emplace_back();
  const std::size_t index = direction == LaneRole::h2d ? 0 : 1;
  const double moves_from = std::max(time, time_) + directions_.at(index).latency;
  transfers_[id] = {index, moves_from, static_cast<double>(bytes), moves_from, true};
  return id;
}

double Wire::end(TransferId id, double now) {
  const MutexLock lock(mutex_);
  Transfers ahead = transfers_;
  double time = time_;
  advance(ahead, time, never, id);
  const double end = ahead[id].end;
  if (end > now) return end;
  transfers_ = std::move(ahead);
  time_ = std::max(time_, end);
  transfers_[id].taken = false;
  return end;
}

double Wire::rate(const Transfers& transfers, const Transfer& transfer, double time) const {
  const Direction& direction = directions_.at(transfer.direction);
  const bool crossed = std::any_of(transfers.begin(), transfers.end(), [&](const Transfer& other) {
    return other.direction != transfer.direction && other.moves(time);
  });
  return crossed ? direction.beside : direction.alone;
}

void Wire::advance(Transfers& transfers, double& time, double until,
                   std::optional<TransferId> watched) const {
  while (time < until && !(watched && transfers[*watched].left <= 0)) {
    double next = until;
    for (const Transfer& transfer : transfers) {
      if (!transfer.taken || transfer.left <= 0) continue;
      next = std::min(next, transfer.moves(time) ? time + transfer.left / rate(transfers, transfer, time)
                                                 : transfer.moves_from);
    }
    const Transfers before = transfers;
    for (Transfer& transfer : transfers) {
      if (!transfer.moves(time)) continue;
      const double speed = rate(before, transfer, time);
      const bool ends = time + transfer.left / speed <= next;
      transfer.left = ends ? 0 : std::max(0.0, transfer.left - (next - time) * speed);
      if (transfer.left <= 0) transfer.end = next;
    }
    time = next;
  }
}

std::optional<Wire> wire_for(const SimulatedOptions& options) {
  const Wire::Direction h2d = direction_of(options.h2d, options.h2d_both_bytes_per_second);
  const Wire::Direction d2h = direction_of(options.d2h, options.d2h_both_bytes_per_second);
  if (!options.h2d.throttled || !options.d2h.throttled) return std::nullopt;
  if (h2d.beside >= h2d.alone && d2h.beside >= d2h.alone) return std::nullopt;
  return std::make_optional<Wire>(h2d, d2h);
}

}  // namespace stowage::simulated
