// text/chat_format.h: how a conversation is written in tokens, and how an answer is read from them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer.h"

namespace dsa {

enum class Role { system, user, assistant, tool };
enum class Channel { answer, reasoning, tool };

struct MessagePart {
  enum class Kind { text, markup, tokens };
  Kind kind = Kind::text;
  std::string text;             // of text and markup
  std::vector<TokenId> tokens;  // of tokens
};

struct Message {
  Role role = Role::user;
  std::vector<MessagePart> parts;
  std::string name;  // of the user or system author, or of the tool; may be empty
};

// Reads an answer token by token. One object per run; starts where the generation prompt ended.
class AnswerReader {
 public:
  struct Piece {
    bool is_text = false;  // the token's bytes belong to `channel`
    Channel channel = Channel::answer;
    bool ends_turn = false;  // the model has finished its message
  };

  virtual ~AnswerReader() = default;
  virtual Piece push(TokenId id) = 0;
  // Tokens that complete the message if the run ends here; empty after its own end.
  virtual std::vector<TokenId> closing() const = 0;
};

class ChatFormat {
 public:
  virtual ~ChatFormat() = default;

  // The format of a family; Code::unsupported names a family whose format we do not know, Code::model a control token
  // that the tokenizer lacks.
  static Result<std::shared_ptr<const ChatFormat>> create(const std::string& family,
                                                          std::shared_ptr<const Tokenizer> tokenizer);

  // Messages as tokens, each piece encoded by itself. With `ask`, the generation prompt follows.
  virtual Result<std::vector<TokenId>> render(const std::vector<Message>& messages, bool ask,
                                              bool thinking) const = 0;
  virtual std::unique_ptr<AnswerReader> reader(bool thinking) const = 0;
  // Tokens after which generation stops, whatever the config says.
  virtual std::vector<TokenId> stop_tokens() const = 0;
};

}  // namespace dsa
