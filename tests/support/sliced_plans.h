// A small step with a parameter in slices, and plans that divide the slices between device and host as asked.
#pragma once

#include "stowage/graph.h"
#include "stowage/graph_builder.h"
#include "stowage/machine.h"
#include "stowage/plan.h"

namespace stowage::testing {

// A GPT whose token table, "wte.weight", is cut into four slices of 64 rows. Inputs range over 256 values.
inline constexpr std::int32_t sliced_vocabulary = 256;
inline constexpr std::uint32_t slices_of_table = 4;
Graph sliced_gpt(DataType type = DataType::f32, std::int64_t micro_batches = 1,
                 GraphBuilder::Trained trained = GraphBuilder::Trained::as_made);

// When the host updates whole parameters: late or early. Slices are updated late.
enum class OtherUpdates : std::uint8_t { late, early };

// Returns a plan with the first `on_device` slices of the table on the device and the other slices updated on
// the host. All other parameters are loaded for each op. Transfers go ahead as far as `cap` bytes let them.
Plan plan_in_slices(const Graph& graph, const Machine& machine, std::uint32_t on_device,
                    Bytes cap = unlimited, OtherUpdates others = OtherUpdates::late);

// Returns the id of the bucket with this name; fails the test if there is none.
BucketId find_bucket(const Plan& plan, const std::string& name);

}  // namespace stowage::testing
