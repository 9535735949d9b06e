#include "offload/parallel/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

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

double sum(const PipelineQuestion& question, double StageTimes::*of) {
  double sum = 0;
  for (const StageTimes& times : question.times) sum += times.*of;
  return sum;
}
double most(const PipelineQuestion& question, double StageTimes::*of) {
  double most = 0;
  for (const StageTimes& times : question.times) most = std::max(most, times.*of);
  return most;
}

// Walks the events by the rules alone: what a stage may begin with, when, and how many things it or a link
// does.
void expect_consistent(const PipelineQuestion& question, const PipelineRun& run) {
  const int stages = static_cast<int>(question.times.size()) / question.virtual_stages;
  const int chunks = static_cast<int>(question.times.size());
  std::map<std::tuple<bool, int, std::int64_t>, PipelineEvent>
      done;  // by direction, number of the chunk, micro-batch
  std::map<int, double> free;
  std::map<int, std::int64_t> flying, most_flying;
  for (const PipelineEvent& event : run.events) {
    const int number = event.chunk * stages + event.stage;
    EXPECT_TRUE(done.try_emplace({event.backward, number, event.micro_batch}, event).second);
    EXPECT_GE(event.begin_seconds, free[event.stage]);
    free[event.stage] = event.end_seconds;
    const StageTimes& times = question.times[static_cast<std::size_t>(number)];
    EXPECT_NEAR(event.end_seconds - event.begin_seconds,
                event.backward ? times.backward_seconds : times.forward_seconds, 1e-9);
    flying[event.stage] += event.backward ? -1 : 1;
    most_flying[event.stage] = std::max(most_flying[event.stage], flying[event.stage]);
  }
  ASSERT_EQ(done.size(), 2 * question.times.size() * static_cast<std::size_t>(question.micro_batches));
  for (int stage = 0; stage < stages; ++stage)
    EXPECT_EQ(run.in_flight[static_cast<std::size_t>(stage)], most_flying[stage]);
  // Sends by link and direction: the seconds for which each has it.
  std::map<std::pair<bool, int>, std::vector<std::pair<double, double>>> busy;
  for (const auto& [key, event] : done) {
    const auto& [backward, number, micro_batch] = key;
    if (backward) {
      EXPECT_GE(event.begin_seconds, done.at({false, number, micro_batch}).end_seconds);
    }
    const int maker = backward ? number + 1 : number - 1;
    if (maker < 0 || maker == chunks) continue;
    const StageLink link = question.links.empty()
                               ? StageLink{}
                               : question.links[static_cast<std::size_t>(std::min(maker, number))];
    const PipelineEvent& made = done.at({backward, maker, micro_batch});
    EXPECT_GE(event.begin_seconds, made.end_seconds + link.busy_seconds + link.latency_seconds - 1e-9);
    busy[{backward, maker % stages}].push_back({made.end_seconds, link.busy_seconds});
  }
  // What leaves a link last cannot have left before all of the link's work since any beginning was done.
  for (auto& [link, sends] : busy) {
    std::sort(sends.begin(), sends.end());
    double free_at = 0;
    for (const auto& [made, seconds] : sends) free_at = std::max(free_at, made) + seconds;
    EXPECT_LE(free_at, run.seconds + 1e-9);
  }
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

TEST(Pipeline, GPipeTakesItsFormulaForAnyStagesAndAnyTransfer) {
  std::mt19937_64 random(31);
  for (int draw = 0; draw < testing::draws(2000, 200); ++draw) {
    PipelineQuestion question = random_pipeline(random, PipelineSchedule::gpipe);
    const double stages = static_cast<double>(question.times.size());
    const double waits = static_cast<double>(question.micro_batches - 1);
    const double latency = between(random, 0, 3);
    question.links.assign(question.times.size() - 1, {latency, 0});
    const double formula = sum(question, &StageTimes::forward_seconds) +
                           waits * most(question, &StageTimes::forward_seconds) +
                           sum(question, &StageTimes::backward_seconds) +
                           waits * most(question, &StageTimes::backward_seconds) + 2 * (stages - 1) * latency;
    EXPECT_NEAR(simulate_pipeline(question).seconds, formula, 1e-9 * formula);
    // A link that is busy while it sends is one more stage of the flow.
    const double busy = between(random, 0, 3);
    question.links.assign(question.times.size() - 1, {0, busy});
    const double slowest = question.links.empty() ? 0 : busy;
    const double with_links = sum(question, &StageTimes::forward_seconds) +
                              waits * std::max(slowest, most(question, &StageTimes::forward_seconds)) +
                              sum(question, &StageTimes::backward_seconds) +
                              waits * std::max(slowest, most(question, &StageTimes::backward_seconds)) +
                              2 * (stages - 1) * busy;
    EXPECT_NEAR(simulate_pipeline(question).seconds, with_links, 1e-9 * with_links);
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
        question.times.assign(static_cast<std::size_t>(stages * virtual_stages),
                              {forward / virtual_stages, backward / virtual_stages});
        const double work = static_cast<double>(question.micro_batches) * (forward + backward);
        const double bubble = (stages - 1.0) / (virtual_stages * static_cast<double>(question.micro_batches));
        EXPECT_NEAR(simulate_pipeline(question).seconds, work * (1 + bubble), 1e-9 * work)
            << stages << " stages, " << rounds << " rounds, " << virtual_stages << " virtual stages";
      }
    }
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

TEST(Pipeline, EventsKeepTheirRules) {
  std::mt19937_64 random(43);
  for (int draw = 0; draw < testing::draws(400, 60); ++draw) {
    const int virtual_stages = 1 << (draw % 3);
    const PipelineSchedule schedule = virtual_stages > 1  ? PipelineSchedule::interleaved
                                      : random() % 2 == 0 ? PipelineSchedule::gpipe
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
  refused([](PipelineQuestion& q) { q.virtual_stages = 0; }, "0 virtual stages");
  refused([](PipelineQuestion& q) { q.times.clear(); }, "0 times");
  refused([](PipelineQuestion& q) { q.links.resize(2); }, "2 links between 2 stages");
  refused([](PipelineQuestion& q) { q.virtual_stages = 2; }, "belong to the interleaved schedule");
  refused([](PipelineQuestion& q) { q.micro_batches = std::int64_t{1} << 62; }, "events are simulated");
  refused([](PipelineQuestion& q) { q.times[1].forward_seconds = -1; }, "a stage's time");
  refused([](PipelineQuestion& q) { q.times[1].backward_seconds = std::nan(""); }, "a stage's time");
  refused([](PipelineQuestion& q) { q.links = {{INFINITY, 0}}; }, "a link's time");
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
