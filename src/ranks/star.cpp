#include "src/ranks/star_channel.h"

#include <fmt/core.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "stowage/error.h"

namespace stowage::ranks {
namespace {

constexpr std::size_t most_words = 4096;  // limit in bytes of a failure's call, and of its reason

class StarLine final : public Line {
 public:
  StarLine(Star& star, std::uint32_t number) : star_(star), number_(number) {}
  ~StarLine() override { star_.end_line(number_); }
  void tell(const RankFailure& failure) override { star_.tell(number_, failure); }

 private:
  Star& star_;
  const std::uint32_t number_;
};

}  // namespace

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
  options_.leaving(*this);
  const SharedBytes gone = bytes_of({MessageKind::gone, rank(), own_line, {}});
  {
    const MutexLock lock(mutex_);
    stops_ = true;
    for (Peer& peer : peers_)
      if (!peer.is_done) peer.outgoing.push_back(gone);
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

void Star::keep(const RankFailure& failure) {
  {
    const MutexLock lock(mutex_);
    if (!failure_ || failure_->kind == RankFailure::Kind::ended) failure_ = failure;
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

// Waits until all queued bytes are sent, but not on the channel's own thread, which sends them.
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

std::unique_ptr<Channel> make_star(StarOptions options) { return std::make_unique<Star>(std::move(options)); }

}  // namespace stowage::ranks
