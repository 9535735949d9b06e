#include "src/ranks/meeting.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "src/ranks/greeting.h"
#include "src/ranks/message.h"
#include "stowage/error.h"

namespace stowage::ranks {
namespace {

constexpr const char* call = "joining";
// Limit of guests that have not proved yet that they belong: if more come, or no more files can be opened,
// the first guest is sent away.
constexpr std::size_t most_guests = 256;
constexpr int most_at_once = 64;                  // connections accepted in a row, before guests are heard
constexpr std::chrono::seconds greeting_time{5};  // limit of a guest's greeting, and of an attempt to connect
constexpr std::chrono::milliseconds between_tries{50};
constexpr std::chrono::seconds answer_time{10};  // limit of rank 0's answer after its patience is over
constexpr std::chrono::seconds naming_time{5};   // wait for a name that the system cannot resolve yet
constexpr int most_told_strangers = 10;

Deadline in_time(std::chrono::milliseconds time) { return Clock::now() + time; }
double seconds_of(std::chrono::milliseconds time) { return std::chrono::duration<double>(time).count(); }

CommunicatorError lost(int rank, const std::string& how) {
  return {fmt::format("{}: rank {} {}", call, rank, how), call, rank};
}

std::string place(const MeetingPoint& point) {
  if (point.is_local) return fmt::format("port {} of this machine", point.port);
  return fmt::format("{}:{}", fmt::join(point.hosts, ","), point.port);
}

// Returns the addresses of all hosts. Throws InvalidInput if there are none: waiting does not help against an
// unknown name.
std::vector<Address> resolved(const MeetingPoint& point) {
  if (point.is_local) return {local_address(getuid(), point.port)};
  for (const Deadline deadline = in_time(naming_time);; std::this_thread::sleep_for(between_looks)) {
    std::vector<Address> addresses;
    Names names;
    for (const std::string& host : point.hosts)
      for (Address& address : addresses_of(host, point.port, names)) addresses.push_back(std::move(address));
    if (!addresses.empty()) return addresses;
    if (!names.may_come || Clock::now() >= deadline)
      throw InvalidInput(fmt::format("{} is the name of no machine ({}): name that of rank 0",
                                     fmt::join(point.hosts, ","), names.why));
  }
}

Descriptor listening_at(const MeetingPoint& point, const MeetingOptions& options) {
  if (point.is_local || !point.hosts.empty())
    for (const Address& address : resolved(point))
      if (point.is_local || is_own(address)) return listen_at(address);
  Descriptor listening = listen_at(any_address(point.port));
  if (listening)
    options.say(
        fmt::format("rank 0 listens at port {} of all addresses of this machine", port_of(listening)));
  return listening;
}

std::string refusal(const Reply& reply, const MeetingOptions& options, const MeetingPoint& point) {
  switch (reply.verdict) {
    case Verdict::other_user:
      return fmt::format("rank 0 is a process of another user than this one, who is user {}", reply.detail);
    case Verdict::lacks_secret:
      return "rank 0 has a secret: give all ranks the same STOWAGE_SECRET";
    case Verdict::unwanted_secret:
      return "rank 0 has no secret: give all ranks the same STOWAGE_SECRET, or none";
    case Verdict::wrong_secret:
      return "rank 0 has another secret: give all ranks the same STOWAGE_SECRET";
    case Verdict::other_build:
      return fmt::format("rank {} is of another build than rank 0: install the same one on all machines",
                         options.rank);
    case Verdict::other_size:
      return fmt::format("rank {} is one of {} ranks, rank 0 one of {}: give all the same size", options.rank,
                         options.size, reply.detail);
    case Verdict::twice:
      return fmt::format("rank {} has come twice: give each process a rank of its own", options.rank);
    default:
      return fmt::format("what listens at {} is no rank 0", place(point));
  }
}

}  // namespace

struct Reception::Guest {
  Descriptor connection;
  Deadline until;
  std::string received;
  std::optional<Hello> hello;
  Nonce nonce{};  // rank 0's nonce for this guest
};

Reception::Reception(const MeetingPoint& point, const MeetingOptions& options)
    : point_(point),
      options_(options),
      listening_(listening_at(point, options)),
      ranks_(static_cast<std::size_t>(options.size)),
      missing_(options.size - 1) {
  if (!listening_)
    throw InvalidInput(fmt::format("rank 0 cannot listen at {} ({}): give all ranks another port",
                                   place(point), std::strerror(errno)));
}

std::uint16_t Reception::port() const { return point_.is_local ? point_.port : port_of(listening_); }

std::vector<Descriptor> Reception::admit() {
  const Deadline deadline = in_time(options_.patience);
  std::vector<Guest> guests;
  for (Deadline next_look{}; missing_ > 0;) {
    if (Clock::now() >= next_look) {
      options_.look();
      look_at_ranks();
      next_look = in_time(between_looks);
    }
    if (Clock::now() >= deadline)
      lose(first_missing(),
           fmt::format("has not come to {} within {:.0f} s: see whether it runs, and whether its machine "
                       "reaches that of rank 0",
                       place(point_), seconds_of(options_.patience)));
    std::vector<pollfd> entries{{listening_.number(), POLLIN, 0}};
    for (const Guest& guest : guests) entries.push_back({guest.connection.number(), POLLIN, 0});
    if (!poll_until(entries, in_time(between_looks))) entries.front().revents = 0;
    std::erase_if(guests, [&](Guest& guest) { return Clock::now() >= guest.until || !serve(guest); });
    if (entries.front().revents != 0) accept_guests(guests);
  }
  listening_ = {};
  tell_all(encode(Message{MessageKind::begun, 0, 0, {}}));
  return std::move(ranks_);
}

// Ends the meeting if a rank that has come has ended. Such a rank sends nothing before the group has begun,
// so bytes count as its end too.
void Reception::look_at_ranks() {
  for (int rank = 1; rank < options_.size; ++rank) {
    char next = 0;
    if (!of(rank)) continue;
    const ssize_t got = recv(of(rank).number(), &next, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got >= 0 || (errno != EAGAIN && errno != EINTR))
      lose(rank, "has ended before all had come together: see what it printed last");
  }
}

void Reception::accept_guests(std::vector<Guest>& guests) {
  for (int accepted = 0; accepted < most_at_once; ++accepted) {
    Descriptor connection(accept4(listening_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const bool is_full = !connection && (errno == EMFILE || errno == ENFILE);
    if (is_full && guests.empty())
      throw InvalidInput(fmt::format(
          "rank 0 can open no more files for {} ranks: raise the limit (ulimit -n)", options_.size));
    const bool has_come = static_cast<bool>(connection);
    if (has_come && is_of_this_user(connection.number())) {
      keep_alive(connection.number());
      guests.push_back({std::move(connection), in_time(greeting_time), {}, {}, {}});
    }
    if (guests.size() > most_guests || is_full) guests.erase(guests.begin());
    if (!has_come) return;
  }
}

// Whether the process is of this user; unknown for other machines, and then true. Another user's process is
// told so and sent away.
bool Reception::is_of_this_user(int connection) {
  const std::optional<uid_t> user = point_.is_local ? user_at(connection) : getuid();
  if (user == getuid()) return true;
  say_of_stranger(fmt::format("a process of user {} was sent away", user.value_or(0)));
  send_whole(connection, encode(Reply{.verdict = Verdict::other_user, .detail = user.value_or(0)}),
             Clock::now());
  return false;
}

// Returns false once the guest is done with, whether it belongs or not.
bool Reception::serve(Guest& guest) {
  const std::size_t wanted = guest.hello ? proof_bytes : hello_bytes;
  std::array<char, hello_bytes> bytes{};
  const ssize_t got =
      recv(guest.connection.number(), bytes.data(), wanted - guest.received.size(), MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  guest.received.append(bytes.data(), static_cast<std::size_t>(got));
  if (guest.received.size() < wanted) return true;
  return guest.hello ? answer_proof(guest) : answer_hello(guest);
}

bool Reception::answer_hello(Guest& guest) {
  const int number = guest.connection.number();
  guest.hello = hello_of(guest.received);
  guest.received.clear();
  if (!guest.hello) return false;
  Reply reply;
  if (guest.hello->has_secret != !options_.secret.empty()) {
    reply.verdict = guest.hello->has_secret ? Verdict::unwanted_secret : Verdict::lacks_secret;
    say_of_stranger(fmt::format("a process at {} with{} a secret was sent away", peer_of(number),
                                guest.hello->has_secret ? "" : "out"));
  } else {
    guest.nonce = reply.nonce = random_nonce();
    reply.proof = proof_of(options_.secret, Prover::rank_0, *guest.hello, guest.nonce);
  }
  return send_whole(number, encode(reply), Clock::now()) && reply.verdict == Verdict::welcome;
}

bool Reception::answer_proof(Guest& guest) {
  const int number = guest.connection.number();
  const Hello& hello = *guest.hello;
  const auto send = [&](Verdict verdict, std::uint32_t detail) {
    return send_whole(number, encode(verdict, detail), Clock::now());
  };
  if (!is_same(proof_of(options_.secret, Prover::other, hello, guest.nonce), guest.received)) {
    say_of_stranger(fmt::format("a process at {} with another secret was sent away", peer_of(number)));
    send(Verdict::wrong_secret, 0);
    return false;
  }
  if (hello.build != options_.build) {
    send(Verdict::other_build, 0);
    refuse(fmt::format("rank {} is of another build than rank 0: install the same one on all machines",
                       hello.rank));
  }
  if (hello.size != options_.size || hello.rank < 1 || hello.rank >= options_.size) {
    send(Verdict::other_size, static_cast<std::uint32_t>(options_.size));
    refuse(fmt::format("rank {} is one of {} ranks, rank 0 one of {}: give all the same size", hello.rank,
                       hello.size, options_.size));
  }
  if (of(hello.rank)) {
    send(Verdict::twice, 0);
    refuse(fmt::format("rank {} has come twice: give each process a rank of its own", hello.rank));
  }
  if (!send(Verdict::welcome, 0)) return false;
  options_.say(fmt::format("rank {} came from {}", hello.rank, peer_of(number)));
  of(hello.rank) = std::move(guest.connection);
  --missing_;
  return false;
}

void Reception::say_of_stranger(const std::string& line) {
  if (++strangers_ <= most_told_strangers) options_.say(line);
  if (strangers_ == most_told_strangers) options_.say("further ones are sent away without a line");
}

void Reception::refuse(const std::string& why) {
  tell_all(encode(Message{MessageKind::refused, 0, 0, why}));
  throw InvalidInput(why);
}

void Reception::lose(int rank, const std::string& how) {
  tell_all(encode(Message{MessageKind::died, rank, 0, how}));
  throw lost(rank, how);
}

// Sends without waiting: the message fits every socket's buffer. A rank that has ended is noticed by the next
// use of its connection.
void Reception::tell_all(const std::string& message) {
  for (const Descriptor& rank : ranks_)
    if (rank) send_whole(rank.number(), message, Clock::now());
}

int Reception::first_missing() const {
  const auto missing =
      std::find_if(ranks_.begin() + 1, ranks_.end(), [](const Descriptor& rank) { return !rank; });
  return static_cast<int>(missing - ranks_.begin());
}

namespace {

// Receives `bytes` bytes from rank 0.
std::string receive(int socket, std::size_t bytes, Deadline deadline, const MeetingOptions& options,
                    const MeetingPoint& point) {
  std::optional<std::string> received = receive_whole(socket, bytes, deadline, options.look);
  if (!received)
    throw lost(0, fmt::format("at {} gives no answer ({}): see whether it has ended; if another program "
                              "listens there, give all ranks another port",
                              place(point), std::strerror(errno)));
  return *received;
}

// Returns false if the process at this address is not rank 0 of this group; another address may be. Throws
// InvalidInput if it is rank 0 and refuses this rank.
bool greet(int socket, const MeetingPoint& point, const MeetingOptions& options, bool is_last) {
  const Hello hello{options.rank, options.size, options.build, !options.secret.empty(), random_nonce()};
  const Deadline deadline = in_time(greeting_time);
  if (!send_whole(socket, encode(hello), deadline)) return false;
  const std::optional<std::string> bytes = receive_whole(socket, reply_bytes, deadline, options.look);
  const std::optional<Reply> reply = bytes ? reply_of(*bytes) : std::nullopt;
  if (!reply) return false;
  if (reply->verdict != Verdict::welcome && !is_last) return false;
  if (reply->verdict != Verdict::welcome) throw InvalidInput(refusal(*reply, options, point));
  const Proof expected = proof_of(options.secret, Prover::rank_0, hello, reply->nonce);
  const std::string_view shown(reinterpret_cast<const char*>(reply->proof.data()), reply->proof.size());
  if (!is_same(expected, shown)) {
    if (!is_last) return false;
    throw InvalidInput(
        fmt::format("what listens at {} does not know the secret: give all ranks the same "
                    "STOWAGE_SECRET, and a port of their own",
                    place(point)));
  }
  const Proof own = proof_of(options.secret, Prover::other, hello, reply->nonce);
  if (!send_whole(socket, {reinterpret_cast<const char*>(own.data()), own.size()}, deadline)) return false;
  const std::optional<std::string> answer = receive_whole(socket, verdict_bytes, deadline, options.look);
  const std::optional<Reply> verdict = answer ? verdict_of(*answer) : std::nullopt;
  if (!verdict) return false;
  if (verdict->verdict != Verdict::welcome) throw InvalidInput(refusal(*verdict, options, point));
  return true;
}

Descriptor connected(const MeetingPoint& point, const MeetingOptions& options) {
  const Deadline deadline = in_time(options.patience);
  const std::vector<Address> addresses = resolved(point);
  std::string why = "nobody listens there";
  for (;; std::this_thread::sleep_for(between_tries)) {
    for (const Address& address : addresses) {
      options.look();
      Descriptor connection = connect_to(address, std::min(deadline, in_time(greeting_time)), options.look);
      if (!connection) {
        why = std::strerror(errno);
        continue;
      }
      const std::optional<uid_t> user = point.is_local ? user_at(connection.number()) : std::nullopt;
      if (point.is_local && user != getuid())
        throw InvalidInput(fmt::format("a process of user {} listens at {}: give all ranks another port",
                                       user.value_or(0), place(point)));
      keep_alive(connection.number());
      if (greet(connection.number(), point, options, &address == &addresses.back())) return connection;
      why = "what listens there is no rank 0";
    }
    options.look();
    if (in_time(between_tries) >= deadline)
      throw lost(0,
                 fmt::format("does not answer at {} within {:.0f} s ({}): see whether it runs, and whether "
                             "this machine reaches its machine",
                             place(point), seconds_of(options.patience), why));
  }
}

}  // namespace

Descriptor join(const MeetingPoint& point, const MeetingOptions& options) {
  Descriptor connection = connected(point, options);
  const Deadline deadline = in_time(options.patience + answer_time);
  std::string bytes = receive(connection.number(), head_bytes, deadline, options, point);
  MessageReader reader;
  reader.add(bytes);
  try {
    std::optional<Message> message = reader.next();
    while (!message) {
      reader.add(receive(connection.number(), 1, deadline, options, point));
      message = reader.next();
    }
    if (message->kind == MessageKind::refused) throw InvalidInput(message->text);
    if (message->kind == MessageKind::died) throw lost(message->rank, message->text);
    if (message->kind == MessageKind::begun) return connection;
  } catch (const BadMessage&) {
    errno = EPROTO;
  }
  throw lost(0, fmt::format("at {} says something else than that the group has begun", place(point)));
}

}  // namespace stowage::ranks
