// LocalTransport: ranks that are threads of one process. They meet at the call and once more on their lanes,
// where each copies the bytes that it receives out of the others' memory.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "src/communicator/rendezvous.h"
#include "src/communicator/transport.h"
#include "stowage/machine.h"

namespace stowage::communication {

// The state that the ranks of a process share.
class LocalGroup {
 public:
  LocalGroup(int size, const Link& peer)
      : size(size), peer(peer), at_call(size), at_work(size), at_end(size) {}

  void fail(const RankFailure& failure);
  // Removes the rank. A call that waits for it fails.
  void leave(int rank);
  std::optional<RankFailure> failure() const { return failure_.get(); }
  std::optional<RankFailure> why_stopped() const;

  struct Part {
    Buffers buffers;
    double time = 0;
  };
  struct Nothing {};

  const int size;
  const Link peer;
  Rendezvous<Announcement> at_call;
  Rendezvous<Part> at_work;
  // Never stopped: every rank that came to `at_work` copies and then comes here, so memory is read only while
  // its owner waits.
  Rendezvous<Nothing> at_end;

 private:
  FirstFailure failure_;
  FirstFailure left_;  // the first rank that left
};

class LocalTransport final : public Transport {
 public:
  LocalTransport(int rank, std::shared_ptr<LocalGroup> group) : rank_(rank), group_(std::move(group)) {}
  ~LocalTransport() override { group_->leave(rank_); }

  int rank() const override { return rank_; }
  int size() const override { return group_->size; }
  std::span<const Announcement> announce(Announcement announcement) override;
  double move(const Collective& collective, const Buffers& buffers,
              const simulated::Arrival& arrival) override;
  void fail(const RankFailure& failure) override { group_->fail(failure); }
  std::optional<RankFailure> failure() const override { return group_->failure(); }

 private:
  [[noreturn]] void throw_why_stopped(const Collective& collective);
  void receive(const Collective& collective, std::byte* to, const std::vector<LocalGroup::Part>& all) const;

  int rank_;
  std::shared_ptr<LocalGroup> group_;
};

}  // namespace stowage::communication
