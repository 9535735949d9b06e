// The service that hands each call to the driver as it is.
#pragma once

#include "allocator/interpose/service.h"

namespace stowage::interpose {

class PassThrough : public Service {
 public:
  CUresult allocate(const AllocateCall& call) override;
  CUresult free(const FreeCall& call) override;
};

}  // namespace stowage::interpose
