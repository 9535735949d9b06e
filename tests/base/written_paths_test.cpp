#include "src/base/written_paths.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/expect_refused.h"
#include "tests/support/temporary_folder.h"

namespace stowage {
namespace {

using Written = WrittenPaths::Kind;

TEST(WrittenPaths, OneFileByTwoNamesIsRefused) {
  const TemporaryFolder folder;
  folder.make("there", "");
  std::filesystem::create_symlink("there", folder.file("link"));
  WrittenPaths paths;
  paths.add("--log", folder.file("there"), Written::text);
  paths.add("--export", folder.file("model") + "/", Written::folder);
  paths.add("--report", folder.file("other"), Written::text);
  test::expect_refused([&] { paths.add("--trace", folder.file("link"), Written::text); },
                       "--log has the same path");
  test::expect_refused([&] { paths.add("--trace", folder.file("./there"), Written::text); },
                       "--log has the same path");
  test::expect_refused([&] { paths.add("--trace", folder.file("model"), Written::text); },
                       "--export has the same path");
}

TEST(WrittenPaths, DevicesTakeTheTextOfSeveral) {
  WrittenPaths paths;
  paths.add("--log", "/dev/null", Written::text);
  paths.add("--trace", "/dev/null", Written::text);
}

TEST(WrittenPaths, TheStandardOutputTakesTextOfOne) {
  WrittenPaths paths;
  paths.add("--log", "-", Written::text);
  test::expect_refused([&] { paths.add("--trace", "-", Written::text); },
                       "--trace -: --log has the same path");
  test::expect_refused([] { WrittenPaths().add("--weights", "-", Written::data); },
                       "takes text alone; name a file");
  test::expect_refused([] { WrittenPaths().add("--export", "-", Written::folder); },
                       "takes text alone; name a folder");
}

TEST(WrittenPaths, AnEmptyPathIsRefused) {
  test::expect_refused([] { WrittenPaths().add("--log", "", Written::text); }, "--log: the path is empty");
}

}  // namespace
}  // namespace stowage
