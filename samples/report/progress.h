// The progress line: rewritten in place on a terminal, printed now and then elsewhere.
#pragma once

#include <cstdint>
#include <string>

#include "stowage/bytes.h"
#include "stowage/engine.h"
#include "stowage/machine.h"

namespace stowage::samples {

// The line's figures, over the steps since the last printed line.
struct ProgressWindow {
  std::uint64_t step = 0;  // steps completed so far
  std::uint64_t steps = 0;
  double loss = 0;       // mean loss
  double grad_norm = 0;  // gradient norm of the last step
  double tokens_per_second = 0;
  Bytes peak = 0;
  Bytes budget = 0;
  double h2d_bytes_per_second = 0;
  double d2h_bytes_per_second = 0;
  double stall_fraction = 0;
};
std::string progress_line(const ProgressWindow& window);

struct ProgressOptions {
  std::uint64_t first_step = 0;  // steps completed before this run
  std::uint64_t steps = 0;
  std::uint64_t tokens_per_step = 0;
  Bytes budget = 0;
  Machine machine{};
  int columns = 0;  // columns of the terminal; 0: no terminal
};

class Progress {
 public:
  explicit Progress(const ProgressOptions& options) : options_(options), done_(options.first_step) {}

  // Text to print after this step: a line, a rewritten line, or nothing.
  std::string add(const StepReport& report);
  // Ends the line that is being rewritten.
  std::string finish();

 private:
  ProgressWindow window() const;
  void restart();

  ProgressOptions options_;
  std::uint64_t done_;
  StepReport last_;
  // Sums since the last line.
  std::uint64_t count_ = 0;
  double seconds_ = 0;
  double loss_ = 0;
  double stall_ = 0;
  Bytes h2d_ = 0;
  Bytes d2h_ = 0;
  bool open_ = false;  // a rewritten line is shown, and its end is not printed yet
};

}  // namespace stowage::samples
