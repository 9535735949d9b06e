// --patience N: ends a training whose evaluation loss falls no more.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "stowage/checkpoint.h"

namespace stowage::samples {

// Counts evaluations since the least loss. Depends on the losses alone, so that equal runs end at equal
// steps.
class Patience {
 public:
  // `allowed`: number of evaluations in a row without a new least loss after which the training ends; 0: it
  // never ends for that.
  explicit Patience(std::uint64_t allowed) : allowed_(allowed) {}

  // Goes on with the count of a checkpoint.
  void resume(const LeastScore& least) { least_ = least; }
  // Takes the loss that was measured behind step `step`. NaN or an infinity is no new least loss; before the
  // first finite one nothing counts.
  void add(std::uint64_t step, double loss);

  bool is_over() const { return allowed_ > 0 && since() >= allowed_; }
  // Returns the number of evaluations since the least loss, which is not one of them.
  std::uint64_t since() const { return least_ ? least_->since : 0; }
  const std::optional<LeastScore>& least() const { return least_; }
  // Returns a text such as "3 evaluations in a row without a lower loss than 2.1312, of step 60"; "" before
  // the first loss.
  std::string text() const;

 private:
  std::uint64_t allowed_;
  std::optional<LeastScore> least_;
};

}  // namespace stowage::samples
