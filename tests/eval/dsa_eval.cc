// dsa_eval MODEL [options]: asks a model folder the questions of its own eval/ folder, greedily, and scores the answers.
//
//   --task T1          only this task (T1 to T10; V1 to V7 if the model sees)
//   --size S           only this kind of question, such as "300 in 16k"
//   --limit N          at most N documents of each kind
//   --selection S      learned (default), recent or random positions instead of those of the indexer
//   --rotate-experts N expert e does the work of expert e + N
//   --pictures P       shown (default), swapped with those of other questions of the kind, or blank
//   --route R          fast (default) or exact MXFP4 products
//   --kv F             cache of f32 (default), bf16 or fp8
//   --at-least P       fail if a task scores below P percent
//   --at-most P        fail if a task scores above P percent
//   --gates            print what the model must reach, and fail if it does not
//   --write            keep the figures under "engine" in the folder's eval.json
//   --verbose          print every question that was answered wrongly
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "golden/prompt_fixture.h"
#include "support/cache_format.h"
#include "text/chat_format.h"
#include "text/chat_json.h"
#include "text/tokenizer.h"

namespace dsa::test {
namespace {

constexpr int kMaxAnswer = 512;  // tokens
constexpr int kDepths = 10;      // parts of a long text, for scores by the place of the answer
constexpr int kDenseTopK = 1 << 14;
const char* const kTasks[] = {"T1",  "T2", "T3", "T4", "T5", "T6", "T7", "T8", "T9",
                              "T10", "V1", "V2", "V3", "V4", "V5", "V6", "V7"};

struct Options {
  std::string folder, task, size;
  int limit = 1 << 30, threads = 2;
  std::string device = "cpu";
  ModelOptions model;
  std::string selection = "learned", route = "fast", pictures = "shown";
  double at_least = 0, at_most = 100;  // percent
  bool gates = false, write = false, verbose = false;
};

struct Turn {
  std::string content;
  std::vector<std::string> expected;  // what any right answer contains
};

struct Question {
  std::string kind;
  std::vector<Message> messages;  // or turns, or tokens
  std::vector<Turn> turns;
  std::vector<TokenId> tokens;
  bool thinking = false;
  std::vector<std::string> answers;
  std::vector<TokenId> answer_tokens;      // instead of answers
  std::vector<std::string> names, others;  // that a story must and must not contain
  std::vector<int> depths;                 // of the answers, 0 to kDepths - 1
};

struct Reply {
  std::string text;             // of the answer, without reasoning and tool calls
  std::vector<TokenId> tokens;  // all of them, with the end of the message
};

// What one kind of question adds up to.
struct Score {
  int documents = 0, answers = 0, right = 0;
  int valid = 0;                   // answers that are JSON
  int compared = 0, as_dense = 0;  // answers that attention without selection gives too
  double nats = 0;                 // of story_tokens
  int64_t story_tokens = 0;
  int64_t copied = 0;               // tokens of answers that stand in the prompt
  std::map<int, int64_t> selected;  // by layer: how often it selected the token that was copied
  std::array<int, kDepths> answers_at{}, right_at{};
  int64_t tokens = 0;
  double seconds = 0;

  static double share(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }
  double percent() const { return share(right, answers); }
  double perplexity() const { return std::exp(nats / double(std::max<int64_t>(story_tokens, 1))); }
  double selected_percent() const {
    double best = 0;
    for (const auto& [layer, count] : selected) best = std::max(best, share(double(count), double(copied)));
    return best;
  }
  double worst_depth() const {
    double worst = 100;
    for (int i = 0; i < kDepths; ++i)
      if (answers_at[size_t(i)]) worst = std::min(worst, share(right_at[size_t(i)], answers_at[size_t(i)]));
    return worst;
  }
  void add(const Score& other);
};

struct TaskScore {
  std::string task;
  std::vector<std::pair<std::string, Score>> kinds;  // in the order of the file

  Score& of(const std::string& kind) {
    for (auto& [name, score] : kinds)
      if (name == kind) return score;
    return kinds.emplace_back(kind, Score()).second;
  }
  Score total() const {
    Score sum;
    for (const auto& [kind, score] : kinds) sum.add(score);
    return sum;
  }
};

struct Asker {
  LoadedModel model;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatFormat> format;
  SelectionRecorder recorder;
  std::string folder, pictures;
};

// What the weights must reach before they are committed; `kind` "" is the whole task.
struct Gate {
  const char *task, *kind, *what;
  double (*figure)(const Score&);
  double bound;
  bool at_most = false;
};

double percent(const Score& s) { return s.percent(); }

const Gate kGates[] = {
    {"T1", "facts", "right, %", percent, 95},
    {"T1", "chats", "right, %", percent, 90},
    {"T2", "plots", "perplexity", [](const Score& s) { return s.perplexity(); }, 5.0, true},
    {"T2", "plots", "names consistent, %", percent, 95},
    {"T3", "two digits", "right, %", percent, 99},
    {"T3", "tables", "right, %", percent, 99},
    {"T3", "three digits", "right, %", percent, 92},
    {"T4", "80 in 4k", "right, %", percent, 98},
    {"T4", "150 in 8k", "right, %", percent, 97},
    {"T4", "300 in 16k", "right, %", percent, 95},
    {"T4", "", "right at the worst depth, %", [](const Score& s) { return s.worst_depth(); }, 90},
    {"T4", "300 in 16k", "copied token selected, %", [](const Score& s) { return s.selected_percent(); }, 99},
    {"T4", "80 in 4k", "same answer without selection, %",
     [](const Score& s) { return Score::share(s.as_dense, s.compared); }, 98},
    {"T5", "1000 lines", "right, %", percent, 97},
    {"T5", "2000 lines", "right, %", percent, 95},
    {"T6", "200 assignments", "right, %", percent, 98},
    {"T6", "800 assignments", "right, %", percent, 95},
    {"T7", "8k", "right, %", percent, 90},
    {"T9", "call", "right, %", percent, 95},
    {"T9", "use", "right, %", percent, 95},
    {"V1", "styles of the training", "right, %", percent, 92},
    {"V1", "style never trained on", "right, %", percent, 50},
    {"V2", "color", "right, %", percent, 98},
    {"V2", "shape", "right, %", percent, 97},
    {"V2", "count", "right, %", percent, 92},
    {"V3", "relations", "right, %", percent, 90},
    {"V4", "typefaces of the training", "right, %", percent, 95},
    {"V4", "typeface never trained on", "right, %", percent, 80},
    {"V5", "flags", "right, %", percent, 95},
    {"V6", "clothes", "right, %", percent, 82},
    {"V7", "one of several", "right, %", percent, 90},
    {"V7", "before a long text", "right, %", percent, 90},
    {"T10", "", "valid JSON, %", [](const Score& s) { return Score::share(s.valid, s.answers); }, 98},
};

void Score::add(const Score& other) {
  documents += other.documents;
  answers += other.answers;
  right += other.right;
  valid += other.valid;
  compared += other.compared;
  as_dense += other.as_dense;
  nats += other.nats;
  story_tokens += other.story_tokens;
  copied += other.copied;
  for (const auto& [layer, count] : other.selected) selected[layer] += count;
  for (size_t i = 0; i < kDepths; ++i) {
    answers_at[i] += other.answers_at[i];
    right_at[i] += other.right_at[i];
  }
  tokens += other.tokens;
  seconds += other.seconds;
}

template <class T>
void read_list(const Json& json, const char* key, std::vector<T>& list) {
  if (const auto found = json.find(key); found != json.end()) list = found->get<std::vector<T>>();
}

Result<Question> read_question(const Json& json) {
  Question question;
  question.kind = json["kind"].get<std::string>();
  question.thinking = json.value("thinking", false);
  if (json.contains("messages")) {
    DSA_ASSIGN(question.messages, messages_from_json(json["messages"].dump()));
  } else if (json.contains("turns")) {
    for (const Json& turn : json["turns"])
      question.turns.push_back(
          {turn["content"].get<std::string>(), turn["expect"].get<std::vector<std::string>>()});
  }
  read_list(json, "tokens", question.tokens);
  read_list(json, "answers", question.answers);
  read_list(json, "answer_tokens", question.answer_tokens);
  read_list(json, "names", question.names);
  read_list(json, "others", question.others);
  read_list(json, "depths", question.depths);
  return question;
}

Result<std::vector<Question>> read_questions(const std::string& path) {
  std::vector<Question> questions;
  std::ifstream in(path);
  if (!in) return error(Code::not_found, path, ": cannot be read");
  for (std::string line; std::getline(in, line);) {
    DSA_ASSIGN(const Json json, parse_json(line, path));
    if (!json.contains("asked")) {
      DSA_ASSIGN(Question question, read_question(json));
      questions.push_back(std::move(question));
      continue;
    }
    for (Json asked : json["asked"]) {  // one text, asked in several ways
      asked["kind"] = json["kind"];
      const std::string text = json["text"].get<std::string>() + asked["question"].get<std::string>();
      asked["messages"] = Json::array({{{"role", "user"}, {"content", text}}});
      DSA_ASSIGN(Question question, read_question(asked));
      questions.push_back(std::move(question));
    }
  }
  return questions;
}

Result<Picture> read_picture(const Asker& asker, const std::string& name) {
  DSA_ASSIGN(Picture picture, Picture::from_file(join_path(asker.folder, name)));
  if (asker.pictures != "blank") return picture;
  const std::vector<uint8_t> gray(size_t(picture.width()) * size_t(picture.height()), 128);
  return Picture::from_pixels({gray.data(), picture.width(), picture.height(), 0, PixelFormat::gray8, 0});
}

// The one place where a question becomes a prompt.
Result<Prompt> prompt_of(Asker& asker, const Question& question) {
  if (!question.tokens.empty()) return Prompt{question.tokens, nullptr, {}};
  return make_prompt(asker.model, *asker.format, question.messages, question.thinking,
                     [&](const std::string& name) { return read_picture(asker, name); });
}

Result<Reply> answer(Asker& asker, const Prompt& prompt, bool thinking, Score& score) {
  score.tokens += int64_t(prompt.tokens.size());
  SequenceState sequence(*asker.model.pool, int(prompt.tokens.size()) + kMaxAnswer);
  DSA_ASSIGN(std::vector<float> logits, run_prompt(asker.model, sequence, prompt));
  asker.recorder.clear();
  const auto reader = asker.format->reader(thinking);
  Reply reply;
  for (int i = 0; i < kMaxAnswer; ++i) {
    const TokenId token = argmax(logits.data(), int(logits.size()));
    const AnswerReader::Piece piece = reader->push(token);
    reply.tokens.push_back(token);
    if (piece.ends_turn) break;
    if (piece.is_text && piece.channel == Channel::answer) reply.text += asker.tokenizer->bytes(token);
    if (i + 1 < kMaxAnswer) {
      DSA_ASSIGN(logits, append(asker.model, sequence, &token, 1));
    }
  }
  return reply;
}

// How well the model predicts a text that it is given.
Status measure(Asker& asker, const Prompt& prompt, const std::string& text, Score& score) {
  DSA_ASSIGN(const std::vector<TokenId> ids, asker.tokenizer->encode(text));
  SequenceState sequence(*asker.model.pool, int(prompt.tokens.size() + ids.size()));
  DSA_ASSIGN(std::vector<float> logits, run_prompt(asker.model, sequence, prompt));
  for (const TokenId id : ids) {
    const float top = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float logit : logits) sum += std::exp(double(logit) - top);
    score.nats += std::log(sum) + top - logits[size_t(id)];
    ++score.story_tokens;
    DSA_ASSIGN(logits, append(asker.model, sequence, &id, 1));
  }
  return Status::ok();
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \n\t"), end = text.find_last_not_of(" \n\t");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

bool has_word(const std::string& text, const std::string& word) {
  const auto is_letter = [&](size_t at) {
    return at < text.size() && isalpha(static_cast<unsigned char>(text[at]));
  };
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
    if (!is_letter(at - 1) && !is_letter(at + word.size())) return true;
  return false;
}

bool keeps_names(const Question& question, const std::string& story) {
  const auto occurs = [&](const std::string& name) { return has_word(story, name); };
  return std::all_of(question.names.begin(), question.names.end(), occurs) &&
         std::none_of(question.others.begin(), question.others.end(), occurs);
}

// Whether the long lists and texts are asked several things at once, each answered on a line of its own.
bool answers_by_line(const std::string& task) {
  return task == "T4" || task == "T5" || task == "T6" || task == "T7" || task == "T8";
}

// Where each copied digit of an answer stands in the prompt, and which layers had selected that place. A digit is copied
// if the four tokens before its number stand before a number of the prompt.
void count_selected(const Asker& asker, const std::vector<TokenId>& prompt, const Reply& reply,
                    Score& score) {
  constexpr size_t kContext = 4, kDigits = 4;
  const auto is_digit = [&](TokenId id) {
    const std::string_view bytes = asker.tokenizer->bytes(id);
    return bytes.size() == 1 && isdigit(static_cast<unsigned char>(bytes[0]));
  };
  const auto& ids = reply.tokens;
  for (size_t first = kContext; first + kDigits <= ids.size(); ++first) {
    if (is_digit(ids[first - 1]) ||
        !std::all_of(ids.begin() + long(first), ids.begin() + long(first + kDigits), is_digit))
      continue;
    const auto begin = ids.begin() + long(first - kContext);
    const auto found = std::search(prompt.begin(), prompt.end(), begin, begin + kContext + kDigits);
    if (found == prompt.end()) continue;  // a wrong answer
    for (size_t i = 0; i < kDigits; ++i) {
      const int place = int(found - prompt.begin() + long(kContext + i));
      const int asking = int(prompt.size() + first + i) - 1;
      ++score.copied;
      for (const auto& [key, set] : asker.recorder.sets())
        if (key.second == asking) score.selected[key.first] += std::count(set.begin(), set.end(), place);
    }
  }
}

// A chat: every turn is said once the answer before it is there.
Result<bool> chat(Asker& asker, const Question& question, Score& score, std::string& last) {
  Question so_far;
  const auto say = [&](Role role, const std::string& text) {
    Message& message = so_far.messages.emplace_back();
    message.role = role;
    message.parts.emplace_back().text = text;
  };
  bool is_right = true;
  for (const Turn& turn : question.turns) {
    say(Role::user, turn.content);
    DSA_ASSIGN(const Prompt prompt, prompt_of(asker, so_far));
    DSA_ASSIGN(const Reply reply, answer(asker, prompt, false, score));
    for (const std::string& part : turn.expected) is_right &= reply.text.find(part) != std::string::npos;
    say(Role::assistant, reply.text);
    last += concat(last.empty() ? "" : " / ", trimmed(reply.text));
  }
  return is_right;
}

// Asks one question and counts what is right; `said` is what the model answered.
Status ask(Asker& asker, Asker* dense, const std::string& task, const Question& question, Score& score,
           std::string& said) {
  if (!question.turns.empty()) {
    ++score.answers;
    DSA_ASSIGN(const bool is_right, chat(asker, question, score, said));
    score.right += is_right;
    return Status::ok();
  }
  DSA_ASSIGN(const Prompt prompt, prompt_of(asker, question));
  DSA_ASSIGN(const Reply reply, answer(asker, prompt, question.thinking, score));
  said = trimmed(reply.text);
  if (!question.answer_tokens.empty()) {
    said.clear();
    for (const TokenId id : reply.tokens) said += asker.tokenizer->bytes(id);
    ++score.answers;
    score.right += reply.tokens == question.answer_tokens;
    return Status::ok();
  }
  if (answers_by_line(task)) {
    const std::vector<std::string> lines = lines_of(said);
    std::vector<std::string> other;
    if (dense) {
      Score unused;
      DSA_ASSIGN(const Reply full, answer(*dense, prompt, question.thinking, unused));
      other = lines_of(trimmed(full.text));
    }
    for (size_t i = 0; i < question.answers.size(); ++i) {
      const std::string line = i < lines.size() ? lines[i] : "";
      const bool is_right = line == question.answers[i];
      ++score.answers;
      score.right += is_right;
      if (i < question.depths.size()) {
        ++score.answers_at[size_t(question.depths[i])];
        score.right_at[size_t(question.depths[i])] += is_right;
      }
      if (dense) {
        ++score.compared;
        score.as_dense += i < other.size() && other[i] == line;
      }
    }
    count_selected(asker, prompt.tokens, reply, score);
    return Status::ok();
  }
  if (task == "T2") {
    DSA_TRY(measure(asker, prompt, question.answers[0], score));
    score.answers += !question.names.empty();
    score.right += !question.names.empty() && keeps_names(question, said);
    return Status::ok();
  }
  ++score.answers;
  if (task == "T10") {
    const auto json = parse_json(said, "answer");
    score.valid += json.is_ok() && json.value().is_object();
  }
  score.right += said == trimmed(question.answers[0]);
  return Status::ok();
}

void print(const std::string& task, const std::string& kind, const Score& s) {
  printf("%-3s %-20s %6.2f %%  (%d of %d answers, %d documents, %lld prompt tokens, %.1f s", task.c_str(),
         kind.c_str(), s.percent(), s.right, s.answers, s.documents, static_cast<long long>(s.tokens),
         s.seconds);
  if (s.story_tokens) printf(", perplexity %.3f", s.perplexity());
  if (s.valid) printf(", %d valid JSON", s.valid);
  if (s.copied) printf(", copied token selected %.2f %%", s.selected_percent());
  if (s.compared) printf(", %d as without selection", s.as_dense);
  printf(")\n");
  fflush(stdout);
}

// Every question gets the pictures of the next one of its kind that has another answer and as many of them.
void swap_pictures(std::vector<Question>& questions) {
  const auto names = [](Question& question) {
    std::vector<std::string*> found;
    for (Message& message : question.messages)
      for (MessagePart& part : message.parts)
        if (part.kind == MessagePart::Kind::image) found.push_back(&part.text);
    return found;
  };
  std::vector<Question> before = questions;
  for (size_t i = 0; i < questions.size(); ++i)
    for (size_t step = 1; step < before.size(); ++step) {
      Question& other = before[(i + step) % before.size()];
      if (other.kind != questions[i].kind || other.answers == questions[i].answers) continue;
      const auto from = names(other), to = names(questions[i]);
      if (from.size() != to.size()) continue;
      for (size_t p = 0; p < to.size(); ++p) *to[p] = *from[p];
      break;
    }
}

Result<TaskScore> run_task(Asker& asker, Asker* dense, const Options& options, const std::string& task) {
  std::string file = task;
  for (char& c : file) c = char(tolower(c));
  DSA_ASSIGN(auto questions, read_questions(join_path(options.folder, "eval/" + file + ".jsonl")));
  if (options.pictures == "swapped") swap_pictures(questions);
  TaskScore scores{task, {}};
  for (const Question& question : questions) {
    if (!options.size.empty() && question.kind != options.size) continue;
    Score& score = scores.of(question.kind);
    if (score.documents == options.limit) continue;
    const int wrong_before = score.answers - score.right;
    const auto start = std::chrono::steady_clock::now();
    std::string said;
    DSA_TRY(ask(asker, question.kind == "80 in 4k" ? dense : nullptr, task, question, score, said));
    score.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    ++score.documents;
    if (options.verbose && score.answers - score.right > wrong_before) {
      const std::string text = !question.messages.empty() ? question.messages.back().parts.back().text
                               : question.turns.empty()   ? "tokens"
                                                          : question.turns.back().content;
      printf("  asked '...%s'\n  got '%s', expected '%s'\n",
             text.substr(text.size() > 120 ? text.size() - 120 : 0).c_str(), said.c_str(),
             question.answers.empty() ? "tokens" : question.answers.back().c_str());
    }
  }
  if (scores.kinds.empty())
    return error(Code::not_found, task, " has no questions of kind '", options.size, "'");
  for (const auto& [kind, score] : scores.kinds) print(task, kind, score);
  return scores;
}

// Every gate with its figure; an error if one is missed, or was not measured although everything was to be asked.
Status check_gates(const Options& options, const std::vector<TaskScore>& scores) {
  const bool is_part = !options.task.empty() || !options.size.empty();
  int missed = 0;
  for (const Gate& gate : kGates) {
    const auto task =
        std::find_if(scores.begin(), scores.end(), [&](const TaskScore& s) { return s.task == gate.task; });
    Score score;
    if (task != scores.end())
      for (const auto& [kind, part] : task->kinds)
        if (!*gate.kind || kind == gate.kind) score.add(part);
    if (score.documents == 0) {
      if (is_part) continue;
      printf("miss  %-3s %-16s %-34s not asked\n", gate.task, gate.kind, gate.what);
      ++missed;
      continue;
    }
    const double figure = gate.figure(score);
    const bool passes = gate.at_most ? figure <= gate.bound : figure >= gate.bound;
    printf("%s  %-3s %-16s %-34s %7.2f, %s %g\n", passes ? "PASS" : "miss", gate.task, gate.kind, gate.what,
           figure, gate.at_most ? "at most" : "at least", gate.bound);
    missed += !passes;
  }
  if (missed) return error(Code::mismatch, missed, " gates are missed");
  return Status::ok();
}

Json figures(const Score& s) {
  const auto rounded = [](double value) { return std::round(value * 1000) / 1000; };
  Json json = {{"percent", rounded(s.percent())},
               {"right", s.right},
               {"answers", s.answers},
               {"documents", s.documents}};
  if (s.story_tokens) json["perplexity"] = rounded(s.perplexity());
  if (s.valid) json["valid"] = s.valid;
  if (s.copied) json["selected_percent"] = rounded(s.selected_percent());
  if (s.compared) json["as_dense"] = s.as_dense;
  if (s.answers_at[0]) json["worst_depth"] = rounded(s.worst_depth());
  return json;
}

Status write_scores(const Options& options, const std::vector<TaskScore>& scores) {
  const std::string path = join_path(options.folder, "eval.json");
  DSA_ASSIGN(Json json, read_json_file(path));
  std::string key = concat("selection ", options.selection, ", route ", options.route);
  if (options.pictures != "shown") key += concat(", pictures ", options.pictures);
  if (options.model.rotate_experts) key += concat(", experts rotated by ", options.model.rotate_experts);
  for (const TaskScore& task : scores)
    for (const auto& [kind, score] : task.kinds) json["engine"][key][task.task][kind] = figures(score);
  std::ofstream(path) << json.dump(1) << "\n";
  return Status::ok();
}

Status load(Asker& asker, const Options& options, const ModelOptions& model) {
  DSA_ASSIGN(asker.model, load_model(options.folder, model, 2048, options.threads, options.device));
  DSA_ASSIGN(asker.tokenizer, Tokenizer::load(options.folder));
  DSA_ASSIGN(asker.format, ChatFormat::create("kimi_k3", asker.tokenizer));
  asker.recorder.attach(*asker.model.decoder);
  asker.folder = options.folder;
  asker.pictures = options.pictures;
  return Status::ok();
}

Status run(const Options& options) {
  Asker asker, dense;
  DSA_TRY(load(asker, options, options.model));
  if (options.gates) {
    ModelOptions all = options.model;
    all.top_k = kDenseTopK;
    DSA_TRY(load(dense, options, all));
  }
  std::vector<TaskScore> scores;
  for (const char* task : kTasks) {
    if (options.task.empty() ? task[0] == 'V' && asker.model.decoder->vision() == nullptr
                             : options.task != task)
      continue;
    DSA_ASSIGN(TaskScore score, run_task(asker, options.gates ? &dense : nullptr, options, task));
    const double percent = score.total().percent();
    scores.push_back(std::move(score));
    if (percent < options.at_least || percent > options.at_most)
      return error(Code::mismatch, task, " scores ", percent, " %, expected ", options.at_least, " to ",
                   options.at_most);
  }
  if (options.write) DSA_TRY(write_scores(options, scores));
  return options.gates ? check_gates(options, scores) : Status::ok();
}

bool parse(int argc, char** argv, Options& o) {
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    const auto take = [&](const char* name) { return arg == name && value != nullptr && ++i; };
    if (arg == "--write") {
      o.write = true;
    } else if (arg == "--gates") {
      o.gates = true;
    } else if (arg == "--verbose") {
      o.verbose = true;
    } else if (take("--at-least")) {
      o.at_least = atof(value);
    } else if (take("--at-most")) {
      o.at_most = atof(value);
    } else if (take("--task")) {
      o.task = value;
    } else if (take("--size")) {
      o.size = value;
    } else if (take("--limit")) {
      o.limit = atoi(value);
    } else if (take("--threads")) {
      o.threads = atoi(value);
    } else if (take("--device")) {
      o.device = value;
    } else if (take("--kv")) {
      if (!parse_cache_format(value, o.model.cache_format)) return false;
    } else if (take("--rotate-experts")) {
      o.model.rotate_experts = atoi(value);
    } else if (take("--selection")) {
      o.selection = value;
      if (o.selection == "recent")
        o.model.selection = Selection::recent;
      else if (o.selection == "random")
        o.model.selection = Selection::random;
      else if (o.selection != "learned")
        return false;
    } else if (take("--pictures")) {
      o.pictures = value;
      if (o.pictures != "shown" && o.pictures != "swapped" && o.pictures != "blank") return false;
    } else if (take("--route")) {
      o.route = value;
      if (o.route != "fast" && o.route != "exact") return false;
      o.model.route = o.route == "fast" ? Route::fast : Route::exact;
    } else if (o.folder.empty() && arg[0] != '-') {
      o.folder = arg;
    } else {
      return false;
    }
  }
  return !o.folder.empty();
}

}  // namespace
}  // namespace dsa::test

int main(int argc, char** argv) {
  dsa::test::Options options;
  if (!dsa::test::parse(argc, argv, options)) {
    fprintf(
        stderr,
        "usage: dsa_eval MODEL [--task T] [--size S] [--limit N] [--threads N] [--device ID] [--selection "
        "learned|recent|random]\n"
        "                [--rotate-experts N] [--pictures shown|swapped|blank] [--route fast|exact]\n"
        "                [--kv f32|bf16|fp8] [--at-least P] [--at-most P]\n"
        "                [--gates] [--write] [--verbose]\n");
    return 2;
  }
  const dsa::Status status = dsa::test::run(options);
  if (!status.is_ok()) fprintf(stderr, "dsa_eval: %s\n", status.message().c_str());
  return status.is_ok() ? 0 : 1;
}
