#include <nlohmann/json.hpp>

#include "src/graph/json_field.h"
#include "stowage/error.h"
#include "stowage/token_shards.h"

namespace stowage {
namespace {

constexpr std::int64_t position_version = 1;

// JSON numbers of other programs have 53 bits; a seed has 64.
std::uint64_t count_in(const JsonField& field) {
  const std::string digits = field.text();
  if (digits.empty() || digits.size() > 20 || digits.find_first_not_of("0123456789") != std::string::npos)
    field.fail("a count in digits");
  errno = 0;
  const std::uint64_t value = std::strtoull(digits.c_str(), nullptr, 10);
  if (errno == ERANGE) field.fail("a count of 64 bits");
  return value;
}

}  // namespace

std::string to_json(const TokenPosition& position) {
  const nlohmann::ordered_json json{{"stowage_token_position", position_version},
                                    {"epoch", std::to_string(position.epoch)},
                                    {"sample", std::to_string(position.sample)},
                                    {"samples_per_epoch", std::to_string(position.samples_per_epoch)},
                                    {"sequence", position.sequence},
                                    {"shuffled", position.shuffled},
                                    {"seed", std::to_string(position.seed)}};
  return json.dump() + '\n';
}

TokenPosition token_position_from_json(std::string_view text) {
  const JsonSource source{"position JSON", "give the text that to_json wrote"};
  const nlohmann::json json = parse_json(text, source);
  const JsonField root(json, source);
  root.require_members(
      {"stowage_token_position", "epoch", "sample", "samples_per_epoch", "sequence", "shuffled", "seed"});
  const JsonField version = root.member("stowage_token_position");
  if (version.integer() != position_version) version.fail("1, the version that is known");
  TokenPosition position;
  position.epoch = count_in(root.member("epoch"));
  position.sample = count_in(root.member("sample"));
  position.samples_per_epoch = count_in(root.member("samples_per_epoch"));
  position.sequence = root.member("sequence").integer();
  position.shuffled = root.member("shuffled").boolean();
  position.seed = count_in(root.member("seed"));
  return position;
}

}  // namespace stowage
