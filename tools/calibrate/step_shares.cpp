// Shares of speed that the lanes of a device leave to each other if it computes with the host's own cores.
#include <algorithm>
#include <exception>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "stowage/simulated_device.h"
#include "tools/calibrate/host_probe.h"
#include "tools/calibrate/link_probe.h"
#include "tools/calibrate/step_probe.h"
#include "tools/calibrate/stopwatch.h"

namespace stowage {
namespace {

constexpr int rounds = 3;  // steps beside copies, and as many beside updates

// Returns the share of its speed that work keeps which takes `alone` seconds alone and `beside` seconds
// beside other work; at least a small part.
double share_kept(double alone, double beside) {
  constexpr double least = 0.05;
  return beside > 0 ? std::clamp(alone / beside, least, 1.0) : 1;
}

// Returns the share that the compute lane keeps while one direction of `link` is busy with copies of at most
// `most_bytes` bytes.
double beside_copies_of(double most_bytes, StepProbe& run, const Link& link, double alone) {
  constexpr double copy_seconds = 2e-3;
  const double rate = link.throttled ? link.bytes_per_second : most_bytes / copy_seconds;
  const auto bytes = static_cast<Bytes>(std::min(most_bytes, rate * copy_seconds));
  if (bytes < 4096 || link.latency_seconds > copy_seconds) return 1;  // such a link hardly copies
  const auto device = open_simulated_device(
      {.capacity = unlimited, .h2d = link, .d2h = link, .poison = Poison::none, .check_accesses = false});
  LinkDirection copies(*device, LaneRole::h2d, bytes);
  // Enough copies to last longer than a step.
  const int longer = static_cast<int>(1.5 * alone / link.seconds(bytes)) + 1;
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    copies.begin(bytes, longer);
    times.push_back(run.step().whole);
    copies.read();
  }
  return share_kept(alone, median(std::move(times)));
}

// Returns the share beside large copies, whose bytes go through the cores, or beside small ones, which begin
// and end all the time: the smaller of the two.
double beside_copy(StepProbe& run, const Link& link, double alone, std::int64_t elements) {
  // Memory is needed twice: page-locked, on a device.
  const double large = std::min(16e6, 8 * static_cast<double>(elements));
  return std::min(beside_copies_of(large, run, link, alone), beside_copies_of(64e3, run, link, alone));
}

// Measures the shares that compute and host lane keep of their speed while both are busy.
void measure_beside_host(StepProbe& run, double alone, Machine& machine, std::int64_t elements) {
  HostUpdate update(elements);
  update.seconds();
  std::vector<double> updates, times;
  {
    std::exception_ptr failure;
    std::jthread host([&](const std::stop_token& over) {
      try {
        while (!over.stop_requested()) updates.push_back(update.seconds());
      } catch (...) {
        failure = std::current_exception();
      }
    });
    for (int i = 0; i < rounds; ++i) times.push_back(run.step().whole);
    host.request_stop();
    host.join();
    if (failure != nullptr) std::rethrow_exception(failure);
  }
  machine.compute_beside_host = share_kept(alone, median(std::move(times)));
  machine.host_beside_compute =
      share_kept(update.bytes() / machine.host_bytes_per_second, median(std::move(updates)));
}

}  // namespace

void measure_shares(StepProbe& run, double alone, const Link& link, Machine& machine, std::int64_t elements) {
  machine.compute_beside_copy = beside_copy(run, link, alone, elements);
  measure_beside_host(run, alone, machine, elements);
}

}  // namespace stowage
