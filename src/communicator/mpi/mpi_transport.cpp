#include "src/communicator/mpi/mpi_transport.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string>
#include <thread>
#include <utility>

namespace stowage::communication {
namespace {

constexpr const char* opening = "open_mpi_communicator";
// The most bytes of one message: MPI counts in int.
constexpr Bytes most_bytes = Bytes{1} << 30;
// Time that work goes on after a rank has ended: longer than that rank's last bytes take to arrive.
constexpr std::chrono::seconds patience{2};
// Tests without a pause between them; afterwards a waiting thread leaves its core to others.
constexpr unsigned eager_tests = 2000;
constexpr std::chrono::microseconds pause{50};

void idle(unsigned& tests) {
  if (++tests < eager_tests)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(pause);
}

std::string text_of(int answer) {
  std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
  int length = 0;
  MPI_Error_string(answer, text.data(), &length);
  return text.data();
}

}  // namespace

MpiTransport::MpiTransport(std::shared_ptr<Channel> channel, const Link& peer)
    : peer_(peer), channel_(std::move(channel)) {
  if (session_.lost())
    throw InvalidInput(fmt::format(
        "{}: a rank of this job was lost, and MPI cannot go on without it: start the job anew", opening));
  if (channel_ == nullptr)
    throw InvalidInput(fmt::format("{}: there is no channel; open that of the job (open_channel)", opening));
  const RankOfWorld world = session_.rank();
  rank_ = world.rank;
  size_ = world.size;
  if (channel_->rank() != rank_ || channel_->size() != size_)
    throw InvalidInput(
        fmt::format("{}: rank {} of {} in the channel, and {} of {} in MPI; give it that of the job", opening,
                    channel_->rank(), channel_->size(), rank_, size_));
  try {
    open();
  } catch (const std::exception& error) {
    // The other ranks wait in a call of the channel.
    channel_->fail(failure_.get().value_or(RankFailure{rank_, opening, error.what()}));
    throw;
  }
}

MpiTransport::~MpiTransport() {
  if (failure_.get()) return;
  const MutexLock lock(session_.mutex());
  int ended = 0;
  MPI_Finalized(&ended);
  if (ended == 0) MPI_Comm_free(&communicator_);
}

// No call blocks within MPI.
void MpiTransport::open() {
  line_ = channel_->open_line({[this](const RankFailure& failure) { failure_.keep(failure); },
                               [this](const RankFailure& death) {
                                 session_.lose();
                                 failure_.keep(death);
                               },
                               [this](int ended) {
                                 int none = -1;
                                 left_.compare_exchange_strong(none, ended);
                               }});
  std::vector<MPI_Request> request(1, MPI_REQUEST_NULL);
  {
    const MutexLock lock(session_.mutex());
    expect_success(MPI_Comm_idup(MPI_COMM_WORLD, &communicator_, request.data()), "MPI_Comm_idup");
  }
  await(request);
  {
    const MutexLock lock(session_.mutex());
    expect_success(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  channel_->barrier();  // else a rank that fails at once would make others' opening fail
}

std::span<const Announcement> MpiTransport::announce(Announcement announcement) {
  failure_.expect_none(to_string(announcement.collective.kind));
  return {};
}

double MpiTransport::move(const Collective& collective, const Buffers& buffers,
                          const simulated::Arrival& arrival) {
  call_ = to_string(collective.kind);
  const double latest = exchange_heads(collective, arrival.time);
  std::vector<MPI_Request> requests;
  try {
    start_blocks(collective, buffers, requests);
    await(requests);
  } catch (...) {
    give_up(requests);
    throw;
  }
  return latest + peer_seconds(collective, size_, peer_);
}

double MpiTransport::exchange_heads(const Collective& collective, double time) {
  // The heads are shared because MPI may still write them after a failure.
  const auto heads = std::make_shared<std::vector<Head>>(static_cast<std::size_t>(size_) + 1);
  heads->back() = {collective, time};
  std::vector<MPI_Request> request(1, MPI_REQUEST_NULL);
  try {
    {
      const MutexLock lock(session_.mutex());
      expect_success(MPI_Iallgather(&heads->back(), sizeof(Head), MPI_BYTE, heads->data(), sizeof(Head),
                                    MPI_BYTE, communicator_, request.data()),
                     "MPI_Iallgather");
    }
    await(request);
  } catch (...) {
    session_.keep(heads);
    throw;
  }
  double latest = time;
  for (int other = 0; other < size_; ++other) {
    const Head& head = (*heads)[static_cast<std::size_t>(other)];
    latest = std::max(latest, head.time);
    if (head.collective == heads->front().collective) continue;
    fail(mismatch(heads->front().collective, head.collective, other));
    failure_.expect_none(call_);
  }
  return latest;
}

void MpiTransport::start_blocks(const Collective& collective, const Buffers& buffers,
                                std::vector<MPI_Request>& requests) {
  const MutexLock lock(session_.mutex());
  const auto start = [&](auto mpi_function, const char* name, auto* data, Bytes all, int other) {
    for (Bytes done = 0; done < all; done += most_bytes) {
      const int bytes = static_cast<int>(std::min(most_bytes, all - done));
      requests.push_back(MPI_REQUEST_NULL);
      expect_success(mpi_function(data + done, bytes, MPI_BYTE, other, 0, communicator_, &requests.back()),
                     name);
    }
  };
  for (int other = 0; other < size_; ++other)
    if (const auto block = block_between(collective, buffers, other, rank_))
      start(MPI_Irecv, "MPI_Irecv", buffers.receive + block->to, block->bytes, other);
  for (int other = 0; other < size_; ++other)
    if (const auto block = block_between(collective, buffers, rank_, other))
      start(MPI_Isend, "MPI_Isend", buffers.send + block->from, block->bytes, other);
}

void MpiTransport::await(std::span<MPI_Request> requests) {
  std::optional<SteadyTime::time_point> waited_since;  // start of the wait for a rank that has ended
  for (unsigned tests = 0; !test(requests); idle(tests)) {
    failure_.expect_none(call_);
    if (left_ < 0) continue;
    if (!waited_since) waited_since = SteadyTime::now();
    if (SteadyTime::now() > *waited_since + patience) fail({left_, {}, "it has ended its communicator"});
  }
}

bool MpiTransport::test(std::span<MPI_Request> requests) {
  const MutexLock lock(session_.mutex());
  int done = 0;
  expect_success(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
                 "MPI_Testall");
  return done != 0;
}

// Cancels receives that have not begun; short sends are done. If a request is left, MPI is given up: it still
// uses memory that the owner may release.
void MpiTransport::give_up(std::span<MPI_Request> requests) {
  if (session_.lost()) return;
  const MutexLock lock(session_.mutex());
  int done = 0;
  for (MPI_Request& request : requests)
    if (request != MPI_REQUEST_NULL) MPI_Cancel(&request);
  for (int tests = 0; tests < 100 && done == 0; ++tests)
    if (MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE) !=
        MPI_SUCCESS)
      break;
  if (done == 0) session_.lose();
}

void MpiTransport::expect_success(int answer, const char* mpi_call) {
  if (answer == MPI_SUCCESS) return;
  fail({rank_, mpi_call, text_of(answer)});
  failure_.expect_none(call_);
}

void MpiTransport::fail(const RankFailure& failure) {
  if (failure_.keep(failure)) line_->tell(failure);
}

}  // namespace stowage::communication
