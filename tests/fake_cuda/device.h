// The card that the fakes are: what runtime and driver say of it, and the names of errors.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

namespace fake_cuda {

inline constexpr const char* device_name = "Fake CUDA device";
inline constexpr const char* pci_bus_id = "0000:01:00.0";
inline constexpr int capability_major = 9;
inline constexpr int capability_minor = 0;
inline constexpr int multiprocessors = 4;
inline constexpr int copy_engines = 3;
inline constexpr int greatest_priority = -5;
inline constexpr int max_threads = 1024;
inline constexpr std::size_t shared_bytes = std::size_t{48} << 10;
inline constexpr std::size_t shared_bytes_when_asked = std::size_t{227} << 10;
inline constexpr std::array<unsigned, 3> max_block = {1024, 1024, 64};
inline constexpr std::array<unsigned, 3> max_grid = {2147483647, 65535, 65535};

// Runtime and driver number attributes alike. Nothing for one that is not known here.
std::optional<int> device_attribute(int attribute);

// Runtime and driver number errors alike, too.
const char* error_name(int error);
const char* error_text(int error);

}  // namespace fake_cuda
