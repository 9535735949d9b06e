#include "samples/data/pair_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "samples/data/random_stream.h"
#include "stowage/error.h"

namespace stowage::samples {
namespace {

constexpr std::size_t around_pair = 3;  // [CLS] and two [SEP]
constexpr double masked_share = 0.15;

}  // namespace

SpecialIds special_ids(const Tokenizer& tokenizer) {
  SpecialIds ids;
  ids.vocabulary = tokenizer.vocabulary_size();
  const auto id_of = [&](SpecialToken token) {
    if (const auto known = tokenizer.special(token)) return *known;
    ids.missing.push_back({token, ids.vocabulary});
    return ids.vocabulary++;
  };
  ids.classification = id_of(SpecialToken::classification);
  ids.separator = id_of(SpecialToken::separator);
  ids.padding = id_of(SpecialToken::padding);
  ids.mask = id_of(SpecialToken::mask);
  return ids;
}

// Draws one sample and writes it into the batch.
class PairSource::Sample {
 public:
  Sample(const PairSource& source, std::uint64_t step, std::size_t sample, std::size_t place)
      : source_(source),
        documents_(source.documents_),
        place_(place),
        room_(static_cast<std::size_t>(source.sequence_) - around_pair),
        draws_(source.seed_, step, static_cast<std::uint32_t>(sample)) {}

  void write(PairBatch& batch) {
    choose();
    shorten();
    const std::size_t begin = place_ * static_cast<std::size_t>(source_.sequence_);
    std::size_t at = begin;
    const auto put = [&](std::int32_t token, std::int32_t type) {
      batch.tokens[at] = token;
      batch.token_types[at] = type;
      batch.seen[at++] = 1;
    };
    std::vector<std::size_t> places;
    put(source_.ids_.classification, 0);
    for (const std::int32_t token : first_) places.push_back(at), put(token, 0);
    put(source_.ids_.separator, 0);
    for (const std::int32_t token : second_) places.push_back(at), put(token, 1);
    put(source_.ids_.separator, 1);
    batch.next_sentence[place_] = follows_ ? 0 : 1;
    mask(places, batch);
  }

 private:
  // Random numbers of one sample, one after another.
  class Draws {
   public:
    Draws(std::uint64_t seed, std::uint64_t step, std::uint32_t sample)
        : seed_(seed), step_(step), sample_(sample) {}
    // Below `count`.
    std::size_t below(std::size_t count) {
      return random_bits(seed_, RandomStream::pairs, step_, sample_, draw_++) % count;
    }

   private:
    std::uint64_t seed_, step_;
    std::uint32_t sample_;
    std::uint32_t draw_ = 0;
  };

  // Returns the sentence behind a run of whole sentences that begins with `sentence`, and ends with its
  // document or once it has `enough` tokens.
  std::size_t sentences_from(std::size_t sentence, std::size_t enough) const {
    const std::size_t end = documents_.first_of(documents_.document_of(sentence) + 1);
    std::size_t length = 0;
    while (sentence < end && length < enough) length += documents_.sentence(sentence++).size();
    return sentence;
  }
  std::vector<std::int32_t> tokens_of(std::size_t sentence, std::size_t end) const {
    std::vector<std::int32_t> tokens;
    for (; sentence < end; ++sentence) {
      const auto more = documents_.sentence(sentence);
      tokens.insert(tokens.end(), more.begin(), more.end());
    }
    return tokens;
  }
  std::size_t sentence_elsewhere(std::size_t document) {
    const std::size_t first = documents_.first_of(document), end = documents_.first_of(document + 1);
    const std::size_t drawn = draws_.below(documents_.sentences() - (end - first));
    return drawn < first ? drawn : drawn + (end - first);
  }

  void choose() {
    const std::size_t begin = draws_.below(documents_.sentences());
    const std::size_t end = sentences_from(begin, room_);
    const std::size_t split = begin + 1 + (end > begin + 1 ? draws_.below(end - begin - 1) : 0);
    first_ = tokens_of(begin, split);
    follows_ = split < end && draws_.below(2) == 0;
    if (follows_) {
      second_ = tokens_of(split, end);
      return;
    }
    const std::size_t other = sentence_elsewhere(documents_.document_of(begin));
    second_ = tokens_of(other, sentences_from(other, room_ - std::min(room_ - 1, first_.size())));
  }
  // The longer of A and B loses a token, at a random end, until both fit. Sentences may be long, so all
  // tokens are removed at once.
  void shorten() {
    struct Kept {
      std::size_t begin, end;
      std::size_t size() const { return end - begin; }
    };
    Kept first{0, first_.size()}, second{0, second_.size()};
    while (first.size() + second.size() > room_) {
      Kept& longer = first.size() > second.size() ? first : second;
      if (draws_.below(2) == 0)
        ++longer.begin;
      else
        --longer.end;
    }
    const auto keep = [](std::vector<std::int32_t>& tokens, const Kept& kept) {
      tokens.resize(kept.end);
      tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(kept.begin));
    };
    keep(first_, first);
    keep(second_, second);
  }
  void mask(std::vector<std::size_t>& places, PairBatch& batch) {
    const auto share = std::lround(masked_share * static_cast<double>(places.size()));
    const auto count = static_cast<std::size_t>(std::max(share, 1L));
    for (std::size_t i = 0; i < count; ++i) {
      std::swap(places[i], places[i + draws_.below(places.size() - i)]);
      std::int32_t& token = batch.tokens[places[i]];
      batch.targets[places[i]] = token;
      const std::size_t fate = draws_.below(10);
      if (fate < 8)
        token = source_.ids_.mask;
      else if (fate == 8)
        token = static_cast<std::int32_t>(draws_.below(static_cast<std::size_t>(source_.ids_.vocabulary)));
    }
  }

  const PairSource& source_;
  const Documents& documents_;
  std::size_t place_;  // number of the sample in the batch
  std::size_t room_;
  Draws draws_;
  std::vector<std::int32_t> first_, second_;
  bool follows_ = false;
};

PairSource::PairSource(const Documents& documents, const SpecialIds& ids, std::int64_t batch,
                       std::int64_t sequence, std::uint64_t seed)
    : documents_(documents), ids_(ids), batch_(batch), sequence_(sequence), seed_(seed) {
  if (documents.sentences() == 0)
    throw InvalidInput("there is no sentence in it: white space alone, or no token; give a longer text");
  if (documents.documents() < 2)
    throw InvalidInput(
        "the text is a single document: pairs of sentences need two; put blank lines between its parts, or "
        "give a longer text");
  if (sequence < static_cast<std::int64_t>(around_pair) + 2)
    throw InvalidInput(
        fmt::format("sequences of {} tokens have no room for two sentences: take at least 5", sequence));
}

void PairSource::fill(std::uint64_t step, std::size_t first, std::size_t samples, PairBatch& result) const {
  const std::size_t count = samples * static_cast<std::size_t>(sequence_);
  result.tokens.assign(count, ids_.padding);
  result.targets.assign(count, -1);
  result.token_types.assign(count, 0);
  result.seen.assign(count, 0);
  result.next_sentence.assign(samples, 0);
  for (std::size_t place = 0; place < samples; ++place)
    Sample(*this, step, first + place, place).write(result);
}

}  // namespace stowage::samples
