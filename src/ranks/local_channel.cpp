// Channels of threads, which meet in memory.
#include <fmt/core.h>

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "src/base/mutex.h"
#include "src/ranks/lines.h"
#include "stowage/channel.h"
#include "stowage/error.h"

namespace stowage::ranks {
namespace {

constexpr int without_root = -1;

// The state that the ranks share.
struct Hall {
  explicit Hall(int size) : lines(static_cast<std::size_t>(size)) {}

  Mutex telling;
  Mutex mutex;
  CondVar changed;
  std::uint64_t call STOWAGE_GUARDED_BY(mutex) = 0;  // number of the last call to which all ranks have come
  std::optional<int> root STOWAGE_GUARDED_BY(mutex);
  std::map<int, std::string> parts STOWAGE_GUARDED_BY(mutex);                       // texts for the next call
  std::shared_ptr<const std::vector<std::string>> texts STOWAGE_GUARDED_BY(mutex);  // texts of the last call
  std::optional<RankFailure> failure STOWAGE_GUARDED_BY(mutex);
  std::set<int> departed STOWAGE_GUARDED_BY(mutex);
  std::vector<Lines> lines;  // by rank
};

class LocalChannel final : public Channel {
 public:
  LocalChannel(std::shared_ptr<Hall> hall, int rank) : hall_(std::move(hall)), rank_(rank) {}
  ~LocalChannel() override {
    {
      const MutexLock lock(hall_->mutex);
      hall_->departed.insert(rank_);
      hall_->changed.notify_all();
    }
    others([&](Lines& lines) { lines.everywhere({rank_, {}, "it has ended", RankFailure::Kind::ended}); });
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(hall_->lines.size()); }
  std::vector<std::string> gather(std::string_view text) override {
    return *call("gather", without_root, text);
  }
  std::string from(int root, std::string_view text) override {
    if (root < 0 || root >= size()) {
      const std::string why = fmt::format("rank {} of {}", root, size());
      fail({rank_, "from", why});
      throw InvalidInput("from: " + why);
    }
    return call("from", root, root == rank_ ? text : std::string_view())->front();
  }
  void fail(const RankFailure& failure) override {
    {
      const MutexLock lock(hall_->mutex);
      if (!hall_->failure) hall_->failure = failure;
      hall_->changed.notify_all();
    }
    hall_->lines[static_cast<std::size_t>(rank_)].everywhere(failure);
    others([&](Lines& lines) { lines.everywhere(failure); });
  }
  std::optional<RankFailure> failure() const override {
    const MutexLock lock(hall_->mutex);
    return hall_->failure;
  }
  std::unique_ptr<Line> open_line(LineWatcher watcher) override;

  void tell(std::uint32_t line, const RankFailure& word) {
    others([&](Lines& lines) { lines.on(line, word); });
  }
  void end_line(std::uint32_t line) {
    tell(line, {rank_, {}, "it has ended its communicator", RankFailure::Kind::ended});
    hall_->lines[static_cast<std::size_t>(rank_)].close(line);
  }

 private:
  // Calls `function` for every other rank's lines, one word at a time: all ranks hear a word before they hear
  // its consequences.
  template <class Function>
  void others(const Function& function) {
    const MutexLock lock(hall_->telling);
    for (int other = 0; other < size(); ++other)
      if (other != rank_) function(hall_->lines[static_cast<std::size_t>(other)]);
  }
  std::shared_ptr<const std::vector<std::string>> call(const char* name, int root, std::string_view text);
  // Returns null if another rank makes another call.
  std::shared_ptr<const std::vector<std::string>> bring(const char* name, int root, std::string_view text);

  const std::shared_ptr<Hall> hall_;
  const int rank_;
};

class LocalLine final : public Line {
 public:
  LocalLine(LocalChannel& channel, std::uint32_t number) : channel_(channel), number_(number) {}
  ~LocalLine() override { channel_.end_line(number_); }
  void tell(const RankFailure& failure) override { channel_.tell(number_, failure); }

 private:
  LocalChannel& channel_;
  const std::uint32_t number_;
};

std::unique_ptr<Line> LocalChannel::open_line(LineWatcher watcher) {
  return std::make_unique<LocalLine>(*this,
                                     hall_->lines[static_cast<std::size_t>(rank_)].open(std::move(watcher)));
}

std::shared_ptr<const std::vector<std::string>> LocalChannel::call(const char* name, int root,
                                                                   std::string_view text) {
  const std::size_t most = root == without_root ? most_call_bytes / hall_->lines.size() : most_call_bytes;
  if (text.size() > most) {
    const std::string why = fmt::format("a text of {} bytes; let it have {} at most", text.size(), most);
    fail({rank_, name, why});
    throw InvalidInput(fmt::format("{}: {}", name, why));
  }
  if (const auto texts = bring(name, root, text)) return texts;
  fail({rank_, name, "another rank makes another call: let all make the same in the same order"});
  throw error_of(name, *failure());
}

std::shared_ptr<const std::vector<std::string>> LocalChannel::bring(const char* name, int root,
                                                                    std::string_view text) {
  Hall& hall = *hall_;
  const MutexLock lock(hall.mutex);
  if (!hall.failure && hall.root.value_or(root) != root) return nullptr;
  hall.root = root;
  hall.parts.emplace(rank_, text);
  const std::uint64_t number = hall.call + 1;
  if (!hall.failure && hall.parts.size() == hall.lines.size()) {
    std::vector<std::string> texts;
    for (auto& [rank, part] : hall.parts)
      if (root == without_root || rank == root) texts.push_back(std::move(part));
    hall.texts = std::make_shared<const std::vector<std::string>>(std::move(texts));
    hall.parts.clear();
    hall.root.reset();
    hall.call = number;
  }
  hall.changed.notify_all();
  // The next call needs this rank too, so `texts` stays until this rank has taken it.
  while (hall.call < number) {
    if (!hall.failure && !hall.departed.empty())
      hall.failure = RankFailure{*hall.departed.begin(), {}, "it has ended", RankFailure::Kind::ended};
    if (hall.failure) throw error_of(name, *hall.failure);
    hall.changed.wait(hall.mutex);
  }
  return hall.texts;
}

}  // namespace
}  // namespace stowage::ranks

namespace stowage {

std::vector<std::shared_ptr<Channel>> local_channels(int size) {
  const auto hall = std::make_shared<ranks::Hall>(size);
  std::vector<std::shared_ptr<Channel>> channels;
  for (int rank = 0; rank < size; ++rank)
    channels.push_back(std::make_shared<ranks::LocalChannel>(hall, rank));
  return channels;
}

}  // namespace stowage
