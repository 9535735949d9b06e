// One variant for each layer of a stage, under a limit of bytes: all best choices, exactly.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "stowage/bytes.h"

namespace stowage {

inline constexpr double infinite_seconds = std::numeric_limits<double>::infinity();  // of what cannot be

// Seconds of a choice of variants for one micro-batch, without sends.
struct VariantTotals {
  double seconds = 0;   // forward and backward, changes of variant included
  double exchange = 0;  // of gradients by their bytes, behind the last micro-batch
  double beside = 0;    // of the micro-batch beside which gradients are exchanged, and `exchange`

  // Returns the seconds from the beginning of the last micro-batch to the end of the exchange.
  double to_end() const { return seconds + exchange > beside ? seconds + exchange : beside; }
};

// A variant that a layer may take.
struct LayerOption {
  VariantTotals totals;  // of this layer alone
  Bytes bytes = 0;
  int variant = 0;  // the caller's number
  int group = 0;    // options of one group lose the same seconds next to any other option
};

struct LayerChoice {
  VariantTotals totals;
  std::vector<int> variants;  // of each layer
};

struct LayerChoices {
  std::vector<LayerChoice> best;  // by rising seconds and falling to_end(); empty: nothing fits
  bool exact = true;       // false: there were more than `most_labels` to compare, and some were left out
  std::uint64_t work = 0;  // labels that were made
};

struct LayerChoiceQuestion {
  std::vector<std::vector<LayerOption>> layers;
  Bytes limit = unlimited_bytes;  // of the sum over the layers
  // Seconds lost between neighbours of these groups; infinite: they cannot be neighbours.
  std::function<double(int from, int to)> change_seconds = [](int, int) { return 0.0; };
  std::size_t most_labels = 100'000;

  static constexpr Bytes unlimited_bytes = static_cast<Bytes>(-1);
};

// Returns numbers that no choice is below: seconds, and to_end() as the larger of the sum of `seconds` and
// `exchange` and `beside`. By Lagrange's relaxation of the limit: each byte has a price, the best one.
// Infinite if nothing fits.
VariantTotals bound_of_choices(const LayerChoiceQuestion& question);

// Layer by layer keeps all labels (seconds, exchange, beside, bytes) that none dominates and that the bound
// of the layers behind does not rule out.
LayerChoices best_choices(const LayerChoiceQuestion& question);

}  // namespace stowage
