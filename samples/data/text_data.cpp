#include "samples/data/text_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "samples/data/random_stream.h"
#include "src/tokens/text_parts.h"
#include "stowage/error.h"
#include "tools/console/underway.h"

namespace stowage::samples {
namespace {

// A path, and the flag that names it.
struct Named {
  const std::string& flag;
  const std::string& path;
};

[[noreturn]] void refuse(const Named& named, const std::string& why) {
  throw InvalidInput(fmt::format("{} {}: {}", named.flag, named.path, why));
}

void check_readable_kind(const Named& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path.path, error);
  switch (status.type()) {
    case std::filesystem::file_type::regular:
    case std::filesystem::file_type::fifo:
      return;
    case std::filesystem::file_type::not_found:
      refuse(path, "there is no such file; name a text");
    case std::filesystem::file_type::directory:
      refuse(path, "this is a directory; name one file in it");
    case std::filesystem::file_type::none:
      refuse(path, fmt::format("cannot be read ({}); name a readable file", error.message()));
    default:
      refuse(path, "this is not a file; name a text");
  }
}

double surprise(std::uint64_t count, std::uint64_t total) {
  if (count == 0) return 0;
  const auto share = static_cast<double>(count) / static_cast<double>(total);
  return -static_cast<double>(count) * std::log(share);
}

}  // namespace

std::string read_text(const std::string& path, const std::string& flag,
                      const std::function<void(double)>& progress) {
  const Named named{flag, path};
  check_readable_kind(named);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) refuse(named, fmt::format("cannot be read ({}); name a readable file", std::strerror(errno)));
  std::error_code no_size;
  const auto size = static_cast<double>(std::filesystem::file_size(path, no_size));
  std::string text;
  std::array<char, 1 << 16> block;
  while (std::feof(file.get()) == 0 && std::ferror(file.get()) == 0) {
    text.append(block.data(), std::fread(block.data(), 1, block.size(), file.get()));
    if (progress && !no_size) progress(std::min(1.0, static_cast<double>(text.size()) / size));
  }
  if (std::ferror(file.get()) != 0) refuse(named, "reading it failed; copy it to a sound disk");
  if (text.empty()) refuse(named, "the file is empty; name another text");
  return text;
}

std::string read_data(const std::string& path, const std::string& flag) {
  Underway work("reading", path);
  return read_text(path, flag, [&](double share) { work.progress(share); });
}

std::vector<std::int32_t> encode_data(const Tokenizer& tokenizer, std::string_view text,
                                      const std::string& name) {
  constexpr std::size_t part = 1 << 20;  // bytes read at a time
  Underway work("tokenising", name);
  std::vector<std::int32_t> tokens;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = end_of_part(text, begin, part);
    const std::vector<std::int32_t> more = tokenizer.encode(text.substr(begin, end - begin));
    tokens.insert(tokens.end(), more.begin(), more.end());
    begin = end;
    work.progress(static_cast<double>(end) / static_cast<double>(text.size()));
  }
  return tokens;
}

SplitText split_text(std::string_view text, double share) {
  const auto kept = static_cast<std::size_t>(std::ceil((1 - share) * static_cast<double>(text.size())));
  std::size_t at = text.find('\n', kept == 0 ? 0 : kept - 1);
  at = at == std::string_view::npos || at + 1 == text.size() ? kept : at + 1;
  return {text.substr(0, at), text.substr(at)};
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
    : text_(text), size_(text.size()), batch_(batch), sequence_(sequence), seed_(seed) {
  require_one_sample("bytes");
}

BatchSource::BatchSource(std::span<const std::int32_t> tokens, std::int64_t batch, std::int64_t sequence,
                         std::uint64_t seed)
    : tokens_(tokens), size_(tokens.size()), batch_(batch), sequence_(sequence), seed_(seed) {
  require_one_sample("tokens");
}

void BatchSource::require_one_sample(const char* unit) const {
  if (size_ > static_cast<std::uint64_t>(sequence_)) return;
  const std::string shorter = size_ < 2 ? "" : fmt::format(", or at most --sequence {}", size_ - 1);
  throw InvalidInput(fmt::format("the text has {} {}, but one sequence of {} takes {}: give a longer text{}",
                                 size_, unit, sequence_, sequence_ + 1, shorter));
}

void BatchSource::copy(std::uint64_t start, std::span<std::int32_t> tokens,
                       std::span<std::int32_t> targets) const {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = at(start + i);
    targets[i] = at(start + i + 1);
  }
}

void BatchSource::fill(std::uint64_t step, Batch& result) const {
  const auto count = static_cast<std::size_t>(batch_ * sequence_);
  result.tokens.resize(count);
  result.targets.resize(count);
  const auto sequence = static_cast<std::size_t>(sequence_);
  const std::uint64_t starts = size_ - sequence;
  for (std::size_t sample = 0; sample < static_cast<std::size_t>(batch_); ++sample) {
    const std::uint64_t bits =
        random_bits(seed_, RandomStream::batches, step, static_cast<std::uint32_t>(sample));
    copy(bits % starts, std::span(result.tokens).subspan(sample * sequence, sequence),
         std::span(result.targets).subspan(sample * sequence, sequence));
  }
}

void BatchSource::sample(std::uint64_t index, std::span<std::int32_t> tokens, std::span<std::int32_t> targets,
                         std::span<std::int32_t> /*begins*/) const {
  copy(index * static_cast<std::uint64_t>(sequence_), tokens, targets);
}

}  // namespace stowage::samples
