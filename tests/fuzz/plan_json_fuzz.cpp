// Saved plans: what parses is judged by the validator and compared with a sound plan (`stowage plan
// --compare`).
#include "offload/engine/checks.h"
#include "stowage/error.h"
#include "stowage/planner.h"
#include "tests/fuzz/target.h"
#include "tests/offload/plan/older_plan_json.h"
#include "tests/support/small_graph.h"
#include "tools/cli/plan_compare.h"

namespace stowage::fuzz {
namespace {

const Graph& graph() {
  static const Graph small = test::small_graph();
  return small;
}

// With everything on the device, with as little of it as can be, and what lies between.
const std::vector<Plan>& plans() {
  static const std::vector<Plan> all = [] {
    const Machine machine;
    const Bytes minimum = minimum_bytes(graph(), machine);
    std::vector<Plan> made;
    for (const Bytes budget : {minimum, minimum + 512, unlimited}) {
      auto planned = make_plan(graph(), machine, {.device = budget});
      if (auto* plan = std::get_if<Plan>(&planned)) made.push_back(std::move(*plan));
    }
    return made;
  }();
  return all;
}

void compare_with(const Plan& sound, const Plan& plan) {
  try {
    const PlanComparison comparison = compare(sound, plan);
    describe(sound, plan, comparison);
    to_json(sound, plan, comparison).dump();
  } catch (const InvalidInput&) {
    return;  // of another graph
  }
}

}  // namespace

std::vector<std::string> seeds() {
  std::vector<std::string> texts;
  for (const Plan& plan : plans()) {
    texts.push_back(to_json(plan));
    texts.push_back(testing::in_version_2(plan).dump());
  }
  return texts;
}

std::vector<std::string> dictionary() {
  return {"\"resident\"",
          "\"held\"",
          "\"streamed\"",
          "\"offloaded\"",
          "\"recomputed\"",
          "\"transient\"",
          "\"host\"",
          "\"launch\"",
          "\"prefetch\"",
          "\"offload\"",
          "\"recompute\"",
          "\"gate\"",
          "\"commit\"",
          "\"host_step\"",
          "\"compute\"",
          "\"h2d\"",
          "\"d2h\"",
          "null",
          "true",
          "false",
          "\"parameter\"",
          "\"workspace\"",
          "[0, 1]",
          "\"places\"",
          "\"memory\"",
          "\"device\"",
          "\"on_host\"",
          "\"pinned\"",
          "\"ring_offset\": 0",
          "\"ring_span\": 256",
          "\"gradient\"",
          "1",
          "2"};
}

}  // namespace stowage::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stowage;
  const auto plan = fuzz::parsed_or_refused([&] { return plan_from_json(fuzz::text_of(data, size)); });
  if (!plan) return 0;
  fuzz::check_round_trip(
      *plan, [](const Plan& of) { return to_json(of); }, plan_from_json);
  const std::vector<std::string> findings = validate(fuzz::graph(), *plan, {});
  try {
    check_executable(fuzz::graph(), *plan);
  } catch (const InvalidInput&) {  // refused
  }
  fuzz::compare_with(fuzz::plans().front(), *plan);
  fuzz::compare_with(*plan, *plan);
  for (const Plan& sound : fuzz::plans())
    if (*plan == sound && !findings.empty()) fuzz::broken("a sound plan is refused: " + findings.front());
  return 0;
}
