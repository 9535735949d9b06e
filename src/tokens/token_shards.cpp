#include "stowage/token_shards.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "src/tokens/mapped_file.h"
#include "src/tokens/permutation.h"
#include "src/tokens/shard_bytes.h"
#include "stowage/error.h"

namespace stowage {

class TokenShard::Contents {
 public:
  explicit Contents(const std::string& path)
      : path(path),
        file(path, "give a token shard as llm.c writes them"),
        bytes(parse_shard(file.text(), path)) {}

  std::string path;
  MappedFile file;
  ShardBytes bytes;
};

TokenShard::TokenShard(const std::string& path) : contents_(std::make_shared<const Contents>(path)) {}

const std::string& TokenShard::path() const { return contents_->path; }
ShardVersion TokenShard::version() const { return contents_->bytes.version; }
std::int64_t TokenShard::size() const { return contents_->bytes.size(); }

std::int64_t TokenShard::sequence() const { return contents_->bytes.sequence; }

void TokenShard::read(std::int64_t first, std::span<std::int32_t> tokens,
                      std::int32_t vocabulary_size) const {
  read_tokens(contents_->bytes, contents_->path, first, tokens, vocabulary_size);
}

void TokenShard::read_packed(std::int64_t index, std::span<std::int32_t> tokens,
                             std::span<std::int32_t> targets, std::span<std::int32_t> begins,
                             std::int32_t vocabulary_size) const {
  for (const auto& span : {tokens, targets, begins})
    if (std::ssize(span) != sequence())
      throw InvalidInput(
          fmt::format("'{}': packed samples have {} tokens; give room for these", path(), sequence()));
  stowage::read_packed(contents_->bytes, path(), index, {tokens, targets, begins}, vocabulary_size);
}

namespace {

namespace fs = std::filesystem;

// Returns the paths that match a shell's pattern.
std::vector<std::string> paths_like(const std::string& pattern) {
  ::glob_t found{};
  std::vector<std::string> paths;
  if (::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  return paths;
}

std::vector<std::string> shards_in_folder(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() == ".bin") paths.push_back(entry->path().string());
  }
  return paths;
}

std::vector<std::string> paths_at(const std::string& place) {
  std::error_code error;
  if (fs::is_directory(place, error)) return shards_in_folder(place);
  if (fs::exists(place, error)) return {place};  // also if the name has characters of a pattern
  return paths_like(place);
}

std::vector<std::string> paths_at_all(const std::vector<std::string>& places) {
  std::vector<std::string> all;
  for (const std::string& place : places) {
    const std::vector<std::string> paths = paths_at(place);
    if (paths.empty()) {
      throw InvalidInput(
          fmt::format("'{}': no token shard is there; give files, folders of *.bin or patterns", place));
    }
    all.insert(all.end(), paths.begin(), paths.end());
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

std::uint64_t samples_in(const TokenShard& shard, std::int64_t sequence) {
  const std::int64_t behind = shard.version() == ShardVersion::packed ? 0 : 1;  // the last target
  return static_cast<std::uint64_t>((shard.size() - behind) / sequence);
}

void require_length(const TokenShard& shard, std::int64_t sequence) {
  if (shard.version() == ShardVersion::packed && shard.sequence() != sequence)
    throw InvalidInput(
        fmt::format("'{}': its packed samples have {} tokens, and a sequence of {} is asked for; give a "
                    "sequence of {}, or "
                    "pack the data anew",
                    shard.path(), shard.sequence(), sequence, shard.sequence()));
}

void require_same_version(const std::vector<TokenShard>& shards) {
  for (const TokenShard& shard : shards) {
    if (shard.version() == shards.front().version()) continue;
    throw InvalidInput(
        fmt::format("'{}': 'version' is {}, but that of '{}' is {}; give shards of one version", shard.path(),
                    static_cast<int>(shard.version()), shards.front().path(),
                    static_cast<int>(shards.front().version())));
  }
}

}  // namespace

TokenShards::TokenShards(const std::vector<std::string>& places, const TokenSampling& sampling)
    : sampling_(sampling), first_samples_{0} {
  if (sampling.sequence < 1)
    throw InvalidInput(fmt::format("a sequence of {} tokens is none; give at least 1", sampling.sequence));
  if (places.empty())
    throw InvalidInput("no token shards are named; give files, folders of *.bin or patterns");
  for (const std::string& path : paths_at_all(places)) shards_.emplace_back(path);
  require_same_version(shards_);
  for (const TokenShard& shard : shards_) require_length(shard, sampling.sequence);
  for (const TokenShard& shard : shards_)
    first_samples_.push_back(first_samples_.back() + samples_in(shard, sampling.sequence));
  if (samples_per_epoch() == 0) {
    throw InvalidInput(fmt::format(
        "'{}': no shard has the {} tokens of one sample; give longer shards or a shorter sequence",
        places.front(), static_cast<std::uint64_t>(sampling.sequence) + 1));
  }
  position_ = {0, 0, samples_per_epoch(), sampling.sequence, sampling.shuffled, sampling.seed};
}

std::int64_t TokenShards::tokens() const {
  std::int64_t sum = 0;
  for (const TokenShard& shard : shards_) sum += shard.size();
  return sum;
}

void TokenShards::sample(std::uint64_t epoch, std::uint64_t index, std::span<std::int32_t> tokens,
                         std::span<std::int32_t> targets, std::span<std::int32_t> begins) const {
  if (index >= samples_per_epoch())
    throw InvalidInput(fmt::format("sample {} is past the {} of an epoch; ask for one of these", index,
                                   samples_per_epoch()));
  const bool may_lack_begins = begins.empty() && !packed();
  if (std::ssize(tokens) != sampling_.sequence || std::ssize(targets) != sampling_.sequence ||
      (std::ssize(begins) != sampling_.sequence && !may_lack_begins))
    throw InvalidInput(
        fmt::format("a sample has {} tokens, as many targets and, where it is packed, beginnings; "
                    "give room for these",
                    sampling_.sequence));
  const std::uint64_t place =
      sampling_.shuffled ? permuted(index, samples_per_epoch(), sampling_.seed, epoch) : index;
  // The sample's shard is the last one that begins at or before it, which skips shards without samples.
  const auto behind = std::upper_bound(first_samples_.begin(), first_samples_.end(), place);
  const auto shard = static_cast<std::size_t>(behind - first_samples_.begin()) - 1;
  const auto of_shard = static_cast<std::int64_t>(place - first_samples_[shard]);
  if (packed())
    return shards_[shard].read_packed(of_shard, tokens, targets, begins, sampling_.vocabulary_size);
  const std::int64_t first = of_shard * sampling_.sequence;
  std::fill(begins.begin(), begins.end(), 0);
  shards_[shard].read(first, tokens, sampling_.vocabulary_size);
  std::copy(tokens.begin() + 1, tokens.end(), targets.begin());
  shards_[shard].read(first + sampling_.sequence, targets.last(1), sampling_.vocabulary_size);
}

void TokenShards::next(std::span<std::int32_t> tokens, std::span<std::int32_t> targets,
                       std::span<std::int32_t> begins) {
  sample(position_.epoch, position_.sample, tokens, targets, begins);
  if (++position_.sample < samples_per_epoch()) return;
  position_.sample = 0;
  ++position_.epoch;
}

void TokenShards::seek(const TokenPosition& position) {
  const auto require = [](const char* field, auto theirs, auto ours) {
    if (theirs == ours) return;
    throw InvalidInput(fmt::format(
        "position: '{}' is {}, but {} of these shards; give the data and options that it was saved with",
        field, theirs, ours));
  };
  require("samples_per_epoch", position.samples_per_epoch, position_.samples_per_epoch);
  require("sequence", position.sequence, position_.sequence);
  require("shuffled", position.shuffled, position_.shuffled);
  require("seed", position.seed, position_.seed);
  if (position.sample >= position.samples_per_epoch) {
    throw InvalidInput(
        fmt::format("position: 'sample' is {}, past the {} of an epoch; give one that was saved",
                    position.sample, position.samples_per_epoch));
  }
  position_ = position;
}

}  // namespace stowage
