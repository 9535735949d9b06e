#include <fmt/format.h>

#include <filesystem>
#include "src/tokens/added_beside.h"
#include "src/tokens/byte_pair_tokenizer.h"
#include "src/tokens/mapped_file.h"
#include "src/tokens/tokenizer_json.h"
#include "src/tokens/word_piece_tokenizer.h"
#include "stowage/error.h"

namespace stowage {
namespace {

namespace fs = std::filesystem;

constexpr const char* remedy = "give a folder with tokenizer.json, vocab.json and merges.txt, or vocab.txt";

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::unique_ptr<Tokenizer> load_json(const fs::path& path) {
  return read_tokenizer_json(MappedFile(path.string(), remedy).text(), path.string(),
                             added_beside(path.parent_path()));
}

std::unique_ptr<Tokenizer> load_byte_pairs(const fs::path& vocab, const fs::path& merges) {
  const MappedFile vocab_file(vocab.string(), remedy);
  const MappedFile merges_file(merges.string(), remedy);
  const AddedBeside beside = added_beside(vocab.parent_path());
  if (beside.setting("add_prefix_space").value_or(false))
    throw InvalidInput(fmt::format("{}: 'add_prefix_space' is not false, which is all that is read here; {}",
                                   beside.config, remedy));
  return read_byte_pair_files(vocab_file.text(), vocab.string(), merges_file.text(), merges.string(), beside);
}

std::unique_ptr<Tokenizer> load_word_pieces(const fs::path& path) {
  const AddedBeside beside = added_beside(path.parent_path());
  WordPieceOptions options;
  options.lower_case = beside.setting("do_lower_case").value_or(true);
  options.spaced_cjk = beside.setting("tokenize_chinese_chars").value_or(true);
  options.strip_accents = beside.setting("strip_accents");
  return read_word_piece_file(MappedFile(path.string(), remedy).text(), path.string(), options, beside);
}

fs::path file_in(const fs::path& folder) {
  for (const char* name : {"tokenizer.json", "vocab.json", "vocab.txt"}) {
    if (is_there(folder / name)) return folder / name;
  }
  throw InvalidInput(fmt::format("'{}' holds no tokenizer; {}", folder.string(), remedy));
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  std::error_code error;
  const fs::path file = fs::is_directory(path, error) ? file_in(path) : fs::path(path);
  const std::string name = file.filename().string();
  if (name == "vocab.json" || name == "merges.txt")
    return load_byte_pairs(file.parent_path() / "vocab.json", file.parent_path() / "merges.txt");
  if (name.ends_with(".txt")) return load_word_pieces(file);
  if (name.ends_with(".json")) return load_json(file);
  throw InvalidInput(
      fmt::format("'{}' is {}; {}", path, is_there(file) ? "no tokenizer's file" : "not there", remedy));
}

}  // namespace stowage
