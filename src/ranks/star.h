// Star: the channel of processes. Each rank has one connection, to rank 0, which passes on failures, ends and
// deaths, so that only rank 0 must be reached. Rank 0's own death is seen by all.
//
// A thread of the channel reads and writes the connections, and says each second that the process lives. What
// a rank sends is queued in its own process: nobody waits for one that stands still.
//
// A process that has not been heard of for ten seconds is said to stand still (Waiting); behind
// StarOptions::standing_time it counts as dead.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "src/ranks/socket.h"
#include "stowage/channel.h"

namespace stowage::ranks {

struct StarOptions {
  int rank = 0;
  int size = 1;
  // Connections with all others by rank, of rank 0; with rank 0 alone, at 0, of the others (meeting.h).
  std::vector<Descriptor> connections;
  std::chrono::milliseconds alive_every = std::chrono::seconds(1);
  std::chrono::milliseconds silence = std::chrono::seconds(10);       // from which a process stands still
  std::chrono::milliseconds standing_time = std::chrono::minutes(5);  // 0: it is waited for without end
  // As ChannelOptions::waits; as often as alive_every says.
  std::function<void(const Waiting&)> waits = [](const Waiting&) {};
  // Called by the destructor once this rank has said that it leaves; throws nothing. Until it returns this
  // rank learns which others fail or die (Channel::failure), and counts as dead where its process ends.
  std::function<void(Channel&)> leaving = [](Channel&) {};
};

std::unique_ptr<Channel> make_star(StarOptions options);

}  // namespace stowage::ranks
