// FaultInjector: counts the calls that can fail, and tells when one shall fail.
#pragma once

#include <cstdint>
#include <optional>

#include "stowage/simulated_device.h"

namespace stowage::simulated {

class FaultInjector {
 public:
  void set(Fault fault) {
    fault_ = fault;
    seen_ = 0;
    fired_ = false;
  }
  void clear() { fault_.reset(); }
  bool fired() const { return fired_; }

  // Counts one call. Returns the kind of its failure if it shall fail, which happens once.
  std::optional<Fault::Kind> next_call() {
    ++calls_;
    if (!fault_ || seen_++ != fault_->index) return std::nullopt;
    const Fault::Kind kind = fault_->kind;
    fault_.reset();
    fired_ = true;
    return kind;
  }

  std::uint64_t calls() const { return calls_; }
  void reset_calls() { calls_ = 0; }

 private:
  std::optional<Fault> fault_;
  std::uint64_t seen_ = 0;  // calls since `set`
  std::uint64_t calls_ = 0;
  bool fired_ = false;
};

}  // namespace stowage::simulated
