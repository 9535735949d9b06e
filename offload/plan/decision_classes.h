// The decisions about a step: one for each parameter bucket, and one for each activation item. Each has some
// options. Decisions whose options cost the same are one class.
//
// An option costs time on the lanes of the step's front and back, and at their cuts (step_cuts.h); device
// memory in the rows of StepMemory; and host memory in one more row. What it costs is read off the lifetimes
// of steps in which every decision of its sort has it.
//
// Where lanes slow each other, a transfer's cost on its own lane has its cost on the others beside it, as in
// the lower bound (bound_program.h).
#pragma once

#include <cstdint>
#include <vector>

#include "offload/plan/candidate.h"
#include "offload/plan/share_program.h"
#include "offload/plan/step_cuts.h"
#include "offload/plan/step_memory.h"

namespace stowage {

class DecisionClasses {
 public:
  // Keeps references: they must outlive it.
  DecisionClasses(const Problem& problem, const PlannerSettings& settings);

  // A parameter or input bucket, or an activation item.
  struct Member {
    bool is_activation = false;
    std::uint32_t index = 0;
    Position position = 0;  // of its first use
  };
  // Options of one class: alike in all that they cost, at each moment too.
  struct Class {
    std::vector<ShareCost> options;  // seconds and bytes; memory: by moment, then host bytes
    std::vector<std::uint8_t> levels;
    std::vector<Member> members;
    std::size_t kind = 0;  // classes that differ in memory alone are of one kind
  };
  const std::vector<Class>& all() const { return classes_; }
  const ShareCost& fixed() const { return fixed_; }  // of the graph's own ops
  // By moment: live bytes that nothing decides about.
  const std::vector<double>& base() const { return memory_.base(); }
  const StepMemory& memory() const { return memory_; }
  // Host bytes of the choice that has most of them: no plan needs more.
  Bytes most_host_bytes() const { return most_host_; }
  // Units of the program.
  double step_seconds() const { return step_seconds_; }
  double total_bytes() const { return total_bytes_; }

  // One more cut of the front, where this mixture makes it longest.
  void add_cut(const std::vector<std::vector<double>>& shares);

  void set(const Member& member, std::uint8_t level, Choices& choices) const;

 private:
  void build();
  OpId first_op(const Member& member) const;
  bool has_choice(BucketId bucket, LoadChoice load) const;
  Choices uniform(LoadChoice load, ActivationChoice activation) const;
  Choices remade() const;
  void find_fixed();
  void add_own(OpId op, double seconds);
  void choose_remade();
  void add_loads();
  void add_items();
  void merge();
  bool in_front(const SequenceStep& step) const;
  void add_bucket(BucketId bucket, const StepMemory::Uniform& of, ShareCost& cost) const;
  void add_cut_updates(BucketId bucket, ShareCost& cost) const;
  void add_sharing(OpId first, ShareCost& cost) const;
  void add_prices(ShareCost& cost, double transfers) const;
  double seconds_to_rebuild(OpId op) const;

  const Problem& problem_;
  const PlannerSettings& settings_;
  // Its steps: everything loaded for each op, each unit, held, in slices and resident; then spilled,
  // offloaded and kept; and remade.
  StepMemory memory_;
  Bytes most_host_ = 0;
  StepCuts cuts_;
  ShareCost fixed_;
  std::vector<double> host_update_, update_;  // by parameter bucket: seconds on the host, on the device
  std::vector<Class> classes_;
  // For what rebuilding costs.
  std::vector<OpId> producer_;            // by tensor: the forward op that makes it
  std::vector<std::uint32_t> readers_;    // by tensor: forward ops
  std::vector<std::uint8_t> makes_item_;  // by op
  std::vector<std::uint8_t> remade_;      // by item: crosses units, and may be made anew
  std::vector<std::uint8_t> stored_;      // by item: not rebuilt itself, since others are made of it
  double step_seconds_ = 1, total_bytes_ = 1;
};

}  // namespace stowage
