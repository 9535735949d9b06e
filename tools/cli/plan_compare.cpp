#include "tools/cli/plan_compare.h"

#include <algorithm>
#include <optional>

#include "src/base/printable.h"
#include "stowage/error.h"
#include "stowage/planner.h"
#include "tools/console/text.h"

namespace stowage {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t most_shown = 20;

// Returns the kind of each tensor.
std::map<TensorId, TensorKind> kinds_of(const Plan& plan) {
  std::map<TensorId, TensorKind> kinds;
  for (const Bucket& bucket : plan.buckets) {
    for (const BucketTensor& place : bucket.tensors) kinds[place.tensor] = bucket.kind;
  }
  return kinds;
}

// Returns the bucket's tensors in order of id, by which the buckets of two plans are matched.
std::vector<TensorId> tensors_of(const Bucket& bucket) {
  std::vector<TensorId> tensors;
  for (const BucketTensor& place : bucket.tensors) tensors.push_back(place.tensor);
  std::sort(tensors.begin(), tensors.end());
  return tensors;
}

PlanComparison::Counts count(const Plan& plan) {
  PlanComparison::Counts counts;
  for (const Bucket& bucket : plan.buckets) ++counts[{bucket.kind, bucket.residency}];
  return counts;
}

double gap(const Plan& plan) {
  return plan.lower_bound_seconds > 0 ? plan.predicted_step_seconds / plan.lower_bound_seconds - 1 : 0;
}

template <class Value>
std::string change(Value a, Value b) {
  if (a == b) return "the same";
  if (a == 0) return "";
  return fmt::format("{:+.1f}%", 100 * (static_cast<double>(b) / static_cast<double>(a) - 1));
}

void add_accounts(Lines& lines, const Plan& a, const Plan& b) {
  const auto bytes = [&](const char* label, Bytes in_a, Bytes in_b) {
    lines.add(label, "{:>14} {:>14} {:>10}", format_bytes(in_a), format_bytes(in_b), change(in_a, in_b));
  };
  const auto seconds = [&](const char* label, double in_a, double in_b) {
    lines.add(label, "{:>14} {:>14} {:>10}", format_seconds(in_a), format_seconds(in_b), change(in_a, in_b));
  };
  lines.add("A", "policy {}", printable(policy_label(a.policy)));
  lines.add("B", "policy {}", printable(policy_label(b.policy)));
  lines.gap();
  lines.add("", "{:>14} {:>14}", "A", "B");
  bytes("peak", a.device_peak_bytes, b.device_peak_bytes);
  bytes("host", a.host_bytes, b.host_bytes);
  bytes("  pinned", a.pinned_bytes, b.pinned_bytes);
  bytes("in", a.h2d_bytes, b.h2d_bytes);
  bytes("out", a.d2h_bytes, b.d2h_bytes);
  seconds("step", a.predicted_step_seconds, b.predicted_step_seconds);
  seconds("  stall", a.predicted_stall_seconds, b.predicted_stall_seconds);
  seconds("lower bound", a.lower_bound_seconds, b.lower_bound_seconds);
  lines.add("  by", "{:>14} {:>14}", printable(a.bound_by), printable(b.bound_by));
  lines.add("  gap", "{:>13.1f}% {:>13.1f}%", 100 * gap(a), 100 * gap(b));
}

std::uint64_t at(const PlanComparison::Counts& counts, const PlanComparison::Counts::key_type& key) {
  const auto found = counts.find(key);
  return found == counts.end() ? 0 : found->second;
}

// Returns the counts of A, with 0 for the keys that only B has.
PlanComparison::Counts all_keys(const PlanComparison& comparison) {
  PlanComparison::Counts keys = comparison.a;
  for (const auto& [key, number] : comparison.b) keys.emplace(key, 0);
  return keys;
}

Json account(const Plan& plan) {
  const std::optional<Policy> policy = policy_from(plan.policy);
  return {{"policy", plan.policy},
          {"emulated", policy && is_emulated(*policy)},
          {"device_peak_bytes", plan.device_peak_bytes},
          {"host_bytes", plan.host_bytes},
          {"pinned_bytes", plan.pinned_bytes},
          {"h2d_bytes", plan.h2d_bytes},
          {"d2h_bytes", plan.d2h_bytes},
          {"step_seconds", plan.predicted_step_seconds},
          {"stall_seconds", plan.predicted_stall_seconds},
          {"lower_bound_seconds", plan.lower_bound_seconds},
          {"gap", gap(plan)},
          {"bound_by", plan.bound_by}};
}

}  // namespace

PlanComparison compare(const Plan& a, const Plan& b) {
  if (kinds_of(a) != kinds_of(b))
    throw InvalidInput("--compare: the two plans do not hold the same tensors; give plans of the same graph");
  PlanComparison comparison{count(a), count(b), {}, 0, 0};
  std::map<std::vector<TensorId>, Residency> in_b;
  for (const Bucket& bucket : b.buckets) in_b.emplace(tensors_of(bucket), bucket.residency);
  std::uint64_t common = 0;
  for (const Bucket& bucket : a.buckets) {
    const auto found = in_b.find(tensors_of(bucket));
    if (found == in_b.end()) continue;
    ++common;
    if (found->second != bucket.residency)
      comparison.differences.push_back(
          {bucket.name, bucket.kind, bucket.bytes, bucket.residency, found->second});
  }
  comparison.only_a = a.buckets.size() - common;
  comparison.only_b = b.buckets.size() - common;
  return comparison;
}

std::string describe(const Plan& a, const Plan& b, const PlanComparison& comparison) {
  Lines lines;
  add_accounts(lines, a, b);
  lines.gap();
  for (const auto& [key, unused] : all_keys(comparison)) {
    const std::string label = fmt::format("{}, {}", to_string(key.first), to_string(key.second));
    lines.add("buckets", "{:<28} {:>6} {:>6}", label, at(comparison.a, key), at(comparison.b, key));
  }
  lines.gap();
  const auto& differences = comparison.differences;
  for (std::size_t i = 0; i < std::min(most_shown, differences.size()); ++i) {
    const BucketDifference& d = differences[i];
    lines.add("differs", "{:<40} {:>11}  {} in A, {} in B", d.name, format_bytes(d.bytes), to_string(d.a),
              to_string(d.b));
  }
  if (differences.size() > most_shown) lines.add("", "and {} more", differences.size() - most_shown);
  if (differences.empty()) lines.add("differs", "no bucket that both have");
  if (comparison.only_a + comparison.only_b > 0)
    lines.add("grouped", "otherwise: {} buckets of A, {} of B", comparison.only_a, comparison.only_b);
  return std::move(lines).text();
}

Json to_json(const Plan& a, const Plan& b, const PlanComparison& comparison) {
  Json counts = Json::array();
  for (const auto& [key, unused] : all_keys(comparison)) {
    counts.push_back({{"kind", to_string(key.first)},
                      {"residency", to_string(key.second)},
                      {"a", at(comparison.a, key)},
                      {"b", at(comparison.b, key)}});
  }
  Json differences = Json::array();
  for (const BucketDifference& d : comparison.differences) {
    differences.push_back({{"bucket", d.name},
                           {"kind", to_string(d.kind)},
                           {"bytes", d.bytes},
                           {"a", to_string(d.a)},
                           {"b", to_string(d.b)}});
  }
  return {{"a", account(a)},
          {"b", account(b)},
          {"buckets", counts},
          {"differences", differences},
          {"only_a", comparison.only_a},
          {"only_b", comparison.only_b}};
}

}  // namespace stowage
