// The suite of all communicators, over the module as programs load it. Started by mpirun.
#include "tests/communicator/communicator_conformance.h"
#include "tests/communicator/mpi/mpi_ranks.h"
#include "tests/device/simulated/executors.h"

namespace stowage {
namespace {

std::vector<CommunicatorGroup> mpi_groups() {
  std::vector<CommunicatorGroup> groups;
  for (const Executor executor : {Executor::threaded, Executor::virtual_time})
    groups.push_back(
        {executor_name(executor), ranks_of_job(), true, [=](const std::function<void(TestRank&)>& body) {
           run_in_job(
               {.capacity = 64_MiB, .executor = executor},
               [](Device& device) { return open_mpi_communicator(device, job_channel()); }, body);
         }});
  return groups;
}
INSTANTIATE_TEST_SUITE_P(Mpi, CommunicatorConformance, testing::ValuesIn(mpi_groups()), group_name);

// Such messages are not sent before their receiver is there.
TEST_P(CommunicatorConformance, LongMessagesArriveWhole) {
  constexpr Bytes piece = 3'000'001;
  run([](TestRank& r) {
    const Bytes whole = times(r.size, piece);
    const DeviceMemory from(r.device, MemoryKind::device, whole), to(r.device, MemoryKind::device, whole);
    r.put(from.data(), r.patterns(r.rank, 0, whole, 2));
    r.communicator.exchange(r.lane.id(), from.data(), to.data(), piece);
    r.synchronise();
    for (int q = 0; q < r.size; ++q)
      ASSERT_EQ(r.get(to.data() + times(q, piece), piece), r.patterns(q, times(r.rank, piece), piece, 2));
  });
}

// The lanes come at 1, 2, … s.
TEST(MpiCommunicator, InVirtualTimeAllEndTogether) {
  run_in_job(
      {.capacity = 1_MiB, .executor = Executor::virtual_time},
      [](Device& device) {
        return open_mpi_communicator(device, job_channel(), {.peer = {1000, 0.5, true}});
      },
      [](TestRank& r) {
        const DeviceMemory pinned(r.device, MemoryKind::pinned, 4000);
        const Event begin(r.device), gathered(r.device);
        r.device.record(begin.id(), r.lane.id());
        r.device.launch(r.lane.id(), {"work", [](void*) {}, nullptr, {}, 1.0 + r.rank});
        r.communicator.all_gather(r.lane.id(), pinned.data(), 1000);
        r.device.record(gathered.id(), r.lane.id());
        r.synchronise();
        EXPECT_DOUBLE_EQ(r.device.elapsed_seconds(begin.id(), gathered.id()),
                         r.size == 1 ? 1 : r.size + 0.5 + (r.size - 1));
      });
}

TEST(MpiCommunicator, ARankThatHasEndedIsNotWaitedFor) {
  if (ranks_of_job() == 1) GTEST_SKIP() << "one rank waits for nobody";
  const auto device = open_simulated_device({.capacity = 1_MiB});
  auto communicator = open_mpi_communicator(*device, job_channel());
  communicator->barrier();
  if (communicator->rank() == 0) return communicator.reset();
  EXPECT_THROW(communicator->barrier(), CommunicatorError);
  EXPECT_THROW(communicator->check(), CommunicatorError);
}

}  // namespace
}  // namespace stowage
