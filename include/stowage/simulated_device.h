// The simulated device: a GPU's memory, lanes and link on the CPU.
//
// Hard capacity: device allocations beyond it fail with OutOfMemory. Pinned memory is counted
// against `host_capacity`. Kernels are real CPU functions and compute real numbers.
//   threaded      each lane is a worker thread; copies take modelled time (or memcpy's own when
//                 unthrottled); events and elapsed times are real.
//   virtual_time  everything runs in the calling thread, at once, in the order of the calls; lanes
//                 carry clocks of modelled time, which `elapsed_seconds` reports.
// In both, every access of every launch, copy and discard is checked when it is enqueued: it must
// lie inside one live allocation, and happen after (vector clocks over lanes, events and the calling
// thread) every access that it conflicts with, byte for byte; a launch may not read device bytes
// that were never written since they were allocated or discarded. A breach throws AccessViolation
// that names both sides. So a missing wait fails whatever the timing. Copies carry definedness with
// them, gaps included. The host cannot touch device memory: nor may a launch on a host lane. Memory is
// given up (release, unmap, unreserve) only once the calling thread has synchronised with what touched
// it: else AccessViolation, and it stays. Work may not call the device.
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
  sampled,  // one word in each 256 bytes, both ends included
  none,
};

struct SimulatedOptions {
  Bytes capacity = 1_GiB;           // device bytes; `unlimited` for as much as the host gives
  Bytes host_capacity = unlimited;  // pinned bytes
  Executor executor = Executor::threaded;
  Link h2d = Link::unthrottled();
  Link d2h = Link::unthrottled();
  // Bytes per second of each throttled direction while the other one, throttled too, moves bytes; no more
  // than alone. Copies in virtual time, which are done one by one, know nothing of each other.
  double h2d_both_bytes_per_second = as_alone;
  double d2h_both_bytes_per_second = as_alone;
  Poison poison = Poison::full;
  bool check_accesses = true;
  // Whether work that is enqueued after the calling thread has synchronised counts as ordered after
  // what was synchronised (as it is on a real device). Off, only lanes and events order things.
  bool host_orders = true;
};

// Which call fails, once: the `index`-th (0-based) call that can fail after the fault is set.
struct Fault {
  enum class Kind : std::uint8_t {
    call,  // the call itself throws DeviceError (OutOfMemory for allocate and map) and does nothing
    work,  // launch, copy: the work fails on the lane and is reported as Device says; others: as `call`
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
