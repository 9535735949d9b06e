// Channel: how the ranks of a group tell each other all that is no tensor: texts, and which rank has come,
// failed, ended or died. A process has one channel; each of its communicators has a *line* of it. Ranks that
// are threads of one process meet in memory (local_channels). Processes have one connection each, to rank 0,
// which passes on what concerns all (src/ranks/star.h). Words keep the order of cause and effect: a rank's
// reason arrives before the end of a rank that ended because of it.
//
// Calls. `gather`, `from` and `barrier` are made by all ranks together, in the same order, with the same
// root, and from one thread at a time; a call ends once all ranks have come to it. Everything else may come
// from any thread.
//
// Errors. CommunicatorError names the rank that failed first and why. Once a rank has failed the channel, is
// dead or has left, every call that needs it throws promptly on every rank. That is final.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/error.h"
#include "stowage/rank_launch.h"

namespace stowage {

// The rank that failed first, and why.
struct RankFailure {
  enum class Kind : std::uint8_t {
    failed,  // the rank reported a failure
    died,    // the rank's process is gone, or stands still for too long
    ended,   // the rank has ended in order while others needed it
  };
  int rank = 0;
  std::string call;  // the call that failed; empty: none
  std::string reason;
  Kind kind = Kind::failed;
};

// The error that `call` throws for this failure.
CommunicatorError error_of(std::string_view call, const RankFailure& failure);

// Most bytes of all texts of one call together.
inline constexpr std::size_t most_call_bytes = std::size_t{64} << 20;

// How long a call of this rank has waited, and for whom. Rank 0 sees which ranks are missing; the others see
// only whether rank 0 is missing. Rank 0 tells all who stands still.
struct Waiting {
  std::chrono::steady_clock::duration time{};  // 0: no call is under way
  std::vector<int> missing;   // ranks that have not come to the call: they work, or stand still
  std::vector<int> standing;  // ranks not heard of for ten seconds, with or without a call
};

// Called by a thread of the channel, on which the other ranks depend: no function here may wait. (NCCL's
// abort, which returns once all ranks have been told, runs on another thread.) A rank may be reported more
// than once.
struct LineWatcher {
  std::function<void(const RankFailure&)> failed;  // a rank reported a failure on this line
  std::function<void(const RankFailure&)> died;    // a rank is gone: every line is told
  std::function<void(int rank)> ended;             // a rank has ended its end of this line, or has left
};

// A communicator's part of a channel.
class Line {
 public:
  Line() = default;
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;
  // Tells the others that this rank has ended. Once it returns no watcher is called any more.
  virtual ~Line() = default;
  // Tells all others. Returns once the message has left this process, or after two seconds in which a
  // connection took nothing.
  virtual void tell(const RankFailure& failure) = 0;
};

class Channel {
 public:
  Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  // Tells the others that this rank leaves.
  virtual ~Channel() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Called by all ranks together. Returns the text of each rank, in rank order. A text of more than
  // most_call_bytes / size() fails the channel and throws InvalidInput on this rank.
  virtual std::vector<std::string> gather(std::string_view text) = 0;
  // Called by all ranks together. Returns the text of rank `root`, of at most most_call_bytes; the others'
  // are not sent. A longer text, or a root that is no rank, fails the channel and throws InvalidInput on this
  // rank.
  virtual std::string from(int root, std::string_view text) = 0;
  // Together.
  void barrier() { from(0, {}); }

  // Fails this rank, and so the channel with all its lines, on all ranks. The first failure counts.
  virtual void fail(const RankFailure& failure) = 0;
  // Returns why the channel's calls fail, as far as this rank knows. Only calls learn that a rank has left.
  virtual std::optional<RankFailure> failure() const = 0;

  // Opens a new line. Ranks open their lines in the same order, at any time; words that arrive before this
  // rank has opened its end are kept.
  virtual std::unique_ptr<Line> open_line(LineWatcher watcher) = 0;
};

// Called by all ranks together. As Channel::from, but for a text of any length, by as many calls as it takes.
std::string long_text(Channel& channel, int root, std::string_view text);

struct ChannelOptions {
  // Called some ten times a second while the ranks come together; an exception ends the meeting, and nothing
  // else.
  std::function<void()> look = [] {};
  // Called each second by the channel's thread, while a call waits or a process stands still. If it throws,
  // the ranks that stand still count as dead; if no rank stands still, this rank fails the channel.
  std::function<void(const Waiting&)> waits = [](const Waiting&) {};
  // Ends the process. MPI waits for all ranks as it begins, and as it ends (with the channel), and no
  // exception ends such a wait. So this is called, at most once and by another thread, if a rank is gone that
  // MPI waits for; `why` names it.
  std::function<void(const std::string& why)> stuck = [](const std::string&) {};
  // Prints a line for the user: who has come from where, who was sent away, who listens where.
  std::function<void(const std::string& line)> say = [](const std::string&) {};
};

// Opens the channel of this process and the others that a launcher has started; they do so together, once in
// a process, within 60 s. Processes of MPI find each other over MPI, others by what `launch` says of rank 0:
// - All on one machine: at a name of that machine. Both ends see the other's user, who must be the same.
// - Otherwise at rank 0's port. The environment variable STOWAGE_SECRET, of at least 16 bytes, keeps out
//   processes that do not know it; without it whoever reaches the port can join, and `say` is told so.
//   STOWAGE_HOST names the address at which rank 0 listens and the others reach it. Nothing is encrypted.
// STOWAGE_RANK_TIMEOUT: seconds after which a process that stands still counts as dead, 2 or more; 300
// without it, and 0 for never. Throws InvalidInput if the ranks make no group, a variable or the launcher
// makes no sense, or there is no MPI; CommunicatorError with the rank that has not come, or has ended before
// all had come.
std::shared_ptr<Channel> open_channel(const RankLaunch& launch, const ChannelOptions& options = {});

// The channels of `size` threads of this process, by rank.
std::vector<std::shared_ptr<Channel>> local_channels(int size);

}  // namespace stowage
