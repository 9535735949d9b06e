#include "src/graph/trace_fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "stowage/error.h"

namespace stowage {
namespace {

constexpr std::size_t longest_name = 4096;

AdamW read_optimizer(const JsonField& field) {
  field.require_members({"name", "beta1", "beta2", "epsilon", "weight_decay", "clip"});
  if (field.member("name").text() != "adamw") field.member("name").fail("'adamw'");
  AdamW optimizer;
  const auto set = [&](const char* name, double& value) {
    if (const auto given = field.optional_member(name)) value = number_up_to(*given, most_trace_seconds);
  };
  set("beta1", optimizer.beta1);
  set("beta2", optimizer.beta2);
  set("epsilon", optimizer.epsilon);
  set("weight_decay", optimizer.weight_decay);
  set("clip", optimizer.clip);
  return optimizer;
}

}  // namespace

JsonSource source_of_trace_line(std::size_t line) {
  return {fmt::format("trace line {}", line), trace_remedy, "the line"};
}

void refuse_trace_line(std::size_t line, const std::string& why) {
  throw InvalidInput(fmt::format("trace line {}: {}; {}", line, why, trace_remedy));
}

std::string trace_name(const JsonField& field) {
  std::string name = field.text();
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (name.empty() || name.size() > longest_name || std::any_of(name.begin(), name.end(), control))
    field.fail(fmt::format("a name of 1 to {} bytes without control characters", longest_name));
  return name;
}

double number_up_to(const JsonField& field, double most) {
  const double value = field.number();
  if (value < 0 || value > most) field.fail(fmt::format("a number from 0 to {:g}", most));
  return value;
}

Bytes trace_bytes(const JsonField& field) {
  const std::int64_t value = field.integer();
  if (value < 1 || static_cast<Bytes>(value) > most_trace_bytes)
    field.fail("a number of bytes from 1 to 2^60");
  return static_cast<Bytes>(value);
}

std::int64_t trace_count(const JsonField& field) {
  constexpr std::int64_t most = std::int64_t{1} << 48U;
  const std::int64_t value = field.integer();
  if (value < 1 || value > most) field.fail("a number from 1 to 2^48");
  return value;
}

TraceHeader read_trace_header(const JsonField& line) {
  if (!line.has("stowage_trace")) line.member("stowage_trace");
  TraceHeader header;
  header.version = line.member("stowage_trace").integer();
  if (header.version < 1 || header.version > typed_trace_version)
    line.member("stowage_trace").fail("1 or 2, the versions that this program reads");
  const bool counted = header.version >= typed_trace_version;
  line.require_members({"stowage_trace", "loss", "optimizer", "clip", "note", counted ? "samples" : "note",
                        counted ? "tokens" : "note"});
  if (const auto samples = line.optional_member("samples")) header.samples = trace_count(*samples);
  if (const auto tokens = line.optional_member("tokens")) header.tokens = trace_count(*tokens);
  header.loss = trace_name(line.member("loss"));
  if (const auto note = line.optional_member("note")) note->text();
  if (const auto optimizer = line.optional_member("optimizer")) header.optimizer = read_optimizer(*optimizer);
  if (const auto clip = line.optional_member("clip")) header.clip = trace_name(*clip);
  if (header.optimizer && !header.clip.empty())
    line.member("clip").refuse("stands beside 'optimizer', which brings its own");
  if (!header.optimizer && header.clip.empty())
    line.refuse("has neither 'optimizer' nor, for a trace with its own update ops, 'clip'");
  return header;
}

}  // namespace stowage
