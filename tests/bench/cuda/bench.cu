// tests/bench/cuda/bench.cu: dsa_bench_cuda, the operators of a GPU against what its memory and its multipliers can do.
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

#include "kernels/common/cuda.cuh"
#include "kernels/cuda_kernels.h"
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

__global__ void __launch_bounds__(1024) read_kernel(const uint4* data, size_t count, uint4* out) {
  uint4 sum = {};
  for (size_t i = blockIdx.x * size_t{1024} + threadIdx.x; i < count; i += size_t(gridDim.x) * 1024 * 4) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const size_t at = i + size_t(j) * gridDim.x * 1024;
      if (at < count) {
        const uint4 v = __ldcs(data + at);
        sum.x ^= v.x, sum.y ^= v.y, sum.z ^= v.z, sum.w ^= v.w;
      }
    }
  }
  if ((sum.x ^ sum.y ^ sum.z ^ sum.w) == 0x12345678) *out = sum;
}

void ceilings(Bench& b) {
  Memory memory;
  const size_t bytes = size_t{4} << 30;
  uint8_t *from = memory.bytes(bytes, 0, 255), *to = memory.of<uint8_t>(bytes / 2);
  const int blocks = b.queue.device().multiprocessors * 2;
  double s = b.seconds(2, [&](int) {
    read_kernel<<<blocks, 1024, 0, b.queue.stream()>>>(reinterpret_cast<uint4*>(from), bytes / 16,
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
                            int64_t(out_dim) * per_expert, rows, in_dim, out_dim, Route::fast},
                           b.queue);
  });
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
  Fp8ExpertLinearArgs product(const Fp8ExpertLinearGroup* groups, int first, int count,
                              int beside = 0) const {
    return {x_codes, x_scales, groups + first, std::min(count, experts - first),
            total(), in_dim,   out_dim,        out_dim};
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

// The workspace in one piece, on one stream; in two halves, on two; and without it. Rows whose products are ready.
void overlap(Bench& b, const char* name, int experts, int at_once, int in_dim, int out_dim) {
  for (const int rows : {32, 64, 128, 192, 256, 384, 512, 768, 1024, 2048}) {
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
        "overlapped %6.0f (%.2fx), mxfp4_linear %6.0f\n",
        name, at_once, experts, rows, conversion * 1e6, product * 1e6, serial * 1e6, beside * 1e6,
        serial / beside, direct * 1e6);
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

void linear_prefill(Bench& b, const char* name, DType type, int rows, int in_dim, int out_dim) {
  Memory memory;
  const size_t matrix = size_t(in_dim) * out_dim;
  void* weights =
      type == DType::bf16 ? static_cast<void*>(memory.narrow(matrix)) : memory.bytes(matrix, 0x20, 0x50);
  const float* scales = memory.floats(size_t(ceil_div(in_dim, 128) * ceil_div(out_dim, 128)));
  const float* x = memory.floats(size_t(rows) * in_dim);
  float* y = memory.of<float>(size_t(rows) * out_dim);
  const double s = b.seconds(2, [&](int) {
    b.kernels.linear({x, weights, type, y, in_dim, out_dim, rows, in_dim, out_dim, scales}, b.queue);
  });
  b.report_rate(name, s, 2.0 * rows * double(matrix), b.bf16_rate, "cuBLASLt bf16");
}

void kda(Bench& b, const char* name, int sequences, int rows, int heads) {
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
        {q, k, v, g, beta, o, lists[size_t(i)], stride, stride, stride, sequences, heads, dim, dim}, b.queue);
  });
  b.report(name, s, 2.0 * sequences * double(state) * 4 + 5.0 * double(tokens) * heads * dim * 4, b.copy,
           kCopy);
}

// Sequences of `context` positions in pages of their own.
PagedRows paged(Memory& memory, int sequences, int context, int dim) {
  const int pages = (context + kPageSize - 1) / kPageSize;
  std::vector<int32_t> tables(size_t(sequences) * pages);
  for (size_t i = 0; i < tables.size(); ++i) tables[i] = int32_t(i);
  std::shuffle(tables.begin(), tables.end(), std::mt19937(2));
  const size_t page = size_t(kPageSize) * dim;
  return {memory.floats(tables.size() * page), page, memory.copy(tables), pages, dim};
}

void index_scores(Bench& b, const char* name, int sequences, int context, int heads) {
  Memory memory;
  const int dim = 128;
  const PagedRows k = paged(memory, sequences, context, dim);
  std::vector<int32_t> visible(size_t(sequences), context), sequence_of;
  for (int i = 0; i < sequences; ++i) sequence_of.push_back(i);
  float* scores = memory.of<float>(size_t(sequences) * context);
  const IndexScoresArgs args{memory.floats(size_t(sequences) * heads * dim),
                             memory.floats(size_t(sequences) * heads),
                             memory.copy(sequence_of),
                             memory.copy(visible),
                             k,
                             scores,
                             context,
                             sequences,
                             heads,
                             dim,
                             context};
  const double s = b.seconds(2, [&](int) { b.kernels.index_scores(args, b.queue); });
  b.report(name, s, double(sequences) * context * (dim + 1) * 4, b.read, kRead);
  auto* selected = memory.of<int32_t>(size_t(sequences) * 2048);
  const double t = b.seconds(2, [&](int) {
    b.kernels.top_k({scores, args.visible, selected, context, sequences, 2048}, b.queue);
  });
  b.report((std::string(name) + ", top 2048").c_str(), t, double(sequences) * context * 4, b.read, kRead);
}

void sparse_decode(Bench& b, const char* name, int sequences, int heads, int context, int top_k) {
  Memory memory;
  const int latent = 512, rope = 64;
  const PagedRows latents = paged(memory, sequences, context, latent + rope);
  std::vector<int32_t> visible(size_t(sequences), context), sequence_of, selected;
  std::mt19937 random(3);
  for (int i = 0; i < sequences; ++i) {
    sequence_of.push_back(i);
    std::vector<int32_t> all(size_t(context), 0);
    for (int p = 0; p < context; ++p) all[size_t(p)] = p;
    std::shuffle(all.begin(), all.end(), random);
    std::sort(all.begin(), all.begin() + top_k);
    selected.insert(selected.end(), all.begin(), all.begin() + top_k);
  }
  const SparseAttentionArgs args{memory.floats(size_t(sequences) * heads * latent),
                                 memory.floats(size_t(sequences) * heads * rope),
                                 memory.copy(sequence_of),
                                 memory.copy(visible),
                                 memory.copy(selected),
                                 latents,
                                 memory.of<float>(size_t(sequences) * heads * latent),
                                 int64_t(heads) * rope,
                                 rope,
                                 sequences,
                                 heads,
                                 latent,
                                 rope,
                                 top_k,
                                 0.05f};
  const double s = b.seconds(2, [&](int) { b.kernels.sparse_attention(args, b.queue); });
  b.report(name, s, double(sequences) * top_k * (latent + rope) * 4, b.read, kRead);
}

}  // namespace

int main(int argc, char** argv) {
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
  if (wanted("linear")) {
    for (const DType type : {DType::bf16, DType::f8_e4m3}) {
      const std::string format = type == DType::bf16 ? "bf16" : "FP8";
      linear_decode(b, ("linear " + format + ", 1 row, 7168 -> 16384").c_str(), type, 1, 7168, 16384);
      linear_decode(b, ("linear " + format + ", 8 rows, 7168 -> 16384").c_str(), type, 8, 7168, 16384);
      linear_decode(b, ("linear " + format + ", 1 row, 2304 -> 4096").c_str(), type, 1, 2304, 4096);
      linear_decode(b, ("linear " + format + ", 1 row, 7168 -> 2112").c_str(), type, 1, 7168, 2112);
      linear_prefill(b, ("linear " + format + ", 2048 rows, 7168 -> 4096").c_str(), type, 2048, 7168, 4096);
    }
    linear_decode(b, "linear f32, 1 row, 7168 -> 256", DType::f32, 1, 7168, 256);
  }
  if (wanted("kda")) {
    kda(b, "kda step, 32 heads, batch 1", 1, 1, 32);
    kda(b, "kda step, 32 heads, batch 32", 32, 1, 32);
    kda(b, "kda step, 96 heads, batch 32", 32, 1, 96);
    kda(b, "kda chunk, 32 heads, 4096 tokens", 1, 4096, 32);
  }
  if (wanted("sparse")) {
    sparse_decode(b, "sparse decode, 64 heads, batch 64, top 2048", 64, 64, 8192, 2048);
    sparse_decode(b, "sparse decode, 64 heads, batch 1, top 2048", 1, 64, 8192, 2048);
  }
  if (wanted("index")) {
    index_scores(b, "index scores, 64 heads, 64 x 65536", 64, 65536, 64);
    index_scores(b, "index scores, 64 heads, 1 x 131072", 1, 131072, 64);
  }
  return 0;
}
