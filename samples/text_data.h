// Text as training data: bytes in, batches of tokens and targets out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stowage::samples {

// The whole file. Throws InvalidInput naming `path` when it is missing, a directory, a device,
// unreadable or empty.
std::string read_text(const std::string& path);

// H(next byte | byte) in nats, from the text's own counts: what a model that looks at one byte alone
// can reach at best. 0 for a text shorter than two bytes.
double bigram_entropy(std::string_view text);

// Rows of one sample after another; targets[i] is the byte after tokens[i].
struct Batch {
  std::vector<std::int32_t> tokens;   // [batch * sequence]
  std::vector<std::int32_t> targets;  // [batch * sequence]
};

// Draws batches: where sample `i` of step `s` starts is Philox4x32-10 of (seed, s, i), so that a
// step's batch depends on nothing that happened before.
class BatchSource {
 public:
  // `text` must outlive the source. Throws InvalidInput for fewer than sequence + 1 bytes.
  BatchSource(std::string_view text, std::int64_t batch, std::int64_t sequence, std::uint64_t seed);

  // Fills `result`, whose vectors keep their memory from call to call.
  void fill(std::uint64_t step, Batch& result) const;

 private:
  std::string_view text_;
  std::int64_t batch_;
  std::int64_t sequence_;
  std::uint64_t seed_;
};

}  // namespace stowage::samples
