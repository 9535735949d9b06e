#include "tools/calibrate/rate_fit.h"

#include <algorithm>

namespace stowage {
namespace {

struct Share {
  double work = 0;
  double seconds = 0;
  double rate(double otherwise) const { return work > 0 && seconds > 0 ? work / seconds : otherwise; }
};

}  // namespace

FittedRates fit_rates(std::span<const OpTime> times, Machine& machine) {
  constexpr int rounds = 4;
  FittedRates fitted;
  for (int round = 0; round < rounds; ++round) {
    Share arithmetic;
    Share memory;
    for (const OpTime& time : times) {
      const bool computes =
          time.cost.flops / machine.flops_per_second > time.cost.bytes / machine.device_bytes_per_second;
      Share& share = computes ? arithmetic : memory;
      share.work += computes ? time.cost.flops : time.cost.bytes;
      share.seconds += std::max(0.0, time.seconds - machine.launch_seconds);
    }
    machine.flops_per_second = arithmetic.rate(machine.flops_per_second);
    machine.device_bytes_per_second = memory.rate(machine.device_bytes_per_second);
    fitted = {arithmetic.seconds > 0, memory.seconds > 0};
  }
  return fitted;
}

}  // namespace stowage
