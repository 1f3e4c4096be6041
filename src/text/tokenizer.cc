#include "text/tokenizer.h"

#include "io/mapped_file.h"
#include "text/sentencepiece_tokenizer.h"

namespace dsa {

Result<std::shared_ptr<const Tokenizer>> Tokenizer::load(const std::string& folder) {
  const std::string path = join_path(folder, "tokenizer.model");
  if (path_exists(path)) {
    DSA_ASSIGN(const auto file, MappedFile::open(path));
    return SentencePieceTokenizer::from_bytes(file->text(), path);
  }
  for (const char* other : {"tiktoken.model", "tokenizer.json"})
    if (path_exists(join_path(folder, other)))
      return error(Code::not_found, path, ": no such file; we do not read the ", other, " that is there");
  return error(Code::not_found, path, ": no such file");
}

}  // namespace dsa
