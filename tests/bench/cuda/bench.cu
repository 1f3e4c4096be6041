// tests/bench/cuda/bench.cu: dsa_bench_cuda, the operators of a GPU against what its memory and its multipliers can do;
// `model` and `load` are commands of their own.
//
// Every figure is the median of several timings with CUDA events around a row of launches that go through different
// data, so that caches hold nothing of the next one; launches overlap as they do in a step. The ceilings are measured
// in the same run.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "bench/cuda/ceilings.cuh"
#include "bench/cuda/load.h"
#include "bench/cuda/model.h"
#include "kernels/common/cuda.cuh"
#include "kernels/cuda_kernels.h"
#include "kernels/mxfp4_expert_linear/mxfp4_expert_linear.h"
#include "kernels/mxfp4_to_fp8/mxfp4_to_fp8.h"

using namespace dsa;

namespace {

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  exit(1);
}
void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fprintf(stderr, "%s: cuBLASLt status %d\n", what, int(status));
  exit(1);
}

// Memory of the device, given back at the end of a case.
class Memory {
 public:
  ~Memory() {
    for (void* pointer : pointers_) cudaFree(pointer);
  }
  template <class T>
  T* of(size_t count) {
    void* pointer = nullptr;
    check(cudaMalloc(&pointer, count * sizeof(T)), "cudaMalloc");
    pointers_.push_back(pointer);
    return static_cast<T*>(pointer);
  }
  template <class T>
  T* copy(const std::vector<T>& values) {
    T* pointer = of<T>(values.size());
    check(cudaMemcpy(pointer, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
          "cudaMemcpy");
    return pointer;
  }
  // Random bytes from low to high.
  uint8_t* bytes(size_t count, int low, int high) {
    uint8_t* pointer = of<uint8_t>(count);
    fill(pointer, count, [=](uint32_t bits) { return uint8_t(low + bits % uint32_t(high - low + 1)); });
    return pointer;
  }
  // Uneven numbers from -1 to 1.
  float* floats(size_t count) {
    float* pointer = of<float>(count);
    fill(pointer, count, [](uint32_t bits) { return float(int32_t(bits)) * 0x1p-31f; });
    return pointer;
  }
  bf16* narrow(size_t count) {
    bf16* pointer = of<bf16>(count);
    fill(pointer, count, [](uint32_t bits) { return to_bf16(float(int32_t(bits)) * 0x1p-31f); });
    return pointer;
  }

 private:
  // A stretch of random values, again and again.
  template <class T, class F>
  void fill(T* pointer, size_t count, const F& value) {
    static std::mt19937 random(1);
    std::vector<T> stretch(std::min(count, size_t{1} << 20));
    for (T& v : stretch) v = value(random());
    for (size_t at = 0; at < count; at += stretch.size())
      check(cudaMemcpy(pointer + at, stretch.data(), std::min(stretch.size(), count - at) * sizeof(T),
                       cudaMemcpyHostToDevice),
            "cudaMemcpy");
  }
  std::vector<void*> pointers_;
};

struct Bench {
  CudaQueue& queue;
  const KernelTable& kernels;
  double read = 0, copy = 0;      // bytes per second
  double fp8 = 0, bf16_rate = 0;  // operations per second of cuBLASLt

  // Seconds of f(i), of a row of `count` calls with i rising.
  double seconds(int count, const std::function<void(int)>& f) {
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin), "event"), check(cudaEventCreate(&end), "event");
    std::vector<float> times;
    for (int repeat = 0; repeat < 8; ++repeat) {
      check(cudaEventRecord(begin, queue.stream()), "event");
      for (int i = 0; i < count; ++i) f(i);
      check(cudaEventRecord(end, queue.stream()), "event");
      check(cudaStreamSynchronize(queue.stream()), "kernels");
      float ms = 0;
      check(cudaEventElapsedTime(&ms, begin, end), "event");
      if (repeat > 0) times.push_back(ms);
    }
    check(queue.take_error(), "launch");
    cudaEventDestroy(begin), cudaEventDestroy(end);
    std::nth_element(times.begin(), times.begin() + 3, times.end());
    return times[3] * 1e-3 / count;
  }
  void report(const char* name, double seconds, double bytes, double ceiling, const char* of) {
    printf("%-58s %9.1f us %7.2f TB/s  %5.1f %% of %s\n", name, seconds * 1e6, bytes / seconds * 1e-12,
           100 * bytes / seconds / ceiling, of);
  }
  void report_rate(const char* name, double seconds, double operations, double ceiling, const char* of) {
    printf("%-58s %9.1f us %7.1f TFLOP/s  %5.1f %% of %s\n", name, seconds * 1e6,
           operations / seconds * 1e-12, 100 * operations / seconds / ceiling, of);
  }
};

void ceilings(Bench& b) {
  Memory memory;
  const size_t bytes = size_t{4} << 30;
  uint8_t *from = memory.bytes(bytes, 0, 255), *to = memory.of<uint8_t>(bytes / 2);
  const int blocks = b.queue.device().multiprocessors * 2;
  double s = b.seconds(2, [&](int) {
    bench::read_kernel<<<blocks, 1024, 0, b.queue.stream()>>>(reinterpret_cast<uint4*>(from), bytes / 16,
                                                              reinterpret_cast<uint4*>(to));
  });
  b.read = double(bytes) / s;
  s = b.seconds(2, [&](int) {
    check(cudaMemcpyAsync(to, from, bytes / 2, cudaMemcpyDeviceToDevice, b.queue.stream()), "copy");
  });
  b.copy = double(bytes) / s;
  printf("read %.2f TB/s, copy %.2f TB/s\n", b.read * 1e-12, b.copy * 1e-12);
}

// FP8 and bf16 products of cuBLASLt: y [rows, out] = x [rows, in] w^T.
double cublas_seconds(Bench& b, int rows, int in_dim, int out_dim, bool fp8) {
  Memory memory;
  const size_t weights = size_t(in_dim) * out_dim, size = fp8 ? 1 : 2;
  const int sets = int(std::max<size_t>(2, (size_t{256} << 20) / (weights * size)));
  std::vector<void*> w;
  for (int i = 0; i < sets; ++i)
    w.push_back(fp8 ? static_cast<void*>(memory.bytes(weights, 0x20, 0x50)) : memory.narrow(weights));
  void* x = fp8 ? static_cast<void*>(memory.bytes(size_t(rows) * in_dim, 0x20, 0x50))
                : memory.narrow(size_t(rows) * in_dim);
  bf16* y = memory.of<bf16>(size_t(rows) * out_dim);
  void* workspace = memory.of<uint8_t>(size_t{64} << 20);
  float* one = memory.copy(std::vector<float>{1});

  cublasLtMatmulDesc_t product;
  check(cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "product");
  const cublasOperation_t transpose = CUBLAS_OP_T;
  check(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose),
        "product");
  if (fp8) {
    for (const auto scale : {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER})
      check(cublasLtMatmulDescSetAttribute(product, scale, &one, sizeof one), "scale");
  }
  const auto type = fp8 ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
  cublasLtMatrixLayout_t wl, xl, yl;
  check(cublasLtMatrixLayoutCreate(&wl, type, in_dim, out_dim, in_dim), "layout");
  check(cublasLtMatrixLayoutCreate(&xl, type, in_dim, rows, in_dim), "layout");
  check(cublasLtMatrixLayoutCreate(&yl, CUDA_R_16BF, out_dim, rows, out_dim), "layout");
  cublasLtMatmulPreference_t preference;
  check(cublasLtMatmulPreferenceCreate(&preference), "preference");
  const size_t limit = size_t{64} << 20;
  check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit,
                                             sizeof limit),
        "preference");
  cublasLtMatmulHeuristicResult_t found[4];
  int count = 0;
  check(
      cublasLtMatmulAlgoGetHeuristic(b.queue.cublas(), product, wl, xl, yl, yl, preference, 4, found, &count),
      "heuristic");
  double best = 1e9;
  const float alpha = 1, beta = 0;
  for (int algo = 0; algo < count; ++algo)
    best = std::min(best, b.seconds(sets, [&](int i) {
      check(cublasLtMatmul(b.queue.cublas(), product, &alpha, w[size_t(i)], wl, x, xl, &beta, y, yl, y, yl,
                           &found[algo].algo, workspace, limit, b.queue.stream()),
            "product");
    }));
  return best;
}

constexpr const char* kRead = "read bandwidth";
constexpr const char* kCopy = "copy bandwidth";

void mxfp4_decode(Bench& b, const char* name, int tokens, int experts, int top_k, int in_dim, int out_dim,
                  int per_expert) {
  Memory memory;
  const size_t matrix = size_t(in_dim) * out_dim;
  const int used = std::min(experts, tokens * top_k), groups_each = used * per_expert;
  const size_t bytes = size_t(groups_each) * matrix * 17 / 32;
  const int sets = int(std::max<size_t>(2, (size_t{400} << 20) / bytes));
  const int rows = tokens * top_k;
  float* x = memory.floats(size_t(rows) * in_dim);
  float* y = memory.of<float>(size_t(rows) * out_dim * per_expert);
  std::vector<Mxfp4LinearGroup*> groups;
  for (int s = 0; s < sets; ++s) {
    std::vector<Mxfp4LinearGroup> set;
    uint8_t* blocks = memory.bytes(groups_each * matrix / 2, 0, 255);
    uint8_t* scales = memory.bytes(groups_each * matrix / 32, 118, 126);
    for (int g = 0; g < groups_each; ++g) {
      const int e = g / per_expert, begin = rows * e / used, end = rows * (e + 1) / used;
      set.push_back({blocks + g * matrix / 2, scales + g * matrix / 32, begin, end - begin,
                     y + size_t(begin) * out_dim * per_expert + size_t(g % per_expert) * out_dim});
    }
    groups.push_back(memory.copy(set));
  }
  const double s = b.seconds(sets * 2, [&](int i) {
    b.kernels.mxfp4_linear({x, groups[size_t(i % sets)], groups_each, nullptr, in_dim,
                            int64_t(out_dim) * per_expert, rows, in_dim, out_dim, Route::fast, tokens},
                           b.queue);
  });
  b.report(name, s, double(bytes), b.read, kRead);
}

// The experts of one token at a time, both halves of the block.
void experts(Bench& b, const char* name, int tokens, int top_k, int in_dim, int out_dim) {
  Memory memory;
  const size_t matrix = size_t(in_dim) * out_dim, bytes = size_t(tokens) * top_k * matrix * 17 / 32;
  const int sets = int(std::max<size_t>(2, (size_t{400} << 20) / (3 * bytes))), pairs = tokens * top_k;
  std::vector<ExpertMatrix> matrices[3];
  std::vector<int32_t> ids;
  for (int e = 0; e < sets * pairs; ++e) {
    ids.push_back(e);
    for (auto& of : matrices) {
      ExpertMatrix m;
      m.data = memory.bytes(matrix / 2, 0, 255), m.scales = memory.bytes(matrix / 32, 118, 126);
      of.push_back(m);
    }
  }
  const ExpertMatrix *gates = memory.copy(matrices[0]), *ups = memory.copy(matrices[1]),
                     *downs = memory.copy(matrices[2]);
  const int32_t* expert_ids = memory.copy(ids);
  float *x = memory.floats(size_t(tokens) * in_dim), *gate = memory.floats(size_t(pairs) * out_dim),
        *up = memory.floats(size_t(pairs) * out_dim), *weights = memory.floats(pairs),
        *shared = memory.floats(size_t(tokens) * in_dim), *y = memory.floats(size_t(tokens) * in_dim);
  const auto first = [&](int i) {
    b.kernels.expert_up({x, expert_ids + i % sets * pairs, gates, ups, gate, up, in_dim, tokens, top_k,
                         in_dim, out_dim, Route::fast},
                        b.queue);
  };
  const auto second = [&](int i) {
    b.kernels.expert_down({gate,
                           up,
                           {ActivationKind::swiglu},
                           expert_ids + i % sets * pairs,
                           weights,
                           downs,
                           shared,
                           y,
                           y,
                           tokens,
                           top_k,
                           out_dim,
                           in_dim,
                           Route::fast},
                          b.queue);
  };
  const std::string text = std::string("experts, ") + name;
  b.report((text + ", up").c_str(), b.seconds(sets * 2, first), 2.0 * double(bytes), b.read, kRead);
  b.report((text + ", down").c_str(), b.seconds(sets * 2, second), double(bytes), b.read, kRead);
  b.report((text + ", both").c_str(), b.seconds(sets * 2, [&](int i) { first(i), second(i); }),
           3.0 * double(bytes), b.read, kRead);
}

// Products that share a normed input.
void linears(Bench& b, const char* name, int rows, int in_dim, const std::vector<int>& out_dims) {
  Memory memory;
  size_t bytes = 0;
  for (const int out_dim : out_dims) bytes += size_t(in_dim) * out_dim * 2;
  const int sets = int(std::max<size_t>(2, (size_t{400} << 20) / bytes));
  LinearsArgs args = {};
  args.rows = rows;
  args.norm = memory.floats(in_dim), args.h = memory.of<float>(size_t(rows) * in_dim), args.eps = 1e-5f;
  const float* x = memory.floats(size_t(rows) * in_dim);
  std::vector<LinearsArgs> all;
  for (int s = 0; s < sets; ++s) {
    args.num_products = 0;
    for (const int out_dim : out_dims)
      args.products[args.num_products++] = {x,           memory.narrow(size_t(in_dim) * out_dim),
                                            DType::bf16, memory.of<float>(size_t(rows) * out_dim),
                                            in_dim,      out_dim,
                                            in_dim,      out_dim};
    all.push_back(args);
  }
  const double s = b.seconds(sets * 2, [&](int i) { b.kernels.linears(all[size_t(i % sets)], b.queue); });
  b.report(name, s, double(bytes), b.read, kRead);
}

void conversion(Bench& b, const char* name, int experts, int in_dim, int out_dim) {
  Memory memory;
  const size_t matrix = size_t(in_dim) * out_dim;
  uint8_t* blocks = memory.bytes(experts * matrix / 2, 0, 255);
  uint8_t* scales = memory.bytes(experts * matrix / 32, 118, 126);
  auto* exponents = memory.of<int16_t>(size_t(experts) * out_dim);
  auto* spreads = memory.of<uint8_t>(size_t(experts) * out_dim);
  auto* codes = memory.of<uint8_t>(experts * matrix);
  cuda::mxfp4_exponents({blocks, scales, exponents, spreads, int64_t(experts) * out_dim, in_dim}, b.queue);
  std::vector<Mxfp4ToFp8Group> set;
  for (int e = 0; e < experts; ++e)
    set.push_back({blocks + e * matrix / 2, scales + e * matrix / 32, exponents + size_t(e) * out_dim,
                   codes + e * matrix});
  const Mxfp4ToFp8Group* groups = memory.copy(set);
  const double s = b.seconds(2, [&](int) {
    cuda::mxfp4_to_fp8({groups, experts, in_dim, out_dim}, b.queue);
  });
  b.report(name, s, double(experts) * double(matrix) * (17.0 / 32 + 1), b.copy, kCopy);
}

// Experts with as many rows each, through FP8: the matrices of one product of a layer.
struct Fp8Experts {
  Memory memory;
  int experts, rows, in_dim, out_dim;
  std::vector<int32_t> offsets;
  float *x = nullptr, *y = nullptr;
  uint8_t *blocks = nullptr, *scales = nullptr, *codes = nullptr, *x_codes = nullptr;
  float* x_scales = nullptr;
  int16_t* exponents = nullptr;
  int32_t* ranges = nullptr;

  Fp8Experts(int experts_, int rows_, int in, int out)
      : experts(experts_), rows(rows_), in_dim(in), out_dim(out) {
    for (int e = 0; e <= experts; ++e) offsets.push_back(e * rows);
    ranges = memory.copy(offsets);
    exponents = memory.copy(std::vector<int16_t>(size_t(experts) * size_t(out), int16_t(118)));
    y = memory.of<float>(size_t(total()) * size_t(out));
    x_codes = memory.bytes(size_t(total()) * size_t(in), 0x20, 0x50);
    x_scales = memory.floats(size_t(total()));
  }
  void make_mxfp4() {
    x = memory.floats(size_t(total()) * size_t(in_dim));
    blocks = memory.bytes(experts * matrix() / 2, 0, 255);
    scales = memory.bytes(experts * matrix() / 32, 112, 124);
  }
  int total() const { return experts * rows; }
  size_t matrix() const { return size_t(in_dim) * size_t(out_dim); }
  double operations() const { return 2.0 * total() * double(matrix()); }

  // Expert e in place e % at_once of the codes.
  const Fp8ExpertLinearGroup* products(int at_once) {
    std::vector<Fp8ExpertLinearGroup> set;
    for (int e = 0; e < experts; ++e)
      set.push_back(
          {codes + size_t(e % at_once) * matrix(), exponents + size_t(e) * size_t(out_dim), ranges + e, y});
    return memory.copy(set);
  }
  const Mxfp4ToFp8Group* conversions(int at_once) {
    std::vector<Mxfp4ToFp8Group> set;
    for (int e = 0; e < experts; ++e)
      set.push_back({blocks + size_t(e) * matrix() / 2, scales + size_t(e) * matrix() / 32,
                     exponents + size_t(e) * size_t(out_dim), codes + size_t(e % at_once) * matrix(),
                     ranges + e});
    return memory.copy(set);
  }
  const Mxfp4ExpertLinearGroup* direct() {
    std::vector<Mxfp4ExpertLinearGroup> set;
    for (int e = 0; e < experts; ++e)
      set.push_back({blocks + size_t(e) * matrix() / 2, scales + size_t(e) * matrix() / 32,
                     exponents + size_t(e) * size_t(out_dim), ranges + e, y});
    return memory.copy(set);
  }
  // Every 37th row.
  std::vector<float> rows_of_y(const Bench& b) const {
    const size_t rows = size_t(total() + 36) / 37, width = size_t(out_dim) * sizeof(float);
    std::vector<float> values(rows * size_t(out_dim));
    check(cudaStreamSynchronize(b.queue.stream()), "kernels");
    check(cudaMemcpy2D(values.data(), width, y, 37 * width, width, rows, cudaMemcpyDeviceToHost), "rows");
    return values;
  }
  Fp8ExpertLinearArgs product(const Fp8ExpertLinearGroup* groups, int first, int count,
                              int beside = 0) const {
    return {x_codes, x_scales, groups + first, std::min(count, experts - first), total(), in_dim,
            out_dim, out_dim,  beside};
  }
};

void grouped(Bench& b, const char* name, int in_dim, int out_dim) {
  for (const int rows : {64, 128, 256, 512, 1024, 2048}) {
    Fp8Experts e(rows >= 1024 ? 16 : 32, rows, in_dim, out_dim);
    e.codes = e.memory.bytes(e.experts * e.matrix(), 0x20, 0x50);
    const Fp8ExpertLinearGroup* groups = e.products(e.experts);
    const double s =
        b.seconds(2, [&](int) { b.kernels.fp8_expert_linear(e.product(groups, 0, e.experts), b.queue); });
    const double dense = 2.0 * rows * double(e.matrix()) / cublas_seconds(b, rows, in_dim, out_dim, true);
    const std::string what =
        std::string(name) + ", " + std::to_string(rows) + " rows of " + std::to_string(e.experts);
    b.report_rate(what.c_str(), s, e.operations(), b.fp8, "cuBLASLt at 8192 rows");
    printf("%-58s %5.1f %% of cuBLASLt at as many rows (%.0f TFLOP/s), weights %.2f TB/s\n", "",
           100 * e.operations() / s / dense, dense * 1e-12, e.experts * double(e.matrix()) / s * 1e-12);
  }
}

// Ends the program unless every 37th row is the same, bit for bit.
void same_rows(const Bench& b, const Fp8Experts& e, const std::vector<float>& rows, const char* what) {
  if (rows == e.rows_of_y(b)) return;
  fprintf(stderr, "%s: not the bits of the other route\n", what);
  exit(1);
}

// The workspace in one piece, on one stream; in two halves, on two; expanded within the product; and the route of few rows.
void overlap(Bench& b, const char* name, int experts, int at_once, int in_dim, int out_dim) {
  for (const int rows : {2, 4, 8, 16, 32, 64, 128, 192, 256, 384, 512, 768, 1024, 2048}) {
    Fp8Experts e(experts, rows, in_dim, out_dim);
    e.make_mxfp4();
    e.codes = e.memory.of<uint8_t>(size_t(at_once) * e.matrix());
    const Mxfp4ToFp8Group* conversions = e.conversions(at_once);
    const Fp8ExpertLinearGroup* products = e.products(at_once);
    const auto expand = [&](int first, int count, Queue& queue, int rows_beside = 0) {
      b.kernels.mxfp4_to_fp8(
          {conversions + first, std::min(count, experts - first), in_dim, out_dim, rows_beside}, queue);
    };
    const auto multiply = [&](int first, int count, int rows_beside = 0) {
      b.kernels.fp8_expert_linear(e.product(products, first, count, rows_beside), b.queue);
    };
    const double conversion = b.seconds(1, [&](int) { expand(0, experts, b.queue); });
    const double product = b.seconds(1, [&](int) { multiply(0, experts); });
    const double serial = b.seconds(1, [&](int) {
      for (int first = 0; first < experts; first += at_once)
        expand(first, at_once, b.queue), multiply(first, at_once);
    });
    const std::vector<float> wanted = e.rows_of_y(b);
    const Mxfp4ExpertLinearGroup* in_one = e.direct();
    const double one = b.seconds(1, [&](int) {
      b.kernels.mxfp4_expert_linear(
          {e.x_codes, e.x_scales, in_one, experts, e.total(), in_dim, out_dim, out_dim}, b.queue);
    });
    same_rows(b, e, wanted, "mxfp4_expert_linear");
    CudaQueue& side = b.queue.side();
    const int half = at_once / 2;
    const double beside = b.seconds(1, [&](int) {
      side.follow(b.queue);
      expand(0, half, side);
      for (int first = 0; first < experts; first += half) {
        b.queue.follow(side);
        side.follow(b.queue);
        const bool last = first + half >= experts;
        multiply(first, half, last ? 0 : rows);
        if (!last) expand(first + half, half, side, rows);
      }
    });
    std::vector<Mxfp4LinearGroup> set;
    for (int g = 0; g < experts; ++g)
      set.push_back({e.blocks + size_t(g) * e.matrix() / 2, e.scales + size_t(g) * e.matrix() / 32, g * rows,
                     rows, e.y + size_t(g) * size_t(rows) * size_t(out_dim)});
    const Mxfp4LinearGroup* groups = e.memory.copy(set);
    const double direct = rows > 512 ? 0 : b.seconds(1, [&](int) {
      b.kernels.mxfp4_linear(
          {e.x, groups, experts, nullptr, in_dim, out_dim, e.total(), in_dim, out_dim, Route::fast}, b.queue);
    });
    printf(
        "%s, %d of %d at once, %4d rows: conversion %6.0f us, product %6.0f, one after the other %6.0f, "
        "overlapped %6.0f (%.2fx), mxfp4_expert_linear %6.0f (%.2fx), mxfp4_linear %6.0f\n",
        name, at_once, experts, rows, conversion * 1e6, product * 1e6, serial * 1e6, beside * 1e6,
        serial / beside, one * 1e6, serial / one, direct * 1e6);
  }
}

void linear_decode(Bench& b, const char* name, DType type, int rows, int in_dim, int out_dim) {
  Memory memory;
  const size_t matrix = size_t(in_dim) * out_dim, bytes = matrix * (type == DType::bf16  ? 2
                                                                    : type == DType::f32 ? 4
                                                                                         : 1);
  const int sets = int(std::max<size_t>(2, (size_t{400} << 20) / bytes));
  std::vector<void*> weights;
  for (int s = 0; s < sets; ++s)
    weights.push_back(type == DType::bf16  ? static_cast<void*>(memory.narrow(matrix))
                      : type == DType::f32 ? static_cast<void*>(memory.floats(matrix))
                                           : memory.bytes(matrix, 0x20, 0x50));
  const float* scales = memory.floats(size_t(ceil_div(in_dim, 128) * ceil_div(out_dim, 128)));
  const float* x = memory.floats(size_t(rows) * in_dim);
  float* y = memory.of<float>(size_t(rows) * out_dim);
  const double s = b.seconds(sets * 2, [&](int i) {
    b.kernels.linear({x, weights[size_t(i % sets)], type, y, in_dim, out_dim, rows, in_dim, out_dim, scales},
                     b.queue);
  });
  b.report(name, s, double(bytes), b.read, kRead);
}

void linear_prefill(Bench& b, const char* name, DType type, int rows, int in_dim, int out_dim,
                    Route route = Route::fast) {
  Memory memory;
  const size_t matrix = size_t(in_dim) * out_dim;
  void* weights =
      type == DType::bf16 ? static_cast<void*>(memory.narrow(matrix)) : memory.bytes(matrix, 0x20, 0x50);
  const float* scales = memory.floats(size_t(ceil_div(in_dim, 128) * ceil_div(out_dim, 128)));
  const float* x = memory.floats(size_t(rows) * in_dim);
  float* y = memory.of<float>(size_t(rows) * out_dim);
  const double s = b.seconds(2, [&](int) {
    b.kernels.linear({x, weights, type, y, in_dim, out_dim, rows, in_dim, out_dim, scales, route}, b.queue);
  });
  b.report_rate(name, s, 2.0 * rows * double(matrix), b.bf16_rate, "cuBLASLt bf16");
}

void head_linear(Bench& b, const char* name, DType type, int tokens, int heads, int in_dim, int out_dim) {
  Memory memory;
  const size_t weights = size_t(heads) * in_dim * out_dim;
  const HeadLinearArgs args{
      memory.floats(size_t(tokens) * heads * in_dim),
      type == DType::bf16 ? static_cast<void*>(memory.narrow(weights)) : memory.floats(weights),
      type,
      memory.of<float>(size_t(tokens) * heads * out_dim),
      int64_t(heads) * in_dim,
      in_dim,
      int64_t(heads) * out_dim,
      out_dim,
      int64_t(in_dim) * out_dim,
      tokens,
      heads,
      in_dim,
      out_dim,
      true,
      Route::fast};
  const double s = b.seconds(2, [&](int) { b.kernels.head_linear(args, b.queue); });
  b.report_rate(name, s, 2.0 * tokens * double(weights), b.bf16_rate, "cuBLASLt bf16");
}

void kda(Bench& b, const char* name, int sequences, int rows, int heads, Route route = Route::fast) {
  Memory memory;
  const int dim = 128;
  const size_t state = size_t(heads) * dim * dim, tokens = size_t(sequences) * rows;
  const int sets = int(std::max<size_t>(2, (size_t{400} << 20) / (2 * sequences * state * 4)));
  float *q = memory.floats(tokens * heads * dim), *k = memory.floats(tokens * heads * dim),
        *v = memory.floats(tokens * heads * dim), *g = memory.floats(tokens * heads * dim),
        *beta = memory.floats(tokens * heads), *o = memory.of<float>(tokens * heads * dim);
  b.kernels.kda_gate({q, k, g, beta, memory.floats(heads), memory.floats(size_t(heads) * dim),
                      int64_t(heads) * dim, int64_t(heads) * dim, int64_t(tokens), heads, dim, -5.f},
                     b.queue);
  std::vector<KdaSequence*> lists;
  for (int s = 0; s < sets; ++s) {
    std::vector<KdaSequence> set;
    float *from = memory.floats(sequences * state), *to = memory.of<float>(sequences * state);
    for (int i = 0; i < sequences; ++i) set.push_back({i * rows, rows, from + i * state, to + i * state});
    lists.push_back(memory.copy(set));
  }
  const int64_t stride = int64_t(heads) * dim;
  const double s = b.seconds(sets, [&](int i) {
    (rows == 1 ? b.kernels.kda_step : b.kernels.kda_chunk)(
        {q, k, v, g, beta, o, lists[size_t(i)], stride, stride, stride, sequences, heads, dim, dim,
         sequences * rows, route},
        b.queue);
  });
  b.report(name, s, 2.0 * sequences * double(state) * 4 + 5.0 * double(tokens) * heads * dim * 4, b.copy,
           kCopy);
}

void vision_attention(Bench& b, const char* name, int patches, int heads, int dim, Route route) {
  Memory memory;
  const int64_t head = int64_t(patches) * dim;
  const std::vector<VisionAttentionRun> runs = {{0, 0, patches, patches}};
  const VisionAttentionArgs args{memory.floats(size_t(heads * head)),
                                 memory.floats(size_t(heads * head)),
                                 memory.floats(size_t(heads * head)),
                                 memory.copy(runs),
                                 memory.of<float>(size_t(heads * head)),
                                 dim,
                                 head,
                                 dim,
                                 head,
                                 int64_t(heads) * dim,
                                 dim,
                                 1,
                                 heads,
                                 dim,
                                 0.09f,
                                 route};
  const double s = b.seconds(2, [&](int) { b.kernels.vision_attention(args, b.queue); });
  b.report_rate(name, s, 4.0 * double(patches) * patches * heads * dim, b.bf16_rate, "cuBLASLt bf16");
}

// The step with what stands around it.
void kda_decode(Bench& b, const char* name, int sequences, int heads) {
  Memory memory;
  const int dim = 128, width = 4;
  const size_t state = size_t(heads) * dim * dim, channels = size_t(heads) * dim;
  const int sets = int(std::max<size_t>(2, (size_t{400} << 20) / (2 * sequences * state * 4)));
  std::vector<KdaDecodeArgs> all;
  for (int s = 0; s < sets; ++s) {
    std::vector<KdaSequence> states;
    std::vector<ShortConvSequence> convs;
    float *from = memory.floats(sequences * state), *to = memory.of<float>(sequences * state),
          *conv = memory.floats(2 * sequences * 9 * channels);
    for (int i = 0; i < sequences; ++i) {
      states.push_back({i, 1, from + i * state, to + i * state});
      convs.push_back({i, 1, conv + i * 18 * channels, conv + (i * 18 + 9) * channels});
    }
    all.push_back({memory.floats(sequences * 3 * channels), memory.floats(3 * channels * width),
                   memory.floats(sequences * channels), memory.floats(size_t(sequences) * heads),
                   memory.floats(heads), memory.floats(channels), memory.floats(sequences * channels),
                   memory.floats(dim), memory.copy(convs), memory.copy(states),
                   memory.of<float>(sequences * channels), int64_t(3 * channels), sequences, heads, dim,
                   width, 0.f, 1e-5f});
  }
  const double s = b.seconds(sets, [&](int i) { b.kernels.kda_decode(all[size_t(i)], b.queue); });
  b.report(name, s, 2.0 * sequences * double(state) * 4, b.copy, kCopy);
}

// Sequences of `context` positions in pages of their own.
PagedRows paged(Memory& memory, int sequences, int context, int dim, CacheFormat format) {
  const int pages = (context + kPageSize - 1) / kPageSize;
  std::vector<int32_t> tables(size_t(sequences) * pages);
  for (size_t i = 0; i < tables.size(); ++i) tables[i] = int32_t(i);
  std::shuffle(tables.begin(), tables.end(), std::mt19937(2));
  const int coded = format == CacheFormat::fp8 ? dim - 64 : 0;
  const size_t page = size_t(kPageSize) * cache_row_bytes(format, dim, coded), bytes = tables.size() * page;
  void* rows = format == CacheFormat::f32    ? static_cast<void*>(memory.floats(bytes / sizeof(float)))
               : format == CacheFormat::bf16 ? static_cast<void*>(memory.narrow(bytes / sizeof(bf16)))
                                             : memory.bytes(bytes, 0x20, 0x50);
  return {rows, page, memory.copy(tables), pages, dim, kPageSize, format, coded};
}

// Decode steps: one token of each of `sequences`. Launches go round enough sequences that no cache holds them.
void index_scores(Bench& b, const char* name, CacheFormat format, int sequences, int context, int heads) {
  Memory memory;
  const int dim = 128, sets = std::max(1, (1 << 20) / (sequences * context)), all = sets * sequences;
  const PagedRows k = paged(memory, all, context, dim, format);
  std::vector<int32_t> visible(size_t(all), context), sequence_of;
  for (int i = 0; i < all; ++i) sequence_of.push_back(i);
  float *q = memory.floats(size_t(all) * heads * dim), *weights = memory.floats(size_t(all) * heads),
        *scores = memory.of<float>(size_t(all) * context);
  const int32_t *of = memory.copy(sequence_of), *seen = memory.copy(visible);
  const double s = b.seconds(std::max(sets, 4), [&](int i) {
    const int64_t first = int64_t(i % sets) * sequences;
    b.kernels.index_scores({q + first * heads * dim, weights + first * heads, of + first, seen + first, k,
                            scores + first * context, context, sequences, heads, dim, context, Route::fast},
                           b.queue);
  });
  const double key_bytes = double(cache_row_bytes(format, dim, 0));
  b.report(name, s, double(sequences) * (context * (key_bytes + 4) + heads * (dim + 1) * 4), b.read, kRead);
}

void gqa_prefill(Bench& b, const char* name, int tokens, int heads, int kv_heads, int dim, int window) {
  Memory memory;
  const PagedRows k = paged(memory, 1, tokens, kv_heads * dim, CacheFormat::f32),
                  v = paged(memory, 1, tokens, kv_heads * dim, CacheFormat::f32);
  std::vector<int32_t> visible, sequence_of(size_t(tokens), 0);
  double seen = 0;
  for (int t = 0; t < tokens; ++t) {
    visible.push_back(t + 1);
    seen += window > 0 ? std::min(t + 1, window) : t + 1;
  }
  const size_t values = size_t(tokens) * heads * dim;
  const GqaAttentionArgs args{memory.floats(values),
                              memory.copy(sequence_of),
                              memory.copy(visible),
                              k,
                              v,
                              memory.floats(size_t(heads)),
                              memory.of<float>(values),
                              tokens,
                              heads,
                              kv_heads,
                              dim,
                              window,
                              0.125f,
                              Route::fast,
                              1};
  const double s = b.seconds(2, [&](int) { b.kernels.gqa_attention(args, b.queue); });
  b.report_rate(name, s, 4.0 * seen * heads * dim, b.bf16_rate, "cuBLASLt bf16");
}

// Rows of a prompt of one sequence, the last ones of `context` positions.
void index_prefill(Bench& b, const char* name, int rows, int context, int heads) {
  Memory memory;
  const int dim = 128;
  const PagedRows k = paged(memory, 1, context, dim, CacheFormat::bf16);
  std::vector<int32_t> visible;
  for (int i = 0; i < rows; ++i) visible.push_back(context - rows + i + 1);
  const IndexScoresArgs args{memory.floats(size_t(rows) * heads * dim),
                             memory.floats(size_t(rows) * heads),
                             memory.copy(std::vector<int32_t>(size_t(rows), 0)),
                             memory.copy(visible),
                             k,
                             memory.of<float>(size_t(rows) * context),
                             context,
                             rows,
                             heads,
                             dim,
                             context,
                             Route::fast};
  const double s = b.seconds(1, [&](int) { b.kernels.index_scores(args, b.queue); });
  b.report_rate(name, s, 2.0 * rows * (context - rows / 2.0) * heads * dim, b.bf16_rate,
                "bf16 rate of cuBLASLt");
}

// `alike`: most scores fall into a few digits, as those of an indexer do.
void top_k(Bench& b, const char* name, int tokens, int context, bool guess = false, bool alike = false) {
  Memory memory;
  const int sets = std::max(1, (1 << 24) / (tokens * context)), all = sets * tokens;
  float* scores = memory.floats(size_t(all) * context);
  if (alike) {
    std::vector<float> near(size_t(all) * context);
    for (size_t i = 0; i < near.size(); ++i)
      near[i] = 1 + 0.2f * float(i * 0x9e3779b97f4a7c15u >> 40) * 0x1p-24f;
    scores = memory.copy(near);
  }
  const int32_t* visible = memory.copy(std::vector<int32_t>(size_t(all), context));
  auto* selected = memory.of<int32_t>(size_t(all) * 2048);
  uint32_t* guesses = guess ? memory.copy(std::vector<uint32_t>(size_t(tokens), 0)) : nullptr;
  const double s = b.seconds(std::max(sets, 4), [&](int i) {
    const int64_t first = int64_t(i % sets) * tokens;
    b.kernels.top_k(
        {scores + first * context, visible + first, selected + first * 2048, context, tokens, 2048, guesses},
        b.queue);
  });
  b.report(name, s, double(tokens) * context * 4, b.read, kRead);
}

// `tokens` tokens that select `top_k` of `context` positions each, or see them all if it is 0; of one sequence each, or
// all of one.
void sparse_attention(Bench& b, const char* name, CacheFormat format, int tokens, int heads, int context,
                      int top_k, bool prefill = false) {
  Memory memory;
  const int latent = 512, rope = 64, dim = latent + rope;
  const int sets = prefill ? 1 : std::max(1, 64 / tokens), all = sets * tokens, sequences = prefill ? 1 : all;
  const PagedRows latents = paged(memory, sequences, context, dim, format);
  std::vector<int32_t> sequence_of, selected;
  std::mt19937 random(3);
  std::vector<int32_t> positions(size_t(context), 0);
  for (int p = 0; p < context; ++p) positions[size_t(p)] = p;
  for (int i = 0; i < all; ++i) {
    sequence_of.push_back(prefill ? 0 : i);
    if (i < 256) {
      std::shuffle(positions.begin(), positions.end(), random);
      std::sort(positions.begin(), positions.begin() + top_k);
    }
    selected.insert(selected.end(), positions.begin(), positions.begin() + top_k);
  }
  const float *q = memory.floats(size_t(all) * heads * latent),
              *q_rope = memory.floats(size_t(all) * heads * rope);
  float* o = memory.of<float>(size_t(all) * heads * latent);
  const int rows = top_k > 0 ? top_k : context;
  const int32_t *of = memory.copy(sequence_of), *lists = top_k > 0 ? memory.copy(selected) : nullptr,
                *seen = memory.copy(std::vector<int32_t>(size_t(all), context));
  const double s = b.seconds(std::max(sets, 4), [&](int i) {
    const int64_t first = int64_t(i % sets) * tokens;
    b.kernels.sparse_attention(
        {q + first * heads * latent, q_rope + first * heads * rope, of + first, seen + first,
         top_k > 0 ? lists + first * top_k : nullptr, latents, o + first * heads * latent,
         int64_t(heads) * rope, rope, tokens, heads, latent, rope, top_k, 0.05f, Route::fast},
        b.queue);
  });
  if (prefill)
    b.report_rate(name, s, 2.0 * tokens * heads * rows * (dim + latent), b.bf16_rate,
                  "bf16 rate of cuBLASLt");
  else
    b.report(name, s, double(tokens) * (rows * double(latents.row_bytes()) + heads * (dim + latent) * 4.0),
             b.read, kRead);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "model") == 0) return bench::cuda_model_bench(argc - 2, argv + 2);
  if (argc > 1 && strcmp(argv[1], "load") == 0) return bench::cuda_load_bench(argc - 2, argv + 2);
  CudaDevice device;
  const cudaError_t error = read_cuda_device(0, device);
  if (error != cudaSuccess) return printf("no GPU: %s\n", cudaGetErrorString(error)), 77;
  const std::string only = argc > 1 ? argv[1] : "";
  const auto wanted = [&](const char* name) { return only.empty() || only.find(name) != std::string::npos; };
  Memory memory;
  cudaStream_t stream, side;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  check(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking), "stream");
  CudaQueue queue(device, stream, memory.of<uint8_t>(kCudaScratchBytes), kCudaScratchBytes, side);
  Bench b{queue, cuda_kernels(device.capability)};

  ceilings(b);
  b.fp8 = 2.0 * 8192 * 4096 * 7168 / cublas_seconds(b, 8192, 7168, 4096, true);
  b.bf16_rate = 2.0 * 8192 * 4096 * 7168 / cublas_seconds(b, 8192, 7168, 4096, false);
  printf("cuBLASLt 8192 x 7168 -> 4096: FP8 %.0f, bf16 %.0f TFLOP/s\n", b.fp8 * 1e-12, b.bf16_rate * 1e-12);
  if (wanted("conversion")) {
    conversion(b, "conversion, 64 experts 7168 -> 4096", 64, 7168, 4096);
    conversion(b, "conversion, 128 experts 2048 -> 7168", 128, 2048, 7168);
  }
  if (wanted("grouped")) {
    grouped(b, "grouped w13, V3.2, 7168 -> 4096", 7168, 4096);
    grouped(b, "grouped w2, V3.2, 2048 -> 7168", 2048, 7168);
  }
  if (wanted("overlap")) {
    overlap(b, "w13, V3.2", 32, 8, 7168, 4096);
    overlap(b, "w13, V3.2", 32, 16, 7168, 4096);
    overlap(b, "w2, V3.2", 64, 16, 2048, 7168);
  }
  if (wanted("mxfp4")) {
    mxfp4_decode(b, "mxfp4 w13, V3.2, 1 token, 8 experts", 1, 256, 8, 7168, 2048, 2);
    mxfp4_decode(b, "mxfp4 w2, V3.2, 1 token, 8 experts", 1, 256, 8, 2048, 7168, 1);
    mxfp4_decode(b, "mxfp4 w13, V3.2, 8 tokens", 8, 256, 8, 7168, 2048, 2);
    mxfp4_decode(b, "mxfp4 w13, gpt-oss-20b, 1 token, 4 experts", 1, 32, 4, 2880, 5760, 1);
    mxfp4_decode(b, "mxfp4 w13, kimi-linear, 1 token, 8 experts", 1, 256, 8, 2304, 1024, 2);
  }
  if (wanted("experts")) {
    experts(b, "V3.2, 1 token", 1, 8, 7168, 2048);
    experts(b, "V3.2, 4 tokens", 4, 8, 7168, 2048);
    experts(b, "kimi-linear, 1 token", 1, 8, 2304, 1024);
  }
  if (wanted("linear")) {
    linears(b, "norm and linears, 1 row, 2304 -> 12576", 1, 2304, {4096, 4096, 4096, 128, 128, 32});
    linears(b, "norm and linears, 1 row, 2304 -> 2304", 1, 2304, {256, 1024, 1024});
    linears(b, "norm and linears, 8 rows, 2304 -> 12576", 8, 2304, {4096, 4096, 4096, 128, 128, 32});
    linear_decode(b, "linear bf16, 1 row, 4096 -> 2304", DType::bf16, 1, 4096, 2304);
    linear_decode(b, "linear bf16, 8 rows, 4096 -> 2304", DType::bf16, 8, 4096, 2304);
    linear_decode(b, "linear bf16, 1 row, 2304 -> 163840", DType::bf16, 1, 2304, 163840);
    for (const DType type : {DType::bf16, DType::f8_e4m3}) {
      const std::string format = type == DType::bf16 ? "bf16" : "FP8";
      linear_decode(b, ("linear " + format + ", 1 row, 7168 -> 16384").c_str(), type, 1, 7168, 16384);
      linear_decode(b, ("linear " + format + ", 8 rows, 7168 -> 16384").c_str(), type, 8, 7168, 16384);
      linear_decode(b, ("linear " + format + ", 1 row, 2304 -> 4096").c_str(), type, 1, 2304, 4096);
      linear_decode(b, ("linear " + format + ", 1 row, 7168 -> 2112").c_str(), type, 1, 7168, 2112);
      for (const int rows : {64, 256, 2048, 8192})
        linear_prefill(b, ("linear " + format + ", " + std::to_string(rows) + " rows, 7168 -> 4096").c_str(),
                       type, rows, 7168, 4096);
      linear_prefill(b, ("linear " + format + ", 256 rows, 7168 -> 4096, exact").c_str(), type, 256, 7168,
                     4096, Route::exact);
    }
    head_linear(b, "head linear bf16, 4096 tokens, 128 x (128 -> 512)", DType::bf16, 4096, 128, 128, 512);
    head_linear(b, "head linear bf16, 64 tokens, 128 x (128 -> 512)", DType::bf16, 64, 128, 128, 512);
    head_linear(b, "head linear f32, 4096 tokens, 128 x (128 -> 512)", DType::f32, 4096, 128, 128, 512);
    linear_decode(b, "linear f32, 1 row, 7168 -> 256", DType::f32, 1, 7168, 256);
  }
  if (wanted("kda")) {
    kda(b, "kda step, 32 heads, batch 1", 1, 1, 32);
    kda(b, "kda step, 32 heads, batch 32", 32, 1, 32);
    kda(b, "kda step, 96 heads, batch 32", 32, 1, 96);
    kda_decode(b, "kda decode, 32 heads, batch 1", 1, 32);
    kda_decode(b, "kda decode, 32 heads, batch 32", 32, 32);
    kda_decode(b, "kda decode, 96 heads, batch 32", 32, 96);
    kda(b, "kda chunk, 32 heads, 4096 tokens", 1, 4096, 32);
    kda(b, "kda chunk, 32 heads, 8192 tokens", 1, 8192, 32);
    kda(b, "kda chunk, 32 heads, 8192 tokens, exact", 1, 8192, 32, Route::exact);
    kda(b, "kda chunk, 32 heads, 8 x 1024 tokens", 8, 1024, 32);
    kda(b, "kda chunk, 96 heads, 8192 tokens", 1, 8192, 96);
  }
  if (wanted("vision")) {
    vision_attention(b, "vision attention, 12 x 128, 4096 patches", 4096, 12, 128, Route::fast);
    vision_attention(b, "vision attention, 16 x 72, 4096 patches", 4096, 16, 72, Route::fast);
    vision_attention(b, "vision attention, 12 x 128, 1024 patches", 1024, 12, 128, Route::fast);
    vision_attention(b, "vision attention, 12 x 128, 4096 patches, exact", 4096, 12, 128, Route::exact);
  }
  if (wanted("gqa")) {
    gqa_prefill(b, "gqa prefill, 64/8 heads x 64, 8192 tokens", 8192, 64, 8, 64, 0);
    gqa_prefill(b, "gqa prefill, 64/8 heads x 64, 8192 tokens, window 128", 8192, 64, 8, 64, 128);
  }
  if (wanted("sparse")) {
    const CacheFormat f32 = CacheFormat::f32, bf16 = CacheFormat::bf16, fp8 = CacheFormat::fp8;
    sparse_attention(b, "sparse decode bf16, 64 heads, batch 64, top 2048", bf16, 64, 64, 8192, 2048);
    sparse_attention(b, "sparse decode bf16, 64 heads, batch 1, top 2048", bf16, 1, 64, 8192, 2048);
    sparse_attention(b, "sparse decode bf16, 16 heads, batch 32, top 2048", bf16, 32, 16, 8192, 2048);
    sparse_attention(b, "sparse decode bf16, 128 heads, batch 32, top 2048", bf16, 32, 128, 8192, 2048);
    sparse_attention(b, "latent decode bf16, 32 heads, batch 1, all of 2048", bf16, 1, 32, 2048, 0);
    sparse_attention(b, "latent decode bf16, 32 heads, batch 8, all of 2048", bf16, 8, 32, 2048, 0);
    sparse_attention(b, "latent decode bf16, 32 heads, batch 1, all of 131072", bf16, 1, 32, 131072, 0);
    sparse_attention(b, "sparse decode fp8, 64 heads, batch 64, top 2048", fp8, 64, 64, 8192, 2048);
    sparse_attention(b, "sparse decode fp8, 64 heads, batch 1, top 2048", fp8, 1, 64, 8192, 2048);
    sparse_attention(b, "sparse decode fp8, 16 heads, batch 32, top 2048", fp8, 32, 16, 8192, 2048);
    sparse_attention(b, "sparse decode fp8, 128 heads, batch 32, top 2048", fp8, 32, 128, 8192, 2048);
    sparse_attention(b, "latent decode fp8, 32 heads, batch 1, all of 131072", fp8, 1, 32, 131072, 0);
    sparse_attention(b, "sparse decode f32, 64 heads, batch 64, top 2048", f32, 64, 64, 8192, 2048);
    sparse_attention(b, "sparse decode f32, 64 heads, batch 1, top 2048", f32, 1, 64, 8192, 2048);
    sparse_attention(b, "sparse prefill bf16, 64 heads, 2048 x 2048", bf16, 2048, 64, 65536, 2048, true);
    sparse_attention(b, "sparse prefill bf16, 128 heads, 2048 x 2048", bf16, 2048, 128, 65536, 2048, true);
    sparse_attention(b, "sparse prefill fp8, 64 heads, 2048 x 2048", fp8, 2048, 64, 65536, 2048, true);
  }
  if (wanted("index")) {
    const CacheFormat f32 = CacheFormat::f32, bf16 = CacheFormat::bf16;
    index_scores(b, "index scores bf16, 64 heads, 64 x 65536", bf16, 64, 65536, 64);
    index_scores(b, "index scores bf16, 64 heads, 1 x 131072", bf16, 1, 131072, 64);
    index_scores(b, "index scores bf16, 32 heads, 64 x 65536", bf16, 64, 65536, 32);
    index_scores(b, "index scores f32, 64 heads, 64 x 65536", f32, 64, 65536, 64);
    index_prefill(b, "index prefill bf16, 64 heads, 2048 x 65536", 2048, 65536, 64);
    index_prefill(b, "index prefill bf16, 32 heads, 2048 x 65536", 2048, 65536, 32);
  }
  if (wanted("top")) {
    top_k(b, "top 2048 of 64 x 65536", 64, 65536);
    top_k(b, "top 2048 of 64 x 131072", 64, 131072);
    top_k(b, "top 2048 of 1 x 8192", 1, 8192);
    top_k(b, "top 2048 of 1 x 131072", 1, 131072);
    top_k(b, "top 2048 of 1 x 131072, with a guess", 1, 131072, true);
    top_k(b, "top 2048 of 64 x 65536, with a guess", 64, 65536, true);
    top_k(b, "top 2048 of 1 x 131072, alike", 1, 131072, false, true);
    top_k(b, "top 2048 of 1 x 131072, alike, with a guess", 1, 131072, true, true);
    top_k(b, "top 2048 of 1024 x 65536", 1024, 65536);
  }
  return 0;
}
