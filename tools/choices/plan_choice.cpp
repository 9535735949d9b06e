#include "tools/choices/plan_choice.h"

#include <CLI/CLI.hpp>
#include <vector>

#include "stowage/error.h"
#include "tools/console/text.h"

namespace stowage {
namespace {

Bytes parse_bucket_size(const std::string& text) {
  if (text == "auto") return 0;
  const Bytes bytes = parse_bytes(text);
  if (bytes == 0) throw InvalidInput("\"0\" is no bucket size; give at least 1 byte, or auto");
  return bytes;
}

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const Policy policy : every_policy) names.emplace_back(to_string(policy));
  return names;
}

std::string emulated_names() {
  std::string names;
  for (const Policy policy : every_policy)
    if (is_emulated(policy)) names.append(names.empty() ? "" : ", ").append(to_string(policy));
  return names;
}

void add_budget(CLI::App& app, const char* flag, const std::string& text, PlanUser user, const char* group,
                std::optional<std::string>& value) {
  CLI::Option* const option = app.add_option_function<std::string>(
                                     flag, [&value](const std::string& given) { value = given; }, text)
                                  ->group(group)
                                  ->type_name("SIZE");
  if (user == PlanUser::trainer) option->default_str("unlimited");
}

// Adds an option whose value is one word of a list; the help's text explains the words.
void add_word(CLI::App& app, const char* flag, const std::string& text, const std::vector<std::string>& words,
              const char* group, std::string& value) {
  app.add_option(flag, value, text)
      ->group(group)
      ->type_name("NAME")
      ->check(CLI::IsMember(words).description(""))
      ->capture_default_str();
}

}  // namespace

void add_machine_options(CLI::App& app, PlanUser user, const char* group, RawPlanOptions& raw) {
  const bool trains = user == PlanUser::trainer;
  app.add_option("--machine", raw.machine,
                 "plan for this machine: a name that `stowage plan --machine list` shows, or a file that "
                 "`stowage calibrate` wrote")
      ->group(group)
      ->type_name("NAME|FILE");
  add_budget(app, "--device-memory",
             std::string("device budget, of each device: SIZE or unlimited") +
                 (trains ? "" : " (the machine's, else unlimited)"),
             user, group, raw.device_memory);
  add_budget(app, "--host-memory",
             std::string("host budget for what is offloaded, of all --devices together, of which each has an "
                         "equal part: SIZE or unlimited") +
                 (trains ? "; what the host has is checked before the first step"
                         : " (15/16 of what the machine's file says, else unlimited)"),
             user, group, raw.host_memory);
}

void add_plan_options(CLI::App& app, PlanUser user, const char* group, RawPlanOptions& raw) {
  const bool trains = user == PlanUser::trainer;
  add_word(app, "--policy",
           "auto: the fastest plan that fits; none: everything on the device; emulated: " + emulated_names(),
           policy_names(), group, raw.policy);
  app.add_option("--bucket-size", raw.bucket_size,
                 "bytes per parameter transfer: SIZE, or auto: from the link's speed")
      ->group(group)
      ->type_name("SIZE")
      ->capture_default_str();
  const std::string speculate =
      "updates on the host before the norm of all gradients is known, taken back if the step is clipped; no "
      "bit depends on it: ";
  if (trains)
    add_word(app, "--speculate",
             speculate + "auto, but for steps behind some that were clipped; always; or off",
             {"auto", "always", "off"}, group, raw.speculate);
  else
    add_word(app, "--speculate", speculate + "auto, where that makes the step faster; or off",
             {"auto", "off"}, group, raw.speculate);
  app.add_flag(
         "--optimizer-in-backward", raw.optimizer_in_backward,
         std::string(trains ? "with --clip 0 and not in fp16: " : "gradients are not clipped: ") +
             "updates on the host may be made for good as soon as their gradients are there, which then need "
             "no host memory of their own; " +
             (trains
                  ? "no bit depends on it, but a step that fails or whose gradients are not finite ends the "
                    "run at its last checkpoint"
                  : "a step that fails loses the state"))
      ->group(group);
}

PlanChoice parse(const RawPlanOptions& raw) {
  const auto limit = [](const char* flag, const std::optional<std::string>& text) {
    return text ? with_prefix(flag, [&] { return std::optional(parse_limit(*text)); }) : std::nullopt;
  };
  PlanChoice choice;
  choice.device_memory = limit("--device-memory: ", raw.device_memory);
  choice.host_memory = limit("--host-memory: ", raw.host_memory);
  choice.options.policy = policy_from(raw.policy).value_or(Policy::automatic);
  choice.options.bucket_bytes =
      with_prefix("--bucket-size: ", [&] { return parse_bucket_size(raw.bucket_size); });
  choice.options.speculates = raw.speculate != "off";
  choice.options.optimizer_in_backward = raw.optimizer_in_backward;
  return choice;
}

}  // namespace stowage
