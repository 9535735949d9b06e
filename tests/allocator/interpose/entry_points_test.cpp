#include "allocator/interpose/entry_points.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace stowage::interpose {
namespace {

TEST(EntryPoints, AreEachThere) {
  std::set<std::string> symbols;
  for (std::size_t i = 0; i < entry_count; ++i) {
    const EntryPoint& point = entry_point(static_cast<Entry>(i));
    ASSERT_NE(point.symbol, nullptr) << i;
    EXPECT_TRUE(symbols.insert(point.symbol).second) << point.symbol << " twice";
    // A symbol is the name, a number for its signature, and a mark of the per-thread variant.
    EXPECT_TRUE(std::string(point.symbol).starts_with(point.name)) << point.symbol;
    EXPECT_EQ(std::string(point.symbol).ends_with("_ptsz"), point.per_thread) << point.symbol;
    EXPECT_GE(point.version, 2000);
  }
}

// The toolkit's own stand-in for the driver exports what a driver does.
TEST(EntryPoints, AreExportedByTheDriver) {
  void* const driver = dlopen(STOWAGE_DRIVER_STUB, RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr) GTEST_SKIP() << "the toolkit has no stub of the driver";
  for (std::size_t i = 0; i < entry_count; ++i) {
    const char* const symbol = entry_point(static_cast<Entry>(i)).symbol;
    EXPECT_NE(dlsym(driver, symbol), nullptr) << symbol;
  }
}

TEST(EntryPoints, AreFoundBySymbol) {
  EXPECT_EQ(replaced_symbol("cuMemAlloc_v2"), Entry::mem_alloc);
  EXPECT_EQ(replaced_symbol("cuStreamDestroy"), Entry::stream_destroy_v1);
  EXPECT_EQ(replaced_symbol("cuMemFreeAsync_ptsz"), Entry::mem_free_async_ptsz);
  EXPECT_EQ(replaced_symbol("cuMemAlloc"), Entry::count) << "a signature of 32-bit addresses";
  EXPECT_EQ(replaced_symbol("cuCtxGetCurrent"), Entry::count) << "called, not replaced";
  EXPECT_EQ(replaced_symbol("malloc"), Entry::count);
}

}  // namespace
}  // namespace stowage::interpose
