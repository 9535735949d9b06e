// The variants of the layers of every stage, solved when they are asked for and kept.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "offload/parallel/costs.h"
#include "offload/parallel/layer_choice.h"
#include "offload/parallel/stage_costs.h"

namespace stowage {

// Layers whose variants are the same are of one *kind*; stages of the same kinds in the same order are one
// *sequence*, which is solved once.
class VariantChoice {
 public:
  // `costs` must outlive it. Keeps at most `most_labels` choices side by side.
  VariantChoice(const ParallelCosts& costs, std::vector<StageLayout> layouts, std::size_t most_labels);

  int sequence(int first, int last) const {
    return sequences_[static_cast<std::size_t>(first)][static_cast<std::size_t>(last - first - 1)];
  }
  std::size_t sequence_count() const { return parents_.size(); }

  // Returns the choices for a stage with so many micro-batches in flight, by rising seconds and falling
  // to_end(). Empty: no choice fits. Valid until the next call.
  const std::vector<VariantTotals>& choices(int sequence, int layout, std::int64_t in_flight);

  // Returns numbers that no choice is below (bound_of_choices), at any memory; infinite if a layer has no
  // variant in the layout.
  const VariantTotals& best_case(int sequence, int layout) { return least(sequence, layout).totals; }
  // The same under the stage's memory.
  const VariantTotals& bound(int sequence, int layout, std::int64_t in_flight);

  // Returns the variants of layers [first, last) for the given number of `choices`.
  std::vector<int> variants(int first, int last, int layout, std::int64_t in_flight,
                            std::size_t choice) const;

  // Returns, for stages of layers [first, first + 1), [first, first + 2), …, the fewest bytes of a device
  // that any choice takes, whatever the memory. Ends before the first layer for which there is no choice.
  std::vector<Bytes> least_bytes(int first, int layout, std::int64_t in_flight) const;

  std::uint64_t work() const { return work_; }  // labels that were made
  bool exact() const { return exact_; }

 private:
  // Sums over the layers of a sequence, each by itself: the least of each of the totals.
  struct Least {
    bool known = false;
    VariantTotals totals;
    // Each layer has one variant that is best in every total, and these are the bytes of those.
    bool one_is_best = true;
    Bytes bytes = 0, bytes_in_flight = 0;
  };
  struct Solved {
    bool bound_known = false, choices_known = false;
    VariantTotals bound;
    std::vector<VariantTotals> choices;
  };
  struct Variant {
    int number = 0;  // in ParallelLayer::variants
    int group = 0;
  };
  // Variants that lose the same seconds wherever they follow, or are followed by, any other one: the name,
  // parts and split of one of them.
  struct Group {
    int name = 0, parts = 0, split = 0;
  };

  const ParallelCosts& costs_;
  std::vector<StageLayout> layouts_;
  std::size_t most_labels_;
  bool exact_ = true;
  std::uint64_t work_ = 0;
  std::vector<int> kinds_;        // of each layer
  std::vector<int> kind_layers_;  // a layer of each kind
  std::map<std::string, int> names_;
  std::map<std::pair<int, int>, double> changes_;            // by names
  std::vector<std::vector<std::vector<Variant>>> variants_;  // by kind and layout
  std::vector<Group> groups_;
  std::vector<std::vector<int>> sequences_;             // by first layer and length less one
  std::vector<int> parents_, last_kinds_;               // of each sequence; no parent: -1
  std::vector<Least> least_;                            // of each sequence and layout
  std::vector<std::map<std::int64_t, Solved>> solved_;  // the same, by micro-batches in flight

  const LayerVariant& variant(int kind, int number) const;
  const std::vector<Variant>& allowed(int kind, int layout) const;
  std::size_t place(int sequence, int layout) const {
    return static_cast<std::size_t>(sequence) * layouts_.size() + static_cast<std::size_t>(layout);
  }
  const Least& least(int sequence, int layout);
  Least with_layer(Least before, int kind, int layout) const;
  VariantTotals totals_of(const LayerVariant& variant) const;
  void find_kinds();
  void find_groups();
  void find_sequences();
  double change_seconds(int from_group, int to_group) const;
  Bytes bytes_of(const LayerVariant& variant, std::int64_t in_flight) const;
  bool best_fits(const Least& least, std::int64_t in_flight) const;
  LayerChoiceQuestion question(const std::vector<int>& kinds, int layout, std::int64_t in_flight) const;
  std::vector<int> kinds_of(int sequence) const;
};

}  // namespace stowage
