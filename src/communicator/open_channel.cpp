// Opens the channel between the processes that a launcher has started.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/communicator/communicator_module.h"
#include "src/communicator/watch.h"
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

constexpr std::chrono::seconds start_time{3};  // time in which a launcher starts all ranks of a machine
constexpr std::size_t least_secret = 16;
constexpr int least_standing = 2;  // seconds; a live process sends a message each second
constexpr int most_names = 10;     // names of a local socket that rank 0 tries
constexpr std::chrono::milliseconds between_looks{100};
constexpr std::string_view failed_word = "! ";  // rank 0's text begins with this if rank 0 does not listen

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
  if (*end != '\0' || (seconds != 0 && !(seconds >= least_standing && seconds <= 1e6)))
    throw InvalidInput(fmt::format(
        "STOWAGE_RANK_TIMEOUT={}: let it be seconds, {} to 1000000, or 0: for ever", text, least_standing));
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

bool is_here(const std::string& host) { return host == "localhost" || host.starts_with("127."); }

// Returns the check that every rank makes while it waits for the others: whether a rank of this machine
// has ended.
std::function<void()> look_of(const RankLaunch& launch, const std::function<void()>& callers) {
  const bool sees_all = launch.here == launch.size;
  auto siblings =
      std::make_shared<ranks::Siblings>(::getppid(), launch.rank_variable, sees_all ? launch.size : 0);
  return [=, begun = std::chrono::steady_clock::now(), rank = launch.rank,
          knows = !launch.rank_variable.empty()] {
    callers();
    if (!knows) return;
    std::vector<int> ended = siblings->ended(std::chrono::steady_clock::now() > begun + start_time);
    std::erase(ended, rank);
    if (!ended.empty())
      throw CommunicatorError(
          fmt::format("rank {}: rank {} {} ended before all had come together: see what it "
                      "printed last",
                      rank, fmt::join(ended, ", "), ended.size() > 1 ? "have" : "has"),
          "joining", ended.front());
  };
}

std::shared_ptr<Channel> channel_of(
    const MeetingPoint& point, const MeetingOptions& meeting, const ChannelOptions& options,
    std::optional<ranks::Reception> reception = std::nullopt,
    std::function<void(Channel&)> leaving = [](Channel&) {}) {
  ranks::StarOptions star;
  star.rank = meeting.rank;
  star.size = meeting.size;
  star.standing_time = standing_time();
  star.waits = options.waits;
  star.leaving = std::move(leaving);
  if (meeting.rank != 0)
    star.connections.push_back(ranks::join(point, meeting));
  else
    star.connections = reception ? reception->admit() : ranks::Reception(point, meeting).admit();
  return ranks::make_star(std::move(star));
}

std::shared_ptr<Channel> open_by_variables(const RankLaunch& launch, MeetingOptions meeting,
                                           const ChannelOptions& options) {
  const std::string named = variable("STOWAGE_HOST");
  const std::string host = named.empty() ? launch.host : named;
  MeetingPoint point;
  point.is_local = launch.here == launch.size || (launch.here == 0 && is_here(host));
  point.hosts = {host};
  point.port = launch.port;
  if (!point.is_local) meeting.secret = own_secret();
  if (!point.is_local && meeting.secret.empty() && meeting.rank == 0)
    options.say(fmt::format("no STOWAGE_SECRET: whoever reaches port {} can join", point.port));
  try {
    return channel_of(point, meeting, options);
  } catch (const InvalidInput& error) {
    throw InvalidInput(
        fmt::format("{}. {} says where rank 0 listens: {}:{}; STOWAGE_HOST and STOWAGE_PORT name another "
                    "place, the same for "
                    "all ranks",
                    error.what(), named.empty() ? launch.by : "STOWAGE_HOST", host, launch.port));
  }
}

std::string hex(const ranks::Nonce& bytes) { return fmt::format("{:02x}", fmt::join(bytes, "")); }

// Returns rank 0's reception under MPI, at a place of its own choice. If all ranks run on this machine, the
// port is only a part of a socket's name.
ranks::Reception reception_at(MeetingPoint& point, const MeetingOptions& meeting) {
  const std::string named = variable("STOWAGE_HOST");
  if (!named.empty()) point.hosts = {named};
  for (int names = 1;; ++names) try {
      const ranks::Nonce numbers = ranks::random_nonce();
      if (point.is_local)
        point.port = static_cast<std::uint16_t>(1 + numbers[0] + (numbers[1] << 8) % 0xff00);
      ranks::Reception reception(point, meeting);
      point.port = reception.port();
      return reception;
    } catch (const InvalidInput&) {
      if (!point.is_local || names == most_names) throw;
    }
}

// Returns where rank 0 listens and its random key, or the error.
std::string place_or_error(MeetingPoint& point, MeetingOptions& meeting,
                           std::optional<ranks::Reception>& reception) {
  try {
    meeting.secret = hex(ranks::random_nonce());
    reception.emplace(reception_at(point, meeting));
    if (point.hosts.empty()) point.hosts = ranks::own_addresses();
    if (point.hosts.empty()) point.hosts = {"127.0.0.1"};
    return fmt::format("{} {} {}", meeting.secret, point.port, fmt::join(point.hosts, " "));
  } catch (const std::exception& error) {
    return std::string(failed_word) + error.what();
  }
}

// Ends MPI, which waits until all ranks do so. If a rank has failed or died, this rank does not end MPI: the
// wait would never end. A rank that has merely left the channel does end MPI.
void end_mpi(const communication::MpiModule& mpi, Channel& channel, const ChannelOptions& options) {
  constexpr const char* call = "ending MPI";
  const auto failure = [&] {
    const std::optional<RankFailure> why = channel.failure();
    return why && why->kind != RankFailure::Kind::ended ? why : std::nullopt;
  };
  if (failure()) return mpi.lose();
  bool has_ended = false;
  {
    const communication::Watch watch(between_looks, [&] {
      const auto why = failure();
      if (why) options.stuck(error_of(call, *why).what());
      return !why;
    });
    has_ended = mpi.end();
  }
  if (!has_ended) channel.fail({channel.rank(), call, "work that has failed may be under way in it"});
}

// Rank 0 hands out where it listens, and a random key that serves as the secret, over MPI's own connections.
std::shared_ptr<Channel> meet_over_mpi(const communication::MpiModule& mpi, communication::RankOfWorld world,
                                       const RankLaunch& launch, MeetingOptions meeting,
                                       const ChannelOptions& options, const std::function<void()>& look) {
  if (world.size != launch.size)
    throw InvalidInput(
        fmt::format("{} has started {} processes, of which MPI knows {}: start them by the mpirun of "
                    "Open MPI 4.1, or by srun --mpi=pmix",
                    launch.by, launch.size, world.size));
  meeting.rank = world.rank;
  MeetingPoint point;
  point.is_local = launch.here == launch.size;
  std::optional<ranks::Reception> reception;
  const std::string handed_out =
      mpi.share(world.rank == 0 ? place_or_error(point, meeting, reception) : std::string(), look);
  if (handed_out.starts_with(failed_word)) throw InvalidInput(handed_out.substr(failed_word.size()));
  std::istringstream words(handed_out);
  words >> meeting.secret >> point.port;
  point.hosts.clear();
  for (std::string host; words >> host;) point.hosts.push_back(host);
  return channel_of(point, meeting, options, std::move(reception),
                    [&mpi, options](Channel& channel) { end_mpi(mpi, channel, options); });
}

std::shared_ptr<Channel> open_over_mpi(const RankLaunch& launch, MeetingOptions meeting,
                                       const ChannelOptions& options) {
  const communication::MpiModule& mpi = communication::load_mpi_module();
  // MPI does not report dead ranks, and waits for them when it begins.
  const auto look = [&, late = std::chrono::steady_clock::now() + meeting.patience] {
    meeting.look();
    if (std::chrono::steady_clock::now() < late) return;
    throw CommunicatorError(
        fmt::format("rank {}: the {} processes that {} has started have not come together in {} s: "
                    "see whether one has ended, and whether their machines reach each other",
                    launch.rank, launch.size, launch.by,
                    std::chrono::duration_cast<std::chrono::seconds>(meeting.patience).count()),
        "joining", launch.rank);
  };
  communication::RankOfWorld world;
  {
    const communication::Watch watch(between_looks, [&] {
      try {
        look();
        return true;
      } catch (const std::exception& error) {
        options.stuck(error.what());
        return false;
      }
    });
    world = mpi.rank();
  }
  try {
    return meet_over_mpi(mpi, world, launch, meeting, options, look);
  } catch (...) {
    mpi.lose();  // otherwise ending MPI would wait for a rank that is gone
    throw;
  }
}

}  // namespace

std::shared_ptr<Channel> open_channel(const RankLaunch& launch, const ChannelOptions& options) {
  if (launch.size == 1) return local_channels(1).front();
  standing_time();  // reports a mistake in the variable before anybody waits
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
