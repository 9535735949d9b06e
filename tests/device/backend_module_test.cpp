#include "src/device/backend_module.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "stowage/error.h"

namespace stowage {
namespace {

using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

TEST(BackendModuleCandidates, NamesTheFileOfTheEnvironmentAlone) {
  EXPECT_EQ(backend_module_candidates("/a/b.so", "/opt/bin/train_gpt"), std::vector<fs::path>{"/a/b.so"});
}

TEST(BackendModuleCandidates, LooksBesideTheProgramFirst) {
  for (const char* const unset : {static_cast<const char*>(nullptr), ""}) {
    const auto candidates = backend_module_candidates(unset, "/opt/stowage/bin/train_gpt");
    ASSERT_EQ(candidates.size(), 2u);
    EXPECT_EQ(candidates[0], "/opt/stowage/lib/stowage/libstowage_cuda.so");
    EXPECT_EQ(candidates[1].filename(), "libstowage_cuda.so");
  }
}

TEST(BackendModuleCandidates, LooksBesideTheLibraryToo) {
  const auto candidates =
      backend_module_candidates(nullptr, "/usr/bin/python3", "/opt/lib/x86_64/libstowage_allocator.so");
  ASSERT_EQ(candidates.size(), 4u);
  EXPECT_EQ(candidates[1], "/opt/lib/x86_64/stowage/libstowage_cuda.so");
  EXPECT_EQ(candidates[2], "/opt/lib/stowage/libstowage_cuda.so");
  EXPECT_EQ(backend_module_candidates(nullptr, "/opt/bin/train_gpt", "/opt/bin/train_gpt").size(), 2u);
}

TEST(LoadBackendModule, SaysWhereItLooked) {
  const LoadedModule loaded = load_backend_module({"/nowhere/a.so", "/nowhere/b.so"});
  EXPECT_EQ(loaded.module, nullptr);
  EXPECT_THAT(loaded.reason,
              AllOf(HasSubstr("/nowhere/a.so, /nowhere/b.so"), HasSubstr("STOWAGE_CUDA_BACKEND")));
}

TEST(LoadBackendModule, TakesTheFirstThatIsThere) {
  const LoadedModule loaded = load_backend_module({"/nowhere/a.so", THROWING_MODULE, OLDER_MODULE});
  ASSERT_NE(loaded.module, nullptr);
  EXPECT_THAT(loaded.reason, HasSubstr(THROWING_MODULE));
  EXPECT_EQ(loaded.module->status().reason, "a module that throws");
}

TEST(LoadBackendModule, ErrorsCrossTheBoundaryByType) {
  const LoadedModule loaded = load_backend_module({THROWING_MODULE});
  ASSERT_NE(loaded.module, nullptr);
  try {
    loaded.module->open({.ordinal = 0, .scratch = 5});
    FAIL() << "nothing was thrown";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.requested_bytes(), 5u);
    EXPECT_EQ(error.free_bytes(), 7u);
  }
  try {
    loaded.module->open({.ordinal = 1});
    FAIL() << "nothing was thrown";
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.call(), "open");
    EXPECT_EQ(error.work(), "work");
  }
  EXPECT_THROW(loaded.module->open({.ordinal = 2}), InvalidInput);
}

TEST(LoadBackendModule, CountsCrossTheBoundary) {
  const LoadedModule loaded = load_backend_module({THROWING_MODULE});
  ASSERT_NE(loaded.module, nullptr);
  const AttentionUse use = loaded.module->attention_use();
  EXPECT_EQ(use.plain, 3u);
  EXPECT_EQ(use.refusals, std::vector<std::string>{"a shape"});
}

TEST(LoadBackendModule, RefusesAnotherBuild) {
  const LoadedModule older = load_backend_module({OLDER_MODULE});
  EXPECT_EQ(older.module, nullptr);
  EXPECT_THAT(older.reason, AllOf(HasSubstr("0.0.1 of another compiler"), HasSubstr(backend_module_version()),
                                  HasSubstr("build both together")));
  const LoadedModule other = load_backend_module({OTHER_INTERFACE_MODULE});
  EXPECT_EQ(other.module, nullptr);
  EXPECT_THAT(other.reason, HasSubstr("interface 4"));
}

TEST(LoadBackendModule, RefusesALibraryThatIsNoBackend) {
  const LoadedModule loaded = load_backend_module({NO_BACKEND});
  EXPECT_EQ(loaded.module, nullptr);
  EXPECT_THAT(loaded.reason, HasSubstr("is no backend of Stowage"));
}

// Where a driver is, the module is asked.
TEST(CudaStatus, DoesNotLoadTheModuleWithoutADriver) {
  ::setenv("STOWAGE_CUDA_BACKEND", THROWING_MODULE, 1);
  const bool driver = ::dlopen("libcuda.so.1", RTLD_NOW) != nullptr;
  const CudaStatus status = cuda_status();
  EXPECT_FALSE(status.available);
  EXPECT_EQ(status.reason, driver ? "a module that throws" : no_driver);
}

TEST(LoadBackendModule, SaysWhichLibraryIsMissing) {
  const LoadedModule loaded = load_backend_module({LACKING_MODULE});
  EXPECT_EQ(loaded.module, nullptr);
  EXPECT_THAT(loaded.reason, AllOf(HasSubstr(LACKING_MODULE), HasSubstr("libcudart_of_nowhere.so"),
                                   HasSubstr("install CUDA 13's libraries")));
}

}  // namespace
}  // namespace stowage
