// Token ids as text: of --generate-ids and --stop-ids, and the end tokens of a model's folder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stowage::samples {

inline constexpr std::size_t most_ids = std::size_t{1} << 20;  // of a prompt
inline constexpr std::size_t most_stop_ids = 64;

// Returns the whole numbers of a text, separated by any of `separators`. Throws InvalidInput that begins with
// `place`, says which word it is and quotes it: for a word that is no id below `vocabulary`, for more than
// `most` words, and for none.
std::vector<std::int32_t> parse_ids(std::string_view text, std::string_view separators, std::size_t most,
                                    std::int64_t vocabulary, const std::string& place);

// Returns the ids in the file, or in standard input if `path` is "-", separated by white space. Throws
// InvalidInput naming --generate-ids.
std::vector<std::int32_t> read_ids(const std::string& path, std::int64_t vocabulary);

// Returns the tokens that end a text of the model at `init`, a folder or a file in it: eos_token_id of
// generation_config.json or, where that is absent, of config.json. Throws InvalidInput naming the file and
// the field for values that are no ids below `vocabulary`.
std::vector<std::int32_t> end_tokens(const std::string& init, std::int64_t vocabulary);

}  // namespace stowage::samples
