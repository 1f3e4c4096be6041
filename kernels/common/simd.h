// kernels/common/simd.h: a thin layer of names over Google Highway for f32 work. A file that includes it is built
// once per instruction set; `DSA_ISA` names the variant and its namespace.
#pragma once

#include <hwy/highway.h>

#include <cmath>

#include "kernels/common/numbers.h"

namespace dsa {
namespace DSA_ISA {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using Vec = hn::Vec<F32>;

inline size_t lanes() { return hn::Lanes(F32()); }
inline Vec zero() { return hn::Zero(F32()); }
inline Vec set(float value) { return hn::Set(F32(), value); }
inline Vec load(const float* p) { return hn::LoadU(F32(), p); }
// bf16 is the upper half of f32.
inline Vec load(const bf16* p) {
  const hn::Rebind<uint16_t, F32> d16;
  const hn::RebindToUnsigned<F32> d32;
  return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p)))));
}
inline void store(Vec v, float* p) { hn::StoreU(v, F32(), p); }
inline Vec fma(Vec a, Vec b, Vec c) { return hn::MulAdd(a, b, c); }
inline float sum(Vec v) { return hn::GetLane(hn::SumOfLanes(F32(), v)); }
inline float max(Vec v) { return hn::GetLane(hn::MaxOfLanes(F32(), v)); }

}  // namespace DSA_ISA
}  // namespace dsa
