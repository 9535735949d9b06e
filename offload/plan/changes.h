// Single changes of choices: one item or one bucket gets another level.
#pragma once

#include <cstdint>
#include <vector>

#include "offload/plan/candidate.h"

namespace stowage {

struct Change {
  bool is_activation = false;
  std::uint32_t index = 0;  // item or bucket
  int level = 0;            // ActivationChoice or LoadChoice
};

// Of every item and bucket that has a choice: every level that it may have.
std::vector<Change> all_changes(const Problem& problem);
int level_of(const Problem& problem, const Change& change, const Choices& choices);
void apply(const Problem& problem, const Change& change, Choices& choices);

}  // namespace stowage
