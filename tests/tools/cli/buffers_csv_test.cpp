#include "tools/cli/buffers_csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "stowage/error.h"
#include "tests/support/expect_refused.h"

namespace stowage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string good = "id,lower,upper,size\na,0,4,100\nb 2,2,6,1\n7,4,9223372036854775807,64\n";

void expect_csv_refused(const std::string& text, const std::string& words) {
  test::expect_refused([&] { parse_buffers(text, "x.csv"); }, words);
}

void expect_alike(const Buffers& a, const Buffers& b) {
  EXPECT_EQ(a.ids, b.ids);
  ASSERT_EQ(a.items.size(), b.items.size());
  for (std::size_t i = 0; i < a.items.size(); ++i) {
    EXPECT_EQ(a.items[i].first, b.items[i].first);
    EXPECT_EQ(a.items[i].last, b.items[i].last);
    EXPECT_EQ(a.items[i].bytes, b.items[i].bytes);
  }
}

TEST(BuffersCsv, ReadsLines) {
  const Buffers buffers = parse_buffers(good, "x.csv");
  EXPECT_THAT(buffers.ids, ElementsAre("a", "b 2", "7"));
  EXPECT_EQ(buffers.items[1].first, 2);
  EXPECT_EQ(buffers.items[1].last, 6);
  EXPECT_EQ(buffers.items[0].bytes, 100U);
  EXPECT_EQ(buffers.items[2].last, 9223372036854775807);
}

TEST(BuffersCsv, TakesOtherLineEndsAndOrders) {
  const Buffers expected = parse_buffers(good, "x.csv");
  std::string text;
  for (const char c : good) text += c == '\n' ? "\r\n" : std::string(1, c);
  expect_alike(parse_buffers(text, "x.csv"), expected);
  text = good.substr(0, good.size() - 1);
  expect_alike(parse_buffers(text, "x.csv"), expected);
  expect_alike(parse_buffers(good + "\n", "x.csv"), expected);
  expect_alike(
      parse_buffers("size,upper,id,lower\n100,4,a,0\n1,6,b 2,2\n64,9223372036854775807,7,4\n", "x.csv"),
      expected);
}

TEST(BuffersCsv, ReadsWhatItWrites) {
  const Buffers buffers = parse_buffers(good, "x.csv");
  const std::string text = to_csv(buffers, {0, 128, 256});
  EXPECT_EQ(text, "id,lower,upper,size,offset\na,0,4,100,0\nb 2,2,6,1,128\n7,4,9223372036854775807,64,256\n");
  expect_alike(parse_buffers(text, "x.csv"), buffers);
}

TEST(BuffersCsv, ReadsMinimallocsOtherColumns) {
  expect_alike(parse_buffers("buffer,start,end,size\na,0,3,100\nb 2,2,5,1\n", "x.csv"),
               parse_buffers("id,lower,upper,size\na,0,4,100\nb 2,2,6,1\n", "x.csv"));
  const Buffers wishes = parse_buffers(
      "id,lower,upper,size,alignment,gaps,hint\na,0,9,100,256,3-7,-1\nb,0,4,1,1,,512\n", "x.csv");
  EXPECT_EQ(wishes.alignment, 256U);
  EXPECT_EQ(wishes.gaps, 1U);
  EXPECT_EQ(wishes.hints, 1U);
  expect_csv_refused("id,lower,upper,size,alignment\na,0,1,1,3\n",
                     "line 2: alignment is 3; give a power of two");
  expect_csv_refused("id,lower,upper,size,gaps\na,0,1,1,x\n", "gaps is \"x\"");
  expect_csv_refused("id,lower,upper,size,hint\na,0,1,1,x\n", "hint is \"x\"");
  expect_csv_refused("id,buffer,lower,upper,size\na,a,0,1,1\n", "has \"buffer\" twice");
}

TEST(BuffersCsv, NamesTheFileAndTheLine) {
  expect_csv_refused("", "'x.csv', line 1: the file is empty");
  expect_csv_refused("id,lower,upper,size\n", "'x.csv', line 1: no buffer follows");
  expect_csv_refused("id,lower,upper\n1,2,3\n", "line 1: the header has no 'size'");
  expect_csv_refused("id,lower,upper,size,colour\n", "line 1: the header has \"colour\"");
  expect_csv_refused("id,lower,upper,size,size\n", "line 1: the header has \"size\" twice");
  expect_csv_refused("1,0,4,100\n", "line 1: the header has \"1\"");
  expect_csv_refused(good + "c,1,2\n", "line 5: 3 fields where the header has 4");
  expect_csv_refused(good + "c,1,2,3,4\n", "line 5: 5 fields where the header has 4");
  expect_csv_refused(good + "\nc,1,2,3\n", "line 5: the line is empty");
  expect_csv_refused(good + "a,1,2,3\n", "line 5: the id \"a\" is that of line 2");
  expect_csv_refused(good + ",1,2,3\n", "line 5: the id is empty");
  expect_csv_refused(good + "\"c\",1,2,3\n", "has a quote");
  expect_csv_refused(good + std::string(300, 'c') + ",1,2,3\n", "line 5: the id has 300 characters");
  expect_csv_refused(good + std::string(3000, ',') + "\n", "line 5: 3000 characters are too many");
}

TEST(BuffersCsv, RefusesWhatIsNoNumber) {
  for (const char* word : {"-1", "-0", "+1", " 1", "1 ", "1.5", "1e3", "0x10", "", "9223372036854775808",
                           "99999999999999999999999", "1MiB", "NaN"}) {
    const std::string field = std::string("is \"") + word + "\"; give a whole number";
    expect_csv_refused(good + "c," + word + ",9,1\n", "line 5: lower " + field);
    expect_csv_refused(good + "c,0," + word + ",1\n", "line 5: upper " + field);
    expect_csv_refused(good + "c,0,9," + word + "\n", "line 5: size " + field);
  }
}

TEST(BuffersCsv, RefusesWhatIsNoBuffer) {
  expect_csv_refused(good + "c,4,4,1\n", "line 5: lower 4 is not before upper 4");
  expect_csv_refused(good + "c,5,4,1\n", "line 5: lower 5 is not before upper 4");
  expect_csv_refused(good + "c,0,4,0\n", "line 5: size is 0");
  expect_csv_refused(good + "c,0,4,4611686018427387904\n", "line 5: the sizes up to here");
  expect_csv_refused(good + "c,0,4,4611686018427387000\nd,8,9,4611686018427387000\n", "line 6: the sizes");
}

TEST(BuffersCsv, ShowsNoControlCharacters) {
  const std::string zero("id,lower,upper,size\na\0b,0,1,1\n", 29);
  expect_csv_refused(zero, "line 2: byte 2 is a control character (0x00)");
  expect_csv_refused("id,lower,upper,size\na,0,1,\x1b[2J\n", "line 2: byte 7 is a control character (0x1b)");
  expect_csv_refused("id,lower,upper,size\na,0,1,1\r\r\n", "(0x0d)");
  expect_csv_refused("id,lower,upper,size\na,0,1," + std::string(100, '9') + "\n",
                     std::string(40, '9') + "…");
}

// --- fuzzing

std::string mutated(std::string text, std::mt19937_64& random) {
  constexpr std::string_view likely = "0123456789,\n\r-+.\"a\0 \xff";
  for (std::uint64_t i = 1 + random() % 4; i > 0 && !text.empty(); --i) {
    const std::size_t at = random() % text.size();
    const std::size_t length = 1 + random() % 12;
    const char c = random() % 4 == 0 ? static_cast<char>(random()) : likely[random() % likely.size()];
    switch (random() % 6) {
      case 0:
        text[at] = c;
        break;
      case 1:
        text.insert(at, 1, c);
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(at, text.substr(random() % text.size(), length));
        break;
      case 4:
        text.insert(at, std::string(length, c));
        break;
      default:
        text.resize(at);
        break;
    }
  }
  return text;
}

TEST(BuffersCsv, AMutatedFileIsReadOrRefused) {
  std::mt19937_64 random(89);
  std::string text = "id,lower,upper,size\n";
  for (int i = 0; i < 8; ++i) text += std::to_string(i) + ",1," + std::to_string(5 + i) + ",1024\n";
  int read = 0, refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    const std::string mutation = mutated(text, random);
    try {
      const Buffers buffers = parse_buffers(mutation, "x.csv");
      ++read;
      ASSERT_EQ(buffers.ids.size(), buffers.items.size());
      ASSERT_FALSE(buffers.items.empty());
      Bytes sum = 0;
      for (const PlacementItem& item : buffers.items) {
        EXPECT_GE(item.first, 0);
        EXPECT_LT(item.first, item.last);
        EXPECT_GT(item.bytes, 0U);
        sum += item.bytes;
        EXPECT_LE(sum, Bytes{1} << 62U);
      }
      const std::vector<Bytes> offsets(buffers.items.size(), 0);
      expect_alike(parse_buffers(to_csv(buffers, offsets), "x.csv"), buffers);
    } catch (const InvalidInput& error) {
      ++refused;
      EXPECT_THAT(error.what(), HasSubstr("'x.csv', line "));
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
  EXPECT_GT(read, 1000);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace stowage
