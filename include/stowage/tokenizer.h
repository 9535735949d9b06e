// Tokenizers: text to token ids and back. Bytes, GPT-2's byte pairs and BERT's WordPiece, read from their
// usual files.
//
// The ids are those of the PyPI package `tokenizers` for `encode(text, add_special_tokens=False)`, so nothing
// is put around a text: who wants [CLS] and [SEP] asks for their ids. Characters that Unicode assigned after
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

// Tokens with a meaning of their own, and the texts by which they are found in a vocabulary (the first that
// is there).
enum class SpecialToken : std::uint8_t {
  end_of_text,     // <|endoftext|>, </s>
  classification,  // [CLS], <s>
  separator,       // [SEP], </s>
  padding,         // [PAD], <pad>
  mask,            // [MASK], <mask>
  unknown,         // [UNK], <unk>
};

// A special token that a model has and its tokenizer lacks: its text is the first listed above.
struct MissingToken {
  SpecialToken token = SpecialToken::unknown;
  std::int32_t id = 0;  // no other token's
  friend bool operator==(const MissingToken&, const MissingToken&) = default;
};

// What a text that spells a special (or otherwise added) token means, e.g. "<|endoftext|>" in a file.
enum class SpecialText : std::uint8_t {
  recognised,  // that token, as `tokenizers` does unless told otherwise
  ordinary,    // its characters, like those of any other text: for text that nobody vouches for
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

  // Any bytes are a text. Where they are no UTF-8, byte-level tokenizers (bytes, byte pairs) take each such
  // byte for a symbol that is neither letter, digit nor space; WordPiece takes each ill-formed sequence for
  // U+FFFD and drops it.
  virtual std::vector<std::int32_t> encode(std::string_view text, SpecialText special) const = 0;
  std::vector<std::int32_t> encode(std::string_view text) const {
    return encode(text, SpecialText::recognised);
  }

  // Special tokens are written as their text. Of byte-level tokenizers decode(encode(x)) == x for all bytes
  // x. WordPiece has lost case, spaces and more: words with one space between them. Throws InvalidInput for
  // an id without a token.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;

  // All ids are below it; of some vocabularies not every one of them is in use.
  virtual std::int32_t vocabulary_size() const = 0;

  virtual std::optional<std::int32_t> special(SpecialToken token) const = 0;

  // The text of a tokenizer.json: the package `tokenizers` and `tokenizer_from_json` give the same ids with
  // it as this tokenizer does, and know the tokens of `missing` besides. The package frames pairs where both
  // the classification and the separator token are there.
  virtual std::string to_json(std::span<const MissingToken> missing, Framing framing) const = 0;
  std::string to_json(std::span<const MissingToken> missing) const {
    return to_json(missing, Framing::pairs);
  }

 protected:
  Tokenizer() = default;
  Tokenizer(const Tokenizer&) = default;
  Tokenizer& operator=(const Tokenizer&) = default;
};

// Each byte is its own id: 256 of them, none special.
std::unique_ptr<Tokenizer> byte_tokenizer();

// A byte-level byte-pair vocabulary as data.
struct BytePairVocabulary {
  std::vector<std::string> tokens;  // by id, the bytes that each stands for
  std::vector<std::pair<std::int32_t, std::int32_t>>
      merges;  // earlier ones first; made is the two tokens' bytes
};

// Learns a vocabulary as Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units", over
// GPT-2's pieces: from the bytes up, the most frequent pair of neighbours becomes a token; of equally
// frequent ones that with the smaller first id, then the smaller second id. `<|endoftext|>` is the last
// token, and where the text holds it, a border. Ids 0 to 255 are the bytes in GPT-2's order. Fewer than
// `vocabulary_size` tokens come out where no pair is left that occurs twice. The same text gives the same
// vocabulary everywhere. Throws InvalidInput unless the size is 257 to 2^24.
BytePairVocabulary train_byte_pairs(std::string_view text, std::int32_t vocabulary_size);

// What `vocab.json` and `merges.txt` hold, as GPT-2's and `tokenizers` read them.
std::string to_vocab_json(const BytePairVocabulary& vocabulary);
std::string to_merges_text(const BytePairVocabulary& vocabulary);

// Texts of files; all of these treat them as hostile: InvalidInput that names the file, the line or field,
// and what to do, never worse, with memory in proportion to the text.

// GPT-2's `vocab.json` and `merges.txt`. Special are the texts listed at SpecialToken that are in the
// vocabulary and that no merge makes. All 256 bytes must be in it.
std::unique_ptr<Tokenizer> byte_pair_tokenizer(std::string_view vocab_json, std::string_view merges_text);
std::unique_ptr<Tokenizer> byte_pair_tokenizer(const BytePairVocabulary& vocabulary);

struct WordPieceOptions {
  bool clean_text = true;                  // controls dropped, all white space a space
  bool spaced_cjk = true;                  // each Chinese character its own word
  bool lower_case = true;                  // false for "cased" models
  std::optional<bool> strip_accents = {};  // nothing: as lower_case
};

// BERT's `vocab.txt`: a token per line, its id the line's number from 0. [UNK] must be there. Special are the
// texts in brackets listed at SpecialToken.
std::unique_ptr<Tokenizer> word_piece_tokenizer(std::string_view vocab_text,
                                                const WordPieceOptions& options = {});

// `tokenizer.json` with a BPE model under ByteLevel, or a WordPiece model under Bert's normalizer and
// pre-tokenizer. What would change ids and is none of these is refused by the name of its field; what frames,
// cuts or pads a text (post_processor, truncation, padding) is not applied.
std::unique_ptr<Tokenizer> tokenizer_from_json(std::string_view text);

// The files of an exported model, name to contents, with which transformers' AutoTokenizer gives the ids of
// `tokenizer`: tokenizer.json, and tokenizer_config.json with its special tokens and the inputs that the
// model takes. `positions`: the longest text that it takes, in tokens.
std::map<std::string, std::string> tokenizer_files(const Tokenizer& tokenizer,
                                                   std::span<const MissingToken> missing,
                                                   std::int64_t positions, Framing framing);

// A folder with tokenizer.json, with vocab.json and merges.txt, or with vocab.txt (looked for in this order),
// or one of these files itself. Beside vocab.txt, do_lower_case, strip_accents and tokenize_chinese_chars are
// read from tokenizer_config.json, where there is one. Throws InvalidInput that names the path.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path);

}  // namespace stowage
