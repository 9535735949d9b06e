#include "samples/text_data.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "samples/random_stream.h"
#include "stowage/error.h"

namespace stowage::samples {
namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw InvalidInput(fmt::format("--data {}: {}", path, why));
}

void check_readable_kind(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  switch (status.type()) {
    case std::filesystem::file_type::regular:
    case std::filesystem::file_type::fifo:
      return;
    case std::filesystem::file_type::not_found:
      refuse(path, "there is no such file; name a text to learn");
    case std::filesystem::file_type::directory:
      refuse(path, "this is a directory; name one file in it");
    case std::filesystem::file_type::none:
      refuse(path, fmt::format("cannot be read ({}); name a readable file", error.message()));
    default:
      refuse(path, "this is not a file; name a text to learn");
  }
}

double surprise(std::uint64_t count, std::uint64_t total) {
  if (count == 0) return 0;
  const auto share = static_cast<double>(count) / static_cast<double>(total);
  return -static_cast<double>(count) * std::log(share);
}

}  // namespace

std::string read_text(const std::string& path) {
  check_readable_kind(path);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) refuse(path, fmt::format("cannot be read ({}); name a readable file", std::strerror(errno)));
  std::string text;
  std::array<char, 1 << 16> block;
  while (std::feof(file.get()) == 0 && std::ferror(file.get()) == 0) {
    text.append(block.data(), std::fread(block.data(), 1, block.size(), file.get()));
  }
  if (std::ferror(file.get()) != 0) refuse(path, "reading it failed; copy it to a sound disk");
  if (text.empty()) refuse(path, "the file is empty; name a text to learn");
  return text;
}

double bigram_entropy(std::string_view text) {
  if (text.size() < 2) return 0;
  constexpr std::size_t values = 256;
  std::vector<std::uint64_t> pairs(values * values, 0);
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    const auto first = static_cast<unsigned char>(text[i]);
    const auto second = static_cast<unsigned char>(text[i + 1]);
    ++pairs[first * values + second];
  }
  double nats = 0;
  for (std::size_t first = 0; first < values; ++first) {
    std::uint64_t total = 0;
    for (std::size_t second = 0; second < values; ++second) total += pairs[first * values + second];
    for (std::size_t second = 0; second < values; ++second)
      nats += surprise(pairs[first * values + second], total);
  }
  return nats / static_cast<double>(text.size() - 1);
}

BatchSource::BatchSource(std::string_view text, std::int64_t batch, std::int64_t sequence, std::uint64_t seed)
    : text_(text), batch_(batch), sequence_(sequence), seed_(seed) {
  if (text.size() < static_cast<std::uint64_t>(sequence) + 1) {
    const std::string shorter =
        text.size() < 2 ? "" : fmt::format(", or at most --sequence {}", text.size() - 1);
    throw InvalidInput(
        fmt::format("the text has {} bytes, but one sequence of {} takes {}: give a longer text{}",
                    text.size(), sequence, sequence + 1, shorter));
  }
}

void BatchSource::fill(std::uint64_t step, Batch& result) const {
  const auto count = static_cast<std::size_t>(batch_ * sequence_);
  result.tokens.resize(count);
  result.targets.resize(count);
  const auto sequence = static_cast<std::size_t>(sequence_);
  const std::uint64_t starts = text_.size() - sequence;
  for (std::size_t sample = 0; sample < static_cast<std::size_t>(batch_); ++sample) {
    const std::uint64_t bits =
        random_bits(seed_, RandomStream::batches, step, static_cast<std::uint32_t>(sample));
    const std::size_t start = bits % starts;
    for (std::size_t i = 0; i < sequence; ++i) {
      const std::size_t at = sample * sequence + i;
      result.tokens[at] = static_cast<unsigned char>(text_[start + i]);
      result.targets[at] = static_cast<unsigned char>(text_[start + i + 1]);
    }
  }
}

}  // namespace stowage::samples
