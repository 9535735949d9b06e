#include "samples/data/shard_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "stowage/checkpoint.h"
#include "tools/console/text.h"

namespace stowage::samples {
namespace {

constexpr std::int64_t looked_at = 4096;  // number of tokens checked at either end of a shard

}  // namespace

bool means_shards(const std::string& place) {
  std::error_code error;
  if (std::filesystem::is_directory(place, error)) return true;
  if (std::filesystem::exists(place, error)) return place.ends_with(".bin");
  return place.ends_with(".bin") || place.find_first_of("*?[") != std::string::npos;
}

ShardSource::ShardSource(const std::string& flag, const std::string& place, const TokenSampling& sampling,
                         std::int64_t batch)
    : flag_(flag),
      sampling_(sampling),
      shards_(with_prefix(flag + ' ', [&] { return TokenShards({place}, sampling); })),
      batch_(static_cast<std::uint64_t>(batch)) {
  // Tokens of another tokenizer are found at once by this check.
  static_cast<void>(fingerprint());
}

void ShardSource::fill(std::uint64_t step, Batch& result) const {
  const auto sequence = static_cast<std::size_t>(sampling_.sequence);
  result.tokens.resize(batch_ * sequence);
  result.targets.resize(batch_ * sequence);
  result.begins.resize(packed() ? batch_ * sequence : 0);
  // The mean is over the targets of all samples, and only packed ones have fewer than tokens.
  const BatchShare share = packed() ? BatchShare{} : share_;
  const std::uint64_t first = batch_ * share.rank / share.ranks;
  const std::uint64_t end = batch_ * (share.rank + 1) / share.ranks;
  for (std::uint64_t i = first; i < end; ++i) {
    const std::uint64_t number = step * batch_ + i;
    with_prefix(flag_ + ' ', [&] {
      shards_.sample(
          number / samples(), number % samples(), std::span(result.tokens).subspan(i * sequence, sequence),
          std::span(result.targets).subspan(i * sequence, sequence),
          packed() ? std::span(result.begins).subspan(i * sequence, sequence) : std::span<std::int32_t>());
    });
  }
}

void ShardSource::sample(std::uint64_t index, std::span<std::int32_t> tokens, std::span<std::int32_t> targets,
                         std::span<std::int32_t> begins) const {
  with_prefix(flag_ + ' ', [&] { shards_.sample(0, index, tokens, targets, begins); });
}

std::string ShardSource::fingerprint() const {
  std::string all;
  std::vector<std::int32_t> tokens;
  const auto add = [&](std::span<const std::int32_t> numbers) {
    all.append(reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes());
  };
  for (const TokenShard& shard : shards_.shards()) {
    if (packed()) {
      const auto length = static_cast<std::size_t>(shard.sequence());
      tokens.resize(3 * length);
      const std::span numbers(tokens);
      all += fmt::format("{} packed tokens:", shard.size());
      for (const std::int64_t index : {std::int64_t{0}, shard.size() / shard.sequence() - 1}) {
        with_prefix(flag_ + ' ', [&] {
          shard.read_packed(index, numbers.first(length), numbers.subspan(length, length),
                            numbers.last(length), sampling_.vocabulary_size);
        });
        add(tokens);
      }
      continue;
    }
    tokens.resize(static_cast<std::size_t>(std::min(shard.size(), looked_at)));
    all += fmt::format("{} tokens:", shard.size());
    for (const std::int64_t first : {std::int64_t{0}, shard.size() - std::ssize(tokens)}) {
      with_prefix(flag_ + ' ', [&] { shard.read(first, tokens, sampling_.vocabulary_size); });
      add(tokens);
    }
  }
  return stowage::fingerprint(all);
}

std::map<std::string, std::int64_t> ShardSource::position(std::uint64_t step) const {
  const std::uint64_t number = step * batch_;
  return {{"epoch", static_cast<std::int64_t>(number / samples())},
          {"sample", static_cast<std::int64_t>(number % samples())}};
}

}  // namespace stowage::samples
