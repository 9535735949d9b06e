#include "src/base/module_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stowage {
namespace {

namespace fs = std::filesystem;

TEST(ModuleFile, LooksBesideProgramAndLibraryThenWhereItWasBuilt) {
  EXPECT_EQ(module_candidates("m.so", "", "/opt/bin/train", "/lib/x/libs.so", "/build"),
            (std::vector<fs::path>{"/opt/lib/stowage/m.so", "/lib/x/stowage/m.so", "/lib/stowage/m.so",
                                   "/build/m.so"}));
  EXPECT_EQ(module_candidates("m.so", "/a.so", "/opt/bin/train", {}, "/build"),
            std::vector<fs::path>{"/a.so"});
}

TEST(ModuleFile, TakesTheFirstThatExists) {
  EXPECT_EQ(first_that_exists({"/nowhere/a", "/usr", "/"}), "/usr");
  EXPECT_EQ(first_that_exists({"/nowhere/a"}), "");
  EXPECT_EQ(joined_paths({"/a", "/b"}), "/a, /b");
}

TEST(ModuleFile, KnowsWhereItIs) {
  EXPECT_EQ(program_path(), library_path(reinterpret_cast<const void*>(&module_candidates)));
}

TEST(ModuleFile, SaysWhyALibraryDoesNotLoad) {
  const ModuleEntry entry = load_entry("/nowhere/a.so", "entry");
  EXPECT_FALSE(entry.loaded);
  EXPECT_EQ(entry.address, nullptr);
  EXPECT_THAT(entry.error, testing::HasSubstr("/nowhere/a.so"));
}

}  // namespace
}  // namespace stowage
