#include "tools/choices/machine_choice.h"
#include "src/machine/chosen_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <tuple>

#include "stowage/error.h"
#include "tests/machine/sample_file.h"
#include "tests/support/expect_refused.h"
#include "tests/support/temporary_folder.h"

namespace stowage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

// Those that come with Stowage: this test's program stands in the build tree.
MachineFile named(const std::string& name) { return read_machine(name, machines_folder()); }

TEST(MachineChoice, KnowsTheMachinesThatComeWithStowage) {
  EXPECT_THAT(machine_names(machines_folder()),
              ElementsAre("2x-rtx4090", "4x-rtx4090", "8x-a100-80gb", "8x-h200", "a100-80gb", "h200",
                          "rtx4090", "v100-16gb"));
  const MachineFile a100 = named("a100-80gb");
  EXPECT_EQ(a100.device, "NVIDIA A100 80GB PCIe");
  EXPECT_EQ(a100.device_bytes, 80_GiB);
  EXPECT_EQ(machine_for(a100, DataType::bf16).flops_per_second, 218.4e12);
  EXPECT_EQ(machine_for(a100, DataType::f32).h2d.bytes_per_second, 25.2e9);
  EXPECT_EQ(machine_for(named("v100-16gb"), DataType::f32).flops_per_second, 9.8e12);
  EXPECT_EQ(machine_for(named("rtx4090"), DataType::bf16).host_bytes_per_second, 53.8e9);
  EXPECT_EQ(machine_for(named("h200"), DataType::bf16).device_bytes_per_second, 4.08e12);
}

TEST(MachineChoice, SaysThatTheirNumbersAreNotMeasured) {
  for (const std::string& name : machine_names(machines_folder())) {
    const MachineFile file = named(name);
    EXPECT_EQ(file.measured, "not measured") << name;
    EXPECT_THAT(file.note, HasSubstr("data sheets")) << name;
    EXPECT_THAT(describe_machine(file), HasSubstr(", not measured")) << name;
    EXPECT_GT(file.device_bytes, 15_GiB) << name;
    EXPECT_GT(file.overhead_bytes, 0U) << name;
    EXPECT_EQ(host_budget_for(file), unlimited) << name;
  }
  ASSERT_EQ(::setenv("XDG_CACHE_HOME", "/nowhere", 1), 0);  // no machine "here"
  const std::string list = list_machines(machines_folder());
  EXPECT_THAT(list, HasSubstr("h200          NVIDIA H200 on its usual host, not measured, 140.40 GiB\n"));
  EXPECT_THAT(list, HasSubstr("8x-h200       8 x NVIDIA H200 on its usual host, not measured, 140.40 GiB\n"));
  EXPECT_EQ(std::count(list.begin(), list.end(), '\n'), 8);
}

TEST(MachineChoice, SaysThatNoMoreFilesCanBeOpened) {
  const fs::path folder = machines_folder();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = ::dup(0);
  ::close(next);
  const rlimit none{static_cast<rlim_t>(next), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  std::string told = "nothing";
  try {
    read_machine("rtx4090", folder);
  } catch (const InvalidInput& error) {
    told = error.what();
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_THAT(told, HasSubstr("no more files can be opened; raise the limit (`ulimit -n`)"));
  EXPECT_THAT(told, Not(HasSubstr("there is no machine")));
}

// A name that begins with a number has so many devices, and is its card otherwise.
TEST(MachineChoice, NamesMachinesOfSeveralDevices) {
  for (const auto& [name, card, devices, each_memory] :
       {std::tuple{"2x-rtx4090", "rtx4090", 2, 2}, std::tuple{"4x-rtx4090", "rtx4090", 4, 4},
        std::tuple{"8x-a100-80gb", "a100-80gb", 8, 4}, std::tuple{"8x-h200", "h200", 8, 4}}) {
    const MachineFile several = named(name), one = named(card);
    ASSERT_TRUE(several.peers) << name;
    EXPECT_FALSE(one.peers) << card;
    EXPECT_EQ(several.peers->devices, devices);
    EXPECT_EQ(several.peers->devices_per_host_memory, each_memory);
    EXPECT_EQ(several.device_bytes, one.device_bytes);
    EXPECT_EQ(several.h2d.fit.bytes_per_second, one.h2d.fit.bytes_per_second);
    EXPECT_EQ(machine_for(several, DataType::bf16, devices).flops_per_second,
              machine_for(one, DataType::bf16).flops_per_second);
  }
  EXPECT_EQ(machine_for(named("8x-h200"), DataType::bf16, 8).peer.bytes_per_second, 360e9);
  EXPECT_EQ(machine_for(named("8x-a100-80gb"), DataType::bf16, 8).peer.bytes_per_second, 240e9);
  EXPECT_DOUBLE_EQ(machine_for(named("4x-rtx4090"), DataType::bf16, 4).peer.bytes_per_second, 122.9e9 / 8);
  EXPECT_DOUBLE_EQ(machine_for(named("2x-rtx4090"), DataType::bf16, 2).peer.bytes_per_second, 22.7e9);
}

TEST(MachineChoice, TakesAFileByItsPath) {
  const TemporaryFolder folder;
  const std::string path = folder.make("mine.json", to_json(test::sample_file()));
  EXPECT_EQ(read_machine(path, {}).device, "Card \"7\"");
  EXPECT_EQ(describe_machine(read_machine(path, {})),
            "8 x Card \"7\" on node, measured 2026-11-21T13:50:00Z");
  MachineFile hostile;
  hostile.device = "\x1b[2J\n" + std::string(4000, 'x');
  EXPECT_EQ(describe_machine(hostile), "\\u001b[2J\\u000a" + std::string(195, 'x') + "… on , ");
  test::expect_refused([&] { read_machine("nowhere.json", machines_folder()); },
                       "cannot read 'nowhere.json'");
  test::expect_refused([&] { read_machine("./h200", machines_folder()); }, "cannot read './h200'");
}

TEST(MachineChoice, AnUnknownNameIsToldWithTheKnownOnes) {
  for (const char* name : {"h300", "H200", "", "..", "h200.jso"})
    test::expect_refused(
        [&] { named(name); },
        "--machine: there is no machine \"" + std::string(name) +
            "\"; give 2x-rtx4090, 4x-rtx4090, 8x-a100-80gb, 8x-h200, a100-80gb, h200, rtx4090, "
            "v100-16gb, here (what stowage calibrate measured), or the path of a file that it wrote");
  test::expect_refused([] { read_machine("h200", "/nowhere"); },
                       "there is no machine \"h200\"; give here (what ");
}

TEST(MachineChoice, FindsTheFolderNearestAboveAProgram) {
  const TemporaryFolder folder;
  const fs::path prefix = folder.file("prefix");
  fs::create_directories(prefix / "share/stowage/machines");
  fs::create_directories(prefix / "bin");
  EXPECT_EQ(machines_folder(prefix / "bin/stowage"), prefix / "share/stowage/machines");
  EXPECT_EQ(machines_folder(prefix / "tools/cli/stowage"), prefix / "share/stowage/machines");
  EXPECT_EQ(machines_folder(prefix / "a/b/c/d/e/f/stowage"), fs::path{});
  EXPECT_EQ(machines_folder(fs::path{}), fs::path{});
}

TEST(MachineChoice, PlansInBf16WhereACardHasIt) {
  EXPECT_EQ(usual_type(named("h200")), DataType::bf16);
  EXPECT_EQ(usual_type(named("v100-16gb")), DataType::f32);
  MachineFile file = test::sample_file();
  EXPECT_EQ(usual_type(file), DataType::bf16);
  file.backend = "simulated";
  EXPECT_EQ(usual_type(file), DataType::f32);
}

}  // namespace
}  // namespace stowage
