// Star: the channel of processes. Every other rank has a connection to rank 0, which passes on failures, ends
// and deaths, so that ranks must reach only rank 0. All ranks see rank 0's own death.
//
// A thread of the channel reads and writes the connections, and tells the others each second that the process
// lives. Messages are queued in the sender's process: nobody waits for a rank that stands still.
//
// A process that has been silent for ten seconds is said to stand still (Waiting); after
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
  // Rank 0 has connections with all others, by rank; the others have one connection, with rank 0, at
  // 0 (meeting.h).
  std::vector<Descriptor> connections;
  std::chrono::milliseconds alive_every = std::chrono::seconds(1);
  // Time after which a silent process stands still.
  std::chrono::milliseconds silence = std::chrono::seconds(10);
  std::chrono::milliseconds standing_time = std::chrono::minutes(5);  // wait for such a process; 0: no limit
  // As ChannelOptions::waits; called at intervals of alive_every.
  std::function<void(const Waiting&)> waits = [](const Waiting&) {};
  // The destructor calls it after it has told the others that this rank leaves; it must not throw. Until it
  // returns, this rank learns of others' failures and deaths (Channel::failure), and counts as dead if its
  // process ends.
  std::function<void(Channel&)> leaving = [](Channel&) {};
};

std::unique_ptr<Channel> make_star(StarOptions options);

}  // namespace stowage::ranks
