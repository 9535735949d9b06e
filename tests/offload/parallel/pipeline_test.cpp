#include "offload/parallel/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/draws.h"
#include "tests/support/expect_refused.h"

namespace stowage {
namespace {

double between(std::mt19937_64& random, double low, double high) {
  return low + (high - low) * static_cast<double>(random() >> 11U) * 0x1p-53;
}

PipelineQuestion random_pipeline(std::mt19937_64& random, PipelineSchedule schedule, int virtual_stages = 1) {
  PipelineQuestion question;
  question.schedule = schedule;
  question.virtual_stages = virtual_stages;
  const std::size_t stages = 1 + random() % 6;
  question.micro_batches = virtual_stages == 1 ? 1 + static_cast<std::int64_t>(random() % 16)
                                               : static_cast<std::int64_t>(stages * (1 + random() % 4));
  for (std::size_t i = 0; i < stages * static_cast<std::size_t>(virtual_stages); ++i)
    question.times.push_back({between(random, 0, 2), between(random, 0, 4)});
  return question;
}

using ChunkPass = std::tuple<bool, int, std::int64_t>;  // backward, number of the chunk, micro-batch

// Returns what reads the output of an event; nullopt: the first chunk's backward has no reader.
std::optional<ChunkPass> reader_of(const ChunkPass& pass, int chunks) {
  const auto& [backward, number, micro_batch] = pass;
  if (!backward && number + 1 == chunks) return ChunkPass{true, number, micro_batch};
  if (backward && number == 0) return {};
  return ChunkPass{backward, number + (backward ? -1 : 1), micro_batch};
}

// Returns when each chunk has what it needs, computed from the ends of the events alone.
std::map<ChunkPass, double> arrivals_of(const PipelineQuestion& question, const PipelineRun& run) {
  const int chunks = static_cast<int>(question.times.size());
  const int stages = chunks / question.virtual_stages;
  std::map<ChunkPass, double> arrivals;
  for (std::int64_t i = 0; i < question.micro_batches; ++i) arrivals[{false, 0, i}] = 0;
  std::map<std::pair<int, int>, double> link_free;  // by sender, and whether to the next stage or the last
  for (const PipelineEvent& event : run.events) {
    const ChunkPass pass{event.backward, event.chunk * stages + event.stage, event.micro_batch};
    const std::optional<ChunkPass> reader = reader_of(pass, chunks);
    if (!reader) continue;
    const int from = std::get<1>(pass), to = std::get<1>(*reader);
    double arrival = event.end_seconds;
    if (from != to && !question.links.empty()) {
      const StageLink& link = question.links[static_cast<std::size_t>(std::min(from, to))];
      // Between two stages there is one way, forward and back from chunk to chunk.
      double& free = link_free[{event.stage, stages == 2 ? 1 : to - from}];
      free = std::max(free, event.end_seconds) + link.busy_seconds;
      arrival = free + link.latency_seconds;
    }
    arrivals[*reader] = arrival;
  }
  return arrivals;
}

// Walks the events by the rules alone: each chunk takes each micro-batch forward and back once, a stage does
// one thing at a time, and begins it as soon as it is free and has what it needs.
void expect_consistent(const PipelineQuestion& question, const PipelineRun& run) {
  const int stages = static_cast<int>(question.times.size()) / question.virtual_stages;
  const std::map<ChunkPass, double> arrivals = arrivals_of(question, run);
  std::map<ChunkPass, PipelineEvent> done;
  std::vector<double> free(static_cast<std::size_t>(stages), 0), busy = free;
  std::vector<std::int64_t> flying(static_cast<std::size_t>(stages), 0), most_flying = flying;
  double last = 0;
  for (const PipelineEvent& event : run.events) {
    const std::size_t s = static_cast<std::size_t>(event.stage);
    const ChunkPass pass{event.backward, event.chunk * stages + event.stage, event.micro_batch};
    EXPECT_TRUE(done.try_emplace(pass, event).second);
    const StageTimes& times = question.times[static_cast<std::size_t>(std::get<1>(pass))];
    const double seconds = event.backward ? times.backward_seconds : times.forward_seconds;
    ASSERT_TRUE(arrivals.contains(pass));
    EXPECT_NEAR(event.begin_seconds, std::max(free[s], arrivals.at(pass)), 1e-9);
    EXPECT_NEAR(event.end_seconds - event.begin_seconds, seconds, 1e-9);
    free[s] = event.end_seconds;
    busy[s] += seconds;
    last = std::max(last, event.end_seconds);
    flying[s] += event.backward ? -1 : 1;
    most_flying[s] = std::max(most_flying[s], flying[s]);
  }
  EXPECT_EQ(done.size(), 2 * question.times.size() * static_cast<std::size_t>(question.micro_batches));
  EXPECT_EQ(run.in_flight, most_flying);
  EXPECT_EQ(run.seconds, last);
  for (std::size_t s = 0; s < busy.size(); ++s) EXPECT_NEAR(run.busy_seconds[s], busy[s], 1e-9);
}

TEST(Pipeline, TwoStagesAndTwoMicroBatchesByHand) {
  // GPipe                     1F1B
  // 0  F0 F1 .. .. B0 B0 B1 B1    F0 F1 .. B0 B0 .. B1 B1
  // 1  .. F0 F1 B0 B0 …           .. F0 B0 B0 F1 B1 B1
  PipelineQuestion question{.micro_batches = 2, .times = {{1, 2}, {1, 2}}, .keep_events = true};
  question.schedule = PipelineSchedule::gpipe;
  EXPECT_EQ(simulate_pipeline(question).seconds, 9);
  question.schedule = PipelineSchedule::one_f_one_b;
  const PipelineRun run = simulate_pipeline(question);
  EXPECT_EQ(run.seconds, 9);
  EXPECT_EQ(run.busy_seconds, (std::vector<double>{6, 6}));
  EXPECT_EQ(run.in_flight, (std::vector<std::int64_t>{2, 1}));
  ASSERT_EQ(run.events.size(), 8U);
  const double begins[] = {0, 1, 4, 7, 1, 2, 4, 5};
  const bool backward[] = {false, false, true, true, false, true, false, true};
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(run.events[i].begin_seconds, begins[i]) << i;
    EXPECT_EQ(run.events[i].backward, backward[i]) << i;
    EXPECT_EQ(run.events[i].stage, static_cast<int>(i / 4));
  }
}

TEST(Pipeline, TwoStagesWithABusyLinkByHand) {
  // Latency 0.5, busy 2: the second send waits for the first one. 1F1B:
  // stage 0   F0 0-1   F1 1-2                                      B0 8-9           B1 10-11
  // forth        0: 1-3, 3.5   1: 3-5, 5.5
  // stage 1                   F0 3.5-4.5   B0 4.5-5.5   F1 5.5-6.5   B1 6.5-7.5
  // back                                        0: 5.5-7.5, 8   1: 7.5-9.5, 10
  PipelineQuestion question{.micro_batches = 2, .times = {{1, 1}, {1, 1}}, .links = {{0.5, 2}}};
  EXPECT_EQ(simulate_pipeline(question).seconds, 11);
  // GPipe: both backwards come behind F1, 6.5-7.5 and 7.5-8.5; they are back at 10 and 12.
  question.schedule = PipelineSchedule::gpipe;
  EXPECT_EQ(simulate_pipeline(question).seconds, 13);
}

TEST(Pipeline, TwoStagesOfTwoChunksByHand) {
  // Capitals are forwards, A and B the first and the second chunk of a stage. All take 1 s.
  //           0  1  2  3  4  5  6  7  8  9
  // stage 0   A0 A1 B0 B1 .. b0 .. b1 a0 a1
  // stage 1   .. A0 A1 B0 b0 B1 b1 a0 a1 ..
  const PipelineQuestion question{.schedule = PipelineSchedule::interleaved,
                                  .virtual_stages = 2,
                                  .micro_batches = 2,
                                  .times = {{1, 1}, {1, 1}, {1, 1}, {1, 1}},
                                  .keep_events = true};
  const PipelineRun run = simulate_pipeline(question);
  std::vector<std::string> drawn(2, std::string(10, '.'));
  for (const PipelineEvent& event : run.events) {
    const char* names = event.backward ? "ab" : "AB";
    drawn[static_cast<std::size_t>(event.stage)][static_cast<std::size_t>(event.begin_seconds)] =
        names[event.chunk];
  }
  EXPECT_EQ(drawn, (std::vector<std::string>{"AABB.b.baa", ".AABbBbaa."}));
  EXPECT_EQ(run.seconds, 10);
  EXPECT_EQ(run.in_flight, (std::vector<std::int64_t>{4, 3}));
}

// Returns Σ + (M-1) * max of one direction: of the stages, and of links that are machines of the flow, too.
double flow_seconds(const PipelineQuestion& question, double StageTimes::*of) {
  double sum = 0, most = 0;
  for (const StageTimes& times : question.times) {
    sum += times.*of;
    most = std::max(most, times.*of);
  }
  for (const StageLink& link : question.links) {
    sum += link.latency_seconds + link.busy_seconds;
    most = std::max(most, link.busy_seconds);
  }
  return sum + static_cast<double>(question.micro_batches - 1) * most;
}

TEST(Pipeline, GPipeTakesItsFormulaForAnyStagesAndLinks) {
  std::mt19937_64 random(31);
  for (int draw = 0; draw < testing::draws(2000, 200); ++draw) {
    PipelineQuestion question = random_pipeline(random, PipelineSchedule::gpipe);
    const auto expect_formula = [&] {
      const double formula = flow_seconds(question, &StageTimes::forward_seconds) +
                             flow_seconds(question, &StageTimes::backward_seconds);
      EXPECT_NEAR(simulate_pipeline(question).seconds, formula, 1e-9 * formula);
    };
    question.links.assign(question.times.size() - 1, {between(random, 0, 3), 0});
    expect_formula();
    for (StageLink& link : question.links) link = {between(random, 0, 3), between(random, 0, 3)};
    expect_formula();
  }
}

TEST(Pipeline, OneForwardOneBackwardTakesItsFormulaForEqualStages) {
  std::mt19937_64 random(37);
  for (int draw = 0; draw < testing::draws(500, 100); ++draw) {
    PipelineQuestion question = random_pipeline(random, PipelineSchedule::one_f_one_b);
    std::fill(question.times.begin(), question.times.end(), question.times.front());
    const double one = question.times.front().forward_seconds + question.times.front().backward_seconds;
    const double formula =
        (static_cast<double>(question.micro_batches) + static_cast<double>(question.times.size()) - 1) * one;
    EXPECT_NEAR(simulate_pipeline(question).seconds, formula, 1e-9 * formula);
  }
}

TEST(Pipeline, InterleavingDividesTheBubbleByTheVirtualStages) {
  for (const int virtual_stages : {1, 2, 4}) {
    for (const int stages : {1, 2, 3, 4, 8}) {
      for (const int rounds : {1, 2, 3, 5}) {
        PipelineQuestion question{.schedule = PipelineSchedule::interleaved,
                                  .virtual_stages = virtual_stages};
        question.micro_batches = stages * rounds;
        const double forward = 1.5, backward = 2.5;
        question.times.assign(static_cast<std::size_t>(stages) * static_cast<std::size_t>(virtual_stages),
                              {forward / virtual_stages, backward / virtual_stages});
        const double work = static_cast<double>(question.micro_batches) * (forward + backward);
        const double bubble = (stages - 1.0) / (virtual_stages * static_cast<double>(question.micro_batches));
        EXPECT_NEAR(simulate_pipeline(question).seconds, work * (1 + bubble), 1e-9 * work)
            << stages << " stages, " << rounds << " rounds, " << virtual_stages << " virtual stages";
      }
    }
  }
}

// Breadth-first takes as long, whether the stages divide the micro-batches or not, and with fewer of these a
// stage waits for each way round. Its last chunk has in flight what 1F1B has, the others all micro-batches.
TEST(Pipeline, BreadthFirstDividesTheBubbleToo) {
  for (const int virtual_stages : {1, 2, 4})
    for (const int stages : {1, 2, 3, 4, 8})
      for (const std::int64_t micro_batches : {1, 2, 5, 8, 11}) {
        PipelineQuestion question{.schedule = PipelineSchedule::breadth_first,
                                  .virtual_stages = virtual_stages,
                                  .micro_batches = micro_batches,
                                  .keep_events = true};
        question.times.assign(static_cast<std::size_t>(stages * virtual_stages),
                              {1.5 / virtual_stages, 2.5 / virtual_stages});
        const PipelineRun run = simulate_pipeline(question);
        expect_consistent(question, run);
        const double way = 4.0 / virtual_stages;
        const auto wait = static_cast<double>(std::max<std::int64_t>(0, stages - micro_batches));
        EXPECT_NEAR(
            run.seconds,
            4.0 * static_cast<double>(micro_batches) + (stages - 1) * way + (virtual_stages - 1) * wait * way,
            1e-9)
            << stages << " stages, " << micro_batches << " micro-batches, " << virtual_stages;
        for (int stage = 0; stage < stages; ++stage)
          EXPECT_EQ(
              run.in_flight[static_cast<std::size_t>(stage)],
              (virtual_stages - 1) * micro_batches + std::min<std::int64_t>(micro_batches, stages - stage));
      }
}

TEST(Pipeline, KeepsAsManyMicroBatchesInFlightAsTheScheduleSays) {
  std::mt19937_64 random(41);
  for (int draw = 0; draw < 200; ++draw) {
    PipelineQuestion question = random_pipeline(random, PipelineSchedule::one_f_one_b);
    const std::int64_t stages = static_cast<std::int64_t>(question.times.size());
    const PipelineRun one = simulate_pipeline(question);
    question.schedule = PipelineSchedule::gpipe;
    const PipelineRun all = simulate_pipeline(question);
    for (std::int64_t stage = 0; stage < stages; ++stage) {
      EXPECT_EQ(one.in_flight[static_cast<std::size_t>(stage)],
                std::min(question.micro_batches, stages - stage));
      EXPECT_EQ(all.in_flight[static_cast<std::size_t>(stage)], question.micro_batches);
    }
  }
}

TEST(Pipeline, InterleavedStagesKeepTheirWarmUpAndOneMoreInFlight) {
  for (const int virtual_stages : {2, 3, 4}) {
    for (const int stages : {1, 2, 3, 4, 8}) {
      for (const int rounds : {1, 2, 3}) {
        PipelineQuestion question{.schedule = PipelineSchedule::interleaved,
                                  .virtual_stages = virtual_stages,
                                  .micro_batches = stages * rounds,
                                  .keep_events = true};
        question.times.assign(static_cast<std::size_t>(stages) * static_cast<std::size_t>(virtual_stages),
                              {1, 2});
        const PipelineRun run = simulate_pipeline(question);
        expect_consistent(question, run);
        for (int stage = 0; stage < stages; ++stage) {
          const std::int64_t warm_up = 2 * (stages - stage - 1) + (virtual_stages - 1) * stages;
          EXPECT_EQ(run.in_flight[static_cast<std::size_t>(stage)],
                    std::min(warm_up + 1, question.micro_batches * virtual_stages));
        }
      }
    }
  }
}

TEST(Pipeline, EventsKeepTheirRules) {
  std::mt19937_64 random(43);
  for (int draw = 0; draw < testing::draws(400, 60); ++draw) {
    const int virtual_stages = 1 << (draw % 3);
    const PipelineSchedule schedule = random() % 3 == 0    ? PipelineSchedule::breadth_first
                                      : virtual_stages > 1 ? PipelineSchedule::interleaved
                                      : random() % 2 == 0  ? PipelineSchedule::gpipe
                                                           : PipelineSchedule::one_f_one_b;
    PipelineQuestion question = random_pipeline(random, schedule, virtual_stages);
    question.keep_events = true;
    for (std::size_t i = 0; i + 1 < question.times.size(); ++i)
      question.links.push_back(
          {random() % 2 == 0 ? 0 : between(random, 0, 1), random() % 2 == 0 ? 0 : between(random, 0, 1)});
    expect_consistent(question, simulate_pipeline(question));
  }
}

TEST(Pipeline, RefusesWhatIsNoPipeline) {
  const PipelineQuestion good{.micro_batches = 4, .times = {{1, 1}, {1, 1}}};
  const auto refused = [&](auto change, const char* words) {
    PipelineQuestion question = good;
    change(question);
    test::expect_refused([&] { simulate_pipeline(question); }, words);
  };
  simulate_pipeline(good);
  refused([](PipelineQuestion& q) { q.micro_batches = 0; }, "0 micro-batches");
  refused([](PipelineQuestion& q) { q.micro_batches = -4; }, "-4 micro-batches");
  refused([](PipelineQuestion& q) { q.virtual_stages = 0; }, "0 virtual stages");
  refused([](PipelineQuestion& q) { q.times.clear(); }, "0 times");
  refused([](PipelineQuestion& q) { q.links.resize(2); }, "2 links between 2 stages");
  refused([](PipelineQuestion& q) { q.virtual_stages = 2; }, "belong to schedules with chunks");
  refused([](PipelineQuestion& q) { q.virtual_stages = std::numeric_limits<int>::max(); },
          "2 times for 2147483647 virtual stages");
  for (const std::int64_t micro_batches :
       {most_pipeline_events / 4 + 1, std::int64_t{1} << 62, std::numeric_limits<std::int64_t>::max()})
    refused([&](PipelineQuestion& q) { q.micro_batches = micro_batches; }, "16777216 events are simulated");
  refused([](PipelineQuestion& q) { q.times[1].forward_seconds = -1; }, "times[1].forward_seconds is -1");
  refused([](PipelineQuestion& q) { q.times[0].backward_seconds = std::nan(""); },
          "times[0].backward_seconds is nan");
  refused([](PipelineQuestion& q) { q.links = {{INFINITY, 0}}; }, "links[0].latency_seconds is inf");
  refused([](PipelineQuestion& q) { q.links = {{0, -1e-9}}; }, "links[0].busy_seconds is -1e-09");
  refused([](PipelineQuestion& q) { q.times[0].forward_seconds = 1e308; }, "give smaller ones");
  refused(
      [](PipelineQuestion& q) {
        q.schedule = PipelineSchedule::interleaved;
        q.virtual_stages = 2;
        q.times.resize(4);
        q.micro_batches = 5;
      },
      "2 stages do not divide 5 micro-batches");
}

}  // namespace
}  // namespace stowage
