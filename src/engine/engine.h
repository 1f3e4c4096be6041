// engine/engine.h: a loaded model at work: one thread that runs steps, the runs that wait for it, the
// sessions they belong to, and the pictures that they show it.
//
// A picture passes the vision tower before the first step of a run that shows it; slices of that pass take
// turns with the steps of other runs.
//
// Ownership: handles, sessions and runs share the pointer that create() returns; when the last of them goes,
// the thread is told to free everything and end, and nobody waits for it. close() does the same at once and
// waits. Locks: the engine's mutex comes before a run's. Callbacks run under neither.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "backend/backend.h"
#include "base/status.h"
#include "engine/operation.h"
#include "engine/picture_cache.h"
#include "engine/prompt.h"
#include "engine/run.h"
#include "engine/runtime.h"
#include "engine/sampler.h"
#include "engine/session.h"
#include "model/language_model.h"
#include "model/vision.h"
#include "state/page_pool.h"
#include "text/chat_format.h"
#include "text/tokenizer.h"

namespace dsa {

// What an engine is made of. The engine owns it until it is closed.
struct EngineParts {
  std::shared_ptr<Runtime> runtime;
  std::unique_ptr<Backend> backend;  // null: the model needs none
  std::unique_ptr<LanguageModel> model;
  std::shared_ptr<const Tokenizer> tokenizer;  // null: no text
  std::shared_ptr<const ChatFormat> format;    // null: no messages
  Status why_no_format;                        // said when messages are used all the same
  std::vector<TokenId> end_tokens;
  Sampling sampling;     // as the package advises
  bool thinking = true;  // the package's default
  int max_context = 32768;
  uint64_t expert_bytes = 0;
};

struct EngineOptions {
  std::string device = {};  // as in backend/device.h; empty: the CPU
  int queue_limit = 64;
  int default_context = 32768;  // of a session that names none; at most the model's
  int pool_sessions = 16;  // full contexts that the page pool holds; on the CPU address space, not memory
  int pool_states = 0;     // copies of what sessions do not page; 0: as many as are asked for
  CacheFormat cache_format = CacheFormat::f32;
  int step_tokens = 0;  // that one step may hold; 0: the default of models
  int chunk = 128;      // prompt tokens in one step while others decode
  bool device_sampling =
      true;               // tokens are chosen where the logits are, if the model can and no run wants more
  bool run_ahead = true;  // and then a decode step is launched before the tokens of the one before are read
  uint64_t picture_bytes = uint64_t(256) << 20;  // features of pictures that are kept for the next run
};

struct EngineStats {
  uint64_t device_bytes = 0, host_bytes = 0, kv_bytes = 0, expert_bytes = 0;
  uint64_t prompt_tokens = 0, output_tokens = 0, runs = 0, cancelled = 0, failed = 0;
  uint64_t pictures_encoded = 0, picture_hits = 0;  // hits: a run found its picture encoded
  uint64_t expert_rows = 0, expert_rows_fp8 = 0, fp8_workspace_bytes = 0;
  uint32_t running = 0, queued = 0, sessions = 0;
  bool closing = false, lost = false;  // lost: its device has gone, and every run fails
};

struct PromptCost {
  uint32_t num_tokens = 0, image_tokens = 0;
  bool fits = false;
  double prefill_seconds = 0;
};

Status closed_error();

class Engine {
 public:
  static Result<std::shared_ptr<Engine>> create(EngineParts parts, const EngineOptions& options);
  ~Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  int vocab_size() const { return vocab_; }
  // Null if the package has none.
  const std::shared_ptr<const Tokenizer>& tokenizer() const { return parts_.tokenizer; }
  const Sampling& default_sampling() const { return parts_.sampling; }
  bool default_thinking() const { return parts_.thinking; }
  bool has_tools() const { return parts_.format && parts_.format->has_tools(); }
  Runtime& runtime() const { return *parts_.runtime; }

  // context 0: the default. Code::limit names the model's room or the pool's.
  static Result<std::shared_ptr<Session>> create_session(const std::shared_ptr<Engine>& engine,
                                                         int64_t context, Overflow overflow);

  // A prompt in tokens; `formatted` says whether the chat format wrote it.
  struct Rendered {
    std::vector<TokenId> tokens;
    std::vector<SessionPicture> pictures;
    bool formatted = false;
    bool in_reasoning = false;  // the answer begins with it
    uint32_t image_tokens() const;
  };
  // `options` without tools, which are the prompt's.
  Result<Rendered> render(const Prompt& prompt, ChatOptions options) const;
  Result<PromptCost> measure(const Prompt& prompt, const Session* session) const;

  // Runs the tower over a picture when no run that is not in the background has work, so that a later run
  // finds it done.
  static Result<std::shared_ptr<Operation>> prepare_picture(const std::shared_ptr<Engine>& engine,
                                                            std::shared_ptr<const Picture> picture);

  // Everything that can be refused early is refused here, and the session is as before.
  Result<std::shared_ptr<Run>> start(const SessionClaim& claim, const Prompt& prompt, bool thinking,
                                     RunOptions options);

  // Takes a blocking run back after its end: its caller said so with an event that came later. The claim is
  // still held.
  void undo(const SessionClaim& claim, Run& run) noexcept;

  // True once everything is freed; false if the time passed before. Negative: waits for ever.
  Result<bool> close(int64_t timeout_ms);
  Status check_open() const;
  Result<EngineStats> stats() const;
  void wake();

 private:
  friend class Session;
  friend class SessionClaim;

  Engine(EngineParts parts, const EngineOptions& options);

  void stop();                          // the last owner has gone
  void forget(Session& session);        // by its destructor
  void free_session(Session& session);  // mutex held, so that the pool is not freed meanwhile

  // The engine's thread.
  void work_loop() noexcept;
  bool prepare();  // waits for work, ends and admits runs; false: no work will come any more
  std::shared_ptr<Run> take_ended(Finish& finish, Status& status, bool& keep);  // mutex held
  std::shared_ptr<Run> take_admissible(Status& status);                         // mutex held
  void admit(const std::shared_ptr<Run>& run);
  void step();
  void collect_pictures(Run& run);
  void find_features(Run& run);
  void give_features(Run& run, const std::string& id, const std::shared_ptr<const PictureFeatures>& features);
  void place_pictures(Run& run);
  void advance_pictures();
  Status begin_encoding();
  Status keep_features();
  void end_encoding(Status status) noexcept;
  bool has_foreground() const { return num_active_ > num_background_; }
  static bool waits_for_pictures(const Run& run) { return run.work.placed.size() < run.work.pictures.size(); }
  // A step that was launched and not collected.
  struct Flight {
    StepPlan plan;
    std::vector<std::shared_ptr<Run>> runs;  // null: it has ended
    std::vector<Random> randoms;             // of the runs, before the step took numbers
    std::optional<Reservation> pages;
    bool is_committed = false;  // a step was launched on top of it
    Clock::time_point launched;
  };
  bool chooses(std::span<const std::shared_ptr<Run>> runs) const;
  Flight take_flight();
  Result<Flight> launch(const StepPlan& plan, std::span<const std::shared_ptr<Run>> runs);
  void land();
  bool can_run_ahead(const Flight& flight) const;
  void run_ahead(Flight& flight);
  Status collect(Flight& flight);
  void leave_flight(const Run& run) noexcept;
  Status run_plan(const StepPlan& plan, std::span<const std::shared_ptr<Run>> runs);
  void repeat_alone(const StepPlan& plan, std::span<const std::shared_ptr<Run>> runs, Status status);
  void note_lost(const Status& status);
  // After a step of `runs`: takes sampled_ and failures_ into them.
  void settle(std::span<const std::shared_ptr<Run>> runs, Clock::time_point began, Clock::time_point ran,
              Clock::time_point sampled);
  void advance(const std::shared_ptr<Run>& run, TokenId token);
  void begin_call(Run& run, const AnswerReader::Piece& piece, int& stop);
  void end_call(Run& run, bool is_complete);
  void push_text(Run& run, Channel channel, std::string_view bytes, int& stop);
  int flush_text(Run& run);
  void finish(std::shared_ptr<Run> run, Finish finish, Status status, bool keep) noexcept;
  void free_everything() noexcept;

  // Sessions lie in the memory of a device. With the mutex held.
  bool on_device() const { return parts_.backend && !parts_.backend->storage().is_host(); }
  int64_t pages_of(int64_t tokens) const { return (tokens + kPageSize - 1) / kPageSize; }
  int64_t pages_wanted(const Run& run) const;
  bool is_end_token(TokenId token) const;
  Result<std::vector<ImageSlot>> image_slots(const Prompt& prompt) const;
  // A background run takes no place from the others.
  int free_places(const Run& run) const {
    return max_active_ -
           (run.options().priority == Priority::background ? num_background_ : num_active_ - num_background_);
  }
  size_t waiting() const { return queue_[0].size() + queue_[1].size() + queue_[2].size(); }

  EngineParts parts_;
  const EngineOptions options_;
  const int vocab_;
  const bool has_vision_;
  int default_context_ = 0;
  int max_active_ = 0;
  int64_t num_pages_ = 0;
  uint64_t model_bytes_ = 0;
  const Status out_of_memory_, closed_, cancelled_;  // made in advance: there may be no memory for them later
  std::unique_ptr<PagePool> pool_;

  mutable std::mutex mutex_;
  std::condition_variable work_, freed_;
  std::deque<std::shared_ptr<Run>> queue_[3];  // [priority]
  struct Preparation {
    std::shared_ptr<const Picture> picture;
    std::shared_ptr<Operation> operation;
  };
  std::deque<Preparation> preparations_;
  std::unordered_set<Session*> sessions_;
  int64_t used_pages_ = 0;                   // set aside for sessions
  int num_active_ = 0, num_background_ = 0;  // num_background_: those of num_active_ that yield to the others
  bool closing_ = false, stopping_ = false, freed_all_ = false;
  EngineStats stats_;
  double prefill_tokens_per_second_ = 0;
  uint64_t picture_bytes_ = 0;

  // The engine's thread only.
  std::vector<std::shared_ptr<Run>> active_;  // in work, in order of admission
  std::vector<StepShare> shares_;
  StepPlan plan_, single_;
  std::vector<std::shared_ptr<Run>> plan_runs_;
  std::vector<TokenId> sampled_;
  std::vector<Status> failures_;
  std::vector<SampleRow> asked_;
  std::optional<Flight> flight_;       // the step that was launched last, if its tokens are not known
  std::vector<Flight> spare_flights_;  // without content, so that a decode step allocates nothing
  Clock::time_point collected_;        // when the last step was
  Sampler sampler_;
  PictureCache pictures_;
  struct Encoding {            // pictures in the tower
    std::shared_ptr<Run> run;  // that waits for them; null: they are a preparation
    Preparation preparation;
    std::vector<std::shared_ptr<const Picture>> pictures;
    std::unique_ptr<VisionPass> pass;
  };
  std::optional<Encoding> encoding_;
};

}  // namespace dsa
