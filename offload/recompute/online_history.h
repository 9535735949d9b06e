// OnlineHistory: what an online program has made so far and how, as far as anything may have to be rebuilt.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "stowage/online_recompute.h"

namespace stowage::online {

struct RememberedOp;

struct RememberedTensor {
  OnlineTensor id{};
  std::string name;
  Bytes bytes = 0;                     // rounded up to the alignment
  RememberedOp* producer = nullptr;    // null: not written yet, or kept and its op forgotten
  std::vector<RememberedOp*> readers;  // remembered ones, each once
  std::optional<Bytes> offset;         // in the range, while it is live
  std::uint32_t pins = 0;
  std::uint32_t held = 0;    // by ops that wait for more of what they read: may not be evicted
  std::uint32_t wanted = 0;  // by such ops too, but could be rebuilt once more
  bool kept = false;
  bool released = false;
  std::uint64_t last_use = 0;  // in ops

  bool live() const { return offset.has_value(); }
  bool evictable() const { return live() && !kept && pins == 0 && held == 0; }
  // Nobody will read it any more, not even to rebuild something.
  bool idle() const { return released && readers.empty(); }
};

struct RememberedOp {
  std::string name;
  std::function<void(const OnlineOperands&)> work;
  std::vector<RememberedTensor*> reads;
  std::vector<RememberedTensor*> writes;
  double seconds = 0;
  std::uint64_t visit = 0;  // of the last walk that has met it
};

class OnlineHistory {
 public:
  RememberedTensor& declare(std::string name, Bytes bytes);
  // Throws InvalidInput for one that is not remembered or was released.
  RememberedTensor& find(OnlineTensor id) const;

  // The op has run for the first time.
  void remember(std::unique_ptr<RememberedOp> op);

  // Forgets what nobody needs any more, now that this tensor is idle or kept: ops, all results of which are
  // idle or kept, and idle tensors. `forget` is told of each tensor before it goes.
  void collect(OnlineTensor id, const std::function<void(RememberedTensor&)>& forget);

  // What it would take to have an evicted tensor again, and what its absence adds to rebuilding others: its
  // op's seconds, those of the evicted tensors that it is made from, and those that are made from it.
  double rebuild_seconds(const RememberedTensor& tensor);

  std::size_t size() const { return tensors_.size() + ops_.size(); }

 private:
  void forget_op(RememberedOp* op, const std::function<void(RememberedTensor&)>& forget);
  double evicted_above(RememberedOp* op);
  double evicted_below(const RememberedTensor& tensor);
  bool meet(RememberedOp* op);

  std::unordered_map<std::uint64_t, std::unique_ptr<RememberedTensor>> tensors_;
  std::unordered_map<RememberedOp*, std::unique_ptr<RememberedOp>> ops_;
  std::uint64_t next_id_ = 1;
  std::uint64_t visit_ = 0;
  // Of walks; kept for their memory.
  std::vector<OnlineTensor> to_collect_;
  std::vector<RememberedOp*> to_climb_;
  std::vector<const RememberedTensor*> to_descend_;
};

}  // namespace stowage::online
