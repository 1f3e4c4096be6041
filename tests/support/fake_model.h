// support/fake_model.h: a language model that follows a script, with the tokenizer and chat format that go with it.
//
// Token ids are bytes, 0 to 255, and a few control tokens behind them. What comes next is a function of the tokens that
// were run, kept in the pages of the real pool and in the KDA state: a lost, doubled or leaked row changes the answer.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "model/language_model.h"
#include "model/vision.h"
#include "text/chat_format.h"
#include "text/chat_writer.h"
#include "text/tokenizer.h"

namespace dsa::fake {

// The fake model itself allocates; tests that count allocations leave that out.
inline thread_local bool uncounted = false;

enum : TokenId {
  kUser = 256,
  kAssistant,
  kThink,
  kAnswer,
  kEndTurn,
  kSplit1,
  kSplit2,
  kSplit3,
  kSplit4,
  kPicture,
  kCall,
  kArguments,
  kEndCall,
  kVocab
};

// kSplit1 to kSplit4 are the four bytes of U+1F600, one token each.
class FakeTokenizer : public Tokenizer {
 public:
  int vocab_size() const override { return kVocab; }
  Result<std::vector<TokenId>> encode(std::string_view text) const override {
    return std::vector<TokenId>(reinterpret_cast<const uint8_t*>(text.data()),
                                reinterpret_cast<const uint8_t*>(text.data()) + text.size());
  }
  Result<std::vector<TokenId>> encode_markup(std::string_view text) const override {
    std::vector<TokenId> ids;
    for (size_t i = 0; i < text.size();) {
      TokenId id = uint8_t(text[i]);
      size_t n = 1;
      for (TokenId c = kUser; c < kVocab; ++c)
        if (is_control(c) && text.substr(i).starts_with(control_name(c))) id = c, n = control_name(c).size();
      ids.push_back(id);
      i += n;
    }
    return ids;
  }
  std::string_view bytes(TokenId id) const override {
    static const std::string& all = *new std::string([] {  // an engine's thread may outlive the test
      std::string s;
      for (int i = 0; i < 256; ++i) s += char(i);
      return s + "\xf0\x9f\x98\x80";
    }());
    if (id < 256) return std::string_view(all).substr(size_t(id), 1);
    return id >= kSplit1 && id <= kSplit4 ? std::string_view(all).substr(size_t(256 + id - kSplit1), 1)
                                          : std::string_view();
  }
  bool is_control(TokenId id) const override { return (id >= kUser && id <= kEndTurn) || id >= kPicture; }
  std::string_view control_name(TokenId id) const override {
    static const char* names[] = {"<user>", "<assistant>", "<think>", "<answer>", "<end>"};
    static const char* others[] = {"<picture>", "<call>", "<arguments>", "<end call>"};
    if (id >= kPicture && id < kVocab) return others[id - kPicture];
    return is_control(id) ? names[id - kUser] : "";
  }
  std::optional<TokenId> control_id(std::string_view name) const override {
    for (TokenId c = kUser; c <= kEndTurn; ++c)
      if (control_name(c) == name) return c;
    return std::nullopt;
  }
};

// <user>text<end><assistant>answer<end>; <think> and <answer> change the channel. <call>name<arguments>{}<end call> is a
// call. Tools are declared as {name}, and not at all if the answer must not call; results are written as id=text.
class FakeFormat : public ChatFormat {
 public:
  class Reader : public AnswerReader {
   public:
    Piece push(TokenId id) override {
      if (id == kThink) channel_ = Channel::reasoning;
      if (id == kAnswer) channel_ = Channel::answer;
      if (id == kEndTurn) ended_ = true;
      const std::string_view bytes = tokenizer_.bytes(id);
      if (id == kCall) {
        is_name_ = true;
        name_.clear();
      } else if (id == kArguments) {
        is_name_ = false;
        channel_ = Channel::tool;
        return {.begins_call = true, .channel = channel_, .name = name_};
      } else if (id == kEndCall) {
        const bool was_open = std::exchange(channel_, Channel::answer) == Channel::tool;
        return {.channel = Channel::tool, .ends_call = was_open};
      } else if (is_name_) {
        name_ += bytes;
        return {};
      }
      return {.is_text = !bytes.empty(), .channel = channel_, .ends_turn = id == kEndTurn, .text = bytes};
    }
    std::vector<TokenId> closing() const override {
      return ended_ ? std::vector<TokenId>() : std::vector<TokenId>{kEndTurn};
    }

   private:
    FakeTokenizer tokenizer_;
    Channel channel_ = Channel::answer;
    std::string name_;
    bool is_name_ = false, ended_ = false;
  };

  using ChatFormat::render;
  Result<RenderedChat> render(const std::vector<Message>& messages, std::span<const ImageSlot> images,
                              const ChatOptions& options) const override {
    RenderedChat chat;
    std::vector<TokenId>& ids = chat.tokens;
    const auto write = [&](std::string_view text) {
      for (const char c : text) ids.push_back(uint8_t(c));
    };
    for (const Tool& tool : options.tools)
      if (options.may_call) write("{" + tool.name + "}");
    for (const Message& message : messages) {
      ids.push_back(message.role == Role::assistant ? TokenId(kAssistant) : TokenId(kUser));
      if (!message.call_id.empty()) write(tool_name_of(message, messages, options.calls) + "=");
      for (const MessagePart& part : message.parts) {
        std::vector<TokenId> piece = part.tokens;
        if (part.kind == MessagePart::Kind::image) {
          chat.places.push_back({ids.size(), part.image});
          piece.assign(size_t(images[size_t(part.image)].tokens), kPicture);
        }
        if (part.kind == MessagePart::Kind::text) piece = tokenizer_.encode(part.text).value();
        if (part.kind == MessagePart::Kind::markup) piece = tokenizer_.encode_markup(part.text).value();
        ids.insert(ids.end(), piece.begin(), piece.end());
      }
      for (const ToolCall& call : message.calls) {
        ids.push_back(kCall);
        write(call.name);
        ids.push_back(kArguments);
        write(call.arguments);
        ids.push_back(kEndCall);
      }
      ids.push_back(kEndTurn);
    }
    if (options.ask) ids.push_back(kAssistant);
    return chat;
  }
  TokenId image_token() const override { return kPicture; }
  bool has_tools() const override { return true; }
  std::unique_ptr<AnswerReader> reader(bool, std::span<const Tool>) const override {
    return std::make_unique<Reader>();
  }
  std::vector<TokenId> stop_tokens() const override { return {kEndTurn}; }

 private:
  FakeTokenizer tokenizer_;
};

// Shared by a test and the model that the engine owns.
struct Control {
  // What the model answers to a user's text, without the end; "" or no entry: a text made from the whole history.
  std::map<std::string, std::vector<TokenId>> script;
  int step_tokens = 16, step_sequences = 8;
  std::chrono::microseconds step_time{0};

  std::atomic<int> steps{0};
  std::atomic<int> nan_at{-1};   // this sampled token of each run gives NaN
  std::atomic<int> fail_at{-1};  // this step fails
  Code fail_code = Code::device_fault;
  std::atomic<bool> throws{false};
  std::atomic<int> throw_at{-1};       // this step does, those after it do not
  std::atomic<int> slices{0};          // of the vision tower, over all passes
  std::atomic<int> fail_at_slice{-1};  // this one fails
  std::vector<size_t> passes;          // how many pictures each pass held
  std::vector<int> slice_steps;        // steps made before each slice
  bool reads_text_only = false;
  bool samples =
      std::getenv("DSA_TEST_SAMPLES") != nullptr;  // the model chooses tokens, a step ahead of the engine
  std::string poison;  // a sequence that holds this byte string fails, and its whole step with it

  // A gate: while it is shut steps wait in front of it.
  void shut() {
    const std::lock_guard lock(mutex);
    is_shut = true;
  }
  void open() {
    {
      const std::lock_guard lock(mutex);
      is_shut = false;
    }
    changed.notify_all();
  }
  void wait_until_blocked() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return blocked; });
  }

  std::mutex mutex;
  std::condition_variable changed;
  bool is_shut = false, blocked = false;
  std::vector<std::vector<int>> plans;  // token counts of each step
  std::vector<const SequenceState*> states;
};

// A picture has one token per four pixels; its rows, one wide, follow from its content. A pass takes three slices.
class FakeVision : public VisionModel {
 public:
  explicit FakeVision(std::shared_ptr<Control> control) : control_(std::move(control)) {}
  PictureShape shape(int width, int height) const override {
    PictureShape shape{.width = width, .height = height, .rows = height, .columns = width};
    shape.tokens = std::max(1, width * height / 4);
    return shape;
  }
  Result<std::unique_ptr<VisionPass>> begin(std::span<const Picture* const> pictures) override {
    auto pass = std::make_unique<Pass>(control_);
    for (const Picture* picture : pictures) {
      const uint32_t hash = uint32_t(std::stoul(picture->id().substr(0, 7), nullptr, 16));
      for (int i = 0; i < shape(picture->width(), picture->height()).tokens; ++i)
        pass->rows.push_back(float(1000 + (hash + uint32_t(i) * 7) % 50000));
    }
    const std::lock_guard lock(control_->mutex);
    control_->passes.push_back(pictures.size());
    return std::unique_ptr<VisionPass>(std::move(pass));
  }
  uint64_t pass_bytes(std::span<const PictureShape>) const override { return 0; }

 private:
  struct Pass : VisionPass {
    explicit Pass(std::shared_ptr<Control> c) : control(std::move(c)) {}
    Result<bool> advance() override {
      {
        std::unique_lock lock(control->mutex);
        control->blocked = control->is_shut;
        control->changed.notify_all();
        control->changed.wait(lock, [&] { return !control->is_shut; });
        control->blocked = false;
        control->slice_steps.push_back(control->steps);
      }
      if (control->slices++ == control->fail_at_slice)
        return error(Code::device_fault, "this slice was told to fail");
      return ++done == 3;
    }
    Tensor features() const override {
      return Tensor(const_cast<float*>(rows.data()), DType::f32, {int64_t(rows.size()), 1});
    }
    std::shared_ptr<Control> control;
    std::vector<float> rows;
    int done = 0;
  };
  std::shared_ptr<Control> control_;
};

class FakeModel : public LanguageModel {
 public:
  explicit FakeModel(std::shared_ptr<Control> control) : control_(std::move(control)), vision_(control_) {
    layout_.latent_layers = 1;
    layout_.latent_dim = 1;
    layout_.kda_layers = 1;
    layout_.recurrent_floats = 2;  // a hash of all tokens, in two halves
    layout_.conv_floats = 1;       // how many there were
  }
  int vocab_size() const override { return kVocab; }
  const StateLayout& state_layout() const override { return layout_; }
  int max_step_tokens() const override { return control_->step_tokens; }
  int max_step_sequences() const override { return control_->step_sequences; }
  uint64_t host_bytes() const override { return 1000; }
  VisionModel* vision() override { return control_->reads_text_only ? nullptr : &vision_; }

  Result<Tensor> run(const StepPlan& plan, const PagePool& pool) override {
    struct Uncounted {
      Uncounted() { uncounted = true; }
      ~Uncounted() { uncounted = false; }
    } scope;
    Control& c = *control_;
    {
      std::unique_lock lock(c.mutex);
      c.blocked = c.is_shut;
      c.changed.notify_all();
      c.changed.wait(lock, [&] { return !c.is_shut; });
      c.blocked = false;
      std::vector<int> counts;
      for (const SequenceStep& s : plan.sequences) counts.push_back(s.count);
      c.plans.push_back(counts);
    }
    if (c.step_time.count() > 0) std::this_thread::sleep_for(c.step_time);
    if (plan.tokens() > c.step_tokens || int(plan.sequences.size()) > c.step_sequences)
      return error(Code::internal, "the step is too large");
    if (c.steps++ == c.fail_at) return error(c.fail_code, "this step was told to fail");
    if (c.throws || c.steps - 1 == c.throw_at) throw std::runtime_error("a kernel threw");

    logits_.clear();
    for (const SequenceStep& s : plan.sequences) {
      std::vector<TokenId> tokens;
      const std::vector<int32_t>& pages = s.state->pages();
      const PagedRows rows = pool.latents(0, pages.data(), int(pages.size()));
      for (int i = 0; i < s.count; ++i) *rows.values<float>(0, s.state->length() + i) = float(s.tokens[i]);
      for (const PlacedRows& placed : s.placed)
        for (int i = 0; i < placed.count; ++i)
          if (placed.first + i >= s.state->length() && placed.first + i < s.state->length() + s.count)
            *rows.values<float>(0, placed.first + i) = placed.rows[i];
      for (int i = 0; i < s.count; ++i)
        if (*rows.values<float>(0, s.state->length() + i) == float(kPicture))
          return error(Code::internal, "a picture without its rows");
      for (int p = 0; p < s.state->length() + s.count; ++p)
        tokens.push_back(TokenId(*rows.values<float>(0, p)));
      // The KDA state must agree with the pages.
      const bool empty = s.state->length() == 0;
      uint32_t hash[2] = {1, 7};
      float seen = 0;
      if (!empty) {
        std::memcpy(hash, s.state->recurrent(0), sizeof(hash));
        seen = *s.state->conv(0);
      } else if (s.state->recurrent(0)[0] != 0 || *s.state->conv(0) != 0) {
        return error(Code::internal, "an empty sequence has a state");
      }
      if (int(seen) != s.state->length()) return error(Code::internal, "the state saw ", seen, " tokens");
      for (int i = 0; i < s.count; ++i)
        for (uint32_t& h : hash)  // stays a finite float
          h = (h * 31 + uint32_t(tokens[size_t(s.state->length() + i)])) & 0x3fffff;
      std::memcpy(s.state->next_recurrent(0), hash, sizeof(hash));
      *s.state->next_conv(0) = seen + float(s.count);

      std::string spelled;
      for (const TokenId t : tokens) spelled += t < 256 ? char(t) : '\0';
      if (!c.poison.empty() && spelled.find(c.poison) != std::string::npos)
        return error(Code::device_fault, "poisoned");
      if (s.wants_logits) push_logits(tokens, hash[0]);
    }
    return Tensor(logits_.data(), DType::f32, {int64_t(logits_.size() / kVocab), kVocab});
  }

  // Steps run when they are launched, and what went wrong shows when they are collected.
  bool samples() const override { return control_->samples; }
  Status launch(const StepPlan& plan, const PagePool& pool, std::span<const SampleRow> asked) override {
    struct Uncounted {
      Uncounted() { uncounted = true; }
      ~Uncounted() { uncounted = false; }
    };
    Launched& step = launches_[launched_ % 2];
    StepPlan known;
    {
      const Uncounted scope;
      known = plan;
      for (size_t i = 0; i < known.sequences.size(); ++i)
        if (known.sequences[i].tokens == nullptr) known.sequences[i].tokens = &chosen_[i];
    }
    const auto logits = step_status_.is_ok() ? run(known, pool) : Result<Tensor>(step_status_);
    const Uncounted scope;
    step.status = step_status_ = logits.status();
    step.sampled.assign(asked.size(), {0, -1, 0});
    std::vector<int32_t> tokens(asked.size());
    SerialQueue queue;
    if (logits.is_ok() && !asked.empty())
      cpu_kernels().sample({logits.value().f32(), asked.data(), step.sampled.data(), tokens.data(), kVocab,
                            int(asked.size()), kVocab, sample_flags(asked, kVocab)},
                           queue);
    chosen_.swap(tokens);
    ++launched_;
    return Status::ok();
  }
  Result<std::span<const SampledToken>> collect() override {
    Launched& step = launches_[collected_++ % 2];
    if (collected_ == launched_) step_status_ = Status::ok();
    if (!step.status.is_ok()) return step.status;
    return std::span<const SampledToken>(step.sampled);
  }

 private:
  void push_logits(const std::vector<TokenId>& tokens, uint32_t hash) {
    Control& c = *control_;
    // The answer so far began after the last <assistant>; the question lies before it.
    size_t answer = tokens.size();
    while (answer > 0 && tokens[answer - 1] != kAssistant) --answer;
    const size_t done = tokens.size() - answer;
    std::string question;
    for (size_t i = answer > 1 ? answer - 2 : 0; i > 0 && tokens[i - 1] != kUser; --i)
      question.insert(question.begin(), tokens[i - 1] < 256 ? char(tokens[i - 1]) : '?');
    TokenId next = kEndTurn;
    const auto at = c.script.find(question);
    if (at != c.script.end() && !at->second.empty())
      next = done < at->second.size() ? at->second[done] : TokenId(kEndTurn);
    else if (done < 12 || answer == 0)
      next = TokenId('a' + hash % 26);
    const size_t row = logits_.size();
    logits_.resize(row + kVocab, 0.f);
    logits_[row + size_t(next)] = 10;
    if (int(done) == c.nan_at) logits_[row + 3] = NAN;
  }

  std::shared_ptr<Control> control_;
  FakeVision vision_;
  StateLayout layout_;
  std::vector<float> logits_;
  struct Launched {
    Status status;
    std::vector<SampledToken> sampled;
  };
  std::array<Launched, 2> launches_;
  size_t launched_ = 0, collected_ = 0;
  Status step_status_;           // of the step in front, as long as it is on its way
  std::vector<int32_t> chosen_;  // by the step in front
};

inline std::vector<TokenId> bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()),
          reinterpret_cast<const uint8_t*>(text.data()) + text.size()};
}

inline EngineParts parts(const std::shared_ptr<Control>& control,
                         std::shared_ptr<Runtime> runtime = nullptr) {
  EngineParts parts;
  parts.runtime = runtime ? std::move(runtime) : std::make_shared<Runtime>(Runtime::Options());
  parts.model = std::make_unique<FakeModel>(control);
  parts.tokenizer = std::make_shared<FakeTokenizer>();
  parts.format = std::make_shared<FakeFormat>();
  parts.end_tokens = {kEndTurn};
  parts.max_context = 4096;
  return parts;
}

}  // namespace dsa::fake
