// Lines for the user while ranks wait for each other.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "stowage/channel.h"

namespace stowage::samples {

// Prints a line of the ranks' channel, but of a rank that came from this machine. One that cannot be printed
// ends nothing.
void say_of_ranks(const std::string& line);

// For ChannelOptions::waits.
class WaitingLines {
 public:
  // Says for whom `rank` waits after ten seconds and each minute, and at once who stands still. Who works is
  // waited for without end, who stands still until the user asks to stop: then it throws CommunicatorError.
  void tell(const Waiting& waiting, int rank);

 private:
  std::chrono::steady_clock::time_point next_line_{};
  std::vector<int> standing_;  // as the last line has named them
};

}  // namespace stowage::samples
