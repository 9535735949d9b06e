#include "tools/calibrate/contradictions.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace stowage {
namespace {

constexpr double least_share = 0.5;  // of a smaller one's rate

struct Measured {
  std::string what;  // "16.00 MiB", for the sentence
  double rate = 0;   // per second
};

// Whether the second of two is as large in every way.
using IsLarger = std::function<bool(std::size_t, std::size_t)>;

void add_worst(const std::string& curve, const std::vector<Measured>& all, double unit, const char* unit_name,
               const IsLarger& is_larger, std::vector<std::string>& found) {
  const Measured* fast = nullptr;
  const Measured* slow = nullptr;
  double least = least_share;
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t k = 0; k < all.size(); ++k) {
      if (!is_larger(i, k) || all[k].rate >= least * all[i].rate) continue;
      least = all[k].rate / all[i].rate;
      fast = &all[i];
      slow = &all[k];
    }
  }
  if (fast == nullptr) return;
  found.push_back(fmt::format("{}: {} at {:.1f} {}, but {} at {:.1f}", curve, fast->what, fast->rate / unit,
                              unit_name, slow->what, slow->rate / unit));
}

void add_copies(const std::string& curve, const std::vector<CopySample>& samples,
                std::vector<std::string>& found) {
  std::vector<Measured> all;
  for (const CopySample& sample : samples)
    all.push_back({format_bytes(sample.bytes), static_cast<double>(sample.bytes) / sample.seconds});
  add_worst(
      curve, all, 1e9, "GB/s",
      [&](std::size_t small, std::size_t large) { return samples[small].bytes < samples[large].bytes; },
      found);
}

void add_products(const MatrixRate& rate, std::vector<std::string>& found) {
  std::vector<Measured> all;
  for (const MatrixSample& sample : rate.samples) {
    const double flops = 2 * static_cast<double>(sample.rows) * static_cast<double>(sample.inner) *
                         static_cast<double>(sample.columns);
    all.push_back(
        {fmt::format("{} x {} x {}", sample.rows, sample.inner, sample.columns), flops / sample.seconds});
  }
  add_worst(
      fmt::format("{} products", to_string(rate.type)), all, 1e9, "GFLOP/s",
      [&](std::size_t small, std::size_t large) {
        const MatrixSample &a = rate.samples[small], &b = rate.samples[large];
        return a.rows <= b.rows && a.inner <= b.inner && a.columns <= b.columns;
      },
      found);
}

void add_threads(const std::vector<HostRate>& rates, std::vector<std::string>& found) {
  std::vector<Measured> all;
  for (const HostRate& rate : rates)
    all.push_back(
        {fmt::format("{} thread{}", rate.threads, rate.threads == 1 ? "" : "s"), rate.bytes_per_second});
  add_worst(
      "host memory", all, 1e9, "GB/s",
      [&](std::size_t few, std::size_t many) { return rates[few].threads < rates[many].threads; }, found);
}

}  // namespace

std::vector<std::string> contradictions(const MachineFile& file) {
  std::vector<std::string> found;
  add_copies("h2d", file.h2d.samples, found);
  add_copies("d2h", file.d2h.samples, found);
  add_copies("h2d, both", file.h2d_both.samples, found);
  add_copies("d2h, both", file.d2h_both.samples, found);
  for (const MatrixRate& rate : file.matrix) add_products(rate, found);
  add_threads(file.host_rates, found);
  return found;
}

}  // namespace stowage
