// Text as training data: bytes in, batches of tokens and targets out.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/error.h"
#include "stowage/tokenizer.h"

namespace stowage::samples {

// Returns the whole file. Throws InvalidInput naming `flag` and `path` when it is missing, a directory, a
// device, unreadable or empty. `progress` gets the share that is read, 0 to 1, of a file whose size is known.
std::string read_text(const std::string& path, const std::string& flag = "--data",
                      const std::function<void(double)>& progress = {});

// Reads a text and shows the progress to the person who waits.
std::string read_data(const std::string& path, const std::string& flag = "--data");
// Returns the ids of tokenizer.encode(text). Shows the progress to the person who waits; `name` is
// the text's.
std::vector<std::int32_t> encode_data(const Tokenizer& tokenizer, std::string_view text,
                                      const std::string& name);

// A text without its tail, and the tail, which is about `share` of the text and begins behind a line's end if
// there is one.
struct SplitText {
  std::string_view training, held_out;
};
SplitText split_text(std::string_view text, double share);

// Runs `action` on the held-out part of --data; adds advice to the message of an InvalidInput.
template <class Action>
void on_held_out(const std::string& data, double share, Action action) {
  try {
    action();
  } catch (const InvalidInput& error) {
    throw InvalidInput(
        fmt::format("--evaluation-share {}: what is held out of --data {}: {}; or hold out more, "
                    "name another text by --evaluation-data, or give --evaluate-every 0",
                    share, data, error.what()));
  }
}

// Returns H(next byte | byte) in nats, from the text's own counts: the least loss of a model that sees one
// byte alone. 0 for a text shorter than two bytes.
double bigram_entropy(std::string_view text);

// A batch, whose vectors hold the rows of one sample after another; targets[i] is the byte after tokens[i].
struct Batch {
  std::vector<std::int32_t> tokens;   // shape [batch * sequence]
  std::vector<std::int32_t> targets;  // shape [batch * sequence]; negative: ignored
  // Shape [batch * sequence], nn::AttentionOptions::begins; empty unless the source is packed.
  std::vector<std::int32_t> begins{};
};

// A source of batches of samples. Safe to share between threads.
class TokenSource {
 public:
  TokenSource() = default;
  TokenSource(const TokenSource&) = delete;
  TokenSource& operator=(const TokenSource&) = delete;
  virtual ~TokenSource() = default;

  // Draws the step's samples, which depend on no earlier call. `result`'s vectors keep their memory from call
  // to call.
  virtual void fill(std::uint64_t step, Batch& result) const = 0;

  // Whether several documents share a sample (ModelConfig::packed).
  virtual bool packed() const { return false; }

  // Samples one after another, for evaluation: their number without overlap, and each sample. The spans have
  // `sequence` items; `begins` is empty unless the source is packed.
  virtual std::uint64_t samples() const = 0;
  virtual void sample(std::uint64_t index, std::span<std::int32_t> tokens, std::span<std::int32_t> targets,
                      std::span<std::int32_t> begins) const = 0;
};

// Draws batches: where sample `i` of step `s` starts is Philox4x32-10 of (seed, s, i), so that a
// step's batch depends on nothing that happened before.
class BatchSource : public TokenSource {
 public:
  // Draw from bytes, or from token ids, which must outlive the source. Throw InvalidInput for fewer than
  // sequence + 1.
  BatchSource(std::string_view text, std::int64_t batch, std::int64_t sequence, std::uint64_t seed);
  BatchSource(std::span<const std::int32_t> tokens, std::int64_t batch, std::int64_t sequence,
              std::uint64_t seed);

  void fill(std::uint64_t step, Batch& result) const override;
  std::uint64_t samples() const override { return (size_ - 1) / static_cast<std::uint64_t>(sequence_); }
  void sample(std::uint64_t index, std::span<std::int32_t> tokens, std::span<std::int32_t> targets,
              std::span<std::int32_t> begins) const override;

 private:
  void require_one_sample(const char* unit) const;
  void copy(std::uint64_t start, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const;
  std::int32_t at(std::uint64_t place) const {
    return text_.empty() ? tokens_[place] : static_cast<unsigned char>(text_[place]);
  }

  std::string_view text_;  // bytes to draw from; if empty, `tokens_` are drawn from
  std::span<const std::int32_t> tokens_;
  std::uint64_t size_ = 0;
  std::int64_t batch_;
  std::int64_t sequence_;
  std::uint64_t seed_;
};

}  // namespace stowage::samples
