// libstowage_plan.so: a question in the first line, and a trace behind it.
#include "stowage/c_plan.h"

#include <cstring>

#include "stowage/trace.h"
#include "tests/fuzz/planning.h"
#include "tests/fuzz/target.h"
#include "tests/support/small_graph.h"
#include "tests/support/trace_text.h"

namespace stowage::fuzz {
namespace {

constexpr std::string_view one_plan = "\"policy\": \"none\"";  // nothing to choose: a plan in an instant

// An input whose plan would take long is a question without a trace.
std::string_view trace_to_plan(std::string_view question, std::string_view trace) {
  if (question.find(one_plan) == std::string_view::npos) return {};
  const auto graph =
      parsed_or_refused([&] { return is_trace(trace) ? graph_from_trace(trace) : graph_from_json(trace); });
  return !graph || small_enough(*graph) ? trace : std::string_view();
}

}  // namespace

std::vector<std::string> seeds() {
  const std::string question = R"({"machine": "rtx4090", "policy": "none")",
                    trace = test::trace_example(STOWAGE_ROOT);
  return {question + "}\n" + trace,
          question + R"(, "return": ["text", "plan", "report"], "name": "x"})" + "\n" + trace,
          question + R"(, "device_memory": 700000000, "host_memory": null})" + "\n" +
              to_json(test::small_graph()),
          question + R"(, "optimizer_in_backward": false, "return": []})" + "\n" + trace};
}

std::vector<std::string> dictionary() {
  return {"\"machine\"",
          "\"machine_file\"",
          "\"device_memory\": 1",
          "\"host_memory\": 1e3",
          "\"policy\"",
          "\"return\"",
          "\"answer\"",
          "\"h200\"",
          "\"fsdp2\"",
          "null",
          "[\"report\"]",
          "\"name\": \"\"",
          "true",
          "\"stowage_trace\": 2"};
}

}  // namespace stowage::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stowage;
  const std::string_view input = fuzz::text_of(data, size);
  const std::size_t end = std::min(input.find('\n'), input.size());
  const std::string question(input.substr(0, end));
  const std::string_view trace = fuzz::trace_to_plan(question, input.substr(std::min(end + 1, input.size())));
  stowage_text* answer = nullptr;
  const int status = stowage_plan(trace.data(), trace.size(), question.c_str(), &answer);
  const bool well = status == STOWAGE_OK;
  if (!well && status != STOWAGE_INVALID_INPUT) fuzz::broken("another status");
  if (well != (std::strlen(stowage_plan_last_error()) == 0))
    fuzz::broken("an error without a text, or the other way");
  if (!well && answer != nullptr) fuzz::broken("an answer beside an error");
  for (const stowage_text* each = answer; each != nullptr; each = each->next)
    if (std::strlen(each->data) != each->bytes) fuzz::broken("a text of another length than it says");
  stowage_text_free(answer);
  fuzz::parsed_parts += well ? 1 : 0;
  return 0;
}
