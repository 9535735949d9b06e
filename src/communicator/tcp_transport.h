// TcpTransport: ranks that are processes, or threads of one, each with a TCP connection to every other. All
// send their calls first, so that a mismatch is seen on all ranks before a byte is moved; then each sends and
// receives its blocks at once, as the sockets take and have them, so that nobody waits for one that waits for
// him. It learns over a side channel that a rank has failed.
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "src/communicator/first_failure.h"
#include "src/communicator/side_channel.h"
#include "src/communicator/tcp_socket.h"
#include "src/communicator/transport.h"
#include "stowage/communicator.h"

namespace stowage::communication {

class TcpTransport final : public Transport {
 public:
  // All ranks together, which learn each other's addresses by `group`. Throws CommunicatorError, and what
  // that throws.
  TcpTransport(const RankOfGroup& group, const Link& peer);
  ~TcpTransport() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ways_.size()); }
  std::span<const Announcement> announce(Announcement announcement) override;
  double move(const Collective& collective, const Buffers& buffers,
              const simulated::Arrival& arrival) override;
  void fail(const RankFailure& failure) override;
  std::optional<RankFailure> failure() const override { return failure_.get(); }

 private:
  // To another rank and back, with what is left to do of the transfer under way. This rank's own has no
  // connection.
  struct Way {
    Descriptor connection;
    std::span<const std::byte> to_send;
    std::span<std::byte> to_receive;
    bool lost = false;  // the other end has closed it, or it is broken

    bool is_done() const { return to_send.empty() && to_receive.empty(); }
    void advance();
  };

  void connect(std::span<const TcpMesh::Address> of_side_channel, std::span<const TcpMesh::Address> of_data);
  SideChannel::Watcher watcher();
  double exchange_heads(const Collective& collective, double time);
  void prepare_blocks(const Collective& collective, const Buffers& buffers);
  void transfer();
  bool advance();
  void wait_for_ways(std::optional<Deadline> deadline);
  std::optional<int> lost_rank() const;
  void wake();

  const Link peer_;
  const int rank_;
  const char* call_ = "open_tcp_communicator";  // under way
  std::vector<Way> ways_;                       // by rank
  FirstFailure failure_;
  std::vector<std::atomic<bool>> ended_;     // by rank: has ended its communicator
  Descriptor news_;                          // readable when a rank has failed or ended
  std::optional<SideChannel> side_channel_;  // last: its thread uses the rest
};

}  // namespace stowage::communication
