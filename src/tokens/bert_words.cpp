#include "src/tokens/bert_words.h"

#include "src/tokens/unicode.h"

namespace stowage {
namespace {

constexpr CodePoint replacement = 0xFFFD;

class BertWords {
 public:
  BertWords(const WordPieceOptions& options, const std::function<void(std::u32string_view)>& take)
      : options_(options), strip_accents_(options.strip_accents.value_or(options.lower_case)), take_(take) {}

  void add(CodePoint point) {
    if (point == ill_formed) point = replacement;
    if (options_.clean_text && (point == 0 || point == replacement || is_control(point))) return;
    if (is_space(point)) {
      finish_run();
    } else if (options_.spaced_cjk && is_chinese(point)) {
      finish_run();
      run_ += static_cast<char32_t>(point);
      finish_run();
    } else {
      run_ += static_cast<char32_t>(point);
    }
  }

  // What stood between two spaces. Neither decomposing nor lower case reaches over a space, or makes one.
  void finish_run() {
    if (run_.empty()) return;
    std::u32string_view left = normalised();
    while (!left.empty()) {
      std::size_t length = 0;
      while (length < left.size() && !is_punctuation(static_cast<CodePoint>(left[length]))) ++length;
      if (length > 0) take_(left.substr(0, length));
      if (length < left.size()) take_(left.substr(length, 1));
      left.remove_prefix(std::min(length + 1, left.size()));
    }
    run_.clear();
  }

 private:
  std::u32string_view normalised() {
    if (strip_accents_) {
      run_ = decomposed(run_);
      std::erase_if(run_, [](char32_t point) { return is_accent(static_cast<CodePoint>(point)); });
    }
    if (!options_.lower_case) return run_;
    lower_.clear();
    for (const char32_t point : run_) append_lower_case(static_cast<CodePoint>(point), lower_);
    return lower_;
  }

  const WordPieceOptions& options_;
  const bool strip_accents_;
  const std::function<void(std::u32string_view)>& take_;
  std::u32string run_;
  std::u32string lower_;
};

}  // namespace

void for_each_bert_word(std::string_view text, const WordPieceOptions& options,
                        const std::function<void(std::u32string_view)>& take) {
  BertWords words(options, take);
  for (std::size_t at = 0; at < text.size();) words.add(next_code_point(text, at));
  words.finish_run();
}

}  // namespace stowage
