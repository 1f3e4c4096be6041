#include "text/tokenizer.h"

#include <algorithm>
#include <filesystem>

#include "io/json.h"
#include "io/mapped_file.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/tiktoken_file.h"
#include "text/tokenizer_json.h"
#include "text/utf8_stream.h"

namespace dsa {

namespace {

// The tiktoken file of a folder; empty if there is none.
Result<std::string> find_tiktoken(const std::string& folder) {
  if (path_exists(join_path(folder, "tiktoken.model"))) return std::string("tiktoken.model");
  std::string found;
  std::error_code failure;
  for (std::filesystem::directory_iterator at(folder, failure), end; !failure && at != end;
       at.increment(failure)) {
    const std::string name = at->path().filename().string();
    if (!name.ends_with(".tiktoken")) continue;
    if (!found.empty())
      return error(Code::model, folder, ": ", in_quotes(std::min(found, name)), " and ",
                   in_quotes(std::max(found, name)), ", expected one tiktoken file");
    found = name;
  }
  return found;
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::load(const std::string& folder) {
  const std::string sentencepiece = join_path(folder, "tokenizer.model");
  if (path_exists(sentencepiece)) {
    DSA_ASSIGN(const auto file, MappedFile::open(sentencepiece));
    return SentencePieceTokenizer::from_bytes(file->text(), sentencepiece);
  }
  DSA_ASSIGN(const std::string tiktoken, find_tiktoken(folder));
  if (!tiktoken.empty()) {
    const std::string config = join_path(folder, "tokenizer_config.json");
    DSA_ASSIGN(const auto file, MappedFile::open(join_path(folder, tiktoken)));
    std::shared_ptr<const MappedFile> config_file;
    if (path_exists(config)) {
      DSA_ASSIGN(config_file, MappedFile::open(config));
    }
    return read_tiktoken(file->text(), file->path(), config_file ? config_file->text() : "{}", config);
  }
  const std::string json = join_path(folder, "tokenizer.json");
  if (path_exists(json)) {
    DSA_ASSIGN(const auto file, MappedFile::open(json));
    return read_tokenizer_json(file->text(), json);
  }
  return error(Code::not_found, folder, ": none of tokenizer.model, tiktoken.model and tokenizer.json");
}

Status check_utf8(std::string_view text) {
  const size_t invalid = find_invalid_utf8(text);
  if (invalid == std::string_view::npos) return Status::ok();
  return error(Code::utf8, "byte ", invalid, " of the text is not UTF-8")
      .with_position(invalid)
      .with_fix(Fix::input);
}

}  // namespace dsa
