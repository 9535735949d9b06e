#include "samples/data/documents.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace stowage::samples {
namespace {

constexpr std::size_t sentences_of_a_document = 100;  // length of a document in a text without blank lines
constexpr std::string_view white = " \t\r\f\v";
constexpr std::string_view ends = ".!?";
constexpr std::string_view closers = "\"')]";

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(white);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(white) - first + 1);
}

// Returns the length of the sentence that `line` begins with.
std::size_t sentence_length(std::string_view line) {
  std::size_t at = line.find_first_of(ends);
  while (at != std::string_view::npos) {
    const std::size_t next = line.find_first_not_of(closers, line.find_first_not_of(ends, at));
    if (next == std::string_view::npos) return line.size();
    if (white.find(line[next]) != std::string_view::npos) return next;
    at = line.find_first_of(ends, next);
  }
  return line.size();
}

bool has_blank_line(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (trimmed(text.substr(0, end)).empty()) return true;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return false;
}

}  // namespace

Documents::Documents(std::string_view text, const Tokenizer& tokenizer,
                     const std::function<void(double)>& progress)
    : sentences_{0}, documents_{0} {
  const auto all = static_cast<double>(text.size());
  while (text.ends_with('\n')) text.remove_suffix(1);
  const bool by_blank_lines = has_blank_line(text);
  const auto end_document = [&] {
    if (sentences() > documents_.back()) documents_.push_back(sentences());
  };
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) end_document();
    while (!line.empty()) {
      const std::size_t length = sentence_length(line);
      const std::vector<std::int32_t> ids = tokenizer.encode(line.substr(0, length), SpecialText::ordinary);
      line = trimmed(line.substr(length));
      if (ids.empty()) continue;
      tokens_.insert(tokens_.end(), ids.begin(), ids.end());
      sentences_.push_back(tokens_.size());
      if (!by_blank_lines && sentences() - documents_.back() == sentences_of_a_document) end_document();
    }
    if (progress) progress(1 - static_cast<double>(text.size()) / all);
  }
  end_document();
}

std::size_t Documents::document_of(std::size_t sentence) const {
  const auto behind = std::upper_bound(documents_.begin(), documents_.end(), sentence);
  return static_cast<std::size_t>(behind - documents_.begin()) - 1;
}

double unigram_entropy(std::span<const std::int32_t> tokens) {
  std::map<std::int32_t, std::uint64_t> counts;
  for (const std::int32_t token : tokens) ++counts[token];
  double nats = 0;
  for (const auto& [token, count] : counts) {
    const double share = static_cast<double>(count) / static_cast<double>(tokens.size());
    nats -= share * std::log(share);
  }
  return nats;
}

}  // namespace stowage::samples
