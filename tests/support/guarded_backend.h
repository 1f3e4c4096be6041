// support/guarded_backend.h: a device without a device: its memory is closed to everybody but kernels.
//
// Storage lies in pages that fault unless a kernel or a copy runs, so that host code which touches the memory of kernels
// dies at that place. Before each kernel its arguments, and the tables of pointers that they name, are searched for
// addresses of the host: kernels of a real device could not follow them. Steps are recorded and replayed as by a CUDA
// graph: what is replayed are the launches of one step with their arguments, and nothing that the host did beside them. A
// late storage runs launches and copies when somebody waits for them: a host that overwrites what they still read, or reads
// what they have not written yet, gets other results.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"

namespace dsa::test {

class GuardedStorage final : public Storage {
 public:
  bool is_host() const override { return false; }
  uint64_t allocated_bytes() const override { return allocated_; }
  int64_t copies() const { return copies_; }
  // Points that were marked before the one in front of them was reached.
  int64_t marks_ahead() const { return marks_ahead_; }
  // The allocation after the next n fails, and every one behind it.
  void fail_after(int64_t n) { allocations_left_ = n; }

  Result<Memory> allocate(size_t bytes, const char* what) override {
    if (allocations_left_-- <= 0)
      return error(Code::out_of_device_memory, "no guarded memory for ", what, " by request")
          .with_room(bytes, 0);
    const size_t page = size_t(getpagesize()),
                 rounded = (std::max<size_t>(bytes, 1) + page - 1) / page * page;
    // Room that is never opened lies on both sides. Large pages open and close faster.
    const size_t mapped = rounded + 3 * kLargePage;
    void* base = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
      return error(Code::out_of_device_memory, "no guarded memory for ", what).with_room(bytes, 0);
    char* memory = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(base) / kLargePage + 2) * kLargePage);
    (void)madvise(memory, rounded, MADV_HUGEPAGE);
    const std::lock_guard lock(mutex_);
    pieces_[memory] = rounded;
    allocated_ += rounded;
    protect(memory, rounded, PROT_READ | PROT_WRITE);
    std::memset(memory, 0xff, bytes < kPoisoned ? bytes : kPoisoned);  // NaN
    if (open_ == 0) protect(memory, rounded, PROT_NONE);
    return Memory(memory, [this, base, memory, rounded, mapped](void*) {
      run_until(given_);  // as a GPU does
      const std::lock_guard again(mutex_);
      pieces_.erase(memory);
      allocated_ -= rounded;
      munmap(base, mapped);
    });
  }
  Result<Mirror> allocate_mirror(size_t bytes, const char* what) override {
    Mirror mirror;
    DSA_ASSIGN(mirror.device, allocate(bytes, what));
    DSA_ASSIGN(mirror.host, host_storage().allocate(bytes, what));
    return mirror;
  }
  void upload(const Mirror& m, size_t begin, size_t bytes) override {
    if (recording_ != nullptr) std::abort();  // a replay would bring the host's memory of another step
    copy(static_cast<char*>(m.device.get()) + begin, static_cast<char*>(m.host.get()) + begin, bytes);
  }
  void download(const Mirror& m, size_t begin, size_t bytes) override {
    copy(static_cast<char*>(m.host.get()) + begin, static_cast<char*>(m.device.get()) + begin, bytes);
  }
  void copy(void* to, const void* from, size_t bytes) override {
    put([this, to, from, bytes] {
      const Open open(*this);
      ++copies_;
      std::memcpy(to, from, bytes);
    });
  }
  void clear(void* to, size_t bytes) override {
    put([this, to, bytes] {
      const Open open(*this);
      std::memset(to, 0, bytes);
    });
  }
  Status finish() override { return wait(given_); }
  uint64_t mark() override {
    const std::lock_guard lock(order_);
    if (done_ < last_mark_) ++marks_ahead_;
    return last_mark_ = given_;
  }
  Status wait(uint64_t mark) override {
    if (recording_ != nullptr) std::abort();  // nobody may wait for what is not running
    return run_until(mark), Status::ok();
  }
  Status write(void* to, const void* from, size_t bytes) override { return copy(to, from, bytes), finish(); }
  Status read(void* to, const void* from, size_t bytes) override { return copy(to, from, bytes), finish(); }

  // The memory is open while one of these lives.
  class Open {
   public:
    explicit Open(GuardedStorage& storage) : storage_(storage) {
      const std::lock_guard lock(storage_.mutex_);
      if (storage_.open_++ == 0) storage_.protect_all(PROT_READ | PROT_WRITE);
    }
    ~Open() {
      const std::lock_guard lock(storage_.mutex_);
      if (--storage_.open_ == 0) storage_.protect_all(PROT_NONE);
    }

   private:
    GuardedStorage& storage_;
  };

  // A launch: runs now, or when somebody waits, or is only noted while a step is recorded.
  using Launches = std::vector<std::function<void()>>;
  void put(std::function<void()> launch) {
    if (recording_ != nullptr) return recording_->push_back(std::move(launch));
    const std::lock_guard lock(order_);
    ++given_;
    waiting_.push_back(std::move(launch));
    if (!late) run_until(given_);
  }
  bool late = false;
  void record(Launches* launches) { recording_ = launches; }

  bool contains(uint64_t address) {
    const std::lock_guard lock(mutex_);
    auto after = pieces_.upper_bound(reinterpret_cast<char*>(address));
    if (after == pieces_.begin()) return false;
    --after;
    return reinterpret_cast<char*>(address) < after->first + after->second;
  }

 private:
  void run_until(uint64_t mark) {
    const std::lock_guard lock(order_);
    for (; done_ < mark; ++done_) {
      const auto launch = std::move(waiting_.front());
      waiting_.pop_front();
      launch();
    }
  }

  static constexpr size_t kPoisoned = size_t(1) << 20, kLargePage = size_t(2) << 20;

  static void protect(char* memory, size_t bytes, int rights) {
    if (mprotect(memory, bytes, rights) != 0) std::abort();
  }
  void protect_all(int rights) {
    for (const auto& [memory, bytes] : pieces_) protect(memory, bytes, rights);
  }

  std::recursive_mutex order_;  // before the other
  std::deque<std::function<void()>> waiting_;
  std::atomic<uint64_t> given_{0}, done_{0};
  uint64_t last_mark_ = 0;
  std::atomic<int64_t> marks_ahead_{0};
  std::mutex mutex_;
  std::map<char*, size_t> pieces_;
  uint64_t allocated_ = 0;
  int64_t copies_ = 0, allocations_left_ = INT64_MAX;
  int open_ = 0;
  Launches* recording_ = nullptr;
};

// One thread, with the storage that its kernels may touch.
class GuardedQueue final : public Queue {
 public:
  GuardedStorage storage;
  bool exact_linear = false;
  int threads() const override { return 1; }

 protected:
  void run(int64_t n, Call call, const void* context) override {
    for (int64_t i = 0; i < n; ++i) call(context, i);
  }
};

// Finds what looks like an address of the host.
class AddressCheck {
 public:
  AddressCheck(const char* kernel, GuardedStorage& storage) : kernel_(kernel), storage_(storage) {}

  template <class T>
  void object(const T& t) {
    array(&t, 1, "its arguments");
  }
  template <class T>
  void array(const T* first, int64_t n, const char* what) {
#if defined(__has_builtin) && __has_builtin(__builtin_clear_padding)  // there old addresses may be left
    for (int64_t i = 0; i < n; ++i) {
      T copy = first[i];
      __builtin_clear_padding(&copy);
      words(&copy, sizeof copy, what);
    }
#endif
  }

  // What arguments point to and kernels follow.
  template <class Args>
  void tables(const Args&) {}
  void tables(const AttnResidualArgs& a) { array(a.sources, a.num_sources, "sources"); }
  void tables(const Mxfp4LinearArgs& a) { array(a.groups, a.num_groups, "groups"); }
  void tables(const ExpertLinearArgs& a) { array(a.groups, a.num_groups, "groups"); }
  void tables(const ExpertGroupsArgs& a) {
    for (int i = 0; i < a.num_products; ++i) array(a.products[i].matrices, a.experts, "matrices");
  }
  void tables(const Mxfp4ToFp8Args& a) { array(a.groups, a.num_groups, "groups"); }
  void tables(const Fp8ExpertLinearArgs& a) { array(a.groups, a.num_groups, "groups"); }
  void tables(const ShortConvArgs& a) { array(a.sequences, a.num_sequences, "sequences"); }
  void tables(const KdaArgs& a) { array(a.sequences, a.num_sequences, "sequences"); }
  void tables(const KdaDecodeArgs& a) {
    array(a.convs, a.num_sequences, "convs");
    array(a.sequences, a.num_sequences, "sequences");
  }
  void tables(const PoolKeysArgs& a) { array(a.sequences, a.num_sequences, "sequences"); }
  void tables(const PlaceRowsArgs& a) { array(a.runs, a.num_runs, "runs"); }

 private:
  static bool is_mapped(uint64_t address) {
    const uint64_t page = uint64_t(getpagesize());
    unsigned char resident;
    return mincore(reinterpret_cast<void*>(address / page * page), size_t(page), &resident) == 0;
  }
  void words(const void* object, size_t bytes, const char* what) {
    for (size_t at = 0; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
      uint64_t word;
      std::memcpy(&word, static_cast<const char*>(object) + at, sizeof word);
      // Where Linux places programs, heaps, libraries and stacks.
      const bool is_address = word >> 40 >= 0x55 && word >> 40 <= 0x7f;
      if (!is_address || storage_.contains(word) || !is_mapped(word)) continue;
      std::fprintf(stderr, "%s: byte %zu of %s is %#llx, an address of the host\n", kernel_, at, what,
                   static_cast<unsigned long long>(word));
      std::abort();
    }
  }

  const char* kernel_;
  GuardedStorage& storage_;
};

class GuardedBackend final : public Backend {
 public:
  const char* name() const override { return "guarded"; }
  const KernelTable& kernels() const override { return table(); }
  Queue& queue() override { return queue_; }
  GuardedStorage& storage() override { return queue_.storage; }

  bool can_replay() const override { return replays; }
  bool fuses() const override { return fused; }
  bool samples() const override { return sampling; }
  // As backend/cuda/cuda_graphs.h: the first time as it is, the second time recorded.
  void replay(uint64_t key, const std::function<void()>& work) override {
    if (seen_.insert(key).second) return work();
    auto found = recorded_.find(key);
    if (found == recorded_.end()) {
      found = recorded_.emplace(key, GuardedStorage::Launches()).first;
      queue_.storage.record(&found->second);
      work();
      queue_.storage.record(nullptr);
    }
    for (const auto& launch : found->second) queue_.storage.put(launch);
    ++replayed;
  }

  // As GPUs do: `linear` has the exact route alone.
  void take_exact_linear() { queue_.exact_linear = true; }

  bool replays = true, fused = false, sampling = false;
  int64_t replayed = 0;  // steps that came from a recording

 private:
  template <class Args>
  static Args routed(const Args& args, const GuardedQueue&) {
    return args;
  }
  static LinearArgs routed(LinearArgs args, const GuardedQueue& queue) {
    if (queue.exact_linear) args.route = Route::exact;
    return args;
  }

  static const KernelTable& table() {
    static const KernelTable guarded = [] {
      KernelTable t;
#define DSA_GUARD(name, Args)                                                     \
  t.name = [](const Args& args, Queue& queue) {                                   \
    static_cast<GuardedQueue&>(queue).storage.put([args, &queue] {                \
      GuardedStorage& s = static_cast<GuardedQueue&>(queue).storage;              \
      const GuardedStorage::Open open(s);                                         \
      AddressCheck check(#name, s);                                               \
      check.object(args);                                                         \
      check.tables(args);                                                         \
      cpu_kernels().name(routed(args, static_cast<GuardedQueue&>(queue)), queue); \
    });                                                                           \
  };
      DSA_FOR_EACH_KERNEL(DSA_GUARD)
#undef DSA_GUARD
      return t;
    }();
    return guarded;
  }

  GuardedQueue queue_;
  std::set<uint64_t> seen_;
  std::map<uint64_t, GuardedStorage::Launches> recorded_;
};

}  // namespace dsa::test
