#include "text/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "io/json.h"
#include "text/utf8_stream.h"

namespace dsa {

namespace {

constexpr size_t kMaxModelBytes = size_t(64) << 20;
constexpr size_t kMaxPieces = size_t(1) << 20;
constexpr size_t kMaxPieceBytes = 1024;
constexpr size_t kChunkBytes = 4096;  // the library needs some 250 bytes of memory per byte of text
constexpr size_t kMaxChunkBytes = size_t(256) << 10;
constexpr std::string_view kSpaceMarker = "\xE2\x96\x81";  // U+2581, a space inside of pieces

// --- protocol buffers, as far as a model file needs them -----------------------------------------

enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// The fields of one message, in the order of the file.
class ProtoReader {
 public:
  explicit ProtoReader(std::string_view rest) : rest_(rest) {}

  // False at the end and at the first damage.
  bool next() {
    if (rest_.empty()) return false;
    const uint64_t tag = read_varint();
    field = tag >> 3;
    wire = uint32_t(tag & 7);
    if (field == 0) return fail();
    switch (wire) {
      case kVarint: number = read_varint(); break;
      case kFixed64: bytes = take(8); break;
      case kBytes: bytes = take(read_varint()); break;
      case kFixed32: bytes = take(4); break;
      default: return fail();
    }
    return !is_damaged;
  }

  uint64_t field = 0;
  uint32_t wire = 0;
  uint64_t number = 0;     // of kVarint
  std::string_view bytes;  // of the others
  bool is_damaged = false;

 private:
  bool fail() {
    is_damaged = true;
    rest_ = {};
    return false;
  }
  std::string_view take(uint64_t size) {
    if (size > rest_.size()) return fail(), std::string_view();
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  uint64_t read_varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) break;
      const uint8_t byte = uint8_t(rest_[0]);
      rest_.remove_prefix(1);
      value |= uint64_t(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    return fail(), 0;
  }

  std::string_view rest_;
};

void write_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += char(uint8_t(value) | 0x80);
  out += char(value);
}
void write_number(std::string& out, uint32_t field, uint64_t value) {
  write_varint(out, field << 3 | kVarint);
  write_varint(out, value);
}
void write_bytes(std::string& out, uint32_t field, std::string_view bytes) {
  write_varint(out, field << 3 | kBytes);
  write_varint(out, bytes.size());
  out += bytes;
}
void write_float(std::string& out, uint32_t field, float value) {
  write_varint(out, field << 3 | kFixed32);
  char bytes[4];
  std::memcpy(bytes, &value, 4);
  out.append(bytes, 4);
}

}  // namespace

// --- the model file: field numbers of sentencepiece_model.proto ----------------------------------

struct StoredPiece {
  enum Type : uint64_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  std::string_view text;
  float score = 0;
  uint64_t type = normal;
};

namespace {

struct StoredModel {
  std::vector<StoredPiece> pieces;
  uint64_t model_type = 1;  // 1 unigram, 2 BPE
  bool treat_whitespace_as_suffix = false;
  bool has_charsmap = false, add_dummy_prefix = true, remove_extra_whitespaces = true,
       escape_whitespaces = true;
};

bool read_piece(std::string_view message, StoredPiece& piece) {
  ProtoReader reader(message);
  while (reader.next()) {
    if (reader.field == 1 && reader.wire == kBytes) piece.text = reader.bytes;
    if (reader.field == 2 && reader.wire == kFixed32) std::memcpy(&piece.score, reader.bytes.data(), 4);
    if (reader.field == 3 && reader.wire == kVarint) piece.type = reader.number;
  }
  return !reader.is_damaged;
}

bool read_trainer(std::string_view message, StoredModel& model) {
  ProtoReader reader(message);
  while (reader.next()) {
    if (reader.wire != kVarint) continue;
    if (reader.field == 3) model.model_type = reader.number;
    if (reader.field == 24) model.treat_whitespace_as_suffix = reader.number != 0;
  }
  return !reader.is_damaged;
}

bool read_normalizer(std::string_view message, StoredModel& model) {
  ProtoReader reader(message);
  while (reader.next()) {
    if (reader.wire == kBytes && reader.field == 2) model.has_charsmap = !reader.bytes.empty();
    if (reader.wire != kVarint) continue;
    if (reader.field == 3) model.add_dummy_prefix = reader.number != 0;
    if (reader.field == 4) model.remove_extra_whitespaces = reader.number != 0;
    if (reader.field == 5) model.escape_whitespaces = reader.number != 0;
  }
  return !reader.is_damaged;
}

Result<StoredModel> read_model(std::string_view bytes, const std::string& where) {
  if (bytes.size() > kMaxModelBytes)
    return error(Code::limit, where, ": ", bytes.size(), " bytes, expected at most ", kMaxModelBytes)
        .with_room(bytes.size(), kMaxModelBytes);
  StoredModel model;
  ProtoReader reader(bytes);
  bool is_sound = true;
  while (is_sound && reader.next()) {
    if (reader.wire != kBytes) continue;
    if (reader.field == 1) {
      if (model.pieces.size() == kMaxPieces)
        return error(Code::limit, where, ": more than ", kMaxPieces, " pieces")
            .with_room(kMaxPieces + 1, kMaxPieces);
      is_sound = read_piece(reader.bytes, model.pieces.emplace_back());
    }
    if (reader.field == 2) is_sound = read_trainer(reader.bytes, model);
    if (reader.field == 3) is_sound = read_normalizer(reader.bytes, model);
  }
  if (!is_sound || reader.is_damaged || model.pieces.empty())
    return error(Code::corrupt, where, ": not a SentencePiece model, or damaged")
        .with_fix(Fix::download_again);

  if (model.model_type != 2)
    return error(Code::unsupported, where, ": model type ", model.model_type, ", expected 2 (BPE)");
  const char* obstacle = model.has_charsmap                 ? "normalises text"
                         : model.add_dummy_prefix           ? "puts a space in front of text"
                         : model.remove_extra_whitespaces   ? "removes spaces"
                         : !model.escape_whitespaces        ? "does not mark spaces"
                         : model.treat_whitespace_as_suffix ? "has spaces as suffixes"
                                                            : nullptr;
  if (obstacle)
    return error(Code::unsupported, where, ": it ", obstacle, ", so text would not come back as it was");
  return model;
}

// The checked parts and nothing else: no self tests, no normalisation tables, no fields that we do not know.
std::string write_model(const StoredModel& model) {
  std::string out, message;
  for (const StoredPiece& piece : model.pieces) {
    message.clear();
    write_bytes(message, 1, piece.text);
    write_float(message, 2, piece.score);
    write_number(message, 3, piece.type);
    write_bytes(out, 1, message);
  }
  message.clear();
  write_number(message, 3, model.model_type);
  write_number(message, 35, 1);  // byte_fallback
  write_bytes(out, 2, message);
  message.clear();
  write_bytes(message, 1, "identity");
  write_number(message, 3, 0);  // add_dummy_prefix
  write_number(message, 4, 0);  // remove_extra_whitespaces
  write_number(message, 5, 1);  // escape_whitespaces
  write_bytes(out, 3, message);
  return out;
}

// The byte that a piece named <0xNN> stands for, or -1.
int byte_of(std::string_view name) {
  if (name.size() != 6 || name.substr(0, 3) != "<0x" || name[5] != '>') return -1;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  };
  const int high = digit(name[3]), low = digit(name[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

size_t code_point_bytes(char lead) {
  const uint8_t byte = uint8_t(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// The bytes of the code point that valid `text` begins with, as one number; a space is its marker.
uint32_t first_code_point(std::string_view text) {
  if (text[0] == ' ') text = kSpaceMarker;
  uint32_t value = 0;
  for (const char c : text.substr(0, code_point_bytes(text[0]))) value = value << 8 | uint8_t(c);
  return value;
}

}  // namespace

// --- the tokenizer -------------------------------------------------------------------------------

SentencePieceTokenizer::SentencePieceTokenizer()
    : processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {}
SentencePieceTokenizer::~SentencePieceTokenizer() = default;

Result<std::shared_ptr<const Tokenizer>> SentencePieceTokenizer::from_bytes(std::string_view bytes,
                                                                            const std::string& where) {
  DSA_ASSIGN(const StoredModel model, read_model(bytes, where));
  std::shared_ptr<SentencePieceTokenizer> tokenizer(new SentencePieceTokenizer());
  DSA_TRY(tokenizer->add_pieces(where, model.pieces));
  const auto status = tokenizer->processor_->LoadFromSerializedProto(write_model(model));
  if (!status.ok()) return error(Code::model, where, ": ", status.message());
  return std::shared_ptr<const Tokenizer>(std::move(tokenizer));
}

Status SentencePieceTokenizer::add_pieces(const std::string& where, const std::vector<StoredPiece>& stored) {
  std::unordered_map<std::string_view, TokenId> ids;
  ids.reserve(stored.size());
  pieces_.reserve(stored.size());  // controls_ refers to texts in here
  byte_ids_.assign(256, -1);
  int num_unknown = 0;
  for (const StoredPiece& piece : stored) {
    const TokenId id = TokenId(pieces_.size());
    const auto name = [&] { return concat(where, ": piece ", id, " ", in_quotes(piece.text)); };
    if (piece.text.empty()) return error(Code::model, name(), " is empty");
    if (piece.text.size() > kMaxPieceBytes)
      return error(Code::limit, name(), " has ", piece.text.size(), " bytes, expected at most ",
                   kMaxPieceBytes);
    if (find_invalid_utf8(piece.text) != std::string_view::npos)
      return error(Code::model, name(), " is not UTF-8");
    if (!std::isfinite(piece.score)) return error(Code::model, name(), " has a score that is not finite");
    const auto [twin, is_new] = ids.try_emplace(piece.text, id);
    if (!is_new) return error(Code::model, name(), " is also piece ", twin->second);

    switch (piece.type) {
      case StoredPiece::normal: {
        std::string text;
        uint32_t previous = 0;
        for (std::string_view rest = piece.text; !rest.empty();) {
          const std::string_view unit = rest.substr(0, code_point_bytes(rest[0]));
          text += unit == kSpaceMarker ? std::string_view(" ") : unit;
          const uint32_t code_point = first_code_point(unit);
          if (unit.data() != piece.text.data()) pairs_.push_back(uint64_t(previous) << 32 | code_point);
          previous = code_point;
          rest.remove_prefix(unit.size());
        }
        pieces_.push_back({std::move(text), false});
        break;
      }
      case StoredPiece::user_defined:
        // Taken out of the text before anything is merged. A single character, such as a line feed, is harmless;
        // a longer one might be a marker that user text must not be able to write.
        if (piece.text.size() != code_point_bytes(piece.text[0]))
          return error(Code::unsupported, name(),
                       " is user-defined and longer than one character, which we do not read");
        pieces_.push_back({piece.text == kSpaceMarker ? " " : std::string(piece.text), false});
        break;
      case StoredPiece::byte: {
        const int byte = byte_of(piece.text);
        if (byte < 0) return error(Code::model, name(), " is no name of a byte, expected <0x00> to <0xFF>");
        byte_ids_[size_t(byte)] = id;
        pieces_.push_back({std::string(1, char(uint8_t(byte))), false});
        break;
      }
      case StoredPiece::unknown: ++num_unknown; [[fallthrough]];
      case StoredPiece::control:
        // The library would take such a name for a character of the text.
        if (piece.text.size() <= code_point_bytes(piece.text[0]))
          return error(Code::model, name(), " is a control token with a name of one character");
        pieces_.push_back({std::string(piece.text), true});
        controls_.add(pieces_.back().text, id);
        break;
      default:
        // Unused pieces need other merges.
        return error(Code::unsupported, name(), " has type ", piece.type, ", which we do not read");
    }
  }
  if (num_unknown != 1) return error(Code::model, where, ": ", num_unknown, " unknown pieces, expected 1");
  for (int byte = 0; byte < 256; ++byte)
    if (byte_ids_[size_t(byte)] < 0)
      return error(Code::unsupported, where, ": no piece for byte ", byte,
                   ", so not every text can be written");

  // Without it the library would write a space as the bytes of its marker.
  const auto space = ids.find(kSpaceMarker);
  if (space == ids.end() || stored[size_t(space->second)].type != StoredPiece::normal)
    return error(Code::unsupported, where, ": no piece for a space, so not every text can be written");

  std::sort(pairs_.begin(), pairs_.end());
  pairs_.erase(std::unique(pairs_.begin(), pairs_.end()), pairs_.end());
  return Status::ok();
}

Result<std::vector<TokenId>> SentencePieceTokenizer::encode(std::string_view text) const {
  DSA_TRY(check_utf8(text));
  std::vector<TokenId> ids;
  DSA_TRY(encode_valid(text, ids));
  return ids;
}

Status SentencePieceTokenizer::encode_valid(std::string_view text, std::vector<TokenId>& ids) const {
  std::vector<int> chunk_ids;
  while (!text.empty()) {
    // The space marker itself, as text, can only be written in bytes: its piece means a space.
    if (text.substr(0, kSpaceMarker.size()) == kSpaceMarker) {
      for (const char c : kSpaceMarker) ids.push_back(byte_ids_[uint8_t(c)]);
      text.remove_prefix(kSpaceMarker.size());
      continue;
    }
    const std::string_view chunk = text.substr(0, find_cut(text));
    const auto status = processor_->Encode({chunk.data(), chunk.size()}, &chunk_ids);
    if (!status.ok()) return error(Code::internal, "sentencepiece: ", status.message());
    ids.insert(ids.end(), chunk_ids.begin(), chunk_ids.end());
    text.remove_prefix(chunk.size());
  }
  return Status::ok();
}

// Where to cut valid text so that its parts give the ids of the whole: between two code points that stand
// side by side in no piece, as merges never reach across. If a text has no such place within kMaxChunkBytes
// it is cut there, so that memory stays bounded; it still decodes to itself.
size_t SentencePieceTokenizer::find_cut(std::string_view text) const {
  uint32_t previous = 0;
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    if (at > 0 && rest.substr(0, kSpaceMarker.size()) == kSpaceMarker) return at;
    const uint32_t code_point = first_code_point(rest);
    if (at >= kMaxChunkBytes) return at;
    if (at >= kChunkBytes &&
        !std::binary_search(pairs_.begin(), pairs_.end(), uint64_t(previous) << 32 | code_point))
      return at;
    previous = code_point;
    at += code_point_bytes(rest[0]);
  }
  return text.size();
}

Result<std::vector<TokenId>> SentencePieceTokenizer::encode_markup(std::string_view text) const {
  DSA_TRY(check_utf8(text));
  std::vector<TokenId> ids;
  DSA_TRY(encode_around(controls_, text, ids, [this](std::string_view part, std::vector<TokenId>& out) {
    return encode_valid(part, out);
  }));
  return ids;
}

std::string_view SentencePieceTokenizer::bytes(TokenId id) const {
  if (id < 0 || id >= vocab_size() || pieces_[size_t(id)].is_control) return {};
  return pieces_[size_t(id)].text;
}

bool SentencePieceTokenizer::is_control(TokenId id) const {
  return id >= 0 && id < vocab_size() && pieces_[size_t(id)].is_control;
}

std::string_view SentencePieceTokenizer::control_name(TokenId id) const {
  return is_control(id) ? std::string_view(pieces_[size_t(id)].text) : std::string_view();
}

}  // namespace dsa
