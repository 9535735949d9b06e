#include "tools/calibrate/peer_probe.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "offload/engine/local_ranks.h"
#include "tools/calibrate/fit.h"
#include "tools/calibrate/link_probe.h"
#include "tools/calibrate/stopwatch.h"

namespace stowage {
namespace {

constexpr Bytes alignment = 256;        // alignment of a share
constexpr Bytes in_turn = 4;            // number of pieces of a link's memory that its copies take in turn
constexpr std::size_t least_sizes = 4;  // fewest sizes that allow a fit
constexpr double most_copies = 1000;    // most copies beside gathers

// A device with its link, and memory for the bytes that it sends to the others and receives from them.
class Rank {
 public:
  Rank(Device& device, Communicator& communicator, const PeerProbeOptions& options)
      : communicator_(communicator),
        gate_lane_(device, LaneRole::compute),
        gate_(device),
        device_(device),
        in_(device, LaneRole::h2d, in_turn * options.piece),
        out_(device, LaneRole::d2h, in_turn * options.piece),
        from_(device, MemoryKind::device, options.largest),
        to_(device, MemoryKind::device, options.largest),
        lane_(device, LaneRole::peer),
        drain_(device, lane_.id()),
        stopwatch_(device, lane_.id()) {}

  Communicator& communicator() { return communicator_; }
  double gather(Bytes share) {
    return seconds([&] { communicator_.all_gather(lane_.id(), to_.data(), share); });
  }
  double exchange(Bytes share) {
    return seconds([&] { communicator_.exchange(lane_.id(), from_.data(), to_.data(), share); });
  }

  // Returns the seconds of `gathers` gathers and `copies` copies in, made at the same time once all devices
  // are ready.
  double beside(Bytes share, int gathers, Bytes piece, int copies) {
    communicator_.barrier();
    device_.record(gate_.id(), gate_lane_.id());
    if (copies > 0) in_.begin(gate_.id(), piece, copies);
    const double gathered = gathers == 0 ? 0 : seconds([&] {
      for (int i = 0; i < gathers; ++i) communicator_.all_gather(lane_.id(), to_.data(), share);
    });
    return std::max(gathered, copies > 0 ? in_.read() : 0);
  }

  // Copies over the link in the directions asked for, once all devices are ready.
  struct Ways {
    double in = 0, out = 0;  // seconds of all copies in, and of all copies out
  };
  Ways copy(bool in, bool out, Bytes piece, int copies) {
    communicator_.barrier();
    device_.record(gate_.id(), gate_lane_.id());
    if (in) in_.begin(gate_.id(), piece, copies);
    if (out) out_.begin(gate_.id(), piece, copies);
    return {in ? in_.read() : 0, out ? out_.read() : 0};
  }

 private:
  // Returns the seconds of a collective. A small collective before the measured one lets all
  // devices begin at once.
  double seconds(const std::function<void()>& collective) {
    communicator_.all_gather(lane_.id(), to_.data(), alignment);
    return stopwatch_.seconds(collective);
  }

  Communicator& communicator_;
  Lane gate_lane_;
  Event gate_;
  Device& device_;
  LinkDirection in_, out_;
  DeviceMemory from_, to_;
  Lane lane_;
  Drain drain_;
  Stopwatch stopwatch_;
};

class PeerProbe {
 public:
  PeerProbe(std::span<Device* const> devices, const CommunicatorOptions& link,
            const PeerProbeOptions& options)
      : options_(options), communicators_(open_communicators(devices, link)) {
    try {
      for (std::size_t i = 0; i < devices.size(); ++i)
        ranks_.push_back(std::make_unique<Rank>(*devices[i], *communicators_[i], options_));
    } catch (...) {
      close();
      throw;
    }
  }
  PeerProbe(const PeerProbe&) = delete;
  PeerProbe& operator=(const PeerProbe&) = delete;
  ~PeerProbe() { close(); }

  void measure_collectives(PeerDevices& peers) {
    const auto ranks = static_cast<Bytes>(ranks_.size());
    for (Bytes whole = options_.smallest; whole <= options_.largest; whole *= 2) {
      const Bytes share = whole / ranks / alignment * alignment;
      const Bytes received = (ranks - 1) * share;
      peers.gathers.push_back({received, slowest([&](Rank& rank) { return rank.gather(share); })});
      peers.exchanges.push_back({received, slowest([&](Rank& rank) { return rank.exchange(share); })});
      const double longest = std::max(peers.gathers.back().seconds, peers.exchanges.back().seconds);
      if (peers.gathers.size() >= least_sizes && longest > options_.longest_seconds) break;
    }
    std::vector<CopySample> all = peers.gathers;
    all.insert(all.end(), peers.exchanges.begin(), peers.exchanges.end());
    peers.link = fit_link(all);
  }

  // Measures with wholes of the largest size measured so far.
  PeerPath path(const MachineFile& file, const PeerDevices& peers) {
    constexpr int gathers = 4;
    const Bytes piece = std::min(options_.piece, file.h2d.samples.back().bytes);
    const Bytes share = peers.gathers.back().bytes / (ranks_.size() - 1);
    const double gathered = slowest([&](Rank& rank) { return rank.beside(share, gathers, piece, 0); });
    const double one = slowest([&](Rank& rank) { return rank.beside(share, 0, piece, 1); });
    const int copies = static_cast<int>(std::clamp(gathered / std::max(one, 1e-9), 1.0, most_copies));
    const double copied = slowest([&](Rank& rank) { return rank.beside(share, 0, piece, copies); });
    const double both = slowest([&](Rank& rank) { return rank.beside(share, gathers, piece, copies); });
    const auto received = static_cast<double>((ranks_.size() - 1) * share) * gathers;
    const double part = received / gathered / (static_cast<double>(piece) * copies / copied);
    return path_of(gathered, copied, both, part);
  }

  // Rates are those of the slowest device.
  LinkRates links_together(const MachineFile& file) {
    const Bytes piece = std::min(options_.piece, file.h2d.samples.back().bytes);
    const int copies = options_.copies;
    const double in = slowest([&](Rank& rank) { return rank.copy(true, false, piece, copies).in; }) / copies;
    const double out =
        slowest([&](Rank& rank) { return rank.copy(false, true, piece, copies).out; }) / copies;
    const double in_both = slowest([&](Rank& rank) {
      const Rank::Ways both = rank.copy(true, true, piece, copies);
      return seconds_beside(copies, both.in, both.out, in);
    });
    const double out_both = slowest([&](Rank& rank) {
      const Rank::Ways both = rank.copy(true, true, piece, copies);
      return seconds_beside(copies, both.out, both.in, out);
    });
    const auto rate = [piece](double seconds, const CopyCurve& alone) {
      const double latency = alone.fit.latency_seconds;
      return static_cast<double>(piece) / (seconds > latency ? seconds - latency : seconds);
    };
    return {rate(in, file.h2d), rate(out, file.d2h), rate(in_both, file.h2d_both),
            rate(out_both, file.d2h_both)};
  }

 private:
  void close() {
    ranks_.clear();
    close_communicators(communicators_);
  }

  // Returns the median of the slowest device's seconds, after a first run that does not count.
  double slowest(const std::function<double(Rank&)>& work) {
    std::vector<std::vector<double>> times(ranks_.size());
    each([&](std::size_t i) {
      work(*ranks_[i]);
      for (int k = 0; k < options_.repetitions; ++k) times[i].push_back(work(*ranks_[i]));
    });
    std::vector<double> longest = times.front();
    for (const auto& of_rank : times)
      for (std::size_t k = 0; k < longest.size(); ++k) longest[k] = std::max(longest[k], of_rank[k]);
    return median(std::move(longest));
  }
  // If a device fails, the others do not wait for it.
  void each(const std::function<void(std::size_t)>& work) {
    const auto guarded = [&](std::size_t i) {
      try {
        work(i);
      } catch (const std::exception& error) {
        ranks_[i]->communicator().abort(error.what());
        throw;
      }
    };
    on_ranks(ranks_.size(), guarded, [&](const char* why) {
      for (const auto& rank : ranks_) rank->communicator().abort(why);
    });
  }

  PeerProbeOptions options_;
  Communicators communicators_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace

PeerDevices measure_peers(std::span<Device* const> devices, const CommunicatorOptions& link,
                          const PeerProbeOptions& options, const MachineFile& file) {
  PeerDevices peers;
  peers.devices = static_cast<int>(devices.size());
  peers.devices_per_host_memory = peers.devices;  // the file's host rates are those of all cores
  PeerProbe probe(devices, link, options);
  probe.measure_collectives(peers);
  peers.together = probe.links_together(file);
  peers.path = probe.path(file, peers);
  return peers;
}

PeerPath path_of(double gathered, double copied, double both, double part) {
  constexpr double enough = 0.5;  // least slow-down, as a fraction of what one shared link would add
  const double on_one_link = std::min(1.0, part) * std::min(gathered, copied);
  const bool slower = both - std::max(gathered, copied) > enough * on_one_link;
  return slower ? PeerPath::link : PeerPath::apart;
}

}  // namespace stowage
