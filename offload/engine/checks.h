// Checks before an engine is made: of its plan, and of what the ranks that train one model have in common.
#pragma once

#include <cstdint>
#include <span>

#include "offload/engine/binding.h"
#include "stowage/communicator.h"
#include "stowage/engine.h"
#include "stowage/graph.h"
#include "stowage/plan.h"

namespace stowage {

// Throws InvalidInput with the validator's first finding that could make the engine leave its memory or stop
// halfway: ids, buckets, places in the arena, waits, the gate, speculations, and an input, loss or norm
// without a place on the host. Does not check whether the plan computes the right values. Takes linear time,
// but for tensors at the same bytes of one bucket, which are compared pair by pair.
void check_executable(const Graph& graph, const Plan& plan);

// Makes these checks and, with `judge`, runs the whole validator.
void check_plan(const Graph& graph, const Plan& plan, bool judge);

// Throws InvalidInput if the graph trains a parameter, or the plan does not fit into the part of the arena of
// `lender` that is free between its steps.
void check_evaluation(const Graph& graph, const Plan& plan, const Plan& lender);

// Throws InvalidInput for a communicator that is not the graph's rank of as many ranks, and for collectives
// that are not as launch_table.h says. `communicator` may be null.
void check_ranks(const Graph& graph, const Communicator* communicator);

// Throws InvalidInput for a loss scale that is none, or that says more steps were skipped than were made.
void check_loss_scale(const StepOptions& options, std::uint64_t steps);

// True if the step's gradients were scaled out of the range of their type; a smaller scale may help.
bool is_overflow(const StepReport& report, const StepOptions& options);

// Returns the offload after which the host has the step's loss; the gate if the graph has no loss. Throws
// InvalidInput if there is none before the gate.
InstructionId loss_offload(const Graph& graph, const Plan& plan, std::span<const TensorPlace> places);

// Called by all ranks together. Throws InvalidInput on all ranks if one has another plan, seed or first step
// than rank 0: ranks would send each other unexpected tensors, or compute other numbers.
void expect_one_plan(Communicator& communicator, Device& device, const Plan& plan,
                     const EngineOptions& options);

}  // namespace stowage
