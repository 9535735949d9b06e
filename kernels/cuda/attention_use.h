// Which method may compute attention, and which one did. Thread-safe.
#pragma once

#include <string_view>

#include "kernels/cuda/attention.h"
#include "stowage/cuda_device.h"

namespace stowage::cuda {

enum class AttentionChoice : std::uint8_t { automatic, cudnn, own };

// STOWAGE_ATTENTION as it is now. Throws InvalidInput for a value that is none of cudnn, own and auto.
AttentionChoice attention_choice();

enum class AttentionMethod : std::uint8_t { cudnn, own, plain };

void count_attention(AttentionMethod method);

// cuDNN does not compute the shape, for this reason. Where the choice is automatic, that is kept and told on
// stderr, once for each shape. Where it is cuDNN alone: throws InvalidInput.
void refuse_cudnn(AttentionChoice choice, const AttentionShape& shape, bool backward,
                  std::string_view reason);

// As include/stowage/cuda_device.h says.
AttentionUse attention_use();

}  // namespace stowage::cuda
