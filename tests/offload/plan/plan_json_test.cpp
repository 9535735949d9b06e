#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "stowage/error.h"
#include "stowage/plan.h"
#include "tests/offload/plan/older_plan_json.h"

namespace stowage {
namespace {

using ::testing::HasSubstr;

// Every field differs from its default, and the numbers are ones that a careless writer rounds.
Plan full_plan() {
  Plan plan;
  plan.policy = "auto";
  plan.buckets = {{"weights \"0\"",
                   TensorKind::parameter,
                   Residency::streamed,
                   {{MemoryId::host, true}},
                   Bytes{1} << 63,
                   {{0, 0}, {7, 64}}},
                  {"g\n\xc3\xa4",
                   TensorKind::gradient,
                   Residency::transient,
                   {{MemoryId::host, false}},
                   12,
                   {{no_id - 1, 4}}},
                  {"", TensorKind::workspace, Residency::host, {}, 0, {}}};
  plan.lifetimes = {{1, 0, 4, 256, 2}, {0, -3, std::numeric_limits<Position>::max() / 4, 0, no_id}};
  plan.instructions = {{InstructionKind::prefetch, LaneRole::h2d, no_id, 0, {}, {{2, 1}}},
                       {InstructionKind::launch, LaneRole::compute, 5, no_id, {1, 0}, {{0, 0}}},
                       {InstructionKind::recompute, LaneRole::compute, 4, no_id, {1}, {}},
                       {InstructionKind::offload, LaneRole::d2h, no_id, 1, {}, {{1, 0}, {2, 1}}},
                       {InstructionKind::gate, LaneRole::host, 9, no_id, {}, {{3, 0}}},
                       {InstructionKind::commit, LaneRole::host, 8, no_id, {}, {}},
                       {InstructionKind::commit, LaneRole::compute, 7, no_id, {0}, {}}};
  plan.gate = 4;
  plan.alignment = 512;
  plan.device_peak_bytes = std::numeric_limits<Bytes>::max();
  plan.live_peak_bytes = (Bytes{1} << 53) + 1;
  plan.host_bytes = 3;
  plan.pinned_bytes = 4;
  plan.h2d_bytes = 5;
  plan.d2h_bytes = 6;
  plan.bucket_bytes = 7;
  plan.predicted_step_seconds = 0.1 + 0.2;
  plan.predicted_stall_seconds = 5e-324;
  plan.half_clipped_seconds = plan.clipped_seconds = plan.predicted_step_seconds;
  plan.lower_bound_seconds = 1.0 / 3;
  plan.bound_by = "h2d";
  return plan;
}

std::string message_of(const std::string& text) {
  try {
    plan_from_json(text);
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "no error";
}

std::string with(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(PlanJson, ReadsBackEqual) {
  EXPECT_EQ(plan_from_json(to_json(full_plan())), full_plan());
  EXPECT_EQ(plan_from_json(to_json(Plan{})), Plan{});
}

TEST(PlanJson, OlderVersionsAreRead) {
  nlohmann::json json = testing::in_version_3(full_plan());
  EXPECT_EQ(plan_from_json(json.dump()), full_plan());
  json["instructions"][5]["kind"] = "speculate";
  EXPECT_THAT(message_of(json.dump()), HasSubstr("plan.instructions[5].kind has an unknown name"));
  json = testing::in_version_2(full_plan());
  EXPECT_EQ(plan_from_json(json.dump()), full_plan());
  json["version"] = 1;
  EXPECT_EQ(plan_from_json(json.dump()), full_plan());
  json["instructions"][1]["kind"] = "commit";
  EXPECT_THAT(message_of(json.dump()), HasSubstr("plan.instructions[1].kind has an unknown name"));
  json = testing::in_version_2(full_plan());
  json["buckets"][2]["pinned"] = true;
  EXPECT_THAT(message_of(json.dump()), HasSubstr("plan.buckets[2] is pinned and not on the host"));
  json = testing::in_version_2(full_plan());
  json["instructions"][5]["lane"] = "compute";
  EXPECT_THAT(message_of(json.dump()), HasSubstr("plan.instructions[5].kind is no kind of that lane"));
  json = testing::in_version_2(full_plan());
  json["instructions"][1]["lane"] = "host";
  EXPECT_THAT(message_of(json.dump()), HasSubstr("plan.instructions[1].kind is no kind of that lane"));
  json = testing::in_version_3(full_plan());
  json["version"] = 2;
  EXPECT_THAT(message_of(json.dump()), HasSubstr("plan.buckets[0] has unknown keys"));
}

TEST(PlanJson, OrdersOfMicroBatchesReadBack) {
  Plan plan = full_plan();
  const auto text_with = [&](const std::string& order) {
    std::string text = to_json(plan);
    const std::string usual = "\"layer_major\"";
    return text.replace(text.find(usual), usual.size(), '"' + order + '"');
  };
  EXPECT_EQ(plan_from_json(text_with("batch_major")).order, MicroBatchOrder::ahead(1));
  EXPECT_EQ(plan_from_json(text_with("ahead 1")).order, MicroBatchOrder::ahead(1));
  EXPECT_EQ(plan_from_json(text_with("ahead 4294967295")).order, MicroBatchOrder::ahead(4294967295));
  for (const char* wrong : {"", "ahead", "ahead ", "ahead 0", "ahead -1", "ahead +1", "ahead  1", "ahead 1 ",
                            "ahead 4294967296", "ahead 1.5", "layer"})
    EXPECT_THAT(message_of(text_with(wrong)), HasSubstr("order")) << wrong;
  for (const std::uint32_t forwards : {1U, 2U, 77U}) {
    plan.order = MicroBatchOrder::ahead(forwards);
    EXPECT_EQ(plan_from_json(to_json(plan)), plan);
  }
}

TEST(PlanJson, SpeculatedUpdatesHaveRecordsWithinTheirBytes) {
  Plan plan = full_plan();
  plan.undo_bytes = 4096;
  plan.half_clipped_seconds = 0.5;
  plan.clipped_seconds = 0.7;
  plan.instructions.push_back(
      {InstructionKind::speculate, LaneRole::host, 9, no_id, {}, {{3, 0}}, {1024, 2048}});
  EXPECT_EQ(plan_from_json(to_json(plan)), plan);
  plan.instructions.back().part = {1024, 4097};
  EXPECT_THAT(message_of(to_json(plan)), HasSubstr("part[1] is above 4096"));
}

TEST(PlanJson, UpdatesInBackwardAndTheGradientRing) {
  Plan plan = full_plan();
  plan.optimizer_in_backward = true;
  plan.ring_bytes = 4096;
  plan.buckets[0].places = {{MemoryId::host, true, 1024}};
  EXPECT_EQ(plan_from_json(to_json(plan)), plan);
  plan.buckets[0].places[0].ring_span = 512;
  EXPECT_EQ(plan_from_json(to_json(plan)), plan);
  nlohmann::json json = nlohmann::json::parse(to_json(plan));
  json["buckets"][0]["places"][0]["ring_span"] = "512";
  EXPECT_THAT(message_of(json.dump()), HasSubstr("places[0].ring_span is no integer from 0 up"));
  json["buckets"][0]["places"][0].erase("ring_span");
  json["buckets"][0]["places"][0]["ring_offset"] = -1;
  EXPECT_THAT(message_of(json.dump()), HasSubstr("places[0].ring_offset is no integer from 0 up"));
  json = testing::in_version_4(plan);
  EXPECT_THAT(message_of(json.dump()), HasSubstr("plan.buckets[0].places[0] has unknown keys"));
  EXPECT_EQ(plan_from_json(testing::in_version_4(full_plan()).dump()), full_plan());
}

TEST(PlanJson, PlacesAreOneInEachMemoryWithoutAnArena) {
  const auto message = [](const char* places) {
    nlohmann::json json = nlohmann::json::parse(to_json(full_plan()));
    json["buckets"][0]["places"] = nlohmann::json::parse(places);
    return message_of(json.dump());
  };
  EXPECT_THAT(message(R"([{"memory": "device", "pinned": false}])"),
              HasSubstr("plan.buckets[0].places[0] is in a memory with an arena"));
  EXPECT_THAT(message(R"([{"memory": "host", "pinned": false}, {"memory": "host", "pinned": true}])"),
              HasSubstr("plan.buckets[0].places[1] is a second place in one memory"));
  const std::string host = R"({"memory": "host", "pinned": false})";
  EXPECT_THAT(message(("[" + host + "," + host + "," + host + "]").c_str()),
              HasSubstr("plan.buckets[0].places has more places than there are memories"));
  EXPECT_THAT(message(R"([{"memory": "disk", "pinned": false}])"), HasSubstr("has an unknown name"));
}

TEST(PlanJson, EveryEnumeratorReadsBack) {
  Plan plan;
  for (int kind = 0; kind < 6; ++kind) {
    for (int residency = 0; residency < 7; ++residency) {
      plan.buckets.push_back({"b", TensorKind(kind), Residency(residency), {}, 1, {}});
    }
  }
  plan.predicted_step_seconds = 1;
  for (int kind = 0; kind < 6; ++kind) {
    for (int lane = 0; lane < 4; ++lane) {
      plan.instructions.push_back({InstructionKind(kind), LaneRole(lane), no_id, no_id, {}, {}});
    }
  }
  EXPECT_EQ(plan_from_json(to_json(plan)), plan);
}

TEST(PlanJson, NamesAreThoseOfTheHeader) {
  EXPECT_EQ(to_string(Residency::resident), "resident");
  EXPECT_EQ(to_string(Residency::held), "held");
  EXPECT_EQ(to_string(Residency::streamed), "streamed");
  EXPECT_EQ(to_string(Residency::offloaded), "offloaded");
  EXPECT_EQ(to_string(Residency::recomputed), "recomputed");
  EXPECT_EQ(to_string(Residency::transient), "transient");
  EXPECT_EQ(to_string(Residency::host), "host");
  EXPECT_EQ(to_string(InstructionKind::launch), "launch");
  EXPECT_EQ(to_string(InstructionKind::recompute), "recompute");
  EXPECT_EQ(to_string(InstructionKind::prefetch), "prefetch");
  EXPECT_EQ(to_string(InstructionKind::offload), "offload");
  EXPECT_EQ(to_string(InstructionKind::gate), "gate");
  EXPECT_EQ(to_string(InstructionKind::commit), "commit");
  EXPECT_EQ(to_string(InstructionKind::speculate), "speculate");
}

TEST(PlanJson, SaysWhereTheTextIsWrong) {
  const std::string good = to_json(full_plan());
  EXPECT_THAT(message_of(""), HasSubstr("does not parse"));
  EXPECT_THAT(message_of("[]"), HasSubstr("plan"));
  EXPECT_THAT(message_of("{}"), HasSubstr("plan lacks \"format\""));
  EXPECT_THAT(message_of(with(good, "stowage.plan", "stowage.plum")), HasSubstr("format"));
  EXPECT_THAT(message_of(with(good, "\"version\": 5", "\"version\": 6")), HasSubstr("version"));
  EXPECT_THAT(message_of(with(good, "\"alignment\"", "\"alignmint\"")), HasSubstr("alignment"));
  EXPECT_THAT(message_of(with(good, "\"alignment\": 512", "\"alignment\": -512")),
              HasSubstr("plan.alignment"));
  EXPECT_THAT(message_of(with(good, "\"alignment\": 512", "\"alignment\": 512.5")),
              HasSubstr("plan.alignment"));
  EXPECT_THAT(message_of(with(good, "\"gate\": 4", "\"gate\": 7")), HasSubstr("plan.gate is 7, of 7 there"));
  EXPECT_THAT(message_of(with(good, "\"bucket\": 1", "\"bucket\": 3")),
              HasSubstr("plan.lifetimes[0].bucket"));
  EXPECT_THAT(message_of(with(good, "\"lane\": \"d2h\"", "\"lane\": \"up\"")),
              HasSubstr("plan.instructions[3].lane has an unknown name"));
  EXPECT_THAT(message_of(with(good, "\"lifetime\": 1", "\"lifetime\": 2")),
              HasSubstr("plan.instructions[3].lifetime"));
  EXPECT_THAT(message_of(with(good, "\"pinned\": true", "\"pinned\": 1")), HasSubstr("places[0].pinned"));
  EXPECT_THAT(message_of(with(good, "\"op\": 5", "\"op\": 5000000000")),
              HasSubstr("plan.instructions[1].op"));
  EXPECT_THAT(message_of(with(good, "\"bound_by\": \"h2d\"", "\"bound_by\": 1e999")), HasSubstr("parse"));
}

TEST(PlanJson, RefusesTimesAndAlignmentsThatNoPlanHas) {
  const std::string good = to_json(full_plan());
  const std::string step = "\"predicted_step_seconds\": 0.30000000000000004";
  for (const char* time : {"-1.5", "0", "-0.0", "5e-324", "1e300"}) {
    EXPECT_THAT(message_of(with(good, step, std::string("\"predicted_step_seconds\": ") + time)),
                HasSubstr("predicted_step_seconds is outside 1e-12 to"))
        << time;
  }
  EXPECT_THAT(message_of(with(good, "\"predicted_stall_seconds\": ", "\"predicted_stall_seconds\": -")),
              HasSubstr("predicted_stall_seconds is no time"));
  EXPECT_THAT(message_of(with(good, "\"lower_bound_seconds\": ", "\"lower_bound_seconds\": -")),
              HasSubstr("lower_bound_seconds is no time"));
  for (const char* alignment : {"0", "3", "513"}) {
    EXPECT_THAT(message_of(with(good, "\"alignment\": 512", std::string("\"alignment\": ") + alignment)),
                HasSubstr("alignment is no power of two"));
  }
}

TEST(PlanJson, RefusesOneNameTwiceAndAByteBehindTheText) {
  const std::string good = to_json(full_plan());
  EXPECT_THAT(message_of(with(good, "\"bound_by\"", "\"gate\": 1, \"bound_by\"")),
              HasSubstr("\"gate\" stands twice"));
  EXPECT_THAT(message_of(good + '\0'), HasSubstr("is 0, which no text has"));
}

TEST(PlanJson, RefusesToWriteWhatItCouldNotRead) {
  Plan plan = full_plan();
  plan.alignment = 0;
  EXPECT_THROW(to_json(plan), InvalidInput);
  plan = full_plan();
  plan.predicted_step_seconds = std::numeric_limits<double>::infinity();
  EXPECT_THROW(to_json(plan), InvalidInput);
  plan = full_plan();
  plan.buckets[0].name = "\xff";
  EXPECT_THROW(to_json(plan), InvalidInput);
}

TEST(PlanJson, EveryTruncationIsRefused) {
  const std::string good = to_json(full_plan());
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_THROW(plan_from_json(good.substr(0, length)), InvalidInput) << length;
  }
}

TEST(PlanJson, DamagedTextIsRefusedOrReadAsAPlan) {
  const std::string good = to_json(full_plan());
  std::mt19937_64 random(3);
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = good;
    for (std::uint64_t flips = 1 + random() % 3; flips > 0; --flips) {
      text[random() % text.size()] ^= static_cast<char>(1 << (random() % 8));
    }
    if (random() % 4 == 0) text.erase(random() % text.size(), 1 + random() % 40);
    try {
      const Plan plan = plan_from_json(text);
      EXPECT_EQ(plan_from_json(to_json(plan)), plan);
    } catch (const InvalidInput&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 10000);
}

TEST(PlanJson, DeepNestingIsRefused) {
  std::string deep(200000, '[');
  EXPECT_THROW(plan_from_json(deep), InvalidInput);
  deep.append(200000, ']');
  EXPECT_THROW(plan_from_json(deep), InvalidInput);
}

}  // namespace
}  // namespace stowage
