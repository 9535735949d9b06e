// Device memory of a step as rows of a program over decisions (decision_classes.h).
//
// A *memory row* stands for a run of stages (choices.h) that are taken to be alike. The bytes that an
// option takes in a row are read off the lifetimes of *uniform* steps, in which all decisions of one sort
// take the same option.
#pragma once

#include <cstdint>
#include <vector>

#include "offload/plan/decisions/share_program.h"
#include "offload/plan/problem/problem.h"
#include "offload/plan/problem/settings.h"
#include "offload/plan/schedule/lifetimes.h"

namespace stowage {

class StepMemory {
 public:
  // Keeps references: problem and settings must outlive it.
  StepMemory(const Problem& problem, const PlannerSettings& settings);

  struct Uniform {
    Draft draft;                        // the step's serial schedule
    std::vector<std::uint32_t> stages;  // stage of each position
    std::vector<std::vector<LifetimeId>> of_bucket;
    std::vector<Position> peaks;  // position with the most live bytes, by stage
  };
  // Adds the step with `choices`. The first step added must be the one with the fewest
  // bytes, without residents.
  void add(const Choices& choices);
  const Uniform& operator[](std::size_t uniform) const { return uniforms_[uniform]; }
  Bytes serial_bytes(std::size_t uniform) const;

  // Finds the rows. Requires that all steps have been added.
  void find_rows();
  // Returns, by row, the live bytes that no decision is about.
  const std::vector<double>& base() const { return base_; }
  std::uint32_t stages() const { return stages_; }
  // Adds the lifetime's bytes to each row, times the fraction of the row's stages in which the lifetime is
  // live. Returns the number of stages in which it is live.
  std::uint32_t add_lifetime(const DraftLifetime& lifetime, const Uniform& of, ShareCost& cost) const;

 private:
  Uniform lifetimes_of(const Choices& choices) const;

  const Problem& problem_;
  const PlannerSettings& settings_;
  std::vector<Uniform> uniforms_;
  std::vector<std::uint32_t> row_of_;     // row of each stage; no_id: its bytes do not count
  std::vector<std::uint32_t> stages_of_;  // number of stages of each row
  std::vector<double> base_;
  std::uint32_t stages_ = 0;
};

}  // namespace stowage
