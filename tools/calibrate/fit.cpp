#include "tools/calibrate/fit.h"

#include <algorithm>

#include "src/graph/cost.h"
#include "stowage/error.h"

namespace stowage {
namespace {

struct Share {
  double work = 0;
  double seconds = 0;
  double rate(double otherwise) const { return work > 0 && seconds > 0 ? work / seconds : otherwise; }
};

// Sums over the samples, each weighted by 1 / seconds: the normal equations of latency + bytes / peak
// = seconds.
struct Sums {
  double one = 0, bytes = 0, bytes_squared = 0;  // weighted sums
  double count = 0, plain_bytes = 0;             // weighted sums of values times seconds
};

Sums sums_of(std::span<const CopySample> samples) {
  Sums sums;
  for (const CopySample& sample : samples) {
    const double bytes = static_cast<double>(sample.bytes);
    const double weight = 1 / sample.seconds;
    sums.one += weight;
    sums.bytes += weight * bytes;
    sums.bytes_squared += weight * bytes * bytes;
    sums.count += 1;
    sums.plain_bytes += bytes;
  }
  return sums;
}

void require_two_sizes(std::span<const CopySample> samples) {
  const bool timed = std::all_of(samples.begin(), samples.end(),
                                 [](const CopySample& sample) { return sample.seconds > 0; });
  const bool varied = std::any_of(samples.begin(), samples.end(), [&](const CopySample& sample) {
    return sample.bytes != samples.front().bytes;
  });
  if (!timed || !varied) {
    throw InvalidInput("a link is fitted to copies of two sizes or more that took time; measure more sizes");
  }
}

}  // namespace

void add_time(const Op& op, double seconds, std::vector<OpTime>& times) {
  if (op.phase != Phase::update && !is_codec(op)) times.push_back({op.cost, seconds});
}

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

Link fit_link(std::span<const CopySample> samples) {
  require_two_sizes(samples);
  const Sums sums = sums_of(samples);
  const double determinant = sums.one * sums.bytes_squared - sums.bytes * sums.bytes;
  const double latency = (sums.count * sums.bytes_squared - sums.plain_bytes * sums.bytes) / determinant;
  const double seconds_per_byte = (sums.one * sums.plain_bytes - sums.bytes * sums.count) / determinant;
  Link link;
  if (latency >= 0 && seconds_per_byte > 0) {
    link.latency_seconds = latency;
    link.bytes_per_second = 1 / seconds_per_byte;
  } else {  // longer copies are too fast, or too slow, for any latency
    link.latency_seconds = 0;
    link.bytes_per_second = sums.bytes_squared / sums.plain_bytes;
  }
  return link;
}

}  // namespace stowage
