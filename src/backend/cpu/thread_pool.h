// backend/cpu/thread_pool.h: the queue of a CPU: a fixed set of threads that share the items of one call.
//
// The caller publishes a job, takes items itself, closes the job when none are left and waits only for the
// workers that still hold one. A worker that wakes late finds the job closed and goes back to sleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/common/queue.h"

namespace dsa {

enum class ThreadEvent { start, end };

class ThreadPool final : public Queue {
 public:
  // Called on each worker when it starts and before it ends; never on the caller's thread.
  using OnThread = std::function<void(ThreadEvent)>;

  // `threads` counts the caller: 1 creates none. Throws std::system_error if the system refuses a thread.
  explicit ThreadPool(int threads, OnThread on_thread = {});
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const override { return int(workers_.size()) + 1; }

 protected:
  // A second caller waits for the first. A call from inside a job runs on the thread that makes it.
  void run(int64_t n, Call call, const void* context) override;

 private:
  void work();
  void take_items();
  void stop();

  const OnThread on_thread_;
  std::vector<std::thread> workers_;
  std::mutex caller_;  // held by the one caller that runs a job

  // The job. Written while no worker is in it, read by those that have entered.
  Call call_ = nullptr;
  const void* context_ = nullptr;
  int64_t n_ = 0, chunk_ = 0;

  // Each on a cache line of its own.
  alignas(64) std::atomic<uint32_t> state_{0};     // generation, workers inside, open: see thread_pool.cc
  alignas(64) std::atomic<uint32_t> finished_{0};  // 1 once the last worker has left a closed job
  alignas(64) std::atomic<int64_t> next_{0};       // first item that nobody has taken
  std::atomic<bool> stopping_{false};
};

}  // namespace dsa
