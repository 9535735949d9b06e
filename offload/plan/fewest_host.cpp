#include "offload/plan/fewest_host.h"

#include <algorithm>

namespace stowage {
namespace {

constexpr std::size_t most_work = 3;  // of a search without a limit
constexpr Bytes closest_part = 100;   // of the fewest bytes: less is not searched for

class FewestSearch {
 public:
  FewestSearch(Cells& cells, Bytes device, FewestHost& found)
      : cells_(cells), device_(device), found_(found) {}

  // Whether there is a plan in so many host bytes.
  bool search(Bytes host) {
    std::optional<RankedPlan> plan;
    if (host == unlimited)
      cells_.improve({device_, host}, plan);
    else
      plan = cells_.any({device_, host});
    if (!plan) return false;
    offer(std::move(*plan));
    return true;
  }
  void offer(RankedPlan plan) {
    found_.bytes = std::min(found_.bytes, plan.plan.host_bytes);
    found_.plans.push_back(std::move(plan));
  }

 private:
  Cells& cells_;
  Bytes device_;
  FewestHost& found_;
};

}  // namespace

FewestHost fewest_host(Cells& cells, Bytes device, const std::vector<Bytes>& others) {
  FewestHost found;
  for (const Bytes bytes : others) found.bytes = std::min(found.bytes, bytes);
  FewestSearch search(cells, device, found);
  search.search(unlimited);
  const std::size_t enough = most_work * cells.work();
  if (std::optional<RankedPlan> least = cells.least_host_plan(device)) search.offer(std::move(*least));
  if (found.bytes == unlimited) return found;
  Bytes in_vain = 0, step = 1;  // in hundredths
  const auto part = [&] { return std::max<Bytes>(1, found.bytes / closest_part); };
  while (found.bytes > 0 && found.bytes - in_vain > part()) {
    if (cells.work() > enough) {
      found.at_most = true;
      break;
    }
    const Bytes less = in_vain > 0 ? (found.bytes - in_vain) / 2 : std::min(found.bytes, step * part());
    const Bytes host = found.bytes - std::max(less, part());
    if (search.search(host))
      step *= 2;
    else
      in_vain = std::max<Bytes>(host, 1);
  }
  return found;
}

}  // namespace stowage
