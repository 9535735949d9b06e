// Queries about an address. The driver would call spilled memory the host's; the program asked for device
// memory, in an allocation of its own, and is told so.
#include <cstring>

#include "allocator/interpose/driver.h"
#include "allocator/interpose/process.h"
#include "allocator/interpose/replacements.h"

using stowage::interpose::call_real;
using stowage::interpose::Entry;
using stowage::interpose::Outermost;
using stowage::interpose::program_memory;
using stowage::interpose::ProgramMemory;

namespace {

template <class Value>
void put(void* data, Value value) {
  std::memcpy(data, static_cast<const void*>(&value), sizeof(value));
}

// Corrects the driver's answer. Attributes that are right stay: whether the memory is managed, is mapped, can
// be shared.
void correct(CUpointer_attribute attribute, void* data, const ProgramMemory& memory, CUdeviceptr address) {
  if (data == nullptr) return;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return put(data, static_cast<void*>(memory.context));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put(data, CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return put(data, address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return put(data, static_cast<void*>(nullptr));
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return put(data, static_cast<unsigned long long>(memory.id));
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put(data, memory.device);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put(data, memory.address);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put(data, static_cast<std::size_t>(memory.bytes));
    default:
      return;
  }
}

bool is_corrected(CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return true;
    default:
      return false;
  }
}

}  // namespace

extern "C" {

CUresult cuMemGetAddressRange_v2(CUdeviceptr* start, size_t* bytes, CUdeviceptr address) {
  const Outermost outermost(__builtin_return_address(0));
  const auto memory = outermost ? program_memory(address) : std::nullopt;
  if (!memory)
    return call_real<decltype(cuMemGetAddressRange_v2)>(Entry::mem_get_address_range, start, bytes, address);
  if (start != nullptr) *start = memory->address;
  if (bytes != nullptr) *bytes = memory->bytes;
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  const Outermost outermost(__builtin_return_address(0));
  const auto memory = outermost ? program_memory(address) : std::nullopt;
  if (!memory || !is_corrected(attribute)) {
    // Device memory has no address on the host.
    if (memory && attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER) return CUDA_ERROR_INVALID_VALUE;
    return call_real<decltype(cuPointerGetAttribute)>(Entry::pointer_get_attribute, data, attribute, address);
  }
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  correct(attribute, data, *memory, address);
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data,
                                CUdeviceptr address) {
  const Outermost outermost(__builtin_return_address(0));
  const auto memory = outermost ? program_memory(address) : std::nullopt;
  const CUresult result = call_real<decltype(cuPointerGetAttributes)>(Entry::pointer_get_attributes, count,
                                                                      attributes, data, address);
  if (memory && result == CUDA_SUCCESS) {
    for (unsigned i = 0; i < count; ++i) correct(attributes[i], data[i], *memory, address);
  }
  return result;
}
}
