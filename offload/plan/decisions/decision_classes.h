// The decisions about a step: one for each parameter or input bucket, and one for each activation item. Each
// has some options. Decisions whose options cost the same are one class.
//
// An option costs time on the lanes of the step's front and back, and at their cuts (step_cuts.h); device
// memory in the rows of StepMemory; and host memory in one more row. Its cost is read off the lifetimes of a
// *uniform* step, in which every bucket, or every item, takes this option (step_memory.h).
//
// Where lanes slow each other, a transfer also costs time on the lanes that it slows, as in the lower bound
// (bound/program.h).
#pragma once

#include <cstdint>
#include <vector>

#include "offload/plan/decisions/op_times.h"
#include "offload/plan/decisions/share_program.h"
#include "offload/plan/decisions/step_cuts.h"
#include "offload/plan/decisions/step_memory.h"
#include "offload/plan/problem/problem.h"

namespace stowage {

class DecisionClasses {
 public:
  // Keeps references: problem and settings must outlive it.
  DecisionClasses(const Problem& problem, const PlannerSettings& settings);

  // A parameter or input bucket, or an activation item.
  struct Member {
    bool is_activation = false;
    std::uint32_t index = 0;
    Position position = 0;  // of its first use
  };
  // A flag added to a bucket's LoadChoice in `levels`: its updates on the host begin before the gate.
  static constexpr std::uint8_t speculated = 0x80;
  // Members whose options cost the same time and memory, at each moment too. Prices are those of the first.
  struct Class {
    std::vector<ShareCost> options;    // seconds and bytes; memory: by moment, then host bytes
    std::vector<std::uint8_t> levels;  // by option: its LoadChoice, perhaps | speculated, or ActivationChoice
    std::vector<Member> members;
    std::size_t kind = 0;  // the same for classes that differ in device memory alone
  };
  const std::vector<Class>& all() const { return classes_; }
  const ShareCost& fixed() const { return fixed_; }  // of the graph's own ops
  // By moment: live bytes that nothing decides about.
  const std::vector<double>& base() const { return memory_.base(); }
  const StepMemory& memory() const { return memory_; }
  // Host bytes if every decision took the option that needs most of them: no plan needs more.
  Bytes most_host_bytes() const { return most_host_; }
  // Seconds that the graph's own ops take on the compute lane, replays and updates not counted.
  double step_seconds() const { return step_seconds_; }
  // Bytes of all buckets together.
  double total_bytes() const { return total_bytes_; }

  // Adds a cut of the front where this mixture (shares by class and option) makes the front longest, and
  // makes all classes anew. No effect on a step without cuts, such as one in batch_major order.
  void add_cut(const std::vector<std::vector<double>>& shares);

  // The member's level in `choices`.
  std::uint8_t level_of(const Member& member, const Choices& choices) const;
  // Gives the member this level in `choices`.
  void set(const Member& member, std::uint8_t level, Choices& choices) const;

 private:
  void set_load(BucketId bucket, std::uint8_t level, Choices& choices) const;
  void build();
  OpId first_op(const Member& member) const;
  bool has_choice(BucketId bucket, LoadChoice load) const;
  Choices uniform(LoadChoice load, ActivationChoice activation) const;
  Choices remade() const;
  void find_fixed();
  void add_own(OpId op, double seconds);
  void add_loads();
  void add_items();
  void merge();
  bool in_front(const SequenceStep& step) const;
  void add_bucket(BucketId bucket, const StepMemory::Uniform& of, ShareCost& cost) const;
  void add_load(BucketId bucket, LoadChoice load, Class& of) const;
  void add_update(BucketId bucket, bool speculates, ShareCost& cost) const;
  double early_host_bytes(BucketId bucket, const StepMemory::Uniform& of) const;
  void add_cut_updates(BucketId bucket, bool speculates, ShareCost& cost) const;
  void add_sharing(OpId first, ShareCost& cost) const;
  void add_prices(ShareCost& cost, double transfers) const;

  const Problem& problem_;
  const PlannerSettings& settings_;
  const OpTimes times_;
  const OpTimes::Remakes remakes_;
  // Uniform steps, by number. 0 to 4: each bucket has the LoadChoice of that number, if it can, and each item
  // that can be is recomputed. 5, 6 and 7: all items are spilled, offloaded, kept. 8: each value that may be
  // is remade, and the others are kept.
  StepMemory memory_;
  Bytes most_host_ = 0;
  StepCuts cuts_;
  ShareCost fixed_;
  // By parameter bucket, seconds: on the host behind the gate and before it, on the device.
  std::vector<double> host_update_, early_update_, update_;
  std::vector<std::vector<BucketId>> with_dependents_;
  std::vector<Class> classes_;
  double step_seconds_ = 1, total_bytes_ = 1;
};

}  // namespace stowage
