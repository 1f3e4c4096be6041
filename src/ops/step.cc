#include "ops/step.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace dsa {

void Batch::set(const StepPlan& plan, const StateLayout& layout, int hidden, int pages_max,
                std::span<const SampleRow> asked_rows) {
  tokens = plan.tokens();
  sequences = int(plan.sequences.size());
  max_pages = 0;
  max_visible = 0;
  for (const SequenceStep& s : plan.sequences) max_pages = std::max(max_pages, int(s.state->pages().size()));

  if (pages_max > 0)
    max_pages = std::max(max_pages, std::min(int(std::bit_ceil(unsigned(max_pages))), pages_max));

  token_ids.clear();
  positions.clear();
  visible.clear();
  sequence_of.clear();
  logit_rows.clear();
  convs.clear();
  kdas.clear();
  pools.clear();
  placed.clear();
  asked.assign(asked_rows.begin(), asked_rows.end());
  continues = false;
  row_begin.assign(1, 0);
  block_tables.assign(size_t(sequences) * size_t(max_pages), 0);
  for (int i = 0; i < sequences; ++i) {
    const SequenceStep& s = plan.sequences[size_t(i)];
    std::copy(s.state->pages().begin(), s.state->pages().end(),
              block_tables.begin() + int64_t(i) * max_pages);
    const int begin = s.state->length(), row = int(token_ids.size());
    for (const PlacedRows& p : s.placed) {
      const int from = std::max(p.first, begin), to = std::min(p.first + p.count, begin + s.count);
      if (from < to)
        placed.push_back({p.rows + int64_t(from - p.first) * hidden, row + from - begin, to - from});
    }
    for (int t = 0; t < s.count; ++t) {
      token_ids.push_back(s.tokens != nullptr ? s.tokens[t] : 0);
      positions.push_back(s.state->length() + t);
      visible.push_back(s.state->length() + t + 1);
      sequence_of.push_back(i);
    }
    continues |= s.tokens == nullptr;
    max_visible = std::max(max_visible, s.state->length() + s.count);
    row_begin.push_back(int32_t(token_ids.size()));
    if (s.wants_logits) logit_rows.push_back(int32_t(token_ids.size()) - 1);
  }
  context = pages_max > 0 ? max_pages * kPageSize : max_visible;
  for (int l = 0; l < layout.kda_layers; ++l)
    for (int i = 0; i < sequences; ++i) {
      SequenceState& state = *plan.sequences[size_t(i)].state;
      const int begin = row_begin[size_t(i)], rows = row_begin[size_t(i) + 1] - begin;
      convs.push_back({begin, rows, state.conv(l), state.next_conv(l)});
      kdas.push_back({begin, rows, state.recurrent(l), state.next_recurrent(l)});
    }
  for (int l = 0; layout.index_group > 1 && l < layout.index_layers; ++l)
    for (int i = 0; i < sequences; ++i) {
      SequenceState& state = *plan.sequences[size_t(i)].state;
      const int begin = row_begin[size_t(i)], rows = row_begin[size_t(i) + 1] - begin;
      pools.push_back({begin, rows, state.length(), state.open_pool(l), state.next_open_pool(l)});
    }
}

namespace {

size_t aligned(size_t bytes) {
  return (bytes + kStorageAlignment - 1) / kStorageAlignment * kStorageAlignment;
}

}  // namespace

uint64_t BatchMemory::bytes(const Limits& limits, const StateLayout& layout) {
  const size_t tokens = size_t(limits.tokens), sequences = size_t(limits.sequences);
  const size_t pools = layout.index_group > 1 ? size_t(layout.index_layers) : 0;
  return 4 * aligned(tokens * sizeof(int32_t)) + aligned(sequences * size_t(limits.pages) * sizeof(int32_t)) +
         aligned(sequences * sizeof(int32_t)) + aligned(tokens * sizeof(PlacedRun)) +
         aligned(size_t(layout.kda_layers) * sequences * sizeof(ShortConvSequence)) +
         aligned(size_t(layout.kda_layers) * sequences * sizeof(KdaSequence)) +
         aligned(pools * sequences * sizeof(PoolSequence)) + aligned(sequences * sizeof(SampleRow)) +
         aligned(sequences * sizeof(SampledToken)) +
         aligned(tokens * size_t(limits.placed_dim) * sizeof(float));
}

namespace {

// One device side with two of the host, which are one where there is no difference.
Status allocate_twice(Storage& storage, size_t bytes, const char* what, Mirror (&mirrors)[2]) {
  DSA_ASSIGN(mirrors[0], storage.allocate_mirror(bytes, what));
  mirrors[1] = mirrors[0];
  if (storage.is_host()) return Status::ok();
  DSA_ASSIGN(const Mirror second, storage.allocate_mirror(bytes, what));
  mirrors[1].host = second.host;
  return Status::ok();
}

}  // namespace

Result<BatchMemory> BatchMemory::create(const Limits& limits, const StateLayout& layout, Storage& storage) {
  BatchMemory memory;
  memory.placed_dim_ = limits.placed_dim;
  const size_t rows = aligned(size_t(limits.tokens) * size_t(limits.placed_dim) * sizeof(float));
  const size_t chosen = aligned(size_t(limits.sequences) * sizeof(SampledToken));
  DSA_TRY(
      allocate_twice(storage, bytes(limits, layout) - rows - chosen, "the arrays of a step", memory.arrays_));
  DSA_TRY(allocate_twice(storage, chosen, "the tokens of a step", memory.sampled_));
  if (rows > 0) {
    DSA_ASSIGN(memory.rows_, storage.allocate_mirror(rows, "the rows of pictures in a step"));
  }
  return memory;
}

BatchView BatchMemory::publish(const Batch& batch, Storage& storage, int side) {
  const Mirror& arrays = arrays_[side];
  size_t used = 0;
  const auto put = [&](const auto& values, auto*& view) {
    const size_t bytes = values.size() * sizeof(values[0]);
    using Value = std::remove_reference_t<decltype(values[0])>;
    if (bytes > 0) std::memcpy(static_cast<char*>(arrays.host.get()) + used, values.data(), bytes);
    view = reinterpret_cast<Value*>(static_cast<char*>(arrays.device.get()) + used);
    used += aligned(bytes);
  };
  BatchView view;
  put(batch.token_ids, view.token_ids);
  const size_t begin = batch.continues ? used : 0;
  put(batch.positions, view.positions);
  put(batch.visible, view.visible);
  put(batch.sequence_of, view.sequence_of);
  put(batch.block_tables, view.block_tables);
  put(batch.logit_rows, view.logit_rows);
  put(batch.convs, view.convs);
  put(batch.kdas, view.kdas);
  put(batch.pools, view.pools);
  put(batch.asked, view.asked);
  view.next_token_ids = static_cast<int32_t*>(arrays.device.get());
  view.sampled = static_cast<SampledToken*>(sampled_[side].device.get());

  // Placed rows go to where their tokens are.
  size_t rows_used = 0;
  auto* runs = reinterpret_cast<PlacedRun*>(static_cast<char*>(arrays.host.get()) + used);
  view.placed = reinterpret_cast<const PlacedRun*>(static_cast<char*>(arrays.device.get()) + used);
  for (const PlacedRun& run : batch.placed) {
    const size_t first = size_t(run.first) * size_t(placed_dim_),
                 floats = size_t(run.count) * size_t(placed_dim_);
    DSA_ASSERT(rows_.host);
    std::memcpy(static_cast<float*>(rows_.host.get()) + first, run.rows, floats * sizeof(float));
    *runs++ = {static_cast<const float*>(rows_.device.get()) + first, run.first, run.count};
    rows_used = std::max(rows_used, (first + floats) * sizeof(float));
  }
  used += batch.placed.size() * sizeof(PlacedRun);
  storage.upload(arrays, begin, used - begin);
  if (rows_used > 0) storage.upload(rows_, 0, rows_used);
  return view;
}

void BatchMemory::fetch_sampled(const Batch& batch, Storage& storage, int side) {
  storage.download(sampled_[side], 0, batch.asked.size() * sizeof(SampledToken));
}

}  // namespace dsa
