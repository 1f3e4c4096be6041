// tests/bench/synthetic_backend.h: a backend on which weights that a synthetic model does not hold in its file are made
// where a load would copy them to. Everything else is that of the backend behind it.
#pragma once

#include <functional>

#include "backend/backend.h"
#include "bench/synthetic_model.h"

namespace dsa::bench {

// Puts bytes [begin, begin + bytes) of a tensor to `to`, in the order of the queue.
using MakeWeights = std::function<Status(const FillRule& rule, uint64_t begin, void* to, uint64_t bytes)>;

class SyntheticStorage final : public Storage {
 public:
  // The model outlives every load through this storage.
  SyntheticStorage(Storage& storage, const SyntheticModel& model, MakeWeights make)
      : storage_(storage), model_(model), make_(std::move(make)) {}

  bool is_host() const override { return storage_.is_host(); }
  uint64_t allocated_bytes() const override { return storage_.allocated_bytes(); }
  Result<Memory> allocate(size_t bytes, const char* what) override { return storage_.allocate(bytes, what); }
  Result<Memory> allocate_sparse(size_t bytes, const char* what) override {
    return storage_.allocate_sparse(bytes, what);
  }
  Result<Mirror> allocate_mirror(size_t bytes, const char* what) override {
    return storage_.allocate_mirror(bytes, what);
  }
  void upload(const Mirror& m, size_t begin, size_t bytes) override { storage_.upload(m, begin, bytes); }
  void download(const Mirror& m, size_t begin, size_t bytes) override { storage_.download(m, begin, bytes); }
  void copy(void* to, const void* from, size_t bytes) override { storage_.copy(to, from, bytes); }
  void clear(void* to, size_t bytes) override { storage_.clear(to, bytes); }
  Status finish() override { return storage_.finish(); }
  uint64_t mark() override { return storage_.mark(); }
  Status wait(uint64_t mark) override { return storage_.wait(mark); }
  Status read(void* to, const void* from, size_t bytes) override { return storage_.read(to, from, bytes); }

  Status write(void* to, const void* from, size_t bytes) override {
    const uint8_t *begin = static_cast<const uint8_t*>(from), *data = model_.data();
    if (begin < data || begin >= data + model_.checkpoint->files()[0]->size())
      return storage_.write(to, from, bytes);
    // Tensor after tensor; the first one that ends behind the beginning.
    auto tensor =
        std::upper_bound(model_.tensors.begin(), model_.tensors.end(), uint64_t(begin - data),
                         [](uint64_t at, const SyntheticTensor& t) { return at < t.offset + t.bytes; });
    for (size_t done = 0; done < bytes; ++tensor) {
      const uint64_t at = uint64_t(begin - data) + done - tensor->offset;
      const size_t n = size_t(std::min<uint64_t>(bytes - done, tensor->bytes - at));
      char* const there = static_cast<char*>(to) + done;
      DSA_TRY(tensor->in_file ? storage_.write(there, begin + done, n) : make_(tensor->rule, at, there, n));
      done += n;
    }
    return Status::ok();
  }

 private:
  Storage& storage_;
  const SyntheticModel& model_;
  const MakeWeights make_;
};

class SyntheticBackend final : public Backend {
 public:
  SyntheticBackend(Backend& backend, const SyntheticModel& model, MakeWeights make)
      : backend_(backend), storage_(backend.storage(), model, std::move(make)) {}

  const char* name() const override { return backend_.name(); }
  const KernelTable& kernels() const override { return backend_.kernels(); }
  Queue& queue() override { return backend_.queue(); }
  Storage& storage() override { return storage_; }
  std::shared_ptr<void> enter_thread() override { return backend_.enter_thread(); }
  int fp8_rows() const override { return backend_.fp8_rows(); }
  int expand_rows() const override { return backend_.expand_rows(); }
  bool fuses() const override { return backend_.fuses(); }
  bool samples() const override { return backend_.samples(); }
  bool can_replay() const override { return backend_.can_replay(); }
  void replay(uint64_t key, const std::function<void()>& work) override { backend_.replay(key, work); }

 private:
  Backend& backend_;
  SyntheticStorage storage_;
};

// Made by the host and copied: for backends without a generator of their own.
inline MakeWeights make_on_host(Storage& storage) {
  return [&storage](const FillRule& rule, uint64_t begin, void* to, uint64_t bytes) {
    std::vector<uint8_t> values(bytes);
    fill_synthetic(rule, begin, values.data(), bytes);
    return storage.write(to, values.data(), bytes);
  };
}

}  // namespace dsa::bench
