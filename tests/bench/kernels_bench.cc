// dsa_bench kernels: time of the large operators; bytes and operations per second, and their share of what the same
// threads measured for a plain read of memory and for arithmetic on registers.
//
// Weights walk through a pool much larger than the caches, so that every call reads them from memory. Each round takes
// the limits and every operator in turn: a slow moment of the machine meets them all. Medians of kRounds.
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "backend/cpu/thread_pool.h"
#include "bench/bench.h"
#include "kernels/kernel_table.h"

namespace dsa::bench {
namespace {

constexpr int kRounds = 7;
constexpr size_t kPoolBytes = 256 << 20;
constexpr int kRowsMax = 512;

// bf16 weights of moderate size, scale codes near 1, or packed nibbles: any bytes will do for the last.
class Bytes {
 public:
  Bytes(size_t size, uint16_t keep, uint16_t set) : size_(size), words_(new uint16_t[size / 2]) {
    uint32_t state = 1;
    for (size_t i = 0; i < size / 2; ++i) {
      state = state * 1664525 + 1013904223;
      words_[i] = uint16_t(((state >> 16) & keep) | set);
    }
  }
  // The next `bytes`, from the start again when the end is near.
  const void* next(size_t bytes) {
    if (at_ + bytes > size_) at_ = 0;
    const void* p = reinterpret_cast<const char*>(words_.get()) + at_;
    at_ += (bytes + 63) / 64 * 64;
    return p;
  }

 private:
  size_t size_, at_ = 0;
  std::unique_ptr<uint16_t[]> words_;
};

// What a row is compared with. An instruction of int16 products does half as many as one of int8 products.
enum class Peak { f32, int16, int8 };

struct Row {
  std::string name;
  double bytes, operations;  // of one call: weights read, two operations for each product
  Peak peak;
  std::function<void()> call;
  std::vector<double> times;
};

class KernelsBench {
 public:
  explicit KernelsBench(int threads) : pool_(threads) {
    for (size_t i = 0; i < x_.size(); ++i) x_[i] = float(int(i * 2654435761u >> 22) - 512) / 512;
  }

  int run() {
    for (const Route route : {Route::fast, Route::exact}) {
      for (const int rows : {1, 4, 16, 64, 512}) add_linear(route, rows, 2048, 8192);
      for (const int rows : {1, 512}) add_linear(route, rows, 7168, 2048);
    }
    for (const int rows : {1, 16, 512}) add_experts(rows, 8, 2048, 2048);
    for (const int rows : {1, 4, 16, 64, 512}) add_mxfp4(Route::fast, rows, 1, 2048, 8192);
    for (const int rows : {1, 512}) add_mxfp4(Route::fast, rows, 1, 7168, 2048);
    for (const int rows : {1, 16, 64}) add_mxfp4(Route::fast, rows, 8, 2048, 2048);
    for (const int rows : {1, 64}) add_mxfp4(Route::exact, rows, 1, 2048, 8192);
    for (const int tokens : {1, 512}) add_heads(tokens, 32, 128, 512, true);
    for (const int tokens : {1, 512}) add_heads(tokens, 32, 512, 128, false);
    add_rms_norm(512, 2048);

    std::vector<double> reads, f32_peaks, int8_peaks;
    for (int round = 0; round < kRounds; ++round) {
      reads.push_back(read_bandwidth(pool_));
      f32_peaks.push_back(peak_f32(pool_));
      int8_peaks.push_back(peak_int8(pool_));
      for (Row& row : rows_) row.times.push_back(seconds(row.call));
    }
    print(median_of(reads), median_of(f32_peaks), median_of(int8_peaks));
    return 0;
  }

 private:
  void add(std::string name, double bytes, double operations, Peak peak, std::function<void()> call) {
    rows_.push_back({std::move(name), bytes, operations, peak, std::move(call), {}});
  }

  void add_linear(Route route, int rows, int in, int out) {
    const size_t bytes = size_t(in) * out * sizeof(bf16);
    const char* name = route == Route::fast ? "linear bf16 fast       " : "linear bf16 exact      ";
    add(concat(name, rows, " x ", in, " -> ", out), double(bytes), 2.0 * rows * in * out,
        route == Route::fast ? Peak::int16 : Peak::f32, [=, this] {
          kernels_.linear({x_.data(), bf16_.next(bytes), DType::bf16, y_.data(), in, out, rows, in, out,
                           nullptr, route, workspace(linear_workspace_bytes(rows, in))},
                          pool_);
        });
  }

  void add_experts(int rows, int groups, int in, int out) {
    const size_t bytes = size_t(in) * out * sizeof(bf16);
    add(concat("expert_linear bf16     ", groups, " x ", rows, " x ", in, " -> ", out),
        double(bytes) * groups, 2.0 * groups * rows * in * out, Peak::f32, [=, this] {
          std::vector<ExpertLinearGroup> g;
          for (int i = 0; i < groups; ++i) g.push_back({bf16_.next(bytes), 0, rows, y_.data()});
          for (int i = 0; i < groups; ++i) g[size_t(i)].y += size_t(i) * rows * out;
          kernels_.expert_linear({x_.data(), g.data(), groups, DType::bf16, in, out, in, out}, pool_);
        });
  }

  void add_mxfp4(Route route, int rows, int groups, int in, int out) {
    const size_t bytes = size_t(in) * out / 2, scales = size_t(in) * out / 32;
    const char* name = route == Route::fast ? "mxfp4_linear fast      " : "mxfp4_linear exact     ";
    add(concat(name, groups, " x ", rows, " x ", in, " -> ", out), double(bytes + scales) * groups,
        2.0 * groups * rows * in * out, route == Route::fast ? Peak::int8 : Peak::f32, [=, this] {
          std::vector<Mxfp4LinearGroup> g;
          for (int i = 0; i < groups; ++i)
            g.push_back({static_cast<const uint8_t*>(nibbles_.next(bytes)),
                         static_cast<const uint8_t*>(codes_.next(scales)), 0, rows,
                         y_.data() + size_t(i) * rows * out});
          kernels_.mxfp4_linear(
              {x_.data(), g.data(), groups, workspace(mxfp4_linear_workspace_bytes(rows, in)), in, out, rows,
               in, out, route},
              pool_);
        });
  }

  void add_heads(int tokens, int heads, int in, int out, bool transposed) {
    const size_t bytes = size_t(heads) * in * out * sizeof(bf16);
    add(concat(transposed ? "head_linear transposed " : "head_linear            ", tokens, " x ", heads,
               " x ", in, " -> ", out),
        double(bytes), 2.0 * tokens * heads * in * out, Peak::f32, [=, this] {
          kernels_.head_linear(
              {x_.data(), bf16_.next(bytes), DType::bf16, y_.data(), int64_t(heads) * in, in,
               int64_t(heads) * out, out, int64_t(in) * out, tokens, heads, in, out, transposed},
              pool_);
        });
  }

  void add_rms_norm(int rows, int dim) {
    add(concat("rms_norm               ", rows, " x ", dim), double(rows) * dim * 4, 0, Peak::f32, [=, this] {
      kernels_.rms_norm({x_.data(), x_.data(), y_.data(), dim, dim, rows, dim, 1e-5f}, pool_);
    });
  }

  void* workspace(size_t bytes) {
    if (workspace_.size() < bytes + 64) workspace_.resize(bytes + 64);
    const auto address = reinterpret_cast<uintptr_t>(workspace_.data());
    return reinterpret_cast<void*>((address + 63) / 64 * 64);
  }

  void print(double read, double f32, double int8) const {
    printf("%s, %d threads, medians of %d rounds\n", cpu_kernel_variants().back().name.c_str(),
           pool_.threads(), kRounds);
    printf(
        "plain read of memory %.1f GB/s; fma on registers %.0f GFLOP/s; int8 dot on registers %.0f GOP/s\n\n",
        read * 1e-9, f32 * 1e-9, int8 * 1e-9);
    printf("%-46s %10s %8s %7s %8s %7s\n", "", "ms", "GB/s", "of read", "GOP/s", "of peak");
    for (const Row& row : rows_) {
      const double time = median_of(row.times), peak = row.peak == Peak::f32     ? f32
                                                       : row.peak == Peak::int16 ? int8 / 2
                                                                                 : int8;
      printf("%-46s %10.3f %8.1f %6.0f%%", row.name.c_str(), time * 1e3, row.bytes / time * 1e-9,
             100 * row.bytes / time / read);
      if (row.operations > 0) printf(" %8.1f", row.operations / time * 1e-9);
      if (row.operations > 0 && peak > 0) printf(" %6.0f%%", 100 * row.operations / time / peak);
      printf("\n");
    }
  }

  const KernelTable& kernels_ = cpu_kernels();
  ThreadPool pool_;
  Bytes bf16_{kPoolBytes, 0x80ff, 0x3c00}, nibbles_{kPoolBytes, 0xffff, 0},
      codes_{kPoolBytes / 16, 0x0707, 0x7878};
  std::vector<float> x_ = std::vector<float>(size_t(kRowsMax) * 32 * 512);
  std::vector<float> y_ = std::vector<float>(size_t(kRowsMax) * 8 * 2048);
  std::vector<char> workspace_;
  std::vector<Row> rows_;
};

}  // namespace

int kernels_bench(int threads) { return KernelsBench(threads).run(); }

}  // namespace dsa::bench
