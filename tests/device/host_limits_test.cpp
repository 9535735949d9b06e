#include "src/device/host_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <limits>
#include <new>
#include <stdexcept>
#include <system_error>

#include "tests/support/temporary_folder.h"

namespace stowage {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A folder with `proc` and `sys` of its own.
class HostLimits : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const {
    const std::string whole = root_.file(path);
    std::filesystem::create_directories(std::filesystem::path(whole).parent_path());
    root_.make(path, text);
  }
  void write_group_2(const std::string& group, const std::string& limit, const std::string& taken) const {
    write("sys/fs/cgroup" + group + "/memory.max", limit);
    write("sys/fs/cgroup" + group + "/memory.current", taken);
  }
  std::vector<HostLimit> read() const { return read_host_limits(root_.file("")); }

  TemporaryFolder root_;
};

auto limit_of(Bytes room, const std::string& name, const std::string& remedy) {
  return AllOf(Field(&HostLimit::room, room), Field(&HostLimit::name, HasSubstr(name)),
               Field(&HostLimit::remedy, HasSubstr(remedy)));
}

TEST_F(HostLimits, AreNoneWhereNothingTells) { EXPECT_THAT(read(), IsEmpty()); }

TEST_F(HostLimits, OfTheMachineAreMemoryAndSwap) {
  write("proc/meminfo",
        "MemTotal:       24576000 kB\nMemFree:  1 kB\nMemAvailable:    2048 kB\nSwapFree:  1024 kB\n");
  EXPECT_THAT(read(),
              ElementsAre(limit_of(3_MiB, "this machine's memory (2.00 MiB available, and 1.00 MiB of swap",
                                   "end what else uses it")));
  write("proc/meminfo", "MemAvailable:    2048 kB");
  EXPECT_THAT(read(), ElementsAre(limit_of(2_MiB, "", "")));
}

// As a virtual machine whose nodes have 4.3 GiB and that tells of 126, one with a balloon, and one with all
// that it has.
TEST_F(HostLimits, MemoryThatMayGrowIsTold) {
  const auto may_grow = [&](Bytes seen) { return memory_may_grow(seen, root_.file("")); };
  EXPECT_FALSE(may_grow(4_GiB));
  write("proc/meminfo",
        "MemTotal:       131981020 kB\nDirectMap4k: 114688 kB\nDirectMap2M: 3031040 kB\nDirectMap1G: "
        "133169152 kB\n");
  EXPECT_TRUE(may_grow(4_GiB));
  EXPECT_FALSE(may_grow(131981020_KiB));
  write("proc/meminfo", "MemTotal:       4194304 kB\nDirectMap4k: 114688 kB\nDirectMap1G: 33554432 kB\n");
  EXPECT_TRUE(may_grow(4_GiB));
  write("proc/meminfo",
        "MemTotal:       65857152 kB\nDirectMap4k: 400000 kB\nDirectMap2M: 15000000 kB\nDirectMap1G: "
        "52428800 kB\n");
  EXPECT_FALSE(may_grow(65857152_KiB));
}

TEST_F(HostLimits, OfAControlGroupCountWhatCannotBeDropped) {
  write("proc/self/cgroup", "0::/user/job\n");
  write_group_2("/user/job", "1000000\n", "700000\n");
  const auto expect_room = [&](Bytes room, const std::string& stat) {
    write("sys/fs/cgroup/user/job/memory.stat", stat);
    EXPECT_THAT(read(), ElementsAre(limit_of(room, "control group /user/job (", "raise its memory.max")))
        << stat;
  };
  expect_room(300000, "anon 500000\n");
  expect_room(450000, "anon 500000\ninactive_file 150000\n");
  expect_room(350000, "anon 500000\nactive_file 50000\n");
  expect_room(500000, "anon 500000\ninactive_file 150000\nactive_file 50000\n");
  expect_room(1000000, "inactive_file 650000\nactive_file 650000\n");  // counted while pages came and went
}

TEST_F(HostLimits, OfControlGroupsAreThoseAboveToo) {
  write("proc/self/cgroup", "1:name=systemd:/elsewhere\n0::/a/b\n");
  write_group_2("/a/b", "max\n", "10\n");
  write_group_2("/a", "500\n", "600\n");
  write_group_2("", "2000\n", "1000\n");
  write_group_2("/elsewhere", "1\n", "1\n");
  EXPECT_THAT(read(), ElementsAre(limit_of(0, "group /a (", "memory.max"), limit_of(1000, "group / (", "")));
  EXPECT_EQ(group_memory_limit(root_.file("")), 500U) << "the least, whatever is taken";
}

TEST_F(HostLimits, OfControlGroupsHaveAnOlderVersion) {
  write("proc/self/cgroup", "9:cpu,memory:/docker/x\n4:memoryless:/no\n0::/\n");
  // The group's own name is the host's, and not there.
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "4096\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1024\n");
  write("sys/fs/cgroup/memory/memory.stat",
        "inactive_file 1\nactive_file 2\ntotal_inactive_file 20\ntotal_active_file 4\n");
  write("sys/fs/cgroup/memory/no/memory.limit_in_bytes", "1\n");
  EXPECT_THAT(read(), ElementsAre(limit_of(3096, "group / (", "raise its memory.limit_in_bytes")));
  EXPECT_EQ(group_memory_limit(root_.file("")), 4096U);
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");  // none
  EXPECT_THAT(read(), IsEmpty());
  EXPECT_EQ(group_memory_limit(root_.file("")), std::nullopt);
}

TEST_F(HostLimits, OfTheProcessAreItsResources) {
  write("proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max data size             unlimited            unlimited            bytes     \n"
        "Max locked memory         8388608              8388608              bytes     \n"
        "Max address space         209715200            unlimited            bytes     \n");
  write("proc/self/status", "Name:\tx\nVmSize:\t    1024 kB\nVmData:\t      10 kB\n");
  EXPECT_THAT(read(), ElementsAre(limit_of(7_MiB, "address space (200.00 MiB, of which 1.00 MiB are taken)",
                                           "raise it with `ulimit -v`")));
  EXPECT_TRUE(read().front().of_process);
  EXPECT_EQ(locked_memory_limit(root_.file("")), 8_MiB);
  write("proc/self/limits",
        "Max data size   20480 unlimited bytes\nMax locked memory  unlimited unlimited bytes\n");
  EXPECT_THAT(read(), ElementsAre(limit_of(10_KiB, "limit on data", "ulimit -d")));
  EXPECT_EQ(locked_memory_limit(root_.file("")), std::nullopt);
}

TEST_F(HostLimits, AreLeftOutWhereTheirFilesAreNotUnderstood) {
  for (const char* number : {"", "-1", "x", "12x", "18446744073709551616", "18446744073709551615", "0x10"}) {
    write("proc/meminfo", std::string("MemAvailable: ") + number + " kB\nSwapFree: 1 kB\n");
    EXPECT_THAT(read(), IsEmpty()) << number;
  }
  // Sums end at the largest number.
  write("proc/meminfo", "MemAvailable: 18014398509481983 kB\nSwapFree: 18014398509481983 kB\n");
  EXPECT_THAT(read(), ElementsAre(Field(&HostLimit::room, std::numeric_limits<Bytes>::max())));
  write("proc/meminfo", std::string(1000000, 'x') + "\nMemAvailable: 1 kB\n");  // past what is read
  EXPECT_THAT(read(), IsEmpty());
  for (const char* groups : {"", ":", "::", "0:", "0::", "memory:/", "5:memory", "\n\n0", "0:memory"}) {
    write("proc/self/cgroup", groups);
    EXPECT_THAT(read(), IsEmpty()) << groups;
  }
}

TEST_F(HostLimits, OfAControlGroupAreNotSoughtOutsideOfItsTree) {
  write("proc/self/cgroup", "0::/../../outside\n0::relative\n");
  write("sys/outside/memory.max", "1\n");
  write("sys/fs/cgroup/outside/memory.max", "1\n");
  EXPECT_THAT(read(), IsEmpty());
  std::string deep;
  for (int level = 0; level < 1000; ++level) deep += "/g";
  write("proc/self/cgroup", "0::" + deep + "\n");
  write("sys/fs/cgroup/g/memory.max", "1\n");
  EXPECT_THAT(read(), IsEmpty()) << "only so many levels are looked at";
}

TEST_F(HostLimits, TellAControlGroupsNameWithoutWhatATerminalObeys) {
  write("proc/self/cgroup", "0::/a\x1b[2J\n");
  write_group_2("/a\x1b[2J", "5\n", "1\n");
  EXPECT_THAT(read(), ElementsAre(limit_of(4, "/a\\u001b[2J", "")));
}

TEST(Tightest, IsTheOneWithTheLeastRoom) {
  EXPECT_EQ(tightest({}), nullptr);
  const HostLimit limits[] = {{"a", 5, ""}, {"b", 3, ""}, {"c", 4, ""}};
  EXPECT_EQ(tightest(limits), &limits[1]);
}

TEST(HostLimitsHere, AreRead) {
  const std::vector<HostLimit> limits = read_host_limits();
  ASSERT_FALSE(limits.empty());
  for (const HostLimit& limit : limits) EXPECT_FALSE(limit.name.empty() || limit.remedy.empty());
  EXPECT_THAT(limits, Contains(AllOf(Field(&HostLimit::room, Gt(Bytes{0})),
                                     Field(&HostLimit::name, HasSubstr("this machine's memory")))));
}

// A limit of this process, until it dies. It is too large to stop anything.
class LimitHere {
 public:
  explicit LimitHere(rlim_t bytes) {
    ::getrlimit(RLIMIT_AS, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_AS, &limit);
  }
  LimitHere(const LimitHere&) = delete;
  LimitHere& operator=(const LimitHere&) = delete;
  ~LimitHere() { ::setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

TEST(ShortageOf, NamesTheLimitOfTheProcess) {
  const LimitHere limit(Bytes{1} << 50U);
  const auto memory = shortage_of(std::bad_alloc());
  ASSERT_TRUE(memory);
  EXPECT_TRUE(memory->of_limit);
  EXPECT_THAT(memory->text, HasSubstr("`ulimit -v` (1.00 PiB)"));
  const auto thread =
      shortage_of(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again)));
  ASSERT_TRUE(thread);
  EXPECT_TRUE(thread->of_limit);
  EXPECT_THAT(thread->text, AllOf(HasSubstr("`ulimit -v`"), HasSubstr("`ulimit -u`")));
}

TEST(ShortageOf, IsTheMachinesWithoutALimit) {
  const LimitHere none(RLIM_INFINITY);
  const auto memory = shortage_of(std::bad_alloc());
  ASSERT_TRUE(memory);
  EXPECT_FALSE(memory->of_limit);
  EXPECT_THAT(memory->text, HasSubstr("this machine's memory ran out"));
  EXPECT_FALSE(shortage_of(std::runtime_error("another")));
  EXPECT_FALSE(shortage_of(std::system_error(std::make_error_code(std::errc::invalid_argument))));
}

}  // namespace
}  // namespace stowage
