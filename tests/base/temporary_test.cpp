#include "src/base/temporary.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace stowage {
namespace {

using Kind = Temporary::Kind;

Temporary made_in(const TemporaryFolder& folder, Kind kind) {
  Temporary made(folder.file("."), "name", kind);
  EXPECT_TRUE(made.made());
  return made;
}

TEST(Temporary, GoesUnlessItGetsItsName) {
  const TemporaryFolder folder;
  for (const Kind kind : {Kind::file, Kind::folder}) {
    { const Temporary made = made_in(folder, kind); }
    EXPECT_EQ(folder.entries(), 0U);
  }
  Temporary made = made_in(folder, Kind::file);
  folder.make("kept", "old");
  EXPECT_TRUE(made.rename_to("kept"));
  made = Temporary();
  EXPECT_EQ(folder.entries(), 1U);
  EXPECT_EQ(contents_of(folder.file("kept")), "");
}

TEST(Temporary, AFolderGoesWithAllThatIsInIt) {
  const TemporaryFolder folder;
  {
    const Temporary made = made_in(folder, Kind::folder);
    std::filesystem::create_directories(made.path() + "/a/b");
  }
  EXPECT_EQ(folder.entries(), 0U);
}

TEST(Temporary, ALongNameIsCut) {
  const TemporaryFolder folder;
  EXPECT_TRUE(Temporary(folder.file("."), std::string(255, 'n'), Kind::file).made());
}

TEST(Temporary, SaysWhyItCannotBeMade) {
  const TemporaryFolder folder;
  EXPECT_FALSE(Temporary(folder.file("none"), "name", Kind::file).made());
  EXPECT_EQ(errno, ENOENT);
  ::chmod(folder.file(".").c_str(), 0555);
  EXPECT_FALSE(Temporary(folder.file("."), "name", Kind::folder).made());
  EXPECT_EQ(errno, EACCES);
  ::chmod(folder.file(".").c_str(), 0755);
}

// A child that makes one of `kind` and is killed.
void leave_behind(const TemporaryFolder& folder, Kind kind) {
  const pid_t child = ::fork();
  if (child == 0) {
    const Temporary made = made_in(folder, kind);
    if (kind == Kind::folder) std::ofstream(made.path() + "/half") << "half";
    ::raise(SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
}

TEST(Temporary, WhatAKilledProcessLeftGoesWithTheNextOfItsName) {
  const TemporaryFolder folder;
  for (const Kind kind : {Kind::file, Kind::folder}) {
    leave_behind(folder, kind);
    { const Temporary other(folder.file("."), "nam", Kind::file); }
    EXPECT_EQ(folder.entries(), 1U);
    { const Temporary next = made_in(folder, Kind::file); }
    EXPECT_EQ(folder.entries(), 0U);
  }
}

TEST(Temporary, WhatSomebodyHoldsStays) {
  const TemporaryFolder folder;
  Temporary file = made_in(folder, Kind::file);
  const Temporary inner = made_in(folder, Kind::folder);
  ASSERT_TRUE(file.take_file().close());  // as an OutputFile does before it gives the name
  { const Temporary next = made_in(folder, Kind::file); }
  EXPECT_EQ(folder.entries(), 2U);
  EXPECT_TRUE(file.rename_to("whole"));
  EXPECT_EQ(folder.entries(), 2U);
}

// Each looks for what the others have left while these make theirs.
TEST(Temporary, ManyAtOnceDoNotTakeEachOthers) {
  const TemporaryFolder folder;
  std::vector<pid_t> children;
  for (int i = 0; i < 6; ++i) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    bool well = true;
    for (int round = 0; round < 200; ++round) {
      const Kind kind = round % 2 == 0 ? Kind::file : Kind::folder;
      Temporary made(folder.file("."), "name", kind);
      well = well && made.made() && (kind == Kind::folder || made.rename_to("whole"));
    }
    ::_exit(well ? 0 : 1);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(folder.entries(), 1U);
}

TEST(Temporary, OnlyItsOwnKindOfNameGoes) {
  const TemporaryFolder folder;
  const std::array names = {"name.0123456789abcdef.part.", "name.0123456789ABCDEF.part",
                            "name.0123456789abcde.part",   "name0123456789abcdef.part",
                            "name.0123456789abcdef.pan",   "a name.0123456789abcdef.part"};
  for (const char* const name : names) folder.make(name, "");
  ASSERT_EQ(::symlink(folder.file("name").c_str(), folder.file("name.00000000000000aa.part").c_str()), 0);
  ASSERT_EQ(::mkfifo(folder.file("name.00000000000000ab.part").c_str(), 0600), 0);
  { const Temporary next = made_in(folder, Kind::file); }
  EXPECT_EQ(folder.entries(), names.size() + 2);
  folder.make("name.00000000000000ac.part", "");
  if (::chown(folder.file("name.00000000000000ac.part").c_str(), 1, 1) != 0) return;  // no root, no stranger
  { const Temporary next = made_in(folder, Kind::file); }
  EXPECT_EQ(folder.entries(), names.size() + 3);
}

TEST(Temporary, ItGoesWithoutADescriptorMore) {
  const TemporaryFolder folder;
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  {
    const Temporary file = made_in(folder, Kind::file);
    const Temporary inner = made_in(folder, Kind::folder);
    std::ofstream(inner.path() + "/half") << "half";
    const rlimit none{0, before.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(folder.entries(), 0U);
}

constexpr std::array ending_signals = {SIGHUP,  SIGINT,  SIGQUIT, SIGILL,  SIGTRAP, SIGABRT,   SIGBUS,
                                       SIGFPE,  SIGUSR1, SIGSEGV, SIGUSR2, SIGPIPE, SIGALRM,   SIGTERM,
                                       SIGXCPU, SIGPROF, SIGIO,   SIGPWR,  SIGSYS,  SIGVTALRM, 40};

// By a sanitizer, which then ends the process itself.
bool is_taken(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_DFL;
}

// How a child ends that has a file and a folder when `signal` comes.
int end_of_child(const TemporaryFolder& folder, int signal) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_CORE, &none);
    remove_temporaries_at_signals();
    const Temporary file = made_in(folder, Kind::file);
    const Temporary inner = made_in(folder, Kind::folder);
    for (int i = 0; i < 100; ++i)  // more than one call of the kernel lists
      std::ofstream(inner.path() + "/a file of the folder, with a longer name " + std::to_string(i))
          << "half";
    if (folder.entries() == 2) ::raise(signal);
    ::_exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(Temporary, GoesAtEverySignalThatEndsTheProcess) {
  const TemporaryFolder folder;
  for (const int signal : ending_signals) {
    if (is_taken(signal)) continue;
    const int status = end_of_child(folder, signal);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << signal << ": " << status;
    EXPECT_EQ(folder.entries(), 0U) << signal;
  }
}

// Of what is renamed or gone nothing is removed at a signal, though another may have its name.
TEST(Temporary, StaysAtASignalOnceItHasItsName) {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    remove_temporaries_at_signals();
    Temporary made = made_in(folder, Kind::file);
    const std::string hidden = made.path();
    made.rename_to("name");
    std::ofstream(hidden.c_str()) << "another's";
    ::raise(SIGTERM);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(folder.entries(), 2U);
}

TEST(Temporary, LeavesHandledAndIgnoredSignalsAlone) {
  const auto ended = [](int signal, void (*handler)(int)) {
    const pid_t child = ::fork();
    if (child == 0) {
      std::signal(signal, handler);
      remove_temporaries_at_signals();
      ::raise(signal);
      ::_exit(3);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  EXPECT_EQ(ended(SIGHUP, SIG_IGN), 3);
  EXPECT_EQ(ended(SIGTERM, [](int) { ::_exit(4); }), 4);
  EXPECT_EQ(ended(SIGXFSZ, SIG_DFL), 3);  // the write tells
}

}  // namespace
}  // namespace stowage
