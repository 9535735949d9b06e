#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "src/graph/finite.h"
#include "src/graph/json_field.h"
#include "src/model_files/convert.h"
#include "src/model_files/family_files.h"
#include "src/model_files/parameter_parts.h"
#include "stowage/error.h"
#include "stowage/model_files.h"

namespace stowage {
namespace {

constexpr std::int64_t elements_at_once = std::int64_t{1} << 17;  // elements of a buffer

// A parameter and the tensors of the files that it is read from.
struct Match {
  ParameterParts parameter;
  std::vector<const StoredTensor*> stored;  // one tensor per part; empty: the parameter is missing
};

struct Matches {
  std::vector<Match> all;
  MissingParameters missing;
  struct Tie {
    const StoredTensor* tensor;
    const StoredTensor* other;
  };
  std::vector<Tie> ties;
};

// Finds tensors of the files by their usual names, and refuses unfit ones.
class Finder {
 public:
  Finder(const TensorFiles& files, const ModelDescription& model) : files_(files), model_(model) {}

  const StoredTensor* find(const std::string& name) const {
    for (const std::string& accepted : accepted_names(model_, name))
      if (const StoredTensor* found = files_.find(accepted)) return found;
    return nullptr;
  }

  void require_fits(const StoredTensor& tensor, const std::vector<std::int64_t>& shape) const {
    if (!is_real(tensor.type))
      refuse(fmt::format("tensor {} is of type {}, and F16, BF16, F32 and F64 can be read",
                         in_quotes(tensor.name), to_string(tensor.type)));
    if (tensor.shape != shape)
      refuse(fmt::format("tensor {} has the shape [{}], and config.json asks for [{}]",
                         in_quotes(tensor.name), fmt::join(tensor.shape, ", "), fmt::join(shape, ", ")));
  }

  std::string_view title() const { return model_.family->title; }
  // Returns an example of a name in the files, for a message about a missing name.
  std::string one_that_is_there() const {
    const std::vector<std::string_view> names = files_.names();
    return names.empty()
               ? " (the files have no tensor at all)"
               : fmt::format(" (the files have {} for example)", in_quotes(files_.find(names.front())->name));
  }
  [[noreturn]] void refuse(const std::string& why) const {
    throw InvalidInput(fmt::format(
        "model files: {}; give the files and the config.json of one model, with or without its tied head",
        why));
  }

 protected:
  const TensorFiles& files_;
  const ModelDescription& model_;
};

class Matcher : Finder {
 public:
  Matcher(const TensorFiles& files, const ModelDescription& model, const Graph& graph)
      : Finder(files, model), graph_(graph) {}

  Matches run() {
    Matches result;
    for (ParameterParts& parameter : parameter_parts(model_, graph_)) {
      Match match{std::move(parameter), {}};
      find_parts(match);
      if (match.stored.empty()) result.missing.push_back(graph_.tensor(match.parameter.parameter).name);
      result.all.push_back(std::move(match));
    }
    judge_others(result);
    return result;
  }

 private:
  void find_parts(Match& match) {
    for (const StoredPart& part : match.parameter.parts) {
      const StoredTensor* found = find(part.name);
      if (found == nullptr && match.parameter.may_be_missing && match.stored.empty()) return;
      if (found == nullptr)
        refuse(fmt::format("there is no tensor {}, which {} of {} needs{}", in_quotes(part.name),
                           in_quotes(graph_.tensor(match.parameter.parameter).name), title(),
                           one_that_is_there()));
      require_fits(*found, part.shape);
      used_.insert(found);
      match.stored.push_back(found);
    }
  }

  void judge_others(Matches& result) const {
    for (const std::string_view name : files_.names()) {
      const StoredTensor* tensor = files_.find(name);
      if (used_.contains(tensor)) continue;
      const ExtraTensor extra = extra_tensor(model_, name);
      if (extra.what == Extra::none)
        refuse(fmt::format("tensor {} is none of {} with {} layers", in_quotes(name), title(),
                           model_.config.layers));
      if (extra.what == Extra::passed_over) continue;
      const StoredTensor* other = find(extra.tied_to);
      if (other == nullptr || !is_real(other->type) || !is_real(tensor->type) ||
          other->shape != tensor->shape)
        refuse(fmt::format("tensor {} is not {}, to which it is tied in the models that can be read",
                           in_quotes(name), in_quotes(extra.tied_to)));
      result.ties.push_back({tensor, other});
    }
  }

  const Graph& graph_;
  std::set<const StoredTensor*> used_;
};

// Returns elements of a tensor, from `first` on: in the tensor's type, or as f64, which holds every value of
// every type.
std::vector<std::byte> elements_of(const TensorFiles& files, const StoredTensor& tensor, Bytes first,
                                   Bytes count, bool as_they_are) {
  std::vector<std::byte> stored(count * size_of(tensor.type));
  files.read(tensor, first * size_of(tensor.type), stored);
  if (as_they_are) return stored;
  std::vector<std::byte> converted(count * sizeof(double));
  convert(tensor.type, stored, DataType::f64, converted);
  return converted;
}

void require_tied(const TensorFiles& files, const Matches::Tie& tie) {
  const bool same_type = tie.tensor->type == tie.other->type;
  const Bytes all = tie.tensor->bytes / size_of(tie.tensor->type);
  constexpr Bytes at_once = Bytes{1} << 17U;
  for (Bytes done = 0; done < all; done += at_once) {
    const Bytes count = std::min(at_once, all - done);
    if (elements_of(files, *tie.tensor, done, count, same_type) !=
        elements_of(files, *tie.other, done, count, same_type))
      throw InvalidInput(
          fmt::format("model files: tensor {} differs from {}, to which it is tied in the models that can be "
                      "read; give a "
                      "model with a tied head",
                      in_quotes(tie.tensor->name), in_quotes(tie.other->name)));
  }
}

// Reads one parameter, through small buffers or straight to its place.
class Reader {
 public:
  Reader(const TensorFiles& files, const Graph& graph, const Match& match)
      : files_(files), match_(match), tensor_(graph.tensor(match.parameter.parameter)) {}

  void run(const ParameterAccess& parameters) {
    if (match_.parameter.low != no_id) return read_masters(parameters);
    const auto element = static_cast<std::int64_t>(size_of(tensor_.type));
    parameters.fill(match_.parameter.parameter, [&](Bytes offset, std::span<std::byte> piece) {
      const auto begin = static_cast<std::int64_t>(offset) / element;
      read(begin, begin + static_cast<std::int64_t>(piece.size()) / element, tensor_.type, piece);
    });
  }

 private:
  // Reads elements [begin, end) of the parameter as `type`.
  void read(std::int64_t begin, std::int64_t end, DataType type, std::span<std::byte> into) {
    const std::int64_t padding = match_.parameter.stored_rows * match_.parameter.columns;
    const auto at = [&](std::int64_t index) {
      return static_cast<std::size_t>(index - begin) * size_of(type);
    };
    if (padding < end) {
      const std::size_t from = at(std::max(begin, padding));
      std::memset(into.data() + from, 0, into.size() - from);
    }
    for_each_run(match_.parameter, begin, end, [&](const Run& run) {
      const StoredTensor& stored = *match_.stored[run.part];
      if (run.stride == 1 && stored_type_of(type) == stored.type) {
        const Bytes bytes = static_cast<Bytes>(run.count) * size_of(type);
        files_.read(stored, static_cast<Bytes>(run.stored) * size_of(type),
                    into.subspan(at(run.element), bytes));
      } else {
        read_converted(stored, run, type, into.subspan(at(run.element)));
      }
    });
    require_finite(begin, type, into);
  }

  // Refuses NaN and infinity: a model that was saved broken should not show as a training that diverges.
  void require_finite(std::int64_t begin, DataType type, std::span<const std::byte> values) {
    const auto found = first_non_finite(type, values);
    if (!found) return;
    const std::int64_t element = begin + static_cast<std::int64_t>(found->index);
    for_each_run(match_.parameter, element, element + 1, [&](const Run& run) {
      throw InvalidInput(fmt::format(
          "model files: tensor {} holds {} at element {}; give a model whose values are all finite",
          in_quotes(match_.stored[run.part]->name), found->is_nan ? "NaN" : "an infinity", run.stored));
    });
  }

  void read_converted(const StoredTensor& stored, const Run& run, DataType type, std::span<std::byte> into) {
    const Bytes element = size_of(type);
    for (std::int64_t done = 0; done < run.count; done += elements_at_once) {
      const auto count = static_cast<std::size_t>(std::min(elements_at_once, run.count - done));
      const std::span<std::byte> values = sized(values_, count * size_of(stored.type));
      files_.read(stored, static_cast<Bytes>(run.stored + done) * size_of(stored.type), values);
      const auto first = static_cast<std::size_t>(done * run.stride) * element;
      if (run.stride == 1) {
        convert(stored.type, values, type, into.subspan(first, count * element));
        continue;
      }
      const std::span<std::byte> converted = sized(converted_, count * element);
      convert(stored.type, values, type, converted);
      for (std::size_t i = 0; i < count; ++i)
        std::memcpy(into.data() + first + i * static_cast<std::size_t>(run.stride) * element,
                    converted.data() + i * element, element);
    }
  }

  // Reads the f32 master weights as two parts.
  void read_masters(const ParameterAccess& parameters) {
    const std::int64_t all = tensor_.elements();
    for (std::int64_t done = 0; done < all; done += elements_at_once) {
      const std::int64_t count = std::min(elements_at_once, all - done);
      const Bytes element = low_bytes(tensor_.type);
      const std::span<std::byte> masters = sized(masters_, static_cast<Bytes>(count) * 4);
      const std::span<std::byte> weights = sized(weights_, static_cast<Bytes>(count) * 2);
      const std::span<std::byte> low = sized(low_, static_cast<Bytes>(count) * element);
      read(done, done + count, DataType::f32, masters);
      split_masters(masters, tensor_.type, weights, low);
      parameters.write(match_.parameter.parameter, static_cast<Bytes>(done) * 2, weights);
      parameters.write(match_.parameter.low, static_cast<Bytes>(done) * element, low);
    }
  }

  static std::span<std::byte> sized(std::vector<std::byte>& buffer, std::size_t bytes) {
    if (buffer.size() < bytes) buffer.resize(bytes);
    return {buffer.data(), bytes};
  }

  const TensorFiles& files_;
  const Match& match_;
  const Tensor& tensor_;
  std::vector<std::byte> values_, converted_, masters_, weights_, low_;
};

}  // namespace

void check_sizes(const TensorFiles& files, const ModelDescription& model) {
  const Finder finder(files, model);
  const auto require = [&](const KnownShape& known) {
    const StoredTensor* found = finder.find(known.name);
    if (found == nullptr)
      finder.refuse(fmt::format("there is no tensor {}, and config.json asks for {} layers{}",
                                in_quotes(known.name), model.config.layers, finder.one_that_is_there()));
    finder.require_fits(*found, known.shape);
  };
  const FamilyFiles& family = files_of(*model.family);
  for (const KnownShape& table : family.tables(model.config)) require(table);
  for (std::int64_t layer = 0; layer < model.config.layers; ++layer)
    require(family.in_layer(model.config, layer));
}

MissingParameters check_model(const TensorFiles& files, const ModelDescription& model, const Graph& graph) {
  return Matcher(files, model, graph).run().missing;
}

MissingParameters load_model(const TensorFiles& files, const ModelDescription& model, const Graph& graph,
                             const ParameterAccess& parameters) {
  Matches matches = Matcher(files, model, graph).run();
  for (const Matches::Tie& tie : matches.ties) require_tied(files, tie);
  for (const Match& match : matches.all)
    if (!match.stored.empty()) Reader(files, graph, match).run(parameters);
  return matches.missing;
}

}  // namespace stowage
