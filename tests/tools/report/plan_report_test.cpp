#include "stowage/plan_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "tests/tools/report/small_step.h"
#include "tools/report/report_data.h"

namespace stowage::report {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

std::size_t count(std::string_view text, std::string_view what) {
  std::size_t found = 0;
  for (auto at = text.find(what); at != std::string_view::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

constexpr std::string_view data_begins = "<script type=\"application/json\" id=\"plan-data\">";

json data_of(const std::string& page) {
  const auto begin = page.find(data_begins) + data_begins.size();
  return json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

std::int64_t id_or_none(std::uint32_t id) { return id == no_id ? -1 : static_cast<std::int64_t>(id); }

struct Policies : ::testing::TestWithParam<Policy> {
  SmallStep step{{.policy = GetParam()}};
  json data = data_of(plan_report(step.graph, step.plan, step.machine));
  std::string text(const json& id) const { return data.at("strings").at(id.get<std::size_t>()); }
};
INSTANTIATE_TEST_SUITE_P(PlanReport, Policies, ::testing::Values(Policy::automatic, Policy::none),
                         [](const auto& info) { return info.param == Policy::none ? "none" : "automatic"; });

TEST_P(Policies, HoldsEveryLifetime) {
  const json& flat = data.at("lifetimes");
  ASSERT_EQ(flat.size(), 5 * step.plan.lifetimes.size());
  for (std::size_t i = 0; i < step.plan.lifetimes.size(); ++i) {
    const Lifetime& lifetime = step.plan.lifetimes[i];
    const json wanted = {lifetime.bucket, lifetime.first, lifetime.last, lifetime.offset,
                         id_or_none(lifetime.end)};
    EXPECT_EQ(json(flat.begin() + 5 * static_cast<int>(i), flat.begin() + 5 * static_cast<int>(i) + 5),
              wanted);
  }
  EXPECT_EQ(data.at("peak"), step.plan.device_peak_bytes);
}

TEST_P(Policies, HoldsEveryBucket) {
  ASSERT_EQ(data.at("buckets").size(), step.plan.buckets.size());
  for (std::size_t i = 0; i < step.plan.buckets.size(); ++i) {
    const Bucket& bucket = step.plan.buckets[i];
    const json& row = data.at("buckets")[i];
    EXPECT_EQ(text(row[0]), bucket.name);
    EXPECT_EQ(data.at("names").at("kinds").at(row[1].get<std::size_t>()), to_string(bucket.kind));
    EXPECT_EQ(data.at("names").at("residencies").at(row[2].get<std::size_t>()), to_string(bucket.residency));
    EXPECT_EQ(row[3], (bucket.on_host() ? 1 : 0) + (bucket.pinned() ? 2 : 0));
    EXPECT_EQ(row[4], bucket.bytes);
    EXPECT_EQ(row[7], bucket.tensors.size());
    ASSERT_EQ(row.size(), 8 + std::min<std::size_t>(6, bucket.tensors.size()));
    for (std::size_t t = 8; t < row.size(); ++t)
      EXPECT_EQ(text(row[t]), step.graph.tensor(bucket.tensors[t - 8].tensor).name);
  }
}

TEST_P(Policies, HoldsEveryInstructionWithItsSimulatedTimes) {
  const Timeline timeline = simulate(step.graph, step.plan, step.machine);
  const json& flat = data.at("instructions");
  ASSERT_EQ(flat.size(), 6 * step.plan.instructions.size());
  for (std::size_t i = 0; i < step.plan.instructions.size(); ++i) {
    const Instruction& instruction = step.plan.instructions[i];
    EXPECT_EQ(data.at("names").at("instructions").at(flat[6 * i].get<std::size_t>()),
              to_string(instruction.kind));
    EXPECT_EQ(flat[6 * i + 1], static_cast<int>(instruction.lane));
    EXPECT_EQ(flat[6 * i + 2], id_or_none(instruction.op));
    EXPECT_EQ(flat[6 * i + 3], id_or_none(instruction.lifetime));
    EXPECT_NEAR(flat[6 * i + 4].get<double>(), timeline.instructions[i].begin * 1e9, 0.5);
    EXPECT_NEAR(flat[6 * i + 5].get<double>(), timeline.instructions[i].end * 1e9, 0.5);
    EXPECT_EQ(data.at("uses")[i], json(instruction.uses));
    ASSERT_EQ(data.at("waits")[i].size(), instruction.waits.size());
    for (std::size_t w = 0; w < instruction.waits.size(); ++w) {
      const auto id = static_cast<std::int64_t>(instruction.waits[w].instruction);
      EXPECT_EQ(data.at("waits")[i][w], instruction.waits[w].steps_back == 0 ? id : -1 - id);
    }
  }
  EXPECT_NEAR(data.at("period").get<double>(), timeline.step_seconds * 1e9, 0.5);
}

TEST_P(Policies, CountsTransfersThatAddUpToTheTraffic) {
  Bytes in = 0;
  Bytes out = 0;
  for (const json& row : data.at("buckets")) {
    in += row[4].get<Bytes>() * row[5].get<Bytes>();
    out += row[4].get<Bytes>() * row[6].get<Bytes>();
  }
  EXPECT_EQ(in, step.plan.h2d_bytes);
  EXPECT_EQ(out, step.plan.d2h_bytes);
}

TEST_P(Policies, NamesEveryOp) {
  const json& flat = data.at("ops");
  ASSERT_EQ(flat.size(), 4 * step.graph.ops.size());
  for (std::size_t i = 0; i < step.graph.ops.size(); ++i) {
    const Op& op = step.graph.ops[i];
    EXPECT_EQ(text(flat[4 * i]), op.name);
    EXPECT_EQ(text(flat[4 * i + 1]), op.kernel);
    EXPECT_EQ(flat[4 * i + 2], static_cast<int>(op.phase));
    if (op.unit == no_id)
      EXPECT_EQ(flat[4 * i + 3], -1);
    else
      EXPECT_EQ(text(flat[4 * i + 3]), step.graph.unit_names[op.unit]);
  }
}

TEST(PlanReport, SaysWhatTheBudgetLeaves) {
  const SmallStep step;
  json data = data_of(plan_report(step.graph, step.plan, step.machine, {.budget = {.device = 50_MiB}}));
  EXPECT_EQ(data.at("limit"), 50_MiB);
  EXPECT_EQ(data.at("room"), 49_MiB);
  data = data_of(plan_report(step.graph, step.plan, step.machine));
  EXPECT_TRUE(data.at("limit").is_null());
  EXPECT_TRUE(data.at("room").is_null());
}

TEST(PlanReport, HoldsTheCurveByRisingBudget) {
  const SmallStep step;
  EXPECT_EQ(data_of(plan_report(step.graph, step.plan, step.machine)).at("curve"), json::array());
  ReportOptions options;
  options.curve = {
      {unlimited, 1, 0.5, true}, {4_MiB, 3, 2, true}, {1_MiB, 9, 9, false}, {8_MiB, 2.5, 1, true}};
  const json wanted = {{1_MiB, nullptr, nullptr}, {4_MiB, 3.0, 2.0}, {8_MiB, 2.5, 1.0}, {nullptr, 1.0, 0.5}};
  EXPECT_EQ(data_of(plan_report(step.graph, step.plan, step.machine, options)).at("curve"), wanted);
}

TEST(PlanReport, ShowsThatAnotherSystemIsEmulated) {
  SmallStep step;
  EXPECT_EQ(count(plan_report(step.graph, step.plan, step.machine), "(emulated)"), 0U);
  step.plan.policy = "zero-offload";
  EXPECT_EQ(count(plan_report(step.graph, step.plan, step.machine), "policy zero-offload (emulated)"), 1U);
}

// Of a step whose every name is this one. Kernels have the same one, too, and with it the same times.
std::string page_of_step_named(const std::string& name) {
  static const SmallStep plain;
  SmallStep step = plain;
  for (Op& op : step.graph.ops) op.name = op.kernel = name;
  for (Tensor& tensor : step.graph.tensors) tensor.name = name;
  for (Bucket& bucket : step.plan.buckets) bucket.name = name;
  for (std::string& unit : step.graph.unit_names) unit = name;
  step.plan.policy = step.plan.bound_by = name;
  return plan_report(step.graph, step.plan, step.machine, {.name = name, .machine_name = name});
}

// Whatever stands in a name, the page has its own elements and no others.
void expect_neutral(const std::string& hostile) {
  SCOPED_TRACE(hostile);
  const std::string page = page_of_step_named(hostile);
  const std::string harmless = page_of_step_named("x");
  for (const char* tag : {"<", "</script", "<script", "<!--", "-->", "\"plan-data\"", "style>"})
    EXPECT_EQ(count(page, tag), count(harmless, tag)) << tag;
  for (const char c : page)
    EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20) << static_cast<int>(c);
  const json data = data_of(page);
  EXPECT_EQ(data.at("strings"),
            json::array({json::parse(json(hostile).dump(-1, ' ', true, json::error_handler_t::replace))}));
}

TEST(PlanReport, NeutralisesHostileNames) {
  expect_neutral("</script><script>alert(1)</script>");
  expect_neutral("<!--<script>");
  expect_neutral("\"'><img src=x onerror=alert(1)>");
  expect_neutral("{{data}} {{script}} {{nothing}} }} {{");
  expect_neutral(std::string("a\0\x01\x1b[31m\r\n\x7f", 12));
  expect_neutral("\xe2\x80\xae\xe2\x80\xa8 日本語 \xf0\x9f\x9a\xa2");
  expect_neutral("\xff\xfe\xc0\xbcscript\xc0\xbe");
  expect_neutral("\\u003c/script\\u003e \\");
  expect_neutral(std::string(3000, '<'));
}

TEST(PlanReport, NeutralisesTheCellsOfTables) {
  const SmallStep step;
  const std::string hostile = "</td><script>alert(1)</script>";
  const std::string page = plan_report(
      step.graph, step.plan, step.machine,
      {.run = RunHistory{.tables = {{.title = hostile, .columns = {hostile}, .rows = {{hostile}}}}}});
  EXPECT_EQ(count(page, "<script"), count(plan_report(step.graph, step.plan, step.machine), "<script"));
  EXPECT_EQ(count(page, "<td>"), 1U);
}

TEST(PlanReport, LoadsNothing) {
  const SmallStep step;
  std::string page = plan_report(step.graph, step.plan, step.machine);
  const std::string svg = "http://www.w3.org/2000/svg";  // a name, not an address
  ASSERT_EQ(count(page, svg), 1U);
  page.erase(page.find(svg), svg.size());
  for (const char* loading :
       {"://", "src=", "href=", "url(", "@import", "@font-face", "fetch(", "XMLHttpRequest", "import("})
    EXPECT_THAT(page, Not(HasSubstr(loading)));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  EXPECT_THAT(page, Not(HasSubstr("{{")));
}

TEST(PlanReport, ScriptsFindTheirElements) {
  const std::string script(page_script);
  const std::regex wanted("getElementById\\(\"([^\"]+)\"\\)");
  std::set<std::string> ids;
  for (std::sregex_iterator it(script.begin(), script.end(), wanted), end; it != end; ++it)
    ids.insert((*it)[1]);
  EXPECT_GT(ids.size(), 5U);
  for (const std::string& id : ids) EXPECT_EQ(count(page_html, "id=\"" + id + "\""), 1U) << id;
}

TEST(PlanReport, OfAnEmptyPlan) {
  const json data = data_of(plan_report({}, {}, {}));
  EXPECT_EQ(data.at("instructions"), json::array());
  EXPECT_EQ(data.at("period"), 0);
}

TEST(PlanReport, OfGpt2XlIsSmall) {
  GraphBuilder builder(DataType::bf16);
  const BuiltModel model = gpt(
      builder, {.layers = 48, .width = 1600, .heads = 25, .vocabulary = 50257, .sequence = 1024, .batch = 1});
  const Graph graph = builder.finish(model.loss, {});
  const auto planned = stowage::testing::quick_plan(graph, {}, {.device = 5_GiB});
  const Plan& plan = std::get<Plan>(planned);
  const std::string page = plan_report(graph, plan, {});
  EXPECT_LT(page.size(), 5'000'000U);
  EXPECT_EQ(data_of(page).at("lifetimes").size(), 5 * plan.lifetimes.size());
}

}  // namespace
}  // namespace stowage::report
