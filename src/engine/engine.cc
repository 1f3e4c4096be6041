#include "engine/engine.h"

#include <algorithm>
#include <new>
#include <utility>

#include "engine/scheduler.h"

namespace dsa {
namespace {

double ms_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

// Of the pictures of one pass: bounds its memory. A larger picture passes alone.
constexpr int kPassTokens = 4096;

Status no_tokenizer() { return error(Code::unsupported, "the package has no tokenizer"); }

}  // namespace

Status closed_error() { return error(Code::closed, "the model was closed"); }

Engine::Engine(EngineParts parts, const EngineOptions& options)
    : parts_(std::move(parts)),
      options_(options),
      vocab_(parts_.model->vocab_size()),
      has_vision_(parts_.model->vision() != nullptr && parts_.format && parts_.format->image_token() >= 0),
      out_of_memory_(error(Code::out_of_memory, "out of host memory").with_fix(Fix::free_memory)),
      closed_(closed_error()),
      cancelled_(error(Code::cancelled, "the run was cancelled and rolled back")),
      sampler_(vocab_),
      pictures_(options.picture_bytes) {
  const size_t most =
      size_t(max_active_ = std::min(parts_.model->max_step_sequences(), parts_.model->max_step_tokens()));
  model_bytes_ = parts_.model->host_bytes();
  active_.reserve(2 * most);
  shares_.reserve(2 * most);
  plan_.sequences.reserve(most);
  single_.sequences.reserve(1);
  plan_runs_.reserve(most);
  sampled_.reserve(most);
  failures_.reserve(most);
  asked_.reserve(most);
  spare_flights_.reserve(LanguageModel::kLaunchesMax);
}

Result<std::shared_ptr<Engine>> Engine::create(EngineParts parts, const EngineOptions& options) {
  std::shared_ptr<Runtime> runtime = parts.runtime;
  std::shared_ptr<Engine> core(new Engine(std::move(parts), options));
  core->default_context_ = std::min(core->parts_.max_context, options.default_context);
  Storage& storage = core->parts_.backend ? core->parts_.backend->storage() : host_storage();
  // Fewer sessions rather than no model where address space is short.
  for (int64_t sessions = options.pool_sessions;; sessions /= 2) {
    core->num_pages_ = sessions * core->pages_of(core->default_context_);
    auto pool =
        PagePool::create(core->parts_.model->state_layout(), core->num_pages_, options.pool_states, storage);
    if (pool.is_ok()) {
      core->pool_ = std::move(pool).value();
      break;
    }
    if (sessions <= 1 || !storage.is_host()) return pool.status();
  }
  DSA_TRY(start_thread(runtime, "dsa-engine", [core] { core->work_loop(); }));
  return std::shared_ptr<Engine>(core.get(), [core](Engine* engine) { engine->stop(); });
}

void Engine::wake() {
  { const std::lock_guard lock(mutex_); }
  work_.notify_one();
}

void Engine::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_one();
}

Status Engine::check_open() const {
  const std::lock_guard lock(mutex_);
  return closing_ ? closed_error() : Status::ok();
}

Result<bool> Engine::close(int64_t timeout_ms) {
  std::unique_lock lock(mutex_);
  if (current_callback() != CallbackKind::none)
    return error(Code::reentrant, "a model cannot be closed from inside this callback");
  for (const Session* session : sessions_)
    if (session->claimed_ && session->claimant_ == std::this_thread::get_id())
      return error(Code::reentrant, "a model cannot be closed from inside a callback of its own run");
  closing_ = true;
  work_.notify_one();
  const auto freed = [&] { return freed_all_; };
  if (timeout_ms < 0)
    freed_.wait(lock, freed);
  else
    freed_.wait_for(lock, std::chrono::milliseconds(std::min<int64_t>(timeout_ms, int64_t(1) << 40)), freed);
  return freed_all_;
}

Result<EngineStats> Engine::stats() const {
  const std::lock_guard lock(mutex_);
  if (freed_all_) return closed_error();
  EngineStats stats = stats_;
  stats.kv_bytes = pool_ ? pool_->used_bytes() : 0;
  stats.expert_bytes = parts_.expert_bytes;
  stats.fp8_workspace_bytes = parts_.model->fp8_workspace_bytes();
  stats.host_bytes = model_bytes_;
  if (on_device()) stats.device_bytes = parts_.backend->storage().allocated_bytes();
  for (const Session* session : sessions_) stats.host_bytes += on_device() ? 0 : session->info_.bytes;
  stats.host_bytes += picture_bytes_;
  stats.running = uint32_t(num_active_);
  stats.queued = uint32_t(waiting());
  stats.sessions = uint32_t(sessions_.size());
  stats.closing = closing_;
  return stats;
}

// ---- sessions and prompts ----

Result<std::shared_ptr<Session>> Engine::create_session(const std::shared_ptr<Engine>& engine,
                                                        int64_t context, Overflow overflow) {
  if (context == 0) context = engine->default_context_;
  const int64_t most = std::min<int64_t>(engine->parts_.max_context, engine->num_pages_ * kPageSize);
  if (context > most)
    return error(Code::limit, "a context of ", context, " tokens, this model has at most ", most)
        .with_fix(Fix::shorten)
        .with_room(uint64_t(context), uint64_t(most));
  const std::shared_ptr<Session> session(new Session(engine, int(context), overflow));
  const std::lock_guard lock(engine->mutex_);
  if (engine->closing_) return closed_error();
  session->state_ = std::make_unique<SequenceState>(*engine->pool_, int(context));
  engine->sessions_.insert(session.get());
  return session;
}

void Engine::forget(Session& session) {
  const std::lock_guard lock(mutex_);
  free_session(session);
}

void Engine::free_session(Session& session) {
  sessions_.erase(&session);
  used_pages_ -= std::exchange(session.pages_, 0);
  session.state_.reset();
}

uint32_t Engine::Rendered::image_tokens() const {
  uint32_t n = 0;
  for (const SessionPicture& picture : pictures) n += uint32_t(picture.count);
  return n;
}

Result<std::vector<ImageSlot>> Engine::image_slots(const Prompt& prompt) const {
  DSA_TRY(prompt.check_images());
  std::vector<ImageSlot> slots;
  if (prompt.pictures().empty()) return slots;
  if (!has_vision_)
    return error(Code::unsupported, "the prompt shows ", prompt.pictures().size(),
                 " pictures, and this model reads text only")
        .with_fix(Fix::input);
  slots.reserve(prompt.pictures().size());
  const std::lock_guard lock(mutex_);
  if (!parts_.model) return closed_error();
  for (const auto& picture : prompt.pictures())
    slots.push_back({picture->width(), picture->height(),
                     parts_.model->vision()->shape(picture->width(), picture->height()).tokens});
  return slots;
}

Result<Engine::Rendered> Engine::render(const Prompt& prompt, ChatOptions options) const {
  Rendered rendered;
  rendered.tokens = prompt.raw();
  options.tools = prompt.tools();
  options.begins = options.begins && rendered.tokens.empty();
  if (!prompt.messages().empty() || !prompt.tools().empty()) {
    if (!parts_.tokenizer) return no_tokenizer();
    if (!parts_.format) return parts_.why_no_format;
    DSA_ASSIGN(const std::vector<ImageSlot> slots, image_slots(prompt));
    DSA_ASSIGN(const RenderedChat chat, parts_.format->render(prompt.messages(), slots, options));
    for (const RenderedChat::Place& place : chat.places) {
      const auto& picture = prompt.pictures()[size_t(place.image)];
      rendered.pictures.push_back(
          {picture->id(), rendered.tokens.size() + place.first, slots[size_t(place.image)].tokens, picture});
    }
    rendered.tokens.insert(rendered.tokens.end(), chat.tokens.begin(), chat.tokens.end());
    rendered.formatted = true;
    rendered.in_reasoning = chat.in_reasoning;
  } else {
    DSA_TRY(prompt.check_images());
  }
  if (rendered.tokens.empty())
    return error(Code::argument, "the prompt is empty: there is nothing to compute").with_fix(Fix::input);
  for (size_t i = 0; i < rendered.tokens.size(); ++i)
    if (rendered.tokens[i] < 0 || rendered.tokens[i] >= vocab_)
      return error(Code::argument, "token ", rendered.tokens[i], " at ", i, " of the prompt, expected 0 to ",
                   vocab_ - 1)
          .with_fix(Fix::input)
          .with_position(i);
  // An image token without a picture would be computed from the embedding of the token itself.
  if (has_vision_) {
    size_t i = 0;
    for (auto picture = rendered.pictures.begin(); i < rendered.tokens.size(); ++i) {
      if (picture != rendered.pictures.end() && i == picture->first) {
        i += size_t(picture->count) - 1;
        ++picture;
      } else if (rendered.tokens[i] == parts_.format->image_token()) {
        return error(Code::argument, "token ", i, " of the prompt stands for a picture, and there is none")
            .with_fix(Fix::input)
            .with_position(i);
      }
    }
  }
  return rendered;
}

Result<PromptCost> Engine::measure(const Prompt& prompt, const Session* session) const {
  DSA_TRY(check_open());
  size_t before = 0;
  if (session != nullptr) {
    const std::lock_guard lock(mutex_);
    before = session->info_.num_tokens;
  }
  DSA_ASSIGN(const Rendered rendered, render(prompt, {.thinking = parts_.thinking, .begins = before == 0}));
  const std::lock_guard lock(mutex_);
  const int room = session != nullptr ? session->max_tokens_ : default_context_;
  PromptCost cost;
  cost.num_tokens = uint32_t(rendered.tokens.size());
  cost.image_tokens = rendered.image_tokens();
  cost.fits = before + rendered.tokens.size() <= size_t(room);
  if (prefill_tokens_per_second_ > 0)
    cost.prefill_seconds = double(rendered.tokens.size()) / prefill_tokens_per_second_;
  return cost;
}

Result<std::shared_ptr<Operation>> Engine::prepare_picture(const std::shared_ptr<Engine>& engine,
                                                           std::shared_ptr<const Picture> picture) {
  if (!engine->has_vision_)
    return error(Code::unsupported, "this model reads text only").with_fix(Fix::input);
  auto operation = std::make_shared<Operation>([engine] { engine->wake(); });
  {
    const std::lock_guard lock(engine->mutex_);
    if (engine->closing_) return closed_error();
    if (engine->preparations_.size() >= size_t(engine->options_.queue_limit))
      return error(Code::queue_full, engine->preparations_.size(), " pictures are waiting, at most ",
                   engine->options_.queue_limit)
          .with_fix(Fix::retry)
          .with_room(engine->preparations_.size() + 1, uint64_t(engine->options_.queue_limit));
    engine->preparations_.push_back({std::move(picture), operation});
  }
  engine->work_.notify_one();
  return operation;
}

Result<std::shared_ptr<Run>> Engine::start(const SessionClaim& claim, const Prompt& prompt, bool thinking,
                                           RunOptions options) {
  Session& session = claim.session();
  DSA_ASSIGN(const Rendered rendered, render(prompt, {.ask = options.answer,
                                                      .thinking = thinking,
                                                      .begins = session.tokens_.empty(),
                                                      .may_call = options.may_call,
                                                      .calls = session.calls_}));

  const size_t before = session.tokens_.size(), room = size_t(session.max_tokens_) - before;
  const size_t answer = session.overflow_ == Overflow::error && options.answer ? options.max_tokens : 0;
  if (before > size_t(session.max_tokens_) || rendered.tokens.size() + answer > room)
    return error(Code::context_full, "the prompt has ", rendered.tokens.size(),
                 " tokens and the answer up to ", answer, "; the session holds ", before, " of ",
                 session.max_tokens_)
        .with_fix(Fix::shorten)
        .with_room(rendered.tokens.size() + answer, before > size_t(session.max_tokens_) ? 0 : room);

  auto run =
      std::make_shared<Run>(parts_.runtime->next_run_id(), session.shared_from_this(), std::move(options));
  Run::Work& work = run->work;
  work.first_token = before;
  work.prompt_end = before + rendered.tokens.size();
  work.first_picture = session.pictures_.size();
  work.image_tokens = rendered.image_tokens();
  work.tools = prompt.tools();
  if (run->options().answer && rendered.formatted)
    work.reader =
        parts_.format->reader(rendered.in_reasoning, work.tools.empty() ? session.tools_ : work.tools);

  // Room for the prompt and the longest answer, so that a decode step allocates nothing.
  const size_t longest =
      run->options().max_tokens != 0 ? run->options().max_tokens : size_t(session.max_tokens_);
  session.tokens_.reserve(std::min(size_t(session.max_tokens_), work.prompt_end + longest));
  session.pictures_.reserve(session.pictures_.size() + rendered.pictures.size());
  session.tokens_.insert(session.tokens_.end(), rendered.tokens.begin(), rendered.tokens.end());
  for (const SessionPicture& picture : rendered.pictures) {
    session.pictures_.push_back(picture);
    session.pictures_.back().first += before;
  }
  struct Undo {
    Session* session;
    size_t tokens, pictures;
    ~Undo() {
      if (session != nullptr) session->truncate(tokens, pictures);
    }
  } undo{&session, before, work.first_picture};

  Cancel cancel = Cancel::no;
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return closed_error();
    // Runs that the next step takes up do not wait.
    if (waiting() >= size_t(options_.queue_limit) + size_t(free_places(*run)))
      return error(Code::queue_full, waiting(), " runs are waiting, at most ", options_.queue_limit)
          .with_fix(Fix::retry)
          .with_room(waiting() + 1, uint64_t(options_.queue_limit));
    work.prompt_tokens = uint32_t(work.prompt_end - size_t(session.state_->length()));
    const int64_t wanted = pages_wanted(*run), left = num_pages_ - used_pages_ + session.pages_;
    if (wanted > left && num_active_ == 0 && waiting() == 0) {
      const uint64_t page_bytes = pool_->layout().page_bytes();
      return error(Code::out_of_memory, "the run may need ", wanted, " pages, idle sessions leave ", left,
                   " of ", num_pages_)
          .with_fix(Fix::free_memory)
          .with_room(uint64_t(wanted) * page_bytes, uint64_t(left) * page_bytes);
    }
    queue_[size_t(run->options().priority)].push_back(run);
    session.run_ = run.get();
    session.info_.num_tokens = uint32_t(session.tokens_.size());
    session.info_.images = uint32_t(session.pictures_.size());
    ++stats_.runs;
    cancel = session.pending_cancel_;
    undo.session = nullptr;
  }
  if (cancel != Cancel::no)
    run->cancel(cancel);
  else
    work_.notify_one();
  return run;
}

void Engine::undo(const SessionClaim& claim, Run& run) noexcept {
  Session& session = claim.session();
  const std::lock_guard lock(mutex_);
  session.truncate(run.work.first_token, run.work.first_picture);
  if (run.options().answer) {
    --session.turns_;
    session.calls_.swap(run.work.calls);
  }
  if (run.work.has_tools) session.tools_.swap(run.work.tools);
  if (!session.state_) return;  // closed meanwhile
  session.state_->rewind(run.work.mark);
  const int64_t held = int64_t(session.state_->pages().size());
  used_pages_ += held - session.pages_;
  session.pages_ = held;
  session.set_info();
}

int64_t Engine::pages_wanted(const Run& run) const {
  const Session& session = run.session();
  int64_t tokens = int64_t(run.work.prompt_end);
  if (run.options().answer)
    tokens = run.options().max_tokens == 0 ? session.max_tokens_ : tokens + run.options().max_tokens;
  return pages_of(std::min<int64_t>(tokens, session.max_tokens_));
}

bool Engine::is_end_token(TokenId token) const {
  return std::find(parts_.end_tokens.begin(), parts_.end_tokens.end(), token) != parts_.end_tokens.end();
}

// ---- the engine's thread ----

void Engine::work_loop() noexcept {
  for (;;) {
    Status failure;
    try {
      if (!prepare()) break;
      step();
    } catch (const std::bad_alloc&) {
      failure = out_of_memory_;
    } catch (const std::exception& e) {
      try {
        failure = error(Code::internal, "the engine failed: ", e.what()).with_fix(Fix::report);
      } catch (...) {
        failure = out_of_memory_;
      }
    } catch (...) {
      failure = out_of_memory_;
    }
    if (!failure.is_ok()) {
      end_encoding(failure);
      while (!active_.empty()) finish(active_.front(), Finish::error, failure, false);
    }
  }
  free_everything();
}

bool Engine::prepare() {
  for (;;) {
    std::shared_ptr<Run> run;
    Finish finish_reason = Finish::none;
    Status status;
    bool keep = false;
    {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [&] {
        return num_active_ > 0 || waiting() > 0 || encoding_ || !preparations_.empty() || closing_ ||
               stopping_;
      });
      run = take_ended(finish_reason, status, keep);
      if (!run) {
        run = take_admissible(status);
        if (!run) {
          if (num_active_ > 0) return true;
          if (closing_ || stopping_) return waiting() > 0;  // else nothing will come
          return true;
        }
        if (!status.is_ok()) finish_reason = Finish::error;
      }
    }
    if (finish_reason != Finish::none)
      finish(std::move(run), finish_reason, std::move(status), keep);
    else
      admit(run);
  }
}

std::shared_ptr<Run> Engine::take_ended(Finish& finish_reason, Status& status, bool& keep) {
  const Clock::time_point now = Clock::now();
  const auto ended = [&](const Run& run) {
    const Cancel cancel = run.cancel_requested();
    if (closing_) {
      finish_reason = Finish::cancelled;
      status = closed_;
      keep = false;
    } else if (cancel != Cancel::no) {
      finish_reason = Finish::cancelled;
      keep = cancel == Cancel::keep && run.options().answer;
      status = run.cancel_status();
      if (status.code() == Code::callback) finish_reason = Finish::error;
      if (!keep && status.is_ok()) status = cancelled_;
    } else if (run.options().deadline && now >= *run.options().deadline) {
      finish_reason = Finish::deadline;
      keep = true;
    } else {
      return false;
    }
    return true;
  };
  for (const std::shared_ptr<Run>& run : active_)
    if (ended(*run)) return run;
  for (auto& queue : queue_)
    for (auto at = queue.begin(); at != queue.end(); ++at)
      if (ended(**at)) {
        std::shared_ptr<Run> run = *at;
        queue.erase(at);
        return run;
      }
  return nullptr;
}

std::shared_ptr<Run> Engine::take_admissible(Status& status) {
  for (auto& queue : queue_) {
    if (queue.empty()) continue;
    std::shared_ptr<Run> run = queue.front();
    if (free_places(*run) <= 0) continue;
    Session& session = run->session();
    const int64_t wanted = pages_wanted(*run), left = num_pages_ - used_pages_ + session.pages_;
    if (wanted > left) {
      if (num_active_ > 0) return nullptr;  // a run in work will give some back
      const uint64_t page_bytes = pool_->layout().page_bytes();
      status = error(Code::out_of_memory, "the run may need ", wanted, " pages, idle sessions leave ", left,
                     " of ", num_pages_)
                   .with_fix(Fix::free_memory)
                   .with_room(uint64_t(wanted) * page_bytes, uint64_t(left) * page_bytes);
    } else {
      used_pages_ += wanted - session.pages_;
      session.pages_ = wanted;
      ++num_active_;
      num_background_ += run->options().priority == Priority::background;
      active_.push_back(run);  // its room was reserved
    }
    queue.pop_front();
    return run;
  }
  return nullptr;
}

void Engine::admit(const std::shared_ptr<Run>& run) {
  Run::Work& work = run->work;
  work.admitted = Clock::now();
  work.stats.queue_ms = ms_between(work.started, work.admitted);
  Status status;
  try {
    auto mark = run->session().state_->mark();
    if (mark.is_ok()) {
      work.mark = std::move(mark).value();
      work.marked = true;
      collect_pictures(*run);
      run->push({.type = EventType::start});
    } else {
      status = mark.status();
    }
  } catch (const std::bad_alloc&) {
    status = out_of_memory_;
  }
  if (!status.is_ok()) return finish(run, Finish::error, std::move(status), false);
  run->wake_reader();
}

// ---- pictures ----

// What the run has to compute of the pictures in its session, those of an earlier run that was stopped
// included. No run goes back behind this point any more, so the others are not needed again.
void Engine::collect_pictures(Run& run) {
  Session& session = run.session();
  for (SessionPicture& picture : session.pictures_) {
    if (int64_t(picture.first) + picture.count <= session.state_->length())
      picture.picture.reset();
    else
      run.work.pictures.push_back({picture.picture, nullptr, int(picture.first), picture.count});
  }
  find_features(run);
}

void Engine::find_features(Run& run) {
  for (const Run::PendingPicture& picture : run.work.pictures)
    if (!picture.features)
      if (const auto features = pictures_.find(picture.picture->id())) {
        give_features(run, picture.picture->id(), features);
        const std::lock_guard lock(mutex_);
        ++stats_.picture_hits;
      }
  place_pictures(run);
}

void Engine::give_features(Run& run, const std::string& id,
                           const std::shared_ptr<const PictureFeatures>& features) {
  for (Run::PendingPicture& picture : run.work.pictures)
    if (!picture.features && picture.picture->id() == id) picture.features = features;
}

void Engine::place_pictures(Run& run) {
  for (const Run::PendingPicture& picture : run.work.pictures)
    if (!picture.features) return;
  run.work.placed.clear();
  for (const Run::PendingPicture& picture : run.work.pictures)
    run.work.placed.push_back({picture.first, picture.count, picture.features->rows.data()});
}

// One slice of the pass in work, after a new one was begun where there is something to encode. A pass for
// nobody in particular waits for the runs of other classes, unless one of them waits for a pass.
void Engine::advance_pictures() {
  try {
    if (encoding_ && encoding_->run &&
        std::find(active_.begin(), active_.end(), encoding_->run) == active_.end())
      encoding_.reset();  // the run has ended
    if (encoding_ && !encoding_->run && encoding_->preparation.operation->is_cancelled())
      end_encoding(cancelled_);
    if (!encoding_) {
      const Status status = begin_encoding();
      if (!status.is_ok()) return end_encoding(status);
      if (!encoding_) return;
    }
    if (!encoding_->run && has_foreground() &&
        std::none_of(active_.begin(), active_.end(),
                     [](const auto& run) { return waits_for_pictures(*run); }))
      return;
    auto done = encoding_->pass->advance();
    if (!done.is_ok()) return end_encoding(done.status());
    if (done.value()) end_encoding(keep_features());
  } catch (const std::bad_alloc&) {
    end_encoding(out_of_memory_);
  }
}

// Leaves `encoding_` empty if there is nothing to do.
Status Engine::begin_encoding() {
  VisionModel* vision = parts_.model->vision();
  std::shared_ptr<Run> chosen;
  for (const Priority priority : {Priority::interactive, Priority::normal, Priority::background})
    for (const std::shared_ptr<Run>& run : active_)
      if (!chosen && run->options().priority == priority && waits_for_pictures(*run)) chosen = run;
  if (chosen) {
    encoding_.emplace().run = chosen;
    int tokens = 0;
    for (const Run::PendingPicture& picture : chosen->work.pictures) {
      auto& taken = encoding_->pictures;
      const bool known = picture.features || std::any_of(taken.begin(), taken.end(), [&](const auto& other) {
                           return other->id() == picture.picture->id();
                         });
      if (known || (tokens > 0 && tokens + picture.count > kPassTokens)) continue;
      taken.push_back(picture.picture);
      tokens += picture.count;
    }
  } else {
    while (!has_foreground()) {
      Preparation preparation;
      {
        const std::lock_guard lock(mutex_);
        if (preparations_.empty()) return Status::ok();
        preparation = std::move(preparations_.front());
        preparations_.pop_front();
      }
      if (preparation.operation->is_cancelled()) {
        preparation.operation->complete(cancelled_);
      } else if (pictures_.find(preparation.picture->id())) {
        preparation.operation->complete(Status::ok());
      } else {
        encoding_.emplace().preparation = preparation;
        encoding_->pictures.push_back(preparation.picture);
        break;
      }
    }
    if (!encoding_) return Status::ok();
  }
  std::vector<const Picture*> pictures;
  for (const auto& picture : encoding_->pictures) pictures.push_back(picture.get());
  DSA_ASSIGN(encoding_->pass, vision->begin(pictures));
  return Status::ok();
}

// The features of a finished pass: into the cache, and to every run that waits for them.
Status Engine::keep_features() {
  const Tensor features = encoding_->pass->features();
  int64_t row = 0;
  for (const auto& picture : encoding_->pictures) {
    const int64_t rows = parts_.model->vision()->shape(picture->width(), picture->height()).tokens;
    auto made = std::make_shared<PictureFeatures>();
    const float* first = features.f32() + row * features.stride[0];
    made->rows.assign(first, first + rows * features.stride[0]);
    row += rows;
    pictures_.insert(picture->id(), made);
    for (const std::shared_ptr<Run>& run : active_) {
      if (!waits_for_pictures(*run)) continue;
      give_features(*run, picture->id(), made);
      place_pictures(*run);
    }
    const std::lock_guard lock(mutex_);
    ++stats_.pictures_encoded;
    picture_bytes_ = pictures_.bytes();
  }
  return Status::ok();
}

void Engine::end_encoding(Status status) noexcept {
  if (!encoding_) return;
  const Encoding ended = std::move(*encoding_);
  encoding_.reset();
  if (ended.preparation.operation) ended.preparation.operation->complete(status);
  if (ended.run && !status.is_ok()) finish(ended.run, Finish::error, std::move(status), false);
}

// ---- steps ----

void Engine::step() {
  if (!flight_ || can_run_ahead(*flight_)) advance_pictures();  // in turns with launches
  if (flight_) return land();
  shares_.clear();
  for (const std::shared_ptr<Run>& run : active_) {
    const Session& session = run->session();
    const int remaining = int(session.tokens_.size()) - session.state_->length();
    shares_.push_back({run->options().priority, waits_for_pictures(*run) ? 0 : remaining, 0});
  }
  share_step(shares_, {.tokens = parts_.model->max_step_tokens(),
                       .sequences = parts_.model->max_step_sequences(),
                       .chunk = options_.chunk});
  plan_.sequences.clear();
  plan_runs_.clear();
  for (size_t i = 0; i < active_.size(); ++i) {
    if (shares_[i].count == 0) continue;
    Session& session = active_[i]->session();
    plan_.sequences.push_back(
        {session.state_.get(), session.tokens_.data() + session.state_->length(), shares_[i].count,
         shares_[i].count == shares_[i].remaining && active_[i]->options().answer, active_[i]->work.placed});
    plan_runs_.push_back(active_[i]);
  }
  if (plan_.empty()) return;

  if (chooses(plan_runs_)) {
    auto flight = launch(plan_, plan_runs_);
    if (flight.is_ok()) {
      flight_.emplace(std::move(flight).value());
      land();
    } else {
      repeat_alone(plan_, plan_runs_, flight.status());
    }
  } else if (const Status status = run_plan(plan_, plan_runs_); !status.is_ok()) {
    repeat_alone(plan_, plan_runs_, status);
  }
  for (const std::shared_ptr<Run>& run : plan_runs_) run->wake_reader();
  plan_runs_.clear();
}

void Engine::note_lost(const Status& status) {
  if (status.code() != Code::device_lost) return;
  const std::lock_guard lock(mutex_);
  stats_.lost = true;
}

// After a step that failed. Nothing was committed. Alone, each run fails for its own reasons only.
void Engine::repeat_alone(const StepPlan& plan, std::span<const std::shared_ptr<Run>> runs, Status status) {
  note_lost(status);
  const size_t n = runs.size();
  for (size_t i = 0; i < n; ++i) {
    if (!runs[i]) continue;
    if (n > 1) {
      single_.sequences.assign(1, plan.sequences[i]);
      status = run_plan(single_, {&runs[i], 1});
    }
    if (!status.is_ok()) finish(runs[i], Finish::error, status, false);
  }
}

// ---- steps that choose their tokens ----

// Whether the step of these runs can choose their tokens: what changes logits first is done by the host.
bool Engine::chooses(std::span<const std::shared_ptr<Run>> runs) const {
  if (!options_.device_sampling || !parts_.model->samples()) return false;
  return std::none_of(runs.begin(), runs.end(),
                      [](const auto& run) { return run->options().sampling.changes_logits(); });
}

// Reserves and launches; a failure leaves all runs as they were.
Result<Engine::Flight> Engine::launch(const StepPlan& plan, std::span<const std::shared_ptr<Run>> runs) {
  Flight flight = take_flight();
  Status status;
  try {
    flight.plan = plan;
    flight.runs.assign(runs.begin(), runs.end());
    for (const auto& run : runs) flight.randoms.push_back(run->work.random);
    DSA_ASSIGN(Reservation pages, pool_->reserve(plan));
    asked_.clear();
    for (size_t i = 0; i < runs.size(); ++i)
      if (plan.sequences[i].wants_logits)
        asked_.push_back(runs[i]->options().sampling.row(runs[i]->work.random));
    flight.launched = Clock::now();
    status = parts_.model->launch(plan, *pool_, asked_);
    if (status.is_ok()) {
      flight.pages.emplace(std::move(pages));
      return flight;
    }
  } catch (const std::bad_alloc&) {
    status = out_of_memory_;
  } catch (const std::exception& e) {
    status = error(Code::internal, "a step failed: ", e.what()).with_fix(Fix::report);
  }
  for (size_t i = 0; i < flight.randoms.size(); ++i) runs[i]->work.random = flight.randoms[i];
  return status;
}

Engine::Flight Engine::take_flight() {
  if (spare_flights_.empty()) return {};
  Flight flight = std::move(spare_flights_.back());
  spare_flights_.pop_back();
  return flight;
}

// Takes what the step on its way has chosen, and launches the next one first if that depends on nothing else: the device
// goes on while the host delivers. Of a step that was launched for a run which has ended since, nothing is left.
void Engine::land() {
  Flight flight = std::move(*flight_);
  flight_.reset();
  if (can_run_ahead(flight)) run_ahead(flight);
  const Status status = collect(flight);
  if (status.is_ok()) {
    const Clock::time_point began = std::max(flight.launched, collected_);
    collected_ = Clock::now();
    settle(flight.runs, began, collected_, collected_);
  } else {
    if (flight_) {
      (void)parts_.model->collect();
      flight_.reset();
    }
    for (size_t i = 0; i < flight.runs.size(); ++i) {
      if (!flight.runs[i]) continue;
      Session& session = flight.runs[i]->session();
      flight.runs[i]->work.random = flight.randoms[i];
      flight.plan.sequences[i].tokens = session.tokens_.data() + session.state_->length();
    }
    if (!flight.is_committed) {
      repeat_alone(flight.plan, flight.runs, status);
    } else {  // the state before the step has been overwritten
      note_lost(status);
      for (const auto& run : flight.runs)
        if (run) finish(run, Finish::error, status, false);
    }
  }
  for (const auto& run : flight.runs)
    if (run) run->wake_reader();
  flight.plan.sequences.clear();
  flight.runs.clear();
  flight.randoms.clear();
  flight.is_committed = false;
  spare_flights_.push_back(std::move(flight));
}

// Whether the next step is known but for its tokens: the same runs, all decoding, none of which ends by its length.
bool Engine::can_run_ahead(const Flight& flight) const {
  const size_t n = flight.runs.size();
  if (!options_.run_ahead || active_.size() != n) return false;
  for (size_t i = 0; i < n; ++i) {
    const SequenceStep& s = flight.plan.sequences[i];
    if (!flight.runs[i] || flight.runs[i] != active_[i] || s.count != 1 || !s.wants_logits) return false;
    const Run& run = *active_[i];
    const Session& session = run.session();
    if (run.cancel_requested() != Cancel::no || session.tokens_.size() + 1 >= size_t(session.max_tokens_) ||
        (run.options().max_tokens != 0 && run.work.output_tokens + 1 >= run.options().max_tokens))
      return false;
  }
  return true;
}

// The step on its way is committed: the next one reads the state that it leaves, and writes the copy that it has read. If
// the next one cannot be launched now, it will be planned when the tokens are known.
void Engine::run_ahead(Flight& flight) {
  flight.pages->commit();
  flight.is_committed = true;
  plan_.sequences.clear();
  for (const SequenceStep& s : flight.plan.sequences) plan_.sequences.push_back({s.state, nullptr, 1, true});
  auto next = launch(plan_, flight.runs);
  if (next.is_ok()) flight_.emplace(std::move(next).value());
}

// Waits for a step and commits it, for the runs that go on.
Status Engine::collect(Flight& flight) {
  const auto chosen = parts_.model->collect();
  const size_t n = flight.runs.size();
  sampled_.assign(n, -1);
  failures_.assign(n, Status());
  if (chosen.is_ok()) {
    size_t row = 0;
    for (size_t i = 0; i < n; ++i) {
      if (flight.plan.sequences[i].wants_logits) {
        const SampledToken& token = chosen.value()[row++];
        if (!flight.runs[i]) continue;
        if (token.token < 0) {
          failures_[i] = no_token(token);
          continue;
        }
        sampled_[i] = token.token;
      }
      if (flight.runs[i]) flight.pages->commit(i);
    }
  }
  flight.pages.reset();
  return chosen.status();
}

// A run that ends has no part in the step on its way.
void Engine::leave_flight(const Run& run) noexcept {
  if (!flight_) return;
  for (size_t i = 0; i < flight_->runs.size(); ++i) {
    if (flight_->runs[i].get() != &run) continue;
    flight_->pages->drop(i);
    flight_->runs[i] = nullptr;
  }
}

// ---- steps whose tokens the host chooses ----

// One step of some runs: reserve, run, sample, commit, advance, deliver. A failure leaves all of them as they
// were; a run whose own logits are no numbers ends, and the others go on.
Status Engine::run_plan(const StepPlan& plan, std::span<const std::shared_ptr<Run>> runs) {
  const size_t n = runs.size();
  sampled_.assign(n, -1);
  failures_.assign(n, Status());
  Clock::time_point ran, began = Clock::now(), sampled;
  try {
    DSA_ASSIGN(Reservation pages, pool_->reserve(plan));
    DSA_ASSIGN(const Tensor logits, parts_.model->run(plan, *pool_));
    ran = Clock::now();
    int64_t row = 0;
    for (size_t i = 0; i < n; ++i) {
      if (plan.sequences[i].wants_logits) {
        const Session& session = runs[i]->session();
        auto token = sampler_.sample(logits.f32() + row++ * logits.stride[0], runs[i]->options().sampling,
                                     runs[i]->work.random, session.tokens_);
        if (!token.is_ok()) {
          failures_[i] = token.status();
          continue;
        }
        sampled_[i] = token.value();
      }
      pages.commit(i);
    }
    sampled = Clock::now();
  } catch (const std::bad_alloc&) {
    return out_of_memory_;
  } catch (const std::exception& e) {
    return error(Code::internal, "a step failed: ", e.what()).with_fix(Fix::report);
  }
  settle(runs, began, ran, sampled);
  return Status::ok();
}

void Engine::settle(std::span<const std::shared_ptr<Run>> runs, Clock::time_point began,
                    Clock::time_point ran, Clock::time_point sampled) {
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i]) continue;
    Run::Work& work = runs[i]->work;
    Status status = failures_[i];
    try {
      if (work.output_tokens > 0) {
        work.stats.compute_ms += ms_between(began, ran);
        work.stats.sample_ms += ms_between(ran, sampled);
      }
      if (status.is_ok() && work.output_tokens == 0) {
        const uint64_t left = runs[i]->session().tokens_.size() - size_t(runs[i]->session().state_->length());
        runs[i]->push(
            {.type = EventType::prefill, .done = work.prompt_tokens - left, .total = work.prompt_tokens});
        if (left == 0) {
          work.placed.clear();
          work.pictures.clear();
          work.prompt_done = sampled;
          work.stats.prefill_ms = ms_between(work.admitted, sampled);
        }
        if (left == 0 && !runs[i]->options().answer) {
          finish(runs[i], Finish::stop, Status::ok(), true);
          continue;
        }
      }
      if (status.is_ok() && sampled_[i] >= 0) advance(runs[i], sampled_[i]);
    } catch (const std::bad_alloc&) {
      status = out_of_memory_;
    }
    if (!status.is_ok()) finish(runs[i], Finish::error, status, false);
  }
}

// Takes a sampled token into the session and its text to the reader.
void Engine::advance(const std::shared_ptr<Run>& run, TokenId token) {
  Run::Work& work = run->work;
  Session& session = run->session();
  if (session.tokens_.size() >= size_t(session.max_tokens_))
    return finish(run, Finish::context, Status::ok(), true);

  session.tokens_.push_back(token);
  if (work.output_tokens++ == 0) {
    work.first = Clock::now();
    work.stats.first_token_ms = ms_between(work.started, work.first);
  }
  ++work.piece_tokens;
  work.last_token = token;

  AnswerReader::Piece piece;
  if (work.reader) {
    piece = work.reader->push(token);
  } else if (parts_.tokenizer && !parts_.tokenizer->is_control(token)) {
    piece.text = parts_.tokenizer->bytes(token);
    piece.is_text = !piece.text.empty();
  }
  if (piece.channel == Channel::reasoning) ++work.reasoning_tokens;
  if (piece.is_dropped) session.tokens_.pop_back();
  const bool ends = piece.ends_turn || is_end_token(token);
  int stop = -1;
  if (piece.begins_call) begin_call(*run, piece, stop);
  if (piece.is_text && !ends && stop < 0) push_text(*run, piece.channel, piece.text, stop);
  if (piece.ends_call && stop < 0) end_call(*run, true);

  if (stop >= 0)
    finish(run, Finish::stop_text, Status::ok(), true);
  else if (ends)
    finish(run, run->has_complete_call() ? Finish::tool : Finish::stop, Status::ok(), true);
  else if (run->options().max_tokens != 0 && work.output_tokens >= run->options().max_tokens)
    finish(run, Finish::length, Status::ok(), true);
  else if (session.tokens_.size() >= size_t(session.max_tokens_))
    finish(run, Finish::context, Status::ok(), true);
}

namespace {

void deliver(Run& run, Channel channel) {
  Run::Work& work = run.work;
  if (work.piece.empty()) return;
  const bool is_argument = channel == Channel::tool && run.has_open_call();
  run.push({.type = is_argument ? EventType::tool_arguments : EventType::text,
            .channel = channel,
            .text = work.piece,
            .index = is_argument ? uint32_t(run.calls().size() - 1) : 0,
            .num_tokens = work.piece_tokens});
  work.piece_tokens = 0;
  work.piece.clear();
}

}  // namespace

void Engine::begin_call(Run& run, const AnswerReader::Piece& piece, int& stop) {
  stop = flush_text(run);
  if (stop >= 0) return;
  run.work.channel = Channel::tool;
  end_call(run, false);
  const auto as_text = [](std::string_view bytes) {  // what a model makes of a name need not be UTF-8
    Utf8Stream utf8;
    std::string text;
    utf8.push(bytes, text);
    utf8.finish(text);
    return text;
  };
  ToolCall call;
  call.id = piece.id.empty() ? concat("call_", run.id(), "_", run.calls().size()) : as_text(piece.id);
  call.name = as_text(piece.name);
  run.begin_call(std::move(call));
}

void Engine::end_call(Run& run, bool is_complete) {
  if (!run.has_open_call()) return;
  flush_text(run);
  run.end_call(is_complete);
}

void Engine::push_text(Run& run, Channel channel, std::string_view bytes, int& stop) {
  Run::Work& work = run.work;
  work.bytes.clear();
  work.piece.clear();
  if (channel != work.channel) {  // a code point does not continue in another channel
    stop = flush_text(run);
    work.channel = channel;
    if (stop >= 0) return;
  }
  work.utf8[size_t(channel)].push(bytes, work.bytes);
  if (channel == Channel::answer) {
    stop = work.stops.push(work.bytes, work.piece);
    if (stop >= 0) work.stop_index = uint32_t(stop);
  } else {
    work.piece = work.bytes;
  }
  deliver(run, channel);
}

// The end of a channel's text: what was held back can no longer become anything else. Returns the stop text
// that the last replaced bytes completed, or -1.
int Engine::flush_text(Run& run) {
  Run::Work& work = run.work;
  int stop = -1;
  work.bytes.clear();
  work.piece.clear();
  work.utf8[size_t(work.channel)].finish(work.bytes);
  if (work.channel == Channel::answer) {
    stop = work.stops.push(work.bytes, work.piece);
    if (stop >= 0) work.stop_index = uint32_t(stop);
    if (stop < 0) work.stops.finish(work.piece);
  } else {
    work.piece = work.bytes;
  }
  deliver(run, work.channel);
  work.bytes.clear();
  return stop;
}

void Engine::finish(std::shared_ptr<Run> run, Finish finish_reason, Status status, bool keep) noexcept {
  Session& session = run->session();
  Run::Work& work = run->work;
  const Clock::time_point now = Clock::now();
  leave_flight(*run);
  try {
    if (!work.marked) run->push({.type = EventType::start});  // it never left the queue
    if (finish_reason != Finish::stop_text) flush_text(*run);
    end_call(*run, false);
    if (keep && run->options().answer)
      for (const ToolCall& call : run->calls())
        if (call.is_complete) work.calls.push_back(call);
    if (keep && work.reader) {
      const std::vector<TokenId> closing = work.reader->closing();
      session.tokens_.insert(session.tokens_.end(), closing.begin(), closing.end());
    }
  } catch (...) {
    if (keep || status.is_ok()) {
      keep = false;
      status = out_of_memory_;
      finish_reason = Finish::error;
    }
  }
  if (!keep) {
    if (work.marked) session.state_->rewind(work.mark);
    session.truncate(work.first_token, work.first_picture);
  } else {
    if (run->options().answer) {
      ++session.turns_;
      session.calls_.swap(work.calls);
    }
    work.has_tools = !work.tools.empty();
    if (work.has_tools) session.tools_.swap(work.tools);
  }
  if (!status.is_ok() && finish_reason == Finish::error)
    parts_.runtime->log(LogLevel::warning, "engine", "run ", run->id(), " failed: ", status.message());

  RunResult result;
  result.finish = finish_reason;
  result.stop_index =
      (finish_reason == Finish::stop || finish_reason == Finish::tool) && work.output_tokens > 0
          ? uint32_t(work.last_token)
          : work.stop_index;
  result.prompt_tokens = work.prompt_tokens;
  result.image_tokens = work.image_tokens;
  result.output_tokens = work.output_tokens;
  result.reasoning_tokens = work.reasoning_tokens;
  const bool failed = finish_reason == Finish::error, cancelled = finish_reason == Finish::cancelled;
  result.status = std::move(status);

  RunStats& stats = work.stats;
  stats.total_ms = ms_between(work.started, now);
  if (!work.marked) stats.queue_ms = stats.total_ms;
  if (work.output_tokens > 0) stats.decode_ms = ms_between(work.first, now);
  const ExpertCounts counts = parts_.model->expert_counts();
  {
    const std::lock_guard lock(mutex_);
    session.run_ = nullptr;
    session.set_info();
    const int64_t held = int64_t(session.state_->pages().size());
    used_pages_ += held - session.pages_;
    session.pages_ = held;
    if (session.abandoned_ && !session.claimed_) free_session(session);
    if (const auto at = std::find(active_.begin(), active_.end(), run); at != active_.end()) {
      active_.erase(at);
      --num_active_;
      num_background_ -= run->options().priority == Priority::background;
    }
    stats_.prompt_tokens += work.prompt_tokens;
    stats_.output_tokens += work.output_tokens;
    stats_.expert_rows = counts.rows;
    stats_.expert_rows_fp8 = counts.fp8_rows;
    stats_.cancelled += cancelled;
    stats_.failed += failed;
    if (stats.prefill_ms > 0)
      prefill_tokens_per_second_ = double(work.prompt_tokens) * 1000 / stats.prefill_ms;
  }
  if (!run->options().blocking) work.mark = Mark();
  run->complete(std::move(result), stats, work.piece_tokens);
  run->wake_reader();
}

void Engine::free_everything() noexcept {
  parts_.runtime->log(LogLevel::info, "engine", "closing a model after ", stats_.runs, " runs");
  end_encoding(closed_);
  for (;;) {
    Preparation preparation;
    {
      const std::lock_guard lock(mutex_);
      if (preparations_.empty()) break;
      preparation = std::move(preparations_.front());
      preparations_.pop_front();
    }
    preparation.operation->complete(closed_);
  }
  pictures_.clear();
  if (flight_) {
    (void)parts_.model->collect();
    flight_.reset();
  }
  {
    const std::lock_guard lock(mutex_);
    for (Session* session : sessions_) {
      session->state_.reset();
      session->pages_ = 0;
    }
    pool_.reset();
  }
  std::unique_ptr<LanguageModel> model;
  std::unique_ptr<Backend> backend;
  {
    const std::lock_guard lock(
        mutex_);  // prompts ask the model for the shapes of pictures, statistics the backend
    model = std::move(parts_.model);
    backend = std::move(parts_.backend);
  }
  model.reset();
  backend.reset();
  sampler_ = Sampler(0);
  {
    const std::lock_guard lock(mutex_);
    freed_all_ = true;
  }
  freed_.notify_all();
}

}  // namespace dsa
