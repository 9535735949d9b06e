#include <fmt/format.h>

#include "src/tokens/gpt2_pieces.h"
#include "src/tokens/tokenizer_json.h"
#include "stowage/error.h"
#include "stowage/tokenizer.h"

namespace stowage {
namespace {

constexpr std::int32_t byte_values = 256;

class ByteTokenizer : public Tokenizer {
 public:
  std::vector<std::int32_t> encode(std::string_view text, SpecialText /*special*/) const override {
    std::vector<std::int32_t> ids;
    ids.reserve(text.size());
    for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
    return ids;
  }
  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    text.reserve(ids.size());
    for (const std::int32_t id : ids) {
      if (id < 0 || id >= byte_values)
        throw InvalidInput(fmt::format("{} is no byte; give ids from 0 to {}", id, byte_values - 1));
      text += static_cast<char>(id);
    }
    return text;
  }
  std::int32_t vocabulary_size() const override { return byte_values; }
  std::optional<std::int32_t> special(SpecialToken /*token*/) const override { return {}; }
  // Writes byte pairs without a merge.
  std::string to_json(std::span<const MissingToken> missing, Framing framing) const override {
    Vocabulary vocabulary;
    for (std::int32_t byte = 0; byte < byte_values; ++byte)
      vocabulary.add(byte_letters()[static_cast<std::size_t>(byte)], byte);
    return write_tokenizer_json(byte_level_json(R"(,"merges":[])"), vocabulary, {}, missing, framing);
  }
};

}  // namespace

std::unique_ptr<Tokenizer> byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace stowage
