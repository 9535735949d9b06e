// The header is read by events and never held as a tree: its entries go straight into `tensors`.
#include "stowage/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "src/graph/json_field.h"
#include "stowage/error.h"

namespace stowage {
namespace {

constexpr Bytes prefix_bytes = 8;
constexpr Bytes most_header_bytes = 100'000'000;  // the format's limit
constexpr std::size_t most_shape_dimensions = 64;

struct TypeWord {
  std::string_view word;
  Bytes bytes;
};
// Words of the types, in the order of StoredType.
constexpr std::array<TypeWord, 15> type_words = {{{"BOOL", 1},
                                                  {"U8", 1},
                                                  {"I8", 1},
                                                  {"F8_E5M2", 1},
                                                  {"F8_E4M3", 1},
                                                  {"U16", 2},
                                                  {"I16", 2},
                                                  {"F16", 2},
                                                  {"BF16", 2},
                                                  {"U32", 4},
                                                  {"I32", 4},
                                                  {"F32", 4},
                                                  {"U64", 8},
                                                  {"I64", 8},
                                                  {"F64", 8}}};

const TypeWord& word_of(StoredType type) { return type_words[static_cast<std::size_t>(type)]; }

std::optional<StoredType> type_from(std::string_view word) {
  const auto found = std::find_if(type_words.begin(), type_words.end(),
                                  [&](const TypeWord& known) { return known.word == word; });
  if (found == type_words.end()) return {};
  return static_cast<StoredType>(found - type_words.begin());
}

[[noreturn]] void refuse_file(std::string_view file, const std::string& why) {
  throw InvalidInput(
      fmt::format("{}: {}; give a whole file, as the safetensors library or Stowage writes it", file, why));
}

// Returns the bytes of the shape; nullopt on overflow.
std::optional<Bytes> bytes_of(StoredType type, const std::vector<std::int64_t>& shape) {
  Bytes bytes = size_of(type);
  // A zero makes any product small, but the format forbids an overflow on the way to it.
  for (const std::int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<Bytes>(extent), &bytes)) return {};
  }
  if (bytes > static_cast<Bytes>(INT64_MAX)) return {};
  return bytes;
}

// Receives the JSON parser's events as it reads the header.
class HeaderEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderEvents(std::string_view file, SafetensorsHeader& header) : file_(file), header_(header) {}

  bool null() override { refuse_value("null"); }
  bool boolean(bool) override { refuse_value("true or false"); }
  bool number_integer(std::int64_t) override { refuse_value("a negative number"); }
  bool number_float(double, const std::string&) override { refuse_value("no whole number of 64 bits"); }
  bool binary(binary_t&) override { refuse_value("binary"); }

  bool number_unsigned(std::uint64_t value) override {
    if (!in_list_) refuse_value("a number");
    const bool shape = key_ == "shape";
    if (value > static_cast<std::uint64_t>(INT64_MAX)) refuse_value("beyond 63 bits");
    if (shape && header_.tensors.back().shape.size() == most_shape_dimensions)
      refuse_value(fmt::format("of more than {} dimensions", most_shape_dimensions));
    if (!shape && offsets_ == 2) refuse_value("a list of more than 2 numbers");
    if (shape)
      header_.tensors.back().shape.push_back(static_cast<std::int64_t>(value));
    else
      (offsets_++ == 0 ? header_.tensors.back().offset : header_.tensors.back().bytes) = value;
    return true;
  }

  bool string(std::string& value) override {
    if (place_ == Place::metadata) {
      if (!header_.metadata.emplace(key_, value).second) refuse_value("there twice");
      return true;
    }
    if (place_ != Place::tensor || in_list_ || key_ != "dtype") refuse_value("a string");
    const auto type = type_from(value);
    if (!type) refuse_value(fmt::format("{}, which is no type that is known here", in_quotes(value)));
    header_.tensors.back().type = *type;
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::outside) {
      place_ = Place::root;
    } else if (place_ == Place::root && name_ == "__metadata__") {
      if (std::exchange(metadata_seen_, true)) refuse_file(file_, "\"__metadata__\" stands twice");
      place_ = Place::metadata;
    } else if (place_ == Place::root) {
      header_.tensors.emplace_back().name = name_;
      place_ = Place::tensor;
      has_type_ = has_shape_ = has_offsets_ = false;
    } else {
      refuse_value("an object");
    }
    key_.clear();
    return true;
  }

  bool key(std::string& value) override {
    if (place_ == Place::root) {
      name_ = value;
      return true;
    }
    key_ = value;
    if (place_ == Place::metadata) return true;
    bool* seen = value == "dtype"          ? &has_type_
                 : value == "shape"        ? &has_shape_
                 : value == "data_offsets" ? &has_offsets_
                                           : nullptr;
    if (seen == nullptr) refuse_value("no field of a tensor");
    if (std::exchange(*seen, true)) refuse_value("there twice");
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensor && !(has_type_ && has_shape_ && has_offsets_))
      refuse_file(file_, fmt::format("tensor {} lacks dtype, shape or data_offsets", in_quotes(name_)));
    place_ = place_ == Place::root ? Place::outside : Place::root;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::tensor || in_list_ || (key_ != "shape" && key_ != "data_offsets"))
      refuse_value("a list");
    in_list_ = true;
    offsets_ = 0;
    return true;
  }

  bool end_array() override {
    if (key_ == "data_offsets") take_offsets();
    in_list_ = false;
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    refuse_file(file_, fmt::format("the header is no JSON ({})", error.what()));
  }

 private:
  enum class Place : std::uint8_t { outside, root, tensor, metadata };

  // "… is a string"
  [[noreturn]] void refuse_value(const std::string& what) const {
    const std::string field = key_.empty() ? "" : " " + in_quotes(key_);
    if (place_ == Place::outside) refuse_file(file_, "the header is no JSON object");
    refuse_file(file_, fmt::format("in the header {}{} is {}", in_quotes(name_), field, what));
  }

  void take_offsets() {
    StoredTensor& tensor = header_.tensors.back();
    if (offsets_ != 2) refuse_value("a list of less than 2 numbers");
    if (tensor.bytes < tensor.offset) refuse_value("a range that ends before it begins");
    tensor.bytes -= tensor.offset;
  }

  std::string_view file_;
  SafetensorsHeader& header_;
  Place place_ = Place::outside;
  bool in_list_ = false, metadata_seen_ = false;
  bool has_type_ = false, has_shape_ = false, has_offsets_ = false;
  int offsets_ = 0;  // number of data_offsets' numbers that were read
  std::string name_;
  std::string key_;
};

Bytes header_bytes(std::string_view beginning, Bytes file_bytes, std::string_view file) {
  if (file_bytes < prefix_bytes || beginning.size() < prefix_bytes)
    refuse_file(file, fmt::format("it has {} bytes, and a safetensors file begins with 8", file_bytes));
  Bytes bytes = 0;
  for (std::size_t i = prefix_bytes; i-- > 0;) bytes = bytes << 8U | static_cast<unsigned char>(beginning[i]);
  if (bytes > most_header_bytes)
    refuse_file(
        file, fmt::format("its header claims {} bytes, and the format allows {}", bytes, most_header_bytes));
  if (bytes > file_bytes - prefix_bytes || bytes > beginning.size() - prefix_bytes)
    refuse_file(file, fmt::format("its header claims {} bytes in a file of {}", bytes, file_bytes));
  return bytes;
}

void require_unique(const std::vector<StoredTensor>& tensors, std::string_view file) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const StoredTensor& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) refuse_file(file, fmt::format("tensor {} is there twice", in_quotes(*twice)));
}

// Sorts by offset; every byte behind the header must belong to one tensor.
void require_gapless(std::vector<StoredTensor>& tensors, Bytes data_bytes, std::string_view file) {
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::tie(a.offset, a.bytes) < std::tie(b.offset, b.bytes);
  });
  Bytes end = 0;
  for (const StoredTensor& tensor : tensors) {
    const auto bytes = bytes_of(tensor.type, tensor.shape);
    if (!bytes) refuse_file(file, fmt::format("the shape of tensor {} overflows", in_quotes(tensor.name)));
    if (*bytes != tensor.bytes)
      refuse_file(file, fmt::format("tensor {} has {} bytes by its data_offsets and {} by its shape",
                                    in_quotes(tensor.name), tensor.bytes, *bytes));
    if (tensor.offset != end)
      refuse_file(file, fmt::format("tensor {} begins at byte {}, and those before it end at {}",
                                    in_quotes(tensor.name), tensor.offset, end));
    if (tensor.bytes > data_bytes - end)
      refuse_file(file, fmt::format("tensor {} ends behind the file's end, of {} bytes of tensors",
                                    in_quotes(tensor.name), data_bytes));
    end += tensor.bytes;
  }
  if (end != data_bytes)
    refuse_file(file,
                fmt::format("it has {} bytes of tensors, of which the header names {}", data_bytes, end));
}

}  // namespace

Bytes size_of(StoredType type) { return word_of(type).bytes; }
std::string_view to_string(StoredType type) { return word_of(type).word; }

Bytes SafetensorsHeader::file_bytes() const {
  return data_offset + (tensors.empty() ? 0 : tensors.back().offset + tensors.back().bytes);
}

SafetensorsHeader parse_safetensors(std::string_view beginning, Bytes file_bytes, std::string_view file) {
  const Bytes bytes = header_bytes(beginning, file_bytes, file);
  const std::string_view text = beginning.substr(prefix_bytes, bytes);
  if (!text.starts_with('{')) refuse_file(file, "its header does not begin with '{'");
  SafetensorsHeader header;
  HeaderEvents events(file, header);
  nlohmann::json::sax_parse(text, &events);
  header.data_offset = prefix_bytes + bytes;
  require_unique(header.tensors, file);
  require_gapless(header.tensors, file_bytes - header.data_offset, file);
  return header;
}

std::string safetensors_beginning(SafetensorsHeader& header) {
  using nlohmann::ordered_json;
  const std::string_view file = "safetensors file to write";
  require_unique(header.tensors, file);
  ordered_json json = ordered_json::object();
  if (!header.metadata.empty()) json["__metadata__"] = header.metadata;
  Bytes end = 0;
  for (StoredTensor& tensor : header.tensors) {
    const auto bytes = bytes_of(tensor.type, tensor.shape);
    tensor.offset = end;
    if (!bytes || tensor.name == "__metadata__" || __builtin_add_overflow(end, *bytes, &end))
      refuse_file(file, fmt::format("tensor {} has no such name or shape", in_quotes(tensor.name)));
    tensor.bytes = *bytes;
    json[tensor.name] = {
        {"dtype", to_string(tensor.type)}, {"shape", tensor.shape}, {"data_offsets", {tensor.offset, end}}};
  }
  std::string text;
  try {
    text = json.dump();
  } catch (const nlohmann::json::exception& error) {
    refuse_file(file, fmt::format("a name is no UTF-8 ({})", error.what()));
  }
  text.resize(align_up(text.size(), prefix_bytes), ' ');
  if (text.size() > most_header_bytes)
    refuse_file(file, fmt::format("its header takes {} bytes, and the format allows {}", text.size(),
                                  most_header_bytes));
  header.data_offset = prefix_bytes + text.size();
  std::string beginning;
  for (std::size_t i = 0; i < prefix_bytes; ++i)
    beginning.push_back(static_cast<char>(text.size() >> (8 * i) & 0xffU));
  return beginning + text;
}

}  // namespace stowage
