// support/timed_backend.h: a backend that notes how long each operator takes, and what a step costs its host.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"

namespace dsa::test {

struct OperatorTime {
  double seconds = 0;
  int64_t calls = 0;
};
// By name, those that were called.
using OperatorTimes = std::map<std::string, OperatorTime>;
constexpr const char* kWholeStep = "step";  // what was put on the queue as a whole

inline void note(OperatorTimes& times, const char* op, double seconds) {
  OperatorTime& time = times[op];
  time.seconds += seconds;
  ++time.calls;
}

// Notes when operators begin and end.
class OperatorClock {
 public:
  virtual ~OperatorClock() = default;
  virtual void begin(Queue& queue) = 0;
  virtual void end(const char* op, Queue& queue) = 0;
  // All since the last call; waits for the device.
  virtual OperatorTimes take() = 0;
  // Runs what a backend would replay, so that the time of each operator is that of a replay.
  virtual void replay(const std::function<void()>& work) { work(); }
  // Kernels of the last replay; 0: unknown.
  virtual int64_t kernels() const { return 0; }
};

class HostClock final : public OperatorClock {
 public:
  void begin(Queue&) override { begin_ = std::chrono::steady_clock::now(); }
  void end(const char* op, Queue&) override {
    note(times_, op, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count());
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
#define DSA_TIME_WRAP(name, Args)                                     \
  table_.name = [](const Args& args, Queue& queue) {                  \
    timed_->run(timed_->backend_.kernels().name, args, queue, #name); \
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
  int expand_rows() const override { return backend_.expand_rows(); }
  bool fuses() const override { return backend_.fuses(); }
  bool samples() const override { return backend_.samples(); }
  bool can_replay() const override { return replays && watch != Watch::experts && backend_.can_replay(); }
  void replay(uint64_t key, const std::function<void()>& work) override {
    if (watch == Watch::operators) return clock_.replay(work);
    replay_begin = std::chrono::steady_clock::now();
    if (watch == Watch::steps) clock_.begin(queue());
    backend_.replay(key, work);
    if (watch == Watch::steps) clock_.end(kWholeStep, queue());
    replay_end = std::chrono::steady_clock::now();
  }

  Watch watch = Watch::operators;
  bool replays = true;
  std::chrono::steady_clock::time_point replay_begin, replay_end;  // of the last step that was replayed
  int64_t experts_used = 0;  // by rows of steps that were watched for it, over all layers

 private:
  template <class Args>
  void run(void (*kernel)(const Args&, Queue&), const Args& args, Queue& queue, const char* op) {
    if (watch == Watch::experts) {
      kernel(args, queue);
      return note_experts(args);
    }
    clock_.begin(queue);
    kernel(args, queue);
    clock_.end(op, queue);
  }
  template <class Args>
  void note_experts(const Args&) {}
  void note_experts(const ExpertPlanArgs& args) {
    std::vector<int32_t> offsets(size_t(args.experts) + 1);
    if (!storage().read(offsets.data(), args.offsets, offsets.size() * sizeof(int32_t)).is_ok()) return;
    for (size_t e = 0; e + 1 < offsets.size(); ++e) experts_used += offsets[e + 1] > offsets[e] ? 1 : 0;
  }

  void note_experts(const ExpertUpArgs& args) {
    std::vector<int32_t> ids(size_t(args.tokens) * size_t(args.top_k));
    if (!storage().read(ids.data(), args.expert_ids, ids.size() * sizeof(int32_t)).is_ok()) return;
    experts_used += int64_t(std::set<int32_t>(ids.begin(), ids.end()).size());
  }

  static inline TimedBackend* timed_ = nullptr;
  Backend& backend_;
  OperatorClock& clock_;
  KernelTable table_;
};

}  // namespace dsa::test
