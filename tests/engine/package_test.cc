// Opening and loading real folders through the C interface: what a folder may lack, and what it may not contain.
#include "engine/package.h"

#include <doctest/doctest.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "support/byte_level.h"
#include "support/fake_host.h"
#include "support/temp_folder.h"

using namespace dsa;
using namespace dsa::fake;
using dsa::test::TempFolder;

namespace {

const std::string kModel = DSA_SOURCE_DIR "/tests/golden/kimi_k31/model-mxfp4";

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

// The fixture with one file more, or another one.
struct Folder : TempFolder {
  Folder() {
    write("config.json", read_file(kModel + "/config.json"));
    link(kModel + "/model.safetensors", "model.safetensors");
  }
};

struct Opened {
  dsa_runtime* runtime = nullptr;
  dsa_package* package = nullptr;
  dsa_status status;

  explicit Opened(const std::string& path) {
    REQUIRE(dsa_runtime_create(nullptr, &runtime) == DSA_OK);
    dsa_source source = DSA_INIT(dsa_source);
    source.path = {path.data(), path.size()};
    status = dsa_package_open(runtime, &source, &package);
    CHECK((package != nullptr) == (status == DSA_OK));
  }
  ~Opened() {
    dsa_package_release(package);
    dsa_runtime_release(runtime);
  }
};

}  // namespace

TEST_SUITE("engine/package") {
  TEST_CASE("a folder without a tokenizer opens and runs raw tokens; text is unsupported") {
    Opened opened(kModel);
    REQUIRE(opened.status == DSA_OK);
    dsa_package_info info = DSA_INIT(dsa_package_info);
    CHECK(dsa_package_get_info(opened.package, &info) == DSA_OK);
    CHECK(std::string(info.name.ptr) == "model-mxfp4");
    CHECK(std::string(info.family.ptr) == "kimi_k3");
    CHECK(std::string(info.content_id.ptr).starts_with("headers:"));
    CHECK(info.weight_bytes > info.expert_bytes);
    CHECK(info.expert_bytes > 0);
    CHECK(info.layers == 8);
    CHECK(info.has_reasoning == 0);
    dsa_str value{};
    CHECK(dsa_package_get_meta(opened.package, "text_config.hidden_size", &value) == DSA_OK);
    CHECK(std::stoi(value.ptr) > 0);
    CHECK(dsa_package_get_meta(opened.package, "no such key", &value) == DSA_ERROR_NOT_FOUND);

    std::vector<dsa_progress> seen;
    const auto note = [](void* ud, const dsa_progress* p) -> int32_t {
      return static_cast<std::vector<dsa_progress>*>(ud)->push_back(*p), DSA_CONTINUE;
    };
    dsa_model* model = nullptr;
    REQUIRE(dsa_model_load(opened.package, nullptr, nullptr, note, &seen, &model) == DSA_OK);
    REQUIRE(!seen.empty());
    for (size_t i = 1; i < seen.size(); ++i) CHECK(seen[i].done >= seen[i - 1].done);
    CHECK(seen.back().done == seen.back().total);
    dsa_session* session = nullptr;
    REQUIRE(dsa_session_create(model, nullptr, &session) == DSA_OK);
    CHECK(dsa_session_ask(session, "hi", DSA_NTS, nullptr, nullptr) == DSA_ERROR_UNSUPPORTED);
    size_t count = 0;
    CHECK(dsa_model_tokenize(model, "x", 1, 0, nullptr, 0, &count) == DSA_ERROR_UNSUPPORTED);
    dsa_prompt* prompt = nullptr;
    REQUIRE(dsa_prompt_create(opened.runtime, &prompt) == DSA_OK);
    const dsa_token tokens[] = {3, 5, 8, 13};
    CHECK(dsa_prompt_tokens(prompt, tokens, 4) == DSA_OK);
    dsa_run_options options = DSA_INIT(dsa_run_options);
    options.max_tokens = 6;
    dsa_result result = DSA_INIT(dsa_result);
    CHECK(dsa_session_generate(session, prompt, &options, nullptr, nullptr, &result) == DSA_OK);
    CHECK(result.output_tokens > 0);
    CHECK(info_of(session).num_tokens == 4 + result.output_tokens);
    CHECK(dsa_model_close(model, DSA_FOREVER) == DSA_OK);
    dsa_prompt_release(prompt);
    dsa_session_release(session);
    dsa_model_release(model);
  }

  TEST_CASE("a chat template that we do not know is refused, not guessed") {
    const std::string added =
        R"({"id": 368, "content": "[BOS]"}, {"id": 370, "content": "<|end_of_msg|>"},
           {"id": 371, "content": "<|open|>"}, {"id": 372, "content": "<|close|>"}, {"id": 373, "content": "<|sep|>"})";
    const std::string tokenizer =
        "{\"added_tokens\": [" + added +
        R"(], "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "model": {"type": "BPE", "merges": [],
           "vocab": {)" +
        dsa::test::byte_level_vocab() + "}}}";
    // What asking comes to: the status, and what the package promises.
    const auto ask = [&](const std::string& name, const std::string& content) {
      Folder folder;
      folder.write("tokenizer.json", tokenizer);
      if (!name.empty()) folder.write(name, content);
      Opened opened(folder.path());
      if (opened.status < 0) return opened.status;
      dsa_package_info info = DSA_INIT(dsa_package_info);
      CHECK(dsa_package_get_info(opened.package, &info) == DSA_OK);
      dsa_model* model = nullptr;
      REQUIRE(dsa_model_load(opened.package, nullptr, nullptr, nullptr, nullptr, &model) == DSA_OK);
      dsa_session* session = nullptr;
      REQUIRE(dsa_session_create(model, nullptr, &session) == DSA_OK);
      dsa_prompt* prompt = nullptr;
      REQUIRE(dsa_prompt_create(opened.runtime, &prompt) == DSA_OK);
      CHECK(dsa_prompt_message(prompt, DSA_ROLE_USER) == DSA_OK);
      CHECK(dsa_prompt_text(prompt, "Hi", DSA_NTS) == DSA_OK);
      dsa_run_options options = DSA_INIT(dsa_run_options);
      options.max_tokens = 2;
      const dsa_status status = dsa_session_generate(session, prompt, &options, nullptr, nullptr, nullptr);
      CHECK(info.has_tools == (status == DSA_OK ? 1u : 0u));
      CHECK(info.has_reasoning == info.has_tools);
      CHECK(dsa_prompt_clear(prompt) == DSA_OK);
      const dsa_token tokens[] = {72, 105};
      CHECK(dsa_prompt_tokens(prompt, tokens, 2) == DSA_OK);  // no template is needed
      if (status < 0) {
        const std::string why = last_error().message.ptr;
        CHECK(why.find("chat template") != std::string::npos);
        CHECK(dsa_session_generate(session, prompt, &options, nullptr, nullptr, nullptr) == DSA_OK);
      }
      dsa_prompt_release(prompt);
      dsa_session_release(session);
      dsa_model_release(model);
      return status;
    };
    const std::string known = "{{ '<|open|>message<|sep|>' }} <|close|> <|end_of_msg|>";
    CHECK(ask("", "") == DSA_OK);
    CHECK(ask("chat_template.jinja", known) == DSA_OK);
    CHECK(ask("chat_template.jinja", "<|im_start|>user") == DSA_ERROR_UNSUPPORTED);
    CHECK(ask("chat_template.jinja", known + "<|im_start|>") == DSA_ERROR_UNSUPPORTED);
    const auto config = [](const Json& value) { return Json{{"chat_template", value}}.dump(); };
    CHECK(ask("tokenizer_config.json", config(known)) == DSA_OK);
    CHECK(ask("tokenizer_config.json", config(nullptr)) == DSA_OK);
    CHECK(ask("tokenizer_config.json", config("{{ messages }}")) == DSA_ERROR_UNSUPPORTED);
    const Json named = {{"name", "default"}, {"template", known}},
               other = {{"name", "rag"}, {"template", "x"}};
    CHECK(ask("tokenizer_config.json", config(Json::array({other, named}))) == DSA_OK);
    CHECK(ask("tokenizer_config.json", config(Json::array({other}))) == DSA_ERROR_MODEL);
    CHECK(ask("tokenizer_config.json", config(3)) == DSA_ERROR_MODEL);
    CHECK(ask("chat_template.jinja", std::string(2 << 20, ' ')) == DSA_ERROR_LIMIT);
  }

  TEST_CASE("a load is cancelled by its progress callback") {
    Opened opened(kModel);
    REQUIRE(opened.status == DSA_OK);
    const auto load = [&](dsa_progress_fn progress) {
      dsa_model* model = nullptr;
      const dsa_status status = dsa_model_load(opened.package, nullptr, nullptr, progress, nullptr, &model);
      CHECK(model == nullptr);
      return status;
    };
    CHECK(load([](void*, const dsa_progress*) -> int32_t { return DSA_STOP_KEEP; }) == DSA_ERROR_CANCELLED);
    CHECK(load([](void*, const dsa_progress*) -> int32_t { return DSA_STOP_ROLLBACK; }) ==
          DSA_ERROR_CANCELLED);
    CHECK(load([](void*, const dsa_progress*) -> int32_t { return -3; }) == DSA_ERROR_CALLBACK);
    CHECK(last_error().native == -3);
    CHECK(load([](void*, const dsa_progress*) -> int32_t { throw 1; }) == DSA_ERROR_CALLBACK);
  }

  TEST_CASE("hostile folders: typed errors, and nothing is opened") {
    CHECK(Opened("/nowhere").status == DSA_ERROR_NOT_FOUND);
    CHECK(Opened("").status == DSA_ERROR_ARGUMENT);
    CHECK(Opened(std::string("/tmp\0x", 6)).status == DSA_ERROR_ARGUMENT);
    CHECK(Opened("/etc/hostname").status < 0);
    const auto with = [](const std::string& name, const std::string& content) {
      Folder folder;
      std::filesystem::remove(folder.file(name));
      folder.write(name, content);
      const Opened opened(folder.path());
      INFO(name, " ", content.substr(0, 40));
      if (opened.status < 0) CHECK(last_error().message.len > 0);
      return opened.status;
    };
    CHECK(with("config.json", "") == DSA_ERROR_JSON);
    CHECK(with("config.json", "{\"architectures\": [") == DSA_ERROR_JSON);
    CHECK(with("config.json", "[1, 2]") < 0);
    CHECK(with("config.json", "{}") < 0);
    CHECK(with("config.json", std::string(100000, '[')) == DSA_ERROR_LIMIT);
    CHECK(with("config.json", "{\"architectures\": [\"SomethingElse\"]}") == DSA_ERROR_UNSUPPORTED);
    CHECK(with("model.safetensors", "") < 0);
    CHECK(with("model.safetensors", std::string(8, '\xff')) < 0);
    CHECK(with("model.safetensors", std::string("\x02\0\0\0\0\0\0\0{}", 10)) ==
          DSA_OK);  // load finds the tensors missing
    CHECK(with("tokenizer.model", "not a model") < 0);
    CHECK(with("generation_config.json", "[]") == DSA_ERROR_MODEL);
    CHECK(with("generation_config.json", "{") == DSA_ERROR_JSON);
    CHECK(with("generation_config.json", "{\"temperature\": -1}") == DSA_ERROR_MODEL);
    CHECK(with("generation_config.json", "{\"temperature\": NaN}") < 0);
    CHECK(with("generation_config.json", "{\"temperature\": \"hot\"}") < 0);
    CHECK(with("generation_config.json", "{\"eos_token_id\": 999999999}") < 0);
    CHECK(with("generation_config.json", "{\"eos_token_id\": [1, -2]}") < 0);
    CHECK(with("tokenizer_config.json", "3") == DSA_ERROR_MODEL);
    CHECK(with("tokenizer_config.json", "{\"thinking\": \"yes\"}") < 0);

    Folder folder;
    std::filesystem::remove(folder.file("model.safetensors"));
    CHECK(Opened(folder.path()).status == DSA_ERROR_NOT_FOUND);
    folder.write("model.safetensors", std::string("\x02\0\0\0\0\0\0\0{}", 10));
    const Opened empty(folder.path());
    REQUIRE(empty.status == DSA_OK);
    dsa_model* model = nullptr;
    CHECK(dsa_model_load(empty.package, nullptr, nullptr, nullptr, nullptr, &model) == DSA_ERROR_MODEL);
    CHECK(model == nullptr);
  }

  TEST_CASE("end tokens come from every source, sampling from generation_config.json, else it is greedy") {
    const auto runtime = std::make_shared<Runtime>(Runtime::Options());
    const auto open = [&](const std::string& generation) {
      Folder folder;
      if (!generation.empty()) folder.write("generation_config.json", generation);
      auto package = Package::open(runtime, folder.path());
      REQUIRE(package.is_ok());
      return package.value();
    };
    const auto has = [](const Package& package, TokenId id) {
      return std::find(package.end_tokens().begin(), package.end_tokens().end(), id) !=
             package.end_tokens().end();
    };
    const auto plain = open("");
    CHECK(plain->sampling().temperature == 0);
    CHECK(plain->thinking());
    for (const int32_t id : plain->config().eos_tokens) CHECK(has(*plain, id));
    CHECK(has(*open("{\"eos_token_id\": 7}"), 7));
    const auto both = open("{\"eos_token_id\": [7, 9]}");
    CHECK(has(*both, 7));
    CHECK(has(*both, 9));
    for (const int32_t id : both->config().eos_tokens) CHECK(has(*both, id));
    CHECK(both->sampling().temperature == 0);
    CHECK(open("{\"do_sample\": true}")->sampling().temperature == 1);
    CHECK(open("{\"do_sample\": false, \"temperature\": 0.7}")->sampling().temperature == 0);
    const auto advised = open("{\"temperature\": 0.6, \"top_p\": 0.95, \"top_k\": 20, \"min_p\": 0.1}");
    CHECK(advised->sampling().temperature == 0.6f);
    CHECK(advised->sampling().top_p == 0.95f);
    CHECK(advised->sampling().top_k == 20);
    CHECK(advised->sampling().min_p == 0.1f);
  }
}
