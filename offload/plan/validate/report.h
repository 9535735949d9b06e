// The validator's findings, and the names that it uses in them.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_set>
#include <vector>

#include "stowage/graph.h"
#include "stowage/plan.h"

namespace stowage::validation {

// Collects findings, each sentence once and at most `most` of them: a hostile plan may have millions. Keeps
// references: graph and plan must outlive it. The functions that name things accept any id.
class Report {
 public:
  Report(const Graph& graph, const Plan& plan, std::size_t most = 1000)
      : graph_(graph), plan_(plan), most_(most) {}

  void add(std::string sentence);
  bool empty() const { return findings_.empty(); }
  bool is_full() const { return findings_.size() >= most_; }
  std::vector<std::string> take() { return std::move(findings_); }

  std::string instruction(InstructionId id) const;  // "instruction 7 (prefetch of bucket 'W0')"
  std::string lifetime(LifetimeId id) const;        // "lifetime 3 of bucket 'W0'"
  std::string bucket(BucketId id) const;            // "bucket 'W0'"
  std::string tensor(TensorId id) const;            // "'h.0.w'"
  std::string op(OpId id) const;                    // "op 'h.0.fc'"

 private:
  const Graph& graph_;
  const Plan& plan_;
  const std::size_t most_;
  std::vector<std::string> findings_;
  std::unordered_set<std::string> known_;
};

}  // namespace stowage::validation
