// Machine: what the planner knows of the hardware. Plain data, every field with its unit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "stowage/bytes.h"
#include "stowage/codec.h"
#include "stowage/data_type.h"

namespace stowage {

inline constexpr Bytes unlimited = std::numeric_limits<Bytes>::max();
// Bytes per second: the value of a rate that other lanes do not lower.
inline constexpr double as_alone = std::numeric_limits<double>::infinity();

// A direction of the link between host and device.
struct Link {
  double bytes_per_second = 16e9;  // peak, reached by long transfers
  double latency_seconds = 10e-6;  // paid once per transfer
  bool throttled = true;           // false: the simulated device copies as fast as memory does

  static Link unthrottled() { return {8e9, 2e-6, false}; }
  double seconds(Bytes bytes) const {
    return latency_seconds + static_cast<double>(bytes) / bytes_per_second;
  }
};

// The way from one device to another.
enum class PeerPath : std::uint8_t {
  apart,        // links of their own, such as NVLink
  link,         // the links to the host: received bytes take part of h2d, sent bytes of d2h
  host_memory,  // links to the host, and host memory, where each byte is written and read
};

// Rates of the kernels `encode` and `decode` (launch_table.h), in bytes per second that an op reads and
// writes. 0: not known.
struct CodecRates {
  double encode_bytes_per_second = 0;
  double decode_bytes_per_second = 0;

  // Divides both rates among `users` that share the cores.
  CodecRates& operator/=(double users) {
    encode_bytes_per_second /= users;
    decode_bytes_per_second /= users;
    return *this;
  }
};

struct Machine {
  Link h2d;
  Link d2h;
  Link peer{};  // link over which a device receives from all its peers together
  PeerPath peer_path = PeerPath::apart;
  double flops_per_second = 300e9;  // matrix multiplication on the device, in the graph's work type
  double flops_by_type[data_type_count] = {};  // the rate of ops whose cost names another type; 0: not known
  double device_bytes_per_second = 15e9;       // device memory, reads plus writes
  CodecRates codec_4_bits{};                   // codes of 4 bits, of arrays in the graph's work type
  CodecRates codec_8_bits{};                   // codes of 8 bits
  double launch_seconds = 5e-6;                // fixed cost of one op on the compute lane
  double host_bytes_per_second = 10e9;         // host memory in the optimizer's pattern, reads plus writes
  // Rates of lanes while others work at the same time; by default nothing is shared. The rate of a link's
  // direction while the other direction moves bytes too; never above its rate alone. If peers' bytes pass
  // through the link, they and copies share it fairly, and both directions are at work.
  double h2d_both_bytes_per_second = as_alone;
  double d2h_both_bytes_per_second = as_alone;
  // Host memory's rate in all: a byte of a copy counts once, host steps as above. Users share it fairly, and
  // one user may take the rate that another leaves.
  double host_total_bytes_per_second = as_alone;
  // Fractions of its speed, above 0 and at most 1, that a lane keeps if the device computes with the host's
  // own cores, as the simulated device does.
  double compute_beside_copy = 1;  // the compute lane, for each copy direction that moves bytes
  double compute_beside_host = 1;  // the compute lane, while the host lane works
  double host_beside_compute = 1;
  // Device memory that no plan can use: the context, libraries and their workspaces. A device budget is an
  // arena and this overhead; the two functions below are the only place that knows it.
  Bytes overhead_bytes = 0;

  // The rate of ops that compute in `type`; if it is not known, that of the graph's work type.
  double flops_of(DataType type) const {
    const double rate = flops_by_type[static_cast<std::size_t>(type)];
    return rate > 0 ? rate : flops_per_second;
  }

  // The rates of codes of so many bits. A rate that is not known is a share of device memory's: a half for
  // `encode`, which searches, and nine tenths for `decode`.
  CodecRates codec(CodeBits bits) const {
    const CodecRates& known = bits == CodeBits::four ? codec_4_bits : codec_8_bits;
    const auto rate = [&](double value, double share) {
      return value > 0 ? value : share * device_bytes_per_second;
    };
    return {rate(known.encode_bytes_per_second, 0.5), rate(known.decode_bytes_per_second, 0.9)};
  }

  // The smallest device budget that has room for an arena of so many bytes.
  Bytes budget_for(Bytes arena) const { return std::min(arena, unlimited - overhead_bytes) + overhead_bytes; }
  // The largest arena that fits into a device budget; none at all where the overhead takes it whole.
  Bytes arena_in(Bytes budget) const {
    return budget == unlimited ? unlimited : budget - std::min(budget, overhead_bytes);
  }
};

// Byte limits of a run.
struct Budget {
  Bytes device = unlimited;  // device bytes, Machine::overhead_bytes included
  Bytes host = unlimited;    // host bytes, pinned and pageable together
};

}  // namespace stowage
