#include "tools/c_plan/plan_question.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "src/graph/json_field.h"
#include "src/machine/machine_here.h"
#include "src/machine/machine_text.h"
#include "stowage/error.h"
#include "stowage/trace.h"
#include "tools/answer/memory_sweep.h"

namespace stowage {
namespace {

constexpr std::size_t largest_question = 1_MiB, largest_trace = 1_GiB;
constexpr std::size_t most_texts = 16;

struct Question {
  MachineFile machine;
  std::string machine_name;
  std::optional<Bytes> device_memory, host_memory;
  PlanOptions options;
  std::vector<std::string> texts = {"answer"};
  std::string name = "the trace";
};

std::optional<Bytes> bytes_of(const JsonField& root, const char* name) {
  if (!root.has(name) || root.member(name).is_null()) return {};
  const std::int64_t value = root.member(name).integer();
  if (value < 1) root.member(name).fail("a number of bytes from 1 up, or null");
  return static_cast<Bytes>(value);
}

MachineFile shipped(const JsonField& field) {
  const std::string name = field.text();
  std::vector<std::string_view> names;
  if (name == machine_here) return read_machine_here();
  for (const ShippedMachine& machine : shipped_machines()) {
    if (machine.name == name) return machine_from_json(machine.text);
    names.push_back(machine.name);
  }
  field.fail(fmt::format("here, or a machine that comes with Stowage ({})", fmt::join(names, ", ")));
}

void read_machine(const JsonField& root, Question& question) {
  const bool by_name = root.has("machine"), by_text = root.has("machine_file");
  if (by_name == by_text) root.fail("an object with one of 'machine' and 'machine_file'");
  if (by_name) {
    question.machine = shipped(root.member("machine"));
    question.machine_name = root.member("machine").text();
    return;
  }
  question.machine = machine_from_json(root.member("machine_file").text());
  question.machine_name = "machine_file";
}

Policy policy_of(const JsonField& field) {
  const auto policy = policy_from(field.text());
  if (policy) return *policy;
  std::vector<std::string_view> names;
  for (const Policy each : every_policy) names.push_back(to_string(each));
  field.fail(fmt::format("a policy ({})", fmt::join(names, ", ")));
}

Question read_question(std::string_view text) {
  const JsonSource source{"question", "stowage/c_plan.h says what it may hold", "the question"};
  if (text.size() > largest_question)
    throw InvalidInput(fmt::format("question: it has more than 1 MiB; {}", source.remedy));
  const nlohmann::json json = parse_json(text, source);
  const JsonField root(json, source);
  root.require_members({"machine", "machine_file", "device_memory", "host_memory", "policy",
                        "optimizer_in_backward", "return", "name"});
  Question question;
  read_machine(root, question);
  question.device_memory = bytes_of(root, "device_memory");
  question.host_memory = bytes_of(root, "host_memory");
  if (const auto policy = root.optional_member("policy")) question.options.policy = policy_of(*policy);
  if (const auto in_backward = root.optional_member("optimizer_in_backward"))
    question.options.optimizer_in_backward = in_backward->boolean();
  if (const auto name = root.optional_member("name")) question.name = name->text();
  if (const auto texts = root.optional_member("return"))
    question.texts = texts->list(most_texts, [](const JsonField& item) {
      const std::string name = item.text();
      if (name != "answer" && name != "text" && name != "report" && name != "plan")
        item.fail("answer, text, report or plan");
      return name;
    });
  return question;
}

Graph read_step(std::string_view trace) {
  if (trace.size() > largest_trace)
    throw InvalidInput("trace: it has more than 1 GiB; record one step, in fewer ops");
  return is_trace(trace) ? graph_from_trace(trace) : graph_from_json(trace);
}

std::string text_of(const std::string& name, const PlanQuestion& asked, const PlanAnswer& answer,
                    const Plan& plan) {
  if (name == "answer") return to_json(asked, answer).dump(1) + '\n';
  if (name == "text") return describe(asked, answer);
  if (name == "plan") return to_json(plan);
  return report_page(asked, plan, [](const std::string&) {});
}

}  // namespace

std::vector<NamedText> answer_texts(std::string_view trace, std::string_view question, std::stop_token stop) {
  const Question given = read_question(question);
  Graph graph = read_step(trace);
  PlanQuestion asked;
  asked.options = given.options;
  asked.options.stop = std::move(stop);
  asked.machine = describe_machine(given.machine);
  asked.measured = &given.machine;
  asked.machine_file = given.machine_name;
  asked.source = given.name;
  asked.rates = machine_for(given.machine, work_type(graph));
  asked.take_budget(given.device_memory, given.host_memory, 1);
  asked.take(std::move(graph));
  Plan plan;
  const PlanAnswer found = answer(asked, &plan);
  std::vector<NamedText> texts;
  for (const std::string& name : given.texts)
    if (found.feasible || name == "answer" || name == "text")
      texts.push_back({name, text_of(name, asked, found, plan)});
  return texts;
}

}  // namespace stowage
