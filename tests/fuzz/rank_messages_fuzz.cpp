// What arrives on a connection between ranks: messages, and the greetings before them.
#include <limits>

#include "src/ranks/greeting.h"
#include "src/ranks/message.h"
#include "tests/fuzz/target.h"

namespace stowage::fuzz {

std::vector<std::string> seeds() {
  using namespace ranks;
  std::vector<std::string> texts{"a call", "a reason"};
  std::string many;
  for (std::uint8_t kind = 0; kind <= most_kind; ++kind)
    many += encode({static_cast<MessageKind>(kind), 1, kind, pack(texts)});
  return {many, encode({MessageKind::part, -1, 1, std::string(3000, 'x')}),
          encode(Hello{1, 2, "a build", true, {}}), encode(Reply{Verdict::twice, 1, {}, {}}),
          encode(Verdict::wrong_secret, 0)};
}

std::vector<std::string> dictionary() {
  return {"STR1", "STOWRNK1", std::string("\xff\xff\xff\xff", 4), std::string("\0\0\0\x04", 4),
          std::string("\0\0\0\0", 4)};
}

namespace {

constexpr std::int32_t refused_rank = std::numeric_limits<std::int32_t>::min();

// Whole or in two pieces, the same messages come out.
std::vector<ranks::Message> messages_of(std::string_view bytes, std::size_t first) {
  ranks::MessageReader reader;
  std::vector<ranks::Message> found;
  const auto take = [&](std::string_view piece) {
    reader.add(piece);
    while (auto message = reader.next()) found.push_back(std::move(*message));
  };
  try {
    take(bytes.substr(0, first));
    take(bytes.substr(first));
  } catch (const ranks::BadMessage&) {
    found.push_back({ranks::MessageKind::died, refused_rank, 0, {}});
  }
  return found;
}

}  // namespace
}  // namespace stowage::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stowage;
  const std::string_view bytes = fuzz::text_of(data, size);
  const auto whole = fuzz::messages_of(bytes, bytes.size());
  if (whole != fuzz::messages_of(bytes, bytes.size() / 2)) fuzz::broken("messages depend on how bytes come");
  for (const ranks::Message& message : whole)
    for (const std::size_t texts : {std::size_t{1}, std::size_t{2}}) try {
        if (ranks::pack(ranks::unpack(message.text, texts)) != message.text)
          fuzz::broken("packed texts do not come back");
      } catch (const ranks::BadMessage&) {
        continue;
      }
  if (const auto hello = ranks::hello_of(bytes); hello && !ranks::hello_of(ranks::encode(*hello)))
    fuzz::broken("a greeting does not come back");
  if (const auto reply = ranks::reply_of(bytes); reply && ranks::encode(*reply) != bytes)
    fuzz::broken("a reply does not come back");
  if (const auto verdict = ranks::verdict_of(bytes);
      verdict && ranks::encode(verdict->verdict, verdict->detail) != bytes)
    fuzz::broken("a verdict does not come back");
  const bool is_parsed = (!whole.empty() && whole.back().rank != fuzz::refused_rank) ||
                         ranks::hello_of(bytes) || ranks::reply_of(bytes) || ranks::verdict_of(bytes);
  if (is_parsed) ++fuzz::parsed_parts;
  return 0;
}
