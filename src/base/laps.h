// Laps: wall seconds of the phases of a run, for people; no decision depends on them.
#pragma once

#include <chrono>
#include <utility>

namespace stowage {

class Laps {
 public:
  // Returns the seconds since the last call, or since construction.
  double lap() {
    const Clock::time_point now = Clock::now();
    return std::chrono::duration<double>(now - std::exchange(last_, now)).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_ = Clock::now();
};

}  // namespace stowage
