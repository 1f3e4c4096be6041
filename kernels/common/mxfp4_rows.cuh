// kernels/common/mxfp4_rows.cuh: the fast route of few rows times MXFP4 weights, a product of FewRows.
//
// Stretches of a row become integers of 14 bits and a sign with a power of two, and twice a weight is an integer too: sums of a
// block of 32 are exact. A table of bytes, read by the codes, gives the weights above zero; the same table, read by the codes
// with their signs turned, gives what is to be taken off. A lane holds a block of weights, and the four lanes of a row
// hold different blocks: so each of the eight columns of a product has the inputs of one block alone, upper or lower bytes, and
// what a lane gets is the sum of its own block, which takes the scale that the lane knows.
#pragma once

#include "kernels/common/few_rows.cuh"

namespace dsa {

// Blocks of a product that run at once: one more would double the time.
template <class Product>
int64_t blocks_at_once(const CudaDevice& device, size_t shared_bytes) {
  const size_t reserved = 1024, fit = (device.shared_bytes_max + reserved) / (shared_bytes + reserved);
  return int64_t(fit < Product::kBlocks ? fit : Product::kBlocks) * device.multiprocessors;
}

// Twice the eight magnitudes: 0, 1, 2, 3, 4, 6, 8, 12.
constexpr uint32_t kLowTwice = 0x03020100, kHighTwice = 0x0c080604;

// Twice the weights of 16 outputs, a block of each lane, as mma_s8 takes them: what is above zero and what is below, zero
// elsewhere. `low` is kLowTwice.
struct WeightBytes {
  uint32_t above[4][4], below[4][4];

  __device__ WeightBytes(const uint4 (&vectors)[2], uint32_t low) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4& v = vectors[half];
        const uint32_t word = i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w, turned = word ^ 0x88888888u;
        above[i][half] = select_bytes(low, kHighTwice, word);
        above[i][2 + half] = select_bytes(low, kHighTwice, word >> 16);
        below[i][half] = select_bytes(low, kHighTwice, turned);
        below[i][2 + half] = select_bytes(low, kHighTwice, turned >> 16);
      }
  }
};
// The sums of the blocks of a lane, which has output lane / 4 and the one 8 behind it: those with upper bytes and lower ones.
struct BlockSums {
  int more[4] = {}, less[4] = {};

  __device__ void add(const WeightBytes& w, int i, uint32_t b0, uint32_t b1) {
    mma_s8(more, w.above[i], b0, b1, more);
    mma_s8(less, w.below[i], b0, b1, less);
  }
  __device__ float of(int half) const {
    return float((more[2 * half] - less[2 * half]) * 256 + (more[2 * half + 1] - less[2 * half + 1]));
  }
};
__device__ inline float block_scale(uint32_t code) {
  return code == 255 ? NAN : bits_to_f32(max(2 * code, 1u) << 22);  // 2^-127 is not normal
}

template <int kRows>
class Mxfp4Product {
 public:
  using Weights = Mxfp4Weights;
  using Tile = FewRowsTile<Mxfp4Weights>;
  static constexpr int kBlocks = 2;  // of a multiprocessor
  static constexpr int kMost = kRows;
  static constexpr int kSlots = 4, kSlotInputs = kMxfp4Stretch;

  // Of a row, in order: for each block 32 upper bytes and 32 lower ones; for each stretch what half of its integers stand for.
  static __host__ __device__ size_t kept_bytes(int in_dim) {
    const int stretches = stretches_of<Weights>(in_dim);
    return size_t(stretches) * kMxfp4Stretch * 2 + size_t(stretches + 3) / 4 * 16;
  }
  // Inputs 8 octet .. 8 octet + 7 of a row. A warp has a stretch.
  static __device__ void keep_octet(uint4* kept, int in_dim, int octet, const float (&value)[8]) {
    int largest = 0;  // its bits, NaN above all
#pragma unroll
    for (int i = 0; i < 8; ++i) largest = max(largest, int(f32_to_bits(value[i]) & 0x7fffffffu));
    largest = __reduce_max_sync(kAllLanes, largest);
    const int exponent = max(largest >> 23, 15);
    const float scale = bits_to_f32(uint32_t(267 - exponent) << 23);
    uint32_t upper[2] = {}, lower[2] = {};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int whole = __float2int_rn(value[i] * scale), high = (whole + 128) >> 8;
      upper[i / 4] |= uint32_t(high & 0xff) << i % 4 * 8;
      lower[i / 4] |= uint32_t(whole & 0xff) << i % 4 * 8;
    }
    auto* bytes = reinterpret_cast<char*>(kept) + octet / 4 * 64 + octet % 4 * 8;
    *reinterpret_cast<uint2*>(bytes) = {upper[0], upper[1]};
    *reinterpret_cast<uint2*>(bytes + 32) = {lower[0], lower[1]};
    if (octet % (kMxfp4Stretch / 8) == 0) {
      const int stretch = octet / (kMxfp4Stretch / 8);
      reinterpret_cast<float*>(kept)[stretches_of<Weights>(in_dim) * (kMxfp4Stretch / 2) + stretch] =
          exponent == 255 ? NAN : bits_to_f32(uint32_t(exponent - 14) << 23);
    }
  }

  __device__ Mxfp4Product(int in_dim, int rows) : in_dim_(in_dim), rows_(rows) {}

  __device__ void aim(const Tile& tile) {
    blocks_ahead_ = tile.out_dim > 0 ? in_dim_ / kMxfp4Block - lane() % 4 : 0;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      codes_ahead_[half] = tile.w.scale_address(min(tile.o_begin + 8 * half + lane() / 4, tile.out_dim - 1),
                                                lane() % 4 * kMxfp4Block);
  }
  __device__ void read_ahead(int stretch) {
    constexpr int kBlocks = kMxfp4Stretch / kMxfp4Block;
#pragma unroll
    for (int run = 0; run < 2; ++run) {
      const int block = stretch * kBlocks + 4 * run;
#pragma unroll
      for (int half = 0; half < 2; ++half)
        codes_next_[half][run] = block < blocks_ahead_ ? __ldg(codes_ahead_[half] + block) : 0;
    }
  }
  __device__ void clear(SharedPlace kept) {
    kept_ = kept;
#pragma unroll
    for (int r = 0; r < kRows; ++r) total_[r][0] = total_[r][1] = 0;
  }
  __device__ void begin(const Tile&) {}

  template <class NextSlot, class After>
  __device__ void multiply(const Tile&, int stretch, const NextSlot& next_slot, const After& after) {
    float scale[2][2];  // row, run
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int run = 0; run < 2; ++run) scale[half][run] = block_scale(codes_next_[half][run]);
    after();
    const SharedPlace slot = next_slot();
    const int group = lane() / 4, quad = lane() % 4;
    float sum[kRows][2] = {};
#pragma unroll
    for (int run = 0; run < 2; ++run) {
      uint4 vectors[2];
#pragma unroll
      for (int half = 0; half < 2; ++half)
        vectors[half] = load_vector(slot + place_in_slot<Weights>(8 * half + group, 4 * run + quad));
      const WeightBytes weights(vectors, kLowTwice);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (kRows > 1 && r >= rows_) break;
        const SharedPlace at = kept_ + r * int(kept_bytes(in_dim_)) + stretch * (2 * kMxfp4Stretch) +
                               (4 * run + quad) * 64 + group % 2 * 32;
        BlockSums sums;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          load_vector_if(group / 2 == quad, at + 16 * i, column_);
          sums.add(weights, 2 * i, column_.x, column_.y);
          sums.add(weights, 2 * i + 1, column_.z, column_.w);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) sum[r][half] += scale[half][run] * sums.of(half);
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (kRows > 1 && r >= rows_) break;
      const float unit =
          bits_to_f32(load_word(kept_ + r * int(kept_bytes(in_dim_)) +
                                stretches_of<Weights>(in_dim_) * (2 * kMxfp4Stretch) + 4 * stretch));
      total_[r][0] += unit * sum[r][0], total_[r][1] += unit * sum[r][1];
    }
  }

  __device__ void put(float* sums, bool more) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (kRows > 1 && r >= rows_) break;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float sum = total_[r][half];
        sum += __shfl_xor_sync(kAllLanes, sum, 1);
        sum += __shfl_xor_sync(kAllLanes, sum, 2);
        if (float& to = sums[r * 16 + 8 * half + lane() / 4]; lane() % 4 == 0) to = more ? to + sum : sum;
      }
    }
  }

 private:
  __device__ static int lane() { return int(threadIdx.x) % kWarp; }

  const int in_dim_, rows_;
  const uint8_t* codes_ahead_[2] = {};  // of both rows of this lane, from its first block on
  int blocks_ahead_ = 0;                // of a row, from that one on
  SharedPlace kept_ = {};
  float total_[kRows][2] = {};
  uint32_t codes_next_[2][2] = {};
  uint4 column_ = {};  // zero in lanes that have another block than the column
};

}  // namespace dsa
