#include "src/ranks/greeting.h"

#include <sodium.h>

#include <algorithm>

#include "src/ranks/message.h"
#include "stowage/error.h"

namespace stowage::ranks {
namespace {

constexpr std::string_view greeting_magic = "STOWRNK1";

template <std::size_t size>
void put(std::string& to, const std::array<unsigned char, size>& bytes) {
  to.append(bytes.begin(), bytes.end());
}

template <std::size_t size>
void take(std::array<unsigned char, size>& to, std::string_view from, std::size_t at) {
  std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(at), size, to.begin());
}

bool begins_well(std::string_view bytes, std::size_t size) {
  return bytes.size() == size && bytes.starts_with(greeting_magic);
}

}  // namespace

Nonce random_nonce() {
  static const int begun = sodium_init();  // fails if the system has no random bytes
  if (begun < 0) throw Error("the system has no random bytes");
  Nonce nonce;
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

std::string encode(const Hello& hello) {
  std::string bytes(greeting_magic);
  put(bytes, static_cast<std::uint32_t>(hello.rank));
  put(bytes, static_cast<std::uint32_t>(hello.size));
  std::string build = hello.build;
  build.resize(build_bytes);
  bytes += build;
  put(bytes, std::uint32_t{hello.has_secret});
  put(bytes, hello.nonce);
  return bytes;
}

std::optional<Hello> hello_of(std::string_view bytes) {
  if (!begins_well(bytes, hello_bytes)) return std::nullopt;
  Hello hello;
  hello.rank = static_cast<std::int32_t>(get(bytes, 8));
  hello.size = static_cast<std::int32_t>(get(bytes, 12));
  const std::string_view build = bytes.substr(16, build_bytes);
  hello.build = build.substr(0, build.find('\0'));
  hello.has_secret = get(bytes, 16 + build_bytes) != 0;
  take(hello.nonce, bytes, 20 + build_bytes);
  return hello;
}

std::string encode(const Reply& reply) {
  std::string bytes(greeting_magic);
  put(bytes, static_cast<std::uint32_t>(reply.verdict));
  put(bytes, reply.detail);
  put(bytes, reply.nonce);
  put(bytes, reply.proof);
  return bytes;
}

std::optional<Reply> reply_of(std::string_view bytes) {
  if (!begins_well(bytes, reply_bytes)) return std::nullopt;
  std::optional<Reply> reply = verdict_of(bytes.substr(8, verdict_bytes));
  if (!reply) return std::nullopt;
  take(reply->nonce, bytes, 16);
  take(reply->proof, bytes, 16 + nonce_bytes);
  return reply;
}

std::string encode(Verdict verdict, std::uint32_t detail) {
  std::string bytes;
  put(bytes, static_cast<std::uint32_t>(verdict));
  put(bytes, detail);
  return bytes;
}

std::optional<Reply> verdict_of(std::string_view bytes) {
  if (bytes.size() != verdict_bytes) return std::nullopt;
  const std::uint32_t verdict = get(bytes, 0);
  if (verdict > static_cast<std::uint32_t>(last_verdict)) return std::nullopt;
  Reply reply;
  reply.verdict = static_cast<Verdict>(verdict);
  reply.detail = get(bytes, 4);
  return reply;
}

Proof proof_of(std::string_view secret, Prover prover, const Hello& hello, const Nonce& of_rank_0) {
  Proof proof{};
  if (secret.empty()) return proof;
  std::string said = encode(hello);
  put(said, of_rank_0);
  said.push_back(prover == Prover::rank_0 ? '0' : 'n');
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, reinterpret_cast<const unsigned char*>(secret.data()), secret.size());
  crypto_auth_hmacsha256_update(&state, reinterpret_cast<const unsigned char*>(said.data()), said.size());
  crypto_auth_hmacsha256_final(&state, proof.data());
  return proof;
}

bool is_same(const Proof& proof, std::string_view bytes) {
  return bytes.size() == proof.size() && sodium_memcmp(proof.data(), bytes.data(), proof.size()) == 0;
}

}  // namespace stowage::ranks
