// The decisions about a step: one for each parameter or input bucket, and one for each activation item. Each
// decision has several options. Decisions whose options cost the same form one class.
//
// An option costs time on the lanes of the step's front and back, and at their cuts (step_cuts.h); device
// memory in the memory rows of StepMemory; and host memory in one more row. The cost is read off the
// lifetimes of a *uniform* step, in which every bucket, or every item, takes this option (step_memory.h).
//
// If lanes slow each other, a transfer also costs time on the lanes that it slows, as in the
// lower bound (bound/program.h).
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
    Position position = 0;  // the position of its first use
  };
  // A flag added to a bucket's LoadChoice in `levels`: its updates on the host are early.
  static constexpr std::uint8_t speculated = 0x80;
  // Members whose options cost the same time, and the same memory in each row. Prices are those of
  // the first member.
  struct Class {
    std::vector<ShareCost> options;    // cost of each option; its memory rows: device memory, then host bytes
    std::vector<std::uint8_t> levels;  // by option: its LoadChoice, perhaps | speculated, or ActivationChoice
    std::vector<Member> members;
    std::size_t kind = 0;  // equal for classes that differ in device memory alone
  };
  const std::vector<Class>& all() const { return classes_; }
  const ShareCost& fixed() const { return fixed_; }  // the cost of the graph's own ops
  // Returns, by row of device memory, the live bytes that no decision is about.
  const std::vector<double>& base() const { return memory_.base(); }
  const StepMemory& memory() const { return memory_; }
  // Returns the host bytes of a step in which every decision takes the option with most host bytes. No plan
  // needs more.
  Bytes most_host_bytes() const { return most_host_; }
  // Returns the seconds that the graph's own ops take on the compute lane, without replays and updates.
  double step_seconds() const { return step_seconds_; }
  // Returns the bytes of all buckets together.
  double total_bytes() const { return total_bytes_; }

  // Adds a cut of the front where this mixture (fractions by class and option) makes the front longest, and
  // builds all classes anew. Has no effect on a step without cuts, such as a step in another order than
  // layer_major.
  void add_cut(const std::vector<std::vector<double>>& shares);

  // Returns the member's level in `choices`.
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
  // Uniform steps by number. In steps 0 to 4 each bucket has the LoadChoice of that number, if it can, and
  // each item that can be recomputed is recomputed. In step 5 all items are spilled, in step 6 offloaded, in
  // step 7 kept. In step 8 each value that may be remade is remade, and the others are kept.
  StepMemory memory_;
  Bytes most_host_ = 0;
  StepCuts cuts_;
  ShareCost fixed_;
  // Seconds to update a parameter bucket, by bucket: late on the host, early on the host, and on the device.
  std::vector<double> host_update_, early_update_, update_;
  std::vector<std::vector<BucketId>> with_dependents_;
  std::vector<Class> classes_;
  double step_seconds_ = 1, total_bytes_ = 1;
};

}  // namespace stowage
