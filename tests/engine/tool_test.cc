// Tools through the C interface: declarations, calls in answers, results, the finish reason.
#include <doctest/doctest.h>

#include "support/fake_host.h"

using namespace dsa;
using namespace dsa::fake;

namespace {

std::vector<TokenId> script(const std::string& markup) {
  return FakeTokenizer().encode_markup(markup).value();
}

dsa_tool_call call_of(dsa_run* run, uint32_t index) {
  dsa_tool_call call = DSA_INIT(dsa_tool_call);
  CHECK(dsa_run_get_tool_call(run, index, &call) == DSA_OK);
  CHECK(call.arguments.ptr[call.arguments.len] == 0);
  return call;
}
std::string text_of(const dsa_str& text) { return {text.ptr, text.len}; }

std::string rendered(Host& host, const dsa_prompt* prompt) {
  char text[4096];
  size_t len = 0;
  CHECK(dsa_prompt_render(prompt, host.model, text, sizeof text, &len) == DSA_OK);
  return {text, len};
}

}  // namespace

TEST_SUITE("engine/tools") {
  TEST_CASE("a call is told by its events and read whole") {
    Host host;
    host.control->script["q"] = script(
        "Hm<call>add<arguments>{\"a\": 1, \"b\": \"\xC3\xA9\"}<end call><call>sub<arguments>{}<end call>");
    dsa_session* session = host.session();
    dsa_run* run = host.start(session, "q");
    dsa_tool_call call = DSA_INIT(dsa_tool_call);
    const Heard heard = drain(run);
    CHECK(heard.answer() == "Hm");
    CHECK(heard.text[DSA_CHANNEL_TOOL].empty());
    REQUIRE(heard.calls.size() == 2);
    CHECK(heard.calls[0] == std::pair<std::string, std::string>("add", "{\"a\": 1, \"b\": \"\xC3\xA9\"}"));
    CHECK(heard.calls[1] == std::pair<std::string, std::string>("sub", "{}"));
    CHECK(heard.finish == DSA_FINISH_TOOL);
    CHECK(heard.num_tokens == result_of(run).output_tokens);
    CHECK(result_of(run).tool_calls == 2);
    CHECK(result_of(run).stop_index == kEndTurn);
    call = call_of(run, 0);
    CHECK(text_of(call.name) == "add");
    CHECK(text_of(call.arguments) == heard.calls[0].second);
    CHECK(call.complete == 1);
    CHECK(call.valid == 1);
    CHECK(text_of(call.id) != text_of(call_of(run, 1).id));
    CHECK(dsa_run_get_tool_call(run, 2, &call) == DSA_ERROR_ARGUMENT);

    // The result names the call by its id; the session knows which tool that was.
    dsa_prompt* prompt = nullptr;
    REQUIRE(dsa_prompt_create(host.runtime, &prompt) == DSA_OK);
    const std::string id = text_of(call_of(run, 1).id);
    CHECK(dsa_prompt_tool_result(prompt, id.c_str(), "7", DSA_NTS) == DSA_OK);
    host.control->script["sub=7"] = bytes_of("seven");
    dsa_run* next = nullptr;
    REQUIRE(dsa_run_start(session, prompt, nullptr, &next) == DSA_OK);
    const Heard answer = drain(next);
    CHECK(answer.answer() == "seven");
    CHECK(answer.finish == DSA_FINISH_STOP);
    CHECK(result_of(next).tool_calls == 0);
    dsa_run_release(next);
    dsa_run_release(run);
    dsa_prompt_release(prompt);
    dsa_session_release(session);
  }

  TEST_CASE("arguments are checked, and calls that were cut off say so") {
    Host host;
    host.control->script["bad"] = script("<call>f<arguments>{\"a\": <end call>");
    host.control->script["list"] = script("<call>f<arguments>[1]<end call>");
    host.control->script["twice"] = script("<call>f<arguments>{\"a\": 1, \"a\": 2}<end call>");
    host.control->script["cut"] = script("<call>f<arguments>{\"a\": 1}");
    host.control->script["new"] = script("<call>f<arguments>{<call>g<arguments>{}<end call>");
    host.control->script["name"] = script("<call>f\xFF<arguments>{}<end call>");
    const auto check = [&](const std::string& question, std::vector<std::pair<int, int>> expected, int finish,
                           uint32_t max_tokens = 0) {
      dsa_run_options options = DSA_INIT(dsa_run_options);
      options.max_tokens = max_tokens;
      dsa_session* session = host.session();
      dsa_run* run = host.start(session, question, &options);
      const Heard heard = drain(run);
      INFO(question);
      CHECK(heard.finish == finish);
      REQUIRE(result_of(run).tool_calls == expected.size());
      CHECK(heard.calls.size() == expected.size());
      for (uint32_t i = 0; i < expected.size(); ++i) {
        CHECK(call_of(run, i).complete == expected[i].first);
        CHECK(call_of(run, i).valid == expected[i].second);
        CHECK(text_of(call_of(run, i).arguments) == heard.calls[i].second);
      }
      dsa_run_release(run);
      dsa_session_release(session);
      return heard;
    };
    check("bad", {{1, 0}}, DSA_FINISH_TOOL);
    check("list", {{1, 0}}, DSA_FINISH_TOOL);
    check("twice", {{1, 0}}, DSA_FINISH_TOOL);
    check("cut", {{0, 0}}, DSA_FINISH_STOP);
    check("cut", {{0, 0}}, DSA_FINISH_LENGTH, 6);
    check("new", {{0, 0}, {1, 1}}, DSA_FINISH_TOOL);
    CHECK(check("name", {{1, 1}}, DSA_FINISH_TOOL).calls[0].first == "f\xEF\xBF\xBD");
  }

  TEST_CASE("before the end nothing is told") {
    Host host;
    host.control->script["q"] = script("<call>f<arguments>{}<end call>");
    host.control->shut();
    dsa_session* session = host.session();
    dsa_run* run = host.start(session, "q");
    dsa_tool_call call = DSA_INIT(dsa_tool_call);
    CHECK(dsa_run_get_tool_call(run, 0, &call) == DSA_PENDING);
    host.control->open();
    drain(run);
    CHECK(text_of(call_of(run, 0).name) == "f");
    dsa_run_release(run);
    dsa_session_release(session);
  }

  TEST_CASE("tools are declared in front of the messages, unless the answer must not call") {
    Host host;
    dsa_prompt* prompt = host.user("hi");
    const std::string without = rendered(host, prompt);
    CHECK(dsa_prompt_set_tools(prompt,
                               R"([{"name": "add"}, {"type": "function", "function": {"name": "sub"}}])",
                               DSA_NTS) == DSA_OK);
    CHECK(rendered(host, prompt) == "{add}{sub}" + without);
    CHECK(dsa_prompt_set_tools(prompt, R"([{"name": "mul"}])", DSA_NTS) == DSA_OK);
    CHECK(rendered(host, prompt) == "{mul}" + without);
    dsa_run_options options = DSA_INIT(dsa_run_options);
    for (const int32_t tools : {DSA_TOOLS_AUTO, DSA_TOOLS_NONE}) {
      options.tools = tools;
      dsa_session* session = host.session();
      dsa_run* run = nullptr;
      REQUIRE(dsa_run_start(session, prompt, &options, &run) == DSA_OK);
      drain(run);
      CHECK(result_of(run).prompt_tokens == without.size() - strlen("<user><end><assistant>") + 3 +
                                                (tools == DSA_TOOLS_AUTO ? strlen("{mul}") : 0));
      dsa_run_release(run);
      dsa_session_release(session);
    }
    // A failure keeps what was there.
    const struct {
      const char* json;
      dsa_status status;
    } wrong[] = {{"[", DSA_ERROR_JSON},
                 {"{}", DSA_ERROR_JSON},
                 {"[{\"name\": 3}]", DSA_ERROR_JSON},
                 {"[{\"type\": \"x\", \"name\": \"f\"}]", DSA_ERROR_UNSUPPORTED},
                 {"[{\"name\": \"f\"}, {\"name\": \"f\"}]", DSA_ERROR_ARGUMENT},
                 {"\xFF", DSA_ERROR_UTF8}};
    for (const auto& each : wrong) {
      CHECK(dsa_prompt_set_tools(prompt, each.json, DSA_NTS) == each.status);
      CHECK(rendered(host, prompt) == "{mul}" + without);
    }
    CHECK(dsa_prompt_clear(prompt) == DSA_OK);
    CHECK(dsa_prompt_add_json(
              prompt, R"({"tools": [{"name": "add"}], "messages": [{"role": "user", "content": "hi"}]})",
              DSA_NTS) == DSA_OK);
    CHECK(rendered(host, prompt) == "{add}" + without);
    dsa_prompt_release(prompt);
  }

  TEST_CASE("earlier calls and their results") {
    Host host;
    dsa_prompt* prompt = host.user("q");
    CHECK(dsa_prompt_tool_call(prompt, "1", "add", "{}", DSA_NTS) == DSA_ERROR_STATE);
    CHECK(dsa_prompt_reasoning(prompt, "hm", DSA_NTS) == DSA_ERROR_STATE);
    const std::string before = rendered(host, prompt);
    CHECK(dsa_prompt_message(prompt, DSA_ROLE_ASSISTANT) == DSA_OK);
    CHECK(dsa_prompt_reasoning(prompt, "hm", DSA_NTS) == DSA_OK);
    CHECK(dsa_prompt_reasoning(prompt, "h\xFF", DSA_NTS) == DSA_ERROR_UTF8);
    CHECK(dsa_prompt_tool_call(prompt, "1", "add", "{\"a\": 1}", DSA_NTS) == DSA_OK);
    CHECK(dsa_prompt_tool_call(prompt, nullptr, "sub", "{}", DSA_NTS) == DSA_OK);
    CHECK(dsa_prompt_tool_call(prompt, "1", "", "{}", DSA_NTS) == DSA_ERROR_ARGUMENT);
    CHECK(dsa_prompt_tool_call(prompt, "1", nullptr, "{}", DSA_NTS) == DSA_ERROR_ARGUMENT);
    CHECK(dsa_prompt_tool_call(prompt, "1", "f", "[]", DSA_NTS) == DSA_ERROR_JSON);
    CHECK(dsa_prompt_tool_call(prompt, "1", "f", "{\"a\" 1}", DSA_NTS) == DSA_ERROR_JSON);
    CHECK(last_error().position > 0);
    CHECK(dsa_prompt_tool_result(prompt, "", "3", DSA_NTS) == DSA_ERROR_ARGUMENT);
    CHECK(dsa_prompt_tool_result(prompt, "1", "<end>3", DSA_NTS) == DSA_OK);
    CHECK(rendered(host, prompt) ==
          before.substr(0, before.size() - strlen("<assistant>")) +
              "<assistant><call>add<arguments>{\"a\": 1}<end call><call>sub<arguments>{}<end call>"
              "<end><user>add=<end>3<end><assistant>");
    dsa_prompt_release(prompt);
  }

  TEST_CASE("what a run that rolled back had called is forgotten") {
    Host host;
    host.control->script["q"] = script("<call>f<arguments>{}<end call>");
    dsa_session* session = host.session();
    dsa_run* run = host.start(session, "q");
    drain(run);
    const std::string id = text_of(call_of(run, 0).id);
    dsa_prompt* prompt = host.user("q");
    // The answer is taken back after its end.
    const auto stop = [](void*, const dsa_event* e) {
      return int32_t(e->type == DSA_EVENT_DONE ? DSA_STOP_ROLLBACK : DSA_CONTINUE);
    };
    CHECK(dsa_session_generate(session, prompt, nullptr, stop, nullptr, nullptr) == DSA_ERROR_CANCELLED);
    CHECK(dsa_prompt_clear(prompt) == DSA_OK);
    CHECK(dsa_prompt_tool_result(prompt, id.c_str(), "7", DSA_NTS) == DSA_OK);
    host.control->script["f=7"] = bytes_of("known");
    dsa_run* next = nullptr;
    REQUIRE(dsa_run_start(session, prompt, nullptr, &next) == DSA_OK);
    CHECK(drain(next).answer() == "known");
    dsa_run_release(next);
    dsa_run_release(run);
    dsa_prompt_release(prompt);
    dsa_session_release(session);
  }
}
