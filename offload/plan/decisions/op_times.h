// The time of ops on the lanes of a step, and the time to rebuild or remake a value.
#pragma once

#include <cstdint>
#include <vector>

#include "offload/plan/decisions/share_program.h"
#include "offload/plan/problem/problem.h"

namespace stowage {

// Adds the time that an op of the peer lane costs the other lanes by the bytes that it brings.
void add_peer_sharing(const LaneSharing& sharing, const Op& op, const Machine& machine, ShareTimes& lanes);

class OpTimes {
 public:
  // Keeps a reference: the problem must outlive it.
  explicit OpTimes(const Problem& problem);

  // Adds the op's time to its lane, and to the lanes that it slows.
  void add(OpId op, ShareTimes& lanes) const;
  std::size_t lane_of(OpId op) const { return index_of(problem_.layout.lanes[op]); }
  // Returns the time to replay `op`, which makes a rebuildable item: the op's own time, and its part of each
  // op of its unit that the replay needs and whose results no item keeps. The time of such an op is divided
  // among the items that need it, by their bytes. Returns 0 for other ops.
  ShareTimes to_rebuild(OpId op) const;
  double seconds_to_rebuild(OpId op) const;

  // Decides for values that can be remade from other values: which are remade, and which are stored for that.
  struct Remakes {
    std::vector<std::uint8_t> remade;  // by item: it crosses units and may be remade
    std::vector<std::uint8_t> stored;  // by item: it is never rebuilt, since other values are remade from it
  };
  Remakes find_remakes() const;
  static Remakes no_remakes(const Problem& problem);

 private:
  void find_rebuilding();

  const Problem& problem_;
  std::vector<OpId> producer_;       // by tensor: the forward op that makes it
  std::vector<ShareTimes> rebuild_;  // rebuilding time of each op
};

}  // namespace stowage
