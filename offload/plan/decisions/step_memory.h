// Device memory of a step as rows of a program over decisions (decision_classes.h).
//
// A row stands for a *moment*, a run of stages (choices.h) that are taken to be alike. What a decision takes
// there is read off the lifetimes of *uniform* steps, in which every decision of its sort is alike.
#pragma once

#include <cstdint>
#include <vector>

#include "offload/plan/decisions/share_program.h"
#include "offload/plan/problem/problem.h"
#include "offload/plan/schedule/lifetimes.h"
#include "stowage/planner.h"

namespace stowage {

class StepMemory {
 public:
  // Keeps references: they must outlive it.
  StepMemory(const Problem& problem, const PlannerSettings& settings);

  struct Uniform {
    Draft draft;  // scheduled serially
    std::vector<std::uint32_t> stages;
    std::vector<std::vector<LifetimeId>> of_bucket;
    std::vector<Position> peaks;  // by stage: where most bytes are live
  };
  // The step of these choices. That with the least bytes comes first, and has no resident.
  void add(const Choices& choices);
  const Uniform& operator[](std::size_t uniform) const { return uniforms_[uniform]; }
  Bytes serial_bytes(std::size_t uniform) const;

  // The rows, once all steps are added.
  void find_rows();
  // By row: live bytes that nothing decides about.
  const std::vector<double>& base() const { return base_; }
  std::uint32_t stages() const { return stages_; }
  // Adds the lifetime's bytes, of a moment's stages by that share in which it is there. Returns in how many
  // stages it is.
  std::uint32_t add_lifetime(const DraftLifetime& lifetime, const Uniform& of, ShareCost& cost) const;

 private:
  Uniform lifetimes_of(const Choices& choices) const;

  const Problem& problem_;
  const PlannerSettings& settings_;
  std::vector<Uniform> uniforms_;
  std::vector<std::uint32_t> moment_of_;  // by stage; no_id: its bytes do not count
  std::vector<std::uint32_t> stages_of_;  // by moment: how many
  std::vector<double> base_;
  std::uint32_t stages_ = 0;
};

}  // namespace stowage
