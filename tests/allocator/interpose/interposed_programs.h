// Programs under `stowage run`, for tests: what they printed, and what was recorded of them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "tests/support/temporary_folder.h"
#include "tools/cli/run_record.h"

namespace stowage {

struct Ran {
  int status = -1;  // as of wait()
  std::string output;
};

inline Ran shell(const std::string& command) {
  Ran ran;
  std::FILE* const pipe = popen(("{ " + command + "; }").c_str(), "r");
  if (pipe == nullptr) return ran;
  std::array<char, 4096> block;
  while (const std::size_t count = std::fread(block.data(), 1, block.size(), pipe)) {
    ran.output.append(block.data(), count);
  }
  ran.status = pclose(pipe);
  return ran;
}

inline int code(const Ran& ran) { return WIFEXITED(ran.status) ? WEXITSTATUS(ran.status) : -1; }

using BytesByKind = std::map<std::string, Bytes>;

inline BytesByKind asked_for(const std::string& output) {
  BytesByKind sum;
  std::istringstream text(output);
  std::string kind;
  for (Bytes bytes = 0; text >> kind >> bytes;) sum[kind] += bytes;
  return sum;
}

inline BytesByKind caught(const RunRecord& record) {
  BytesByKind sum;
  for (const auto& [id, process] : record.processes) {
    for (const auto& [name, kind] : process.kinds) {
      if (kind.calls > 0) sum[name] += kind.bytes;
    }
  }
  return sum;
}

class InterposedPrograms : public ::testing::Test {
 protected:
  // What the program printed, and what was recorded of it.
  Ran run(const std::string& program, const std::string& options = "", const std::string& before = "") {
    const Ran ran = shell(before + " exec " STOWAGE_PROGRAM " run --record " + record_path_ + ' ' + options +
                          " -- " + program);
    std::ifstream text(record_path_);
    record_ = read_run_record(text);
    return ran;
  }
  void expect_all_caught(const Ran& ran) {
    EXPECT_EQ(code(ran), 0) << ran.output;
    EXPECT_FALSE(asked_for(ran.output).empty());
    EXPECT_EQ(caught(record_), asked_for(ran.output));
    EXPECT_EQ(record_.unreadable, 0U);
  }
  // Nothing is left, of any kind.
  void expect_all_freed() {
    for (const auto& [id, process] : record_.processes) {
      for (const auto& [name, kind] : process.kinds) EXPECT_EQ(kind.live, 0U) << name;
      for (const auto& [device, card] : process.cards) EXPECT_EQ(card.live, 0U);
    }
  }
  void expect_replays() {
    const Ran replayed = shell("exec 2>&1; " STOWAGE_PROGRAM " replay --policy pytorch " + record_path_);
    EXPECT_EQ(code(replayed), 0) << replayed.output;
  }
  std::string record_text() const { return contents_of(record_path_); }

  TemporaryFolder folder_;
  std::string record_path_ = folder_.file("record.csv");
  RunRecord record_;
};

}  // namespace stowage
