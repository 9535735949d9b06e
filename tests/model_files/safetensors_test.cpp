#include "stowage/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "tests/support/draws.h"
#include "tests/support/expect_refused.h"

namespace stowage {
namespace {

using test::expect_refused;

// A file with this header and so many bytes of tensors.
std::string file_of(const std::string& header, std::size_t data_bytes) {
  std::string file;
  for (std::size_t i = 0; i < 8; ++i) file.push_back(static_cast<char>(header.size() >> (8 * i) & 0xffU));
  return file + header + std::string(data_bytes, '\x5a');
}

SafetensorsHeader parsed(const std::string& file) { return parse_safetensors(file, file.size(), "f"); }

void expect_header_refused(const std::string& header, std::size_t data_bytes, const std::string& words) {
  expect_refused([&] { parsed(file_of(header, data_bytes)); }, words);
}

// A tensor of the name and fields.
std::string tensor(const std::string& name, const std::string& type, const std::string& shape, int begin,
                   int end) {
  return '"' + name + R"(":{"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":[)" +
         std::to_string(begin) + ',' + std::to_string(end) + "]}";
}

const std::string two_tensors = R"({"__metadata__":{"format":"pt"},)" + tensor("b", "F32", "[2,3]", 0, 24) +
                                ',' + tensor("a", "BF16", "[]", 24, 26) + "}";

TEST(Safetensors, ReadsAHeader) {
  const SafetensorsHeader header = parsed(file_of(two_tensors, 26));
  ASSERT_EQ(header.tensors.size(), 2U);
  EXPECT_EQ(header.tensors[0], (StoredTensor{"b", StoredType::f32, {2, 3}, 0, 24}));
  EXPECT_EQ(header.tensors[1], (StoredTensor{"a", StoredType::bf16, {}, 24, 2}));
  EXPECT_EQ(header.metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
  EXPECT_EQ(header.data_offset, 8 + two_tensors.size());
  EXPECT_EQ(header.file_bytes(), 8 + two_tensors.size() + 26);
}

TEST(Safetensors, ReadsTensorsInAnyOrderAndWithoutBytes) {
  const SafetensorsHeader header =
      parsed(file_of("{" + tensor("z", "I64", "[1]", 4, 12) + ',' + tensor("none", "F32", "[0,7]", 4, 4) +
                         ',' + tensor("y", "BOOL", "[4]", 0, 4) + "}   ",
                     12));
  EXPECT_EQ(header.tensors[0].name, "y");
  EXPECT_EQ(header.tensors[1].name, "none");
  EXPECT_EQ(header.tensors[2].name, "z");
  EXPECT_EQ(parsed(file_of("{}", 0)).tensors.size(), 0U);
}

TEST(Safetensors, RefusesALengthThatTheFileDoesNotHave) {
  expect_refused([] { parse_safetensors("", 0, "the file"); }, "the file: it has 0 bytes");
  expect_refused([] { parsed("1234567"); }, "it has 7 bytes");
  expect_refused([] { parsed(std::string("\x03\0\0\0\0\0\0\0{}", 10)); }, "claims 3 bytes in a file of 10");
  expect_refused([] { parsed(std::string(8, '\xff')); }, "the format allows 100000000");
  // A file of the claimed size, of which no more than the beginning was given.
  expect_refused([] { parse_safetensors(std::string("\x10\0\0\0\0\0\0\0{}", 10), 1000, "f"); }, "claims 16");
}

TEST(Safetensors, RefusesWhatIsNoHeader) {
  expect_header_refused("", 0, "does not begin with '{'");
  expect_header_refused(" {}", 0, "does not begin with '{'");
  expect_header_refused("[]", 0, "does not begin with '{'");
  expect_header_refused("{", 0, "no JSON");
  expect_header_refused("{}{}", 0, "no JSON");
  expect_header_refused("{\"a\":1}", 0, R"("a" is a number)");
  expect_header_refused("{\"a\":null}", 0, R"("a" is null)");
  expect_header_refused("{\"a\":[]}", 0, R"("a" is a list)");
  expect_header_refused("{\"\xff\":{}}", 0, "no JSON");
  expect_header_refused("{\"a\":{}}", 0, "lacks dtype, shape or data_offsets");
  expect_header_refused(R"({"a":{"dtype":{}}})", 0, R"("a" "dtype" is an object)");
  expect_header_refused(R"({"a":{"dtype":["F32"]}})", 0, R"("dtype" is a list)");
  expect_header_refused(R"({"a":{"shape":["1"]}})", 0, R"("shape" is a string)");
  expect_header_refused(R"({"a":{"shape":[[1]]}})", 0, R"("shape" is a list)");
  expect_header_refused(R"({"a":{"colour":1}})", 0, R"("colour" is no field of a tensor)");
  expect_header_refused(R"({"a":{"shape":[1],"shape":[1]}})", 0, R"("shape" is there twice)");
  expect_header_refused(R"({"__metadata__":{"a":1}})", 0, R"("__metadata__" "a" is a number)");
  expect_header_refused(R"({"__metadata__":{"a":"1","a":"1"}})", 0, R"("a" is there twice)");
  expect_header_refused(R"({"__metadata__":{},"__metadata__":{}})", 0, R"("__metadata__" stands twice)");
  expect_header_refused("{\"a\":" + std::string(100000, '['), 0, "list");
}

TEST(Safetensors, RefusesTypesAndShapesThatCannotBe) {
  expect_header_refused("{" + tensor("a", "F4", "[2]", 0, 1) + "}", 1, R"("F4")");
  expect_header_refused("{" + tensor("a", "F32", "[-1]", 0, 4) + "}", 4, "negative");
  expect_header_refused("{" + tensor("a", "F32", "[1.5]", 0, 4) + "}", 4, "no whole number");
  expect_header_refused("{" + tensor("a", "F32", "[9223372036854775808]", 0, 4) + "}", 4, "63 bits");
  expect_header_refused("{" + tensor("a", "F32", "[18446744073709551616]", 0, 4) + "}", 4, "no whole number");
  expect_header_refused("{" + tensor("a", "F32", "[4294967296,4294967296]", 0, 0) + "}", 0, "overflows");
  expect_header_refused("{" + tensor("a", "F32", "[4611686018427387904]", 0, 0) + "}", 0, "overflows");
  std::string shape = "[1";
  for (int i = 0; i < 64; ++i) shape += ",1";
  expect_header_refused("{" + tensor("a", "F32", shape + "]", 0, 4) + "}", 4, "64 dimensions");
}

TEST(Safetensors, RefusesHolesOverlapsAndTwins) {
  expect_header_refused("{" + tensor("a", "F32", "[1]", 0, 8) + "}", 8, "8 bytes by its data_offsets and 4");
  expect_header_refused("{" + tensor("a", "F32", "[1]", 4, 0) + "}", 8, "ends before it begins");
  expect_header_refused("{" + tensor("a", "U8", "[1]", 1, 2) + "}", 2,
                        "begins at byte 1, and those before it end at 0");
  expect_header_refused("{" + tensor("a", "U8", "[2]", 0, 2) + ',' + tensor("b", "U8", "[2]", 1, 3) + "}", 3,
                        "begins at byte 1");
  expect_header_refused("{" + tensor("a", "U8", "[3]", 0, 3) + "}", 2, "behind the file's end");
  expect_header_refused("{" + tensor("a", "U8", "[3]", 0, 3) + "}", 4, "it has 4 bytes of tensors");
  expect_header_refused("{" + tensor("a", "U8", "[1]", 0, 1) + ',' + tensor("a", "U8", "[1]", 1, 2) + "}", 2,
                        R"(tensor "a" is there twice)");
  expect_header_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1, "less than 2");
  expect_header_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}})", 1, "more than 2");
}

// Whatever it reads must hang together: all of the file's bytes belong to one tensor each.
void expect_sound(const SafetensorsHeader& header, std::size_t file_bytes) {
  Bytes end = 0;
  for (const StoredTensor& one : header.tensors) {
    EXPECT_EQ(one.offset, end);
    Bytes bytes = size_of(one.type);
    for (const std::int64_t extent : one.shape) bytes *= static_cast<Bytes>(extent);
    EXPECT_EQ(one.bytes, bytes);
    end += one.bytes;
  }
  EXPECT_EQ(header.data_offset + end, file_bytes);
}

TEST(Safetensors, EveryFlippedByteIsRefusedOrReadSoundly) {
  const std::string whole = file_of(two_tensors, 26);
  int read = 0;
  for (std::size_t at = 0; at < 8 + two_tensors.size(); ++at) {
    for (int flipped = 1; flipped < 256; ++flipped) {
      const bool drawn = std::has_single_bit(static_cast<unsigned>(flipped)) || flipped % 11 == 0;
      if (testing::sanitized && !drawn) continue;
      std::string file = whole;
      file[at] = static_cast<char>(file[at] ^ flipped);
      try {
        expect_sound(parsed(file), file.size());
        ++read;
      } catch (const InvalidInput&) {
        continue;
      }
    }
  }
  EXPECT_GT(read, 100);  // other names and words of metadata, for one
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string whole = file_of(two_tensors, 26);
  for (std::size_t length = 0; length < whole.size(); ++length)
    expect_refused([&] { parsed(whole.substr(0, length)); }, length < 8 ? "begins with 8" : "");
  EXPECT_NO_THROW(parsed(whole));
}

TEST(Safetensors, WritesABeginningThatItReads) {
  SafetensorsHeader header;
  header.metadata = {{"format", "pt"}};
  header.tensors = {{"x\"y", StoredType::f16, {3, 5}, 0, 0},
                    {"a", StoredType::u64, {}, 0, 0},
                    {"", StoredType::i8, {0}, 0, 0}};
  const std::string beginning = safetensors_beginning(header);
  EXPECT_EQ(beginning.size() % 8, 0U);
  EXPECT_EQ(header.tensors[1].offset, 30U);
  const SafetensorsHeader back = parse_safetensors(beginning, beginning.size() + 38, "f");
  EXPECT_EQ(back.tensors, header.tensors);
  EXPECT_EQ(back.metadata, header.metadata);
  EXPECT_EQ(back.data_offset, beginning.size());
}

TEST(Safetensors, WritesNoHeaderThatItWouldRefuse) {
  const auto write = [](std::vector<StoredTensor> tensors) {
    SafetensorsHeader header;
    header.tensors = std::move(tensors);
    safetensors_beginning(header);
  };
  expect_refused(
      [&] {
        write({{"a", StoredType::u8, {1}, 0, 0}, {"a", StoredType::u8, {1}, 0, 0}});
      },
      "twice");
  expect_refused([&] { write({{"a", StoredType::u8, {-1}, 0, 0}}); }, "\"a\"");
  expect_refused([&] { write({{"a", StoredType::f64, {INT64_MAX}, 0, 0}}); }, "\"a\"");
  expect_refused([&] { write({{"__metadata__", StoredType::u8, {1}, 0, 0}}); }, "__metadata__");
  expect_refused([&] { write({{"\xff", StoredType::u8, {1}, 0, 0}}); }, "UTF-8");
}

}  // namespace
}  // namespace stowage
