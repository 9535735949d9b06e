// Costs of layers: `stowage parallel --costs FILE`.
#include "offload/parallel/search.h"
#include "offload/parallel/stage_table.h"
#include "tests/fuzz/target.h"
#include "tests/support/parallel_chains.h"

namespace stowage::fuzz {

std::vector<std::string> seeds() {
  std::mt19937_64 random(1);
  std::vector<std::string> seeds;
  for (int i = 0; i < 6; ++i) seeds.push_back(to_json(testing::random_chain(random)));
  seeds.push_back(
      R"({"format": "stowage.parallel_costs", "version": 1, "devices": 2, "micro_batches": 4, "batch": 8, "layers":
      [{"name": "a", "repeat": 3, "variants": [{"name": "x", "devices": 2, "forward_seconds": 1, "backward_seconds": 2}]}]})");
  return seeds;
}

std::vector<std::string> dictionary() {
  return {"\"parts\": 2",
          "\"split\": 2",
          "\"devices\": 1",
          "\"repeat\": 2",
          "\"gpipe\"",
          "\"largest_stage\"",
          "\"within\"",
          "\"values\": []",
          "\"cut_bytes\": 1",
          "\"memory_bytes\": 1",
          "\"changes\": []",
          "1125899906842624",
          "4294967296",
          "1e9",
          "null"};
}

}  // namespace stowage::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stowage;
  const auto costs =
      fuzz::parsed_or_refused([&] { return parallel_costs_from_json(fuzz::text_of(data, size)); });
  if (!costs) return 0;
  fuzz::check_round_trip(
      *costs, [](const ParallelCosts& of) { return to_json(of); }, parallel_costs_from_json);
  StageTable table(*costs);
  SearchQuestion question = question_of(*costs);
  question.most_work = 100'000;
  const SearchAnswer answer = search_pipeline(table, question);
  if (!answer.best) return 0;
  const double value = question.value(*answer.best);
  if (!(value >= 0 && value < infinite_seconds && answer.bound <= value))
    fuzz::broken("a pipeline without a finite value");
  for (const StageDetail& stage : table.details(*answer.best)) {
    if (stage.bytes > costs->memory) fuzz::broken("a stage above the memory");
  }
  return 0;
}
