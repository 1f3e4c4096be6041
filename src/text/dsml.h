// text/dsml.h: how DeepSeek V3.2 writes tools: as text between tags with the word ｜DSML｜, which may be a control token.
//
//   ...Wait.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="add">\n
//   <｜DSML｜parameter name="a" string="false">1</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>
//   \n\n<function_results>\n<result>2</result>\n</function_results>\n\n
//
// Values of string="true" are bare text, others JSON.
#pragma once

#include <span>
#include <string>

#include "text/chat_writer.h"

namespace dsa {

// Tokens that the text of the tags may contain; dsml -1: it is ordinary text.
struct DsmlMarkers {
  TokenId dsml = -1, end = -1, think = -1, end_think = -1;
};

void write_dsml_tools(ChatWriter& writer, const DsmlMarkers& markers, std::span<const Tool> tools);
void write_dsml_calls(ChatWriter& writer, const DsmlMarkers& markers, const std::vector<ToolCall>& calls);

// Arguments are told as they come, as JSON. What might begin a tag waits until it is clear.
std::unique_ptr<AnswerReader> dsml_reader(std::shared_ptr<const Tokenizer> tokenizer,
                                          const DsmlMarkers& markers, bool in_reasoning);

}  // namespace dsa
