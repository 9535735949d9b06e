// Star: the channel of processes (star.h), whose calls are in star.cpp and whose thread is
// in star_thread.cpp.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "src/base/mutex.h"
#include "src/ranks/lines.h"
#include "src/ranks/message.h"
#include "src/ranks/star.h"

namespace stowage::ranks {

inline constexpr std::uint32_t own_line = 0;  // number of the channel's own line
inline constexpr int of_all = -1;             // stands for the root in a call without a root
// Longest wait for connections that take no bytes, when a word is told or the channel ends.
inline constexpr std::chrono::seconds sending_time{2};

using SharedBytes = std::shared_ptr<const std::string>;  // one message to several ranks

inline SharedBytes bytes_of(const Message& message) {
  return std::make_shared<const std::string>(encode(message));
}

class Star final : public Channel {
 public:
  explicit Star(StarOptions options);
  ~Star() override;

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  std::vector<std::string> gather(std::string_view text) override;
  std::string from(int root, std::string_view text) override;
  void fail(const RankFailure& failure) override;
  std::optional<RankFailure> failure() const override;
  std::unique_ptr<Line> open_line(LineWatcher watcher) override;

  // Tells the failure to all other ranks on that line.
  void tell(std::uint32_t line, const RankFailure& failure);
  void end_line(std::uint32_t line);

 private:
  struct Peer {
    int rank = 0;
    Descriptor connection;
    MessageReader reader;              // used by the thread alone
    std::deque<SharedBytes> outgoing;  // under mutex_, as are all members below
    std::size_t sent = 0;              // bytes of the first outgoing message that were sent
    Deadline heard{};
    bool is_done = false;  // the rank is gone or dead
  };
  // Rank 0's collection of texts for the next call.
  struct Collection {
    std::uint32_t call = 1;
    std::optional<int> root;
    std::map<int, std::string> parts;
  };

  std::vector<std::string> call(const char* name, int root, std::string_view text, std::size_t texts);
  std::string await(const char* name, std::uint32_t number);
  Waiting waiting(Deadline now) STOWAGE_REQUIRES(mutex_);
  bool is_standing(const Peer& peer, Deadline now) const;  // under mutex_
  bool stands_still(int rank) const;
  // Adds a rank's text to the collection. Returns the failure of the channel if ranks make different calls.
  std::optional<RankFailure> bring(int rank, int root, std::uint32_t number, std::string text);
  void deliver() STOWAGE_REQUIRES(mutex_);

  // The thread's functions.
  void run();
  void read_from(Peer& peer);
  void handle(Peer& peer, Message message);
  void write_to(Peer& peer);
  void tick(Deadline now);
  bool look_at_peers(Deadline now);
  void give_up(int rank, const std::string& why);

  void lose(int rank, const std::string& how);
  void depart(int rank);
  // Fails the channel on this rank.
  void keep(const RankFailure& failure);
  void send(const SharedBytes& bytes, int except = of_all);
  void flush();
  void wake() const;

  StarOptions options_;
  Lines lines_;
  Descriptor awake_;  // becomes readable when there is something to send
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<Peer> peers_;  // the number never changes; the queues are under mutex_
  std::uint32_t calls_ STOWAGE_GUARDED_BY(mutex_) = 0;
  std::optional<Deadline> waits_since_ STOWAGE_GUARDED_BY(mutex_);  // start of the wait in a call
  Collection collection_ STOWAGE_GUARDED_BY(mutex_);
  // Texts of the last call to which all ranks have come.
  std::optional<Message> whole_ STOWAGE_GUARDED_BY(mutex_);
  std::optional<RankFailure> failure_ STOWAGE_GUARDED_BY(mutex_);
  std::set<int> departed_ STOWAGE_GUARDED_BY(mutex_);
  bool stops_ STOWAGE_GUARDED_BY(mutex_) = false;
  std::thread::id own_thread_ STOWAGE_GUARDED_BY(mutex_);
  // On rank 0 the ranks that stood still at the last tick; on others, as rank 0 has named them last.
  std::vector<int> standing_ STOWAGE_GUARDED_BY(mutex_);
  bool waited_ = false;  // whether ranks were waited for at the last tick; used by the thread alone
  std::thread thread_;   // the last member: it uses the others
};

}  // namespace stowage::ranks
