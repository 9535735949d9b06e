// libstowage_plan.so, as a C program sees it.
#include "stowage/c_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "stowage/plan.h"
#include "stowage/planner.h"
#include "tests/support/chain_graph.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/trace_text.h"
#include "tools/choices/machine_choice.h"
#include "tools/cli/plan_command.h"

namespace stowage {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

struct Texts {
  int status = -1;
  std::vector<std::string> names;
  std::map<std::string, std::string> texts;
  std::string error;
};

Texts ask(const std::string& trace, const std::string& question) {
  Texts result;
  stowage_text* answer = nullptr;
  result.status = stowage_plan(trace.data(), trace.size(), question.c_str(), &answer);
  result.error = stowage_plan_last_error();
  for (const stowage_text* each = answer; each != nullptr; each = each->next) {
    result.names.emplace_back(each->name);
    result.texts[each->name] = std::string(each->data, each->bytes);
    EXPECT_EQ(each->data[each->bytes], 0);
  }
  stowage_text_free(answer);
  return result;
}

std::string trace() { return test::trace_example(STOWAGE_ROOT); }

Json question(const char* machine = "rtx4090") { return {{"machine", machine}}; }

std::string of_command(const std::string& trace, bool json, std::optional<Bytes> device = {}) {
  const TemporaryFolder folder;
  folder.make("step.jsonl", trace);
  PlanCommand command;
  command.graph_file = folder.file("step.jsonl");
  command.machines = machines_folder();
  command.machine = "rtx4090";
  command.json = json;
  command.device_memory = device;
  std::string output;
  run_plan_command(command, output);
  return output;
}

TEST(CPlan, AnswersAsTheCommandDoesByteForByte) {
  Json asked = question();
  asked["return"] = {"text", "answer", "plan", "report"};
  asked["name"] = "example";
  const Texts found = ask(trace(), asked.dump());
  ASSERT_EQ(found.status, STOWAGE_OK) << found.error;
  EXPECT_EQ(found.error, "");
  EXPECT_THAT(found.names, ElementsAre("text", "answer", "plan", "report"));
  EXPECT_EQ(found.texts.at("answer"), of_command(trace(), true));
  EXPECT_EQ(found.texts.at("text"), of_command(trace(), false));
  EXPECT_FALSE(plan_from_json(found.texts.at("plan")).instructions.empty());
  EXPECT_THAT(found.texts.at("report"), AllOf(HasSubstr("<html"), HasSubstr("example")));
}

TEST(CPlan, TakesTheTextOfAMachineFileAndAGraph) {
  const Graph graph = testing::chain_graph();
  const MachineFile file = read_machine("h200", machines_folder());
  const Json asked = {{"machine_file", to_json(file)}, {"device_memory", nullptr}};
  const Texts found = ask(to_json(graph), asked.dump());
  ASSERT_EQ(found.status, STOWAGE_OK) << found.error;
  EXPECT_THAT(found.names, ElementsAre("answer"));
  EXPECT_EQ(Json::parse(found.texts.at("answer"))["budget_bytes"], file.device_bytes);
}

TEST(CPlan, TakesWhatWasMeasuredHere) {
  const TemporaryFolder cache;
  ASSERT_EQ(::setenv("XDG_CACHE_HOME", cache.file("").c_str(), 1), 0);
  const std::string asked = R"({"machine": "here", "device_memory": null})";
  EXPECT_THAT(ask(trace(), asked).error,
              HasSubstr("run `stowage calibrate`, which leaves " + cache.file("stowage/here.json")));
  MachineFile file = read_machine("h200", machines_folder());
  file.device_bytes = 20_GiB;
  std::filesystem::create_directory(cache.file("stowage"));
  cache.make("stowage/here.json", to_json(file));
  const Texts found = ask(trace(), asked);
  ASSERT_EQ(found.status, STOWAGE_OK) << found.error;
  EXPECT_EQ(Json::parse(found.texts.at("answer"))["budget_bytes"], file.device_bytes);
}

TEST(CPlan, ThatItDoesNotFitIsAnAnswer) {
  Json asked = question();
  asked["device_memory"] = 629145600 + 1;  // the overhead, and a byte
  asked["return"] = {"plan", "answer", "report", "text"};
  const Texts found = ask(trace(), asked.dump());
  ASSERT_EQ(found.status, STOWAGE_OK) << found.error;
  EXPECT_THAT(found.names, ElementsAre("answer", "text"));
  EXPECT_EQ(Json::parse(found.texts.at("answer"))["feasible"], false);
  EXPECT_EQ(found.texts.at("answer"), of_command(trace(), true, 629145601));
}

TEST(CPlan, NamesWhatIsWrong) {
  const auto refused = [](const std::string& trace, const std::string& question) {
    const Texts found = ask(trace, question);
    EXPECT_EQ(found.status, STOWAGE_INVALID_INPUT);
    EXPECT_TRUE(found.names.empty());
    return found.error;
  };
  const auto with = [](const char* member, const Json& value) {
    Json asked = question();
    asked[member] = value;
    return asked.dump();
  };
  EXPECT_THAT(refused(trace(), "{"), HasSubstr("question"));
  EXPECT_THAT(refused(trace(), "{}"), HasSubstr("one of 'machine' and 'machine_file'"));
  EXPECT_THAT(refused(trace(), with("machine_file", "{}")), HasSubstr("one of 'machine' and 'machine_file'"));
  EXPECT_THAT(refused(trace(), question("rtx9090").dump()),
              AllOf(HasSubstr("'machine'"), HasSubstr("h200, rtx4090")));
  EXPECT_THAT(refused(trace(), with("memory", 1)), HasSubstr("'memory' is not a known field"));
  EXPECT_THAT(refused(trace(), with("device_memory", -5)),
              HasSubstr("'device_memory' is not a number of bytes"));
  EXPECT_THAT(refused(trace(), with("policy", "fast")), HasSubstr("'policy' is not a policy (auto, none"));
  EXPECT_THAT(refused(trace(), with("return", {"page"})),
              HasSubstr("'return[0]' is not answer, text, report or plan"));
  EXPECT_THAT(refused(trace(), with("optimizer_in_backward", true)), HasSubstr("clip"));
  EXPECT_THAT(refused("{\"stowage_trace\": 1", question().dump()), HasSubstr("trace line 1"));
  EXPECT_THAT(refused("", question().dump()), HasSubstr("graph JSON"));
  EXPECT_THAT(refused(trace(), std::string(1 << 21, ' ')), HasSubstr("more than 1 MiB"));
  EXPECT_EQ(stowage_plan(nullptr, 3, "{}", nullptr), STOWAGE_INVALID_INPUT);
  stowage_text* answer = nullptr;
  EXPECT_EQ(stowage_plan(nullptr, 3, "{}", &answer), STOWAGE_INVALID_INPUT);
  EXPECT_THAT(stowage_plan_last_error(), HasSubstr("is null"));
  EXPECT_EQ(ask(trace(), question().dump()).error, "") << "an error of the call before";
}

TEST(CPlan, KnowsItsMachinesAndItsVersion) {
  std::string names;
  for (const std::string& name : machine_names(machines_folder())) names += name + '\n';
  EXPECT_EQ(stowage_plan_machines(), names);
  EXPECT_STREQ(stowage_plan_version(), STOWAGE_VERSION);
}

}  // namespace
}  // namespace stowage
