// Pictures in prompts: the same answer however they arrive, each encoded once, nothing lost on the way.
#include <doctest/doctest.h>

#include <thread>

#include "support/fake_host.h"

using namespace dsa;
using namespace dsa::fake;

namespace {

// One user message: text, pictures, text.
struct Shown {
  Shown(Host& host, const std::string& before, const std::vector<dsa_image*>& images,
        const std::string& after) {
    prompt = host.user(before);
    for (dsa_image* image : images) REQUIRE(dsa_prompt_image(prompt, image) == DSA_OK);
    REQUIRE(dsa_prompt_text(prompt, after.data(), after.size()) == DSA_OK);
  }
  ~Shown() { dsa_prompt_release(prompt); }
  dsa_prompt* prompt;
};

Heard show(dsa_session* session, const dsa_prompt* prompt, const dsa_run_options* options = nullptr) {
  dsa_run* run = nullptr;
  REQUIRE(dsa_run_start(session, prompt, options, &run) == DSA_OK);
  Heard heard = drain(run);
  dsa_run_release(run);
  return heard;
}

std::string answer(Host& host, const std::vector<dsa_image*>& images, const std::string& question = "what?") {
  dsa_session* session = host.session();
  const Shown shown(host, "look: ", images, question);
  const Heard heard = show(session, shown.prompt);
  CHECK(heard.finish == DSA_FINISH_STOP);
  dsa_session_release(session);
  return heard.answer();
}

}  // namespace

TEST_SUITE("engine/image") {
  TEST_CASE("IMG-10 LIN-05 the answer follows the picture, and is the same however steps split it") {
    std::string expected[2];
    for (const int step_tokens : {64, 1, 2, 3, 5, 7, 8, 13, 16, 17}) {
      Host host({}, [&](Control& c) { c.step_tokens = step_tokens; });
      dsa_image* const a = host.image(8, 6, 10);
      dsa_image* const b = host.image(8, 6, 11);
      const std::string first = answer(host, {a}), second = answer(host, {b}), third = answer(host, {a});
      CHECK(first != second);
      CHECK(first == third);
      if (expected[0].empty()) expected[0] = first, expected[1] = second;
      CHECK(first == expected[0]);
      CHECK(second == expected[1]);
      CHECK(host.stats().images_encoded == 2);
      CHECK(host.stats().image_hits == 1);
      dsa_image_release(a);
      dsa_image_release(b);
    }
  }

  TEST_CASE("an equal picture from elsewhere is the same picture") {
    Host host;
    dsa_image* const gray = host.image(4, 4, 200);
    std::vector<uint8_t> rgba(4 * 4 * 4, 200);
    for (size_t i = 3; i < rgba.size(); i += 4) rgba[i] = 255;
    dsa_pixels pixels = DSA_INIT(dsa_pixels);
    pixels.data = rgba.data();
    pixels.width = pixels.height = 4;
    pixels.format = DSA_PIXELS_BGRA8;
    int released = 0;
    pixels.release = [](void* ud, const void*) { ++*static_cast<int*>(ud); };
    pixels.release_ud = &released;
    dsa_image* color = nullptr;
    REQUIRE(dsa_image_from_pixels(host.runtime, &pixels, nullptr, &color) == DSA_OK);
    CHECK(released == 1);
    dsa_str ids[2];
    REQUIRE(dsa_image_get_id(gray, &ids[0]) == DSA_OK);
    REQUIRE(dsa_image_get_id(color, &ids[1]) == DSA_OK);
    CHECK(std::string(ids[0].ptr, ids[0].len) == std::string(ids[1].ptr, ids[1].len));
    CHECK(ids[0].len == 32);
    CHECK(answer(host, {gray}) == answer(host, {color}));
    CHECK(host.stats().images_encoded == 1);
    dsa_image_release(gray);
    dsa_image_release(color);
  }

  TEST_CASE("IMG-08 several pictures of different sizes keep their order, and share a pass") {
    Host host;
    dsa_image* const a = host.image(4, 2, 1);
    dsa_image* const b = host.image(8, 8, 2);
    const std::string ab = answer(host, {a, b});
    CHECK(host.control->passes == std::vector<size_t>{2});
    CHECK(answer(host, {b, a}) != ab);
    CHECK(answer(host, {a, b}) == ab);
    CHECK(answer(host, {a, a, b}) != ab);
    CHECK(host.stats().images_encoded == 2);
    CHECK(host.stats().image_hits == 6);
    dsa_image_release(a);
    dsa_image_release(b);
  }

  TEST_CASE("two sessions that ask at the same time encode a picture once") {
    Host host;
    dsa_image* const image = host.image(8, 8, 3);
    const Shown shown(host, "", {image}, "?");
    host.control->shut();
    dsa_session* sessions[2] = {host.session(), host.session()};
    dsa_run* runs[2];
    for (int i : {0, 1}) REQUIRE(dsa_run_start(sessions[i], shown.prompt, nullptr, &runs[i]) == DSA_OK);
    host.control->wait_until_blocked();
    host.control->open();
    const std::string first = drain(runs[0]).answer();
    CHECK(drain(runs[1]).answer() == first);
    CHECK(host.stats().images_encoded == 1);
    for (int i : {0, 1}) {
      const dsa_result result = result_of(runs[i]);
      CHECK(result.image_tokens == 16);
      CHECK(result.prompt_tokens > 16);
      CHECK(info_of(sessions[i]).images == 1);
      dsa_run_release(runs[i]);
      dsa_session_release(sessions[i]);
    }
    dsa_image_release(image);
  }

  TEST_CASE("others decode between the slices of a pass") {
    Host host({}, [](Control& c) { c.step_time = std::chrono::milliseconds(2); });
    host.control->script["long"] = bytes_of(std::string(400, 'x'));
    dsa_session *decoding = host.session(), *looking = host.session();
    dsa_run* run = host.start(decoding, "long");
    while (host.control->steps < 3) std::this_thread::yield();
    dsa_image* const image = host.image(4, 4, 4);
    const Shown shown(host, "", {image}, "?");
    show(looking, shown.prompt);
    REQUIRE(host.control->slice_steps.size() == 3);
    CHECK(host.control->slice_steps[1] > host.control->slice_steps[0]);
    CHECK(host.control->slice_steps[2] > host.control->slice_steps[1]);
    CHECK(dsa_run_cancel(run, DSA_STOP_KEEP) == DSA_OK);
    CHECK(drain(run).finish == DSA_FINISH_CANCELLED);
    dsa_run_release(run);
    dsa_image_release(image);
    dsa_session_release(decoding);
    dsa_session_release(looking);
  }

  TEST_CASE(
      "a run that is cancelled in the tower or in its prompt leaves nothing, and succeeds when repeated") {
    for (const int how : {DSA_STOP_KEEP, DSA_STOP_ROLLBACK})
      for (const bool in_tower : {true, false}) {
        Host host({}, [](Control& c) { c.step_tokens = 8; });
        dsa_image* const image = host.image(8, 8, 5);
        const std::string expected = answer(host, {image});
        dsa_image* const other = host.image(8, 8, in_tower ? 6 : 5);
        const Shown shown(host, "look: ", {other}, "what?");
        dsa_session* session = host.session();
        host.control->shut();
        dsa_run* run = nullptr;
        REQUIRE(dsa_run_start(session, shown.prompt, nullptr, &run) == DSA_OK);
        host.control->wait_until_blocked();
        CHECK(dsa_run_cancel(run, how) == DSA_OK);
        host.control->open();
        CHECK(drain(run).finish == DSA_FINISH_CANCELLED);
        dsa_run_release(run);
        if (how == DSA_STOP_ROLLBACK) {
          CHECK(info_of(session).num_tokens == 0);
          CHECK(info_of(session).images == 0);
          const Shown again(host, "look: ", {image}, "what?");
          CHECK(show(session, again.prompt).answer() == expected);
        } else {
          // What was asked stays, its picture included, and is computed with the next question.
          CHECK(info_of(session).images == 1);
          const std::string next = ask(host, session, "and now?").answer();
          dsa_session* whole = host.session();
          dsa_prompt* prompt = host.user("look: ");
          CHECK(dsa_prompt_image(prompt, other) == DSA_OK);
          CHECK(dsa_prompt_text(prompt, "what?", DSA_NTS) == DSA_OK);
          CHECK(dsa_prompt_message(prompt, DSA_ROLE_ASSISTANT) == DSA_OK);
          CHECK(dsa_prompt_message(prompt, DSA_ROLE_USER) == DSA_OK);
          CHECK(dsa_prompt_text(prompt, "and now?", DSA_NTS) == DSA_OK);
          CHECK(show(whole, prompt).answer() == next);
          dsa_prompt_release(prompt);
          dsa_session_release(whole);
        }
        dsa_session_release(session);
        dsa_image_release(image);
        dsa_image_release(other);
      }
  }

  TEST_CASE("a tower that fails ends the run that waits for it, and the session is as before") {
    Host host;
    dsa_session* session = host.session();
    const std::string before = ask(host, session, "hello").answer();
    const uint32_t tokens = info_of(session).num_tokens;
    dsa_image* const image = host.image(4, 4, 7);
    const Shown shown(host, "", {image}, "?");
    host.control->fail_at_slice = 1;
    dsa_run* run = nullptr;
    REQUIRE(dsa_run_start(session, shown.prompt, nullptr, &run) == DSA_OK);
    CHECK(drain(run).finish == DSA_FINISH_ERROR);
    CHECK(result_of(run).status == DSA_ERROR_DEVICE_FAULT);
    CHECK(info_of(session).num_tokens == tokens);
    CHECK(info_of(session).images == 0);
    CHECK(show(session, shown.prompt).finish == DSA_FINISH_STOP);
    dsa_run_release(run);
    dsa_session_release(session);
    dsa_image_release(image);
  }

  TEST_CASE("a picture for a model that reads text only") {
    Host host({}, [](Control& c) { c.reads_text_only = true; });
    dsa_session* session = host.session();
    dsa_image* const image = host.image(4, 4, 8);
    const Shown shown(host, "", {image}, "?");
    dsa_run* run = nullptr;
    CHECK(dsa_run_start(session, shown.prompt, nullptr, &run) == DSA_ERROR_UNSUPPORTED);
    dsa_op* op = nullptr;
    CHECK(dsa_image_prepare(image, host.model, &op) == DSA_ERROR_UNSUPPORTED);
    CHECK(op == nullptr);
    CHECK(ask(host, session, "hello").finish == DSA_FINISH_STOP);
    dsa_session_release(session);
    dsa_image_release(image);
  }

  TEST_CASE("IMG-11 a placeholder in user text is text; one without a picture is refused") {
    Host host;
    dsa_session* session = host.session();
    dsa_image* const image = host.image(4, 4, 9);
    const Shown spelled(host, "<picture>", {image}, "<picture>");
    CHECK(show(session, spelled.prompt).finish == DSA_FINISH_STOP);
    dsa_prompt* prompt = host.user("look: ");
    REQUIRE(dsa_prompt_markup(prompt, "<picture>", DSA_NTS) == DSA_OK);
    REQUIRE(dsa_prompt_image(prompt, image) == DSA_OK);
    dsa_run* run = nullptr;
    CHECK(dsa_run_start(session, prompt, nullptr, &run) == DSA_ERROR_ARGUMENT);
    CHECK(last_error().position == 7);
    CHECK(dsa_prompt_clear(prompt) == DSA_OK);
    const dsa_token raw = kPicture;
    REQUIRE(dsa_prompt_tokens(prompt, &raw, 1) == DSA_OK);
    CHECK(dsa_run_start(session, prompt, nullptr, &run) == DSA_ERROR_ARGUMENT);
    CHECK(run == nullptr);
    dsa_prompt_release(prompt);
    dsa_session_release(session);
    dsa_image_release(image);
  }

  TEST_CASE("IMG-08 pictures in chat JSON: bound before or after, missing, left over") {
    Host host;
    const char* chat =
        "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"look: \"},"
        "{\"type\": \"image_url\", \"image_url\": {\"url\": \"a\"}},"
        "{\"type\": \"text\", \"text\": \"what?\"}]}]";
    dsa_image* const image = host.image(4, 4, 10);
    const std::string expected = answer(host, {image});
    dsa_session* session = nullptr;
    dsa_run* run = nullptr;
    for (const bool before : {true, false}) {
      dsa_prompt* prompt = nullptr;
      REQUIRE(dsa_prompt_create(host.runtime, &prompt) == DSA_OK);
      if (before) REQUIRE(dsa_prompt_bind_image(prompt, "a", image) == DSA_OK);
      REQUIRE(dsa_prompt_add_json(prompt, chat, DSA_NTS) == DSA_OK);
      session = host.session();
      if (!before) {
        CHECK(dsa_run_start(session, prompt, nullptr, &run) == DSA_ERROR_ARGUMENT);
        CHECK(std::string(last_error().message.ptr).find("'a'") != std::string::npos);
        REQUIRE(dsa_prompt_bind_image(prompt, "a", image) == DSA_OK);
      }
      CHECK(dsa_prompt_bind_image(prompt, "a", image) == DSA_ERROR_ARGUMENT);
      CHECK(dsa_prompt_bind_image(prompt, "", image) == DSA_ERROR_ARGUMENT);
      CHECK(dsa_prompt_bind_image(prompt, "\xff", image) == DSA_ERROR_UTF8);
      CHECK(show(session, prompt).answer() == expected);
      REQUIRE(dsa_prompt_bind_image(prompt, "b", image) == DSA_OK);
      CHECK(dsa_run_start(session, prompt, nullptr, &run) == DSA_ERROR_ARGUMENT);
      CHECK(std::string(last_error().message.ptr).find("'b'") != std::string::npos);
      dsa_prompt_release(prompt);
      dsa_session_release(session);
    }
    dsa_image_release(image);
  }

  TEST_CASE("IMG-09 the cost of a prompt counts what will be computed") {
    Host host;
    dsa_image* const image = host.image(8, 8, 11);
    const Shown shown(host, "look: ", {image, image}, "what?");
    dsa_prompt_cost cost = DSA_INIT(dsa_prompt_cost);
    REQUIRE(dsa_prompt_measure(shown.prompt, host.model, nullptr, DSA_FEED_APPEND, &cost) == DSA_OK);
    CHECK(cost.image_tokens == 32);
    CHECK(cost.num_tokens == cost.text_tokens + cost.image_tokens);
    dsa_session* session = host.session();
    dsa_run* run = nullptr;
    REQUIRE(dsa_run_start(session, shown.prompt, nullptr, &run) == DSA_OK);
    drain(run);
    CHECK(result_of(run).prompt_tokens == cost.num_tokens);
    CHECK(result_of(run).image_tokens == cost.image_tokens);
    CHECK(host.stats().images_encoded == 1);
    dsa_run_release(run);
    dsa_session_release(session);
    dsa_image_release(image);
  }

  TEST_CASE("IMG-06 a picture that does not fit into the context is refused before it is encoded") {
    Host host;
    dsa_session* session = host.session(64);
    dsa_image* const image = host.image(32, 32, 12);
    const Shown shown(host, "", {image}, "?");
    dsa_run* run = nullptr;
    CHECK(dsa_run_start(session, shown.prompt, nullptr, &run) == DSA_ERROR_CONTEXT_FULL);
    CHECK(last_error().needed > 256);
    CHECK(last_error().available == 64);
    CHECK(host.stats().images_encoded == 0);
    CHECK(info_of(session).num_tokens == 0);
    dsa_session_release(session);
    dsa_image_release(image);
  }

  TEST_CASE("features that were not asked for longest make room, and are made again") {
    Host host({.picture_bytes = 40 * sizeof(float)});
    dsa_image* const a = host.image(8, 8, 13);
    dsa_image* const b = host.image(8, 8, 14);
    dsa_image* const c = host.image(8, 8, 15);
    dsa_image* const large = host.image(32, 8, 16);
    const std::string first = answer(host, {a});
    answer(host, {b});
    CHECK(host.stats().images_encoded == 2);
    CHECK(answer(host, {a}) == first);  // now b is the older one
    answer(host, {c});
    CHECK(answer(host, {a}) == first);
    CHECK(host.stats().images_encoded == 3);
    answer(host, {b});
    CHECK(host.stats().images_encoded == 4);
    const std::string alone =
        answer(host, {large});  // 64 tokens: too large to be kept, and used all the same
    CHECK(answer(host, {large}) == alone);
    CHECK(host.stats().images_encoded == 6);
    for (dsa_image* image : {a, b, c, large}) dsa_image_release(image);
  }

  TEST_CASE("prepared while nobody asks; the question finds it done") {
    Host host;
    dsa_image* const image = host.image(8, 8, 17);
    dsa_op* op = nullptr;
    REQUIRE(dsa_image_prepare(image, host.model, &op) == DSA_OK);
    dsa_progress progress = DSA_INIT(dsa_progress);
    CHECK(dsa_op_wait(op, 20000, &progress) == DSA_OK);
    CHECK(progress.done == progress.total);
    CHECK(progress.stage == DSA_STAGE_IMAGE);
    dsa_error error = DSA_INIT(dsa_error);
    CHECK(dsa_op_get_error(op, &error) == DSA_OK);
    CHECK(error.code == DSA_OK);
    CHECK(dsa_op_cancel(op) == DSA_OK);  // too late
    CHECK(dsa_op_wait(op, 0, nullptr) == DSA_OK);
    dsa_op_release(op);
    CHECK(host.stats().images_encoded == 1);
    answer(host, {image});
    CHECK(host.stats().images_encoded == 1);
    CHECK(host.stats().image_hits == 1);
    REQUIRE(dsa_image_prepare(image, host.model, &op) == DSA_OK);
    CHECK(dsa_op_wait(op, DSA_FOREVER, nullptr) == DSA_OK);
    CHECK(host.stats().images_encoded == 1);
    CHECK(dsa_op_wait(op, -2, nullptr) == DSA_ERROR_ARGUMENT);
    dsa_op_release(op);
    dsa_image_release(image);
  }

  TEST_CASE("a preparation that fails, is cancelled, let go, or overtaken by a close") {
    Host host;
    dsa_image* const image = host.image(8, 8, 18);
    dsa_op *failing = nullptr, *cancelled = nullptr, *closed = nullptr, *dropped = nullptr;
    host.control->fail_at_slice = 2;
    REQUIRE(dsa_image_prepare(image, host.model, &failing) == DSA_OK);
    CHECK(dsa_op_wait(failing, 20000, nullptr) == DSA_ERROR_DEVICE_FAULT);
    dsa_error error = DSA_INIT(dsa_error);
    CHECK(dsa_op_get_error(failing, &error) == DSA_OK);
    CHECK(error.code == DSA_ERROR_DEVICE_FAULT);
    CHECK(error.message.len > 0);

    host.control->shut();
    REQUIRE(dsa_image_prepare(image, host.model, &cancelled) == DSA_OK);
    host.control->wait_until_blocked();
    CHECK(dsa_op_wait(cancelled, 0, nullptr) == DSA_PENDING);
    CHECK(dsa_op_get_error(cancelled, &error) == DSA_PENDING);
    CHECK(dsa_op_cancel(cancelled) == DSA_OK);
    host.control->open();
    CHECK(dsa_op_wait(cancelled, 20000, nullptr) == DSA_ERROR_CANCELLED);
    CHECK(host.stats().images_encoded == 0);

    host.control->shut();
    REQUIRE(dsa_image_prepare(image, host.model, &dropped) == DSA_OK);
    host.control->wait_until_blocked();
    dsa_op_release(dropped);
    REQUIRE(dsa_image_prepare(image, host.model, &closed) == DSA_OK);
    CHECK(dsa_model_close(host.model, 0) == DSA_PENDING);
    host.control->open();
    CHECK(dsa_op_wait(closed, 20000, nullptr) == DSA_ERROR_CLOSED);
    CHECK(dsa_model_close(host.model, DSA_FOREVER) == DSA_OK);
    dsa_op* none = nullptr;
    CHECK(dsa_image_prepare(image, host.model, &none) == DSA_ERROR_CLOSED);
    const Shown shown(host, "", {image}, "?");
    dsa_prompt_cost cost = DSA_INIT(dsa_prompt_cost);
    CHECK(dsa_prompt_measure(shown.prompt, host.model, nullptr, DSA_FEED_APPEND, &cost) == DSA_ERROR_CLOSED);
    for (dsa_op* op : {failing, cancelled, closed}) dsa_op_release(op);
    dsa_image_release(image);
  }

  TEST_CASE("a preparation yields to runs, and a run that needs a picture does not wait behind the queue") {
    Host host;
    host.control->script["long"] = bytes_of(std::string(300, 'x'));
    dsa_session *decoding = host.session(), *looking = host.session();
    dsa_image *const ahead = host.image(8, 8, 19), *const asked = host.image(8, 8, 20);
    host.control->shut();
    dsa_run* run = host.start(decoding, "long");
    host.control->wait_until_blocked();
    dsa_op* op = nullptr;
    REQUIRE(dsa_image_prepare(ahead, host.model, &op) == DSA_OK);
    const Shown shown(host, "", {asked}, "?");
    dsa_run* second = nullptr;
    REQUIRE(dsa_run_start(looking, shown.prompt, nullptr, &second) == DSA_OK);
    host.control->open();
    CHECK(drain(second).finish == DSA_FINISH_STOP);
    CHECK(drain(run).answer().size() == 300);
    CHECK(dsa_op_wait(op, 20000, nullptr) == DSA_OK);
    CHECK(host.stats().images_encoded == 2);
    REQUIRE(host.control->slice_steps.size() == 6);
    CHECK(host.control->slice_steps[3] >= 300);  // the preparation came behind the long answer
    dsa_run_release(run);
    dsa_run_release(second);
    dsa_op_release(op);
    dsa_session_release(decoding);
    dsa_session_release(looking);
    dsa_image_release(ahead);
    dsa_image_release(asked);
  }

  TEST_CASE("handles go in any order while pictures are in work") {
    for (int order = 0; order < 6; ++order) {
      auto control = std::make_shared<Control>();
      dsa_runtime* runtime = nullptr;
      REQUIRE(dsa_runtime_create(nullptr, &runtime) == DSA_OK);
      auto engine = Engine::create(parts(control, runtime->impl), {});
      REQUIRE(engine.is_ok());
      auto* model = new dsa_model(std::move(engine).value());
      const uint8_t gray[16] = {uint8_t(order)};
      dsa_pixels pixels = DSA_INIT(dsa_pixels);
      pixels.data = gray;
      pixels.width = pixels.height = 4;
      pixels.format = DSA_PIXELS_GRAY8;
      dsa_image* image = nullptr;
      REQUIRE(dsa_image_from_pixels(runtime, &pixels, nullptr, &image) == DSA_OK);
      dsa_op* op = nullptr;
      REQUIRE(dsa_image_prepare(image, model, &op) == DSA_OK);
      const std::function<void()> drops[] = {[&] { dsa_model_release(model); },
                                             [&] { dsa_image_release(image); }, [&] { dsa_op_release(op); }};
      static constexpr int kOrders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
      for (const int i : kOrders[order]) drops[i]();
      dsa_runtime_release(runtime);
    }
  }

  TEST_CASE("what cannot be is refused") {
    Host host;
    const uint8_t gray[16] = {};
    dsa_pixels pixels = DSA_INIT(dsa_pixels);
    pixels.data = gray;
    pixels.width = pixels.height = 4;
    pixels.format = DSA_PIXELS_GRAY8;
    dsa_image* image = nullptr;
    const auto make = [&](const dsa_pixels& p, const dsa_image_options* options = nullptr) {
      return dsa_image_from_pixels(host.runtime, &p, options, &image);
    };
    dsa_pixels wrong = pixels;
    wrong.format = 5;
    CHECK(make(wrong) == DSA_ERROR_ARGUMENT);
    wrong = pixels, wrong.width = 0;
    CHECK(make(wrong) == DSA_ERROR_ARGUMENT);
    wrong = pixels, wrong.height = 0xffffffff;
    CHECK(make(wrong) == DSA_ERROR_ARGUMENT);
    wrong = pixels, wrong.stride = 3;
    CHECK(make(wrong) == DSA_ERROR_ARGUMENT);
    wrong = pixels, wrong.orientation = 9;
    CHECK(make(wrong) == DSA_ERROR_ARGUMENT);
    wrong = pixels, wrong.data = nullptr;
    CHECK(make(wrong) == DSA_ERROR_ARGUMENT);
    wrong = pixels, wrong.struct_size = 3;
    CHECK(make(wrong) == DSA_ERROR_ABI);
    dsa_image_options options = DSA_INIT(dsa_image_options);
    options.max_tokens = 1;
    CHECK(make(pixels, &options) == DSA_ERROR_UNSUPPORTED);
    options.max_tokens = 0;
    options.max_pixels = 15;
    CHECK(make(pixels, &options) == DSA_ERROR_LIMIT);
    CHECK(last_error().needed == 16);
    CHECK(last_error().available == 15);
    options.max_pixels = 0;
    options.max_side = 2;
    options.refuse_too_large = 1;
    CHECK(make(pixels, &options) == DSA_ERROR_LIMIT);
    CHECK(image == nullptr);
    options.refuse_too_large = 0;
    REQUIRE(make(pixels, &options) == DSA_OK);
    uint32_t width = 0, height = 0;
    CHECK(dsa_image_get_size(image, &width, &height) == DSA_OK);
    CHECK(width == 2);
    CHECK(height == 2);
    dsa_image* none = nullptr;
    CHECK(dsa_image_from_file(host.runtime, "/nowhere.png", nullptr, &none) == DSA_ERROR_NOT_FOUND);
    CHECK(dsa_image_from_memory(host.runtime, nullptr, 0, nullptr, &none) == DSA_ERROR_IMAGE);
    CHECK(dsa_image_from_memory(host.runtime, nullptr, 1, nullptr, &none) == DSA_ERROR_ARGUMENT);
    dsa_prompt* prompt = nullptr;
    REQUIRE(dsa_prompt_create(host.runtime, &prompt) == DSA_OK);
    CHECK(dsa_prompt_image(prompt, image) == DSA_ERROR_STATE);
    CHECK(dsa_prompt_image(prompt, nullptr) == DSA_ERROR_ARGUMENT);
    CHECK(dsa_image_prepare(nullptr, host.model, nullptr) == DSA_ERROR_ARGUMENT);
    CHECK(none == nullptr);
    dsa_prompt_release(prompt);
    dsa_image_release(image);
  }
}
