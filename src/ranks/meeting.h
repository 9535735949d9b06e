// Meeting: brings together processes that know where rank 0 listens. Every other rank connects to rank 0,
// retrying while nobody listens there yet, and proves that it belongs (greeting.h). Once all have come, rank
// 0 stops listening and tells all that the group has begun.
//
// Place: ranks of one machine and one user meet at a name that no other machine can reach; both ends see the
// other's user. Other ranks meet over TCP, where a secret tells who belongs.
//
// Strangers: a process that is silent, sends something else, is of another user or does not know the secret
// is sent away and holds up nobody. Ranks that belong but make no group (a rank twice, another size, another
// build) end the meeting for all; so does a rank that has come and ends.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/ranks/socket.h"

namespace stowage::ranks {

struct MeetingPoint {
  bool is_local = false;  // all ranks are processes of this user on this machine
  // Hosts of rank 0 for TCP: it listens at the first that is an address of its machine, else at all of its
  // machine's addresses.
  std::vector<std::string> hosts;
  std::uint16_t port = 0;
};

struct MeetingOptions {
  int rank = 0;
  int size = 1;
  std::string build;   // must be equal on all ranks
  std::string secret;  // empty: none
  std::chrono::milliseconds patience = std::chrono::seconds(60);
  // Called about ten times a second while this rank waits, except during the system's look-up of a name. An
  // exception ends the meeting here.
  std::function<void()> look = [] {};
  // Prints a line for the user: who came from where, who was sent away.
  std::function<void(const std::string& line)> say = [](const std::string&) {};
};

// A socket at which rank 0 listens already, so that it can tell the others where.
class Reception {
 public:
  // Throws InvalidInput if it cannot listen, or if a host's name is unknown.
  Reception(const MeetingPoint& point, const MeetingOptions& options);

  std::uint16_t port() const;
  // Returns the connections with all other ranks, by rank; none at 0. Throws InvalidInput if the ranks make
  // no group, and CommunicatorError with a rank that has not come in time or has ended. All ranks that have
  // come are told.
  std::vector<Descriptor> admit();

 private:
  struct Guest;

  void look_at_ranks();
  void accept_guests(std::vector<Guest>& guests);
  bool is_of_this_user(int connection);
  bool serve(Guest& guest);
  bool answer_hello(Guest& guest);
  bool answer_proof(Guest& guest);
  [[noreturn]] void refuse(const std::string& why);
  [[noreturn]] void lose(int rank, const std::string& how);
  void tell_all(const std::string& message);
  void say_of_stranger(const std::string& line);
  int first_missing() const;
  Descriptor& of(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  const MeetingPoint point_;
  const MeetingOptions options_;
  Descriptor listening_;
  std::vector<Descriptor> ranks_;
  int missing_ = 0;
  int strangers_ = 0;  // number of strangers that were sent away
};

// Joins as another rank: returns the connection with rank 0 once the group has begun. Throws as admit() does,
// which fails on all ranks, and InvalidInput if the hosts' names are unknown.
Descriptor join(const MeetingPoint& point, const MeetingOptions& options);

}  // namespace stowage::ranks
