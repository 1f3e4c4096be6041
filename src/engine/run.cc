#include "engine/run.h"

#include <utility>

#include "engine/engine.h"
#include "engine/runtime.h"
#include "engine/session.h"

namespace dsa {

Run::Run(uint64_t id, std::shared_ptr<Session> session, RunOptions options)
    : work(options), id_(id), session_(std::move(session)), options_(std::move(options)) {}

Run::Next Run::next(int64_t timeout_ms, const Event** event) {
  if (reading_.exchange(true, std::memory_order_acquire)) return Next::busy;
  struct Left {
    std::atomic<bool>& reading;
    ~Left() { reading.store(false, std::memory_order_release); }
  } left{reading_};

  std::unique_lock lock(mutex_);
  const auto ready = [&] { return !events_.empty() || done_ready_; };
  if (timeout_ms < 0)
    changed_.wait(lock, ready);
  else if (timeout_ms > 0)
    changed_.wait_for(lock, std::chrono::milliseconds(std::min<int64_t>(timeout_ms, int64_t(1) << 40)),
                      ready);
  if (!events_.empty()) {
    current_ = std::move(events_.front());
    events_.pop_front();
  } else if (!done_ready_) {
    armed_ = true;
    return Next::pending;
  } else if (done_taken_) {
    return Next::end;
  } else {
    done_taken_ = true;
    current_.type = EventType::done;
    current_.channel = Channel::answer;
    current_.finish = result_.finish;
    current_.text.clear();
    current_.index = result_.stop_index;
    current_.num_tokens = done_tokens_;
    current_.done = current_.total = 0;
  }
  *event = &current_;
  return Next::event;
}

void Run::cancel(Cancel how, Status status) {
  {
    const std::lock_guard lock(mutex_);
    if (done_ready_ || cancel_.load(std::memory_order_relaxed) != Cancel::no) return;
    cancel_status_ = std::move(status);
    cancel_.store(how, std::memory_order_release);
  }
  session_->engine().wake();
}

Status Run::cancel_status() const {
  const std::lock_guard lock(mutex_);
  return cancel_status_;
}

void Run::forget_reader() {
  std::unique_lock lock(mutex_);
  reader_gone_ = true;
  changed_.wait(lock, [&] { return !waking_ || waking_thread_ == std::this_thread::get_id(); });
}

void Run::push(Event event) {
  {
    const std::lock_guard lock(mutex_);
    if (event.type == EventType::text) {
      std::string& text = texts_[size_t(event.channel)];
      text.reserve(text.size() + event.text.size());  // nothing below may fail half way
      if (!events_.empty() && events_.back().type == EventType::text &&
          events_.back().channel == event.channel) {
        events_.back().text += event.text;
        events_.back().num_tokens += event.num_tokens;
        text += event.text;
      } else {
        const size_t size = text.size();
        text += event.text;
        try {
          events_.push_back(std::move(event));
        } catch (...) {
          text.resize(size);
          throw;
        }
      }
    } else if (event.type == EventType::tool_arguments) {
      std::string& arguments = calls_.back().arguments;
      arguments.reserve(arguments.size() + event.text.size());
      Event* const last = events_.empty() ? nullptr : &events_.back();
      const size_t size = arguments.size();
      arguments += event.text;
      try {
        if (last != nullptr && last->type == EventType::tool_arguments && last->index == event.index) {
          last->text += event.text;
          last->num_tokens += event.num_tokens;
        } else {
          events_.push_back(std::move(event));
        }
      } catch (...) {
        arguments.resize(size);
        throw;
      }
    } else {
      events_.push_back(std::move(event));
    }
  }
  changed_.notify_all();
}

void Run::begin_call(ToolCall call) {
  Event event{.type = EventType::tool_begin, .channel = Channel::tool, .text = call.name};
  event.num_tokens = std::exchange(work.piece_tokens, 0);
  call.is_complete = call.is_valid = false;
  {
    const std::lock_guard lock(mutex_);
    event.index = uint32_t(calls_.size());
    calls_.push_back(std::move(call));
    try {
      events_.push_back(std::move(event));
    } catch (...) {
      calls_.pop_back();
      throw;
    }
    call_open_ = true;
  }
  changed_.notify_all();
}

void Run::end_call(bool is_complete) {
  if (!call_open_) return;
  call_open_ = false;
  Event event{.type = EventType::tool_end, .channel = Channel::tool};
  event.num_tokens = std::exchange(work.piece_tokens, 0);
  {
    const std::lock_guard lock(mutex_);
    ToolCall& call = calls_.back();
    event.index = uint32_t(calls_.size() - 1);
    events_.push_back(std::move(event));
    call.is_complete = is_complete;
    call.is_valid = is_complete && check_arguments(call.arguments).is_ok();
  }
  changed_.notify_all();
}

void Run::complete(RunResult result, const RunStats& stats, uint32_t num_tokens) noexcept {
  {
    const std::lock_guard lock(mutex_);
    result_ = std::move(result);
    stats_ = stats;
    done_tokens_ = num_tokens;
    done_ready_ = true;
    done_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
}

void Run::wake_reader() noexcept {
  if (options_.on_ready == nullptr) return;
  {
    const std::lock_guard lock(mutex_);
    if (!armed_ || reader_gone_ || (events_.empty() && (!done_ready_ || done_taken_))) return;
    armed_ = false;
    waking_ = true;
    waking_thread_ = std::this_thread::get_id();
  }
  bool threw = false;
  try {
    const CallbackScope scope(CallbackKind::wakeup);
    options_.on_ready(options_.on_ready_ud);
  } catch (...) {
    threw = true;
  }
  {
    const std::lock_guard lock(mutex_);
    waking_ = false;
  }
  changed_.notify_all();
  if (threw) try {
      cancel(Cancel::rollback, error(Code::callback, "on_ready threw an exception"));
    } catch (...) {
      cancel(Cancel::rollback);
    }
}

}  // namespace dsa
