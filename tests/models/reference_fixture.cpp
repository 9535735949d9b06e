#include "tests/models/reference_fixture.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace stowage::test {
namespace {

template <class From, class To>
std::vector<To> elements_at(const std::string& bytes, std::size_t offset, std::size_t count) {
  if (offset > bytes.size() || count > (bytes.size() - offset) / sizeof(From))
    throw std::runtime_error("a fixture ends too early");
  std::vector<To> values;
  for (std::size_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, bytes.data() + offset + i * sizeof(From), sizeof(From));
    values.push_back(static_cast<To>(value));
  }
  return values;
}

FixtureTensor tensor_of(const nlohmann::json& entry, const std::string& bytes) {
  FixtureTensor tensor;
  tensor.shape = entry.at("shape").get<std::vector<std::int64_t>>();
  tensor.torch_error = entry.value("torch_error", 0.0);
  std::size_t count = 1;
  for (std::int64_t dimension : tensor.shape) count *= static_cast<std::size_t>(dimension);
  const auto offset = entry.at("offset").get<std::size_t>();
  const auto type = entry.at("type").get<std::string>();
  if (type == "i32") tensor.integers = elements_at<std::int32_t, std::int32_t>(bytes, offset, count);
  if (type == "f32") tensor.values = elements_at<float, double>(bytes, offset, count);
  if (type == "f64") tensor.values = elements_at<double, double>(bytes, offset, count);
  return tensor;
}

}  // namespace

Fixture read_fixture(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  if (!std::getline(file, line)) throw std::runtime_error(path + ": no such fixture");
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const nlohmann::json index = nlohmann::json::parse(line);
  Fixture fixture;
  fixture.config = index.at("config").get<std::map<std::string, double>>();
  for (const nlohmann::json& entry : index.at("tensors"))
    fixture.tensors[entry.at("name").get<std::string>()] = tensor_of(entry, bytes);
  return fixture;
}

}  // namespace stowage::test
