// What a file claims takes no memory: never more than some times the bytes that it has.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>

#include "stowage/error.h"
#include "stowage/model_files.h"
#include "stowage/safetensors.h"

namespace {

std::size_t allocated = 0;  // bytes in all, given back or not

void* counted(std::size_t size, std::size_t alignment) noexcept {
  allocated += size;
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}
void* counted_or_throw(std::size_t size, std::size_t alignment) {
  void* result = counted(size, alignment);
  if (result == nullptr) throw std::bad_alloc();
  return result;
}

}  // namespace

// Every form, the nothrow ones too: a sanitizer brings its own for those left out.
void* operator new(std::size_t size) { return counted_or_throw(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return counted(size, alignof(std::max_align_t));
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return counted_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return counted(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* address) noexcept { std::free(address); }
void operator delete(void* address, std::size_t) noexcept { std::free(address); }
void operator delete(void* address, std::align_val_t) noexcept { std::free(address); }
void operator delete(void* address, std::size_t, std::align_val_t) noexcept { std::free(address); }

namespace stowage {
namespace {

std::string of_header(const std::string& header, std::uint64_t claimed) {
  std::string file;
  for (std::size_t i = 0; i < 8; ++i) file.push_back(static_cast<char>(claimed >> (8 * i) & 0xffU));
  return file + header;
}

class SafetensorsMemory : public ::testing::Test {
 protected:
  ~SafetensorsMemory() override { std::filesystem::remove(path_); }

  // Bytes that opening it takes; it is refused.
  std::size_t taken_by(const std::string& contents) {
    std::ofstream(path_, std::ios::binary) << contents;
    const std::size_t before = allocated;
    EXPECT_THROW(TensorFiles{path_}, InvalidInput);
    return allocated - before;
  }

  std::string path_ = ::testing::TempDir() + "stowage_memory_test.safetensors";
};

TEST_F(SafetensorsMemory, AClaimedHeaderTakesNothing) {
  EXPECT_LT(taken_by(of_header("{}", 100'000'000)), 20'000U);
  EXPECT_LT(taken_by(of_header("{}", 99'999'999)), 20'000U);
  EXPECT_LT(taken_by(of_header("{}", UINT64_MAX)), 20'000U);
}

TEST_F(SafetensorsMemory, AClaimedShapeTakesNothing) {
  const std::string header =
      R"({"a":{"dtype":"F64","shape":[1000000000,1000000000],"data_offsets":[0,8000000000000000000]}})";
  EXPECT_LT(taken_by(of_header(header, header.size())), 20'000U);
}

TEST_F(SafetensorsMemory, NestingTakesNoMoreThanTheFile) {
  const std::string header = "{\"a\":{\"shape\":" + std::string(1'000'000, '[');
  EXPECT_LT(taken_by(of_header(header, header.size())), 3 * header.size());
}

TEST_F(SafetensorsMemory, AConfigsClaimsTakeNothing) {
  const std::string header = R"({"wte.weight":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]},)"
                             R"("wpe.weight":{"dtype":"F32","shape":[1,1],"data_offsets":[4,8]},)"
                             R"("h.0.mlp.c_fc.weight":{"dtype":"F32","shape":[1,4],"data_offsets":[8,24]}})";
  std::ofstream(path_, std::ios::binary) << of_header(header, header.size()) + std::string(24, '\0');
  const TensorFiles files(path_);
  const ModelDescription claimed{
      .config = {.layers = 1, .width = 1, .heads = 1, .vocabulary = 1, .sequence = 1}};
  check_sizes(files, claimed);
  for (const auto field :
       {&ModelConfig::layers, &ModelConfig::width, &ModelConfig::vocabulary, &ModelConfig::sequence}) {
    ModelDescription larger = claimed;
    larger.config.*field = std::int64_t{1} << 40;
    const std::size_t before = allocated;
    EXPECT_THROW(check_sizes(files, larger), InvalidInput);
    EXPECT_LT(allocated - before, 20'000U);
  }
}

}  // namespace
}  // namespace stowage
