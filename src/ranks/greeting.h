// Greeting: a process that connects to rank 0 proves that it belongs to the group, and rank 0 proves that it
// is rank 0.
//
//   rank n -> 0   hello      who I am, and 32 random bytes
//   0 -> rank n   reply      go on, or why not; 32 random bytes, and the proof of rank 0
//   rank n -> 0   answer     the proof of rank n
//   0 -> rank n   verdict    welcome, or why not
//
// A proof is HMAC-SHA-256, under the group's secret, of both ends' random bytes and of the hello: nobody
// can make it without the secret, and an overheard proof is of no use. If the group has no secret, proofs
// are zeros.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stowage::ranks {

inline constexpr std::size_t nonce_bytes = 32, proof_bytes = 32, build_bytes = 64;
using Nonce = std::array<unsigned char, nonce_bytes>;
using Proof = std::array<unsigned char, proof_bytes>;

Nonce random_nonce();

struct Hello {
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::string build;  // only build_bytes of it are sent
  bool has_secret = false;
  Nonce nonce{};
};
inline constexpr std::size_t hello_bytes = 8 + 4 + 4 + build_bytes + 4 + nonce_bytes;

enum class Verdict : std::uint32_t {
  welcome,  // in a reply: the guest may go on
  other_user,
  lacks_secret,     // rank 0 has a secret
  unwanted_secret,  // rank 0 has no secret
  wrong_secret,
  other_build,
  other_size,
  twice,
};
inline constexpr auto last_verdict = Verdict::twice;

struct Reply {
  Verdict verdict = Verdict::welcome;
  std::uint32_t detail = 0;  // other_user: the user that rank 0 sees; other_size: rank 0's size
  Nonce nonce{};
  Proof proof{};
};
inline constexpr std::size_t reply_bytes = 8 + 4 + 4 + nonce_bytes + proof_bytes;
inline constexpr std::size_t verdict_bytes = 8;

// Encoders return exactly the bytes above; decoders return nullopt for malformed bytes.
std::string encode(const Hello& hello);
std::optional<Hello> hello_of(std::string_view bytes);
std::string encode(const Reply& reply);
std::optional<Reply> reply_of(std::string_view bytes);
std::string encode(Verdict verdict, std::uint32_t detail);
std::optional<Reply> verdict_of(std::string_view bytes);  // the reply has neither nonce nor proof

enum class Prover : std::uint8_t { rank_0, other };
Proof proof_of(std::string_view secret, Prover prover, const Hello& hello, const Nonce& of_rank_0);
// Compares in a time that does not depend on where the two differ.
bool is_same(const Proof& proof, std::string_view bytes);

}  // namespace stowage::ranks
