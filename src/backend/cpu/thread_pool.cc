#include "backend/cpu/thread_pool.h"

#include <algorithm>

#include "backend/signals.h"

namespace dsa {
namespace {

// state_: bit 0 is set while workers may enter, bits 1 to 11 count those inside, the rest numbers the job.
constexpr uint32_t kOpen = 1, kInside = 2, kInsideMask = 0xffe, kJob = 0x1000, kJobMask = ~0xfffu;
constexpr int kThreadsMax = 2047;  // what the count can hold

constexpr int kSpins = 1000;         // pauses, 10 to 40 microseconds, before a thread sleeps
constexpr int kChunksPerThread = 8;  // enough to even out threads of different speed

thread_local bool in_job = false;

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until `ready(value)` holds: spins for a moment, then sleeps.
template <class F>
uint32_t wait_until(const std::atomic<uint32_t>& atomic, const F& ready) {
  uint32_t value = atomic.load(std::memory_order_acquire);
  for (int i = 0; i < kSpins && !ready(value); ++i) {
    pause();
    value = atomic.load(std::memory_order_acquire);
  }
  while (!ready(value)) {
    atomic.wait(value, std::memory_order_acquire);
    value = atomic.load(std::memory_order_acquire);
  }
  return value;
}

}  // namespace

ThreadPool::ThreadPool(int threads, OnThread on_thread) : on_thread_(std::move(on_thread)) {
  const int workers = std::clamp(threads, 1, kThreadsMax) - 1;
  workers_.reserve(size_t(workers));
  const SignalsBlocked blocked;
  try {
    for (int i = 0; i < workers; ++i) workers_.emplace_back([this] { work(); });
  } catch (...) {
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stopping_.store(true, std::memory_order_relaxed);
  state_.fetch_add(kJob, std::memory_order_release);
  state_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(int64_t n, Call call, const void* context) {
  if (n <= 1 || workers_.empty() || in_job) {
    for (int64_t i = 0; i < n; ++i) call(context, i);
    return;
  }
  const std::lock_guard<std::mutex> lock(caller_);

  call_ = call;
  context_ = context;
  n_ = n;
  chunk_ = std::max<int64_t>(1, n / (int64_t(threads()) * kChunksPerThread));
  next_.store(0, std::memory_order_relaxed);
  finished_.store(0, std::memory_order_relaxed);
  const uint32_t job = (state_.load(std::memory_order_relaxed) & kJobMask) + kJob;
  state_.store(job | kOpen, std::memory_order_release);
  state_.notify_all();

  take_items();

  const uint32_t before = state_.fetch_and(~kOpen, std::memory_order_acq_rel);
  if (before & kInsideMask) wait_until(finished_, [](uint32_t finished) { return finished == 1; });
}

void ThreadPool::take_items() {
  in_job = true;
  for (;;) {
    const int64_t begin = next_.fetch_add(chunk_, std::memory_order_relaxed);
    const int64_t end = std::min(begin + chunk_, n_);
    if (begin >= end) break;
    for (int64_t i = begin; i < end; ++i) call_(context_, i);
  }
  in_job = false;
}

void ThreadPool::work() {
#if defined(__linux__)
  pthread_setname_np(pthread_self(), "dsa-worker");
#endif
  if (on_thread_) on_thread_(ThreadEvent::start);
  for (uint32_t seen = 0;;) {
    uint32_t state = wait_until(state_, [&](uint32_t s) { return (s & kJobMask) != seen; });
    if (stopping_.load(std::memory_order_relaxed)) break;
    seen = state & kJobMask;

    // Enter while the job is open; a job that has closed needs no help.
    bool entered = false;
    while (!entered && (state & kOpen) && (state & kJobMask) == seen)
      entered = state_.compare_exchange_weak(state, state + kInside, std::memory_order_acq_rel,
                                             std::memory_order_acquire);
    if (!entered) continue;

    take_items();

    const uint32_t after = state_.fetch_sub(kInside, std::memory_order_acq_rel) - kInside;
    if ((after & (kInsideMask | kOpen)) == 0) {  // the last one out of a closed job: its caller waits
      finished_.store(1, std::memory_order_release);
      finished_.notify_one();
    }
  }
  if (on_thread_) on_thread_(ThreadEvent::end);
}

}  // namespace dsa
