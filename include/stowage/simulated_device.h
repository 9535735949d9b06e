// The simulated device: a GPU's memory, lanes and link on the CPU.
//
// Hard capacity: device allocations beyond it fail with OutOfMemory. Pinned memory is counted
// against `host_capacity`. Kernels are real CPU functions and compute real numbers.
//   threaded      each lane is a worker thread; copies take modelled time (or memcpy's own when
//                 unthrottled); events and elapsed times are real.
//   virtual_time  everything runs in the calling thread, at once, in the order of the calls; lanes
//                 carry clocks of modelled time, which `elapsed_seconds` reports.
// Both executors check every access of every launch, copy and discard when it is enqueued. It must lie inside
// one live allocation, and happen after (vector clocks over lanes, events and the calling thread) every
// access that it conflicts with, byte for byte. A launch may not read device bytes that were never written
// since they were allocated or discarded. A breach throws AccessViolation that names both sides, so a missing
// wait fails whatever the timing. Copies carry along which bytes are undefined. The host and launches on a
// host lane cannot touch device memory. Memory may be given up (release, unmap, unreserve) only once the
// calling thread has synchronised with the work that touched it; else AccessViolation, and it stays. Work may
// not call the device.
#pragma once

#include <cstdint>
#include <memory>

#include "stowage/device.h"
#include "stowage/machine.h"

namespace stowage {

enum class Executor : std::uint8_t { threaded, virtual_time };

// Freed, discarded and fresh device bytes are filled with signalling NaNs.
enum class Poison : std::uint8_t {
  full,     // every word
  sampled,  // one word in each 256 bytes, and the words at both ends
  none,
};

struct SimulatedOptions {
  Bytes capacity = 1_GiB;           // device bytes; `unlimited` for as much as the host gives
  Bytes host_capacity = unlimited;  // pinned bytes
  Executor executor = Executor::threaded;
  Link h2d = Link::unthrottled();
  Link d2h = Link::unthrottled();
  // Bytes per second of each throttled direction while the other one, throttled too, moves bytes; no more
  // than alone. Virtual time makes copies one by one, so they do not slow each other.
  double h2d_both_bytes_per_second = as_alone;
  double d2h_both_bytes_per_second = as_alone;
  Poison poison = Poison::full;
  bool check_accesses = true;
  // True: work that is enqueued after the calling thread has synchronised counts as ordered after the
  // synchronised work, as on a real device. False: only lanes and events order work.
  bool host_orders = true;
};

// Makes one call fail: the `index`-th (0-based) call that can fail after the fault is set.
struct Fault {
  enum class Kind : std::uint8_t {
    call,  // the call itself throws DeviceError (OutOfMemory for allocate and map) and does nothing
    work,  // a launch or copy fails on the lane, reported as Device says; other calls fail as `call`
  };
  std::uint64_t index = 0;
  Kind kind = Kind::call;
};

class SimulatedDevice : public Device {
 public:
  virtual void set_fault(Fault fault) = 0;
  virtual void clear_fault() = 0;
  virtual bool fault_fired() const = 0;
};

std::unique_ptr<SimulatedDevice> open_simulated_device(const SimulatedOptions& options);

}  // namespace stowage
