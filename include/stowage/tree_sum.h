// TreeSum: the order in which values of micro-batches are added up, so that the sum's bits do not depend on
// the number of devices that share the batch.
//
// `groups` (a power of two) are consecutive, equal ranges of micro-batches. Within a group the micro-batches
// are added in ascending order. The groups' sums are added in a balanced binary tree of adjacent pairs:
//
//   group             0     1     2     3     4     5     6     7
//                      \   /       \   /       \   /       \   /
//                       (+)         (+)         (+)         (+)
//                          \       /               \       /
//                             (+)                     (+)
//                                \                   /
//                                         (+)
//
// Each addition is made as soon as both sides are there (a binary counter), so that at most log2(groups)
// finished sums and the one that grows are kept at a time. N devices (N divides `groups`) that have equal,
// consecutive ranges of micro-batches each add up one subtree; the N results, added in the tree of N groups,
// are the sum of one device. One group is the plain sum, from the first micro-batch to the last.
//
// Requires as many values as `micro_batches`, which `groups` divides; checks nothing. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace stowage {

template <class T>
class TreeSum {
 public:
  explicit TreeSum(std::uint32_t micro_batches = 1, std::uint32_t groups = 1)
      : groups_(groups), micro_batches_of_group_(micro_batches / groups) {}

  // Adds the value of the next micro-batch. `append(sum, value)` adds it to its group's sum, `join(left,
  // right)` adds two sums of as many groups each; both return a T.
  template <class Append, class Join>
  void add(T value, Append append, Join join) {
    growing_ = growing_ ? append(std::move(*growing_), std::move(value)) : std::move(value);
    if (++in_group_ < micro_batches_of_group_) return;
    Finished right{std::move(*growing_), 1};
    growing_.reset();
    in_group_ = 0;
    while (!finished_.empty() && finished_.back().groups == right.groups) {
      right = {join(std::move(finished_.back().sum), std::move(right.sum)), 2 * right.groups};
      finished_.pop_back();
    }
    finished_.push_back(std::move(right));
  }
  template <class Add>
  void add(T value, Add add_two) {
    add(std::move(value), add_two, add_two);
  }

  // Returns the sum of all micro-batches; nullopt before the last has been added.
  std::optional<T> total() const {
    if (finished_.size() != 1 || finished_.front().groups != groups_) return {};
    return finished_.front().sum;
  }
  // Number of sums that are kept: the finished ones, and the growing one.
  std::size_t kept() const { return finished_.size() + (growing_ ? 1 : 0); }

 private:
  struct Finished {
    T sum;
    std::uint32_t groups = 1;
  };

  std::uint32_t groups_;
  std::uint32_t micro_batches_of_group_;
  std::uint32_t in_group_ = 0;  // number of micro-batches in growing_
  std::optional<T> growing_;
  std::vector<Finished> finished_;  // the sum of most groups first
};

}  // namespace stowage
