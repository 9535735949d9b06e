// Branch and bound over the places of one instance's items, from the bottom up.
#pragma once

#include <functional>
#include <random>

#include "src/placement/nogoods.h"

namespace stowage::placement {

// Rule for the next section to branch on: a score of the number of its candidates, its slack and its
// conflicts so far.
enum class SectionRule : std::uint8_t { conflicts, all_three, candidates, slack };
// Rule for the section's first candidate to try.
enum class ItemRule : std::uint8_t { area, width };

struct Strategy {
  SectionRule section = SectionRule::conflicts;
  ItemRule item = ItemRule::area;
  double noise = 0;  // 0.3 raises preferences at random by up to 30%
};

enum class Outcome : std::uint8_t { placed, impossible, stopped };

class Search {
 public:
  // Keeps a reference to `instance`.
  explicit Search(const Instance& instance);

  // Sets the highest peak that the search looks for.
  void set_capacity(Bytes capacity);
  // Runs one descent with at most `nodes` branchings, fewer if `spend`, asked before each, returns false.
  // Uses what earlier descents under the same or a larger capacity learned, and their random state: the same
  // calls have the same outcome.
  Outcome run(const Strategy& strategy, std::uint64_t nodes, const std::function<bool()>& spend);
  // Offsets of the placement last found, by item, in units.
  const std::vector<std::int64_t>& offsets() const { return offsets_; }

 private:
  // A range of sections that share no open item with other sections, and its state in the search.
  struct Frame {
    int first = 0;
    int last = 0;
    Skyline::Mark entry;
    std::size_t refuted = 0;  // refuted_.size() when the frame was entered
    std::size_t pending = 0;  // pending_.size() when the frame was entered
    bool is_split = false;
    int item = -1;  // the placed item, unless the frame is split
    Skyline::Mark before;
  };
  // `item` was tried at its least offset and refuted, provided that the bounds `why` hold.
  struct Refuted {
    int item = 0;
    std::int64_t offset = 0;
    Nogood why;
  };
  struct Range {
    int first = 0;
    int last = 0;
  };
  struct Choice {
    int section = -1;
    double score = 0;
  };
  enum class Step : std::uint8_t { deeper, solved, failed, stopped };

  void prefer(const Strategy& strategy);
  void push(int first, int last);
  Step expand();
  Step resume(bool solved);
  Step branch(Frame& frame);
  Step refute(Frame& frame);
  void fail(const Frame& frame);
  bool split(Frame& frame);
  int choose_section(const Frame& frame);
  bool rate_pit(int first, int last, Choice& best);
  double score(int section, int candidates) const;
  int choose_item(int section);
  void combine(const Refuted& refuted, std::int64_t bound);

  const Instance& instance_;
  Skyline skyline_;
  Nogoods nogoods_;
  Bytes capacity_ = 0;
  std::int64_t deadline_ = 0;
  Strategy strategy_;
  std::vector<double> preference_;  // by item
  std::vector<double> conflicts_;   // by section
  int last_conflict_ = -1;
  std::mt19937_64 random_;
  std::uint64_t nodes_left_ = 0;
  const std::function<bool()>* spend_ = nullptr;
  std::vector<Frame> frames_;
  std::vector<Refuted> refuted_;
  std::vector<Range> pending_;        // split frames' ranges that were not entered yet
  Nogood why_;                        // reason of the last failure
  std::vector<std::int64_t> merged_;  // bounds by item, while nogoods are combined
  std::vector<std::int64_t> offsets_;
};

}  // namespace stowage::placement
