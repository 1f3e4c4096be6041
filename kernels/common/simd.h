// kernels/common/simd.h: a thin layer of names over Google Highway for f32 work. A file that includes it is
// built once per instruction set; `DSA_ISA` names the variant and its namespace.
#pragma once

#include <hwy/highway.h>

#include <cmath>

#include "kernels/common/numbers.h"

namespace dsa {
namespace DSA_ISA {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using Vec = hn::Vec<F32>;

constexpr int kLanes = int(hn::MaxLanes(F32()));  // of every vector on the targets that we build
inline size_t lanes() { return hn::Lanes(F32()); }
inline Vec zero() { return hn::Zero(F32()); }
inline Vec set(float value) { return hn::Set(F32(), value); }
inline Vec load(const float* p) { return hn::LoadU(F32(), p); }
// bf16 is the upper half of f32.
inline Vec load(const bf16* p) {
  const hn::Rebind<uint16_t, F32> d16;
  const hn::RebindToUnsigned<F32> d32;
  return hn::BitCast(
      F32(), hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p)))));
}
// Codes of E4M3, as in e4m3_to_f32.
inline Vec load_e4m3(const uint8_t* p) {
  const hn::Rebind<uint8_t, F32> d8;
  const hn::RebindToUnsigned<F32> d32;
  const auto code = hn::PromoteTo(d32, hn::LoadU(d8, p));
  const auto magnitude = hn::And(code, hn::Set(d32, 0x7f)),
             sign = hn::ShiftLeft<24>(hn::And(code, hn::Set(d32, 0x80)));
  const Vec value = hn::BitCast(F32(), hn::Or(hn::ShiftLeft<20>(magnitude), sign));
  const auto is_nan = hn::RebindMask(F32(), hn::Eq(magnitude, hn::Set(d32, 0x7f)));
  return hn::IfThenElse(is_nan, set(NAN), hn::Mul(value, set(0x1p120f)));
}
inline void store(Vec v, float* p) { hn::StoreU(v, F32(), p); }
inline Vec fma(Vec a, Vec b, Vec c) { return hn::MulAdd(a, b, c); }
// Any address will do, mapped or not.
inline void prefetch(const void* p) { __builtin_prefetch(p); }
inline void prefetch_l2(const void* p) { __builtin_prefetch(p, 0, 2); }
inline float sum(Vec v) { return hn::GetLane(hn::SumOfLanes(F32(), v)); }
inline float max(Vec v) { return hn::GetLane(hn::MaxOfLanes(F32(), v)); }

// The first n values, n <= lanes(); the other lanes are zero and their memory is not read, or not written.
inline Vec load(const float* p, size_t n) {
  if (n == lanes()) return load(p);
#if HWY_MEM_OPS_MIGHT_FAULT
  HWY_ALIGN float values[HWY_MAX_BYTES / sizeof(float)] = {};
  for (size_t i = 0; i < n; ++i) values[i] = p[i];
  return load(values);
#else
  return hn::MaskedLoad(hn::FirstN(F32(), n), F32(), p);
#endif
}
inline Vec load(const bf16* p, size_t n) {
  if (n == lanes()) return load(p);
  bf16 values[kLanes] = {};
  for (size_t i = 0; i < n; ++i) values[i] = p[i];
  return load(values);
}
inline void store(Vec v, float* p, size_t n) {
  if (n == lanes()) return store(v, p);
#if HWY_MEM_OPS_MIGHT_FAULT
  HWY_ALIGN float values[HWY_MAX_BYTES / sizeof(float)];
  store(v, values);
  for (size_t i = 0; i < n; ++i) p[i] = values[i];
#else
  hn::BlendedStore(v, hn::FirstN(F32(), n), F32(), p);
#endif
}

// Calls f(i, n) for consecutive runs [i, i + n) of [begin, end): n is lanes(), and less in the last one only.
template <class F>
inline void for_each_vector(int64_t begin, int64_t end, const F& f) {
  int64_t i = begin;
  for (; i + int64_t(lanes()) <= end; i += int64_t(lanes())) f(i, lanes());
  if (i < end) f(i, size_t(end - i));
}

inline Vec add(Vec a, Vec b) { return hn::Add(a, b); }
inline Vec sub(Vec a, Vec b) { return hn::Sub(a, b); }
inline Vec mul(Vec a, Vec b) { return hn::Mul(a, b); }
inline Vec div(Vec a, Vec b) { return hn::Div(a, b); }
// max(0, v); NaN stays NaN.
inline Vec relu(Vec v) { return hn::IfThenElse(hn::Lt(v, zero()), zero(), v); }

// e^v within 2 ulp; 0 below -104, infinity above 88.73, NaN stays NaN. Cephes' polynomial on [-ln 2 / 2, ln 2
// / 2].
inline Vec exp(Vec v) {
  v = hn::IfThenElse(hn::Lt(v, set(-104.f)), set(-104.f), v);
  v = hn::IfThenElse(hn::Gt(v, set(89.f)), set(89.f), v);
  const Vec n = hn::Round(mul(v, set(1.44269504f)));
  const Vec r = fma(n, set(2.12194440e-4f), fma(n, set(-0.693359375f), v));  // ln 2 in two parts
  Vec p = fma(set(1.9875691500e-4f), r, set(1.3981999507e-3f));
  p = fma(p, r, set(8.3334519073e-3f));
  p = fma(p, r, set(4.1665795894e-2f));
  p = fma(p, r, set(1.6666665459e-1f));
  p = fma(p, r, set(5.0000001201e-1f));
  p = fma(p, mul(r, r), add(r, set(1.f)));
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  return Vec{_mm512_scalef_ps(p.raw, n.raw)};
#else
  // 2^n in two factors: n may be below -126.
  const hn::RebindToSigned<F32> i32;
  const auto all = hn::ConvertTo(i32, n), half = hn::ShiftRight<1>(all), bias = hn::Set(i32, 127);
  const auto power = [&](auto e) { return hn::BitCast(F32(), hn::ShiftLeft<23>(hn::Add(e, bias))); };
  return mul(mul(p, power(half)), power(hn::Sub(all, half)));
#endif
}
inline Vec sigmoid(Vec v) { return div(set(1.f), add(set(1.f), exp(hn::Neg(v)))); }
// Small arguments have a polynomial of their own, so that the relative error stays small too.
inline Vec tanh(Vec v) {
  const Vec magnitude = hn::Abs(v), square = mul(v, v);
  Vec p = fma(set(-5.70498872745e-3f), square, set(2.06390887954e-2f));
  p = fma(p, square, set(-5.37397155531e-2f));
  p = fma(p, square, set(1.33314422036e-1f));
  p = fma(p, square, set(-3.33332819422e-1f));
  const Vec small = fma(mul(p, square), v, v);
  const Vec large = sub(set(1.f), div(set(2.f), add(exp(add(magnitude, magnitude)), set(1.f))));
  return hn::IfThenElse(hn::Lt(magnitude, set(0.625f)), small, hn::CopySign(large, v));
}

// log(1 + u) for u in [0, 1], within 3 ulp: 2 artanh(u / (2 + u)), whose argument is at most 1/3.
inline Vec log1p_of_fraction(Vec u) {
  const Vec s = div(u, add(set(2.f), u)), square = mul(s, s);
  Vec p = fma(set(1 / 15.f), square, set(1 / 13.f));
  for (const float c : {1 / 11.f, 1 / 9.f, 1 / 7.f, 1 / 5.f, 1 / 3.f}) p = fma(p, square, set(c));
  const Vec twice = add(s, s);
  return fma(mul(p, square), twice, twice);
}
// log(1 + e^v) = max(v, 0) + log(1 + e^-|v|); NaN stays NaN.
inline Vec softplus(Vec v) { return add(relu(v), log1p_of_fraction(exp(hn::Neg(hn::Abs(v))))); }

// The sum of x[i] * y[i], in four chains.
inline float dot(const float* x, const float* y, int64_t n) {
  const int64_t step = int64_t(lanes());
  Vec a = zero(), b = zero(), c = zero(), d = zero();
  int64_t i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    a = fma(load(x + i), load(y + i), a);
    b = fma(load(x + i + step), load(y + i + step), b);
    c = fma(load(x + i + 2 * step), load(y + i + 2 * step), c);
    d = fma(load(x + i + 3 * step), load(y + i + 3 * step), d);
  }
  for_each_vector(i, n, [&](int64_t j, size_t m) { a = fma(load(x + j, m), load(y + j, m), a); });
  return sum(add(add(a, b), add(c, d)));
}

// out[0..3] = the sums of the lanes of four vectors.
#if HWY_TARGET == HWY_SCALAR
inline void sum4(Vec a, Vec b, Vec c, Vec d, float* out) {
  out[0] = sum(a), out[1] = sum(b), out[2] = sum(c), out[3] = sum(d);
}
#else
// The sum of the blocks of four lanes.
template <class D>
inline hn::Vec<hn::Full128<float> > sum_blocks(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    return sum_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    (void)d;
    return v;
  }
}
// The 4 x 4 blocks of a, b, c, d turned: lane 4 i + j of vector m becomes lane 4 i + m of vector j.
inline void transpose_blocks(Vec& a, Vec& b, Vec& c, Vec& d) {
  const F32 f32;
  const hn::Repartition<uint64_t, F32> u64;
  const auto wide = [&](Vec v) { return hn::BitCast(u64, v); };
  const auto ab_low = wide(hn::InterleaveLower(f32, a, b)), ab_high = wide(hn::InterleaveUpper(f32, a, b));
  const auto cd_low = wide(hn::InterleaveLower(f32, c, d)), cd_high = wide(hn::InterleaveUpper(f32, c, d));
  a = hn::BitCast(f32, hn::InterleaveLower(u64, ab_low, cd_low));
  b = hn::BitCast(f32, hn::InterleaveUpper(u64, ab_low, cd_low));
  c = hn::BitCast(f32, hn::InterleaveLower(u64, ab_high, cd_high));
  d = hn::BitCast(f32, hn::InterleaveUpper(u64, ab_high, cd_high));
}
inline void sum4(Vec a, Vec b, Vec c, Vec d, float* out) {
  transpose_blocks(a, b, c, d);
  hn::StoreU(sum_blocks(F32(), add(add(a, b), add(c, d))), hn::Full128<float>(), out);
}
#endif

}  // namespace DSA_ISA
}  // namespace dsa
