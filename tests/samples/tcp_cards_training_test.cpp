// Ranks that are processes with a card each, without MPI, over the fakes of CUDA and NCCL: the bits of one
// card.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/samples/card_training.h"
#include "tests/samples/documents.h"
#include "tests/samples/machine_json.h"
#include "tests/samples/tcp_runs.h"

namespace stowage::samples {
namespace {

using ::testing::HasSubstr;

TEST(TcpCards, LeaveTheBitsOfOneCard) {
  const TemporaryFolder folder;
  const std::string weights = folder.file("weights"), log = folder.file("log");
  Words training = card_training(folder.make("text", documents()),
                                 folder.make("machine.json", machine_json({DataType::f32, DataType::bf16})));
  training.insert(training.end(), {"--weights", weights, "--log", log});
  well(run_program(STOWAGE_TRAIN_GPT, training));
  const std::string whole = numbers_in(log) + contents_of(weights);
  const ProgramResult result =
      all_well(run_ranks({.more = {"STOWAGE_FAKE_CUDA_CARDS=2"}}, STOWAGE_TRAIN_GPT, training));
  EXPECT_THAT(result.output, HasSubstr("CUDA device 0"));
  EXPECT_TRUE(numbers_in(log) + contents_of(weights) == whole);
}

}  // namespace
}  // namespace stowage::samples
