#include "kernels/kernel_table.h"

namespace dsa {
namespace {

// `table` with the SIMD operators of one variant in place of what was there.
#define DSA_SET_KERNEL(name, Args) table.name = DSA_VARIANT::name;

KernelTable with_reference() {
  KernelTable table;
#define DSA_VARIANT ref
  DSA_FOR_EACH_KERNEL(DSA_SET_KERNEL)
#undef DSA_VARIANT
  return table;
}

KernelTable with_generic(KernelTable table) {
#define DSA_VARIANT generic
  DSA_FOR_EACH_SIMD_KERNEL(DSA_SET_KERNEL)
#undef DSA_VARIANT
  return table;
}

#if defined(__x86_64__)
bool cpu_has_generic() { return __builtin_cpu_supports("ssse3"); }

KernelTable with_avx2(KernelTable table) {
#define DSA_VARIANT avx2
  DSA_FOR_EACH_SIMD_KERNEL(DSA_SET_KERNEL)
#undef DSA_VARIANT
  return table;
}

KernelTable with_avx512(KernelTable table) {
#define DSA_VARIANT avx512
  DSA_FOR_EACH_SIMD_KERNEL(DSA_SET_KERNEL)
#undef DSA_VARIANT
  return table;
}

bool cpu_has_avx2() {
  return cpu_has_generic() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

bool cpu_has_avx512() {
  return cpu_has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}

bool cpu_has_avx512vnni() { return cpu_has_avx512() && __builtin_cpu_supports("avx512vnni"); }
#endif

std::vector<KernelVariant> find_variants() {
  std::vector<KernelVariant> variants;
  variants.push_back({"ref", with_reference()});
#if defined(__x86_64__)
  if (cpu_has_generic()) variants.push_back({"generic", with_generic(variants.back().table)});
  if (cpu_has_avx2()) variants.push_back({"avx2", with_avx2(variants.back().table)});
  if (cpu_has_avx512()) variants.push_back({"avx512", with_avx512(variants.back().table)});
  if (cpu_has_avx512vnni()) {
    KernelTable table = variants.back().table;
    table.linear = avx512vnni::linear;
    table.mxfp4_linear = avx512vnni::mxfp4_linear;
    variants.push_back({"avx512vnni", table});
  }
#else
  variants.push_back({"generic", with_generic(variants.back().table)});
#endif
  return variants;
}

}  // namespace

const std::vector<KernelVariant>& cpu_kernel_variants() {
  static const auto& variants = *new std::vector<KernelVariant>(find_variants());  // never destroyed
  return variants;
}

std::vector<KernelCover> kernel_cover(const std::vector<KernelVariant>& variants) {
  std::vector<KernelCover> cover;
#define DSA_COVER(member, Args)                                                               \
  cover.push_back({#member, ""});                                                             \
  for (auto v = variants.rbegin(); v != variants.rend() && v->table.member != nullptr; ++v) { \
    if (v->table.member != variants.back().table.member) break;                               \
    cover.back().variant = v->name;                                                           \
  }
  DSA_FOR_EACH_KERNEL(DSA_COVER)
#undef DSA_COVER
  return cover;
}

const KernelTable& reference_kernels() { return cpu_kernel_variants().front().table; }
const KernelTable& cpu_kernels() { return cpu_kernel_variants().back().table; }

}  // namespace dsa
