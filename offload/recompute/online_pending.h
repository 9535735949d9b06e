// Pending: the ops of an online program that are on their way to be run, each for the sake of the one before.
#pragma once

#include <cstddef>
#include <vector>

#include "offload/recompute/online_history.h"

namespace stowage::online {

// A stack, so that no chain of evicted tensors is too long. What an op reads is held from when it has been
// seen to be there, and so is rebuilt at most once for it; until then it is merely wanted.
class Pending {
 public:
  Pending() = default;
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  ~Pending() {
    while (!frames_.empty()) pop();
  }
  bool empty() const { return frames_.empty(); }
  void push(RememberedOp& op) {
    frames_.push_back({&op, 0});
    for (RememberedTensor* read : op.reads) ++read->wanted;
  }
  void pop() {
    const Frame& frame = frames_.back();
    for (std::size_t i = 0; i < frame.op->reads.size(); ++i)
      --(i < frame.present ? frame.op->reads[i]->held : frame.op->reads[i]->wanted);
    frames_.pop_back();
  }
  RememberedOp& top() const { return *frames_.back().op; }
  // Holds what is there of the top op's reads, up to the first that is not; null if all are there.
  RememberedTensor* first_missing() {
    Frame& frame = frames_.back();
    for (; frame.present < frame.op->reads.size(); ++frame.present) {
      RememberedTensor& read = *frame.op->reads[frame.present];
      if (!read.live()) return &read;
      --read.wanted;
      ++read.held;
    }
    return nullptr;
  }

 private:
  struct Frame {
    RememberedOp* op;
    std::size_t present;  // the first so many of its reads are there, and held
  };
  std::vector<Frame> frames_;
};

}  // namespace stowage::online
