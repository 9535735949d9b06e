#include "src/ranks/message.h"

#include <gtest/gtest.h>

#include "src/ranks/greeting.h"

namespace stowage::ranks {
namespace {

const std::vector<Message> some{{MessageKind::part, -1, 7, "a text"},
                                {MessageKind::failed, 3, 0xffff'ffff, std::string(70'000, 'x')},
                                {MessageKind::alive, 0, 0, {}}};

std::string bytes_of_some() {
  std::string bytes;
  for (const Message& each : some) bytes += encode(each);
  return bytes;
}

TEST(MessageReader, FindsMessagesInPiecesOfAnySize) {
  const std::string bytes = bytes_of_some();
  for (const std::size_t piece : {std::size_t{1}, std::size_t{19}, std::size_t{4096}, bytes.size()}) {
    MessageReader reader;
    std::vector<Message> found;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      reader.add(std::string_view(bytes).substr(at, piece));
      while (auto message = reader.next()) found.push_back(std::move(*message));
    }
    EXPECT_EQ(found, some) << piece;
  }
}

TEST(MessageReader, RefusesWhatIsNoMessage) {
  const auto refuses = [](std::string bytes) {
    MessageReader reader;
    reader.add(bytes);
    EXPECT_THROW(reader.next(), BadMessage);
  };
  refuses(std::string(20, 'G'));
  std::string bytes = encode(some[0]);
  bytes[4] = 99;  // kind
  refuses(bytes);
  bytes = encode(some[0]);
  bytes[19] = 0x7f;  // two thousand million bytes, announced and not sent
  refuses(bytes);
}

TEST(MessageReader, TakesNoMoreMemoryThanHasCome) {
  Message longest{MessageKind::part, 0, 1, std::string(most_text, 'x')};
  MessageReader reader;
  reader.add(std::string_view(encode(longest)).substr(0, 100));
  EXPECT_EQ(reader.next(), std::nullopt);
}

TEST(Packed, TextsComeBack) {
  const std::vector<std::string> texts{"", "one", std::string(5, '\0')};
  EXPECT_EQ(unpack(pack(texts), 3), texts);
  EXPECT_THROW(unpack(pack(texts), 2), BadMessage);
  EXPECT_THROW(unpack(pack(texts), 4), BadMessage);
  EXPECT_THROW(unpack(std::string_view("\xff\xff\xff\xff_", 5), 1), BadMessage);
}

Hello some_hello() { return {2, 4, "build", true, random_nonce()}; }

TEST(Greeting, ComesBack) {
  const Hello hello = some_hello();
  const auto back = hello_of(encode(hello));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->rank, 2);
  EXPECT_EQ(back->size, 4);
  EXPECT_EQ(back->build, "build");
  EXPECT_TRUE(back->has_secret);
  EXPECT_EQ(back->nonce, hello.nonce);
  EXPECT_EQ(encode(hello).size(), hello_bytes);
  EXPECT_FALSE(hello_of(encode(hello) + "x"));
  EXPECT_FALSE(hello_of(std::string(hello_bytes, 'x')));

  const Reply reply{Verdict::twice, 5, random_nonce(), Proof{1, 2, 3}};
  const auto reply_back = reply_of(encode(reply));
  ASSERT_TRUE(reply_back);
  EXPECT_EQ(reply_back->verdict, Verdict::twice);
  EXPECT_EQ(reply_back->detail, 5U);
  EXPECT_EQ(reply_back->nonce, reply.nonce);
  EXPECT_EQ(reply_back->proof, reply.proof);
  EXPECT_FALSE(verdict_of(encode(static_cast<Verdict>(8), 0)));
}

TEST(Greeting, AProofHoldsForItsSecretItsSpeakerAndAllThatWasSaid) {
  const Hello hello = some_hello();
  const Nonce nonce = random_nonce();
  const Proof proof = proof_of("a secret of theirs", Prover::other, hello, nonce);
  const auto bytes = [](const Proof& of) { return std::string(of.begin(), of.end()); };
  EXPECT_TRUE(is_same(proof, bytes(proof_of("a secret of theirs", Prover::other, hello, nonce))));
  EXPECT_FALSE(is_same(proof, bytes(proof_of("another secret", Prover::other, hello, nonce))));
  EXPECT_FALSE(is_same(proof, bytes(proof_of("a secret of theirs", Prover::rank_0, hello, nonce))));
  EXPECT_FALSE(is_same(proof, bytes(proof_of("a secret of theirs", Prover::other, hello, random_nonce()))));
  EXPECT_FALSE(is_same(proof, bytes(proof_of("a secret of theirs", Prover::other, some_hello(), nonce))));
  Hello of_another = hello;
  of_another.rank = 3;
  EXPECT_FALSE(is_same(proof, bytes(proof_of("a secret of theirs", Prover::other, of_another, nonce))));
  EXPECT_FALSE(is_same(proof, bytes(proof).substr(1)));
}

}  // namespace

}  // namespace stowage::ranks
