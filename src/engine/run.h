// engine/run.h: one generation: what was asked, the events that wait for their reader, and how it ended.
//
// The engine's thread produces, one reader takes, anybody cancels. DONE is a flag, not an entry of the queue,
// so that a run can always end, also without memory.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "engine/picture_cache.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "io/picture.h"
#include "state/sequence_state.h"
#include "state/step_plan.h"
#include "text/chat_format.h"
#include "text/stop_matcher.h"
#include "text/utf8_stream.h"

namespace dsa {

class Session;

using Clock = std::chrono::steady_clock;

// The numbers of DSA_EVENT_*, DSA_FINISH_* and DSA_STOP_*.
enum class EventType : int32_t {
  start = 1,
  prefill = 2,
  text = 3,
  tool_begin = 4,
  tool_arguments = 5,
  tool_end = 6,
  notice = 7,
  done = 8
};
enum class Finish : int32_t {
  none,
  stop,
  stop_text,
  length,
  context,
  tool,
  grammar,
  cancelled,
  deadline,
  error
};
enum class Cancel : int32_t { no = 0, keep = 1, rollback = 2 };

struct Event {
  EventType type = EventType::start;
  Channel channel = Channel::answer;
  Finish finish = Finish::none;
  std::string text{};
  uint32_t index = 0;
  uint32_t num_tokens = 0;
  uint64_t done = 0, total = 0;
};

struct RunOptions {
  Sampling sampling;
  std::vector<std::string> stops;
  uint64_t seed = 1;
  uint32_t max_tokens = 0;  // 0: until the model stops
  std::optional<Clock::time_point> deadline;
  Priority priority = Priority::normal;
  bool may_call = true;   // false: the prompt asks for an answer without calls
  bool answer = true;     // false: computes the prompt only
  bool blocking = false;  // a call waits for it; it can still be undone after its end, see Engine::undo
  void (*on_ready)(void* ud) = nullptr;
  void* on_ready_ud = nullptr;
};

struct RunResult {
  Status status;
  Finish finish = Finish::none;
  uint32_t stop_index = 0;
  uint32_t prompt_tokens = 0, image_tokens = 0, output_tokens = 0, reasoning_tokens = 0;
};

struct RunStats {
  double queue_ms = 0, prefill_ms = 0, first_token_ms = 0, decode_ms = 0, total_ms = 0;
  double compute_ms = 0, sample_ms = 0;  // of decode_ms
};

class Run : public std::enable_shared_from_this<Run> {
 public:
  Run(uint64_t id, std::shared_ptr<Session> session, RunOptions options);

  uint64_t id() const { return id_; }
  const RunOptions& options() const { return options_; }
  Session& session() const { return *session_; }

  // ---- the reader ----
  enum class Next { event, pending, end, busy };
  // `event` lives until the next call. Negative timeout: waits for ever.
  Next next(int64_t timeout_ms, const Event** event);
  bool is_done() const { return done_.load(std::memory_order_acquire); }
  // After is_done():
  const RunResult& result() const { return result_; }
  const RunStats& stats() const { return stats_; }
  const std::string& text(Channel channel) const { return texts_[size_t(channel)]; }
  const std::vector<ToolCall>& calls() const { return calls_; }

  // ---- anybody ----
  // The first one counts. `status`, if it is a failure, is what the run ends with. Wakes the engine.
  void cancel(Cancel how, Status status = {});
  // The reader has gone: on_ready is not called any more, and not being called any more, when it returns.
  void forget_reader();

  // ---- the engine's thread ----
  void push(Event event);          // joins text of one channel, and arguments of one call
  void begin_call(ToolCall call);  // with its event; the one that was open stays incomplete
  void end_call(bool is_complete);
  bool has_open_call() const { return call_open_; }
  bool has_complete_call() const {
    return std::any_of(calls_.begin(), calls_.end(), [](const ToolCall& call) { return call.is_complete; });
  }
  // Ends the run. Cannot fail.
  void complete(RunResult result, const RunStats& stats, uint32_t num_tokens) noexcept;
  // Calls on_ready if the reader was waiting and something came. With no lock held.
  void wake_reader() noexcept;

  Cancel cancel_requested() const { return cancel_.load(std::memory_order_acquire); }
  Status cancel_status() const;

  // A picture that the run has to compute, once the tower has made rows of it.
  struct PendingPicture {
    std::shared_ptr<const Picture> picture;
    std::shared_ptr<const PictureFeatures> features;
    int first, count;  // tokens of the session
  };

  // Progress of the engine's thread; nobody else reads it.
  struct Work {
    explicit Work(const RunOptions& options) : random(options.seed), stops(options.stops) {}

    Mark mark;  // of the session when the run was admitted
    bool marked = false;
    size_t first_token = 0;  // of this run in the session's tokens; what was there before stays at a rollback
    size_t prompt_end = 0;   // where the answer begins
    uint32_t prompt_tokens = 0, image_tokens = 0;
    size_t first_picture = 0;  // of this run in the session's pictures
    std::vector<PendingPicture> pictures;
    std::vector<PlacedRows> placed;        // the same for the model; empty until all of them have features
    std::unique_ptr<AnswerReader> reader;  // null: all tokens that are not control tokens are answer text
    Random random;
    StopMatcher stops;
    Utf8Stream utf8[3];  // [channel]
    Channel channel = Channel::answer;
    uint32_t output_tokens = 0, reasoning_tokens = 0;
    uint32_t stop_index = 0;
    TokenId last_token = -1;      // sampled
    std::vector<Tool> tools;      // of the prompt; from its end on those that the session had before
    bool has_tools = false;       // they were exchanged
    std::vector<ToolCall> calls;  // of the answer; the same
    uint32_t piece_tokens = 0;    // sampled since the last text event
    std::string bytes, piece;     // scratch
    Clock::time_point started = Clock::now(), admitted, prompt_done, first;
    RunStats stats;
  };
  Work work;

 private:
  const uint64_t id_;
  const std::shared_ptr<Session> session_;
  const RunOptions options_;

  std::atomic<Cancel> cancel_{Cancel::no};
  std::atomic<bool> done_{false};
  std::atomic<bool> reading_{false};  // a thread is inside next()
  Event current_;                     // the reader's view

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Status cancel_status_;
  std::deque<Event> events_;
  bool done_ready_ = false, done_taken_ = false;
  uint32_t done_tokens_ = 0;
  bool armed_ = true;  // the next event calls on_ready
  bool reader_gone_ = false;
  bool waking_ = false;
  std::thread::id waking_thread_;
  RunResult result_;
  RunStats stats_;
  std::string texts_[3];  // [channel]
  std::vector<ToolCall> calls_;
  bool call_open_ = false;  // the last one; of the engine's thread
};

}  // namespace dsa
