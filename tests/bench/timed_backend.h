// tests/bench/timed_backend.h: a backend that notes how long each operator takes, and what a step costs its host.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <tuple>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "bench/bench.h"

namespace dsa::bench {

struct OperatorTime {
  double seconds = 0;
  int64_t calls = 0;
};
struct OperatorTimes {
#define DSA_TIME_MEMBER(name, Args) OperatorTime name;
  DSA_FOR_EACH_KERNEL(DSA_TIME_MEMBER)
#undef DSA_TIME_MEMBER
  OperatorTime step;  // that was put on the queue as a whole

  void note_time(OperatorTime OperatorTimes::*op, double seconds) {
    (this->*op).seconds += seconds;
    ++(this->*op).calls;
  }
};

// Notes when operators begin and end.
class OperatorClock {
 public:
  virtual ~OperatorClock() = default;
  virtual void begin() = 0;
  virtual void end(OperatorTime OperatorTimes::*op) = 0;
  // All since the last call; waits for the device.
  virtual OperatorTimes take() = 0;
  // Runs what a backend would replay, so that the time of each operator is that of a replay.
  virtual void replay(const std::function<void()>& work) { work(); }
  // Kernels of the last replay; 0: unknown.
  virtual int64_t kernels() const { return 0; }
};

class HostClock final : public OperatorClock {
 public:
  void begin() override { begin_ = std::chrono::steady_clock::now(); }
  void end(OperatorTime OperatorTimes::*op) override {
    times_.note_time(op, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count());
  }
  OperatorTimes take() override { return std::exchange(times_, {}); }

 private:
  std::chrono::steady_clock::time_point begin_;
  OperatorTimes times_;
};

// What is noted beside the work itself: each operator; steps as a whole, which then run as they would unwatched; the
// experts that rows go to.
enum class Watch { nothing, operators, steps, experts };

// One at a time: kernels have no other way to their clock.
class TimedBackend final : public Backend {
 public:
  TimedBackend(Backend& backend, OperatorClock& clock) : backend_(backend), clock_(clock) {
    DSA_ASSERT(timed_ == nullptr);
    timed_ = this;
#define DSA_TIME_WRAP(name, Args)                                                    \
  table_.name = [](const Args& args, Queue& queue) {                                 \
    timed_->run(timed_->backend_.kernels().name, args, queue, &OperatorTimes::name); \
  };
    DSA_FOR_EACH_KERNEL(DSA_TIME_WRAP)
#undef DSA_TIME_WRAP
  }
  ~TimedBackend() override { timed_ = nullptr; }

  const char* name() const override { return backend_.name(); }
  const KernelTable& kernels() const override {
    return watch == Watch::operators || watch == Watch::experts ? table_ : backend_.kernels();
  }
  Queue& queue() override { return backend_.queue(); }
  Storage& storage() override { return backend_.storage(); }
  std::shared_ptr<void> enter_thread() override { return backend_.enter_thread(); }
  int fp8_rows() const override { return backend_.fp8_rows(); }
  bool fuses() const override { return backend_.fuses(); }
  bool can_replay() const override { return replays && watch != Watch::experts && backend_.can_replay(); }
  void replay(uint64_t key, const std::function<void()>& work) override {
    if (watch == Watch::operators) return clock_.replay(work);
    replay_begin = std::chrono::steady_clock::now();
    if (watch == Watch::steps) clock_.begin();
    backend_.replay(key, work);
    if (watch == Watch::steps) clock_.end(&OperatorTimes::step);
    replay_end = std::chrono::steady_clock::now();
  }

  Watch watch = Watch::operators;
  bool replays = true;
  std::chrono::steady_clock::time_point replay_begin, replay_end;  // of the last step that was replayed
  int64_t experts_used = 0;  // by rows of steps that were watched for it, over all layers

 private:
  template <class Args>
  void run(void (*kernel)(const Args&, Queue&), const Args& args, Queue& queue,
           OperatorTime OperatorTimes::*op) {
    if (watch == Watch::experts) {
      kernel(args, queue);
      return note_experts(args);
    }
    clock_.begin();
    kernel(args, queue);
    clock_.end(op);
  }
  template <class Args>
  void note_experts(const Args&) {}
  void note_experts(const ExpertPlanArgs& args) {
    std::vector<int32_t> offsets(size_t(args.experts) + 1);
    if (!storage().read(offsets.data(), args.offsets, offsets.size() * sizeof(int32_t)).is_ok()) return;
    for (size_t e = 0; e + 1 < offsets.size(); ++e) experts_used += offsets[e + 1] > offsets[e] ? 1 : 0;
  }

  static inline TimedBackend* timed_ = nullptr;
  Backend& backend_;
  OperatorClock& clock_;
  KernelTable table_;
};

inline std::vector<std::tuple<double, int64_t, const char*>> by_time(const OperatorTimes& times) {
  std::vector<std::tuple<double, int64_t, const char*>> list;
#define DSA_TIME_LIST(name, Args) list.push_back({times.name.seconds, times.name.calls, #name});
  DSA_FOR_EACH_KERNEL(DSA_TIME_LIST)
#undef DSA_TIME_LIST
  std::sort(list.rbegin(), list.rend());
  return list;
}

// The operators that took at least 1 % of `total`, largest first.
inline void print_shares(const char* what, const OperatorTimes& times, double total) {
  printf("%s by operator:", what);
  for (const auto& [time, calls, name] : by_time(times))
    if (time >= 0.01 * total) printf("  %s %.0f %%", name, 100 * time / total);
  printf("\n");
}

// All that were called, a line each, of one of `steps` steps.
inline void print_operators(const char* what, const OperatorTimes& times, int steps) {
  double sum = 0;
  int64_t all = 0;
  for (const auto& [time, calls, name] : by_time(times)) sum += time, all += calls;
  printf("  %s: %lld operators, %.1f us\n", what, (long long)(all / steps), sum / steps * 1e6);
  for (const auto& [time, calls, name] : by_time(times))
    if (calls > 0)
      printf("    %-20s %5lld calls %10.1f us %5.1f %% %9.2f us each\n", name, (long long)(calls / steps),
             time / steps * 1e6, 100 * time / sum, time / double(calls) * 1e6);
}

}  // namespace dsa::bench
