#include "src/tokens/bert_words.h"

#include <algorithm>
#include <utility>

#include "src/tokens/unicode.h"

namespace stowage {
namespace {

constexpr CodePoint replacement = 0xFFFD;

// Calls run(…) with the normalised text between two spaces, and space(…) with each space. Decomposition and
// lower case never reach over a space, nor make one.
template <class Run, class Space>
class BertText {
 public:
  BertText(const WordPieceOptions& options, Run run, Space space)
      : options_(options),
        strip_accents_(options.strip_accents.value_or(options.lower_case)),
        take_run_(std::move(run)),
        take_space_(std::move(space)) {}

  void read(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) add(next_code_point(text, at));
    finish_run();
  }

 private:
  static constexpr CodePoint blank = ' ';

  void add(CodePoint point) {
    if (point == ill_formed) point = replacement;
    if (options_.clean_text && (point == 0 || point == replacement || is_control(point))) return;
    if (is_space(point)) {
      finish_run();
      take_space_(options_.clean_text ? blank : point);
    } else if (options_.spaced_cjk && is_chinese(point)) {
      finish_run();
      take_space_(blank);
      run_ += static_cast<char32_t>(point);
      finish_run();
      take_space_(blank);
    } else {
      run_ += static_cast<char32_t>(point);
    }
  }

  void finish_run() {
    if (!run_.empty()) take_run_(normalised());
    run_.clear();
  }

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
  Run take_run_;
  Space take_space_;
  std::u32string run_;
  std::u32string lower_;
};

void cut_at_punctuation(std::u32string_view run, const std::function<void(std::u32string_view)>& take) {
  while (!run.empty()) {
    std::size_t length = 0;
    while (length < run.size() && !is_punctuation(static_cast<CodePoint>(run[length]))) ++length;
    if (length > 0) take(run.substr(0, length));
    if (length < run.size()) take(run.substr(length, 1));
    run.remove_prefix(std::min(length + 1, run.size()));
  }
}

}  // namespace

std::string bert_normalised(std::string_view text, const WordPieceOptions& options) {
  std::string result;
  const auto add_run = [&](std::u32string_view run) {
    for (const char32_t point : run) append_utf8(static_cast<CodePoint>(point), result);
  };
  BertText(options, add_run, [&](CodePoint space) { append_utf8(space, result); }).read(text);
  return result;
}

void for_each_bert_word(std::string_view text, const WordPieceOptions& options,
                        const std::function<void(std::u32string_view)>& take) {
  BertText(
      options, [&](std::u32string_view run) { cut_at_punctuation(run, take); }, [](CodePoint) {})
      .read(text);
}

}  // namespace stowage
