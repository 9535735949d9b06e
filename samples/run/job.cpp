#include "samples/run/job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <vector>

#include "samples/run/siblings.h"
#include "stowage/simulated_device.h"
#include "tools/console/interrupt.h"
#include "tools/console/underway.h"

namespace stowage::samples {
namespace {

constexpr int failed_code = 1;
constexpr int wrong_code = 2;
constexpr Bytes piece_bytes = 64_KiB;  // of a text
// In which all ranks come together. Until then none knows whether one has died on another machine, and MPI
// waits for ever. Over TCP opening a group ends by itself.
constexpr std::chrono::seconds patience{30};
constexpr std::chrono::seconds start_time{3};  // in which a launcher starts all ranks of a machine
constexpr std::chrono::seconds silence{5};     // until the user reads that they are waited for
constexpr std::chrono::seconds way_out{3};     // in which a rank that fails takes down what it has opened

// Where this rank has failed already, what fails besides is no news.
void quietly(const std::function<void()>& action) noexcept {
  try {
    action();
  } catch (const std::exception&) {
    return;
  }
}

std::unique_ptr<Communicator> open_group(const Launch& launch, Device& device) {
  if (launch.port == 0) return open_mpi_communicator(device);
  try {
    return open_tcp_communicator(device, {launch.rank, launch.size, launch.host, launch.port});
  } catch (const InvalidInput& error) {
    throw InvalidInput(fmt::format(
        "{}. {} says where rank 0 listens: {}:{}; STOWAGE_PORT names another port, the same for all ranks",
        error.what(), launch.by, launch.host, launch.port));
  }
}

std::string this_machine() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace

// What the ranks hand each other goes through a little memory of a device of its own.
struct Job::Group {
  explicit Group(const Launch& launch)
      : device(open_simulated_device({.capacity = 1_MiB})),
        communicator(open_group(launch, *device)),
        lane(*device, LaneRole::compute),
        memory(*device, MemoryKind::pinned, piece_bytes) {}

  void synchronise() {
    try {
      device->synchronise_lane(lane.id());
    } catch (const DeviceError&) {
      communicator->check();  // which names the rank
      throw;
    }
  }

  std::unique_ptr<SimulatedDevice> device;
  std::unique_ptr<Communicator> communicator;
  Lane lane;
  DeviceMemory memory;
  std::optional<EndOfWork> end_of_work;
  std::optional<OnAbandon> on_abandon;
};

int exit_code_of(const std::exception& error) {
  const bool wrong = dynamic_cast<const InvalidInput*>(&error) != nullptr ||
                     dynamic_cast<const OutOfMemory*>(&error) != nullptr;
  return wrong ? wrong_code : failed_code;
}

Job::Job(Launch launch) : launch_(std::move(launch)) {
  if (launch_.size == 1) return;
  join();
  // A rank that has ended of itself may have done so because this one failed, whose work is still on its way
  // out to tell that. One that has died, or says why it failed, ends this one at once.
  group_->end_of_work.emplace(
      [this, since = std::optional<std::chrono::steady_clock::time_point>()]() mutable -> std::string {
        try {
          group_->communicator->check();
        } catch (const CommunicatorError& error) {
          const std::string why = error.what();
          if (!since) since = std::chrono::steady_clock::now();
          const bool may_be_ours = why.find("has ended its communicator") != std::string::npos;
          if (!may_be_ours || std::chrono::steady_clock::now() >= *since + way_out) return why;
        }
        return {};
      });
  group_->on_abandon.emplace(
      [this] { abandon(fmt::format("stopped by {} before the first step", interrupted_by())); });
}

Job::~Job() = default;

void Job::join() {
  const auto begun = std::chrono::steady_clock::now();
  Siblings siblings(::getppid(), launch_.rank_variable, launch_.here == size() ? size() : 0);
  const EndOfWork alone([&]() -> std::string {
    if (launch_.rank_variable.empty()) return {};
    const auto ended = siblings.ended(std::chrono::steady_clock::now() > begun + start_time);
    if (!ended || *ended == launch_.rank) return {};
    return fmt::format("rank {}: rank {} has ended before all had come together: see what it printed last",
                       launch_.rank, *ended);
  });
  const EndOfWork too_late([this, begun]() -> std::string {
    if (launch_.port != 0 || std::chrono::steady_clock::now() < begun + patience) return {};
    return fmt::format(
        "rank {}: the {} processes that {} has started have not come together in {} s: see whether "
        "one has ended, and whether their machines reach each other",
        launch_.rank, launch_.size, launch_.by, patience.count());
  });
  const Underway work("joining", fmt::format("{} processes", launch_.size), silence);
  group_ = std::make_unique<Group>(launch_);
  Communicator& communicator = *group_->communicator;
  if (communicator.size() != launch_.size)
    throw InvalidInput(fmt::format(
        "{} has started {} processes, of which MPI knows {}: start them by the mpirun of Open MPI "
        "4.1, or by srun --mpi=pmix",
        launch_.by, launch_.size, communicator.size()));
  launch_.rank = communicator.rank();
  const std::string here = this_machine();
  const std::vector<std::string> machines = from_each(here);
  ranks_here_ = static_cast<int>(std::count(machines.begin(), machines.end(), here));
  local_rank_ = static_cast<int>(std::count(machines.begin(), machines.begin() + rank(), here));
}

std::string Job::from(int root, const std::string& text) {
  if (!group_) return text;
  const auto broadcast = [&](void* data, Bytes bytes) {
    std::byte* const memory = group_->memory.data();
    if (root == rank()) std::memcpy(memory, data, bytes);
    group_->communicator->broadcast(group_->lane.id(), root, memory, bytes);
    group_->synchronise();
    std::memcpy(data, memory, bytes);
  };
  Bytes bytes = text.size();
  broadcast(&bytes, sizeof bytes);
  std::string result = root == rank() ? text : std::string(bytes, '\0');
  for (Bytes done = 0; done < bytes; done += piece_bytes)
    broadcast(result.data() + done, std::min(piece_bytes, bytes - done));
  return result;
}

std::string Job::from_leader(const std::string& text) { return from(0, text); }

std::vector<std::string> Job::from_each(const std::string& text) {
  std::vector<std::string> texts;
  for (int rank = 0; rank < size(); ++rank) texts.push_back(from(rank, text));
  return texts;
}

void Job::together(const std::function<void()>& work) {
  if (!group_) return work();
  std::exception_ptr failure;
  int code = 0;
  try {
    work();
  } catch (const CommunicatorError&) {
    throw;
  } catch (const ToldElsewhere&) {
    throw;
  } catch (const std::exception& error) {
    failure = std::current_exception();
    code = exit_code_of(error);
  }
  int first = size(), first_code = 0;
  try {
    const std::vector<std::string> codes = from_each(std::to_string(code));
    for (int rank = size() - 1; rank >= 0; --rank) {
      const int of_rank = std::stoi(codes[static_cast<std::size_t>(rank)]);
      if (of_rank == 0) continue;
      first = rank;
      first_code = of_rank;
    }
  } catch (const CommunicatorError&) {
    if (failure) std::rethrow_exception(failure);  // which another rank has met within `work`, and ended for
    throw;
  }
  if (first == size()) return;
  all_end_ = true;
  if (first == rank()) std::rethrow_exception(failure);
  throw ToldElsewhere(first_code);
}

void Job::expect_same(const char* what, const std::string& text) {
  if (!group_) return;
  const std::string of_leader = from_leader(text);
  together([&] {
    if (text != of_leader)
      throw InvalidInput(fmt::format("{} differs from that of rank 0: let all ranks have the same", what));
  });
}

bool Job::stops() {
  if (!group_) return interrupted();
  const std::int32_t signal = interrupt_signal();
  std::vector<std::int32_t> all(static_cast<std::size_t>(size()));
  std::byte* const memory = group_->memory.data();
  std::memcpy(memory + static_cast<std::size_t>(rank()) * sizeof signal, &signal, sizeof signal);
  group_->communicator->all_gather(group_->lane.id(), memory, sizeof signal);
  group_->synchronise();
  std::memcpy(all.data(), memory, all.size() * sizeof signal);
  const auto asked = std::find_if(all.begin(), all.end(), [](std::int32_t each) { return each != 0; });
  if (asked == all.end()) return false;
  count_as_interrupted(*asked);
  return true;
}

void Job::meet() {
  if (group_) group_->communicator->barrier();
}

std::unique_ptr<Communicator> Job::open_communicator(Device& device,
                                                     const CommunicatorOptions& options) const {
  const bool is_cuda = device.info().backend == "cuda";
  if (!is_cuda && launch_.port == 0) return open_mpi_communicator(device, options);
  const RankOfGroup rank = rank_in(*group_->communicator, *group_->device);
  return is_cuda ? open_nccl_communicator(device, rank) : open_tcp_communicator(device, rank, options);
}

void Job::fail(const std::exception& error) noexcept {
  if (!group_) return;
  // A launcher ends all once the first of them has ended: whoever tells has done so by then.
  if (all_end_) return quietly([&] { meet(); });
  const auto* const of_group = dynamic_cast<const CommunicatorError*>(&error);
  if (of_group == nullptr || of_group->failed_rank() == rank()) abandon(error.what());
}

void Job::abandon(const std::string& why) noexcept {
  if (group_) quietly([&] { group_->communicator->abort(why); });
}

}  // namespace stowage::samples
