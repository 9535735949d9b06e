// `stowage plan --compare A B`: two plans for the same graph, side by side.
#pragma once

#include <nlohmann/json.hpp>

#include <map>
#include <string>
#include <vector>

#include "stowage/plan.h"

namespace stowage {

struct BucketDifference {
  std::string name;
  TensorKind kind = TensorKind::activation;
  Bytes bytes = 0;
  Residency a = Residency::transient;
  Residency b = Residency::transient;
};

struct PlanComparison {
  // Buckets by kind and residency.
  using Counts = std::map<std::pair<TensorKind, Residency>, std::uint64_t>;
  Counts a, b;
  std::vector<BucketDifference> differences;  // buckets with the same tensors in both plans, in A's order
  // Number of buckets with tensors that the other plan groups differently.
  std::uint64_t only_a = 0;
  std::uint64_t only_b = 0;
};

// Throws InvalidInput where the plans do not hold the same tensors, each of the same kind.
PlanComparison compare(const Plan& a, const Plan& b);

// Returns a table of at most 20 buckets, and the number of further ones.
std::string describe(const Plan& a, const Plan& b, const PlanComparison& comparison);
nlohmann::ordered_json to_json(const Plan& a, const Plan& b, const PlanComparison& comparison);

}  // namespace stowage
