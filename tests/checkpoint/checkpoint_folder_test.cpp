#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "stowage/checkpoint.h"
#include "tests/checkpoint/small_state.h"
#include "tests/support/expect_refused.h"

namespace stowage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// No file may become longer than this, as on a disk that fills while one is written.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

class CheckpointFolderTest : public ::testing::Test {
 protected:
  void write(CheckpointFolder& folder, std::uint64_t step) {
    folder.write(testing::small_checkpoint(graph_, step), values_.values_of(graph_));
  }
  void write_best(CheckpointFolder& folder, std::uint64_t step, double score) {
    CheckpointState state = testing::small_checkpoint(graph_, step);
    state.score = score;
    folder.write(std::move(state), values_.values_of(graph_), CheckpointRank::best);
  }
  bool is_good(const std::string& name) const {
    return Checkpoint(folder_.path() + "/" + name).state().tensors.size() == 5;
  }

  const Graph graph_ = testing::small_graph();
  testing::SmallState values_{graph_, 1};
  testing::OwnFolder folder_;
};

TEST_F(CheckpointFolderTest, KeepsTheNewest) {
  CheckpointFolder folder(folder_.path() + "//", 2);
  for (const std::uint64_t step : {5, 6, 7, 8}) write(folder, step);
  EXPECT_THAT(folder_.names(), ElementsAre("step-000000000007", "step-000000000008"));
  EXPECT_TRUE(is_good("step-000000000007"));
}

TEST_F(CheckpointFolderTest, LaterOnesStayUntilTheirStepComesAgain) {
  CheckpointFolder folder(folder_.path(), 1);
  write(folder, 9);
  testing::put(folder_.path() + "/step-000000000009/tensors.bin", "damaged");
  write(folder, 4);
  EXPECT_THAT(folder_.names(), ElementsAre("step-000000000004", "step-000000000009"));
  write(folder, 9);
  EXPECT_THAT(folder_.names(), ElementsAre("step-000000000009"));
  EXPECT_TRUE(is_good("step-000000000009"));
}

TEST_F(CheckpointFolderTest, TheBestStaysUntilAnotherIs) {
  EXPECT_FALSE(find_best_checkpoint(folder_.path()));
  CheckpointFolder folder(folder_.path(), 1);
  folder.require_best_link();
  write_best(folder, 5, 0.1 + 0.2);
  for (const std::uint64_t step : {6, 7}) write(folder, step);
  EXPECT_THAT(folder_.names(), ElementsAre("best", "step-000000000005", "step-000000000007"));
  EXPECT_EQ(Checkpoint(folder_.path() + "/best").state().step, 5U);
  const auto best = find_best_checkpoint(folder_.path());
  ASSERT_TRUE(best);
  EXPECT_EQ(best->path, folder_.path() + "/step-000000000005");
  EXPECT_EQ(best->step, 5U);
  EXPECT_EQ(best->score, 0.1 + 0.2);
  EXPECT_EQ(list_checkpoints(folder_.path()).size(), 2U);  // the link is none of them
  folder.require_best_link();
  write_best(folder, 8, 0.25);
  EXPECT_THAT(folder_.names(), ElementsAre("best", "step-000000000008"));
  EXPECT_EQ(find_best_checkpoint(folder_.path())->step, 8U);
}

// In a copy that followed links.
TEST_F(CheckpointFolderTest, ABestThatIsNoLinkIsToldBefore) {
  const CheckpointFolder folder(folder_.path(), 1);
  std::filesystem::create_directory(folder_.path() + "/best");
  test::expect_refused([&] { folder.require_best_link(); },
                       "/best: this is no link to one of the checkpoints");
}

// Of a run that was resumed before it: what is written in its place may be worse.
TEST_F(CheckpointFolderTest, AnotherOfTheBestsStepIsNotTheBest) {
  CheckpointFolder folder(folder_.path(), 1);
  write_best(folder, 5, 1);
  write(folder, 5);
  EXPECT_THAT(folder_.names(), ElementsAre("step-000000000005"));
}

TEST_F(CheckpointFolderTest, ALinkToElsewhereIsNoBest) {
  CheckpointFolder folder(folder_.path(), 1);
  write(folder, 5);  // without a score
  for (const char* target : {"step-000000000005", "../step-000000000005", "/etc", "step-000000000006"}) {
    std::filesystem::remove(folder_.path() + "/best");
    std::filesystem::create_symlink(target, folder_.path() + "/best");
    EXPECT_FALSE(find_best_checkpoint(folder_.path())) << target;
  }
  std::filesystem::remove(folder_.path() + "/best");
  std::filesystem::create_directories(folder_.path() + "/best/mine");
  EXPECT_FALSE(find_best_checkpoint(folder_.path()));
  EXPECT_THROW(write_best(folder, 7, 1), Error);
  EXPECT_TRUE(std::filesystem::exists(folder_.path() + "/best/mine"));
}

TEST_F(CheckpointFolderTest, AFolderThatIsRemovedMeanwhileIsMadeAgain) {
  CheckpointFolder folder(folder_.path() + "/a/b", 2);
  write(folder, 1);
  std::filesystem::remove_all(folder_.path() + "/a");
  write(folder, 2);
  EXPECT_EQ(list_checkpoints(folder_.path() + "/a/b").size(), 1U);
  EXPECT_EQ(Checkpoint(folder_.path() + "/a/b/step-000000000002").state().step, 2U);
  EXPECT_THROW(CheckpointFolder(folder_.path() + "/a/b", 1), InvalidInput);  // it is locked again
}

TEST_F(CheckpointFolderTest, LeftoversGoWhenTheNextRunBegins) {
  const std::string path = folder_.path() + "/new/folder";
  for (const char* name : {"/.writing-12-step-000000000001", "/.removing-12-step-000000000001", "/mine"})
    std::filesystem::create_directories(path + name);
  testing::put(path + "/.writing-12-step-000000000001/tensors.bin", "half");
  const CheckpointFolder folder(path, 1);
  EXPECT_TRUE(std::filesystem::exists(path + "/mine"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path), {}), 1);
}

TEST_F(CheckpointFolderTest, BelongsToOneRun) {
  const auto refusal = [&] {
    try {
      const CheckpointFolder second(folder_.path(), 1);
    } catch (const InvalidInput& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  {
    const CheckpointFolder first(folder_.path(), 1);
    EXPECT_THAT(refusal(), HasSubstr(folder_.path() + ": another process writes checkpoints there"));
  }
  EXPECT_EQ(refusal(), "accepted");
}

TEST_F(CheckpointFolderTest, WhatCannotBeAFolderIsRefused) {
  testing::put(folder_.path() + "/file", "");
  EXPECT_THROW(CheckpointFolder(folder_.path() + "/file", 1), InvalidInput);
  EXPECT_THROW(CheckpointFolder(folder_.path() + "/file/inside", 1), InvalidInput);
  EXPECT_THROW(CheckpointFolder("", 1), InvalidInput);
  EXPECT_THROW(CheckpointFolder(folder_.path(), 0), InvalidInput);
}

// Wherever the disk is full: in the values, or in state.json.
TEST_F(CheckpointFolderTest, AFullDiskLeavesWhatWasThere) {
  CheckpointFolder folder(folder_.path(), 1);
  write(folder, 1);
  const rlim_t all = testing::contents_of(folder_.path() + "/step-000000000001/state.json").size();
  ASSERT_GT(all, 320U);
  for (const rlim_t bytes : {rlim_t{0}, rlim_t{1}, rlim_t{64}, rlim_t{319}, rlim_t{320}, all - 1}) {
    const FileLimit limit(bytes);
    EXPECT_THROW(write(folder, 2), Error) << bytes;
    EXPECT_THAT(folder_.names(), ElementsAre("step-000000000001"));
  }
  EXPECT_TRUE(is_good("step-000000000001"));
  write(folder, 2);
  EXPECT_THAT(folder_.names(), ElementsAre("step-000000000002"));
}

TEST_F(CheckpointFolderTest, WhatReadingThrowsComesOutAndLeavesNothing) {
  CheckpointFolder folder(folder_.path(), 1);
  const auto lost = [](std::size_t tensor, Bytes, std::span<std::byte>) {
    if (tensor == 2) throw DeviceError("lost", "copy");
  };
  EXPECT_THROW(folder.write(testing::small_checkpoint(graph_, 1), lost), DeviceError);
  EXPECT_THAT(folder_.names(), IsEmpty());
}

// At each read of a value of a new checkpoint the newest ones are there, whole, and they stay if it fails.
TEST_F(CheckpointFolderTest, TheNewestStayUntilANewOneIsComplete) {
  CheckpointFolder folder(folder_.path(), 3);
  for (const std::uint64_t step : {1, 2, 3, 4}) write(folder, step);
  const std::vector<std::string> kept = {"step-000000000002", "step-000000000003", "step-000000000004"};
  const auto read = values_.values_of(graph_);
  const auto expect_kept = [&] {
    for (const std::string& name : kept) EXPECT_TRUE(is_good(name));
    EXPECT_EQ(list_checkpoints(folder_.path()).size(), 3U);
  };
  std::size_t reads = 0;
  const auto watched = [&](std::size_t tensor, Bytes offset, std::span<std::byte> into) {
    ++reads;
    expect_kept();
    read(tensor, offset, into);
  };
  const auto failing = [&](std::size_t tensor, Bytes offset, std::span<std::byte> into) {
    if (tensor == 4) throw DeviceError("lost", "copy");
    watched(tensor, offset, into);
  };
  EXPECT_THROW(folder.write(testing::small_checkpoint(graph_, 5), failing), DeviceError);
  EXPECT_EQ(folder_.names(), kept);
  expect_kept();
  folder.write(testing::small_checkpoint(graph_, 5), watched);
  EXPECT_GE(reads, 7U);
  EXPECT_THAT(folder_.names(), ElementsAre("step-000000000003", "step-000000000004", "step-000000000005"));
}

TEST_F(CheckpointFolderTest, ACheckpointWithoutRoomIsLeftOut) {
  const Bytes needed = checkpoint_disk_bytes(testing::small_checkpoint(graph_, 2));
  std::optional<Bytes> room = 1_GiB;
  std::string asked;
  CheckpointFolder folder(folder_.path(), 1, [&](const std::string& path) {
    asked = path;
    return room;
  });
  write(folder, 1);
  EXPECT_EQ(asked, folder_.path());
  room = needed - 1;
  std::string message;
  try {
    write(folder, 2);
  } catch (const Error& error) {
    message = error.what();
  }
  EXPECT_THAT(message, HasSubstr(folder_.path() + ": left out: it takes "));
  EXPECT_THAT(message, HasSubstr("(" + std::to_string(needed) + " bytes)"));
  EXPECT_THAT(message, HasSubstr("(" + std::to_string(needed - 1) + " bytes) left"));
  EXPECT_THAT(folder_.names(), ElementsAre("step-000000000001"));
  for (const std::optional<Bytes> enough : {std::optional(needed), std::optional<Bytes>()}) {
    room = enough;  // nullopt: the system does not tell
    write(folder, 2);
    EXPECT_THAT(folder_.names(), ElementsAre("step-000000000002"));
  }
}

TEST_F(CheckpointFolderTest, TakesTheBytesThatAreTold) {
  CheckpointFolder folder(folder_.path(), 1);
  write(folder, 2);
  Bytes blocks = 0;
  for (const char* file : {"tensors.bin", "state.json"})
    blocks += align_up(std::filesystem::file_size(folder_.path() + "/step-000000000002/" + file), 4096);
  EXPECT_EQ(checkpoint_disk_bytes(testing::small_checkpoint(graph_, 2)), blocks);
}

TEST_F(CheckpointFolderTest, MeasuringItsDiskLeavesNothing) {
  const CheckpointFolder folder(folder_.path(), 1);
  EXPECT_GT(folder.measure_write(Bytes{9} << 20U), 0);
  EXPECT_THAT(folder_.names(), IsEmpty());
  const FileLimit limit(4096);
  EXPECT_THROW(folder.measure_write(8192), Error);
  EXPECT_THAT(folder_.names(), IsEmpty());
}

TEST(FreeDiskBytes, AreThoseOfAFolderThatIsThere) {
  const testing::OwnFolder folder;
  EXPECT_TRUE(free_disk_bytes(folder.path()));
  EXPECT_FALSE(free_disk_bytes(folder.path() + "/none"));
}

// While it writes the second checkpoint, at each of its reads of a value in turn.
TEST_F(CheckpointFolderTest, AProcessThatIsKilledLeavesWhatWasThere) {
  for (const std::size_t last : {0U, 1U, 2U, 4U}) {  // the one left out has no bytes
    const pid_t child = ::fork();
    if (child == 0) {
      CheckpointFolder folder(folder_.path(), 1);
      write(folder, 1);
      folder.write(testing::small_checkpoint(graph_, 2),
                   [&](std::size_t tensor, Bytes, std::span<std::byte>) {
                     if (tensor == last) ::raise(SIGKILL);
                   });
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(open_newest_checkpoint(folder_.path())->state().step, 1U);
    EXPECT_EQ(folder_.names().size(), 2U);
    const CheckpointFolder next(folder_.path(), 1);
    EXPECT_THAT(folder_.names(), ElementsAre("step-000000000001"));
    std::filesystem::remove_all(folder_.path() + "/step-000000000001");
  }
}

}  // namespace
}  // namespace stowage
