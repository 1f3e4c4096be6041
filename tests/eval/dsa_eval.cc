// dsa_eval MODEL [options]: asks a model folder the questions of its own eval/ folder, greedily, and scores the answers.
//
//   --task T1          only this task (T1, T3, T4, T5)
//   --limit N          at most N documents of each task
//   --selection S      learned (default), recent or random positions instead of those of the indexer
//   --rotate-experts N expert e does the work of expert e + N
//   --route R          fast (default) or exact MXFP4 products
//   --at-least P       fail if a task scores below P percent
//   --at-most P        fail if a task scores above P percent
//   --write            keep the figures under "engine" in the folder's eval.json
//   --verbose          print every question that was answered wrongly
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "golden/fixture.h"
#include "text/chat_format.h"
#include "text/chat_json.h"
#include "text/tokenizer.h"

namespace dsa::test {
namespace {

constexpr int kMaxAnswer = 160;  // tokens

struct Options {
  std::string folder, task;
  int limit = 1 << 30, threads = 2;
  ModelOptions model;
  std::string selection = "learned", route = "fast";
  double at_least = 0, at_most = 100;  // percent
  bool write = false, verbose = false;
};

struct Question {
  std::vector<Message> messages;
  std::vector<std::string> answers;
};

struct Score {
  int documents = 0, answers = 0, right = 0;
  int64_t tokens = 0;
  double seconds = 0;
  double percent() const { return answers ? 100.0 * right / answers : 0; }
};

struct Asker {
  LoadedModel model;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatFormat> format;
};

Result<std::vector<Question>> read_questions(const std::string& path) {
  std::vector<Question> questions;
  std::ifstream in(path);
  if (!in) return error(Code::not_found, path, ": cannot be read");
  for (std::string line; std::getline(in, line);) {
    DSA_ASSIGN(const Json json, parse_json(line, path));
    Question question;
    DSA_ASSIGN(question.messages, messages_from_json(json["messages"].dump()));
    for (const Json& answer : json["answers"]) question.answers.push_back(answer.get<std::string>());
    questions.push_back(std::move(question));
  }
  return questions;
}

Result<std::string> ask(Asker& asker, const std::vector<Message>& messages, Score& score) {
  DSA_ASSIGN(const std::vector<TokenId> prompt, asker.format->render(messages, true, false));
  score.tokens += int64_t(prompt.size());
  SequenceState sequence(*asker.model.pool, int(prompt.size()) + kMaxAnswer);
  std::vector<float> logits;
  for (size_t at = 0; at < prompt.size();) {
    const int count = std::min(int(prompt.size() - at), asker.model.decoder->max_step_tokens());
    DSA_ASSIGN(logits, append(asker.model, sequence, prompt.data() + at, count));
    at += size_t(count);
  }
  const auto reader = asker.format->reader(false);
  std::string answer;
  for (int i = 0; i < kMaxAnswer; ++i) {
    const TokenId token = argmax(logits.data(), int(logits.size()));
    const AnswerReader::Piece piece = reader->push(token);
    if (piece.ends_turn) break;
    if (piece.is_text) answer += asker.tokenizer->bytes(token);
    if (i + 1 < kMaxAnswer) {
      DSA_ASSIGN(logits, append(asker.model, sequence, &token, 1));
    }
  }
  return answer;
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

// One answer: the whole reply. Several: each on its line. T4 and T5 ask for a number inside the line.
int count_right(const std::string& task, const std::string& reply, const std::vector<std::string>& answers) {
  if (task == "T1" || task == "T3") return trimmed(reply) == trimmed(answers[0]);
  const std::vector<std::string> lines = lines_of(trimmed(reply));
  int right = 0;
  for (size_t i = 0; i < answers.size(); ++i)
    right += i < lines.size() && lines[i].find(answers[i]) != std::string::npos;
  return right;
}

Result<Score> run_task(Asker& asker, const Options& options, const std::string& task) {
  std::string file = task;
  for (char& c : file) c = char(tolower(c));
  DSA_ASSIGN(const auto questions, read_questions(join_path(options.folder, "eval/" + file + ".jsonl")));
  Score score;
  const auto start = std::chrono::steady_clock::now();
  for (const Question& question : questions) {
    if (score.documents == options.limit) break;
    DSA_ASSIGN(const std::string reply, ask(asker, question.messages, score));
    const int right = count_right(task, reply, question.answers);
    const bool whole = task == "T1" || task == "T3";
    ++score.documents;
    score.answers += whole ? 1 : int(question.answers.size());
    score.right += right;
    if (options.verbose && right < (whole ? 1 : int(question.answers.size()))) {
      const std::string& text = question.messages.back().parts[0].text;
      printf("  asked '...%s'\n  got '%s', expected '%s'\n",
             text.substr(text.size() > 120 ? text.size() - 120 : 0).c_str(), trimmed(reply).c_str(),
             question.answers[0].c_str());
    }
  }
  score.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return score;
}

Status write_scores(const Options& options, const std::vector<std::pair<std::string, Score>>& scores) {
  const std::string path = join_path(options.folder, "eval.json");
  DSA_ASSIGN(Json json, read_json_file(path));
  std::string key = concat("selection ", options.selection, ", route ", options.route);
  if (options.model.rotate_experts) key += concat(", experts rotated by ", options.model.rotate_experts);
  for (const auto& [task, score] : scores)
    json["engine"][key][task] = {{"percent", std::round(score.percent() * 100) / 100},
                                 {"right", score.right},
                                 {"answers", score.answers},
                                 {"documents", score.documents}};
  std::ofstream(path) << json.dump(1) << "\n";
  return Status::ok();
}

Status run(const Options& options) {
  Asker asker;
  DSA_ASSIGN(asker.model, load_model(options.folder, options.model, 2048, options.threads));
  DSA_ASSIGN(asker.tokenizer, Tokenizer::load(options.folder));
  DSA_ASSIGN(asker.format, ChatFormat::create("kimi_k3", asker.tokenizer));
  std::vector<std::pair<std::string, Score>> scores;
  for (const char* task : {"T1", "T3", "T4", "T5"}) {
    if (!options.task.empty() && options.task != task) continue;
    DSA_ASSIGN(const Score score, run_task(asker, options, task));
    printf("%s %6.2f %%  (%d of %d answers, %d documents, %lld prompt tokens, %.1f s)\n", task,
           score.percent(), score.right, score.answers, score.documents, static_cast<long long>(score.tokens),
           score.seconds);
    fflush(stdout);
    scores.push_back({task, score});
    if (score.percent() < options.at_least || score.percent() > options.at_most)
      return error(Code::mismatch, task, " scores ", score.percent(), " %, expected ", options.at_least,
                   " to ", options.at_most);
  }
  return options.write ? write_scores(options, scores) : Status::ok();
}

bool parse(int argc, char** argv, Options& o) {
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    const auto take = [&](const char* name) { return arg == name && value != nullptr && ++i; };
    if (arg == "--write") {
      o.write = true;
    } else if (arg == "--verbose") {
      o.verbose = true;
    } else if (take("--at-least")) {
      o.at_least = atof(value);
    } else if (take("--at-most")) {
      o.at_most = atof(value);
    } else if (take("--task")) {
      o.task = value;
    } else if (take("--limit")) {
      o.limit = atoi(value);
    } else if (take("--threads")) {
      o.threads = atoi(value);
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
    } else if (take("--route")) {
      o.route = value;
      if (o.route != "fast" && o.route != "exact") return false;
      o.model.mxfp4_route = o.route == "fast" ? Mxfp4Route::fast : Mxfp4Route::exact;
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
    fprintf(stderr,
            "usage: dsa_eval MODEL [--task T] [--limit N] [--threads N] [--selection learned|recent|random]\n"
            "                [--rotate-experts N] [--route fast|exact] [--at-least P] [--at-most P]\n"
            "                [--write] [--verbose]\n");
    return 2;
  }
  const dsa::Status status = dsa::test::run(options);
  if (!status.is_ok()) fprintf(stderr, "dsa_eval: %s\n", status.message().c_str());
  return status.is_ok() ? 0 : 1;
}
