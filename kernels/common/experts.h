// kernels/common/experts.h: one matrix of an expert, as it lies in the checkpoint.
#pragma once

#include <cstdint>

#include "base/tensor.h"

namespace dsa {

struct ExpertMatrix {
  DType type = DType::u8;               // u8: MXFP4; or bf16, f32, f8_e4m3
  const void* data = nullptr;           // MXFP4: blocks
  const uint8_t* scales = nullptr;      // of MXFP4
  const float* block_scales = nullptr;  // of f8_e4m3
};

}  // namespace dsa
