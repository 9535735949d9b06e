// Meeting: how processes that know where rank 0 listens come together. Rank 0 listens, and every other rank
// connects to it, again and again while nobody listens there yet, and shows that it belongs (greeting.h).
// Once all have come rank 0 listens no more and tells all that the group has begun.
//
// Where. Ranks of one machine and one user meet at a name that no other machine can reach; both ends see the
// other's user. Others meet over TCP, where a secret says who belongs.
//
// Strangers: who is silent, sends something else, is another user or does not know the secret is sent away
// and holds up nobody. Ranks that belong but make no group (a rank twice, another size, another build) end
// the meeting for all, as a rank does that has come and is gone.
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
  // Where rank 0 listens over TCP: the first of these addresses of its machine, else at all of them.
  std::vector<std::string> hosts;
  std::uint16_t port = 0;
};

struct MeetingOptions {
  int rank = 0;
  int size = 1;
  std::string build;   // the others' must be the same
  std::string secret;  // empty: none
  std::chrono::milliseconds patience = std::chrono::seconds(60);
  // Asked some ten times a second while this rank waits, but for the system's answer what a name means; what
  // it throws ends the meeting here.
  std::function<void()> look = [] {};
  // A line for the user: who came from where, who was sent away.
  std::function<void(const std::string& line)> say = [](const std::string&) {};
};

// A place where rank 0 listens already: so that it can say where before the others ask.
class Reception {
 public:
  // Throws InvalidInput where it cannot listen, or a host's name is nobody's.
  Reception(const MeetingPoint& point, const MeetingOptions& options);

  std::uint16_t port() const;
  // Connections with all other ranks, by rank; none at 0. Throws InvalidInput where the ranks make no group,
  // and CommunicatorError with the rank that has not come in time, or is gone. All that have come are told.
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
  int strangers_ = 0;  // that were sent away
};

// The other ranks' part: the connection with rank 0, once the group has begun. Throws as admit() does on all,
// and InvalidInput where the hosts' names are nobody's.
Descriptor join(const MeetingPoint& point, const MeetingOptions& options);

}  // namespace stowage::ranks
