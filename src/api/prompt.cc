// api/prompt.cc: messages being put together.
#include "engine/prompt.h"

#include "api/handles.h"
#include "api/structs.h"

using namespace dsa;
using namespace dsa::api;

namespace {

dsa_status add_text(dsa_prompt* prompt, const char* text, size_t len, MessagePart::Kind kind) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(prompt, "prompt"));
    DSA_ASSIGN(const std::string_view view, read_text(text, len, "text"));
    return prompt->impl->add_text(view, kind);
  });
}

}  // namespace

dsa_status dsa_prompt_create(const dsa_runtime* runtime, dsa_prompt** out) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(runtime, "runtime"));
    DSA_TRY(check_pointer(out, "out"));
    *out = new dsa_prompt(std::make_shared<Prompt>(), runtime->impl);
    return DSA_OK;
  });
}

void dsa_prompt_release(dsa_prompt* prompt) { release(prompt); }

dsa_status dsa_prompt_clear(dsa_prompt* prompt) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(prompt, "prompt"));
    prompt->impl->clear();
    return DSA_OK;
  });
}

dsa_status dsa_prompt_message(dsa_prompt* prompt, int32_t role) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(prompt, "prompt"));
    DSA_TRY(check_constant(role, 4, "role"));
    prompt->impl->begin_message(Role(role));
    return DSA_OK;
  });
}

dsa_status dsa_prompt_text(dsa_prompt* prompt, const char* text, size_t len) {
  return add_text(prompt, text, len, MessagePart::Kind::text);
}

dsa_status dsa_prompt_markup(dsa_prompt* prompt, const char* text, size_t len) {
  return add_text(prompt, text, len, MessagePart::Kind::markup);
}

dsa_status dsa_prompt_tokens(dsa_prompt* prompt, const dsa_token* tokens, size_t n) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(prompt, "prompt"));
    if (n > 0) DSA_TRY(check_pointer(tokens, "tokens"));
    return prompt->impl->add_tokens({tokens, n});
  });
}

dsa_status dsa_prompt_add_json(dsa_prompt* prompt, const char* json, size_t len) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(prompt, "prompt"));
    DSA_ASSIGN(const std::string_view view, read_text(json, len, "json"));
    return prompt->impl->add_json(view);
  });
}

dsa_status dsa_prompt_reasoning(dsa_prompt* prompt, const char* text, size_t len) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(prompt, "prompt"));
    DSA_ASSIGN(const std::string_view view, read_text(text, len, "text"));
    return prompt->impl->add_reasoning(view);
  });
}

dsa_status dsa_prompt_tool_call(dsa_prompt* prompt, const char* id, const char* name,
                                const char* arguments_json, size_t len) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(prompt, "prompt"));
    DSA_TRY(check_pointer(name, "name"));
    DSA_ASSIGN(const std::string_view view, read_text(arguments_json, len, "arguments_json"));
    return prompt->impl->add_call(id != nullptr ? id : "", name, view);
  });
}

dsa_status dsa_prompt_tool_result(dsa_prompt* prompt, const char* id, const char* text, size_t len) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(prompt, "prompt"));
    DSA_TRY(check_pointer(id, "id"));
    DSA_ASSIGN(const std::string_view view, read_text(text, len, "text"));
    return prompt->impl->add_result(id, view);
  });
}

dsa_status dsa_prompt_set_tools(dsa_prompt* prompt, const char* json, size_t len) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(prompt, "prompt"));
    DSA_ASSIGN(const std::string_view view, read_text(json, len, "json"));
    return prompt->impl->set_tools(view);
  });
}

dsa_status dsa_prompt_image(dsa_prompt* prompt, const dsa_image* image) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(prompt, "prompt"));
    DSA_TRY(check_handle(image, "image"));
    return prompt->impl->add_image(image->impl);
  });
}

dsa_status dsa_prompt_bind_image(dsa_prompt* prompt, const char* name, const dsa_image* image) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(prompt, "prompt"));
    DSA_TRY(check_pointer(name, "name"));
    DSA_TRY(check_handle(image, "image"));
    return prompt->impl->bind_image(name, image->impl);
  });
}

dsa_status dsa_prompt_measure(const dsa_prompt* prompt, const dsa_model* model, const dsa_session* session,
                              int32_t feed, dsa_prompt_cost* out) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(prompt, "prompt"));
    DSA_TRY(check_handle(model, "model"));
    if (session != nullptr) DSA_TRY(check_handle(session, "session"));
    DSA_TRY(check_constant(feed, 2, "feed"));
    DSA_TRY(check_reserved(feed != DSA_FEED_APPEND, "DSA_FEED_FULL_HISTORY"));
    DSA_TRY(check_out(out, "dsa_prompt_cost"));
    if (session != nullptr && &session->impl->engine() != model->impl.get())
      return error(Code::argument, "the session belongs to another model").with_fix(Fix::input);
    DSA_ASSIGN(const PromptCost cost,
               model->impl->measure(*prompt->impl, session != nullptr ? session->impl.get() : nullptr));
    dsa_prompt_cost made{};
    made.num_tokens = cost.num_tokens;
    made.image_tokens = cost.image_tokens;
    made.text_tokens = cost.num_tokens - cost.image_tokens;
    made.fits = cost.fits ? 1 : 0;
    made.prefill_seconds = float(cost.prefill_seconds);
    write_out(made, out);
    return DSA_OK;
  });
}

dsa_status dsa_prompt_render(const dsa_prompt* prompt, const dsa_model* model, char* out, size_t cap,
                             size_t* len) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(prompt, "prompt"));
    DSA_TRY(check_handle(model, "model"));
    DSA_TRY(check_buffer(out, cap, len));
    const Engine& engine = *model->impl;
    DSA_TRY(engine.check_open());
    if (!engine.tokenizer()) return error(Code::unsupported, "the package has no tokenizer");
    DSA_ASSIGN(const Engine::Rendered rendered,
               engine.render(*prompt->impl, {.thinking = engine.default_thinking()}));
    std::string text;
    for (const TokenId id : rendered.tokens) {
      if (id >= engine.tokenizer()->vocab_size()) continue;
      text += engine.tokenizer()->is_control(id) ? engine.tokenizer()->control_name(id)
                                                 : engine.tokenizer()->bytes(id);
    }
    return fill(text.data(), text.size(), out, cap, len);
  });
}
