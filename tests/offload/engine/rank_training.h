// One model that one device or several ranks train, and what each leaves behind, to be compared bit by bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "stowage/communicator.h"
#include "stowage/graph_builder.h"
#include "stowage/plan.h"

namespace stowage::testing {

struct RankTraining {
  DataType type = DataType::f32;
  Moments moments = Moments::f32;
  std::int64_t micro_batches = 4;
};

// Eight samples in four gradient groups, with dropout.
using MakeGraph = std::function<Graph(const RankTraining&, BatchShare)>;
Graph rank_gpt(const RankTraining& training, BatchShare share);
Graph rank_bert(const RankTraining& training, BatchShare share);
// Of more parameters than one op adds up the squares of.
Graph rank_deep_gpt(const RankTraining& training, BatchShare share);

// Four steps. Parameters and state by name, without padding.
struct RankResult {
  std::vector<std::uint64_t> losses, norms, clipped;
  std::map<std::string, std::vector<std::byte>> values;
  friend bool operator==(const RankResult&, const RankResult&) = default;
};

// `communicator`: null where the device is alone. Expects the planned peak of device memory.
RankResult train_rank(Device& device, const Graph& graph, const Plan& plan, const Machine& machine,
                      Communicator* communicator);

// The ranks' shares one behind the other, cut to the bytes of the whole.
RankResult joined(const std::vector<RankResult>& ranks, const RankResult& whole);

// Calls body(rank) on a thread for each rank. The first error that one throws comes out.
void on_ranks(std::uint32_t ranks, const std::function<void(std::uint32_t)>& body);

}  // namespace stowage::testing
