#include <gtest/gtest.h>

#include <array>

#include "stowage/error.h"
#include "stowage/safetensors.h"
#include "tests/model_files/model_graphs.h"
#include "tests/support/expect_refused.h"
#include "tests/support/temporary_folder.h"

namespace stowage {
namespace {

constexpr std::array<std::byte, 6> some = {std::byte{1}, std::byte{2}, std::byte{3},
                                           std::byte{4}, std::byte{5}, std::byte{6}};
const std::vector<StoredTensor> tensors = {{"b", StoredType::u8, {6}, 0, 0},
                                           {"a", StoredType::u16, {1}, 0, 0}};

TEST(SafetensorsWriter, WritesPiecesInAnyOrder) {
  const TemporaryFolder folder;
  SafetensorsWriter writer(folder.file("f"), tensors);
  writer.write(1, 0, std::span(some).first(2));
  writer.write(0, 2, std::span(some).subspan(2));
  writer.write(0, 0, std::span(some).first(2));
  EXPECT_NE(folder.entries(), 0U);
  EXPECT_EQ(contents_of(folder.file("f")), "") << "seen before it is whole";
  writer.commit();
  EXPECT_EQ(folder.entries(), 1U);
  const TensorFiles files(folder.file("f"));
  EXPECT_EQ(test::bytes_of(files, "b"), std::vector(some.begin(), some.end()));
  EXPECT_EQ(test::bytes_of(files, "a"), std::vector(some.begin(), some.begin() + 2));
}

TEST(SafetensorsWriter, LeavesNothingWithoutACommit) {
  const TemporaryFolder folder;
  folder.make("f", "old");
  {
    SafetensorsWriter writer(folder.file("f"), tensors);
    writer.write(1, 0, std::span(some).first(2));
    EXPECT_THROW(writer.commit(), Error);  // 6 bytes are missing
  }
  EXPECT_EQ(folder.entries(), 1U);
  EXPECT_EQ(contents_of(folder.file("f")), "old");
}

TEST(SafetensorsWriter, RefusesBytesOutsideOfATensor) {
  const TemporaryFolder folder;
  SafetensorsWriter writer(folder.file("f"), tensors);
  test::expect_refused([&] { writer.write(1, 0, some); }, "\"a\" has 2 bytes");
  test::expect_refused([&] { writer.write(1, UINT64_MAX, some); }, "\"a\"");
  test::expect_refused([&] { SafetensorsWriter(folder.file("none/f"), tensors); }, "cannot be written");
}

}  // namespace
}  // namespace stowage
