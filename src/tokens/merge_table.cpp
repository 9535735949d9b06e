#include "src/tokens/merge_table.h"

#include <algorithm>
#include <queue>
#include <tuple>

namespace stowage {

// The tokens as a list in which neighbours become one, and the merges that may be next.
class MergeTable::Worker {
 public:
  Worker(const MergeTable& table, const std::vector<std::int32_t>& tokens) : table_(table) {
    const std::size_t count = tokens.size();
    nodes_.reserve(count);
    for (std::size_t i = 0; i < count; ++i)
      nodes_.push_back({tokens[i], i == 0 ? none : i - 1, i + 1 == count ? none : i + 1});
    for (std::size_t i = 0; i + 1 < count; ++i) consider(i);
  }

  void run() {
    while (!queue_.empty()) {
      const Candidate candidate = queue_.top();
      queue_.pop();
      if (holds(candidate)) merge(candidate);
    }
  }

  void write(std::vector<std::int32_t>& tokens) const {
    tokens.clear();
    for (std::size_t at = 0; at != none; at = nodes_[at].next) tokens.push_back(nodes_[at].token);
  }

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  static constexpr std::int32_t gone = -1;
  struct Node {
    std::int32_t token = 0;
    std::size_t previous = none;
    std::size_t next = none;
  };
  struct Candidate {
    std::uint32_t rank = 0;
    std::size_t at = 0;
    std::int32_t made = 0;
    bool operator>(const Candidate& other) const {
      return std::tie(rank, at) > std::tie(other.rank, other.at);
    }
  };

  // Returns the merge of the node at `at` with the next one; null if there is none.
  const Merge* merge_at(std::size_t at) const {
    const Node& node = nodes_[at];
    return node.next == none ? nullptr : table_.find({node.token, nodes_[node.next].token});
  }
  void consider(std::size_t at) {
    if (const Merge* merge = merge_at(at)) queue_.push({merge->rank, at, merge->made});
  }
  // Whether the candidate's tokens still stand there: they may have been merged with other neighbours.
  bool holds(const Candidate& candidate) const {
    if (nodes_[candidate.at].token == gone) return false;
    const Merge* merge = merge_at(candidate.at);
    return merge != nullptr && merge->made == candidate.made;
  }
  void merge(const Candidate& candidate) {
    Node& node = nodes_[candidate.at];
    Node& absorbed = nodes_[node.next];
    absorbed.token = gone;
    node.token = candidate.made;
    node.next = absorbed.next;
    if (node.next != none) nodes_[node.next].previous = candidate.at;
    if (node.previous != none) consider(node.previous);
    consider(candidate.at);
  }

  const MergeTable& table_;
  std::vector<Node> nodes_;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue_;
};

void MergeTable::add(TokenPair pair, std::int32_t made) {
  merges_.insert_or_assign(pair, Merge{next_rank_, made});
  ++next_rank_;
}

const MergeTable::Merge* MergeTable::find(TokenPair pair) const {
  const auto found = merges_.find(pair);
  return found == merges_.end() ? nullptr : &found->second;
}

bool MergeTable::makes(std::int32_t token) const {
  return std::any_of(merges_.begin(), merges_.end(),
                     [&](const auto& merge) { return merge.second.made == token; });
}

std::vector<TokenPair> MergeTable::in_order() const {
  std::vector<std::pair<std::uint32_t, TokenPair>> ranked;
  for (const auto& [pair, merge] : merges_) ranked.emplace_back(merge.rank, pair);
  std::sort(ranked.begin(), ranked.end());
  std::vector<TokenPair> pairs;
  for (const auto& [rank, pair] : ranked) pairs.push_back(pair);
  return pairs;
}

void MergeTable::apply(std::vector<std::int32_t>& tokens) const {
  if (tokens.size() < 2) return;
  Worker worker(*this, tokens);
  worker.run();
  worker.write(tokens);
}

}  // namespace stowage
