// Residency pass: what each parameter bucket and each activation does under given amounts of memory.
//
// A linear program (share_program.h) decides which share of each class of alike items has which choice, so
// that the busiest lane of the step's front and that of its back have least to do. Device memory is a row at
// each of some *moments*, runs of stages (choices.h); host memory is one more row. The program's
// answer is then rounded item by item, in the order of time, by carrying each class's remainders along
// (error diffusion), so that every part of the step has about the shares that the program gave it.
//
// Where lanes slow each other, a transfer's cost on its own lane has its cost on the others beside it, as in
// the lower bound (bound_program.h).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "offload/plan/candidate.h"
#include "offload/plan/share_program.h"

namespace stowage {

// Where the program's remainders are carried: from the first item of a class to its last, or from the last to
// the first.
enum class Rounding : std::uint8_t { forward, backward };

class ResidencyProgram {
 public:
  // Keeps a reference: `problem` must outlive it.
  ResidencyProgram(const Problem& problem, const PlannerSettings& settings);

  struct Mixture {
    double seconds = 0;                       // of a step whose lanes overlap perfectly
    bool fits = false;                        // in both rooms
    std::vector<std::vector<double>> shares;  // by class and option
  };
  // An item that must have this choice; or of a parameter in slices, so many on the device.
  struct Fixed {
    std::size_t of = 0;          // class
    std::vector<double> shares;  // by option of the class
  };
  // With so many device bytes at each moment, and so many host bytes.
  Mixture solve(Bytes device, Bytes host, const std::optional<Fixed>& fixed = {}) const;
  // An item can not be divided as a mixture divides it. The choices between which the mixture divides the one
  // that loses most bytes by that, if those are a large part of `device`; else none.
  std::vector<Fixed> divided(const Mixture& mixture, Bytes device) const;
  // Each parameter that is cut with some numbers of its slices on the device. The program sees too little of
  // the order of things to say how many are best: what the host updates of an embedding holds up all that
  // follows.
  std::vector<Fixed> sliced() const;
  // With as few host bytes as these device bytes allow.
  Mixture least_host(Bytes device) const;
  Choices round(const Mixture& mixture, Rounding rounding) const;

  // Host bytes of the choice that has most of them: no plan needs more.
  Bytes most_host_bytes() const { return most_host_; }

 private:
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
  // Lifetimes of all buckets with one level everywhere.
  struct Uniform {
    Draft draft;
    std::vector<std::uint32_t> stages;
    std::vector<std::vector<LifetimeId>> of_bucket;
    std::vector<Position> peaks;  // by stage: where most bytes are live
  };

  Uniform uniform(LoadChoice load, ActivationChoice activation) const;
  Uniform lifetimes_of(const Choices& choices) const;
  void find_moments(const Uniform& lowest);
  std::vector<std::uint8_t> decided() const;
  template <typename Function>
  static void for_live_stages(const Uniform& of, const DraftLifetime& lifetime, Function&& function);
  void find_fixed();
  using Loads = std::array<Uniform, static_cast<std::size_t>(LoadChoice::resident) + 1>;
  Loads uniform_loads() const;
  bool has_choice(BucketId bucket, LoadChoice load) const;
  void add_loads(const Loads& drafts);
  ShareCost load_cost(BucketId bucket, const std::vector<BucketId>& with, LoadChoice load,
                      const Uniform& of) const;
  Uniform remade() const;
  void choose_remade();
  void add_items(const std::array<Uniform, 4>& drafts, const Uniform& remade);
  void merge();
  bool in_front(const SequenceStep& step) const;
  void add_bucket(BucketId bucket, const Uniform& of, ShareCost& cost) const;
  void share_lanes(ShareCost& cost) const;
  void add_prices(ShareCost& cost, double transfers) const;
  double seconds_to_rebuild(OpId op) const;
  Mixture solve_for(const std::vector<double>& room, double seconds_weight, double host_weight,
                    const std::optional<Fixed>& fixed) const;
  double delay_of(BucketId bucket, const Uniform& of) const;
  static std::size_t in_slices(const Class& of);
  std::optional<std::uint32_t> owed_slices(const Class& of, const Member& member,
                                           const std::vector<double>& owed) const;
  void set(const Member& member, std::uint8_t level, Choices& choices) const;
  void set_slices(BucketId bucket, std::uint32_t on_device, Choices& choices) const;

  const Problem& problem_;
  const PlannerSettings& settings_;
  Bytes most_host_ = 0;
  ShareCost fixed_;
  std::vector<std::uint32_t> moment_of_;      // by stage; no_id: its bytes do not count
  std::vector<std::uint32_t> stages_of_;      // by moment: how many
  std::vector<double> base_;                  // by moment: live bytes that nothing decides about
  std::vector<double> host_update_, update_;  // by parameter bucket: seconds on the host, on the device
  std::vector<Class> classes_;
  // For what rebuilding costs.
  std::vector<OpId> producer_;            // by tensor: the forward op that makes it
  std::vector<std::uint32_t> readers_;    // by tensor: forward ops
  std::vector<std::uint8_t> makes_item_;  // by op
  std::vector<std::uint8_t> remade_;      // by item: crosses units, and may be made anew
  std::vector<std::uint8_t> stored_;      // by item: not rebuilt itself, since others are made of it
  std::uint32_t stages_ = 0;
  double step_seconds_ = 1, total_bytes_ = 1;  // units of the program
};

}  // namespace stowage
