// engine/session.h: one conversation: its tokens, the state that they left, and who is using it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "engine/run.h"
#include "io/picture.h"
#include "state/sequence_state.h"
#include "text/tokenizer.h"

namespace dsa {

class Engine;

enum class Overflow : int32_t { error, finish };

// A picture among the tokens of a session.
struct SessionPicture {
  std::string id;
  size_t first;
  int count;
  std::shared_ptr<const Picture> picture;  // null once its tokens were run
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Engine& engine() const { return *engine_; }
  int max_tokens() const { return max_tokens_; }
  Overflow overflow() const { return overflow_; }

  struct Info {
    uint32_t num_tokens = 0, turns = 0, images = 0;
    bool running = false;
    uint64_t bytes = 0;
    bool on_device = false;
  };
  Result<Info> info() const;

  // Stops what runs or is being started.
  Status cancel(Cancel how);
  // The last handle has gone: stops with keep, and frees what it holds at once, or else with the end of its run.
  void abandon() noexcept;

 private:
  friend class Engine;
  friend class SessionClaim;

  Session(std::shared_ptr<Engine> engine, int max_tokens, Overflow overflow)
      : engine_(std::move(engine)), max_tokens_(max_tokens), overflow_(overflow) {}

  // Forgets all but the first tokens and pictures.
  void truncate(size_t tokens, size_t pictures) noexcept {
    tokens_.resize(tokens);
    pictures_.erase(pictures_.begin() + std::ptrdiff_t(pictures), pictures_.end());
  }
  // After a run, with the engine's mutex held.
  void set_info() {
    info_ = {uint32_t(tokens_.size()), turns_, uint32_t(pictures_.size()), false, state_->bytes()};
  }

  const std::shared_ptr<Engine> engine_;
  const int max_tokens_;
  const Overflow overflow_;

  // Of the run in work, else of the call that claimed the session. Tokens from state_->length() on were not
  // run yet: the last sampled one, and what closes an answer that was cut off.
  std::vector<TokenId> tokens_;
  std::vector<SessionPicture> pictures_;  // in the order of their tokens
  std::unique_ptr<SequenceState> state_;  // null once the model is closed
  uint32_t turns_ = 0;
  std::vector<ToolCall> calls_;  // of the last answer: results refer to them
  std::vector<Tool> tools_;      // declared last

  // Guarded by the engine's mutex.
  Run* run_ = nullptr;        // queued or in work
  bool claimed_ = false;      // a call that changes the session is being made
  std::thread::id claimant_;  // by this thread
  bool abandoned_ = false;    // no handle is left
  Cancel pending_cancel_ = Cancel::no;
  int64_t pages_ = 0;  // of the pool that are set aside for it
  Info info_;
};

// A call that changes the session, from its first check to its return. Code::busy or Code::reentrant if there
// is one.
class SessionClaim {
 public:
  static Result<SessionClaim> take(Session& session);
  SessionClaim(SessionClaim&& other) noexcept : session_(std::exchange(other.session_, nullptr)) {}
  SessionClaim& operator=(SessionClaim&&) = delete;
  ~SessionClaim();

  Session& session() const { return *session_; }

 private:
  explicit SessionClaim(Session* session) : session_(session) {}

  Session* session_;
};

}  // namespace dsa
