#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "offload/parallel/costs.h"
#include "offload/parallel/stage_table.h"
#include "tests/support/expect_refused.h"
#include "tests/support/parallel_chains.h"

namespace stowage {
namespace {

using Json = nlohmann::json;

Json small_file() {
  return Json::parse(R"({
    "format": "stowage.parallel_costs", "version": 1, "devices": 4, "batch": 64, "micro_batches": 8,
    "memory_bytes": 1000, "link": {"bytes_per_second": 1e9, "carried_by": "devices"}, "exchange_bytes_per_second": 1e9,
    "layers": [
      {"name": "embedding", "variants": [{"name": "one", "devices": 1, "forward_seconds": 0.5, "backward_seconds": 1}]},
      {"name": "block", "repeat": 3, "variants": [
        {"name": "one", "devices": 1, "forward_seconds": 1, "backward_seconds": 2, "bytes": 10, "bytes_in_flight": 5},
        {"name": "two", "parts": 2, "split": 1, "forward_seconds": 0.6, "backward_seconds": 1.2, "exchanged_bytes": 7},
        {"name": "split", "devices": 2, "split": 2, "forward_seconds": 0.7, "backward_seconds": 1.3,
         "seconds_with_exchange": 2.5}]}],
    "cut_bytes": 100,
    "values": [{"from": "embedding", "to": "block.2", "bytes": 8, "entering": 3}],
    "changes": [{"from": "two", "to": "split", "seconds": 0.25}]})");
}

ParallelCosts read(const Json& json) { return parallel_costs_from_json(json.dump()); }

TEST(ParallelCostsJson, ReadsEveryField) {
  const ParallelCosts costs = read(small_file());
  EXPECT_EQ(costs.devices, 4);
  EXPECT_EQ(costs.batch, 64);
  EXPECT_EQ(costs.micro_batches, 8);
  EXPECT_EQ(costs.memory, 1000U);
  EXPECT_EQ(costs.objective, ParallelObjective::step);
  EXPECT_EQ(costs.order, PipelineOrder::one_f_one_b);
  EXPECT_EQ(costs.link.bytes_per_second, 1e9);
  EXPECT_EQ(costs.link.latency_seconds, 0);
  ASSERT_EQ(costs.layers.size(), 4U);
  EXPECT_EQ(costs.layers[0].name, "embedding");
  EXPECT_EQ(costs.layers[3].name, "block.2");
  EXPECT_EQ(costs.layers[1].variants, costs.layers[3].variants);
  const std::vector<LayerVariant>& variants = costs.layers[1].variants;
  ASSERT_EQ(variants.size(), 3U);
  EXPECT_EQ(variants[0].bytes_in_flight, 5U);
  EXPECT_EQ(variants[1].parts, 2);
  EXPECT_EQ(variants[1].exchanged_bytes, 7U);
  EXPECT_EQ(variants[2].parts, 1);
  EXPECT_EQ(variants[2].split, 2);
  EXPECT_EQ(variants[2].seconds_with_exchange, 2.5);
  EXPECT_FALSE(variants[1].seconds_with_exchange);
  EXPECT_EQ(costs.cut_bytes, (std::vector<Bytes>{100, 100, 100}));
  EXPECT_EQ(costs.values, (std::vector<CrossingValue>{{0, 3, 8, 3, 0}}));
  EXPECT_EQ(costs.changes, (std::vector<VariantChange>{{"two", "split", 0.25}}));
}

TEST(ParallelCostsJson, WritesWhatItReads) {
  std::mt19937_64 random(23);
  for (int draw = 0; draw < 50; ++draw) {
    const ParallelCosts costs = testing::random_chain(random);
    const std::string text = to_json(costs);
    const ParallelCosts back = parallel_costs_from_json(text);
    EXPECT_EQ(to_json(back), text);
    EXPECT_EQ(back.memory, costs.memory);
    EXPECT_EQ(back.use_all_devices, costs.use_all_devices);
    EXPECT_EQ(back.values, costs.values);
    EXPECT_EQ(back.changes, costs.changes);
    ASSERT_EQ(back.layers.size(), costs.layers.size());
    for (std::size_t layer = 0; layer < costs.layers.size(); ++layer)
      EXPECT_EQ(back.layers[layer].variants, costs.layers[layer].variants);
  }
}

TEST(ParallelCostsJson, LeavesOutVariantsWhosePartsDoNotDivideAMicroBatch) {
  Json file = small_file();
  file["batch"] = 24;  // three samples a micro-batch
  const ParallelCosts costs = read(file);
  ASSERT_EQ(costs.layers[1].variants.size(), 2U);
  EXPECT_EQ(costs.layers[1].variants[1].name, "split");
  EXPECT_TRUE(costs.changes.empty()) << "one end of it was left out";
}

struct BadFile {
  const char* place;  // JSON pointer
  Json value;         // null: the field is removed
  const char* words;  // of the refusal
};

TEST(ParallelCostsJson, RefusesBadFieldsByName) {
  const Json one = {{"name", "one"}, {"devices", 1}, {"forward_seconds", 1}, {"backward_seconds", 1}};
  const Json far = {{"name", "far"}, {"devices", 8}, {"forward_seconds", 1}, {"backward_seconds", 1}};
  const Json three = {{"name", "three"}, {"devices", 3}, {"forward_seconds", 1}, {"backward_seconds", 1}};
  const BadFile bad[] = {
      {"/format", "stowage.machine", "'format' is not \"stowage.parallel_costs\""},
      {"/version", 2, "'version' is not"},
      {"/devices", 0, "'devices' is not a whole number from 1"},
      {"/devices", 1'000'000'000, "'devices' is not a whole number from 1"},
      {"/devices", 2.5, "'devices' is not an integer"},
      {"/micro_batches", 0, "'micro_batches' is not"},
      {"/micro_batches", 7, "'batch' is 64, which 7 micro-batches do not divide"},
      {"/batch", -1, "'batch' is not"},
      {"/memory_bytes", 0, "'memory_bytes' is not"},
      {"/memory_bytes", "16GiB", "'memory_bytes' is not an integer"},
      {"/objective", "fast", "'objective' is not a known word"},
      {"/schedule", "zero bubble", "'schedule' is not a known word"},
      {"/link", nullptr, "has bytes over cuts and no 'link'"},
      {"/link/bytes_per_second", 0, "'link.bytes_per_second' is not a rate"},
      {"/link/bytes_per_second", -1e9, "'link.bytes_per_second' is not a rate"},
      {"/link/bytes_per_second", 1e308, "'link.bytes_per_second' is not a rate"},
      {"/link/latency_seconds", -1, "'link.latency_seconds' is not seconds"},
      {"/link/speed", 1, "'link.speed' is not a known field"},
      {"/exchange_bytes_per_second", nullptr, "'exchange_bytes_per_second' is 0"},
      {"/layers", Json::array(), "'layers' is not a list of at least one layer"},
      {"/layers/1/repeat", 0, "'layers[1].repeat' is not"},
      {"/layers/1/repeat", 1'000'000'000, "'layers[1].repeat' is not"},
      {"/layers/1/repeat", 1024, "'layers' has more than 1024 layers"},
      {"/layers/1/name", "", "'layers[1].name' is not a name"},
      {"/layers/1/variants", Json::array(), "layer \"block.0\" has no variant"},
      {"/layers/1/variants", Json::array({far}), "layer \"block.0\" has no variant for 4 devices or fewer"},
      {"/layers/1/variants", Json::array({three}), "no variant whose parts divide the 8 samples"},
      {"/layers/1/variants", Json::array({one, one}), "variant \"one\" stands twice"},
      {"/layers/1/variants/0/forward_seconds", -1, "forward_seconds' is not seconds"},
      {"/layers/1/variants/0/forward_seconds", 1e308, "forward_seconds' is not seconds"},
      {"/layers/1/variants/0/backward_seconds", nullptr,
       "'layers[1].variants[0].backward_seconds' is not there"},
      {"/layers/1/variants/0/bytes", -1, "bytes' is not a whole number"},
      {"/layers/1/variants/0/bytes", 1e18, "bytes' is not an integer"},
      {"/layers/1/variants/0/bytes_in_fligth", 1, "bytes_in_fligth' is not a known field"},
      {"/layers/1/variants/2/devices", 3, "are not 'parts' times 'split'"},
      {"/layers/1/variants/0/devices", nullptr, "has no 'devices', and no 'parts' or 'split'"},
      {"/layers/1/variants/1/parts", 5000, "parts' is not a whole number"},
      {"/cut_bytes", Json::array({1, 2}), "'cut_bytes' has 2 numbers, and 4 layers have 3 cuts"},
      {"/cut_bytes", Json::array({1, 2, 3, 4}), "'cut_bytes' has 4 numbers, and 4 layers have 3 cuts"},
      {"/cut_bytes", -1, "'cut_bytes' is not a whole number"},
      {"/values/0/to", "block", "'values[0].to' is not the name of a layer"},
      {"/values/0/to", "embedding", "does not go from a layer to a later one"},
      {"/changes/0/to", "three", "'changes[0].to' is not the name of a variant"},
      {"/changes/0/seconds", -1, "'changes[0].seconds' is not seconds"},
      {"/link/carried_by", "parts", "mixes unlike parts or split in a stage"},
  };
  for (const BadFile& each : bad) {
    SCOPED_TRACE(each.place + (": " + each.value.dump()));
    Json file = small_file();
    const Json::json_pointer place(each.place);
    if (each.value.is_null()) {
      file.at(place.parent_pointer()).erase(place.back());
    } else {
      file[place] = each.value;
    }
    test::expect_refused([&] { read(file); }, each.words);
  }
  Json file = small_file();
  file["layers"].push_back(file["layers"][0]);
  test::expect_refused([&] { read(file); }, "layer \"embedding\" stands twice");
  file = small_file();
  file["changes"].push_back(file["changes"][0]);
  test::expect_refused([&] { read(file); }, "the change from \"two\" to \"split\" stands twice");
  for (const char* text : {"", "{", "[]", "NaN", "{\"format\": NaN}", "null"}) {
    test::expect_refused([&] { parallel_costs_from_json(text); }, "parallel costs: ");
  }
}

TEST(ParallelCosts, NumbersAtTheLimitsStayFinite) {
  ParallelCosts costs;
  costs.devices = 2;
  costs.micro_batches = most_micro_batches;
  costs.order = PipelineOrder::gpipe;
  costs.memory = most_memory;
  costs.link.bytes_per_second = least_rate;
  LayerVariant variant{.name = "most",
                       .forward_seconds = most_layer_seconds,
                       .backward_seconds = most_layer_seconds,
                       .bytes = most_layer_bytes,
                       .bytes_in_flight = 0};
  costs.layers = {{"a", {variant}}, {"b", {variant}}};
  costs.cut_bytes = {most_layer_bytes};
  StageTable table(costs);
  const SearchAnswer answer = search_pipeline(table, question_of(costs));
  ASSERT_TRUE(answer.best);
  EXPECT_TRUE(std::isfinite(question_of(costs).value(*answer.best)));
  costs.layers[1].variants[0].bytes_in_flight = most_layer_bytes;  // more bytes than 64 bits count
  StageTable larger(costs);
  EXPECT_FALSE(search_pipeline(larger, question_of(costs)).best);
}

}  // namespace
}  // namespace stowage
