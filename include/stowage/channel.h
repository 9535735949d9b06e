// Channel: how the ranks of a group tell each other what is no tensor: texts, that one has come, has failed,
// has ended or is no more. A process has one, and all its communicators tell each other over it, each on a
// *line* of its own. Ranks that are threads of one process meet in memory (local_channels); processes by
// sockets (star.h).
//
// Calls. `gather`, `from` and `barrier` are made by all ranks together, in the same order, with the same
// root; a call ends once all ranks have come to it. They come from one thread at a time. Everything else may
// come from any thread.
//
// Errors. CommunicatorError names the rank that failed first and why. Once a rank has failed the channel, is
// dead or has left, every call that needs it ends promptly on every rank. That is final.
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

// Which rank failed first, and why.
struct RankFailure {
  enum class Kind : std::uint8_t {
    failed,  // it said so
    died,    // its process is no more, or stands still for too long
    ended,   // it has ended in order while others needed it
  };
  int rank = 0;
  std::string call;  // the call that failed; empty: none
  std::string reason;
  Kind kind = Kind::failed;
};

// The error that `call` throws for it.
CommunicatorError error_of(std::string_view call, const RankFailure& failure);

// The texts of one call have at most so many bytes together.
inline constexpr std::size_t most_call_bytes = std::size_t{64} << 20;

// How long a call of this rank has waited, and for whom. Rank 0 sees which ranks are missing; the others see
// only whether rank 0 is. Rank 0 tells all of them who stands still.
struct Waiting {
  std::chrono::steady_clock::duration time{};  // 0: no call is under way
  std::vector<int> missing;                    // have not come to the call: they work, or stand still
  std::vector<int> standing;  // their process has not been heard of for ten seconds, be there a call or not
};

// Called by a thread of the channel, on which the other ranks depend: no function here may wait. A rank may
// be told of more than once.
struct LineWatcher {
  std::function<void(const RankFailure&)> failed;  // a rank said so on this line
  std::function<void(const RankFailure&)> died;    // a rank is no more, so on every line
  std::function<void(int rank)> ended;             // a rank has ended its end of this line, or has left
};

// One communicator's part of a channel.
class Line {
 public:
  Line() = default;
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;
  // Tells the others that this rank has ended. No watcher is called any more once it returns.
  virtual ~Line() = default;
  // Tells all others. It has left this process once this returns, or after two seconds in which a connection
  // took nothing.
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

  // Together: the text of each rank, in rank order. Throws InvalidInput, on this rank, and fails the channel:
  // a text of more than most_call_bytes / size().
  virtual std::vector<std::string> gather(std::string_view text) = 0;
  // Together. Returns the text of rank `root`, of at most most_call_bytes; the others' are not sent. Throws
  // InvalidInput, on this rank, and fails the channel: a longer text, or a root that is no rank.
  virtual std::string from(int root, std::string_view text) = 0;
  // Together.
  void barrier() { from(0, {}); }

  // This rank fails, and so does the channel with all its lines, on all ranks: the first failure counts.
  virtual void fail(const RankFailure& failure) = 0;
  // Why the channel's calls fail, as far as this rank knows: who has left is known to calls alone.
  virtual std::optional<RankFailure> failure() const = 0;

  // A new line. All ranks open theirs in the same order, at any time; a word that comes before this rank has
  // opened its end is kept.
  virtual std::unique_ptr<Line> open_line(LineWatcher watcher) = 0;
};

// Together. Returns rank `root`'s text as Channel::from does, of any length, by as many calls of it as that
// takes.
std::string long_text(Channel& channel, int root, std::string_view text);

struct ChannelOptions {
  // Asked some ten times a second while the ranks come together; what it throws ends that, and nothing else.
  std::function<void()> look = [] {};
  // Called each second by the channel's thread, while a call waits or a process stands still. Where it
  // throws, the ranks that stand still count as dead; where none does, this rank fails the channel.
  std::function<void(const Waiting&)> waits = [](const Waiting&) {};
  // MPI waits for all ranks as it begins, and as it ends, which it does with the channel; nothing that is
  // thrown ends that. Called at most once, by another thread, where a rank is gone that MPI waits for, with
  // which: end the process.
  std::function<void(const std::string& why)> stuck = [](const std::string&) {};
  // A line for the user: who has come from where, who was sent away, who listens where.
  std::function<void(const std::string& line)> say = [](const std::string&) {};
};

// The channel of this process and the others that a launcher has started; all open theirs together, once in a
// process, within 60 s. Processes of MPI find each other over MPI, others by what `launch` says of rank 0:
// - Where all are on one machine: at a name of that machine. Each end sees the other's user, who must be the
//   same.
// - Else at rank 0's port. With the environment variable STOWAGE_SECRET, of at least 16 bytes, who does not
//   know it is sent away; without it whoever reaches the port can join, which `say` is told. STOWAGE_HOST
//   names the address at which rank 0 listens and the others reach it. Nothing is encrypted.
// STOWAGE_RANK_TIMEOUT: seconds after which a process that stands still counts as dead, 2 or more; 300
// without it, and 0 for never. Throws InvalidInput where the ranks make no group, a variable or the launcher
// makes no sense, or there is no MPI; CommunicatorError with the rank that has not come, or has ended before
// all had.
std::shared_ptr<Channel> open_channel(const RankLaunch& launch, const ChannelOptions& options = {});

// The channels of so many threads of this process, by rank.
std::vector<std::shared_ptr<Channel>> local_channels(int size);

}  // namespace stowage
