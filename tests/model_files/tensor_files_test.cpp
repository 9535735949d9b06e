#include <gtest/gtest.h>

#include <unistd.h>
#include <filesystem>

#include "stowage/safetensors.h"
#include "tests/model_files/model_graphs.h"
#include "tests/support/expect_refused.h"
#include "tests/support/temporary_folder.h"

namespace stowage {
namespace {

using test::expect_refused;
using test::fixture;

TEST(TensorFiles, OpensAFolderAFileAndAnIndex) {
  const TensorFiles folder(fixture("gpt2"));
  const TensorFiles file(fixture("gpt2/model.safetensors"));
  const TensorFiles sharded(fixture("gpt2_sharded"));
  const TensorFiles index(fixture("gpt2_sharded/model.safetensors.index.json"));
  EXPECT_EQ(folder.size(), 28U);
  EXPECT_EQ(sharded.names(), folder.names());
  EXPECT_EQ(folder.find("wte.weight"), nullptr);
  for (const std::string_view name : folder.names()) {
    const auto bytes = test::bytes_of(folder, std::string(name));
    EXPECT_EQ(test::bytes_of(file, std::string(name)), bytes);
    EXPECT_EQ(test::bytes_of(sharded, std::string(name)), bytes);
    EXPECT_EQ(test::bytes_of(index, std::string(name)), bytes);
  }
}

TEST(TensorFiles, ReadsByOffset) {
  const TensorFiles files(fixture("gpt2"));
  const auto all = test::bytes_of(files, "transformer.wte.weight");
  std::vector<std::byte> some(7);
  files.read(*files.find("transformer.wte.weight"), 13, some);
  EXPECT_EQ(some, std::vector<std::byte>(all.begin() + 13, all.begin() + 20));
  expect_refused([&] { files.read(*files.find("transformer.wte.weight"), all.size() - 6, some); }, "7 bytes");
  expect_refused([&] { files.read(*files.find("transformer.wte.weight"), UINT64_MAX, some); }, "wte");
  StoredTensor other;
  other.name = "other";
  expect_refused([&] { files.read(other, 0, some); }, "other");
}

TEST(TensorFiles, SaysHowAPickleIsConverted) {
  const TemporaryFolder folder;
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    std::filesystem::create_directory(folder.file("model"));
    folder.make(std::string("model/") + name, "x");
    expect_refused([&] { TensorFiles{folder.file("model")}; }, name);
    expect_refused([&] { TensorFiles{folder.file("model")}; },
                   "M.from_pretrained('DIR').save_pretrained('NEW')");
    std::filesystem::remove_all(folder.file("model"));
  }
  expect_refused([&] { TensorFiles{folder.make("model.bin", "x")}; }, "pickle");
}

TEST(TensorFiles, SaysWhatAPointerOfGitLfsIs) {
  const TemporaryFolder folder;
  const std::string pointer = folder.make("model.safetensors",
                                          "version https://git-lfs.github.com/spec/v1\noid "
                                          "sha256:4d7a214614ab2935c943f9e0ff69d22e\nsize 548105171\n");
  expect_refused([&] { TensorFiles{pointer}; },
                 pointer + ": this is a pointer of Git LFS, not the file itself; fetch it by 'git lfs pull'");
}

TEST(TensorFiles, RefusesWhatIsNotThere) {
  const TemporaryFolder folder;
  expect_refused([&] { TensorFiles{folder.file("none")}; }, folder.file("none") + ": cannot be read");
  expect_refused([&] { TensorFiles{folder.file("")}; }, "neither model.safetensors nor");
  expect_refused([&] { TensorFiles{folder.make("empty", "")}; }, "it has 0 bytes");
  expect_refused([] { TensorFiles{"/dev/null"}; }, "no regular file");
}

class Sharded : public ::testing::Test {
 protected:
  Sharded() {
    std::filesystem::copy(fixture("gpt2_sharded"), folder_.file("m"));
    index_ = contents_of(path("model.safetensors.index.json"));
  }
  std::string path(const std::string& name) const { return folder_.file("m/" + name); }
  void expect_index_refused(const std::string& from, const std::string& to, const std::string& words) const {
    std::string changed = index_;
    const std::size_t at = changed.find(from);
    ASSERT_NE(at, std::string::npos);
    changed.replace(at, from.size(), to);
    folder_.make("m/model.safetensors.index.json", changed);
    expect_refused([&] { TensorFiles{folder_.file("m")}; }, words);
  }
  TemporaryFolder folder_;
  std::string index_;
};

TEST_F(Sharded, MustHoldWhatTheIndexSays) {
  expect_index_refused("transformer.ln_f.bias", "transformer.ln_g.bias",
                       "has a tensor \"transformer.ln_f.bias\"");
  expect_index_refused("{\n    \"transformer",
                       "{\n    \"new\": \"model-00001-of-00002.safetensors\", \"transformer",
                       "places tensor \"new\" in model-00001-of-00002.safetensors, which lacks it");
  expect_index_refused("-00002-of-00002", "-00001-of-00002", "");
  // A tied table that is saved once has two names in some indices.
  std::string tied = index_;
  tied.replace(tied.find("\"transformer"), 0, "\"lm_head.weight\": \"model-00001-of-00002.safetensors\", ");
  folder_.make("m/model.safetensors.index.json", tied);
  EXPECT_EQ(TensorFiles{folder_.file("m")}.names(), TensorFiles{fixture("gpt2_sharded")}.names());
  folder_.make("m/model.safetensors.index.json", index_);
  std::filesystem::remove(path("model-00002-of-00002.safetensors"));
  expect_refused([&] { TensorFiles{folder_.file("m")}; }, "00002-of-00002.safetensors: cannot be read");
}

TEST_F(Sharded, MustHaveTheirWholeFiles) {
  const std::string file = path("model-00002-of-00002.safetensors");
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  expect_refused([&] { TensorFiles{folder_.file("m")}; }, "00002-of-00002.safetensors: ");
}

// No signal, as of a mapping.
TEST_F(Sharded, ThatShrinkAreAnError) {
  const TensorFiles files(folder_.file("m"));
  for (const char* name : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"})
    std::filesystem::resize_file(path(name), 100);
  expect_refused([&] { test::bytes_of(files, "transformer.wte.weight"); }, "has become shorter");
}

}  // namespace
}  // namespace stowage
