#include "engine/session.h"

#include "engine/engine.h"

namespace dsa {

Session::~Session() { engine_->forget(*this); }

Result<Session::Info> Session::info() const {
  const std::lock_guard lock(engine_->mutex_);
  if (engine_->closing_) return closed_error();
  Info info = info_;
  info.running = run_ != nullptr || claimed_;
  info.on_device = engine_->on_device();
  return info;
}

Status Session::cancel(Cancel how) {
  std::shared_ptr<Run> run;
  {
    const std::lock_guard lock(engine_->mutex_);
    if (engine_->closing_) return closed_error();
    if (run_ != nullptr)
      run = run_->shared_from_this();
    else if (claimed_ && pending_cancel_ == Cancel::no)
      pending_cancel_ = how;
  }
  if (run) run->cancel(how);
  return Status::ok();
}

void Session::abandon() noexcept {
  std::shared_ptr<Run> run;
  {
    const std::lock_guard lock(engine_->mutex_);
    abandoned_ = true;
    if (run_ != nullptr)
      run = run_->shared_from_this();
    else if (!claimed_)
      engine_->free_session(*this);
  }
  if (run) run->cancel(Cancel::keep);
}

Result<SessionClaim> SessionClaim::take(Session& session) {
  const std::lock_guard lock(session.engine_->mutex_);
  if (session.engine_->closing_) return closed_error();
  if (session.claimed_ && session.claimant_ == std::this_thread::get_id())
    return error(Code::reentrant, "the session cannot be changed from inside its own callback");
  if (session.claimed_ || session.run_ != nullptr)
    return error(Code::busy, "the session is in use by another call").with_fix(Fix::retry);
  session.claimed_ = true;
  session.claimant_ = std::this_thread::get_id();
  session.pending_cancel_ = Cancel::no;
  return SessionClaim(&session);
}

SessionClaim::~SessionClaim() {
  if (session_ == nullptr) return;
  const std::lock_guard lock(session_->engine_->mutex_);
  session_->claimed_ = false;
  session_->claimant_ = {};
  if (session_->abandoned_ && session_->run_ == nullptr) session_->engine_->free_session(*session_);
}

}  // namespace dsa
