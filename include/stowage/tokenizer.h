// Tokenizers: text to token ids and back. Bytes, GPT-2's byte pairs and BERT's WordPiece, read from their
// usual files.
//
// The ids are those of the PyPI package `tokenizers` for `encode(text, add_special_tokens=False)`: nothing is
// put around a text; the ids of [CLS] and [SEP] can be asked for. Characters that Unicode assigned after
// version 15.0 count as unassigned, whichever ICU is installed, so that a text has the same ids on every
// machine.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stowage {

// Tokens with a meaning of their own, and their texts in a vocabulary (the first that is there).
enum class SpecialToken : std::uint8_t {
  end_of_text,     // <|endoftext|>, </s>
  classification,  // [CLS], <s>
  separator,       // [SEP], </s>
  padding,         // [PAD], <pad>
  mask,            // [MASK], <mask>
  unknown,         // [UNK], <unk>
};

// A special token that a model has and its tokenizer lacks. Its text is the first listed above.
struct MissingToken {
  SpecialToken token = SpecialToken::unknown;
  std::int32_t id = 0;  // id that no other token has
  friend bool operator==(const MissingToken&, const MissingToken&) = default;
};

// The meaning of text that spells a special (or otherwise added) token, e.g. "<|endoftext|>" in a file.
enum class SpecialText : std::uint8_t {
  recognised,  // encoded as that token, as `tokenizers` does by default
  ordinary,    // encoded like any other text: for untrusted text
};

// How an exported tokenizer hands a text to its model.
enum class Framing : std::uint8_t {
  none,   // the text's ids alone: GPT-2
  pairs,  // [CLS] A [SEP] or [CLS] A [SEP] B [SEP], with token types 0 and 1: BERT
};

// Immutable once made: any number of threads may use one.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Any bytes are a text. Byte-level tokenizers (bytes, byte pairs) take a byte that is no UTF-8 for a symbol
  // that is neither letter, digit nor space; WordPiece takes an ill-formed sequence for U+FFFD and drops it.
  virtual std::vector<std::int32_t> encode(std::string_view text, SpecialText special) const = 0;
  std::vector<std::int32_t> encode(std::string_view text) const {
    return encode(text, SpecialText::recognised);
  }

  // Special tokens are written as their text. Byte-level tokenizers have decode(encode(x)) == x for all bytes
  // x. WordPiece has lost case, spaces and more: it returns words with one space between them. Throws
  // InvalidInput for an id without a token.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;

  // Every id is below it; some vocabularies do not use all ids below it.
  virtual std::int32_t vocabulary_size() const = 0;

  virtual std::optional<std::int32_t> special(SpecialToken token) const = 0;

  // Returns a tokenizer.json with which the package `tokenizers` and `tokenizer_from_json` give the same ids
  // as this tokenizer, and know the tokens of `missing` besides. The package frames pairs if both the
  // classification and the separator token are there.
  virtual std::string to_json(std::span<const MissingToken> missing, Framing framing) const = 0;
  std::string to_json(std::span<const MissingToken> missing) const {
    return to_json(missing, Framing::pairs);
  }

 protected:
  Tokenizer() = default;
  Tokenizer(const Tokenizer&) = default;
  Tokenizer& operator=(const Tokenizer&) = default;
};

// A tokenizer whose ids are the 256 bytes, none special.
std::unique_ptr<Tokenizer> byte_tokenizer();

// A byte-level byte-pair vocabulary as data.
struct BytePairVocabulary {
  std::vector<std::string> tokens;  // bytes of each token, by id
  // Merges in order of priority. A merge makes the token of both tokens' bytes.
  std::vector<std::pair<std::int32_t, std::int32_t>> merges;
};

// Learns a vocabulary as Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units", over
// GPT-2's pieces: from the bytes up, the most frequent pair of neighbours becomes a token; of equally
// frequent ones that with the smaller first id, then the smaller second id. `<|endoftext|>` is the last
// token, and where the text holds it, a border. Ids 0 to 255 are the bytes in GPT-2's order. The result has
// fewer than `vocabulary_size` tokens if no pair is left that occurs twice. It depends on the text alone.
// Throws InvalidInput unless the size is 257 to 2^24.
BytePairVocabulary train_byte_pairs(std::string_view text, std::int32_t vocabulary_size);

// The contents of `vocab.json` and `merges.txt`, as GPT-2's and `tokenizers` read them.
std::string to_vocab_json(const BytePairVocabulary& vocabulary);
std::string to_merges_text(const BytePairVocabulary& vocabulary);

// Tokenizers from texts of files. The texts are treated as hostile: InvalidInput that names the file, the
// line or field, and what to do, never worse, with memory in proportion to the text.

// GPT-2's `vocab.json` and `merges.txt`. Special tokens are the texts listed at SpecialToken that are in the
// vocabulary and that no merge makes. The vocabulary may lack bytes; text with such a byte is refused.
std::unique_ptr<Tokenizer> byte_pair_tokenizer(std::string_view vocab_json, std::string_view merges_text);
std::unique_ptr<Tokenizer> byte_pair_tokenizer(const BytePairVocabulary& vocabulary);

struct WordPieceOptions {
  bool clean_text = true;                  // drops control characters, and turns all white space into spaces
  bool spaced_cjk = true;                  // makes each Chinese character a word of its own
  bool lower_case = true;                  // false for "cased" models
  std::optional<bool> strip_accents = {};  // not set: equal to lower_case
};

// BERT's `vocab.txt`: a token per line, its id the line's number from 0. [UNK] must be there. Special tokens
// are the texts in brackets listed at SpecialToken.
std::unique_ptr<Tokenizer> word_piece_tokenizer(std::string_view vocab_text,
                                                const WordPieceOptions& options = {});

// `tokenizer.json` with a BPE model under ByteLevel, or a WordPiece model under Bert's normalizer and
// pre-tokenizer. Any other setting that would change ids is refused by the name of its field; settings that
// frame, cut or pad a text (post_processor, truncation, padding) are not applied.
std::unique_ptr<Tokenizer> tokenizer_from_json(std::string_view text);

// Returns the files of an exported model, name to contents, with which transformers' AutoTokenizer gives the
// ids of `tokenizer`: tokenizer.json, and tokenizer_config.json with its special tokens and the inputs that
// the model takes. `positions`: the longest text that it takes, in tokens.
std::map<std::string, std::string> tokenizer_files(const Tokenizer& tokenizer,
                                                   std::span<const MissingToken> missing,
                                                   std::int64_t positions, Framing framing);

// Loads a folder with tokenizer.json, with vocab.json and merges.txt, or with vocab.txt (looked for in this
// order), or one of these files itself. Beside vocab.txt, do_lower_case, strip_accents and
// tokenize_chinese_chars are read from tokenizer_config.json, if it exists. Throws InvalidInput that names
// the path.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path);

}  // namespace stowage
