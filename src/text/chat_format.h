// text/chat_format.h: how a conversation is written in tokens, and how an answer is read from them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer.h"

namespace dsa {

enum class Role { system, user, assistant, tool };
enum class Channel { answer, reasoning, tool };

struct MessagePart {
  enum class Kind { text, markup, tokens, image };
  Kind kind = Kind::text;
  std::string text;             // of text and markup; of an image the name that chat JSON gave it
  std::vector<TokenId> tokens;  // of tokens
  int image = -1;               // among the pictures of the prompt; -1: none bears the name yet
};

// What a chat format has to know of a picture.
struct ImageSlot {
  int width = 0, height = 0;  // as the host sees it
  int tokens = 0;             // that stand for it
};

// A prompt in tokens, and where its pictures came to lie.
struct RenderedChat {
  struct Place {
    size_t first;  // of its tokens
    int image;
  };
  std::vector<TokenId> tokens;
  std::vector<Place> places;
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

  // Messages as tokens, each piece encoded by itself. With `ask`, the generation prompt follows. A picture
  // becomes as many image tokens as its slot says; Code::argument if it has no slot.
  virtual Result<RenderedChat> render(const std::vector<Message>& messages, std::span<const ImageSlot> images,
                                      bool ask, bool thinking) const = 0;
  // Of messages without pictures.
  Result<std::vector<TokenId>> render(const std::vector<Message>& messages, bool ask, bool thinking) const {
    DSA_ASSIGN(RenderedChat rendered, render(messages, {}, ask, thinking));
    return std::move(rendered.tokens);
  }
  // Stands for a piece of a picture; -1: the format has no pictures.
  virtual TokenId image_token() const { return -1; }
  virtual std::unique_ptr<AnswerReader> reader(bool thinking) const = 0;
  // Tokens after which generation stops, whatever the config says.
  virtual std::vector<TokenId> stop_tokens() const = 0;
};

}  // namespace dsa
