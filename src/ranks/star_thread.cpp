// The thread of a Star: it reads and writes connections, and watches the time.
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <utility>

#include "src/ranks/star_channel.h"

namespace stowage::ranks {
namespace {

constexpr std::chrono::seconds out_of_reach_time{4};

}  // namespace

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
  {
    const MutexLock lock(mutex_);
    peer.heard = Clock::now();
    // A peer that knows that this rank is gone may end without a word.
    if (got <= 0 && stops_) peer.is_done = true;
    if (peer.is_done) return;
  }
  if (got <= 0) return lose(peer.rank, "its process ended without a word: see what it printed last");
  try {
    peer.reader.add({bytes.data(), static_cast<std::size_t>(got)});
    while (std::optional<Message> message = peer.reader.next()) {
      handle(peer, std::move(*message));
      const MutexLock lock(mutex_);
      if (peer.is_done) return;  // later messages do not count
    }
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
      if (leads && !stands_still(message.rank)) return;  // the rank goes on meanwhile
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
    case MessageKind::gone: {
      expect(is_own);
      const MutexLock lock(mutex_);
      peer.is_done = true;
      return;
    }
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
    if (sent < 0) break;  // the next read finds that the peer is gone
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
  // Else `waits` learns that the waiting is over.
  if (!std::exchange(waited_, waits_now) && !waits_now) return;
  try {
    options_.waits(waits);
  } catch (const std::exception& error) {
    if (waits.standing.empty()) fail({rank(), "waiting", error.what()});
    for (const int each : waits.standing) give_up(each, error.what());
  }
}

// Gives up peers that stand still for too long or are out of reach; returns whether there were any.
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

// Gives up a rank that stands still. Rank 0 tells all ranks; another rank tells rank 0.
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
    departed_.insert(rank);
    changed_.notify_all();
  }
  lines_.everywhere({rank, {}, "it has ended", RankFailure::Kind::ended});
}

}  // namespace stowage::ranks
