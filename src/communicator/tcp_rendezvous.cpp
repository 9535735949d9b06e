#include "src/communicator/tcp_rendezvous.h"

#include <fmt/core.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/communicator/tcp_socket.h"
#include "stowage/error.h"

namespace stowage::communication {
namespace {

constexpr const char* opening_tcp = "open_tcp_communicator";
constexpr int most_ranks = 4096;
constexpr std::chrono::milliseconds between_looks_at_ranks{100};  // whether one has ended
constexpr std::chrono::milliseconds between_tries{50};            // to connect
// The longest that one try may take, or a share behind its hello.
constexpr std::chrono::seconds try_time{5};
// An answer comes later than rank 0 has lost its patience.
constexpr std::chrono::seconds answer_time{10};

enum class Verdict : std::uint32_t { complete, other_build, other_size, twice, ended, lacking };
// Followed by the shares of all, by rank, where they are complete.
struct Answer {
  std::uint64_t magic = TcpHello{}.magic;
  Verdict verdict = Verdict::complete;
  std::int32_t rank = 0;  // that the verdict is about
  std::int32_t size = 0;  // that this rank says
  std::uint32_t unused = 0;
};

struct Meeting {
  TcpGroup group;
  std::chrono::milliseconds patience;
  std::byte* buffer;  // a share of each rank
  Bytes share_bytes;

  std::byte* share_of(int rank) const { return buffer + static_cast<Bytes>(rank) * share_bytes; }
  Bytes whole_bytes() const { return static_cast<Bytes>(group.size) * share_bytes; }
};

[[noreturn]] void fail(int rank, const std::string& what) {
  throw CommunicatorError(fmt::format("{}: {}", opening_tcp, what), opening_tcp, rank);
}

[[noreturn]] void refuse(const std::string& what) {
  throw InvalidInput(fmt::format("{}: {}", opening_tcp, what));
}

// The same on all ranks.
[[noreturn]] void throw_error_of(const Answer& answer, const Meeting& meeting) {
  const TcpGroup& group = meeting.group;
  switch (answer.verdict) {
    case Verdict::other_build:
      refuse(fmt::format("rank {} is of another build than rank 0: install the same one on all machines",
                         answer.rank));
    case Verdict::other_size:
      refuse(fmt::format("rank {} is one of {} ranks, rank 0 one of another number: give all the same size",
                         answer.rank, answer.size));
    case Verdict::twice:
      refuse(fmt::format("rank {} has come twice: give each process a rank of its own", answer.rank));
    case Verdict::ended:
      fail(answer.rank,
           fmt::format("rank {} has ended before all had come together: see what it printed last",
                       answer.rank));
    default:
      fail(answer.rank,
           fmt::format("rank {} has not come to {}:{} within {:.0f} s: see whether it runs, and whether its "
                       "machine reaches that of rank 0",
                       answer.rank, group.host, group.port,
                       std::chrono::duration<double>(meeting.patience).count()));
  }
}

// Rank 0's part.
class Leader {
 public:
  explicit Leader(const Meeting& meeting)
      : meeting_(meeting), ranks_(static_cast<std::size_t>(meeting.group.size)) {}

  void lead() {
    gather();  // and then nobody listens any more
    send_answer({});
  }

 private:
  void gather() {
    Reception reception(listening(), sizeof(TcpHello));
    const Deadline deadline = in_time(meeting_.patience);
    for (int missing = meeting_.group.size - 1; missing > 0;) {
      auto guest = reception.next(std::min(deadline, in_time(between_looks_at_ranks)));
      expect_all_live();
      if (guest && welcome(std::move(*guest))) --missing;
      if (missing > 0 && std::chrono::steady_clock::now() >= deadline)
        give_up({.verdict = Verdict::lacking, .rank = first_missing()});
    }
  }

  Descriptor listening() const {
    Descriptor result = listen_at(meeting_.group.port);
    if (result.number() < 0)
      refuse(fmt::format("rank 0 cannot listen at port {} ({}): give all ranks another one",
                         meeting_.group.port, std::strerror(errno)));
    return result;
  }

  // False: a stranger.
  bool welcome(Reception::Guest guest) {
    TcpHello hello;
    std::memcpy(&hello, guest.greeting.data(), sizeof hello);
    if (hello.magic != TcpHello{}.magic || hello.rank < 1 || hello.rank >= most_ranks) return false;
    Answer answer{hello.magic, Verdict::complete, hello.rank, hello.size};
    if (hello.version != TcpHello{}.version || hello.share_bytes != meeting_.share_bytes)
      answer.verdict = Verdict::other_build;
    else if (hello.size != meeting_.group.size || hello.rank >= hello.size)
      answer.verdict = Verdict::other_size;
    else if (of(hello.rank).number() >= 0)
      answer.verdict = Verdict::twice;
    if (answer.verdict != Verdict::complete) {
      ranks_.push_back(std::move(guest.connection));  // it is told, too
      give_up(answer);
    }
    if (!receive_whole(guest.connection.number(), meeting_.share_of(hello.rank), meeting_.share_bytes,
                       in_time(try_time)))
      return false;
    keep_alive(guest.connection.number());
    of(hello.rank) = std::move(guest.connection);
    return true;
  }

  void expect_all_live() {
    for (int rank = 1; rank < meeting_.group.size; ++rank)
      if (of(rank).number() >= 0 && is_closed(of(rank).number()))
        give_up({.verdict = Verdict::ended, .rank = rank});
  }

  [[noreturn]] void give_up(const Answer& answer) {
    send_answer(answer);
    throw_error_of(answer, meeting_);
  }

  // One that has ended meanwhile is found out by whoever connects to it next.
  void send_answer(const Answer& answer) {
    for (const Descriptor& rank : ranks_) {
      if (rank.number() < 0) continue;
      const bool sent = send_whole(rank.number(), &answer, sizeof answer);
      if (sent && answer.verdict == Verdict::complete)
        send_whole(rank.number(), meeting_.buffer, meeting_.whole_bytes());
    }
  }

  int first_missing() {
    int rank = 1;
    while (of(rank).number() >= 0) ++rank;
    return rank;
  }

  Descriptor& of(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  const Meeting& meeting_;
  std::vector<Descriptor> ranks_;  // that have come; none at 0
};

// The first IPv4 address of that name; else what the system says.
std::pair<sockaddr_in, std::string> resolved(const TcpGroup& group) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  const int error = getaddrinfo(group.host.c_str(), nullptr, &hints, &found);
  if (error != 0) return {{}, gai_strerror(error)};
  sockaddr_in address{};
  std::memcpy(&address, found->ai_addr, sizeof address);
  freeaddrinfo(found);
  address.sin_port = htons(group.port);
  return {address, {}};
}

// The others' way to rank 0. Its name may be unknown until it runs, as that of a container.
Descriptor connected_to_leader(const Meeting& meeting) {
  const Deadline deadline = in_time(meeting.patience);
  for (;;) {
    auto [address, why] = resolved(meeting.group);
    if (why.empty()) {
      Descriptor connection = connect_to(address, std::min(deadline, in_time(try_time)));
      if (connection.number() >= 0) return connection;
      why = std::strerror(errno);
    }
    if (in_time(between_tries) >= deadline)
      fail(0, fmt::format("rank 0 does not answer at {}:{} within {:.0f} s ({}): see whether it runs, and "
                          "whether this machine reaches its machine",
                          meeting.group.host, meeting.group.port,
                          std::chrono::duration<double>(meeting.patience).count(), why));
    std::this_thread::sleep_for(between_tries);
  }
}

[[noreturn]] void fail_without_answer(const Meeting& meeting) {
  fail(0, fmt::format("what listens at {}:{} gives no answer ({}): see whether rank 0 has ended; if another "
                      "program listens there, give all ranks another port",
                      meeting.group.host, meeting.group.port, std::strerror(errno)));
}

void follow(const Meeting& meeting) {
  const Descriptor leader = connected_to_leader(meeting);
  keep_alive(leader.number());
  const TcpHello hello{.rank = meeting.group.rank,
                       .size = meeting.group.size,
                       .share_bytes = static_cast<std::uint32_t>(meeting.share_bytes)};
  const Deadline deadline = in_time(meeting.patience + answer_time);
  Answer answer;
  if (!send_whole(leader.number(), &hello, sizeof hello) ||
      !send_whole(leader.number(), meeting.share_of(meeting.group.rank), meeting.share_bytes) ||
      !receive_whole(leader.number(), &answer, sizeof answer, deadline))
    fail_without_answer(meeting);
  errno = EPROTO;
  if (answer.magic != hello.magic || answer.verdict > Verdict::lacking) fail_without_answer(meeting);
  if (answer.verdict != Verdict::complete) throw_error_of(answer, meeting);
  if (!receive_whole(leader.number(), meeting.buffer, meeting.whole_bytes(), deadline))
    fail_without_answer(meeting);
}

void expect_sense(const TcpGroup& group) {
  if (group.size < 1 || group.size > most_ranks)
    refuse(fmt::format("a group of {} ranks; let it have 1 to {}", group.size, most_ranks));
  if (group.rank < 0 || group.rank >= group.size)
    refuse(fmt::format("there is no rank {}; let it be one of 0 to {}", group.rank, group.size - 1));
  if (group.size > 1 && (group.host.empty() || group.port == 0))
    refuse("host or port is missing; say where rank 0 listens");
}

}  // namespace

RankOfGroup rank_at(const TcpGroup& group, std::chrono::milliseconds patience) {
  expect_sense(group);
  return {group.rank, group.size, [group, patience](void* buffer, Bytes share_bytes) {
            if (group.size == 1) return;
            const Meeting meeting{group, patience, static_cast<std::byte*>(buffer), share_bytes};
            if (group.rank == 0)
              Leader(meeting).lead();
            else
              follow(meeting);
          }};
}

}  // namespace stowage::communication
