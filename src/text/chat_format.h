// text/chat_format.h: how a conversation is written in tokens, and how an answer is read from them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer.h"
#include "text/tools.h"

namespace dsa {

enum class Role { system, user, assistant, tool };
enum class Channel { answer, reasoning, tool };

struct MessagePart {
  enum class Kind { text, markup, tokens, image };
  Kind kind = Kind::text;
  std::string text = {};             // of text and markup; of an image the name that chat JSON gave it
  std::vector<TokenId> tokens = {};  // of tokens
  int image = -1;                    // among the pictures of the prompt; -1: none bears the name yet
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
  bool in_reasoning = false;  // the answer begins with reasoning
};

struct Message {
  Role role = Role::user;
  std::vector<MessagePart> parts = {};
  std::string name = {};             // of the user or system author, or of the tool; may be empty
  std::string reasoning = {};        // of the assistant, in front of the parts
  std::vector<ToolCall> calls = {};  // of the assistant, behind the parts
  std::string call_id = {};          // of a tool: the call that this is the result of
};

// What a prompt is written for.
struct ChatOptions {
  bool ask = true;       // the generation prompt follows
  bool thinking = true;  // the answer may begin with reasoning
  bool begins = true;    // nothing precedes the messages: what opens a conversation is written
  bool may_call = true;  // false: the answer must call no tools
  std::span<const Tool> tools = {};
  std::span<const ToolCall> calls = {};  // of the answer that precedes the messages
  std::string date = {};                 // YYYY-MM-DD, for formats that tell it; empty: today's, UTC
};

// Reads an answer token by token. One object per run; starts where the generation prompt ended.
class AnswerReader {
 public:
  // What a token means, in this order: a call of a tool begins, text, the call ends, the turn ends.
  struct Piece {
    bool begins_call = false;  // `name` and `id` tell which; a call that was open before was cut off
    bool is_text = false;  // `text` belongs to `channel`; between begin and end of a call it is its arguments
    Channel channel = Channel::answer;
    bool ends_call = false;
    bool ends_turn = false;  // the model has finished its message
    bool is_dropped =
        false;  // the token is not kept: it begins the next message, or is replaced by closing()
    // Views live until the next push. Most text is the token's bytes; arguments that the format does not write as JSON
    // are made JSON here, so the arguments of a call are all its text together.
    std::string_view text = {}, name = {}, id = {};
  };

  virtual ~AnswerReader() = default;
  virtual Piece push(TokenId id) = 0;
  // Tokens that complete the message if the run ends here; after its own end what replaces a dropped token.
  virtual std::vector<TokenId> closing() const = 0;
};

class ChatFormat {
 public:
  virtual ~ChatFormat() = default;

  // The format of a family. `chat_template` is the one of the package, empty if it has none. We run no templates: each
  // format knows the marks that the vendor's template for it writes, and those that only other templates have, and
  // is used if all of the first and none of the second are there. Code::unsupported names the mark, or a family whose
  // format we do not know; Code::model a control token that the tokenizer lacks.
  static Result<std::shared_ptr<const ChatFormat>> create(const std::string& family,
                                                          std::shared_ptr<const Tokenizer> tokenizer,
                                                          std::string_view chat_template = {});

  // Messages as tokens. A picture becomes as many image tokens as its slot says; Code::argument if it has no slot.
  // Code::unsupported names what the format cannot say.
  virtual Result<RenderedChat> render(const std::vector<Message>& messages, std::span<const ImageSlot> images,
                                      const ChatOptions& options) const = 0;
  // Of messages without pictures.
  Result<std::vector<TokenId>> render(const std::vector<Message>& messages, bool ask, bool thinking) const {
    DSA_ASSIGN(RenderedChat rendered, render(messages, {}, {.ask = ask, .thinking = thinking}));
    return std::move(rendered.tokens);
  }
  // Stands for a piece of a picture; -1: the format has no pictures.
  virtual TokenId image_token() const { return -1; }
  // Whether render() writes declarations of tools.
  virtual bool has_tools() const = 0;
  // `tools`: what the types of arguments are looked up in.
  virtual std::unique_ptr<AnswerReader> reader(bool in_reasoning, std::span<const Tool> tools = {}) const = 0;
  // Tokens after which generation stops, whatever the config says.
  virtual std::vector<TokenId> stop_tokens() const = 0;
};

}  // namespace dsa
