#include "stowage/machine_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "src/graph/cost.h"
#include "tests/machine/sample_file.h"
#include "tests/support/expect_refused.h"

namespace stowage {
namespace {

TEST(MachineFile, GivesThePlannerTheRatesOfTheWorkType) {
  const MachineFile file = test::sample_file();
  const Machine machine = machine_for(file, DataType::bf16);
  EXPECT_EQ(machine.flops_per_second, 700e12);
  EXPECT_EQ(machine_for(file, DataType::f32).flops_per_second, 48e12);
  EXPECT_EQ(machine.h2d.bytes_per_second, 55e9);
  EXPECT_EQ(machine.h2d.latency_seconds, 1.0 / 96'000);
  EXPECT_EQ(machine.d2h.bytes_per_second, 52e9);
  EXPECT_EQ(machine.device_bytes_per_second, 3.9e12);
  EXPECT_EQ(machine.launch_seconds, 2.5e-6);
  EXPECT_EQ(machine.host_bytes_per_second, 150e9);  // of the most threads
  EXPECT_EQ(machine.overhead_bytes, 600_MiB);
  EXPECT_EQ(machine.h2d_both_bytes_per_second, 45e9);
  EXPECT_EQ(machine.d2h_both_bytes_per_second, 44e9);
  EXPECT_EQ(machine.host_total_bytes_per_second, 210e9);
}

TEST(MachineFile, TheCodecHasTheRatesOfTheWorkType) {
  MachineFile file = test::sample_file();
  const Machine machine = machine_for(file, DataType::bf16);
  EXPECT_EQ(machine.codec(CodeBits::four).encode_bytes_per_second, 1.25e12);
  EXPECT_EQ(machine.codec(CodeBits::four).decode_bytes_per_second, 3.25e12);
  EXPECT_EQ(machine.codec(CodeBits::eight).encode_bytes_per_second, 1.75e12);
  EXPECT_EQ(machine.codec(CodeBits::eight).decode_bytes_per_second, 3.75e12);
  EXPECT_EQ(machine_for(file, DataType::f32).codec(CodeBits::eight).encode_bytes_per_second, 2.5e12);
}

TEST(MachineFile, ACodecThatWasNotMeasuredHasSharesOfDeviceMemory) {
  const Machine machine = machine_for(test::sample_file(), DataType::f32);  // f32 has no codes of 4 bits
  EXPECT_EQ(machine.codec_4_bits.encode_bytes_per_second, 0);
  EXPECT_EQ(machine.codec_4_bits.decode_bytes_per_second, 0);
  EXPECT_DOUBLE_EQ(machine.codec(CodeBits::four).encode_bytes_per_second, 0.5 * 3.9e12);
  EXPECT_DOUBLE_EQ(machine.codec(CodeBits::four).decode_bytes_per_second, 0.9 * 3.9e12);
  EXPECT_EQ(machine.codec(CodeBits::eight).decode_bytes_per_second, 3.5e12);
}

TEST(MachineFile, TheCodecOfF16HasTheRatesOfBf16UnlessItHasItsOwn) {
  MachineFile file = test::sample_file();
  for (const char* backend : {"cuda", "simulated"}) {
    file.backend = backend;
    const Machine machine = machine_for(file, DataType::f16);
    EXPECT_EQ(machine.codec_4_bits.encode_bytes_per_second, 1.25e12) << backend;
    EXPECT_EQ(machine.codec_8_bits.decode_bytes_per_second, 3.75e12) << backend;
  }
  file.codec.push_back({DataType::f16, CodeBits::eight, {1e9, 2e9}});
  const Machine machine = machine_for(file, DataType::f16);
  EXPECT_EQ(machine.codec_4_bits.encode_bytes_per_second, 1.25e12);
  EXPECT_EQ(machine.codec_8_bits.encode_bytes_per_second, 1e9);
  EXPECT_EQ(machine.codec_8_bits.decode_bytes_per_second, 2e9);
}

TEST(MachineFile, HostMemoryInAllIsNoLessThanWhatWasSeenOfIt) {
  MachineFile file = test::sample_file();
  file.host_total_bytes_per_second = 0;  // a file of before
  EXPECT_EQ(machine_for(file, DataType::f32).host_total_bytes_per_second, 200e9) << "the best of any threads";
  file.host_rates = {{1, 20e9}};
  EXPECT_EQ(machine_for(file, DataType::f32).host_total_bytes_per_second, 89e9) << "both directions at once";
  file.h2d_both.fit.bytes_per_second = file.d2h_both.fit.bytes_per_second = 1e9;
  EXPECT_EQ(machine_for(file, DataType::f32).host_total_bytes_per_second, 55e9) << "one direction alone";
  file.host_total_bytes_per_second = 1e9;
  file.host_rates = {{1, 70e9}, {2, 60e9}};
  EXPECT_EQ(machine_for(file, DataType::f32).host_total_bytes_per_second, 60e9) << "the optimizer alone";
}

TEST(MachineFile, SeveralDevicesShareTheHostMemoryThatTheyAreAt) {
  const MachineFile file = test::sample_file();  // 8 devices, 4 at each memory
  const auto sharing = [&](int devices) {
    return 150e9 / machine_for(file, DataType::bf16, devices).host_bytes_per_second;
  };
  EXPECT_DOUBLE_EQ(sharing(1), 1);
  EXPECT_DOUBLE_EQ(sharing(2), 1) << "one at each memory";
  EXPECT_DOUBLE_EQ(sharing(3), 2);
  EXPECT_DOUBLE_EQ(sharing(4), 2);
  EXPECT_DOUBLE_EQ(sharing(8), 4);
  const Machine one = machine_for(file, DataType::bf16), eighth = machine_for(file, DataType::bf16, 8);
  EXPECT_DOUBLE_EQ(eighth.host_total_bytes_per_second, 210e9 / 4);
  EXPECT_EQ(eighth.flops_per_second, one.flops_per_second);
  EXPECT_EQ(eighth.codec_4_bits.encode_bytes_per_second, one.codec_4_bits.encode_bytes_per_second);
  EXPECT_EQ(one.peer.bytes_per_second, Machine{}.peer.bytes_per_second);
}

// 8 devices, 4 at each memory of 64 GiB, of which 4 are the system's.
TEST(MachineFile, NoDevicesPartOfTheHostBudgetIsMoreThanItsMemoryHas) {
  MachineFile file = test::sample_file();
  EXPECT_EQ(host_budget_for(file), 60_GiB);
  EXPECT_EQ(host_budget_for(file, 2), 120_GiB) << "a memory each";
  EXPECT_EQ(host_budget_for(file, 3), 90_GiB) << "two of them share one";
  EXPECT_EQ(host_budget_for(file, 4), 120_GiB);
  EXPECT_EQ(host_budget_for(file, 8), 120_GiB);
  file.peers->devices_per_host_memory = 8;
  for (const int devices : {1, 2, 8}) EXPECT_EQ(host_budget_for(file, devices), 60_GiB) << devices;
  file.host_memory_bytes = 1001;  // each of 8 has the same whole number of bytes
  EXPECT_EQ(host_budget_for(file, 8), Bytes{8 * ((1001 - 62) / 8)});
  file.peers->devices = 64;
  file.peers->devices_per_host_memory = 1;
  file.host_memory_bytes = Bytes{1} << 55U;  // the most
  EXPECT_EQ(host_budget_for(file, 64), 15 * (Bytes{1} << 57U));
}

TEST(MachineFile, AHostBudgetIsUnlimitedWhereTheFileDoesNotSayIt) {
  MachineFile file = test::sample_file();
  test::expect_refused([&] { host_budget_for(file, 9); }, "it has 8; give at most so many");
  file.host_memory_bytes = 0;
  EXPECT_EQ(host_budget_for(file), unlimited);
  EXPECT_EQ(host_budget_for(file, 8), unlimited);
  file.peers.reset();
  test::expect_refused([&] { host_budget_for(file, 2); }, "its file has no peer link");
  test::expect_refused([&] { host_budget_for(file, 0); }, "give at least 1");
}

TEST(MachineFile, CardsThatTrainTogetherHaveMemoryToReachEachOther) {
  MachineFile file = test::sample_file();
  EXPECT_EQ(overhead_for_peers("cuda", 1), 0U);
  EXPECT_EQ(overhead_for_peers("cuda", 2), 512_MiB);
  EXPECT_EQ(machine_for(file, DataType::bf16).overhead_bytes, 600_MiB);
  EXPECT_EQ(machine_for(file, DataType::bf16, 8).overhead_bytes, 600_MiB + 512_MiB);
  file.backend = "simulated";
  EXPECT_EQ(overhead_for_peers("simulated", 2), 0U);
  EXPECT_EQ(machine_for(file, DataType::bf16, 8).overhead_bytes, 600_MiB);
}

TEST(MachineFile, ALinkIsNoFasterThanItsDevicesPartOfHostMemory) {
  MachineFile file = test::sample_file();
  const Machine quarter = machine_for(file, DataType::bf16, 8);
  EXPECT_EQ(quarter.h2d.bytes_per_second, 210e9 / 4) << "of 55 GB/s alone";
  EXPECT_EQ(quarter.d2h.bytes_per_second, 52e9);
  EXPECT_EQ(quarter.h2d_both_bytes_per_second, 45e9);
  file.peers->devices_per_host_memory = 8;
  const Machine eighth = machine_for(file, DataType::bf16, 8);
  for (const double rate : {eighth.h2d.bytes_per_second, eighth.d2h.bytes_per_second,
                            eighth.h2d_both_bytes_per_second, eighth.d2h_both_bytes_per_second})
    EXPECT_EQ(rate, 210e9 / 8);
  EXPECT_EQ(eighth.h2d.latency_seconds, 1.0 / 96'000);
}

TEST(MachineFile, LinksHaveTheirPartOfWhatTheyHadTogether) {
  MachineFile file = test::sample_file();  // 8 devices, 4 at each memory
  file.peers->together = LinkRates{30e9, 60e9, 25e9, 40e9};
  const Machine all = machine_for(file, DataType::bf16, 8);
  EXPECT_EQ(all.h2d.bytes_per_second, 30e9);
  EXPECT_EQ(all.d2h.bytes_per_second, 52e9) << "no more than alone";
  EXPECT_EQ(all.h2d_both_bytes_per_second, 25e9);
  EXPECT_EQ(all.d2h_both_bytes_per_second, 40e9);
  EXPECT_EQ(all.host_total_bytes_per_second, 65e9) << "4 of them had 260 GB/s of it";
  const Machine half = machine_for(file, DataType::bf16, 4);
  EXPECT_EQ(half.h2d.bytes_per_second, 55e9) << "of 8 times 30, which leave it what it has alone";
  EXPECT_EQ(half.h2d_both_bytes_per_second, 45e9);
  EXPECT_EQ(machine_for(file, DataType::bf16).host_total_bytes_per_second, 210e9);
}

TEST(MachineFile, SimulatedDevicesComputeWithTheSameCores) {
  MachineFile file = test::sample_file();
  file.backend = "simulated";
  const Machine one = machine_for(file, DataType::bf16), fourth = machine_for(file, DataType::bf16, 4);
  EXPECT_EQ(fourth.flops_per_second, one.flops_per_second / 4);
  EXPECT_EQ(fourth.device_bytes_per_second, one.device_bytes_per_second / 4);
  EXPECT_EQ(fourth.codec_4_bits.encode_bytes_per_second, 1.25e12 / 4);
  EXPECT_EQ(fourth.codec_4_bits.decode_bytes_per_second, 3.25e12 / 4);
  EXPECT_EQ(fourth.codec_8_bits.encode_bytes_per_second, 1.75e12 / 4);
  EXPECT_EQ(fourth.codec_8_bits.decode_bytes_per_second, 3.75e12 / 4);
  EXPECT_DOUBLE_EQ(machine_for(file, DataType::f32, 4).codec(CodeBits::four).encode_bytes_per_second,
                   0.5 * 3.9e12 / 4)
      << "not measured";
  Graph graph;
  graph.share.ranks = 4;
  graph.ops.resize(1);
  graph.ops[0].kernel = "linear";
  graph.ops[0].cost = {1e9, 3e6};
  set_op_seconds(file, DataType::bf16, fourth, graph);
  EXPECT_EQ(graph.ops[0].cost.seconds, 4 * 2e-5);
}

TEST(MachineFile, PeersPastTheHostHaveTheirLinkAndThroughItHalfOfTheHostsRate) {
  MachineFile file = test::sample_file();
  Machine machine = machine_for(file, DataType::bf16, 8);
  EXPECT_EQ(machine.peer.bytes_per_second, 400e9);
  EXPECT_EQ(machine.peer.latency_seconds, 2e-5);
  EXPECT_EQ(machine.peer_path, PeerPath::apart);
  file.peers->path = PeerPath::link;
  EXPECT_EQ(machine_for(file, DataType::bf16, 8).peer.bytes_per_second, 400e9);
  file.peers->path = PeerPath::host_memory;
  machine = machine_for(file, DataType::bf16, 8);
  EXPECT_EQ(machine.peer_path, PeerPath::host_memory);
  EXPECT_EQ(machine.peer.bytes_per_second, 210e9 / 4 / 2);
  EXPECT_EQ(machine.peer.latency_seconds, 2e-5);
  file.peers->link.bytes_per_second = 20e9;
  EXPECT_EQ(machine_for(file, DataType::bf16, 8).peer.bytes_per_second, 20e9);
}

TEST(MachineFile, RefusesMoreDevicesThanThereAre) {
  MachineFile file = test::sample_file();
  test::expect_refused([&] { machine_for(file, DataType::bf16, 9); },
                       "9 devices of the machine of Card \"7\": it has 8; give at most so many");
  for (const int none : {0, -1})
    test::expect_refused([&] { machine_for(file, DataType::bf16, none); }, "give at least 1");
  file.peers.reset();
  EXPECT_EQ(machine_for(file, DataType::bf16, 1).host_bytes_per_second, 150e9);
  test::expect_refused([&] { machine_for(file, DataType::bf16, 2); },
                       "2 devices of the machine of Card \"7\": its file has no peer link");
}

// What is left of Device where only the account of memory counts.
class Overhead : public Device {
 public:
  explicit Overhead(Bytes overhead) : overhead_(overhead) {}
  MemoryInfo memory_info() const override { return {10_GiB, 5_GiB, overhead_}; }
  Bytes granularity() const override { return 2_MiB; }

  DeviceInfo info() const override { return {}; }
  void* allocate(MemoryKind, Bytes) override { return nullptr; }
  void release(MemoryKind, void*) override {}
  void* reserve(Bytes) override { return nullptr; }
  void unreserve(void*) override {}
  void map_pieces(void*, Bytes, Bytes, Bytes) override {}
  void unmap(void*, Bytes, Bytes) override {}
  LaneId create_lane(LaneRole) override { return 0; }
  void destroy_lane(LaneId) override {}
  EventId create_event() override { return 0; }
  void destroy_event(EventId) override {}
  void record(EventId, LaneId) override {}
  void wait(LaneId, EventId) override {}
  bool query(EventId) override { return true; }
  void synchronise(EventId) override {}
  void synchronise_lane(LaneId) override {}
  double elapsed_seconds(EventId, EventId) override { return 0; }
  void copy(LaneId, void*, const void*, Bytes, std::string_view) override {}
  void launch(LaneId, const Launch&) override {}
  void discard(LaneId, void*, Bytes) override {}
  DeviceCounters counters() const override { return {}; }
  void reset_counters() override {}

 private:
  Bytes overhead_;
};

TEST(MachineFile, OverheadIsTheLargerAccountWithAPageAndCodeToCome) {
  EXPECT_EQ(overhead_on(Overhead(500_MiB), 600_MiB, 0), 666_MiB);
  EXPECT_EQ(overhead_on(Overhead(700_MiB), 600_MiB, 0), 766_MiB);
  EXPECT_EQ(overhead_on(Overhead(0), 600_MiB, 1_GiB), 0U);
}

TEST(MachineFile, PageTablesOfPinnedMemoryAreOverhead) {
  EXPECT_EQ(overhead_on(Overhead(500_MiB), 600_MiB, 64_GiB), 666_MiB + 128_MiB);
  Graph graph;
  for (const TensorKind kind : {TensorKind::parameter, TensorKind::activation, TensorKind::workspace}) {
    Tensor& tensor = graph.tensors.emplace_back();
    tensor.shape = {1024};
    tensor.kind = kind;
  }
  EXPECT_EQ(most_pinned_bytes(graph, unlimited), 8_KiB);
  EXPECT_EQ(most_pinned_bytes(graph, 5_KiB), 5_KiB);
}

TEST(MachineFile, F16HasTheRateOfBf16UnlessItHasItsOwn) {
  MachineFile file = test::sample_file();
  EXPECT_EQ(machine_for(file, DataType::f16).flops_per_second,
            machine_for(file, DataType::bf16).flops_per_second);
  file.matrix.push_back({DataType::f16, 123e9, {}});
  EXPECT_EQ(machine_for(file, DataType::f16).flops_per_second, 123e9);
}

TEST(MachineFile, RefusesATypeThatWasNotMeasured) {
  test::expect_refused([] { machine_for(test::sample_file(), DataType::f64); },
                       "has no rate for f64, only for f32, bf16");
  test::expect_refused([] { machine_for(MachineFile{}, DataType::f32); }, "only for no type");
}

TEST(MachineFile, TheWorkTypeOfAGraphIsThatOfItsParameters) {
  Graph graph;
  EXPECT_EQ(work_type(graph), DataType::f32);
  Tensor tokens, weight;
  tokens.type = DataType::i32;
  tokens.kind = TensorKind::input;
  weight.type = DataType::bf16;
  weight.kind = TensorKind::parameter;
  graph.tensors = {tokens, weight};
  EXPECT_EQ(work_type(graph), DataType::bf16);
}

TEST(MachineFile, TheWorkTypeIsThatOfMostParametersAndNeverOfWholeNumbers) {
  Graph graph;
  const auto add = [&](DataType type, std::int64_t elements) {
    Tensor tensor;
    tensor.type = type;
    tensor.shape = {elements};
    tensor.kind = TensorKind::parameter;
    graph.tensors.push_back(tensor);
  };
  add(DataType::i32, 1000);
  add(DataType::f32, 10);
  EXPECT_EQ(work_type(graph), DataType::f32);
  add(DataType::bf16, 30);
  EXPECT_EQ(work_type(graph), DataType::bf16);
}

TEST(MachineFile, OpsThatSayATypeHaveItsRate) {
  MachineFile file = test::sample_file();
  Graph graph;
  graph.ops.resize(1);
  Op& op = graph.ops.front();
  op.cost.flops = 1e15;
  const auto seconds = [&](std::optional<DataType> type) {
    op.cost.type = type;
    const Machine machine = machine_for(file, DataType::f32);
    return op_seconds(op, machine) - machine.launch_seconds;
  };
  const auto rate = [&](DataType type) { return machine_for(file, type).flops_per_second; };
  EXPECT_DOUBLE_EQ(seconds({}), 1e15 / rate(DataType::f32));
  EXPECT_DOUBLE_EQ(seconds(DataType::bf16), 1e15 / rate(DataType::bf16));
  EXPECT_DOUBLE_EQ(seconds(DataType::f16), 1e15 / rate(DataType::f16));
  EXPECT_NE(rate(DataType::f32), rate(DataType::bf16));
  EXPECT_NO_THROW(require_rates(file, graph));
  op.cost.type = DataType::f64;
  test::expect_refused([&] { require_rates(file, graph); }, "has no rate for f64");
  op.cost.flops = 0;
  EXPECT_NO_THROW(require_rates(file, graph));
}

TEST(MachineFile, AFileThatCannotBeReadIsNamed) {
  test::expect_refused([] { read_machine_file("/nowhere/machine.json"); }, "/nowhere/machine.json");
  const std::string path = ::testing::TempDir() + "stowage-machine-file-test.json";
  std::ofstream(path) << "{}";
  test::expect_refused([&] { read_machine_file(path); }, path + "': machine JSON: 'format' is not there");
  std::ofstream(path) << to_json(test::sample_file());
  EXPECT_EQ(to_json(read_machine_file(path)), to_json(test::sample_file()));
  std::filesystem::resize_file(path, (1U << 24U) + 1);
  test::expect_refused([&] { read_machine_file(path); }, "larger than 16 MiB");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace stowage
