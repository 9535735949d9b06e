#include "src/checkpoint/state_json.h"

#include <fmt/format.h>

#include <charconv>
#include <set>

#include "src/checkpoint/checkpoint_tensors.h"
#include "src/checkpoint/checksum.h"
#include "src/graph/json_field.h"

namespace stowage {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view format_name = "stowage-checkpoint";
constexpr std::int64_t format_version = 1;
constexpr std::string_view seal_begin = R"(,"checksum":")";
constexpr std::string_view seal_end = "\"}\n";
constexpr std::size_t seal_size = seal_begin.size() + checksum_digits + seal_end.size();
constexpr std::size_t most_entries = 1 << 16;  // limit of the configuration, and of the data's position
constexpr std::size_t longest_text = 1 << 16;
constexpr std::string_view damage_remedy = "the file is damaged: take another checkpoint";

void require_seal(std::string_view text, const std::string& what) {
  if (text.size() < seal_size || !text.ends_with(seal_end) ||
      text.substr(text.size() - seal_size, seal_begin.size()) != seal_begin)
    throw InvalidInput(fmt::format("{}: 'checksum' is missing from its end; {}", what, damage_remedy));
  const std::string_view body = text.substr(0, text.size() - seal_size);
  const std::string_view stored = text.substr(body.size() + seal_begin.size(), checksum_digits);
  const std::string found = checksum_of(std::as_bytes(std::span(body)));
  if (stored != found)
    throw InvalidInput(fmt::format("{}: 'checksum' is {}, and that of the text is {}; {}", what,
                                   in_quotes(stored), found, damage_remedy));
}

ordered_json tensor_json(const CheckpointTensor& tensor) {
  return {{"name", tensor.name},        {"kind", to_string(tensor.kind)}, {"type", to_string(tensor.type)},
          {"shape", tensor.shape},      {"offset", tensor.offset},        {"bytes", tensor.bytes},
          {"checksum", tensor.checksum}};
}

std::string short_text(const JsonField& field) {
  std::string text = field.text();
  if (text.size() > longest_text) field.refuse("is too long");
  return text;
}

std::int64_t count(const JsonField& field) {
  const std::int64_t value = field.integer();
  if (value < 0) field.fail("a count");
  return value;
}

std::string digits(const JsonField& field) {
  std::string text = short_text(field);
  if (text.size() != checksum_digits || text.find_first_not_of("0123456789abcdef") != std::string::npos)
    field.fail("a checksum of 32 hexadecimal digits");
  return text;
}

std::uint64_t seed_of(const JsonField& field) {
  const std::string text = short_text(field);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) field.fail("a seed");
  return value;
}

// `end`: the end of the tensors before this one; it is moved behind this one.
CheckpointTensor tensor_of(const JsonField& field, Bytes& end) {
  field.require_members({"name", "kind", "type", "shape", "offset", "bytes", "checksum"});
  CheckpointTensor tensor;
  tensor.name = short_text(field.member("name"));
  tensor.kind = field.member("kind").one_of(std::array{TensorKind::parameter, TensorKind::optimizer_state});
  tensor.type = field.member("type").one_of(data_types);
  tensor.shape = field.member("shape").list(most_dimensions, count);
  tensor.offset = static_cast<Bytes>(count(field.member("offset")));
  tensor.bytes = static_cast<Bytes>(count(field.member("bytes")));
  tensor.checksum = digits(field.member("checksum"));
  const std::optional<Bytes> bytes = value_bytes(tensor.type, tensor.shape);
  if (!bytes) field.member("shape").refuse("is larger than any tensor");
  if (tensor.bytes != *bytes)
    field.member("bytes").refuse(fmt::format("is {}, and its shape takes {}", tensor.bytes, *bytes));
  if (tensor.offset != end)
    field.member("offset").refuse(fmt::format("is {}, and the tensor before ends at {}", tensor.offset, end));
  const std::optional<Bytes> next = next_offset(tensor);
  if (!next) field.member("bytes").refuse("is more than a file can have");
  end = *next;
  return tensor;
}

template <class Value, class Read>
std::map<std::string, Value> entries(const JsonField& field, Read read) {
  std::map<std::string, Value> result;
  for (const auto& [name, value] : field.members(most_entries)) result.emplace(name, read(value));
  return result;
}

ordered_json loss_scale_json(const LossScale& of) {
  return {{"scale", of.scale}, {"finite_in_a_row", of.finite_in_a_row}, {"skipped_steps", of.skipped_steps}};
}

LossScale loss_scale_of(const JsonField& field, std::uint64_t steps) {
  field.require_members({"scale", "finite_in_a_row", "skipped_steps"});
  const LossScale of{field.member("scale").number(),
                     static_cast<std::uint64_t>(count(field.member("finite_in_a_row"))),
                     static_cast<std::uint64_t>(count(field.member("skipped_steps")))};
  if (!is_valid(of) || of.skipped_steps > steps) field.refuse("is no loss scale of that many steps");
  return of;
}

ordered_json least_score_json(const LeastScore& of) {
  return {{"score", of.score}, {"step", of.step}, {"since", of.since}};
}

LeastScore least_score_of(const JsonField& field, std::uint64_t steps) {
  field.require_members({"score", "step", "since"});
  const LeastScore of{field.member("score").number(), static_cast<std::uint64_t>(count(field.member("step"))),
                      static_cast<std::uint64_t>(count(field.member("since")))};
  if (of.step > steps || of.since > steps - of.step) field.refuse("is no score of that many steps");
  return of;
}

std::vector<CheckpointTensor> tensors_of(const JsonField& field) {
  Bytes end = 0;
  std::set<std::string> names;
  return field.list(most_items, [&](const JsonField& item) {
    CheckpointTensor tensor = tensor_of(item, end);
    if (!names.insert(tensor.name).second) item.member("name").refuse("stands there twice");
    return tensor;
  });
}

}  // namespace

std::string sealed(std::string body) {
  const std::string digits = checksum_of(std::as_bytes(std::span(body)));
  return body.append(seal_begin).append(digits).append(seal_end);
}

std::string state_to_json(const CheckpointState& state) {
  ordered_json tensors = ordered_json::array();
  for (const CheckpointTensor& tensor : state.tensors) tensors.push_back(tensor_json(tensor));
  ordered_json json = {{"format", format_name},
                       {"version", format_version},
                       {"step", state.step},
                       {"seed", std::to_string(state.seed)},
                       {"data_position", ordered_json(state.data_position)},
                       {"configuration", ordered_json(state.configuration)},
                       {"tensors", std::move(tensors)}};
  if (state.score) json["score"] = *state.score;
  if (state.loss_scale) json["loss_scale"] = loss_scale_json(*state.loss_scale);
  if (state.least_score) json["least_score"] = least_score_json(*state.least_score);
  std::string text = json.dump();
  text.pop_back();  // the brace, which comes behind the checksum
  return sealed(std::move(text));
}

CheckpointState state_from_json(std::string_view text, const std::string& what) {
  require_seal(text, what);
  const JsonSource source{what, "give a checkpoint of this program", "the text"};
  const nlohmann::json json = parse_json(text, source);
  const JsonField field(json, source);
  if (field.member("format").text() != format_name)
    field.member("format").fail(fmt::format("\"{}\"", format_name));
  if (field.member("version").integer() != format_version)
    field.member("version").refuse("is of a newer program, which alone can read it");
  field.require_members({"format", "version", "step", "seed", "data_position", "configuration", "tensors",
                         "score", "loss_scale", "least_score", "checksum"});
  CheckpointState state;
  state.step = static_cast<std::uint64_t>(count(field.member("step")));
  state.seed = seed_of(field.member("seed"));
  state.data_position = entries<std::int64_t>(field.member("data_position"),
                                              [](const JsonField& value) { return value.integer(); });
  state.configuration = entries<std::string>(field.member("configuration"), short_text);
  state.tensors = tensors_of(field.member("tensors"));
  if (const auto score = field.optional_member("score")) state.score = score->number();
  if (const auto scale = field.optional_member("loss_scale"))
    state.loss_scale = loss_scale_of(*scale, state.step);
  if (const auto least = field.optional_member("least_score"))
    state.least_score = least_score_of(*least, state.step);
  return state;
}

}  // namespace stowage
