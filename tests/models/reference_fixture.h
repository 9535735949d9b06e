// The files that tests/fixtures/make_fixtures.py makes, which says what they hold.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace stowage::test {

struct FixtureTensor {
  std::vector<std::int64_t> shape;
  std::vector<double> values;          // of f32 and f64
  std::vector<std::int32_t> integers;  // of i32
  double torch_error = 0;              // 0 where the file has none
};

struct Fixture {
  std::map<std::string, double> config;
  std::map<std::string, FixtureTensor> tensors;

  std::int64_t size(const std::string& name) const { return static_cast<std::int64_t>(config.at(name)); }
  const FixtureTensor& at(const std::string& name) const { return tensors.at(name); }
};

// Throws std::runtime_error where there is no such file or it ends too early.
Fixture read_fixture(const std::string& path);

}  // namespace stowage::test
