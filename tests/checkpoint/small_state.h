// A small graph's state that tests save and load, and a folder for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "stowage/checkpoint.h"

namespace stowage::testing {

// A folder of one test's own, removed with it.
class OwnFolder {
 public:
  OwnFolder();
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;
  ~OwnFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  std::vector<std::string> names() const;  // of what is in it, sorted

 private:
  std::string path_;
};

std::string contents_of(const std::string& path);
void put(const std::string& path, const std::string& contents);

// Tensors that do not live across steps among those that do; one scalar, one empty, none a multiple of 64
// bytes.
Graph small_graph();

// Values of a graph's lasting tensors, by id; others have none.
class SmallState {
 public:
  SmallState(const Graph& graph, int first_byte);
  StateAccess access();
  CheckpointFolder::ReadValue values_of(const Graph& graph);
  friend bool operator==(const SmallState&, const SmallState&) = default;

 private:
  std::vector<std::vector<std::byte>> values_;
};

CheckpointState small_checkpoint(const Graph& graph, std::uint64_t step);

}  // namespace stowage::testing
