// vision.cc: vision.c in C++. One question about a picture: vision_cpp MODEL PICTURE "question".
//
// Exit codes: 0 answered, 1 failed, 2 wrong arguments.
#include <iostream>
#include <string>

#include "dsa_sdk.h"

template <class T, auto release>  // gives itself back
struct Handle {
  ~Handle() { release(handle); }
  operator T*() const { return handle; }
  T* handle = nullptr;
};

static std::string failure() {
  dsa_error e = DSA_INIT(dsa_error);
  dsa_last_error(&e);
  return std::string(dsa_status_name(e.code)) + ": " + e.message.ptr;
}

static void check(dsa_status status) {
  if (status < 0) throw failure();
}

// Runs on this thread for every event.
static int32_t show(void*, const dsa_event* e) {
  if (e->type == DSA_EVENT_TEXT && e->channel == DSA_CHANNEL_ANSWER) std::cout << e->text.ptr << std::flush;
  return DSA_CONTINUE;
}

int main(int argc, char** argv) try {
  if (argc != 4) return std::cerr << "usage: vision_cpp MODEL PICTURE \"question\"\n", 2;
  Handle<dsa_runtime, dsa_runtime_release> runtime;
  Handle<dsa_image, dsa_image_release> image;
  Handle<dsa_model, dsa_model_release> model;
  Handle<dsa_session, dsa_session_release> session;
  Handle<dsa_prompt, dsa_prompt_release> prompt;
  check(dsa_runtime_create(nullptr, &runtime.handle));
  check(dsa_image_from_file(runtime, argv[2], nullptr, &image.handle));
  check(dsa_model_load_path(runtime, argv[1], nullptr, nullptr, &model.handle));
  check(dsa_session_create(model, nullptr, &session.handle));
  check(dsa_prompt_create(runtime, &prompt.handle));
  check(dsa_prompt_message(prompt, DSA_ROLE_USER));
  check(dsa_prompt_image(prompt, image));
  check(dsa_prompt_text(prompt, argv[3], DSA_NTS));
  check(dsa_session_generate(session, prompt, nullptr, show, nullptr, nullptr));
  std::cout << std::endl;
  return 0;
} catch (const std::string& failed) {
  return std::cerr << failed << '\n', 1;
}
