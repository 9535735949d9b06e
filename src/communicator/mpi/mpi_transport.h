// MpiTransport: ranks that are processes of one MPI job. The ranks first exchange their calls, so that all
// see a mismatch before a byte is moved; then each sends and receives its blocks, and checks between tests
// whether a rank has failed. The ranks' channel tells it: Open MPI does not report dead ranks.
#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "src/communicator/mpi/mpi_session.h"
#include "src/communicator/transport.h"
#include "stowage/machine.h"

namespace stowage::communication {

class MpiTransport final : public Transport {
 public:
  // Called by all ranks together. Throws InvalidInput if MPI cannot be used, and CommunicatorError.
  MpiTransport(std::shared_ptr<Channel> channel, const Link& peer);
  ~MpiTransport() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::span<const Announcement> announce(Announcement announcement) override;
  double move(const Collective& collective, const Buffers& buffers,
              const simulated::Arrival& arrival) override;
  void fail(const RankFailure& failure) override;
  std::optional<RankFailure> failure() const override { return failure_.get(); }

 private:
  // The head of a collective that each rank sends to the others.
  struct Head {
    Collective collective;
    double time = 0;
  };
  static_assert(sizeof(Head) == sizeof(Collective) + sizeof(double));
  using SteadyTime = std::chrono::steady_clock;

  void open();
  double exchange_heads(const Collective& collective, double time);
  void start_blocks(const Collective& collective, const Buffers& buffers, std::vector<MPI_Request>& requests);
  void await(std::span<MPI_Request> requests);
  bool test(std::span<MPI_Request> requests);
  void give_up(std::span<MPI_Request> requests);
  // Throws CommunicatorError, on all ranks, unless MPI has answered MPI_SUCCESS.
  void expect_success(int answer, const char* mpi_call);

  MpiSession& session_ = MpiSession::get();
  const Link peer_;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  const char* call_ = "open_mpi_communicator";  // under way
  FirstFailure failure_;
  std::atomic<int> left_ = -1;  // the first rank that has ended its communicator
  const std::shared_ptr<Channel> channel_;
  std::unique_ptr<Line> line_;  // the last member: its watcher uses the others
};

}  // namespace stowage::communication
