#include "src/ranks/star.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "src/base/mutex.h"
#include "src/ranks/lines.h"
#include "src/ranks/message.h"
#include "stowage/error.h"

namespace stowage::ranks {
namespace {

constexpr std::uint32_t own_line = 0;     // the channel's
constexpr int of_all = -1;                // a call without a root
constexpr std::size_t most_words = 4096;  // bytes of a failure's call, and of its reason
// For how long a word or the channel's end waits for connections that take no bytes.
constexpr std::chrono::seconds sending_time{2};
constexpr std::chrono::seconds out_of_reach_time{4};

using SharedBytes = std::shared_ptr<const std::string>;  // one message to several ranks

SharedBytes bytes_of(const Message& message) { return std::make_shared<const std::string>(encode(message)); }

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

  // Tells all others on that line.
  void tell(std::uint32_t line, const RankFailure& failure);
  void end_line(std::uint32_t line);

 private:
  struct Peer {
    int rank = 0;
    Descriptor connection;
    MessageReader reader;              // the thread's own
    std::deque<SharedBytes> outgoing;  // under mutex_, as all below
    std::size_t sent = 0;              // of the first of them
    Deadline heard{};
    bool is_done = false;  // has left, or is dead
  };
  // What all ranks have brought to the call that comes next; of rank 0.
  struct Collection {
    std::uint32_t call = 1;
    std::optional<int> root;
    std::map<int, std::string> parts;
  };

  std::vector<std::string> call(const char* name, int root, std::string_view text, std::size_t texts);
  std::string await(const char* name, std::uint32_t number);
  Waiting waiting(Deadline now) STOWAGE_REQUIRES(mutex_);
  bool is_standing(const Peer& peer, Deadline now) const STOWAGE_REQUIRES(mutex_);
  bool stands_still(int rank) const;
  // Returns why the channel fails: ranks that make different calls.
  std::optional<RankFailure> bring(int rank, int root, std::uint32_t number, std::string text);
  void deliver() STOWAGE_REQUIRES(mutex_);

  // The thread.
  void run();
  void read_from(Peer& peer);
  void handle(Peer& peer, Message message);
  void write_to(Peer& peer);
  void tick(Deadline now);
  bool look_at_peers(Deadline now);
  void give_up(int rank, const std::string& why);

  void lose(int rank, const std::string& how);
  void depart(int rank);
  // The channel fails here.
  void keep(const RankFailure& failure);
  void send(const SharedBytes& bytes, int except = of_all);
  void flush();
  void wake() const;

  StarOptions options_;
  Lines lines_;
  Descriptor awake_;  // readable when there is something to send
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<Peer> peers_;  // as many as at first; their queues under mutex_
  std::uint32_t calls_ STOWAGE_GUARDED_BY(mutex_) = 0;
  std::optional<Deadline> waits_since_ STOWAGE_GUARDED_BY(mutex_);  // a call
  Collection collection_ STOWAGE_GUARDED_BY(mutex_);
  std::optional<Message> whole_ STOWAGE_GUARDED_BY(mutex_);  // of the last call that all have come to
  std::optional<RankFailure> failure_ STOWAGE_GUARDED_BY(mutex_);
  std::set<int> departed_ STOWAGE_GUARDED_BY(mutex_);
  bool stops_ STOWAGE_GUARDED_BY(mutex_) = false;
  std::thread::id own_thread_ STOWAGE_GUARDED_BY(mutex_);
  std::vector<int> standing_
      STOWAGE_GUARDED_BY(mutex_);  // of the last tick; of other ranks what rank 0 has said
  bool waited_ = false;            // at the last tick; the thread's own
  std::thread thread_;             // last: it uses the rest
};

class StarLine final : public Line {
 public:
  StarLine(Star& star, std::uint32_t number) : star_(star), number_(number) {}
  ~StarLine() override { star_.end_line(number_); }
  void tell(const RankFailure& failure) override { star_.tell(number_, failure); }

 private:
  Star& star_;
  const std::uint32_t number_;
};

Star::Star(StarOptions options)
    : options_(std::move(options)), awake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!awake_)
    throw CommunicatorError("joining: no file is to be had: raise the limit (ulimit -n)", "joining", rank());
  for (std::size_t other = 0; other < options_.connections.size(); ++other) {
    if (!options_.connections[other]) continue;
    Peer& peer = peers_.emplace_back();
    peer.rank = static_cast<int>(other);
    peer.connection = std::move(options_.connections[other]);
    peer.heard = Clock::now();
  }
  thread_ = std::thread([this] { run(); });
}

Star::~Star() {
  send(bytes_of({MessageKind::left, rank(), own_line, {}}));
  {
    const MutexLock lock(mutex_);
    stops_ = true;
  }
  wake();
  thread_.join();
}

std::vector<std::string> Star::gather(std::string_view text) {
  return call("gather", of_all, text, static_cast<std::size_t>(size()));
}

std::string Star::from(int root, std::string_view text) {
  if (root < 0 || root >= size()) {
    const std::string why = fmt::format("rank {} of {}", root, size());
    fail({rank(), "from", why});
    throw InvalidInput("from: " + why);
  }
  return std::move(call("from", root, root == rank() ? text : std::string_view(), 1).front());
}

std::vector<std::string> Star::call(const char* name, int root, std::string_view text, std::size_t texts) {
  const std::size_t most =
      root == of_all ? most_call_bytes / static_cast<std::size_t>(size()) : most_call_bytes;
  if (text.size() > most) {
    const std::string why = fmt::format("a text of {} bytes; let it have {} at most", text.size(), most);
    fail({rank(), name, why});
    throw InvalidInput(fmt::format("{}: {}", name, why));
  }
  std::uint32_t number = 0;
  {
    const MutexLock lock(mutex_);
    number = ++calls_;
  }
  if (rank() != 0)
    send(bytes_of({MessageKind::part, root, number, std::string(text)}));
  else if (const auto why = bring(0, root, number, std::string(text)))
    fail(*why);
  try {
    return unpack(await(name, number), texts);
  } catch (const BadMessage& error) {
    lose(0, fmt::format("it sends what no rank sends ({})", error.what()));
    throw error_of(name, *failure());
  }
}

std::string Star::await(const char* name, std::uint32_t number) {
  const MutexLock lock(mutex_);
  waits_since_ = Clock::now();
  for (;;) {
    if (whole_ && whole_->line == number) {
      waits_since_.reset();
      return std::exchange(whole_, {})->text;
    }
    if (!failure_ && !departed_.empty())
      failure_ = {*departed_.begin(), {}, "it has ended", RankFailure::Kind::ended};
    if (failure_) break;
    changed_.wait(mutex_);
  }
  waits_since_.reset();
  throw error_of(name, *failure_);
}

Waiting Star::waiting(Deadline now) {
  Waiting waiting;
  if (waits_since_) waiting.time = now - *waits_since_;
  for (const Peer& peer : peers_) {
    if (peer.is_done) continue;
    if (waits_since_ && !(rank() == 0 && collection_.parts.contains(peer.rank)))
      waiting.missing.push_back(peer.rank);
    if (is_standing(peer, now)) waiting.standing.push_back(peer.rank);
  }
  if (waiting.standing.empty() && rank() != 0) waiting.standing = standing_;
  return waiting;
}

bool Star::is_standing(const Peer& peer, Deadline now) const { return now - peer.heard >= options_.silence; }

std::optional<RankFailure> Star::bring(int rank, int root, std::uint32_t number, std::string text) {
  const MutexLock lock(mutex_);
  if (failure_) return std::nullopt;
  if (number != collection_.call || root < of_all || root >= size() || collection_.parts.contains(rank))
    throw BadMessage("a call out of turn");
  if (!collection_.root) collection_.root = root;
  if (*collection_.root != root) {
    const auto name = [](int of) {
      return of == of_all ? std::string("gather") : fmt::format("from({})", of);
    };
    return RankFailure{
        rank, name(root),
        fmt::format("another rank calls {}: let all ranks make the same calls in the same order",
                    name(*collection_.root))};
  }
  collection_.parts.emplace(rank, std::move(text));
  if (collection_.parts.size() == static_cast<std::size_t>(size())) deliver();
  return std::nullopt;
}

void Star::deliver() {
  std::vector<std::string> texts;
  if (*collection_.root == of_all)
    for (auto& [rank, text] : collection_.parts) texts.push_back(std::move(text));
  else
    texts.push_back(std::move(collection_.parts[*collection_.root]));
  whole_ = Message{MessageKind::whole, 0, collection_.call, pack(texts)};
  const SharedBytes bytes = bytes_of(*whole_);
  for (Peer& peer : peers_)
    if (!peer.is_done) peer.outgoing.push_back(bytes);
  collection_ = {.call = collection_.call + 1, .root = {}, .parts = {}};
  changed_.notify_all();
  wake();
}

void Star::fail(const RankFailure& failure) {
  keep(failure);
  tell(own_line, failure);
}

void Star::tell(std::uint32_t line, const RankFailure& failure) {
  const std::vector<std::string> words{failure.call.substr(0, most_words),
                                       failure.reason.substr(0, most_words)};
  send(bytes_of({MessageKind::failed, failure.rank, line, pack(words)}));
  flush();
}

void Star::end_line(std::uint32_t line) {
  send(bytes_of({MessageKind::ended, rank(), line, {}}));
  lines_.close(line);
}

std::optional<RankFailure> Star::failure() const {
  const MutexLock lock(mutex_);
  return failure_;
}

std::unique_ptr<Line> Star::open_line(LineWatcher watcher) {
  return std::make_unique<StarLine>(*this, lines_.open(std::move(watcher)));
}

void Star::run() {
  {
    const MutexLock lock(mutex_);
    own_thread_ = std::this_thread::get_id();
  }
  Deadline next = Clock::now(), last = next;
  std::optional<Deadline> end;
  std::vector<pollfd> entries;
  for (;;) {
    entries.assign(1, {awake_.number(), POLLIN, 0});
    bool has_more = false;
    {
      const MutexLock lock(mutex_);
      for (const Peer& peer : peers_) {
        const bool writes = !peer.outgoing.empty() && !peer.is_done;
        has_more |= writes;
        entries.push_back({peer.is_done ? -1 : peer.connection.number(),
                           static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN), 0});
      }
      if (stops_ && !end) end = Clock::now() + sending_time;
    }
    if (end && (!has_more || Clock::now() >= *end)) return;
    poll_until(entries, end ? std::min(*end, next) : next);
    const Deadline now = Clock::now();
    if (now - last > options_.silence / 2) {  // this process itself stood still
      const MutexLock lock(mutex_);
      for (Peer& peer : peers_) peer.heard = now;
    }
    last = now;
    std::uint64_t woken = 0;
    while (read(awake_.number(), &woken, sizeof woken) > 0) continue;
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      if ((entries[i + 1].revents & POLLOUT) != 0) write_to(peers_[i]);
      if ((entries[i + 1].revents & (POLLIN | POLLHUP | POLLERR)) != 0) read_from(peers_[i]);
    }
    if (now < next) continue;
    tick(now);
    next = now + options_.alive_every;
  }
}

void Star::read_from(Peer& peer) {
  std::array<char, 1 << 16> bytes{};
  const ssize_t got = recv(peer.connection.number(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got <= 0) return lose(peer.rank, "its process ended without a word: see what it printed last");
  {
    const MutexLock lock(mutex_);
    peer.heard = Clock::now();
  }
  try {
    peer.reader.add({bytes.data(), static_cast<std::size_t>(got)});
    while (std::optional<Message> message = peer.reader.next()) handle(peer, std::move(*message));
  } catch (const BadMessage& error) {
    lose(peer.rank, fmt::format("it sends what no rank sends ({})", error.what()));
  }
}

void Star::handle(Peer& peer, Message message) {
  const bool leads = rank() == 0;
  const bool is_own = message.rank == peer.rank;
  const bool names_a_rank = message.rank >= 0 && message.rank < size();
  const auto expect = [](bool holds) {
    if (!holds) throw BadMessage("a message out of place");
  };
  switch (message.kind) {
    case MessageKind::part: {
      expect(leads);
      if (const auto why = bring(peer.rank, message.rank, message.line, std::move(message.text))) fail(*why);
      return;
    }
    case MessageKind::whole: {
      expect(!leads);
      const MutexLock lock(mutex_);
      whole_ = std::move(message);
      return changed_.notify_all();
    }
    case MessageKind::failed: {
      expect(names_a_rank);
      const std::vector<std::string> words = unpack(message.text, 2);
      const RankFailure failure{message.rank, words[0], words[1]};
      if (leads) send(bytes_of(message), peer.rank);
      if (message.line == own_line) return keep(failure);
      return lines_.on(message.line, failure);
    }
    case MessageKind::ended:
      expect(names_a_rank && (!leads || is_own));
      if (leads) send(bytes_of(message), peer.rank);
      return lines_.on(message.line,
                       {message.rank, {}, "it has ended its communicator", RankFailure::Kind::ended});
    case MessageKind::died:
      expect(names_a_rank);
      if (leads && !stands_still(message.rank)) return;  // it goes on meanwhile
      return lose(message.rank, message.text);
    case MessageKind::standing: {
      expect(!leads && message.text.size() == static_cast<std::size_t>(size()));
      const MutexLock lock(mutex_);
      standing_.clear();
      for (int each = 0; each < size(); ++each)
        if (message.text[static_cast<std::size_t>(each)] != 0 && each != rank()) standing_.push_back(each);
      return;
    }
    case MessageKind::left:
      expect(names_a_rank && (!leads || is_own));
      if (leads) send(bytes_of(message), peer.rank);
      return depart(message.rank);
    case MessageKind::alive:
      return;
    default:
      expect(false);
  }
}

void Star::write_to(Peer& peer) {
  const MutexLock lock(mutex_);
  while (!peer.outgoing.empty()) {
    const std::string_view left = std::string_view(*peer.outgoing.front()).substr(peer.sent);
    const ssize_t sent =
        ::send(peer.connection.number(), left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) break;  // that it is gone is found by reading
    peer.sent += static_cast<std::size_t>(sent);
    if (peer.sent < peer.outgoing.front()->size()) break;
    peer.outgoing.pop_front();
    peer.sent = 0;
  }
  if (peer.outgoing.empty()) changed_.notify_all();
}

void Star::tick(Deadline now) {
  send(bytes_of({MessageKind::alive, rank(), own_line, {}}));
  if (look_at_peers(now)) return;
  Waiting waits;
  std::vector<int> before;
  {
    const MutexLock lock(mutex_);
    if (failure_) return;
    waits = waiting(now);
    before = rank() == 0 ? std::exchange(standing_, waits.standing) : waits.standing;
  }
  if (waits.standing != before) {
    std::string text(static_cast<std::size_t>(size()), '\0');
    for (const int each : waits.standing) text[static_cast<std::size_t>(each)] = 1;
    send(bytes_of({MessageKind::standing, 0, own_line, text}));
  }
  const bool waits_now = !waits.missing.empty() || !waits.standing.empty();
  if (!std::exchange(waited_, waits_now) && !waits_now) return;  // else it is told that the waiting is over
  try {
    options_.waits(waits);
  } catch (const std::exception& error) {
    if (waits.standing.empty()) fail({rank(), "waiting", error.what()});
    for (const int each : waits.standing) give_up(each, error.what());
  }
}

// Whether one is lost.
bool Star::look_at_peers(Deadline now) {
  std::map<int, std::string> lost;
  {
    const MutexLock lock(mutex_);
    for (const Peer& peer : peers_) {
      if (peer.is_done) continue;
      if (options_.standing_time.count() > 0 && now - peer.heard >= options_.standing_time)
        lost[peer.rank] = fmt::format("its process has stood still for {:.0f} s (STOWAGE_RANK_TIMEOUT)",
                                      std::chrono::duration<double>(options_.standing_time).count());
      else if (is_out_of_reach(peer.connection.number(), out_of_reach_time))
        lost[peer.rank] = "its machine is out of reach";
    }
  }
  for (const auto& [rank, how] : lost) lose(rank, how);
  return !lost.empty();
}

// Of one that stands still. What rank 0 knows all learn; of others it alone.
void Star::give_up(int rank, const std::string& why) {
  if (this->rank() == 0 || rank == 0) return lose(rank, why);
  send(bytes_of({MessageKind::died, rank, own_line, why}));
}

bool Star::stands_still(int rank) const {
  const MutexLock lock(mutex_);
  return std::any_of(peers_.begin(), peers_.end(), [&](const Peer& peer) {
    return peer.rank == rank && (peer.is_done || is_standing(peer, Clock::now()));
  });
}

void Star::lose(int rank, const std::string& how) {
  {
    const MutexLock lock(mutex_);
    for (Peer& peer : peers_)
      if (peer.rank == rank) peer.is_done = true;
  }
  if (this->rank() == 0) send(bytes_of({MessageKind::died, rank, own_line, how}), rank);
  keep({rank, {}, how, RankFailure::Kind::died});
}

void Star::depart(int rank) {
  {
    const MutexLock lock(mutex_);
    for (Peer& peer : peers_)
      if (peer.rank == rank) peer.is_done = true;
    departed_.insert(rank);
    changed_.notify_all();
  }
  lines_.everywhere({rank, {}, "it has ended", RankFailure::Kind::ended});
}

void Star::keep(const RankFailure& failure) {
  {
    const MutexLock lock(mutex_);
    if (!failure_) failure_ = failure;
    changed_.notify_all();
  }
  lines_.everywhere(failure);
}

void Star::send(const SharedBytes& bytes, int except) {
  {
    const MutexLock lock(mutex_);
    for (Peer& peer : peers_)
      if (!peer.is_done && peer.rank != except) peer.outgoing.push_back(bytes);
  }
  wake();
}

// Requires another thread than the channel's own.
void Star::flush() {
  const Deadline end = Clock::now() + sending_time;
  const MutexLock lock(mutex_);
  if (std::this_thread::get_id() == own_thread_) return;
  const auto is_sent = [](const Peer& peer) { return peer.is_done || peer.outgoing.empty(); };
  while (!std::all_of(peers_.begin(), peers_.end(), is_sent) && Clock::now() < end)
    changed_.wait_for(mutex_, between_looks);
}

void Star::wake() const {
  const std::uint64_t one = 1;
  static_cast<void>(!write(awake_.number(), &one, sizeof one));
}

}  // namespace

std::unique_ptr<Channel> make_star(StarOptions options) { return std::make_unique<Star>(std::move(options)); }

}  // namespace stowage::ranks
