// How the processes of a launcher come to a channel.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "src/communicator/communicator_module.h"
#include "src/device/backend_module.h"
#include "src/ranks/greeting.h"
#include "src/ranks/meeting.h"
#include "src/ranks/siblings.h"
#include "src/ranks/star.h"
#include "stowage/channel.h"
#include "stowage/error.h"

namespace stowage {
namespace {

using ranks::MeetingOptions;
using ranks::MeetingPoint;

constexpr std::chrono::seconds start_time{3};  // in which a launcher starts all ranks of a machine
constexpr std::size_t least_secret = 16;

std::string variable(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? "" : text;
}

std::string own_secret() {
  std::string secret = variable("STOWAGE_SECRET");
  if (!secret.empty() && secret.size() < least_secret)
    throw InvalidInput(fmt::format("STOWAGE_SECRET has {} bytes: give all ranks the same one, of {} or more",
                                   secret.size(), least_secret));
  return secret;
}

std::chrono::milliseconds standing_time() {
  const std::string text = variable("STOWAGE_RANK_TIMEOUT");
  if (text.empty()) return std::chrono::minutes(5);
  char* end = nullptr;
  const double seconds = std::strtod(text.c_str(), &end);
  if (*end != '\0' || !(seconds >= 0 && seconds <= 1e6))
    throw InvalidInput(
        fmt::format("STOWAGE_RANK_TIMEOUT={}: let it be seconds, 0 to 1000000; 0: for ever", text));
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

bool is_here(const std::string& host) { return host == "localhost" || host.starts_with("127."); }

// What every rank asks while it waits for the others: whether one of this machine has ended.
std::function<void()> look_of(const RankLaunch& launch, const std::function<void()>& callers) {
  const bool sees_all = launch.here == launch.size;
  auto siblings =
      std::make_shared<ranks::Siblings>(::getppid(), launch.rank_variable, sees_all ? launch.size : 0);
  return [=, begun = std::chrono::steady_clock::now(), rank = launch.rank,
          knows = !launch.rank_variable.empty()] {
    callers();
    if (!knows) return;
    const auto ended = siblings->ended(std::chrono::steady_clock::now() > begun + start_time);
    if (ended && *ended != rank)
      throw CommunicatorError(
          fmt::format("rank {}: rank {} has ended before all had come together: see what it "
                      "printed last",
                      rank, *ended),
          "joining", *ended);
  };
}

std::shared_ptr<Channel> channel_of(const MeetingPoint& point, const MeetingOptions& meeting,
                                    const ChannelOptions& options,
                                    std::optional<ranks::Reception> reception = std::nullopt) {
  ranks::StarOptions star;
  star.rank = meeting.rank;
  star.size = meeting.size;
  star.standing_time = standing_time();
  star.waits = options.waits;
  if (meeting.rank != 0)
    star.connections.push_back(ranks::join(point, meeting));
  else
    star.connections = reception ? reception->admit() : ranks::Reception(point, meeting).admit();
  return ranks::make_star(std::move(star));
}

std::shared_ptr<Channel> open_by_variables(const RankLaunch& launch, MeetingOptions meeting,
                                           const ChannelOptions& options) {
  MeetingPoint point;
  point.is_local = launch.here == launch.size || (launch.here == 0 && is_here(launch.host));
  const std::string named = variable("STOWAGE_HOST");
  point.hosts = {named.empty() ? launch.host : named};
  point.port = launch.port;
  if (!point.is_local) meeting.secret = own_secret();
  if (!point.is_local && meeting.secret.empty() && meeting.rank == 0)
    options.say(fmt::format("no STOWAGE_SECRET: whoever reaches port {} can join", point.port));
  try {
    return channel_of(point, meeting, options);
  } catch (const InvalidInput& error) {
    throw InvalidInput(fmt::format(
        "{}. {} says where rank 0 listens: {}:{}; STOWAGE_PORT names another port, the same for all ranks",
        error.what(), launch.by, launch.host, launch.port));
  }
}

std::string hex(const ranks::Nonce& bytes) { return fmt::format("{:02x}", fmt::join(bytes, "")); }

// Rank 0 hands out where it listens, and a random key that serves as the secret, over MPI's own connections.
std::shared_ptr<Channel> open_over_mpi(const RankLaunch& launch, MeetingOptions meeting,
                                       const ChannelOptions& options) {
  const communication::MpiModule& mpi = communication::load_mpi_module();
  const auto [rank, size] = mpi.rank();
  if (size != launch.size)
    throw InvalidInput(
        fmt::format("{} has started {} processes, of which MPI knows {}: start them by the mpirun of "
                    "Open MPI 4.1, or by srun --mpi=pmix",
                    launch.by, launch.size, size));
  meeting.rank = rank;
  const auto late =
      std::chrono::steady_clock::now() + meeting.patience;  // MPI says nothing of one that is gone
  const auto look = [&] {
    meeting.look();
    if (std::chrono::steady_clock::now() < late) return;
    throw CommunicatorError(
        fmt::format("rank {}: the {} processes that {} has started have not come together in {} s: "
                    "see whether one has ended, and whether their machines reach each other",
                    rank, size, launch.by,
                    std::chrono::duration_cast<std::chrono::seconds>(meeting.patience).count()),
        "joining", rank);
  };
  MeetingPoint point;
  point.is_local = launch.here == launch.size;
  std::optional<ranks::Reception> reception;
  std::string handed_out;
  if (rank == 0) {
    meeting.secret = hex(ranks::random_nonce());
    const std::string named = variable("STOWAGE_HOST");
    // Of this machine alone it is a part of a name, which nobody else has.
    if (point.is_local)
      point.port = static_cast<std::uint16_t>(1 + ranks::random_nonce()[0] * 256 + ranks::random_nonce()[1]);
    if (!named.empty()) point.hosts = {named};
    reception.emplace(point, meeting);
    point.port = reception->port();
    if (point.hosts.empty()) point.hosts = ranks::own_addresses();
    handed_out = fmt::format("{} {} {}", meeting.secret, point.port, fmt::join(point.hosts, " "));
  }
  std::istringstream words(mpi.share(handed_out, look));
  words >> meeting.secret >> point.port;
  point.hosts.clear();
  for (std::string host; words >> host;) point.hosts.push_back(host);
  return channel_of(point, meeting, options, std::move(reception));
}

}  // namespace

std::shared_ptr<Channel> open_channel(const RankLaunch& launch, const ChannelOptions& options) {
  if (launch.size == 1) return local_channels(1).front();
  MeetingOptions meeting;
  meeting.rank = launch.rank;
  meeting.size = launch.size;
  meeting.build = backend_module_version();
  meeting.look = look_of(launch, options.look);
  meeting.say = options.say;
  return launch.port == 0 ? open_over_mpi(launch, std::move(meeting), options)
                          : open_by_variables(launch, std::move(meeting), options);
}

}  // namespace stowage
